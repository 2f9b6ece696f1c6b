//! Waiting for packets, and for what happens to the link meanwhile.
//!
//! `poll()` on an XDP socket stays silent about its link, so each way of waiting also asks who watches it.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ringside_nic::LinkEvent;
use rustix::io::Errno;

use super::Queue;
use crate::error::Error;
use crate::mode::Path;
use crate::wakeup::{Slept, Wait, poll_rx, wake_rx};

/// Bursts between two questions to who watches the link: about half a millisecond of spinning.
const BURSTS_PER_QUESTION: u64 = 1 << 13;

impl Queue {
    #[inline]
    pub(super) fn wait(&mut self, wait: Wait) -> Result<(), Error> {
        self.counters.empty_looks += 1;
        match wait {
            Wait::Spin => {
                // Only a zero-copy driver sleeps over an empty fill ring; on copy paths the flag stays 0.
                let zero_copy = self.report.path == Path::ZeroCopy;
                if zero_copy && (!self.report.need_wakeup || self.bound.pair.lock().fill.needs_wakeup()) {
                    self.kick_rx()?;
                }
                if self.counters.empty_looks.is_multiple_of(BURSTS_PER_QUESTION) {
                    self.ask_link()?;
                }
                std::hint::spin_loop();
                return Ok(());
            }
            Wait::BusyPoll => {
                self.kick_rx()?;
                if self.counters.empty_looks.is_multiple_of(BURSTS_PER_QUESTION) {
                    self.ask_link()?;
                }
                self.look()?;
                self.counters.busy_polls += 1;
                self.counters.busy_polls_fruitful += u64::from(!self.inbox.is_empty());
                return Ok(());
            }
            Wait::Poll(timeout) => self.sleep(timeout)?,
        }
        self.look()
    }

    /// Sleeps in slices: what `poll()` does not tell has to be asked for.
    fn sleep(&mut self, timeout: Duration) -> Result<(), Error> {
        let start = Instant::now();
        loop {
            // What another queue of the port has read, or an earlier call of this one, wakes nobody.
            if self.link.told() != self.events_seen {
                self.ask_link()?;
                return Ok(());
            }
            // Packets that the kernel could not send at once need more kicks, and not only when one arrives.
            let left = timeout.saturating_sub(start.elapsed());
            let slice = left.min(Duration::from_millis(if self.unsent { 1 } else { 500 }));
            self.counters.polls += 1;
            match poll_rx(self.bound.fd.as_fd(), self.link.as_fd(), slice) {
                Ok(Slept::Woken) => {
                    self.counters.wakeups += 1;
                    return Ok(());
                }
                Ok(Slept::Link) => self.ask_link()?,
                Ok(Slept::Through) => self.kick_rx()?,
                Ok(Slept::Interrupted) => return self.kick_rx(),
                Err(errno) => return Err(self.failed("poll()", errno)),
            }
            // Not by counting slices: a change of any other link of the namespace ends one early.
            if self.event.is_some() || start.elapsed() >= timeout {
                return Ok(());
            }
            if self.unsent {
                self.kick_if_up()?;
            }
        }
    }

    fn kick_rx(&mut self) -> Result<(), Error> {
        self.counters.rx_kicks += 1;
        match wake_rx(self.bound.fd.as_fd()) {
            Ok(()) => Ok(()),
            Err(errno @ (Errno::NETDOWN | Errno::NXIO)) => self.link_trouble(errno),
            Err(errno) => Err(self.failed("recvfrom()", errno)),
        }
    }

    /// A link that is down brings nothing, which is no error: the event was told, or is now, and so will its end be. One
    /// that is gone does not come back.
    #[cold]
    pub(super) fn link_trouble(&mut self, errno: Errno) -> Result<(), Error> {
        self.ask_link()?;
        if errno == Errno::NXIO {
            // The socket knows it before the message is read.
            return Err(self.gone(LinkEvent::Removed));
        }
        Ok(())
    }

    /// Looks what happened to the link. Its end is an error, anything else is told with the burst.
    #[cold]
    fn ask_link(&mut self) -> Result<(), Error> {
        match self.link.next(&mut self.events_seen) {
            Some(event @ (LinkEvent::Removed | LinkEvent::Moved { .. })) => Err(self.gone(event)),
            // An interface of the same name is another one.
            Some(LinkEvent::Appeared { .. }) | None => Ok(()),
            Some(event) => {
                self.event = Some(event);
                Ok(())
            }
        }
    }

    fn gone(&mut self, event: LinkEvent) -> Error {
        self.lost.get_or_insert(event);
        self.link_gone().expect("just set")
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
