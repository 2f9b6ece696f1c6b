//! Opening a port: checks, program, ladder of modes.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ringside_nic::Interface;
#[cfg(feature = "attach")]
use ringside_nic::host::{Cap, Capabilities};
#[cfg(feature = "attach")]
use rustix::io::Errno;

use super::guard::PortGuard;
use super::ladder::{Ladder, Opened, check_memory};
#[cfg(feature = "attach")]
use super::own::{Wanted, spare_host};
use super::{Loaded, OpenQueues, Port, PortBuilder};
use crate::conflict;
use crate::error::Error;
use crate::link::Link;
use crate::mode::Path;
use crate::opener::Opener;
use crate::options::{Direction, Sizes};
use crate::program::{AttachMode, Program, XskMap};
use crate::queue::Queue;
use crate::report::{PortReport, ProgramReport};
use crate::socket::check_mtu;
use crate::sys;

pub(super) fn open(builder: PortBuilder) -> Result<Port, Error> {
    let recipe = builder.try_clone()?;
    let PortBuilder {
        interface,
        queues,
        mode,
        program,
        mut options,
        umem,
        first_place,
        settings,
        mark,
    } = builder;
    // First, so that nothing that happens from here on is missed.
    let link_watch = Arc::new(Link::watch(&interface)?);
    let state = interface.state()?;
    if !state.admin_up {
        return Err(Error::InterfaceDown {
            interface: interface.name().to_owned(),
        });
    }
    if state.kind.as_deref() == Some("vrf") {
        return Err(Error::Setting {
            setting: "interface",
            value: interface.name().to_owned(),
            reason: VRF.to_owned(),
        });
    }
    // Nonsense values first: nothing has been touched yet.
    let mut sizes = Sizes::choose(&options, Path::NativeCopy, 0, umem.as_ref())?;
    let transmit_only = options.direction == Direction::Transmit;
    if !transmit_only {
        check_mtu(&interface, state.mtu, sizes)?;
    }
    let available = if transmit_only {
        interface.tx_queues()?
    } else {
        interface.rx_queues()?
    };
    let kind = if transmit_only { "transmit" } else { "receive" };
    let chosen = choose_queues(&interface, queues, available, kind)?;
    // All queues together: each by itself may fit where the port does not.
    let mut short_of = None;
    while umem.is_none() {
        match check_memory(&interface, chosen.len(), sizes, &options) {
            Ok(()) => break,
            Err(Error::Memory { limit, .. }) if options.take_fewer_frames() => short_of = Some(limit),
            Err(error) => return Err(error),
        }
        sizes = Sizes::choose(&options, Path::NativeCopy, 0, None)?;
    }
    let program = program.unwrap_or(if transmit_only {
        Program::None
    } else {
        default_program()
    });
    if !transmit_only && matches!(program, Program::None) {
        return Err(Error::Setting {
            setting: "program",
            value: "none".into(),
            reason: "a port that receives needs an XDP program that redirects to its sockets: Ringside's own (feature \"attach\"), Program::Custom or Program::Attached".into(),
        });
    }
    if transmit_only && !matches!(program, Program::None) {
        let (setting, value) = match &program {
            #[cfg(feature = "attach")]
            Program::Ringside(filter) => ("filter", filter.to_string()),
            Program::Attached { .. } => ("program", "the one that is attached".into()),
            _ => ("program", "the caller's".into()),
        };
        return Err(Error::Setting {
            setting,
            value,
            reason: "a port that only transmits has no sockets to redirect to: leave it out, or \
                     open the port for both directions"
                .into(),
        });
    }
    if ![ARPHRD_ETHER, ARPHRD_LOOPBACK].contains(&state.hardware_type) {
        let without = match &program {
            #[cfg(feature = "attach")]
            Program::Ringside(_) => Some(
                "which Ringside's XDP program reads: use the interface below it, or an XDP program of \
                 your own",
            ),
            Program::None => Some("with which packets begin that a port sends: use the interface below it"),
            _ => None,
        };
        if let Some(advice) = without {
            return Err(Error::Setting {
                setting: "interface",
                value: interface.name().to_owned(),
                reason: format!(
                    "its packets have no Ethernet header (hardware type {}), {advice}",
                    state.hardware_type
                ),
            });
        }
    }
    #[cfg(feature = "attach")]
    if let Program::Ringside(filter) = &program {
        spare_host(&interface, *filter)?;
    }
    if first_place != 0 && !matches!(program, Program::Custom { .. } | Program::Attached { .. }) {
        return Err(Error::Setting {
            setting: "first_place",
            value: first_place.to_string(),
            reason: "it is for the XSKMAP of a program of the caller's: Program::Custom or Program::Attached".into(),
        });
    }
    #[cfg(feature = "attach")]
    let wanted = Wanted {
        queues: available,
        multi_buffer: sizes.geometry.multi_buffer(),
        hints: options.hints.as_deref(),
        mark,
        mode,
    };
    #[cfg(not(feature = "attach"))]
    let _ = mark;
    let mut loaded = load(
        &interface,
        program,
        #[cfg(feature = "attach")]
        &wanted,
    )?;
    loaded.map = loaded.map.map(|map| map.starting_at(first_place));
    if loaded.attaches()
        && let Some(error) = conflict::foreign_program(&interface)
    {
        return Err(error);
    }

    let ladder = Ladder {
        interface: &interface,
        queues: &chosen,
        options: &options,
        short_of,
        nic_ring: interface.rings().map_or(0, |rings| rings.rx),
        shared: umem.as_ref(),
        mtu: state.mtu,
        watch: &link_watch,
        lacks_program: Cell::new(false),
        not_native: (state.kind.as_deref() == Some("bond")).then_some(BOND),
    };
    let climbed = ladder.climb_down(&loaded, mode);
    #[cfg(feature = "attach")]
    let climbed = if ladder.lacks_program.get() {
        // Its sockets are closed. One that passes all packets on, and has no sockets to redirect to.
        drop(climbed);
        loaded = load(&interface, Program::Ringside(crate::program::Filter::None), &wanted)?;
        loaded.map = None;
        ladder.climb_down(&loaded, mode)
    } else {
        climbed
    };
    let (queues, link) = climbed?;
    let (queues, link, changed) = {
        // An error undoes what was opened, in the right order.
        let mut opened = Opened {
            map: loaded.map.as_ref(),
            link,
            queues,
        };
        let receive_queues = interface.rx_queues()?;
        let receiving: Vec<u32> = chosen.into_iter().filter(|&queue| queue < receive_queues).collect();
        let changed = settings.apply(&interface, &receiving)?;
        let (queues, link) = opened.take();
        (queues, link, changed)
    };

    let Loaded {
        map,
        mut report,
        #[cfg(feature = "attach")]
        own,
        ..
    } = loaded;
    #[cfg(feature = "attach")]
    let program = own.map(|own| {
        let (program, nic) = own.settle(link.as_ref().is_some_and(|link| link.mode() == AttachMode::Generic));
        report = Some(ProgramReport {
            filter: Some(program.filter().to_string()),
            nic,
            ..described(program.program())
        });
        program
    });
    if let (Some(report), Some(link)) = (&mut report, &link) {
        report.attached = link.mode().name();
    }
    let report = PortReport {
        driver: interface.driver().ok().map(|driver| driver.name),
        program: report,
        unbound_queues: if transmit_only {
            Vec::new()
        } else {
            let bound = |queue: &u32| queues.iter().any(|other| other.id() == *queue);
            (0..available).filter(|queue| !bound(queue)).collect()
        },
        queues: queues.iter().map(|queue| queue.report().clone()).collect(),
        settings: changed.notes.clone(),
        warnings: {
            let is_generic = queues.iter().any(|queue| queue.report().path == Path::Generic);
            let takes_uncut = is_generic && !transmit_only && state.kind.as_deref() == Some("veth");
            takes_uncut.then(|| UNCUT.to_owned()).into_iter().collect()
        },
        interface: interface.name().to_owned(),
    };
    let guard = PortGuard {
        interface,
        changed,
        places: (map.iter())
            .flat_map(|map| queues.iter().map(|queue| map.place_of(queue)))
            .collect(),
        map,
        link,
        #[cfg(feature = "attach")]
        program,
        report,
        readers: queues.iter().map(Queue::stats_reader).collect(),
        opener: Opener::this_process(),
    };
    Ok(Port {
        guard,
        queues: OpenQueues { all: queues },
        recipe,
    })
}

#[cfg(feature = "attach")]
fn default_program() -> Program {
    Program::Ringside(crate::program::Filter::All)
}

#[cfg(not(feature = "attach"))]
fn default_program() -> Program {
    Program::None
}

fn choose_queues(
    interface: &Interface,
    queues: Option<Vec<u32>>,
    available: u32,
    direction: &'static str,
) -> Result<BTreeSet<u32>, Error> {
    let Some(queues) = queues else {
        return Ok((0..available).collect());
    };
    let chosen: BTreeSet<u32> = queues.iter().copied().collect();
    if chosen.is_empty() || chosen.len() != queues.len() {
        return Err(Error::Setting {
            setting: "queues",
            value: format!("{queues:?}"),
            reason: "name at least one queue, and each only once".into(),
        });
    }
    match chosen.iter().find(|&&queue| queue >= available) {
        Some(&queue) => Err(Error::NoSuchQueue {
            interface: interface.name().to_owned(),
            queue,
            available,
            direction,
        }),
        None => Ok(chosen),
    }
}

fn load(
    interface: &Interface,
    program: Program,
    #[cfg(feature = "attach")] wanted: &Wanted<'_>,
) -> Result<Loaded, Error> {
    Ok(match program {
        #[cfg(feature = "attach")]
        Program::Ringside(filter) => {
            let failed = |reason: String| Error::Load {
                interface: interface.name().to_owned(),
                reason,
            };
            let own = wanted.load(interface, filter).map_err(|error| {
                let hint = crate::socket::since(wanted.multi_buffer, error.errno().map(Errno::from_raw_os_error));
                load_error(interface, &error).unwrap_or_else(|| failed(format!("{error}{hint}")))
            })?;
            let map = (own.xsks_map().try_clone_to_owned()).map_err(|error| failed(error.to_string()))?;
            Loaded {
                // When it is known which of them is attached.
                report: None,
                attach: None,
                map: Some(XskMap::from_fd(map)?),
                own: Some(own),
            }
        }
        Program::Custom { program, xsks_map } => {
            loaded(Some(described(program.as_fd())), Some(program), Some(xsks_map))?
        }
        Program::Attached { xsks_map } => {
            let report = interface.state()?.xdp.map(|xdp| ProgramReport {
                name: sys::program_name(xdp.prog_id).unwrap_or_default(),
                id: xdp.prog_id,
                attached: "by the caller",
                filter: None,
                nic: None,
            });
            loaded(report, None, Some(xsks_map))?
        }
        Program::None => loaded(None, None, None)?,
    })
}

fn described(program: BorrowedFd<'_>) -> ProgramReport {
    let (id, name) = sys::program_info(program).unwrap_or_default();
    ProgramReport {
        name,
        id,
        attached: "by the caller",
        filter: None,
        nic: None,
    }
}

/// The error for a program that was refused for want of a capability.
#[cfg(feature = "attach")]
fn load_error(interface: &Interface, error: &ringside_bpf::Error) -> Option<Error> {
    let errno = Errno::from_raw_os_error(error.errno()?);
    let held = Capabilities::effective().ok()?;
    // The verifier says EACCES too, to programs that it does not like: so the capabilities decide.
    let needs = match (held.has(Cap::Bpf), held.has(Cap::NetAdmin)) {
        _ if held.has(Cap::SysAdmin) => return None,
        (false, false) => "CAP_BPF and CAP_NET_ADMIN",
        (false, true) => "CAP_BPF in addition to CAP_NET_ADMIN",
        (true, false) => "CAP_NET_ADMIN in addition to CAP_BPF",
        (true, true) if held.has(Cap::Perfmon) => return None,
        (true, true) => "CAP_PERFMON in addition to CAP_BPF and CAP_NET_ADMIN before Linux 5.18",
    };
    matches!(errno, Errno::PERM | Errno::ACCESS).then(|| Error::Permission {
        action: "loading the XDP program",
        interface: interface.name().to_owned(),
        errno,
        needs,
    })
}

fn loaded(report: Option<ProgramReport>, attach: Option<OwnedFd>, map: Option<OwnedFd>) -> Result<Loaded, Error> {
    Ok(Loaded {
        attach,
        map: map.map(XskMap::from_fd).transpose()?,
        #[cfg(feature = "attach")]
        own: None,
        report,
    })
}

/// The driver of a veth switches its peer's segmentation off for native XDP, and for generic XDP it
/// does not. <https://elixir.bootlin.com/linux/v6.18/C/ident/veth_xdp_set>
const UNCUT: &str = "generic mode on veth: a peer with segmentation offload sends TCP uncut, and what does not fit a frame is \
                     dropped (rx_dropped); at the peer: ethtool -K PEER tso off tx-udp-segmentation off";

/// A bond hands a native program to its members and runs none itself; a socket gets packets of the
/// interface that it is bound to alone.
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/bond_xdp_set>,
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/xsk_rcv_check>
const BOND: &str = "native XDP of a bond runs on its members, whose packets come to no socket of the bond";

/// A VRF takes packets of its interfaces behind their XDP programs, and sends none that it cannot
/// route. <https://elixir.bootlin.com/linux/v6.18/C/ident/vrf_ip_rcv>,
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/is_ip_tx_frame>
const VRF: &str = "no packet of a VRF passes its XDP program, and what a socket sends it drops: \
                   use the interfaces in it";

/// Hardware types of interfaces whose packets begin with an Ethernet header.
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/if_arp.h>
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;
