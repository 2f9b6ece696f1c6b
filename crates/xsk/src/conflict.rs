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
    let program = program_name(id).unwrap_or_else(|| "of unknown name".into());
    let owner = interface
        .xdp_owners()
        .into_iter()
        .find(|owner| owner.prog_id == Some(id));
    let attachment = match &owner {
        Some(owner) => Attachment::HeldBy(owner.pid, owner.comm.clone()),
        None => sys::link_of(id).map_or(Attachment::Unknown, |link| {
            link.map_or(Attachment::Netlink, Attachment::Link)
        }),
    };
    Some(Error::ProgramAttached {
        interface: interface.name().to_owned(),
        detach: removal(interface.name(), &program, attached.mode, &attachment),
        program,
        id,
        mode: match attached.mode {
            XdpMode::Generic => "generic",
            XdpMode::Offloaded => "offloaded",
            XdpMode::Native => "native",
            _ => "several programs",
        },
        holder: owner.as_ref().map(held_by).unwrap_or_default(),
    })
}

/// How a program is attached, which decides how it is removed.
#[derive(Debug)]
enum Attachment {
    /// A `bpf_link` of a process: its number and its name.
    HeldBy(u32, String),
    /// A `bpf_link` with this id that is pinned, or of a process that cannot be seen.
    Link(u32),
    /// No link: it was attached by netlink, as `ip` does, and stays until it is removed.
    Netlink,
    /// Only CAP_SYS_ADMIN may ask whether there is a link.
    Unknown,
}

/// Returns the command, or the action, that removes a program.
fn removal(interface: &str, program: &str, mode: XdpMode, attachment: &Attachment) -> String {
    let off = match mode {
        XdpMode::Generic => "xdpgeneric off",
        XdpMode::Offloaded => "xdpoffload off",
        XdpMode::Native => "xdpdrv off",
        _ => "xdp off",
    };
    let by_ip = format!("ip link set dev {interface} {off}");
    match attachment {
        // The program of libxdp, which calls those of several users. What it has pinned goes with
        // it.
        _ if program.starts_with("xdp_dispatcher") => {
            format!("xdp-loader unload {interface} --all (package xdp-tools)")
        }
        Attachment::HeldBy(pid, comm) if *pid == std::process::id() => {
            format!("close the port or the bpf_link that holds it in this process, {pid} ({comm})")
        }
        Attachment::HeldBy(pid, comm) => format!("end process {pid} ({comm}), which holds it by a bpf_link"),
        Attachment::Link(id) => format!(
            "bpftool link detach id {id}, as root: a bpf_link holds it that is pinned, or of a process that cannot be seen"
        ),
        Attachment::Netlink => by_ip,
        Attachment::Unknown => format!(
            "{by_ip}; if that is refused, a bpf_link of another user's process holds it: root finds it with bpftool link show"
        ),
    }
}

/// The name of the BPF program with this id, which for most programs is all that tells whose it is; `None` if there is none
/// any more, or without `CAP_SYS_ADMIN`. Linux 4.15.
pub fn program_name(id: u32) -> Option<String> {
    sys::program_name(id).ok()
}

/// The process that owns a busy queue of the interface, as a half sentence: the one whose socket is
/// bound to it, as far as the kernel says and this user may see. Otherwise probably the one that
/// holds the XDP program, unless that is `ours`. Who only transmits holds none, and is among those
/// with XDP sockets.
pub(crate) fn holder_of(interface: &Interface, queue: u32, ours: bool) -> String {
    if let Some(holder) = bound_by(interface, queue) {
        return holder;
    }
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

/// The process with the socket that is bound to a queue, as a half sentence. Needs
/// `CONFIG_XDP_SOCKETS_DIAG`.
fn bound_by(interface: &Interface, queue: u32) -> Option<String> {
    let sockets = ringside_nic::sockets::list().ok()??;
    let here = (interface.index(), queue);
    let bound = sockets.iter().find(|socket| (socket.interface, socket.queue) == here)?;
    let holders = ringside_nic::sockets::holders();
    let by_inode = ringside_nic::sockets::by_inode(&holders);
    let holder = by_inode.get(&bound.inode)?;
    Some(format!(", held by {}", named(holder.pid, &holder.comm)))
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
    format!(", held by {}", named(owner.pid, &owner.comm))
}

fn named(pid: u32, comm: &str) -> String {
    match pid == std::process::id() {
        true => format!("this process itself, {pid} ({comm})"),
        false => format!("process {pid} ({comm})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advises_what_removes_each_kind_of_attachment() {
        let own = std::process::id();
        for (program, attachment, expected) in [
            ("other", Attachment::Netlink, "ip link set dev eth0 xdpdrv off"),
            ("xdp_dispatcher", Attachment::Netlink, "xdp-loader unload eth0 --all"),
            ("other", Attachment::HeldBy(1, "init".into()), "end process 1 (init)"),
            (
                "other",
                Attachment::HeldBy(own, "me".into()),
                "close the port or the bpf_link",
            ),
            ("other", Attachment::Link(7), "bpftool link detach id 7"),
            ("other", Attachment::Unknown, "bpftool link show"),
        ] {
            let advice = removal("eth0", program, XdpMode::Native, &attachment);
            assert!(
                advice.starts_with(expected) || advice.ends_with(expected),
                "{attachment:?}: {advice}"
            );
            let by_ip = advice.contains("ip link set");
            let may_work = matches!(attachment, Attachment::Netlink | Attachment::Unknown) && program == "other";
            assert_eq!(by_ip, may_work, "{attachment:?}: {advice}");
        }
        for (mode, off) in [
            (XdpMode::Generic, "xdpgeneric off"),
            (XdpMode::Offloaded, "xdpoffload off"),
            (XdpMode::Multi, "xdp off"),
        ] {
            let advice = removal("eth0", "other", mode, &Attachment::Netlink);
            assert_eq!(advice, format!("ip link set dev eth0 {off}"));
        }
    }

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

    #[cfg(feature = "attach")]
    #[test]
    fn finds_the_link_that_holds_a_program() {
        use std::os::fd::{AsFd as _, AsRawFd as _};

        use crate::program::{AttachMode, XdpLink};
        use ringside_netlab::testing::is_root;

        if !is_root() {
            return;
        }
        let lab = crate::common::lab("linkof", 1);
        let program = ringside_bpf::XskProgram::load(1, ringside_bpf::Filter::None).expect("loads");
        assert_eq!(sys::link_of(program.id()), Ok(None));
        let attach = || XdpLink::attach(program.program(), &lab.b.interface, AttachMode::Native);
        let link = lab.b.run(attach).expect("attaches");
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", link.as_fd().as_raw_fd())).expect("proc");
        let id = info
            .lines()
            .find_map(|line| line.strip_prefix("link_id:")?.trim().parse().ok());
        assert_eq!(sys::link_of(program.id()), Ok(id));
        drop(link);
        assert_eq!(sys::link_of(program.id()), Ok(None));
    }
}
