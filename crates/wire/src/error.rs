//! Why bytes were not the packet that was asked for.

use core::fmt;

/// Why a slice could not be read or written as the named layer.
///
/// Small and `Copy`, because it is made on the packet's path: a receiver counts it and goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The slice ends before the layer does.
    Truncated {
        /// Layer that was read.
        layer: &'static str,
        /// Bytes that the layer needs.
        need: usize,
        /// Bytes that there are.
        have: usize,
    },
    /// A field holds a value that the protocol does not allow.
    Malformed {
        /// Layer that was read.
        layer: &'static str,
        /// Field with the bad value.
        field: &'static str,
        /// The value found.
        value: u32,
    },
    /// Correct, but something that this crate does not read (another protocol, a fragment …).
    Unsupported {
        /// Layer that was read.
        layer: &'static str,
        /// Field that says so.
        field: &'static str,
        /// The value found.
        value: u32,
    },
    /// A packet was to be written into a slice that is too small for it.
    NoRoom {
        /// Layer that was to be written.
        layer: &'static str,
        /// Bytes that it needs.
        need: usize,
        /// Bytes that there are.
        have: usize,
    },
    /// A payload is longer than the layer's length field can say.
    TooLong {
        /// Layer that was to be written.
        layer: &'static str,
        /// Largest payload in bytes.
        most: usize,
        /// Bytes asked for.
        have: usize,
    },
    /// One address is IPv4 and the other IPv6.
    FamilyMismatch,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { layer, need, have } => write!(
                f,
                "reading {layer}: needs {need} bytes but only {have} are there; the packet is cut short"
            ),
            Self::Malformed { layer, field, value } => write!(
                f,
                "reading {layer}: field `{field}` is {value:#x}, which the protocol does not allow; the packet is damaged or of another kind"
            ),
            Self::Unsupported { layer, field, value } => write!(
                f,
                "reading {layer}: field `{field}` is {value:#x}, which is not handled here; leave the packet to the kernel"
            ),
            Self::NoRoom { layer, need, have } => write!(
                f,
                "writing {layer}: needs {need} bytes but the buffer has {have}; give a larger frame"
            ),
            Self::TooLong { layer, most, have } => write!(
                f,
                "writing {layer}: a payload of {have} bytes does not fit its length field, {most} is the most; send less"
            ),
            Self::FamilyMismatch => {
                f.write_str("writing a UDP flow: one address is IPv4 and the other IPv6; give two of one family")
            }
        }
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    /// Each says the layer, and the figures that decide.
    #[test]
    fn errors_say_what_was_found() {
        let layer = "UDP header";
        for (error, parts) in [
            (
                Error::Truncated {
                    layer,
                    need: 8,
                    have: 7,
                },
                [layer, "8 bytes", "7"],
            ),
            (
                Error::Malformed {
                    layer,
                    field: "length",
                    value: 5,
                },
                [layer, "`length`", "0x5"],
            ),
            (
                Error::Unsupported {
                    layer,
                    field: "version",
                    value: 1,
                },
                [layer, "`version`", "0x1"],
            ),
            (
                Error::NoRoom {
                    layer,
                    need: 8,
                    have: 7,
                },
                [layer, "8", "7"],
            ),
            (
                Error::TooLong {
                    layer,
                    most: 65_527,
                    have: 70_000,
                },
                [layer, "70000", "65527"],
            ),
            (Error::FamilyMismatch, ["UDP flow", "IPv4", "IPv6"]),
        ] {
            let text = error.to_string();
            for part in parts {
                assert!(text.contains(part), "no {part} in {text}");
            }
        }
    }
}
