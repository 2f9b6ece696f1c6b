//! What can go wrong, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketType, netdevice, socket};

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a BPF program could not be loaded, attached, run or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel or libbpf refused the program or one of its maps.
    #[error("loading the BPF program {program}: {source}{}{log}", advice(source))]
    Load {
        /// The program's name in the kernel.
        program: &'static str,
        /// What libbpf reported.
        r#source: io::Error,
        /// What libbpf and the verifier printed, each line on its own; may be empty.
        log: String,
    },
    /// The kernel or libbpf refused what is in an object file.
    #[error("loading {}: {source}{}{log}", path.display(), advice(source))]
    LoadFile {
        /// The file.
        path: PathBuf,
        /// Error that libbpf reported.
        r#source: io::Error,
        /// Messages of libbpf and the verifier, one per line; may be empty.
        log: String,
    },
    /// An object file cannot be read.
    #[error("reading {}: {source}", path.display())]
    ReadFile {
        /// The file.
        path: PathBuf,
        /// Error that the kernel reported.
        r#source: io::Error,
    },
    /// An object file lacks what is asked for.
    #[error("{}: {what}", path.display())]
    InvalidFile {
        /// The file.
        path: PathBuf,
        /// The fault, and what would be right.
        what: String,
    },
    /// A loaded program could not be attached to an interface.
    #[error(
        "attaching {program} to {interface} ({hook}): {source}{}",
        attach_advice(source, hook, interface)
    )]
    Attach {
        /// The program's name in the kernel.
        program: &'static str,
        /// Where it was to be attached.
        hook: &'static str,
        /// The interface's name.
        interface: String,
        /// What the kernel reported.
        r#source: io::Error,
    },
    /// The kernel does not show a program that is loaded.
    #[error("looking at the program with id {id}: {source}{}", inspect_advice(source))]
    Inspect {
        /// The program's number in the kernel.
        id: u32,
        /// What the kernel reported.
        r#source: io::Error,
    },
    /// The kernel refused to run a program on a packet.
    #[error("running a BPF program on {what}: {source}{}", advice(source))]
    Run {
        /// What it was to be run on.
        what: String,
        /// What the kernel reported.
        r#source: io::Error,
    },
    /// The interface took none of the frames that the generator handed to it.
    #[error(
        "{interface} took none of {offered} generated frames{}: it has to be up, its MTU \
         not below the frame's, and its driver has to support redirected frames; a veth does while its peer has \
         native XDP attached or GRO on (ethtool -K PEER gro on)", errno_text(*.errno)
    )]
    NotTaken {
        /// The interface's name.
        interface: String,
        /// How many frames there were.
        offered: u64,
        /// What the driver returned, if it was asked at all.
        errno: Option<i32>,
    },
    /// A map of a loaded program could not be read or written.
    #[error("{operation} the map {map} of {program}: {source}")]
    Map {
        /// The program's name in the kernel.
        program: &'static str,
        /// The map's name.
        map: &'static str,
        /// "reading" or "writing".
        operation: &'static str,
        /// What libbpf reported.
        r#source: io::Error,
    },
    /// What a program left in a bpffs, or is to leave there, cannot be used.
    #[error("{operation} {}: {source}{}", path.display(), pin_advice(source))]
    Pin {
        /// "pinning", "opening" …
        operation: &'static str,
        /// The file in the bpffs.
        path: PathBuf,
        /// What the kernel reported.
        r#source: io::Error,
    },
    /// The maps pinned in a folder are another version's.
    #[error(
        "the maps of the gateway in {} have layout {found}, and this program has {expected}: start the version that \
         pinned them, or remove the folder, which stops the packets of tenants until the tables are loaded again",
        path.display()
    )]
    Layout {
        /// The folder.
        path: PathBuf,
        /// Of the maps.
        found: u32,
        /// Of this program.
        expected: u32,
    },
    /// A value that the program cannot be loaded with.
    #[error("{program}: {what}")]
    Invalid {
        /// The program's name in the kernel.
        program: &'static str,
        /// The fault, and what would be right.
        what: String,
    },
}

impl Error {
    pub(crate) fn invalid(program: &'static str, what: impl Into<String>) -> Self {
        Self::Invalid {
            program,
            what: what.into(),
        }
    }

    /// Returns the error with the file that it is about, if it is about loading one.
    pub(crate) fn of_file(self, path: &Path) -> Self {
        match self {
            Self::Load { source, log, .. } => Self::LoadFile {
                path: path.to_owned(),
                source,
                log,
            },
            error => error,
        }
    }

    pub(crate) fn map(program: &'static str, map: &'static str, operation: &'static str, source: io::Error) -> Self {
        Self::Map {
            program,
            map,
            operation,
            source,
        }
    }

    /// The error number behind this error, if the kernel gave one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Load { source, .. }
            | Self::LoadFile { source, .. }
            | Self::ReadFile { source, .. }
            | Self::Map { source, .. }
            | Self::Attach { source, .. }
            | Self::Inspect { source, .. }
            | Self::Run { source, .. }
            | Self::Pin { source, .. } => source.raw_os_error(),
            Self::NotTaken { errno, .. } => *errno,
            Self::Invalid { .. } | Self::InvalidFile { .. } | Self::Layout { .. } => None,
        }
    }
}

/// Returns the name of the interface with this index in the calling thread's network namespace. One
/// that is gone has its index for a name.
pub(crate) fn interface_name(ifindex: u32) -> String {
    let name = socket(AddressFamily::INET, SocketType::DGRAM, None)
        .and_then(|socket| netdevice::index_to_name(socket, ifindex));
    name.unwrap_or_else(|_| format!("the interface with index {ifindex}"))
}

/// What usually helps against an error number of bpf(2).
pub(crate) fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            " (run as root, or with the capabilities CAP_BPF and CAP_NET_ADMIN, and CAP_PERFMON for other programs than \
             ringside_xsk and for kernels before 5.18)"
        }
        io::ErrorKind::Unsupported => " (this kernel lacks a feature that the program needs)",
        _ => "",
    }
}

/// Returns advice for a loaded program that cannot be inspected.
fn inspect_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => " (it takes CAP_SYS_ADMIN: run as root)",
        _ => advice(error),
    }
}

/// What usually helps when something cannot be pinned.
fn pin_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            " (is it in a bpffs? `mount -t bpf bpf /sys/fs/bpf` makes one; and it takes root, or CAP_BPF with rights in it)"
        }
        io::ErrorKind::AlreadyExists => " (adopt what is there, or remove it)",
        _ => advice(error),
    }
}

/// What usually helps when a program cannot be attached.
fn attach_advice(error: &io::Error, hook: &str, interface: &str) -> String {
    let advice = match error.kind() {
        io::ErrorKind::Unsupported if hook == NATIVE => {
            return format!(" (the driver of {interface} has no native XDP)");
        }
        io::ErrorKind::AlreadyExists => {
            return format!(
                " (a program is attached in another mode: `ip link show {interface}` names it, `ip \
                 link set dev {interface} xdpgeneric off` detaches one in generic mode)"
            );
        }
        io::ErrorKind::ResourceBusy => {
            " (another program is attached: `ip link show` names it, `ip link set dev DEV xdp off` detaches it unless a \
             bpf_link of a running process holds it)"
        }
        io::ErrorKind::NotFound => " (there is no such interface in this network namespace)",
        // XDP does not tell a missing interface from other nonsense; an old kernel does not know tcx.
        io::ErrorKind::InvalidInput => {
            " (most likely there is no such interface in this network namespace; or a program is attached in \
             another mode, or the kernel is too old for it: tcx needs 6.6)"
        }
        _ => match error.raw_os_error() {
            Some(ENODEV) => " (there is no such interface in this network namespace)",
            Some(ERANGE) => " (the interface's MTU is too large for XDP without multi-buffer support)",
            _ => advice(error),
        },
    };
    advice.to_owned()
}

/// Hook of programs that run in the driver.
pub(crate) const NATIVE: &str = "native XDP";

/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/asm-generic/errno-base.h>
const ENODEV: i32 = 19;
const ERANGE: i32 = 34;

fn errno_text(errno: Option<i32>) -> String {
    errno
        .map(|errno| format!(" ({})", io::Error::from_raw_os_error(errno)))
        .unwrap_or_default()
}
