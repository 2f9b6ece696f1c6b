//! What host and guest say to each other over the virtio-serial port.
//!
//! ```text
//! length of the header | length of the body | header: JSON | body: bytes        lengths: 32 bits, little-endian
//! ```
//!
//! Each program that runs, and each file that is copied, has a number that the host gave it; all of them share the port.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Raised whenever what is said changes: an agent of another build is told apart from a broken one.
pub(crate) const VERSION: u32 = 1;

/// Name of the port, as the guest sees it in /sys/class/virtio-ports.
pub(crate) const PORT: &str = "ringside.agent";

/// Longest header and longest body. A body is cut into pieces of [`PIECE`]; a command line can be long.
const LONGEST: usize = 1 << 20;

/// Bytes of a file or of output in one message.
pub(crate) const PIECE: usize = 32 << 10;

/// From the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Start a program; its output follows, then how it ended.
    Run {
        program: String,
        arguments: Vec<String>,
        environment: Vec<(String, String)>,
        directory: Option<String>,
    },
    /// Send a signal to the program of this number and all that it started.
    Signal { signal: i32 },
    /// Write the body to a file: its beginning, or what follows.
    Write { path: String, mode: u32, append: bool },
    /// Send a file.
    Read { path: String },
    /// Set the guest's clock (`CLOCK_REALTIME`), in nanoseconds since 1970.
    SetClock { ns: i64 },
    /// Send the guest's CLOCK_MONOTONIC: nanoseconds, 64 bits, little-endian.
    Time,
    /// Switch the guest off.
    PowerOff,
}

/// From the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The agent is ready. Number 0.
    Ready { version: u32, release: String },
    /// The body is what a program wrote to standard output, or to standard error.
    Output { error: bool },
    /// A program ended: its status as wait(2) has it.
    Ended { status: i32 },
    /// The body is a piece of what was asked for.
    Piece,
    /// What was asked is done.
    Done,
    /// It could not be done, and nothing more comes.
    Failed { what: String, errno: Option<i32> },
}

/// A message of either kind, with the number that it is about.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Envelope<T> {
    pub(crate) id: u32,
    pub(crate) message: T,
}

pub(crate) fn write<T: Serialize>(to: &mut impl Write, id: u32, message: T, body: &[u8]) -> io::Result<()> {
    let header = serde_json::to_vec(&Envelope { id, message })?;
    let mut bytes = Vec::with_capacity(8 + header.len() + body.len());
    for part in [&header[..], body] {
        let length = u32::try_from(part.len()).ok().filter(|_| part.len() <= LONGEST);
        let length = length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the message is too long"))?;
        bytes.extend(length.to_le_bytes());
    }
    bytes.extend(header);
    bytes.extend(body);
    // In one piece: several threads write, each under a lock, and a reader sees whole messages sooner.
    to.write_all(&bytes)
}

/// The next message; None at the end of the connection.
pub(crate) fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<(Envelope<T>, Vec<u8>)>> {
    let mut lengths = [0; 8];
    if !read_or_end(from, &mut lengths)? {
        return Ok(None);
    }
    let (header, body) = lengths.split_at(4);
    let length = |bytes: &[u8]| -> io::Result<usize> {
        let bytes = bytes.try_into().unwrap_or_default();
        let length = usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(usize::MAX);
        let good = length <= LONGEST;
        good.then_some(length)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no message of the guest agent's"))
    };
    let mut header = vec![0; length(header)?];
    let mut body = vec![0; length(body)?];
    from.read_exact(&mut header)?;
    from.read_exact(&mut body)?;
    Ok(Some((serde_json::from_slice(&header)?, body)))
}

/// Whether there was something before the end.
fn read_or_end(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
