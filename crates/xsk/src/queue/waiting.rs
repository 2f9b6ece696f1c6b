//! Waiting for packets, and for what happens to the link meanwhile.
//!
//! `poll()` on an XDP socket stays silent about its link, so each way of waiting also asks who watches it.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ringside_nic::{LinkEvent, LinkWatch};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::Queue;
use crate::error::Error;
use crate::mode::Path;
use crate::options::BusyPoll;
use crate::socket::BUSY_POLL_ADVICE;
use crate::sys;
use crate::wakeup::{Slept, Wait, poll_rx, wake_rx};

/// Time between two looks for link events, each a system call. `poll()` waits for them, too.
const LINK_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Returns CLOCK_MONOTONIC_COARSE: as exact as the kernel's tick, and 5 ns to read.
#[inline]
pub(super) fn now_coarse() -> Duration {
    #[cfg(feature = "testing")]
    if let Some(now) = crate::testing::clock() {
        return now;
    }
    let now = clock_gettime(ClockId::MonotonicCoarse);
    // The clock starts at 0 when the machine does.
    Duration::new(now.tv_sec.cast_unsigned(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

impl BusyPoll {
    /// Checks the ranges. The kernel accepts zeros, and polls no packets then.
    pub(crate) fn check(self) -> Result<(), Error> {
        const MAX_MICROS: u32 = i32::MAX.cast_unsigned();
        let refused = |setting, value: u32, reason: String| {
            let value = value.to_string();
            Err(Error::Setting { setting, value, reason })
        };
        match self {
            Self {
                budget: 1..=65535,
                micros: 1..=MAX_MICROS,
            } => Ok(()),
            Self {
                budget: 1..=65535,
                micros,
            } => refused(
                "busy_poll time",
                micros,
                format!("a poll spins for 1 to {MAX_MICROS} µs"),
            ),
            Self { budget, .. } => {
                let reason = "a poll handles 1 to 65535 packets".into();
                refused("busy_poll budget", budget, reason)
            }
        }
    }
}

impl Queue {
    /// Changes preferred busy-polling of the open socket, as [`QueueOptions::busy_poll`](crate::QueueOptions::busy_poll) has it
    /// from the start: `None` goes back to interrupts. For who measures the ways to wait on one socket. Linux 5.11.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a budget or a time out of range; [`Error::Socket`] before Linux
    /// 5.11, and without `CAP_NET_ADMIN`.
    #[doc(alias = "SO_PREFER_BUSY_POLL")]
    pub fn set_busy_poll(&mut self, busy_poll: Option<BusyPoll>) -> Result<(), Error> {
        self.check_process()?;
        busy_poll.map_or(Ok(()), BusyPoll::check)?;
        let fd = self.bound.fd.as_fd();
        let set = match busy_poll {
            Some(busy_poll) => sys::set_busy_poll(fd, busy_poll.micros, busy_poll.budget),
            None => sys::end_busy_poll(fd),
        };
        set.map_err(|(call, errno)| Error::Socket {
            interface: self.report.interface.clone(),
            queue: self.report.queue,
            call,
            errno,
            advice: BUSY_POLL_ADVICE,
        })?;
        self.report.busy_poll = busy_poll;
        Ok(())
    }

    /// Waits for packets, which are in the inbox then, or for something to happen to the link, and the inbox stays empty.
    #[inline]
    pub(super) fn wait(&mut self, wait: Wait) -> Result<(), Error> {
        if self.lost.is_none() {
            self.wait_at(wait)?;
        }
        if self.lost.is_some() {
            return self.take_leave();
        }
        Ok(())
    }

    /// Looks for a link event if the last look was [`LINK_CHECK_INTERVAL`] ago. Counting bursts or
    /// empty looks would not bound the time, since callers pause between them.
    #[inline]
    pub(super) fn check_link(&mut self, now: Duration) {
        if now.saturating_sub(self.link_checked) >= LINK_CHECK_INTERVAL {
            self.link_checked = now;
            self.ask_link();
        }
    }

    /// Returns a subscription of its own to what happens to the queue's interface, for an event
    /// loop: its descriptor ([`AsFd`]) is readable when there may be an event, [`LinkWatch::next`]
    /// returns it.
    ///
    /// [`recv`](Self::recv) reports the same events by itself, but only while it is called: a loop
    /// that waits for the queue's own descriptor alone would sleep through them. After
    /// [`LinkEvent::Removed`] or [`LinkEvent::Moved`] call `recv` until it returns
    /// [`Error::LinkGone`]: the packets that came before are still there.
    ///
    /// # Errors
    ///
    /// [`Error::Watch`] if the process may open no more files, if the interface was removed, and in
    /// another network namespace than that in which the queue was opened.
    pub fn watch_link(&self) -> Result<LinkWatch, Error> {
        self.check_process()?;
        Ok(LinkWatch::open(&self.interface)?)
    }

    #[inline]
    fn wait_at(&mut self, wait: Wait) -> Result<(), Error> {
        self.counters.empty_looks.add(1);
        match wait {
            Wait::Spin => {
                // Only a zero-copy driver sleeps over an empty fill ring; on copy paths the flag stays 0.
                let zero_copy = self.report.path == Path::ZeroCopy;
                if zero_copy && (!self.report.need_wakeup || self.bound.pair.lock().fill.needs_wakeup()) {
                    self.kick_rx()?;
                }
                std::hint::spin_loop();
                return Ok(());
            }
            Wait::BusyPoll => {
                self.kick_rx()?;
                self.counters.busy_polls.add(1);
            }
            Wait::Poll(timeout) => self.sleep(timeout)?,
        }
        if self.event.is_none() {
            self.look(now_coarse())?;
            let busy = wait == Wait::BusyPoll && !self.inbox.is_empty();
            self.counters.busy_polls_fruitful.add(u64::from(busy));
        }
        Ok(())
    }

    /// Sleeps in slices: what `poll()` does not tell has to be asked for.
    fn sleep(&mut self, timeout: Duration) -> Result<(), Error> {
        let start = Instant::now();
        loop {
            // What another queue of the port has read, or an earlier call of this one, wakes nobody.
            if self.link.told() != self.events_seen {
                self.ask_link();
                return Ok(());
            }
            // Packets that the kernel could not send at once need more kicks, and not only when one arrives.
            let left = timeout.saturating_sub(start.elapsed());
            // Fewer frames wait under steady load: a pause ends that.
            let longest = match (self.unsent, self.working_set.is_small()) {
                (true, _) => 1,
                (false, true) => 10,
                (false, false) => 500,
            };
            let slice = left.min(Duration::from_millis(longest));
            self.counters.polls.add(1);
            match poll_rx(self.bound.fd.as_fd(), self.link.as_fd(), slice) {
                Ok(Slept::Woken) => {
                    self.counters.wakeups.add(1);
                    return Ok(());
                }
                Ok(Slept::Link) => self.ask_link(),
                Ok(Slept::Through) => {
                    if self.working_set.is_small() {
                        self.restore_working_set()?;
                    }
                    self.kick_rx()?;
                }
                Ok(Slept::Interrupted) => return self.kick_rx(),
                Err(errno) => return Err(self.failed("poll()", errno)),
            }
            if self.unsent {
                self.kick_if_up()?;
            }
            // Not by counting slices: a change of any other link of the namespace ends one early.
            if self.event.is_some() || self.lost.is_some() || start.elapsed() >= timeout {
                return Ok(());
            }
        }
    }

    fn kick_rx(&mut self) -> Result<(), Error> {
        self.counters.rx_kicks.add(1);
        match wake_rx(self.bound.fd.as_fd()) {
            Ok(()) => Ok(()),
            Err(errno @ (Errno::NETDOWN | Errno::NXIO)) => {
                self.link_trouble(errno);
                Ok(())
            }
            Err(errno) => Err(self.failed("recvfrom()", errno)),
        }
    }

    /// A link that is down brings nothing, which is no error: the event was told, or is now, and so will its end be. One
    /// that is gone does not come back.
    #[cold]
    pub(super) fn link_trouble(&mut self, errno: Errno) {
        self.ask_link();
        if errno == Errno::NXIO {
            // The socket knows it before the message is read.
            self.lost.get_or_insert(LinkEvent::Removed);
        }
    }

    /// Looks what happened to the link, one thing for each burst: its end is for [`Queue::take_leave`], anything else is
    /// told.
    #[cold]
    fn ask_link(&mut self) {
        if self.event.is_some() {
            return;
        }
        match self.link.next(&mut self.events_seen) {
            Some(event @ (LinkEvent::Removed | LinkEvent::Moved { .. })) => {
                self.lost.get_or_insert(event);
            }
            // An interface of the same name is another one.
            Some(LinkEvent::Appeared { .. }) | None => {}
            event => {
                if let Some(LinkEvent::MtuChanged { mtu }) = event {
                    self.bound.mtu = mtu;
                }
                self.event = event;
            }
        }
    }

    /// The interface is gone: what came before that is still to be had, and then it is an error. What the kernel is done
    /// sending is counted.
    #[cold]
    fn take_leave(&mut self) -> Result<(), Error> {
        self.event = None;
        if self.inbox.is_empty() {
            self.look(now_coarse())?;
        }
        if !self.inbox.is_empty() {
            return Ok(());
        }
        self.drain_completions()?;
        Err(self.link_gone().expect("the caller looked"))
    }

    /// The error of a queue whose interface is gone.
    #[cold]
    pub(super) fn link_gone(&self) -> Option<Error> {
        Some(Error::LinkGone {
            interface: self.report.interface.clone(),
            queue: self.report.queue,
            event: self.lost.clone()?,
        })
    }
}
