//! How an interface is set at this moment.

use anyhow::Result;
use ringside_nic::{Channels, Error, Interface, Napi, Qdisc, QueueDetail, Rings, Threaded, XdpAttachment, XdpMode};
use serde::Serialize;

/// The interface now. What it has none of, or what this kernel does not tell, is `None`.
#[derive(Debug, Serialize)]
pub(crate) struct State {
    /// Told beside it.
    #[serde(skip)]
    pub(crate) interface: String,
    pub(crate) up: bool,
    pub(crate) carrier: bool,
    pub(crate) mtu_bytes: u32,
    pub(crate) channels: Option<Channels>,
    pub(crate) rings: Option<Rings>,
    pub(crate) xdp_program: Option<Attached>,
    /// The command, or the action, that removes that program.
    pub(crate) xdp_removal: Option<String>,
    /// What packets of the kernel's stack wait in, and those of XDP sockets pass by.
    pub(crate) qdiscs: Vec<Qdisc>,
    /// Active queues, none while the interface is down (Linux 6.8).
    pub(crate) queues: Option<Vec<QueueDetail>>,
    /// Linux 6.8.
    pub(crate) napis: Option<Vec<NapiState>>,
}

/// The XDP program on the interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Attached {
    pub(crate) id: u32,
    /// Without the privilege to ask for it there is none.
    pub(crate) name: Option<String>,
    pub(crate) mode: XdpMode,
    /// The processes that hold it by a bpf_link.
    pub(crate) holders: Vec<Holder>,
}

impl Attached {
    /// What is known of a program that is attached there.
    pub(crate) fn of(interface: &Interface, xdp: XdpAttachment) -> Self {
        Self {
            id: xdp.prog_id,
            name: ringside_xsk::program_name(xdp.prog_id),
            mode: xdp.mode,
            holders: holders(interface, xdp.prog_id),
        }
    }
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Holder {
    pub(crate) pid: u32,
    pub(crate) command: String,
}

/// A NAPI instance.
#[derive(Debug, Serialize)]
pub(crate) struct NapiState {
    pub(crate) id: u32,
    pub(crate) irq: Option<u32>,
    pub(crate) threaded: Threaded,
    pub(crate) defer_hard_irqs: Option<u32>,
    pub(crate) gro_flush_timeout_ns: Option<u64>,
    pub(crate) irq_suspend_timeout_ns: Option<u64>,
}

impl From<Napi> for NapiState {
    fn from(napi: Napi) -> Self {
        let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            id: napi.id,
            irq: napi.irq,
            threaded: napi.threaded,
            defer_hard_irqs: napi.defer_hard_irqs,
            gro_flush_timeout_ns: napi.gro_flush_timeout.map(nanos),
            irq_suspend_timeout_ns: napi.irq_suspend_timeout.map(nanos),
        }
    }
}

impl State {
    pub(crate) fn read(interface: &Interface) -> Result<Self> {
        let link = interface.state()?;
        let napis = known(interface.napis())?;
        Ok(Self {
            interface: link.name,
            up: link.admin_up,
            carrier: link.carrier,
            mtu_bytes: link.mtu,
            channels: known(interface.channels())?,
            rings: known(interface.rings())?,
            xdp_program: link.xdp.map(|xdp| Attached::of(interface, xdp)),
            xdp_removal: link.xdp.and_then(|_| removal(interface)),
            qdiscs: interface.qdiscs()?,
            queues: known(interface.queue_details())?,
            // The kernel lists the newest first.
            napis: napis.map(|napis| napis.into_iter().rev().map(NapiState::from).collect()),
        })
    }
}

fn removal(interface: &Interface) -> Option<String> {
    match ringside_xsk::foreign_program(interface) {
        Some(ringside_xsk::Error::ProgramAttached { detach, .. }) => Some(detach),
        _ => None,
    }
}

fn holders(interface: &Interface, program: u32) -> Vec<Holder> {
    let owners = interface.xdp_owners().into_iter();
    let mut holders: Vec<_> = owners
        .filter(|owner| owner.prog_id == Some(program))
        .map(|owner| Holder {
            pid: owner.pid,
            command: owner.comm,
        })
        .collect();
    holders.dedup_by_key(|holder| holder.pid);
    holders
}

/// What the driver does not have, or the kernel does not tell, is no error.
fn known<T>(answer: ringside_nic::Result<T>) -> ringside_nic::Result<Option<T>> {
    match answer {
        Err(Error::NeedsKernel { .. }) => Ok(None),
        Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => Ok(None),
        other => other.map(Some),
    }
}
