//! How many frames wait for packets on the fill ring of a copy path.
//!
//! The kernel takes frames from the fill ring in turn, so all that are there pass through the
//! cache. An idle queue keeps all of them ready, for a burst comes without a warning. Under steady
//! load a few suffice and stay in the cache: where the application keeps up, the others are never
//! needed; where it is overloaded all the time, they only make packets older. Any sign of a burst
//! or a pause restores them.

use std::time::Duration;

use super::Queue;
use super::waiting::now_coarse;
use crate::error::Error;

/// Period over which load is judged. Several ticks of CLOCK_MONOTONIC_COARSE.
const WINDOW: Duration = Duration::from_millis(8);

/// Windows of steady load before the working set shrinks: at first, and at most. The number doubles
/// with each shrinking that a burst proved wrong, and halves with each that lasted as long.
const MIN_STEADY_WINDOWS: u32 = 4;
const MAX_STEADY_WINDOWS: u32 = 4096;

/// Decides how many frames wait on the fill ring.
#[derive(Debug)]
pub(super) struct WorkingSet {
    /// Frames that wait while the queue is idle or its load varies.
    full: u32,
    /// Frames that wait under steady load.
    small: u32,
    load: Load,
    window: Window,
    /// Windows in a row with the same load.
    windows: u32,
    steady_windows: u32,
}

/// The load by which the working set is small, or may become so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    /// Idle, slow or bursty.
    Varying,
    /// Many packets, and the application takes each soon.
    KeptUp,
    /// More packets than the application takes, all the time.
    Overload,
}

/// What was seen since the window began.
#[derive(Debug)]
struct Window {
    end: Duration,
    packets: u32,
    /// The most and the fewest packets that waited at one time.
    most: u32,
    fewest: u32,
}

impl Window {
    fn beginning(now: Duration) -> Self {
        Self {
            end: now + WINDOW,
            packets: 0,
            most: 0,
            fewest: u32::MAX,
        }
    }
}

impl WorkingSet {
    pub(super) fn new(full: u32, small: u32, now: Duration) -> Self {
        Self {
            full,
            small: small.min(full),
            load: Load::Varying,
            window: Window::beginning(now),
            windows: 0,
            steady_windows: MIN_STEADY_WINDOWS,
        }
    }

    /// Returns whether fewer frames than possible wait.
    pub(super) fn is_small(&self) -> bool {
        self.load != Load::Varying && self.windows >= self.steady_windows
    }

    /// Notes how many packets waited at a look at the RX ring. Returns how many frames are to wait
    /// from now on, if that changes.
    #[inline]
    pub(super) fn note(&mut self, waiting: u32, now: Duration) -> Option<u32> {
        if self.small == self.full {
            return None;
        }
        let window = &mut self.window;
        window.packets = window.packets.saturating_add(waiting);
        window.most = window.most.max(waiting);
        window.fewest = window.fewest.min(waiting);
        let is_over = now >= window.end;
        match self.load {
            Load::KeptUp if waiting > self.small / 2 => self.end_by_burst(now),
            Load::Overload if waiting < self.small / 2 => self.end_by_burst(now),
            _ if is_over => self.judge(now),
            _ => None,
        }
    }

    /// Has all frames wait again, for there is a pause. Returns how many, if that changes.
    #[cold]
    pub(super) fn restore(&mut self, now: Duration) -> Option<u32> {
        let was_small = self.is_small();
        self.load = Load::Varying;
        self.windows = 0;
        self.window = Window::beginning(now);
        was_small.then_some(self.full)
    }

    /// The load is not what it was taken for.
    #[cold]
    fn end_by_burst(&mut self, now: Duration) -> Option<u32> {
        let all = self.restore(now)?;
        self.steady_windows = (self.steady_windows * 2).min(MAX_STEADY_WINDOWS);
        Some(all)
    }

    /// Judges the window that is over.
    #[cold]
    fn judge(&mut self, now: Duration) -> Option<u32> {
        let window = std::mem::replace(&mut self.window, Window::beginning(now));
        let load = match window {
            // A thread that had no CPU, or an application that paused.
            _ if now >= window.end + WINDOW => Load::Varying,
            // At a lower rate the cache does not matter.
            Window { packets, .. } if packets < self.full / 2 => Load::Varying,
            Window { most, .. } if most <= self.small / 2 => Load::KeptUp,
            Window { fewest, .. } if fewest >= self.overload() => Load::Overload,
            _ => Load::Varying,
        };
        if load != self.load || load == Load::Varying {
            let all = self.restore(now);
            self.load = load;
            return all;
        }
        let was_small = self.is_small();
        self.windows = self.windows.saturating_add(1);
        if was_small && self.windows >= self.steady_windows * 2 {
            self.windows = self.steady_windows;
            self.steady_windows = (self.steady_windows / 2).max(MIN_STEADY_WINDOWS);
        }
        (!was_small && self.is_small()).then_some(self.small)
    }

    /// Packets that wait at every look of an overloaded application.
    fn overload(&self) -> u32 {
        match self.is_small() {
            true => self.small / 2,
            false => self.full / 4 * 3,
        }
    }
}

impl Queue {
    /// Has this many frames wait for packets from now on. More are there at once: this call may sleep
    /// next.
    #[inline]
    pub(super) fn keep_in_fill(&mut self, frames: Option<u32>) -> Result<(), Error> {
        let Some(frames) = frames else { return Ok(()) };
        let Some(pair) = self.bound.pair.own() else {
            return Ok(());
        };
        pair.fill_target = frames;
        self.counters.rx_shrunk.add(u64::from(self.working_set.is_small()));
        self.refill()
    }

    /// Has all frames wait for packets again.
    #[cold]
    pub(super) fn restore_working_set(&mut self) -> Result<(), Error> {
        let frames = self.working_set.restore(now_coarse());
        self.keep_in_fill(frames)
    }

    /// Has all frames wait for packets at all times: several sockets share the fill ring.
    pub(super) fn end_working_set(&mut self) -> Result<(), Error> {
        self.restore_working_set()?;
        let all = self.sizes.fill_target;
        self.working_set = WorkingSet::new(all, all, now_coarse());
        Ok(())
    }
}

#[cfg(test)]
#[path = "working_set_tests.rs"]
mod tests;
