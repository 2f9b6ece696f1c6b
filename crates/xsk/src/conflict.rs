//! Who is in the way: the program that is already attached, the process that holds a queue.

use std::time::Duration;

use ringside_nic::owners::Owner;
use ringside_nic::{Interface, XdpMode};

use crate::error::Error;
use crate::sys;

/// The XDP program that is attached to `interface`, as the error that opening a port would give, with its name, its
/// holder and how to detach it; `None` when there is none.
pub fn foreign_program(interface: &Interface) -> Option<Error> {
    let attached = interface.state().ok()?.xdp?;
    let id = attached.prog_id;
    let (mode, off) = match attached.mode {
        XdpMode::Generic => ("generic", "xdpgeneric off"),
        XdpMode::Offloaded => ("offloaded", "xdpoffload off"),
        XdpMode::Native => ("native", "xdpdrv off"),
        _ => ("several programs", "xdp off"),
    };
    let owner = interface
        .xdp_owners()
        .into_iter()
        .find(|owner| owner.prog_id == Some(id));
    let detach = match &owner {
        Some(owner) => format!(
            "end process {} ({}), which holds it by a bpf_link",
            owner.pid, owner.comm
        ),
        None => format!("ip link set dev {} {off}", interface.name()),
    };
    Some(Error::ProgramAttached {
        interface: interface.name().to_owned(),
        program: program_name(id).unwrap_or_else(|| "of unknown name".into()),
        id,
        mode,
        holder: owner.as_ref().map(held_by).unwrap_or_default(),
        detach,
    })
}

/// The name of the BPF program with this id, which for most programs is all that tells whose it is; `None` if there is none
/// any more, or without `CAP_SYS_ADMIN`. Linux 4.15.
pub fn program_name(id: u32) -> Option<String> {
    sys::program_name(id).ok()
}

/// The process that probably owns a busy queue of the interface, as a half sentence: the one that holds the XDP program,
/// unless that is `ours`. Who only transmits holds none, and is among those with XDP sockets.
pub(crate) fn holder_of(interface: &Interface, ours: bool) -> String {
    let attached = interface.state().ok().and_then(|state| state.xdp);
    let owners = if ours { Vec::new() } else { interface.xdp_owners() };
    // Program ids are the same everywhere; a namespace is only known per process, and may be a thread's.
    owners
        .iter()
        .find(|owner| attached.is_some_and(|attached| owner.prog_id == Some(attached.prog_id)))
        .or_else(|| owners.iter().find(|owner| owner.same_namespace))
        .map(held_by)
        .or_else(holders_of_sockets)
        .unwrap_or_default()
}

/// How long a queue is tried that another socket may hold.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// How long one is tried that the kernel is about to give back.
const RETURN_TIMEOUT: Duration = Duration::from_secs(30);

/// How long to wait for a busy queue: longer if no socket is bound to it any more, as far as the kernel says.
pub(crate) fn busy_timeout(interface: &Interface, queue: u32) -> Duration {
    let Ok(Some(sockets)) = ringside_nic::sockets::list() else {
        return BUSY_TIMEOUT;
    };
    let here = (interface.index(), queue);
    match sockets.iter().any(|socket| (socket.interface, socket.queue) == here) {
        true => BUSY_TIMEOUT,
        false => RETURN_TIMEOUT,
    }
}

/// Other processes of this network namespace that have XDP sockets; on which interface and queue nobody tells.
fn holders_of_sockets() -> Option<String> {
    let others = ringside_nic::owners::xdp_socket_owners().into_iter();
    let here: Vec<_> = others
        .filter(|owner| owner.same_namespace && owner.pid != std::process::id())
        .map(|owner| format!("{} ({})", owner.pid, owner.comm))
        .collect();
    (!here.is_empty()).then(|| {
        format!(
            "; in this network namespace process {} has such sockets",
            here.join(", ")
        )
    })
}

fn held_by(owner: &Owner) -> String {
    format!(", held by process {} ({})", owner.pid, owner.comm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_no_socket_holds_is_waited_for_longer() {
        let loopback = Interface::by_name("lo").expect("each network namespace has one");
        let expected = match ringside_nic::sockets::list() {
            Ok(Some(_)) => RETURN_TIMEOUT,
            _ => BUSY_TIMEOUT,
        };
        // No machine has so many queues.
        assert_eq!(busy_timeout(&loopback, u32::MAX), expected);
    }
}
