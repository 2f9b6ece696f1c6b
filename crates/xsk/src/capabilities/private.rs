//! Tries that need an interface: on loopback, in network namespaces that a thread makes for itself.
//!
//! ```text
//! unshare(net) → lo up → a socket bound to it ──────────────┐ one UMEM
//!                      → a program attached, one for it only │
//! unshare(net) → lo up → a second socket bound to it ────────┘
//! ```
//!
//! Nothing leads out of such a namespace, nobody else can see it, and it ends with the thread and the sockets.

use std::os::fd::{AsFd, OwnedFd};
use std::thread;

use ringside_nic::Interface;
use ringside_nic::host::Cap;
use rustix::io::Errno;
use rustix::net::bind;
use rustix::net::sockopt::{set_xdp_rx_ring_size, set_xdp_umem_completion_ring_size, set_xdp_umem_fill_ring_size};
use rustix::net::xdp::{SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem};

use super::kernel::Support;
use super::probe::{Call, LOAD, Tried, Umem, program, socket};
use crate::sys;

/// What was tried in namespaces of its own.
pub(super) struct Private {
    pub(super) xdp_link: Support,
    pub(super) shared_umem: Support,
    pub(super) device_bound_programs: Support,
    pub(super) multi_buffer: Support,
}

impl Private {
    /// Nothing could be tried.
    fn none(why: Support) -> Self {
        Self {
            xdp_link: why.clone(),
            shared_umem: why.clone(),
            device_bound_programs: why.clone(),
            multi_buffer: why,
        }
    }
}

pub(super) fn probe(umem: Tried<&Umem>) -> Private {
    // There is no way back from a namespace that would need no further capability, so the thread is used up.
    thread::scope(
        |scope| match thread::Builder::new().spawn_scoped(scope, || inside(umem)) {
            Ok(running) => running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(error) => Private::none(Support::Unknown(format!("no thread could be started: {error}"))),
        },
    )
}

fn inside(umem: Tried<&Umem>) -> Private {
    let lo = match loopback() {
        Ok(lo) => lo,
        Err(why) => return Private::none(why),
    };
    let first = umem.and_then(|umem| bound(umem, &lo));
    let told = |first: &Tried<(OwnedFd, Support)>, tell: fn(&(OwnedFd, Support)) -> Support| match first {
        Ok(first) => tell(first),
        Err(why) => why.clone(),
    };
    Private {
        xdp_link: xdp_link(&lo).into(),
        device_bound_programs: device_bound_program(&lo).into(),
        multi_buffer: told(&first, |(_, multi_buffer)| multi_buffer.clone()),
        // Last: from here on `lo` is in another namespace.
        shared_umem: told(&first, |(socket, _)| shared_umem(socket).into()),
    }
}

/// Moves the thread into a new namespace, and gives its loopback interface, up.
fn loopback() -> Tried<Interface> {
    let call = Call {
        name: "a network namespace of its own",
        without: &[],
        needs: &[Cap::SysAdmin],
    };
    call.judge(sys::new_network_namespace())?;
    let lo = Interface::by_name("lo").map_err(|error| Support::Unknown(error.to_string()))?;
    let call = Call {
        name: "switching on an interface",
        needs: &[Cap::NetAdmin],
        ..call
    };
    lo.set_up(true).map_err(|error| {
        let errno = error.errno().map_or(Errno::IO, Errno::from_raw_os_error);
        call.judge::<()>(Err(errno)).expect_err("it failed")
    })?;
    Ok(lo)
}

/// Loopback cannot have such a program, and a kernel that knows them says so; one that does not know the flag answers
/// `EINVAL`, as for any flag unknown, before it looks for the interface.
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/bpf_prog_dev_bound_init>
fn device_bound_program(lo: &Interface) -> Tried {
    // Another interface would need a driver, which might have to be loaded and would then stay.
    program()?;
    match sys::load_pass(sys::DEV_BOUND_ONLY, lo.index()) {
        Err(Errno::OPNOTSUPP) => Ok(()),
        answer => LOAD.judge(answer).map(drop),
    }
}

fn xdp_link(lo: &Interface) -> Tried {
    let program = program()?;
    let call = Call {
        name: "bpf(BPF_LINK_CREATE)",
        without: &[Errno::INVAL],
        needs: &[Cap::NetAdmin],
    };
    call.judge(sys::link_create_xdp(program.as_fd(), lo.index(), sys::SKB_MODE))
        .map(drop)
}

/// A socket that is bound to `lo`, and whether that could be with `XDP_USE_SG`.
fn bound(umem: &Umem, lo: &Interface) -> Tried<(OwnedFd, Support)> {
    let copy = SocketAddrXdpFlags::XDP_COPY;
    let attempt = |flags| {
        let socket = umem.plain()?;
        rings(&socket)?;
        let call = Call::plain("bind()", &[Errno::INVAL]);
        call.judge(bind(&socket, &SocketAddrXdp::new(flags, lo.index(), 0)))?;
        Ok(socket)
    };
    match attempt(copy | SocketAddrXdpFlags::XDP_USE_SG) {
        Ok(socket) => Ok((socket, Support::Yes)),
        // Was it the flag?
        Err(Support::No) => match attempt(copy) {
            Ok(socket) => Ok((socket, Support::No)),
            Err(Support::No) => Err(Support::Unknown("no socket could be bound to loopback".into())),
            Err(why) => Err(why),
        },
        Err(why) => Err(why),
    }
}

/// Older kernels share a UMEM on one queue of one interface only.
fn shared_umem(first: &OwnedFd) -> Tried {
    let lo = loopback()?;
    let socket = socket()?;
    rings(&socket)?;
    let address = SocketAddrXdpWithSharedUmem {
        addr: SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, lo.index(), 0),
        shared_umem_fd: first.as_fd(),
    };
    Call::plain("bind()", &[Errno::INVAL]).judge(bind(&socket, &address))
}

/// The rings that a socket must have to be bound.
fn rings(socket: &OwnedFd) -> Tried {
    const SLOTS: u32 = 2;
    let call = |name| Call::plain(name, &[]);
    call("setsockopt(XDP_UMEM_FILL_RING)").judge(set_xdp_umem_fill_ring_size(socket, SLOTS))?;
    call("setsockopt(XDP_UMEM_COMPLETION_RING)").judge(set_xdp_umem_completion_ring_size(socket, SLOTS))?;
    call("setsockopt(XDP_RX_RING)").judge(set_xdp_rx_ring_size(socket, SLOTS))
}
