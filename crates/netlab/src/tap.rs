//! An interface whose cable ends in the test.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::{Device, Error, Namespace, Result, sys};

/// A TAP device: what a namespace sends through it comes out of [`Tap::receive`], and what goes into [`Tap::send`] it
/// receives. Frames are whole, their checksums made: nothing is offloaded to it.
///
/// Both may be called at once, by different threads.
#[derive(Debug)]
pub struct Tap {
    /// The interface. First, for it is dropped first.
    pub device: Device,
    file: File,
}

impl Tap {
    /// Makes a TAP device, up, with IPv6.
    ///
    /// # Errors
    ///
    /// [`Error::Namespace`] without a `/dev/net/tun` that may be used, or if the name is taken; [`Error::Interface`].
    pub fn create(ns: &Arc<Namespace>, name: &str, mac: [u8; 6], mtu: u32) -> Result<Self> {
        let failed = |source: io::Error| Error::Namespace {
            operation: "make a TAP device (/dev/net/tun) in",
            namespace: ns.name().to_owned(),
            source,
        };
        let make = || {
            let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let tun = openat(CWD, "/dev/net/tun", flags, Mode::empty())?;
            sys::make_tap(tun.as_fd(), name).map(|()| File::from(tun))
        };
        let file = ns.try_run(make)?.map_err(failed)?;
        let device = Device::finish(ns, name, true)?;
        crate::lab::inside(ns, || {
            device.interface.set_mac(mac)?;
            device.interface.set_mtu(mtu)
        })?;
        Ok(Self { device, file })
    }

    /// Waits for the next frame that the namespace sends, and returns its length; None if none comes in time. What is longer
    /// than `frame` is cut off.
    ///
    /// # Errors
    ///
    /// What the kernel says, if the interface was switched off for instance.
    pub fn receive(&self, frame: &mut [u8], timeout: Duration) -> io::Result<Option<usize>> {
        loop {
            match (&self.file).read(frame) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other.map(Some),
            }
            let timeout = Timespec::try_from(timeout).map_err(|_| io::ErrorKind::InvalidInput)?;
            if poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&timeout))? == 0 {
                return Ok(None);
            }
        }
    }

    /// Has the namespace receive a frame, from the Ethernet header on.
    ///
    /// # Errors
    ///
    /// What the kernel says: EINVAL for a frame shorter than its header, EIO if the interface is down.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        (&self.file).write(frame).map(drop)
    }
}
