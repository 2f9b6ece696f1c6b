//! Packets that the program shows.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};

use super::layout::{SAMPLE_LEN, long, word};
use super::{NAME, Outcome};
use crate::error::{Error, Result};
use crate::load;

/// A packet as it came, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub time: u64,
    /// Index of the interface that it came by.
    pub ifindex: u32,
    /// The receive queue that it came on.
    pub queue: u32,
    /// What became of it.
    pub outcome: Outcome,
    /// Its network, if it could be read.
    pub vni: Option<u32>,
    /// Its length in bytes.
    pub length: u32,
    /// Its first bytes, 256 at the most.
    pub bytes: Vec<u8>,
}

const HEADER_LEN: usize = 32;

impl Sample {
    /// `struct sample` of gateway.h.
    fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<SAMPLE_LEN>()?;
        let captured = usize::try_from(word(bytes, 28)?).ok()?;
        Some(Self {
            time: long(bytes, 0)?,
            ifindex: word(bytes, 8)?,
            queue: word(bytes, 12)?,
            outcome: Outcome::from_number(word(bytes, 16)?)?,
            vni: word(bytes, 20).filter(|&vni| vni < 1 << 24),
            length: word(bytes, 24)?,
            bytes: bytes.get(HEADER_LEN..HEADER_LEN + captured)?.to_vec(),
        })
    }
}

/// Reads samples, for whoever asked for them in [`GatewayConfig`](crate::gateway::GatewayConfig). One reader at a
/// time: two would each get some.
pub struct Samples {
    ring: RingBuffer<'static>,
    read: Receiver<Sample>,
    map: MapHandle,
}

impl fmt::Debug for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Samples")
            .field("map", &self.map)
            .finish_non_exhaustive()
    }
}

/// The ring's descriptor is readable when there are samples.
impl AsFd for Samples {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

impl Samples {
    pub(super) fn of(map: &MapHandle) -> Result<Self> {
        let failed = |error: libbpf_rs::Error| Error::map(NAME, "samples", "reading", load::os_error(&error));
        let map = MapHandle::try_from(map).map_err(failed)?;
        let (tell, read) = channel();
        let mut builder = RingBufferBuilder::new();
        let each = move |bytes: &[u8]| {
            // What cannot be read is of a program that knows more than this one: not shown, and no error.
            if let Some(sample) = Sample::read(bytes) {
                _ = tell.send(sample);
            }
            0
        };
        builder.add(&map, each).map_err(failed)?;
        let ring = builder.build().map_err(failed)?;
        Ok(Self { ring, read, map })
    }

    /// Those that are there, or that come within this time.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses the reading. A signal ends the waiting, without an error.
    pub fn read(&self, patience: Duration) -> Result<Vec<Sample>> {
        match self.ring.poll_raw(patience) {
            // EINTR
            count if count >= 0 || count == -4 => Ok(self.read.try_iter().collect()),
            errno => {
                let source = std::io::Error::from_raw_os_error(-errno);
                Err(Error::map(NAME, "samples", "reading", source))
            }
        }
    }
}
