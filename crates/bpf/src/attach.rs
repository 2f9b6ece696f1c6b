//! Attaching programs to interfaces, and running them without one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::libbpf_sys::{BPF_TCX_INGRESS, BPF_XDP, XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE, bpf_attach_type};
use libbpf_rs::query::ProgInfoIter;

use crate::error::{Error, NATIVE, Result, interface_name};
use crate::{load, sys};

/// Where on its way an XDP program sees a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum XdpMode {
    /// In the driver, before the kernel has made a socket buffer of it.
    #[doc(alias = "XDP_FLAGS_DRV_MODE")]
    Native,
    /// In the stack, on a socket buffer: works on every interface, and is slower.
    #[doc(alias = "XDP_FLAGS_SKB_MODE")]
    Generic,
}

/// A program attached to an interface: dropping it detaches the program, and so does the end of the
/// process in any way. Only what has a name in a bpffs stays
/// ([`attach_pinned`](crate::gateway::GatewayProgram::attach_pinned)).
#[derive(Debug)]
#[must_use = "dropping the link detaches the program at once"]
#[doc(alias = "bpf_link")]
pub struct Link {
    fd: OwnedFd,
    is_pinned: bool,
}

impl Link {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd, is_pinned: false }
    }

    /// It has a name, by which it stays attached.
    pub(crate) fn pinned(mut self) -> Self {
        self.is_pinned = true;
        self
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if !self.is_pinned {
            // At once: a child process has the descriptor, too, from its begin until it runs another program. Fails only when
            // the interface is gone.
            _ = sys::detach_link(self.fd.as_fd());
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

pub(crate) fn xdp(name: &'static str, program: BorrowedFd<'_>, ifindex: u32, mode: XdpMode) -> Result<Link> {
    let (flags, hook) = match mode {
        XdpMode::Native => (XDP_FLAGS_DRV_MODE, NATIVE),
        XdpMode::Generic => (XDP_FLAGS_SKB_MODE, "generic XDP"),
    };
    sys::link(program, ifindex, BPF_XDP, flags)
        .map(Link::new)
        .map_err(|source| Error::Attach {
            program: name,
            hook,
            interface: interface_name(ifindex),
            source,
        })
}

/// Attaches a program that passes every packet, in native mode, to an interface of the calling
/// thread's network namespace.
///
/// The other end of a veth pair takes what an XDP program sends back only while this end has a
/// program. No process is needed for it: the program stays until `ip link set dev NAME xdp off`.
///
/// # Errors
///
/// [`Error::Attach`], for instance if another program is attached.
pub fn attach_pass(ifindex: u32) -> Result<()> {
    let attach = |program: OwnedFd| sys::attach_xdp(program.as_fd(), ifindex, XDP_FLAGS_DRV_MODE);
    let attached = sys::load_pass().and_then(|program| load::quietly(|| attach(program)));
    attached.map_err(|source| Error::Attach {
        program: "ringside_pass",
        hook: NATIVE,
        interface: interface_name(ifindex),
        source,
    })
}

/// A program that is loaded in the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedProgram {
    /// Its name, of at most 15 characters.
    pub name: String,
    /// It passes every packet, because it is the program of [`attach_pass`].
    pub passes_all: bool,
}

/// Returns what is known of a program by its id. None if the kernel has no such program.
///
/// # Errors
///
/// [`Error::Inspect`] if the kernel does not show it: that takes CAP_SYS_ADMIN. [`Error::Load`] if
/// the kernel takes no program to compare it with.
pub fn loaded_program(id: u32) -> Result<Option<LoadedProgram>> {
    // The iterator ends at once without the capability, as if there were no programs.
    let program = match sys::program_by_id(id) {
        Ok(program) => program,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::Inspect { id, source }),
    };
    let failed = |source| Error::Load {
        program: "ringside_pass",
        source,
        log: String::new(),
    };
    let pass = sys::load_pass().map_err(failed)?;
    let tag = sys::program_tag(pass.as_fd()).map_err(failed)?;
    let passes_all = sys::program_tag(program.as_fd()).map_err(failed)? == tag;
    let found = ProgInfoIter::default().find(|program| program.id == id);
    Ok(found.map(|program| LoadedProgram {
        name: program.name.to_string_lossy().into_owned(),
        passes_all,
    }))
}

/// Needs kernel 6.6.
pub(crate) fn tcx_ingress(name: &'static str, program: BorrowedFd<'_>, ifindex: u32) -> Result<Link> {
    tcx(name, program, ifindex, (BPF_TCX_INGRESS, "tcx ingress"))
}

/// Needs kernel 6.6.
pub(crate) fn tcx_egress(name: &'static str, program: BorrowedFd<'_>, ifindex: u32) -> Result<Link> {
    let egress = libbpf_rs::libbpf_sys::BPF_TCX_EGRESS;
    tcx(name, program, ifindex, (egress, "tcx egress"))
}

fn tcx(
    name: &'static str,
    program: BorrowedFd<'_>,
    ifindex: u32,
    (attach_type, hook): (bpf_attach_type, &'static str),
) -> Result<Link> {
    sys::link(program, ifindex, attach_type, 0)
        .map(Link::new)
        .map_err(|source| Error::Attach {
            program: name,
            hook,
            interface: interface_name(ifindex),
            source,
        })
}

/// What an XDP program decided about a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// Dropped because of an error in the program.
    #[doc(alias = "XDP_ABORTED")]
    Aborted,
    /// Dropped.
    #[doc(alias = "XDP_DROP")]
    Drop,
    /// Up to the kernel's stack.
    #[doc(alias = "XDP_PASS")]
    Pass,
    /// Back out of the interface that it came from.
    #[doc(alias = "XDP_TX")]
    Tx,
    /// To a socket, another interface or another CPU.
    #[doc(alias = "XDP_REDIRECT")]
    Redirect,
    /// A value that means nothing to the kernel, which then drops.
    Unknown(u32),
}

impl Verdict {
    /// The kernel's name of it: "XDP_DROP"; "unknown" for a value that means nothing to it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aborted => "XDP_ABORTED",
            Self::Drop => "XDP_DROP",
            Self::Pass => "XDP_PASS",
            Self::Tx => "XDP_TX",
            Self::Redirect => "XDP_REDIRECT",
            Self::Unknown(_) => "unknown",
        }
    }
}

impl From<u32> for Verdict {
    /// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/bpf.h#L6462>
    fn from(action: u32) -> Self {
        match action {
            0 => Self::Aborted,
            1 => Self::Drop,
            2 => Self::Pass,
            3 => Self::Tx,
            4 => Self::Redirect,
            other => Self::Unknown(other),
        }
    }
}

/// What an XDP program does with `packet`, and what it makes of it: the program runs in the kernel,
/// but no interface is involved, and it counts as it would for any other packet.
///
/// The packet arrives on queue 0 of the loopback interface. It is 14 bytes or longer, and with
/// what the kernel puts around it at most a page.
///
/// # Errors
///
/// [`Error::Run`] if the kernel refuses to run the program, or the packet is too short or too long.
#[doc(alias = "BPF_PROG_TEST_RUN")]
pub fn dry_run(program: impl AsFd, packet: &[u8]) -> Result<(Verdict, Vec<u8>)> {
    // No program of this crate makes a packet longer.
    let mut output = vec![0; packet.len()];
    let run = sys::TestRun {
        packet,
        output: &mut output,
        repeat: 1,
        ..Default::default()
    };
    let ran = sys::test_run(program.as_fd(), run).map_err(|source| Error::Run {
        what: format!("a packet of {} bytes", packet.len()),
        source,
    })?;
    output.truncate(ran.length as usize);
    Ok((ran.value.into(), output))
}

#[cfg(test)]
#[path = "attach_tests.rs"]
mod tests;
