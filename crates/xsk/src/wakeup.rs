//! Waiting for packets, and waking the kernel.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// How [`Queue::recv`](crate::Queue::recv) waits when no packet is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: one look at the ring, an empty burst when it is empty. The caller spins. Lowest latency, a core at 100 %.
    Spin,
    /// Sleep in `poll()` until a packet comes, the time is over (an empty burst) or a signal arrives (an empty burst).
    /// `Duration::MAX` is for ever; what happens to the link is told all the same.
    Poll(Duration),
    /// One turn of the driver's NAPI poll on this thread by `recvfrom()`, then one look. The caller loops.
    /// Effective after [`QueueOptions::busy_poll`](crate::QueueOptions::busy_poll). Linux 5.11.
    BusyPoll,
}

/// What a wake-up call answered. All three are normal; the ring, not the answer, tells what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Everything was taken, or the driver was woken.
    Done,
    /// `EAGAIN`, `EBUSY` or `ENOBUFS`: the budget was used up, the device or a buffer was full. Some may have been taken.
    Partly(Errno),
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Done => f.write_str("success"),
            Self::Partly(errno) => errno.fmt(f),
        }
    }
}

/// Asks the kernel to send what is in the TX ring (`sendto()` with nothing to send).
/// <https://elixir.bootlin.com/linux/v6.18/source/net/xdp/xsk.c#L962>
#[inline]
pub(crate) fn wake_tx(fd: BorrowedFd<'_>) -> Result<Answer, Errno> {
    match send(fd, &[], SendFlags::DONTWAIT) {
        Ok(_) => Ok(Answer::Done),
        Err(errno @ (Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR)) => Ok(Answer::Partly(errno)),
        Err(errno) => Err(errno),
    }
}

/// As [`wake_tx`], by `poll()`, which wakes the driver whatever else is set.
///
/// With zero-copy and preferred busy-polling `sendto()` runs one NAPI instance, that of the receive queue, and does not wake the driver
/// (<https://elixir.bootlin.com/linux/v6.18/C/ident/xsk_no_wakeup>). Where sending is the work of another instance, as with virtio-net or
/// with NICs that have an interrupt for each direction, nothing would ever be sent.
#[cold]
pub(crate) fn wake_tx_by_poll(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    match poll(&mut fds, Some(&Timespec::default())) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Asks the kernel to look at the fill ring, and with busy-polling to run the NAPI poll here.
#[inline]
pub(crate) fn wake_rx(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    match recv(fd, &mut [0_u8; 0][..], RecvFlags::DONTWAIT) {
        // Before Linux 5.11 an XDP socket had no `recvfrom()`: `poll()` alone wakes the driver there.
        Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR | Errno::OPNOTSUPP) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// What ended a sleep in `poll()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slept {
    /// The RX ring has something.
    Woken,
    /// Something happened to the link.
    Link,
    /// The time was over.
    Through,
    /// A signal came.
    Interrupted,
}

/// Sleeps until the RX ring has something or something happened to the link.
pub(crate) fn poll_rx(fd: BorrowedFd<'_>, link: BorrowedFd<'_>, timeout: Duration) -> Result<Slept, Errno> {
    let mut fds = [fd, link].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let timeout = Timespec::try_from(timeout).map_err(|_| Errno::INVAL)?;
    let slept = poll(&mut fds, Some(&timeout));
    let [packets, events] = fds.map(|fd| fd.revents().contains(PollFlags::IN));
    match slept {
        Ok(_) if packets => Ok(Slept::Woken),
        Ok(_) if events => Ok(Slept::Link),
        Ok(_) => Ok(Slept::Through),
        Err(Errno::INTR) => Ok(Slept::Interrupted),
        Err(errno) => Err(errno),
    }
}
