//! What can go wrong while a test bed is built.

use std::io;

use ringside_nic::netlink::NetlinkError;

#[cfg(feature = "guests")]
use crate::attach::Way;

/// A test bed that could not be built or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something about a namespace failed.
    #[error("cannot {operation} the network namespace '{namespace}': {source}{}", advice(source))]
    Namespace {
        /// What was tried.
        operation: &'static str,
        /// On which namespace.
        namespace: String,
        /// Why it failed.
        r#source: io::Error,
    },
    /// The kernel refused a link, an address or a neighbour.
    #[error(
        "cannot {operation} for '{interface}' in the network namespace '{namespace}': {source}{}",
        link_advice(source)
    )]
    Link {
        /// What was tried.
        operation: &'static str,
        /// For which interface.
        interface: String,
        /// In which namespace.
        namespace: String,
        /// Why it failed.
        r#source: NetlinkError,
    },
    /// A setting inside a namespace could not be written.
    #[error(
        "cannot write {path} in the network namespace '{namespace}': {source}{}",
        advice(source)
    )]
    Setting {
        /// Which file of procfs.
        path: String,
        /// In which namespace.
        namespace: String,
        /// Why it failed.
        r#source: io::Error,
    },
    /// An operation on one of the interfaces failed.
    #[error("in the network namespace '{namespace}': {source}")]
    Interface {
        /// In which namespace.
        namespace: String,
        /// What failed.
        r#source: ringside_nic::Error,
    },
    /// A link did not let packets pass in time.
    #[error(
        "'{interface}' in the network namespace '{namespace}' lets no packets pass after {seconds} s; are both ends up?"
    )]
    NotReady {
        /// Which interface.
        interface: String,
        /// In which namespace.
        namespace: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// Something that a guest is made of could not be had: its kernel, a module, a program.
    #[error("cannot {operation} {what}: {reason}")]
    Prepare {
        /// What was tried.
        operation: &'static str,
        /// On what.
        what: String,
        /// Why it failed, and what to do.
        reason: String,
    },
    /// This machine lacks what a way to attach a guest takes.
    #[cfg(feature = "guests")]
    #[error("a guest cannot be attached by {way} here: {what}; {advice}")]
    Missing {
        /// Which way.
        way: Way,
        /// What is missing, and how that was seen.
        what: String,
        /// What to do.
        advice: String,
    },
    /// Something was not done, for it would do harm or cannot be done here.
    #[error("cannot {operation} {what}: {why}")]
    Refused {
        /// What was asked for.
        operation: &'static str,
        /// With what.
        what: String,
        /// Why not, and what to do.
        why: String,
    },
    /// A program that carries a guest's packets did not start, ended, or did not do what it was told.
    #[error("'{program}': {why}{}", program_tail(said))]
    Program {
        /// Which program.
        program: String,
        /// What is wrong.
        why: String,
        /// The last that it said.
        said: String,
    },
    /// An XDP program that carries a guest's packets could not be loaded, attached or read.
    #[error("cannot {operation} '{interface}' in the network namespace '{namespace}': {source}")]
    Bpf {
        /// What was tried.
        operation: &'static str,
        /// For which interface.
        interface: String,
        /// In which namespace.
        namespace: String,
        /// What failed.
        r#source: Box<ringside_bpf::Error>,
    },
    /// A guest did not start, ended, or did not do what it was told.
    #[error("the guest '{guest}': cannot {operation}: {source}{}", console_tail(console))]
    Guest {
        /// Which guest.
        guest: String,
        /// What was tried.
        operation: String,
        /// Why it failed.
        r#source: io::Error,
        /// The last lines of its console.
        console: String,
    },
}

impl Error {
    /// Whether the caller lacked a privilege for it.
    #[must_use]
    pub fn is_permission_denied(&self) -> bool {
        match self {
            Self::Namespace { source, .. } | Self::Setting { source, .. } => denied(source),
            Self::Link {
                source: NetlinkError::Io(source) | NetlinkError::Refused { source, .. },
                ..
            } => denied(source),
            Self::Interface { source, .. } => source.is_permission_denied(),
            _ => false,
        }
    }
}

fn denied(source: &io::Error) -> bool {
    matches!(source.raw_os_error(), Some(libc::EPERM | libc::EACCES))
}

fn advice(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "; run as root (CAP_SYS_ADMIN and CAP_NET_ADMIN)",
        Some(libc::ENOSPC) => "; too many namespaces or mounts: see /proc/sys/user/max_net_namespaces and fs.mount-max",
        Some(libc::EROFS) => "; /run has to be writable",
        _ => "",
    }
}

fn console_tail(console: &str) -> String {
    match console {
        "" => String::new(),
        lines => format!("; its console ends with:\n{lines}"),
    }
}

fn program_tail(said: &str) -> String {
    match said {
        "" => String::new(),
        lines => format!("; it said:\n{lines}"),
    }
}

fn link_advice(source: &NetlinkError) -> &'static str {
    match source {
        NetlinkError::Io(source) | NetlinkError::Refused { source, .. } => match source.raw_os_error() {
            Some(libc::EOPNOTSUPP) => {
                "; the kernel has no devices of that kind (CONFIG_VETH, CONFIG_BRIDGE, CONFIG_VXLAN, CONFIG_GENEVE)"
            }
            Some(libc::EEXIST) => "; the name is taken in that namespace: give the link another one",
            _ => advice(source),
        },
        _ => "",
    }
}
