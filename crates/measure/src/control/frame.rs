//! Frames on a stream of bytes: a length of four bytes, big-endian, and so many bytes.

use super::Fault;

/// Bytes of a message before its sender has proven anything.
pub const MOST_BEFORE: usize = 4 << 10;
/// Bytes of a message that a server takes from a client.
pub const MOST_AFTER: usize = 64 << 10;
/// Bytes of a message that a client takes from a server: results have histograms and a piece for each second.
pub const MOST_FROM_SERVER: usize = 16 << 20;

const LENGTH: usize = 4;

/// Cuts a stream into frames. Holds no more than the longest frame that is allowed and what came with its end.
#[derive(Debug, Default)]
pub(super) struct Frames {
    bytes: Vec<u8>,
    /// What has been taken of them.
    taken: usize,
}

impl Frames {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame, of `most` bytes at the most.
    ///
    /// # Errors
    /// [`Fault::NotOurs`] or [`Fault::TooLong`], as soon as the length is there: nobody waits for what it announces.
    pub(super) fn next(&mut self, most: usize) -> Result<Option<&[u8]>, Fault> {
        let rest = &self.bytes[self.taken..];
        let Some((length, behind)) = rest.split_first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let announced = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if announced > most {
            return Err(match foreign(rest) {
                Some(what) => Fault::NotOurs { what },
                None => Fault::TooLong { announced, most },
            });
        }
        if behind.len() < announced {
            return Ok(None);
        }
        let begin = self.taken + LENGTH;
        self.taken = begin + announced;
        Ok(Some(&self.bytes[begin..self.taken]))
    }

    /// Whether a frame has begun and not ended.
    pub(super) fn is_halfway(&self) -> bool {
        self.taken < self.bytes.len()
    }
}

/// Adds a frame to what is to be sent.
pub(super) fn put(out: &mut Vec<u8>, message: &[u8], tag: &[u8]) {
    let length = u32::try_from(message.len() + tag.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(message);
    out.extend_from_slice(tag);
}

/// Protocols that are found at the wrong door.
fn foreign(bytes: &[u8]) -> Option<&'static str> {
    let begins = |with: &[&[u8]]| with.iter().any(|start| bytes.starts_with(start));
    if begins(&[b"\x16\x03", b"\x15\x03"]) {
        Some("TLS")
    } else if begins(&[b"GET ", b"POST", b"HEAD", b"HTTP", b"OPTI", b"PUT ", b"PRI "]) {
        Some("HTTP")
    } else if begins(&[b"SSH-"]) {
        Some("SSH")
    } else {
        None
    }
}
