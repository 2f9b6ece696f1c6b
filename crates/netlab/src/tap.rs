//! An interface whose cable ends in the test.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
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
        let file = File::from(open(ns, |tun| sys::make_tap(tun, name))?);
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

/// A TAP device for a guest's NIC ([`Wire::Tap`](crate::guest::Wire::Tap)): what the guest sends its namespace receives, and the other way
/// round. It is up, and can be a port of a bridge or have addresses.
#[derive(Debug)]
pub struct GuestTap {
    /// The interface. First, for it is dropped first.
    pub device: Device,
    queues: Vec<OwnedFd>,
    vhost: bool,
}

impl GuestTap {
    /// Makes one with so many queues, each a descriptor. Checksums and segmentation may be left to it.
    ///
    /// # Errors
    ///
    /// As [`Tap::create`].
    pub fn create(ns: &Arc<Namespace>, name: &str, queues: u32) -> Result<Self> {
        Self::make(ns, name, queues, true, true)
    }

    /// Makes one for somebody else to send and receive by: no checksum and no segment is left to it or by it, and IPv6 is off, so that
    /// it sends nothing by itself.
    ///
    /// # Errors
    ///
    /// As [`Tap::create`].
    pub fn whole(ns: &Arc<Namespace>, name: &str, queues: u32) -> Result<Self> {
        Self::make(ns, name, queues, false, false)
    }

    pub(crate) fn make(ns: &Arc<Namespace>, name: &str, queues: u32, offloads: bool, ipv6: bool) -> Result<Self> {
        let taken = |error: io::Error| match error.kind() {
            io::ErrorKind::ResourceBusy => io::Error::new(error.kind(), format!("the name '{name}' is taken")),
            _ => error,
        };
        let one = |number| {
            open(ns, |tun| {
                sys::make_tap_queue(tun, name, number == 0, offloads).map_err(taken)
            })
        };
        let queues = (0..queues.max(1)).map(one).collect::<Result<_>>()?;
        Ok(Self {
            device: Device::finish(ns, name, ipv6)?,
            queues,
            vhost: false,
        })
    }

    /// A device that is there, by descriptors that are its queues.
    pub(crate) fn of(device: Device, queues: Vec<OwnedFd>) -> Self {
        let vhost = false;
        Self { device, queues, vhost }
    }

    /// Has the kernel, and not QEMU, carry packets between it and the guest (vhost-net).
    pub(crate) fn by_vhost(mut self) -> Self {
        self.vhost = true;
        self
    }

    pub(crate) fn is_by_vhost(&self) -> bool {
        self.vhost
    }

    /// Its queues, for who carries packets between it and something else. A read is a packet that the namespace sends, a write one that it
    /// receives (`EAGAIN` where there is none); with what is left to the device (`struct virtio_net_hdr`, 10 bytes) in front, unless it is [`GuestTap::whole`]. A guest that has the
    /// device reads the same ones.
    #[must_use]
    pub fn queues(&self) -> &[OwnedFd] {
        &self.queues
    }
}

/// A descriptor of a device that `make` makes.
fn open(ns: &Namespace, make: impl FnOnce(BorrowedFd<'_>) -> io::Result<()> + Send) -> Result<OwnedFd> {
    let work = || {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let tun = openat(CWD, "/dev/net/tun", flags, Mode::empty())?;
        make(tun.as_fd()).map(|()| tun)
    };
    ns.try_run(work)?.map_err(|source| Error::Namespace {
        operation: "make a TAP device (/dev/net/tun) in",
        namespace: ns.name().to_owned(),
        source,
    })
}

#[cfg(test)]
#[path = "tap_tests.rs"]
mod tests;
