//! Queueing disciplines for time-triggered traffic: mqprio, taprio and etf, installed, read back, and taken away again.
//!
//! ```text
//!   priority of a packet (SO_PRIORITY), 0 to 15
//!     │ map
//!   traffic class ── gates (taprio only): open or closed, entry after entry of its cycle
//!     │ queues
//!   TX queue ── leaf: etf (keeps each packet until its time), or what the kernel puts there
//! ```

use std::fmt;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};
use serde::{Deserialize, Serialize};

use super::wire;
use crate::{Error, Interface, Result};

/// The handle of what this crate installs, by which it knows it again: "RS".
const HANDLE: u16 = 0x5253;

/// What hangs at an interface's root: the mapping of priorities to queues, and what keeps times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[doc(alias = "tc_mqprio_qopt")]
pub struct QdiscSetup {
    /// The traffic class of each priority.
    pub map: [u8; 16],
    /// The TX queues of each traffic class: number, and the first one.
    pub queues: Vec<QueueRange>,
    /// Gates: then it is taprio (Linux 5.0), otherwise mqprio.
    pub gates: Option<Gates>,
    /// Leaves that keep packets until their time (Linux 4.19), in the order of their queues.
    pub etf: Vec<Etf>,
}

/// TX queues side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueRange {
    /// How many.
    pub count: u16,
    /// The first one.
    pub offset: u16,
}

/// A cycle of gates, of CLOCK_TAI.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[doc(alias = "taprio")]
pub struct Gates {
    /// When a first cycle began or is to begin, in nanoseconds: cycles begin at this and multiples of their time.
    pub base_ns: i64,
    /// Time of a cycle.
    pub cycle_ns: i64,
    /// What is open, one after the other.
    pub entries: Vec<Gate>,
}

/// A part of a cycle of gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// A bit for each traffic class whose gate is open.
    pub open: u32,
    /// For how long, in nanoseconds.
    pub interval_ns: u32,
}

/// What keeps the packets of a TX queue until the time that they carry (`SO_TXTIME`), by CLOCK_TAI. What carries none it throws away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Etf {
    /// The TX queue.
    pub queue: u16,
    /// How much before its time a packet is given to the driver, in nanoseconds. One that comes later than that is thrown away.
    pub delta_ns: i32,
    /// Have the NIC keep the time itself.
    pub offload: bool,
}

/// The state of an interface's root, as a setting.
const DEFAULT: &str = "the kernel's own";
const INSTALL: &str = "install queueing disciplines";
const READ: &str = "read the queueing disciplines";

impl QdiscSetup {
    /// `mqprio` or `taprio`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self.gates {
            Some(_) => "taprio",
            None => "mqprio",
        }
    }

    /// As a setting's value.
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl Interface {
    /// What hangs at the interface's root, as far as it is one of these; `None` if it is the kernel's own default.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if it cannot be read; [`Error::Malformed`] if something else was put there by somebody.
    #[doc(alias = "RTM_GETQDISC")]
    pub fn qdisc_setup(&self) -> Result<Option<QdiscSetup>> {
        let all = self.qdisc_messages(READ)?;
        let Some((root, kind)) = root(&all) else {
            return Ok(None);
        };
        if root.header.handle.major == 0 {
            return Ok(None);
        }
        let options = wire::options(root).unwrap_or_default();
        let setup = match kind {
            "mqprio" => wire::mqprio(&options).map(|(map, queues)| (map, queues, None)),
            "taprio" => wire::taprio(&options).map(|(map, queues, gates)| (map, queues, Some(gates))),
            _ => None,
        };
        let Some((map, queues, gates)) = setup else {
            let handle = root.header.handle.major;
            let what = format!("the root is '{kind}' {handle:x}:, which somebody has put there");
            return Err(Error::malformed(READ, self.name(), what));
        };
        let mut etf: Vec<Etf> = all
            .iter()
            .filter(|one| one.header.parent.major == root.header.handle.major && self::kind(one) == Some("etf"))
            .filter_map(|one| wire::etf(one.header.parent.minor.checked_sub(1)?, &wire::options(one)?))
            .collect();
        etf.sort_by_key(|leaf| leaf.queue);
        Ok(Some(QdiscSetup {
            map,
            queues,
            gates,
            etf,
        }))
    }

    /// The present root as a setting's value.
    pub(crate) fn root_qdisc(&self) -> Result<String> {
        let all = self.qdisc_messages(READ)?;
        Ok(match root(&all) {
            None => DEFAULT.to_owned(),
            Some((root, _)) if root.header.handle.major == 0 => DEFAULT.to_owned(),
            Some((root, _)) if root.header.handle.major == HANDLE => {
                self.qdisc_setup()?.map_or(DEFAULT.to_owned(), |setup| setup.text())
            }
            Some((root, kind)) => format!("{kind} {:x}:", root.header.handle.major),
        })
    }

    /// Whether a setting's value is one of ours: also one that was interrupted while it was installed.
    pub(crate) fn is_our_qdisc(value: &str) -> bool {
        value.starts_with('{')
    }

    /// Puts a setting's value there.
    pub(crate) fn set_root_qdisc(&self, value: &str) -> Result<()> {
        if value == DEFAULT {
            return self.remove_qdiscs();
        }
        let setup: QdiscSetup = serde_json::from_str(value)
            .map_err(|_| Error::malformed(INSTALL, self.name(), format!("the value '{value}'")))?;
        self.install_qdiscs(&setup)
    }

    /// The root must be the kernel's own: what somebody has put there cannot be put back by us.
    pub(crate) fn check_root_qdisc(&self) -> Result<()> {
        let now = self.root_qdisc()?;
        if now == DEFAULT {
            return Ok(());
        }
        let what = if Self::is_our_qdisc(&now) {
            "one of Ringside's"
        } else {
            &now
        };
        Err(Error::QdiscTaken {
            interface: self.name().to_owned(),
            root: what.to_owned(),
        })
    }

    fn install_qdiscs(&self, setup: &QdiscSetup) -> Result<()> {
        let root = wire::message(
            self.index(),
            TcHandle::ROOT,
            HANDLE,
            setup.kind(),
            match &setup.gates {
                None => wire::put_mqprio(&setup.map, &setup.queues),
                Some(gates) => wire::put_taprio(&setup.map, &setup.queues, gates),
            },
        );
        self.request(
            operation(setup.kind()),
            RouteNetlinkMessage::NewQueueDiscipline(root),
            NLM_F_CREATE | NLM_F_EXCL,
        )?;
        for leaf in &setup.etf {
            let parent = TcHandle {
                major: HANDLE,
                minor: leaf.queue + 1,
            };
            let message = wire::message(self.index(), parent, 0, "etf", wire::put_etf(*leaf));
            let made = self.request(
                operation("etf"),
                RouteNetlinkMessage::NewQueueDiscipline(message),
                NLM_F_CREATE | NLM_F_REPLACE,
            );
            if let Err(error) = made {
                // All of it or nothing.
                _ = self.remove_qdiscs();
                return Err(error);
            }
        }
        Ok(())
    }

    fn remove_qdiscs(&self) -> Result<()> {
        let mut message = TcMessage::with_index(i32::try_from(self.index()).unwrap_or(i32::MAX));
        message.header.parent = TcHandle::ROOT;
        message.header.handle = TcHandle {
            major: HANDLE,
            minor: 0,
        };
        let request = RouteNetlinkMessage::DelQueueDiscipline(message);
        self.request("remove queueing disciplines", request, 0).map(drop)
    }
}

fn operation(kind: &str) -> &'static str {
    match kind {
        "taprio" => "install the queueing discipline taprio",
        "etf" => "install the queueing discipline etf",
        _ => "install the queueing discipline mqprio",
    }
}

fn kind(message: &TcMessage) -> Option<&str> {
    message.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Kind(kind) => Some(kind.as_str()),
        _ => None,
    })
}

fn root(all: &[TcMessage]) -> Option<(&TcMessage, &str)> {
    let root = all.iter().find(|one| one.header.parent == TcHandle::ROOT)?;
    Some((root, kind(root)?))
}

impl fmt::Display for QdiscSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let map: Vec<String> = self.map.iter().map(ToString::to_string).collect();
        let queues: Vec<String> = (self.queues.iter())
            .map(|range| format!("{}@{}", range.count, range.offset))
            .collect();
        write!(
            f,
            "{} num_tc {} map {} queues {}",
            self.kind(),
            self.queues.len(),
            map.join(" "),
            queues.join(" ")
        )?;
        if let Some(gates) = &self.gates {
            write!(
                f,
                " clockid CLOCK_TAI base-time {} cycle-time {}",
                gates.base_ns, gates.cycle_ns
            )?;
            for gate in &gates.entries {
                write!(f, " sched-entry S {:02x} {}", gate.open, gate.interval_ns)?;
            }
        }
        for leaf in &self.etf {
            write!(
                f,
                "; etf on queue {} clockid CLOCK_TAI delta {}",
                leaf.queue, leaf.delta_ns
            )?;
            if leaf.offload {
                f.write_str(" offload")?;
            }
        }
        Ok(())
    }
}
