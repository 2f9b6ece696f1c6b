//! The ways a packet can take between driver and socket, from best to worst.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// How packets get from the driver to the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Path {
    /// Native XDP, the NIC reads and writes the UMEM itself (`XDP_ZEROCOPY`). Linux 4.18, and a driver that offers it.
    ZeroCopy,
    /// Native XDP in the driver, the kernel copies into the UMEM (`XDP_COPY`). Linux 4.18, and a driver with XDP.
    NativeCopy,
    /// Generic XDP after the socket buffer was made, copied into the UMEM (`XDP_FLAGS_SKB_MODE`). Linux 4.18, any driver.
    Generic,
    /// Transmit only, copied by the kernel. No XDP program takes part, so it is neither native nor generic.
    Copy,
}

impl Path {
    /// The ways to receive, from best to worst: the order in which [`Mode::Auto`] tries them.
    pub const LADDER: [Path; 3] = [Path::ZeroCopy, Path::NativeCopy, Path::Generic];

    /// The name used on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::ZeroCopy => "zero-copy",
            Self::NativeCopy => "native",
            Self::Generic => "generic",
            Self::Copy => "copy",
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::ZeroCopy => "zero-copy",
            Self::NativeCopy => "native copy",
            Self::Generic => "generic",
            Self::Copy => "copy",
        })
    }
}

impl Serialize for Path {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Which [`Path`] to take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The best that can be had; [`Port::report`](crate::Port::report) tells which, and why not a better one.
    #[default]
    Auto,
    /// This one, or an error: never a silent step down.
    Require(Path),
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "auto" => Self::Auto,
            "zero-copy" | "zc" => Self::Require(Path::ZeroCopy),
            "native" | "copy" | "drv" => Self::Require(Path::NativeCopy),
            "generic" | "skb" => Self::Require(Path::Generic),
            _ => return Err(format!("{text:?} is no mode; one of: auto, zero-copy, native, generic")),
        })
    }
}
