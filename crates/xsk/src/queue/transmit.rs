//! The sending side of a queue.
//!
//! Each pass is: drain the completion ring, wake the kernel if it asks, look at the ring. What the call answers does not
//! decide anything: `EAGAIN` comes although 32 packets left, success comes although one is still there. Progress is what
//! the consumer index and the completion ring say, and no progress for the stall time is an error.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::Queue;
use super::lanes::{Pushed, Refusal, SHORTEST, is_sendable};
use super::stall::Stall;
use crate::burst::Packet;
use crate::error::Error;
use crate::mode::Path;
use crate::options::Direction;
use crate::sys;
use crate::tx_metadata::{Ask, NotAsked};
use crate::umem::{Entry, Fate, Frame, Umem};
use crate::wakeup::{Answer, wake_tx, wake_tx_by_poll};

/// A frame that could not be sent, with the reason.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct SendError {
    /// Why not.
    #[source]
    pub error: Error,
    /// The frame, still the caller's.
    pub frame: Frame,
}

impl From<SendError> for Error {
    fn from(error: SendError) -> Self {
        error.error
    }
}

impl Queue {
    /// Puts a frame on the TX ring, without waking the kernel: [`flush`](Queue::flush), or the next
    /// [`recv`](Queue::recv), does. Waits for room in the ring, for the stall time at the most.
    ///
    /// The frame comes back with the error when it is of another UMEM, shorter than an Ethernet
    /// header, longer than the interface's MTU and that header (up to two VLAN tags do not count),
    /// or there was no room. A veth has room for one tag: it drops a packet of full size with two.
    #[allow(
        clippy::result_large_err,
        reason = "the frame comes back with the reason; a box would allocate on the packet's path"
    )]
    #[inline]
    pub fn send(&mut self, frame: Frame) -> Result<(), SendError> {
        if self.is_sound()
            && Arc::ptr_eq(frame.umem(), &self.bound.umem)
            && let Some(buf) = frame.single()
            && is_sendable(buf, &self.bound.umem, self.bound.mtu)
            && self.bound.push_one(buf)
        {
            self.unsent = true;
            self.counters.tx_packets.add(1);
            self.counters.tx_bytes.add(u64::from(buf.len));
            frame.lend();
            return Ok(());
        }
        self.send_patiently(frame)
    }

    /// [`Queue::send`] for a packet in several frames, or when something is in the way.
    #[allow(clippy::result_large_err, reason = "as above")]
    fn send_patiently(&mut self, frame: Frame) -> Result<(), SendError> {
        if let Err(error) = self
            .sound()
            .and_then(|()| self.sendable(&frame))
            .and_then(|()| self.wait_for_room(frame.frames()))
        {
            return Err(SendError { error, frame });
        }
        frame.into_entries(Fate::Send, &mut self.inbox);
        let pushed = self.push_inbox(Fate::Drop);
        debug_assert!(matches!(pushed, Ok(1)));
        Ok(())
    }

    /// Sends up to `max` packets, at most a batch, each written by `write` into a fresh frame, with one publish and one kick; tells
    /// how many. 0 when no frame is free: the kernel still has them all. Packets that `write` marks with
    /// [`Packet::drop`] are not sent.
    ///
    /// ```no_run
    /// # use ringside_xsk::{Queue, Error};
    /// # fn blast(queue: &mut Queue, template: &[u8]) -> Result<(), Error> {
    /// let sent = queue.send_with(64, |packet| assert!(packet.write(template)))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] when a packet is shorter than an Ethernet header, or longer than the
    /// interface's MTU allows: it is not sent, and counted in
    /// [`tx_abandoned`](crate::OwnStats::tx_abandoned) or
    /// [`tx_too_long`](crate::OwnStats::tx_too_long); the others are sent all the same.
    #[inline]
    pub fn send_with(&mut self, max: u32, write: impl FnMut(&mut Packet<'_>)) -> Result<u32, Error> {
        self.send_each(max, write)
    }

    /// [`Queue::send_with`], with what each packet asks for, or nothing.
    #[inline]
    pub(super) fn send_each<A: Ask>(
        &mut self,
        max: u32,
        write: impl FnMut(&mut Packet<'_>) -> A,
    ) -> Result<u32, Error> {
        let too_long = self.counters.tx_too_long.get();
        let sent = self.write_each(max, write)?;
        // A burst that was received is not to blame for what came; the caller made this one.
        match self.counters.tx_too_long.get() == too_long {
            true => Ok(sent),
            false => Err(self.too_long(self.too_long_bytes)),
        }
    }

    #[inline]
    fn write_each<A: Ask>(&mut self, max: u32, mut write: impl FnMut(&mut Packet<'_>) -> A) -> Result<u32, Error> {
        self.ready()?;
        if self.bound.tx.is_none() {
            return Err(self.wrong_direction());
        }
        let most = max.min(self.batch);
        if let Some(pushed) = self.write_through(most, &mut write)? {
            let sent = self.unless_refused(&pushed);
            return self.kick_after(sent);
        }
        let mut refused = None;
        for _ in 0..most {
            let start = self.inbox.len();
            let Some(buf) = self.take_free()? else { break };
            self.inbox.push(Entry::new(buf, Fate::Open));
            if self.frames_per_packet != 1 && !self.lengthen_last()? {
                break;
            }
            let mut packet = Packet::new(&mut self.inbox[start..], &self.bound.umem).expect("just pushed");
            let asked = write(&mut packet).meta();
            if A::CAN
                && !packet.is_dropped()
                && let Err(NotAsked { error, mut packet }) = packet.ask(asked)
            {
                packet.drop();
                self.counters.tx_abandoned.add(1);
                refused = Some(error);
            }
        }
        if self.inbox.is_empty() && self.in_flight() != 0 {
            self.no_progress(Answer::Done)?;
            return Ok(0);
        }
        let sent = self.settle(Fate::Send)?;
        refused.map_or(Ok(sent), |error| Err(self.not_asked(error)))
    }

    /// [`Queue::send_with`] as it mostly is: frames go from the pool to the TX ring as they are written. `None`, and
    /// nothing done, where that cannot be: a pair with siblings, who must not wait for the user's code; packets in several
    /// frames; too little room on the ring, or no frame.
    #[inline]
    fn write_through<A: Ask>(
        &mut self,
        most: u32,
        write: &mut impl FnMut(&mut Packet<'_>) -> A,
    ) -> Result<Option<Pushed>, Error> {
        if self.frames_per_packet != 1 {
            return Ok(None);
        }
        let Some(pair) = self.bound.pair.own() else {
            return Ok(None);
        };
        let spare = pair.spare(most);
        let (frames, completed) = self.check(spare)?;
        self.note_completed(completed);
        if frames == 0 {
            return Ok(None);
        }
        // What is pushed is published also when `write` panics, and must not wait for ever then.
        self.unsent = true;
        let pushed = self.bound.write_through(frames, &self.counters, write);
        self.check(pushed)
    }

    /// Gives the packet at the inbox's end as many frames as its longest needs; false, and the packet is gone, when there are
    /// too few.
    pub(super) fn lengthen_last(&mut self) -> Result<bool, Error> {
        let start = self.inbox.len() - 1;
        for _ in 1..self.frames_per_packet {
            match self.take_free()? {
                Some(buf) => {
                    self.inbox.last_mut().expect("the packet's head").set_more(true);
                    self.inbox.push(Entry::new(buf, Fate::Open));
                }
                None => {
                    let pool = &mut self.bound.pair.lock().pool;
                    for entry in self.inbox.drain(start..) {
                        pool.put_buf(&entry.buf);
                    }
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Wakes the kernel until it has taken everything from the TX ring. Fails after the stall time without progress.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.ready()?;
        while self.unsent {
            self.kick()?;
        }
        Ok(())
    }

    /// Waits until all frames that were sent have come back, for `timeout` at the most; true when they have.
    pub fn drain(&mut self, timeout: Duration) -> Result<bool, Error> {
        let start = Instant::now();
        if let Err(error) = self.ready() {
            // Frames that the kernel is done sending are counted, also on a link that is gone.
            if matches!(error, Error::LinkGone { .. }) {
                self.drain_completions()?;
            }
            return Err(error);
        }
        loop {
            // Not `flush()`: a stalled TX ring would hold it up for the stall time.
            match self.unsent {
                true => self.kick()?,
                false => self.drain_completions()?,
            }
            if self.in_flight() == 0 {
                return Ok(true);
            }
            if start.elapsed() >= timeout {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_micros(1));
        }
    }

    /// Frames sent and not yet completed.
    pub fn in_flight(&self) -> u32 {
        self.bound.pair.read(|pair| pair.pool.in_flight())
    }

    /// Ends a burst: undecided packets meet `fate`, those to be sent go to the TX ring with one publish and one kick.
    #[inline]
    pub(crate) fn settle(&mut self, fate: Fate) -> Result<u32, Error> {
        self.own_burst()?;
        let sent = self.push_inbox(fate);
        self.kick_after(sent)
    }

    /// Checks that the burst is not a copy in a child of `fork()`. There it is forgotten: its
    /// frames and rings are the parent's.
    #[inline]
    fn own_burst(&mut self) -> Result<(), Error> {
        let checked = self.check_process();
        if checked.is_err() {
            self.inbox.clear();
        }
        checked
    }

    /// Has the kernel send what was put on the TX ring.
    #[inline]
    fn kick_after(&mut self, sent: Result<u32, Error>) -> Result<u32, Error> {
        // Also when one of the burst was too short: the others must not wait for a next call.
        if self.unsent
            && !matches!(sent, Err(Error::LinkDown { .. } | Error::NoProgress { .. }))
            && self.poison.get().is_none()
        {
            self.kick()?;
        }
        sent
    }

    /// Ends a burst on another queue.
    pub(crate) fn settle_on(&mut self, other: &mut Self, fate: Fate) -> Result<u32, Error> {
        self.own_burst()?;
        if let Err(error) = other.takes(&self.bound.umem).and_then(|()| other.ready()) {
            let abandoned = self.abandon(0, fate);
            return Err(error.with_abandoned(abandoned));
        }
        // Both inboxes have room for a burst; the other one is empty (`ready`).
        std::mem::swap(&mut self.inbox, &mut other.inbox);
        let sent = other.settle(fate);
        std::mem::swap(&mut self.inbox, &mut other.inbox);
        sent
    }

    /// Ends a burst whose owner does not look at the result.
    #[cold]
    pub(crate) fn settle_later(&mut self) {
        if let Err(error) = self.settle(Fate::Drop) {
            self.defer(error);
        }
    }

    /// Moves the inbox to TX ring and pool, waiting for room. On an error the packets that were not sent are counted
    /// as abandoned.
    #[inline]
    pub(super) fn push_inbox(&mut self, open: Fate) -> Result<u32, Error> {
        let mut next = 0;
        if open == Fate::Drop {
            let recycled = self.bound.pair.lock().recycle(&self.inbox);
            next = self.check(recycled)?;
            // As it mostly is: all were dropped.
            if next == self.inbox.len() {
                self.inbox.clear();
                return Ok(0);
            }
        }
        self.push_rest(open, next)
    }

    /// [`Queue::push_inbox`] from the entry `next` on.
    fn push_rest(&mut self, open: Fate, mut next: usize) -> Result<u32, Error> {
        let mut pushed = Pushed::default();
        let mut result = Ok(());
        while next < self.inbox.len() {
            let before = pushed.packets;
            let done = self.bound.push(&self.inbox[next..], open, &mut pushed);
            next += self.check(done)?;
            self.unsent |= pushed.packets != before;
            if next < self.inbox.len() {
                result = match self.bound.tx {
                    Some(_) => self.kick(),
                    None => Err(self.wrong_direction()),
                };
                if result.is_err() {
                    break;
                }
            }
        }
        self.counters.tx_packets.add(u64::from(pushed.packets));
        self.counters.tx_bytes.add(pushed.bytes);
        let sent = self.unless_refused(&pushed);
        if next < self.inbox.len() {
            let abandoned = self.abandon(next, open);
            result = result.map_err(|error| error.with_abandoned(abandoned));
        }
        self.inbox.clear();
        result.and(sent)
    }

    /// Returns the number of packets on the TX ring; an error when one is no packet, and none when
    /// it is too long for the interface.
    #[inline]
    fn unless_refused(&mut self, pushed: &Pushed) -> Result<u32, Error> {
        if pushed.too_long != 0 {
            self.counters.tx_too_long.add(u64::from(pushed.too_long));
            self.too_long_bytes = pushed.too_long_bytes;
        }
        if pushed.refused != 0 {
            self.counters.tx_abandoned.add(u64::from(pushed.refused));
            return Err(self.unsendable(pushed.refused_as));
        }
        Ok(pushed.packets)
    }

    /// Drops the packets of the inbox from `next` on, and returns how many of them were to be sent.
    #[cold]
    fn abandon(&mut self, next: usize, open: Fate) -> u32 {
        let mut abandoned = 0;
        let pool = &mut self.bound.pair.lock().pool;
        let mut is_head = true;
        for entry in self.inbox.drain(..).skip(next) {
            let fate = if entry.fate() == Fate::Open { open } else { entry.fate() };
            if is_head && (fate == Fate::Send || entry.asks()) {
                abandoned += 1;
            }
            is_head = !entry.more();
            if !entry.is_the_users() {
                pool.put_buf(&entry.buf);
            }
        }
        self.counters.tx_abandoned.add(u64::from(abandoned));
        abandoned
    }

    /// Wakes the kernel for the TX ring, as often as that makes progress and something is left.
    pub(crate) fn kick(&mut self) -> Result<(), Error> {
        let mut progress = false;
        loop {
            self.drain_completions()?;
            let pending = self.tx_pending()?;
            if pending == 0 {
                self.unsent = false;
                self.stalled = None;
                return Ok(());
            }
            let Some(tx) = &self.bound.tx else { return Ok(()) };
            let mut answer = Answer::Done;
            let asks = tx.needs_wakeup() || !self.report.need_wakeup;
            // Where the kernel copies, or with busy-polling, the call itself does the work.
            // With siblings another one may see the progress.
            let is_alone = self.bound.pair.own().is_some();
            let is_awaited = self.report.path == Path::ZeroCopy && self.report.busy_poll.is_none() && is_alone;
            if asks && !(is_awaited && self.stalled.as_mut().is_some_and(|stall| !stall.wakes_driver())) {
                self.counters.tx_kicks.add(1);
                answer = wake_tx(self.bound.fd.as_fd()).map_err(|errno| self.failed("sendto()", errno))?;
                if answer != Answer::Done {
                    self.counters.tx_kicks_partly.add(1);
                }
            }
            if self.tx_pending()? == pending {
                // Nothing more to be had now. A driver that is awake takes the rest by itself.
                if asks && self.report.busy_poll.is_some() && self.report.path == Path::ZeroCopy {
                    wake_tx_by_poll(self.bound.fd.as_fd()).map_err(|errno| self.failed("poll()", errno))?;
                }
                return if progress { Ok(()) } else { self.no_progress(answer) };
            }
            progress = true;
            self.stalled = None;
        }
    }

    /// Whether this is a socket that only sends, bound with zero-copy, whose driver sends nothing as long as no XDP program is
    /// attached. Those of Intel's NICs are like that, and bind all the same:
    /// <https://elixir.bootlin.com/linux/v6.18/C/ident/igb_xsk_wakeup>, <https://elixir.bootlin.com/linux/v6.18/C/ident/igc_xsk_wakeup>
    pub(crate) fn lacks_program(&self) -> bool {
        if self.report.path != Path::ZeroCopy || self.report.direction != Direction::Transmit {
            return false;
        }
        let fd = self.bound.fd.as_fd();
        // With it `sendto()` would not come to the driver.
        let busy_poll = self.report.busy_poll;
        let without = busy_poll.map_or(Ok(()), |_| sys::end_busy_poll(fd));
        // There is nothing to send yet: this only asks.
        let refused = without.is_ok() && matches!(wake_tx(fd), Err(Errno::INVAL | Errno::NXIO));
        // It was set like that a moment ago.
        _ = busy_poll.map(|busy_poll| sys::set_busy_poll(fd, busy_poll.micros, busy_poll.budget));
        refused
    }

    /// Ends a queue that [lacks a program](Self::lacks_program). Without one the driver receives
    /// into its own buffers, so the frames that were kept for it go back to their UMEM.
    pub(crate) fn end_unused(mut self) {
        self.bound.pair.lock().pool.untouched();
    }

    /// As [`Queue::kick`]; what a link that is down, or gone, does not take stays where it is, and is no error of receiving.
    pub(super) fn kick_if_up(&mut self) -> Result<(), Error> {
        if self.lost.is_some() {
            return Ok(());
        }
        match self.kick() {
            Err(Error::LinkDown { .. }) => self.link_trouble(Errno::NETDOWN),
            Err(Error::LinkGone { .. }) => self.link_trouble(Errno::NXIO),
            result => return result,
        }
        Ok(())
    }

    fn tx_pending(&mut self) -> Result<u32, Error> {
        let pending = self.bound.pending();
        self.check(pending)
    }

    /// Nothing moved in this pass: fine for a while, an error after the stall time.
    #[cold]
    pub(super) fn no_progress(&mut self, last: Answer) -> Result<(), Error> {
        let Some(stall) = &mut self.stalled else {
            self.stalled = Some(Stall::default());
            return Ok(());
        };
        let waited = stall.look();
        if waited < self.stall_timeout {
            std::hint::spin_loop();
            return Ok(());
        }
        self.stalled = None;
        Err(Error::NoProgress {
            interface: self.report.interface.clone(),
            queue: self.report.queue,
            waited,
            pending: self.tx_pending()?,
            in_flight: self.in_flight(),
            last: last.to_string(),
            abandoned: 0,
        })
    }

    pub(super) fn wait_for_room(&mut self, frames: u32) -> Result<(), Error> {
        loop {
            let Some(tx) = &mut self.bound.tx else {
                return Err(self.wrong_direction());
            };
            let room = tx.reserve(frames).map(|slots| slots.remaining());
            if self.check(room)? >= frames {
                return Ok(());
            }
            self.kick()?;
        }
    }

    /// Whether frames of this UMEM can be sent here.
    fn takes(&self, umem: &Arc<Umem>) -> Result<(), Error> {
        if Arc::ptr_eq(umem, &self.bound.umem) {
            return Ok(());
        }
        Err(Error::Setting {
            setting: "frame",
            value: format!("of UMEM {}", umem.id()),
            reason: format!(
                "{} queue {} sends only frames of its own UMEM {}; copy the packet into a frame of this queue, or open both on a SharedUmem",
                self.report.interface,
                self.report.queue,
                self.umem_id()
            ),
        })
    }

    pub(super) fn sendable(&self, frame: &Frame) -> Result<(), Error> {
        self.takes(frame.umem())?;
        let (head, frames) = (frame.data().len(), frame.frames());
        if head < SHORTEST as usize || frames as usize > self.bound.most_frames {
            let head = u32::try_from(head).unwrap_or(u32::MAX);
            return Err(self.unsendable(Refusal::Size(head, frames as usize)));
        }
        match frame.fits_mtu(self.bound.mtu) {
            true => Ok(()),
            false => Err(self.too_long(u32::try_from(frame.len()).unwrap_or(u32::MAX))),
        }
    }

    #[cold]
    fn too_long(&self, bytes: u32) -> Error {
        let (interface, queue, mtu) = (&self.report.interface, self.report.queue, self.bound.mtu);
        Error::Setting {
            setting: "packet length",
            value: bytes.to_string(),
            reason: format!(
                "{interface} queue {queue} sends up to {} bytes with its MTU of {mtu}, and 4 more for each of two VLAN \
                 tags (a veth only of one): send shorter packets, or raise the MTU: ip link set dev {interface} mtu {}",
                mtu + SHORTEST,
                bytes.saturating_sub(SHORTEST)
            ),
        }
    }

    #[cold]
    fn unsendable(&self, refusal: Refusal) -> Error {
        let (head, frames) = match refusal {
            Refusal::Size(head, frames) => (head, frames),
            Refusal::Asks(error) => return self.not_asked(error),
        };
        let (interface, queue) = (&self.report.interface, self.report.queue);
        if head < SHORTEST {
            Error::Setting {
                setting: "packet length",
                value: head.to_string(),
                reason: format!(
                    "a packet sent on {interface} queue {queue} has at least an Ethernet header of {SHORTEST} bytes, in its first frame"
                ),
            }
        } else {
            Error::Setting {
                setting: "frames of a packet",
                value: frames.to_string(),
                reason: format!(
                    "a packet sent on {interface} queue {queue} is in {} frame(s) at the most",
                    self.bound.most_frames
                ),
            }
        }
    }
}
