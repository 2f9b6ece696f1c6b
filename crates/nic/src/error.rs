//! What can go wrong, on which interface, and what to do about it.

use std::io;
use std::path::PathBuf;

use crate::netlink::NetlinkError;

/// An operation on an interface or on the host that failed.
///
/// The message says what was tried, on what, what the kernel answered and what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No interface of that name exists in the calling thread's network namespace.
    #[error(
        "no interface named '{name}' in this network namespace; there are: {}",
        list(existing)
    )]
    UnknownInterface {
        /// The name that was looked for.
        name: String,
        /// The names that exist.
        existing: Vec<String>,
    },
    /// No interface of that index exists in the calling thread's network namespace.
    #[error(
        "no interface with index {index} in this network namespace; there are: {}",
        list(existing)
    )]
    UnknownIndex {
        /// The index that was looked for.
        index: u32,
        /// The names that exist.
        existing: Vec<String>,
    },
    /// The handle was looked up in another network namespace than the calling thread's.
    #[error(
        "cannot {operation} '{interface}': it was looked up in another network namespace; \
         call from a thread in that namespace"
    )]
    OtherNamespace {
        /// What was tried.
        operation: &'static str,
        /// The interface's name at look-up.
        interface: String,
    },
    /// The kernel refused the operation.
    #[error("cannot {operation} on '{interface}': {source}{}{}", detail(message.as_deref()), advice(source))]
    Kernel {
        /// What was tried.
        operation: &'static str,
        /// On which interface.
        interface: String,
        /// The kernel's answer.
        r#source: io::Error,
        /// The kernel's explanation in words (netlink extended acknowledgement), where it gave one.
        message: Option<String>,
    },
    /// Somebody has put queueing disciplines there.
    #[error(
        "cannot install queueing disciplines on '{interface}': its root is {root}, which could not be put back; remove it (tc qdisc del \
         dev {interface} root), or leave it as it is"
    )]
    QdiscTaken {
        /// On which interface.
        interface: String,
        /// What is there.
        root: String,
    },
    /// No way leads to an address.
    #[error("no route to {address}: {source}; `ip route get {address}` shows the same")]
    NoRoute {
        /// The address.
        address: std::net::IpAddr,
        /// The kernel's answer.
        r#source: io::Error,
    },
    /// The kernel's answer could not be understood.
    #[error("cannot {operation} on '{interface}': the kernel's answer is not understood ({what}); please report this")]
    Malformed {
        /// What was tried.
        operation: &'static str,
        /// On which interface.
        interface: String,
        /// What is wrong with the answer.
        what: String,
    },
    /// The driver knows no offload of that name.
    #[error("'{interface}' has no offload named '{feature}'; `ethtool -k {interface}` lists them")]
    UnknownFeature {
        /// On which interface.
        interface: String,
        /// The name that was looked for.
        feature: String,
    },
    /// The kernel accepted the request but the offload did not change.
    #[error(
        "offload '{feature}' of '{interface}' stays {}: {}",
        if *wanted { "off" } else { "on" },
        if *fixed { "the driver does not let it be changed" }
        else { "it depends on another offload or on an attached program; change that first" }
    )]
    FeatureUnchanged {
        /// On which interface.
        interface: String,
        /// Which offload.
        feature: String,
        /// The value asked for.
        wanted: bool,
        /// Whether the driver marks the offload as fixed.
        fixed: bool,
    },
    /// The running kernel is too old for it.
    #[error("cannot {operation} on '{interface}': this kernel cannot do it, Linux {minimum} or later can")]
    NeedsKernel {
        /// What was tried.
        operation: &'static str,
        /// On which interface.
        interface: String,
        /// The first kernel that can do it ("6.13").
        minimum: &'static str,
    },
    /// The interface has no NAPI instance of that id.
    #[error(
        "'{interface}' has no NAPI instance {id}; a driver may make new ones, with other ids, when the interface goes \
         down and up or an XDP program is attached: Interface::napis() lists the present ones"
    )]
    UnknownNapi {
        /// On which interface.
        interface: String,
        /// The id that was looked for.
        id: u32,
    },
    /// The interface has no NAPI instance, or none that is visible with a thread, in its present state.
    #[error(
        "cannot {operation} on '{interface}': it has no NAPI instance for that in its present state. It has to be up; \
         a veth has instances only with a native XDP program or GRO on; threads have to be switched on first, and are \
         visible in the first PID namespace only"
    )]
    NoNapi {
        /// What was tried.
        operation: &'static str,
        /// On which interface.
        interface: String,
    },
    /// The interface has no active receive queue of that number.
    #[error("'{interface}' has no receive queue {queue}: {active} are active, counted from 0")]
    UnknownQueue {
        /// On which interface.
        interface: String,
        /// The queue that was asked for.
        queue: u32,
        /// How many are active.
        active: u32,
    },
    /// The receive queue has no interrupt of its own, or nobody tells which one.
    #[error(
        "cannot find the interrupt of receive queue {queue} of '{interface}': a virtual link has none, and some drivers do not tell; \
         /proc/interrupts lists those that there are"
    )]
    NoIrq {
        /// On which interface.
        interface: String,
        /// Of which queue.
        queue: u32,
    },
    /// The CPUs of a thread could not be read or changed.
    #[error(
        "cannot pin the thread {thread} (for '{interface}') to CPUs '{cpus}': {source}; \
         /sys/devices/system/cpu/online lists those that are online, and CAP_SYS_NICE (root) is needed"
    )]
    Affinity {
        /// On which interface.
        interface: String,
        /// Process number of the thread.
        thread: u32,
        /// The CPUs asked for, as a list; empty for reading.
        cpus: String,
        /// The kernel's answer.
        r#source: io::Error,
    },
    /// A file of sysfs or procfs could not be read, written or understood.
    #[error("cannot {operation} {}: {source}{}", path.display(), file_advice(source))]
    File {
        /// What was tried: "read", "write" or "understand".
        operation: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why it failed.
        r#source: io::Error,
    },
}

impl Error {
    /// The operating system's error number behind this error, where there is one (`libc::EPERM`, …).
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Kernel { source, .. }
            | Self::NoRoute { source, .. }
            | Self::File { source, .. }
            | Self::Affinity { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// Whether the caller lacked a privilege for it.
    #[must_use]
    pub fn is_permission_denied(&self) -> bool {
        matches!(self.errno(), Some(libc::EPERM | libc::EACCES))
    }

    pub(crate) fn unknown_interface(name: &str) -> Self {
        Self::UnknownInterface {
            name: name.to_owned(),
            existing: crate::interface::names(),
        }
    }

    pub(crate) fn kernel(operation: &'static str, interface: &str, source: io::Error) -> Self {
        Self::Kernel {
            operation,
            interface: interface.to_owned(),
            source,
            message: None,
        }
    }

    pub(crate) fn needs_kernel(operation: &'static str, interface: &str, minimum: &'static str) -> Self {
        Self::NeedsKernel {
            operation,
            interface: interface.to_owned(),
            minimum,
        }
    }

    pub(crate) fn no_napi(operation: &'static str, interface: &str) -> Self {
        Self::NoNapi {
            operation,
            interface: interface.to_owned(),
        }
    }

    pub(crate) fn netlink(operation: &'static str, interface: &str, error: NetlinkError) -> Self {
        let interface = interface.to_owned();
        match error {
            NetlinkError::Io(source) => Self::Kernel {
                operation,
                interface,
                source,
                message: None,
            },
            NetlinkError::Refused { source, message } => Self::Kernel {
                operation,
                interface,
                source,
                message,
            },
            NetlinkError::Malformed(what) => Self::Malformed {
                operation,
                interface,
                what,
            },
        }
    }

    pub(crate) fn malformed(operation: &'static str, interface: &str, what: impl Into<String>) -> Self {
        Self::Malformed {
            operation,
            interface: interface.to_owned(),
            what: what.into(),
        }
    }

    pub(crate) fn file(operation: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::File {
            operation,
            path: path.into(),
            source,
        }
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

fn detail(message: Option<&str>) -> String {
    message.map(|text| format!(" ({text})")).unwrap_or_default()
}

/// What a user can do about an error number; empty where there is nothing better to say than the errno's own text.
fn advice(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "; run as root or with CAP_NET_ADMIN",
        Some(libc::EOPNOTSUPP) => "; the driver does not offer this",
        Some(libc::EBUSY) => "; an AF_XDP socket or an XDP program holds it: close or detach that first",
        Some(libc::ENODEV | libc::ENXIO) => {
            "; the interface was removed, renamed or moved to another network namespace"
        }
        Some(libc::EINVAL | libc::ERANGE) => "; the value is outside what the interface accepts in its present state",
        _ => "",
    }
}

fn file_advice(source: &io::Error) -> &'static str {
    if source.raw_os_error() == Some(libc::EOPNOTSUPP) {
        return "; the interface has no NAPI instance in its present state: a veth has them with a native XDP program \
                or with GRO";
    }
    match source.kind() {
        io::ErrorKind::PermissionDenied => "; run as root or with CAP_NET_ADMIN",
        io::ErrorKind::NotFound => {
            "; this kernel does not have it, or the mounted sysfs or procfs belongs to another network namespace"
        }
        _ => "",
    }
}
