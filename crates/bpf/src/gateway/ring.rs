//! What the program puts into a ring buffer, for one reader.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};

use super::NAME;
use crate::error::{Error, Result};
use crate::load;

/// Reads what is made of each record. One reader at a time: two would each get some.
pub struct Ring<T> {
    name: &'static str,
    ring: RingBuffer<'static>,
    read: Receiver<T>,
    map: MapHandle,
}

impl<T> fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("map", &self.map).finish_non_exhaustive()
    }
}

/// The ring's descriptor is readable when there is something.
impl<T> AsFd for Ring<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

impl<T: 'static> Ring<T> {
    /// `make` gives None for what cannot be read: it is of a program that knows more than this one, and no error.
    pub(super) fn of(map: &MapHandle, name: &'static str, make: fn(&[u8]) -> Option<T>) -> Result<Self> {
        let failed = |error: libbpf_rs::Error| Error::map(NAME, name, "reading", load::os_error(&error));
        let map = MapHandle::try_from(map).map_err(failed)?;
        let (tell, read) = channel();
        let mut builder = RingBufferBuilder::new();
        let each = move |bytes: &[u8]| {
            if let Some(made) = make(bytes) {
                _ = tell.send(made);
            }
            0
        };
        builder.add(&map, each).map_err(failed)?;
        let ring = builder.build().map_err(failed)?;
        Ok(Self { name, ring, read, map })
    }

    /// What is there, or comes within this time.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses the reading. A signal ends the waiting, without an error.
    pub fn read(&self, patience: Duration) -> Result<Vec<T>> {
        match self.ring.poll_raw(patience) {
            // EINTR
            count if count >= 0 || count == -4 => Ok(self.read.try_iter().collect()),
            errno => {
                let source = std::io::Error::from_raw_os_error(-errno);
                Err(Error::map(NAME, self.name, "reading", source))
            }
        }
    }
}
