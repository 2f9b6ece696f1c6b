//! One queue of an interface: one socket, one UMEM, one owner thread.

mod alloc;
mod asking;
mod audit;
mod builder;
#[cfg(all(test, feature = "attach"))]
mod descriptor_tests;
mod held;
#[cfg(all(test, feature = "attach"))]
mod kernel_tests;
mod lanes;
#[cfg(all(test, feature = "attach"))]
mod raw_tests;
mod reader;
mod stall;
mod transmit;
mod waiting;
mod working_set;

use std::cell::OnceCell;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use ringside_nic::{Interface, LinkEvent};
use rustix::io::Errno;

pub use builder::QueueBuilder;
pub(crate) use builder::{LACKS_PROGRAM, finish};
pub use reader::StatsReader;
pub use transmit::SendError;

use crate::burst::{Burst, PacketsMut};
use crate::error::{Error, Violation};
use crate::hints::{HintCounters, Layouts};
use crate::link::Link;
use crate::mode::Path;
use crate::opener::Opener;
use crate::options::Sizes;
use crate::report::QueueReport;
use crate::socket::Bound;
use crate::stats::{OwnCounters, OwnStats};
use crate::umem::Entry;
use crate::wakeup::Wait;
use lanes::MOST_FRAMES;
use reader::SocketCounters;
use stall::Stall;
use waiting::now_coarse;
use working_set::WorkingSet;

/// A queue: receive bursts, send them back, allocate and send.
///
/// It belongs to one thread at a time (`Send`, not `Sync`) and allocates nothing after it was opened. Its socket can be
/// put into an event loop through [`AsFd`].
#[doc(alias = "xsk_socket")]
#[doc(alias = "xsk_socket__create")]
pub struct Queue {
    // Rings unmap first, then the socket closes, then the UMEM goes: fields drop in this order.
    pub(crate) bound: Bound,
    interface: Interface,
    sizes: Sizes,
    pub(crate) inbox: Vec<Entry>,
    /// The frames of a packet whose end is not on the RX ring yet.
    partial: Vec<Entry>,
    batch: u32,
    /// What it was opened with: the inbox has room for as many.
    most_batch: u32,
    /// Frames that a packet to be sent gets.
    frames_per_packet: u32,
    /// Bursts so far, wrapping: every so many the ledger is checked.
    bursts: u32,
    /// Something on the TX ring may still need a kick.
    unsent: bool,
    /// Since when the TX side has made no progress, if it has not in the last pass.
    stalled: Option<Stall>,
    stall_timeout: Duration,
    /// What was found wrong with shared memory, which ends the use of the queue.
    poison: OnceCell<Violation>,
    link: Arc<Link>,
    events_seen: u64,
    /// When it last looked for link events, by CLOCK_MONOTONIC_COARSE.
    link_checked: Duration,
    /// What happened to the link, until the next burst.
    pub(crate) event: Option<LinkEvent>,
    /// How the interface went away for good.
    lost: Option<LinkEvent>,
    /// An error of a burst that was dropped, told by the next call.
    deferred: Option<Error>,
    counters: Arc<OwnCounters>,
    socket_counters: SocketCounters,
    /// Bytes of the last packet that was longer than the MTU allows.
    too_long_bytes: u32,
    /// Its frames are the kernel's to write to in this process alone.
    opener: Opener,
    working_set: WorkingSet,
    /// Packets may have hints of the UMEM's layouts in front of them.
    hints: bool,
    report: QueueReport,
}

/// What `Queue` needs of the crate to be built.
pub(crate) struct Parameters {
    pub(crate) interface: Interface,
    pub(crate) link: Arc<Link>,
    pub(crate) sizes: Sizes,
    pub(crate) batch: u32,
    pub(crate) frames_per_packet: u32,
    pub(crate) stall_timeout: Duration,
    pub(crate) hints: bool,
    pub(crate) report: QueueReport,
}

impl Queue {
    /// Starts a queue on an interface of which the caller brings the XDP program; see [`QueueBuilder`].
    pub fn builder(interface: &Interface, queue: u32) -> QueueBuilder {
        QueueBuilder::new(interface.clone(), queue)
    }

    pub(crate) fn new(bound: Bound, parameters: Parameters) -> Self {
        let Parameters {
            interface,
            link,
            sizes,
            batch,
            frames_per_packet,
            stall_timeout,
            hints,
            report,
        } = parameters;
        let now = now_coarse();
        // A zero-copy driver moves the frames on to its NIC, which needs as many as its ring holds.
        let small = match report.path {
            Path::ZeroCopy => sizes.fill_target,
            _ => sizes.working_set.saturating_mul(frames_per_packet),
        };
        let partial = if sizes.geometry.multi_buffer() { MOST_FRAMES } else { 0 };
        Self {
            inbox: Vec::with_capacity(batch as usize * frames_per_packet as usize + partial),
            partial: Vec::with_capacity(partial),
            socket_counters: SocketCounters::of(&bound, report.path),
            bound,
            interface,
            sizes,
            batch,
            most_batch: batch,
            frames_per_packet,
            bursts: 0,
            unsent: false,
            stalled: None,
            stall_timeout,
            poison: OnceCell::new(),
            events_seen: link.told(),
            link,
            link_checked: now,
            event: None,
            lost: None,
            deferred: None,
            counters: Arc::default(),
            too_long_bytes: 0,
            opener: Opener::this_process(),
            working_set: WorkingSet::new(sizes.fill_target, small, now),
            hints,
            report,
        }
    }

    /// The queue's number on its interface.
    pub fn id(&self) -> u32 {
        self.report.queue
    }

    /// What was obtained: mode, sizes, memory, wake-up policy, and why.
    pub fn report(&self) -> &QueueReport {
        &self.report
    }

    /// Adds a note to the report.
    pub(crate) fn note(&mut self, note: String) {
        self.report.notes.push(note);
    }

    /// Takes up to a batch of packets, waiting by `wait` when there are none; the burst may be empty.
    ///
    /// Each call also gives free frames back to the fill ring and kicks what an earlier call left unsent.
    ///
    /// A link that goes down or comes up ends the wait within a second: the burst is empty, and
    /// [`Burst::event`] returns what happened. The next call waits again, and the queue works again
    /// when the link is back. All wait policies do this, with and without packets: a call that does
    /// not sleep looks for events at most every 250 ms. For event loops see
    /// [`watch_link`](Self::watch_link). A call that returns an event leaves packets on the ring:
    /// read until the burst is empty and has no event.
    ///
    /// # Errors
    ///
    /// [`Error::LinkGone`] when the interface was removed or moved to another network namespace, after the last packet that
    /// came before that (see [`Port::reopen`](crate::Port::reopen)), [`Error::NoProgress`] when what was to be sent does not
    /// move for the stall time, [`Error::Poisoned`] when shared memory broke the ring protocol.
    #[inline]
    pub fn recv(&mut self, wait: Wait) -> Result<Burst<'_>, Error> {
        self.begin()?;
        self.event = None;
        if self.unsent {
            self.kick_if_up()?;
        }
        if self.bound.rx.is_none() {
            return Err(self.wrong_direction());
        }
        self.refill()?;
        let now = now_coarse();
        self.check_link(now);
        // What is on the ring stays there until the next call when there is something to tell.
        if self.event.is_none() {
            self.look(now)?;
            if self.inbox.is_empty() {
                self.wait(wait)?;
            }
        }
        Ok(Burst::new(self))
    }

    /// Returns the length of the longest packet that fits the frames of one, in bytes: of one
    /// frame, or with [`multi_buffer`](crate::QueueOptions::multi_buffer) of as many as the
    /// interface's MTU needs, and the kernel sends as one packet (18 mostly). The MTU may allow
    /// less, see [`send`](Self::send).
    pub fn packet_room(&self) -> usize {
        (self.bound.umem.geometry().packet_room() * self.frames_per_packet) as usize
    }

    /// Returns the interface's MTU: as it was when the queue was opened, or after the last
    /// [`LinkEvent::MtuChanged`] that a call has returned.
    pub fn mtu(&self) -> u32 {
        self.bound.mtu
    }

    /// Identity of the queue's UMEM, as [`Frame::umem_id`](crate::Frame::umem_id).
    pub fn umem_id(&self) -> u64 {
        self.bound.umem.id()
    }

    /// Our own counters, without a system call.
    pub fn counters(&self) -> OwnStats {
        self.counters.snapshot()
    }

    /// Reads of hints in vain, of all queues on this queue's UMEM.
    pub fn hint_counters(&self) -> HintCounters {
        self.bound.umem.hint_counters()
    }

    /// The structs of hints that its packets may have in front of them.
    pub fn layouts(&self) -> Option<&Layouts> {
        self.bound.umem.layouts().map(|layouts| &**layouts)
    }

    /// What comes before every burst: as [`Queue::usable`], and now and then the ledger.
    #[inline]
    fn begin(&mut self) -> Result<(), Error> {
        self.usable()?;
        self.bursts = self.bursts.wrapping_add(1);
        if audit::is_due(self.bursts) {
            self.audit()?;
        }
        Ok(())
    }

    /// What comes before every burst that is sent: as [`Queue::begin`], a link to send on, and no kick owed.
    #[inline]
    fn ready(&mut self) -> Result<(), Error> {
        if self.lost.is_some() {
            return Err(self.trouble());
        }
        self.begin()?;
        // Where packets are received, `recv` looks for events.
        if self.bound.rx.is_none() {
            self.event = None;
            self.check_link(now_coarse());
        }
        if self.unsent {
            self.kick()?;
        }
        Ok(())
    }

    /// What comes before every use but receiving: nothing wrong so far, no burst left over, a link to send on.
    #[inline]
    fn sound(&mut self) -> Result<(), Error> {
        if self.lost.is_some() {
            return Err(self.trouble());
        }
        self.usable()
    }

    /// What comes before every use: nothing wrong with the queue itself, no burst left over.
    #[inline]
    fn usable(&mut self) -> Result<(), Error> {
        if self.is_sound() {
            return Ok(());
        }
        self.check_process()?;
        self.recycle_inbox();
        match self.poison.get().is_some() || self.deferred.is_some() {
            true => Err(self.trouble()),
            false => Ok(()),
        }
    }

    /// A burst that was forgotten (`mem::forget`) or a panic in a callback leaves packets in the inbox.
    #[inline]
    fn is_sound(&self) -> bool {
        self.opener.is_this_process()
            && self.poison.get().is_none()
            && self.deferred.is_none()
            && self.lost.is_none()
            && self.inbox.is_empty()
    }

    /// Keeps an error of a call that cannot tell it for the next one; not that the link is gone, which that one finds out
    /// itself, when nothing is left to be received.
    #[cold]
    fn defer(&mut self, error: Error) {
        match error {
            Error::LinkGone { event, .. } => drop(self.lost.get_or_insert(event)),
            error => drop(self.deferred.get_or_insert(error)),
        }
    }

    #[cold]
    fn trouble(&mut self) -> Error {
        match self.poison.get() {
            Some(violation) => self.poisoned(*violation),
            None => (self.deferred.take())
                .or_else(|| self.link_gone())
                .expect("checked by the caller"),
        }
    }

    /// Stocks the fill ring up to its target.
    #[inline]
    fn refill(&mut self) -> Result<(), Error> {
        let mut pair = self.bound.pair.lock();
        let wanted = pair.wanted();
        if wanted == 0 {
            return Ok(());
        }
        let short = pair.pool.available() < wanted as usize;
        let completed = if short { pair.complete() } else { Ok(0) };
        let done = completed.and_then(|completed| pair.refill().map(|()| completed));
        drop(pair);
        let completed = self.check(done)?;
        self.note_completed(completed);
        Ok(())
    }

    /// Moves up to a batch of packets from the RX ring to the inbox.
    #[inline]
    fn look(&mut self, now: Duration) -> Result<(), Error> {
        // What was there of a packet without an end comes first, with its rest behind it.
        self.inbox.append(&mut self.partial);
        let before = self.inbox.len();
        let known = self.bound.known();
        let received = self.bound.receive(self.batch, &mut self.inbox);
        let received = self.check(received)?;
        // Otherwise the ring was not looked at: these were seen before.
        if known == 0 {
            let waited = self.bound.known() + u32::try_from(self.inbox.len() - before).unwrap_or(u32::MAX);
            let frames = self.working_set.note(waited, now);
            self.keep_in_fill(frames)?;
        }
        if self.hints {
            self.bound.umem.mark_hints(&mut self.inbox[before..]);
        }
        if self.report.path == Path::ZeroCopy {
            self.counters.note_starved(self.bound.is_starved());
        }
        self.counters.rx_packets.add(received.packets);
        self.counters.rx_bytes.add(received.bytes);
        if self.inbox.last().is_some_and(|last| last.more()) {
            self.set_aside()?;
        }
        Ok(())
    }

    /// Takes a packet without an end out of the inbox, until the rest of it comes.
    #[cold]
    fn set_aside(&mut self) -> Result<(), Error> {
        let start = self
            .inbox
            .iter()
            .rposition(|entry| !entry.more())
            .map_or(0, |last| last + 1);
        let frames = self.inbox.len() - start;
        if frames >= MOST_FRAMES {
            return self.check(Err(Violation::Chain { frames }));
        }
        self.partial.extend(self.inbox.drain(start..));
        Ok(())
    }

    pub(crate) fn packets_in_inbox(&self) -> usize {
        if self.sizes.geometry.multi_buffer() {
            self.inbox.iter().filter(|entry| !entry.more()).count()
        } else {
            self.inbox.len()
        }
    }

    /// Takes back what the kernel is done sending. Before every kick: with a full completion ring the kernel sends
    /// nothing and answers EAGAIN for ever.
    #[inline]
    fn drain_completions(&mut self) -> Result<(), Error> {
        let completed = self.bound.pair.lock().complete();
        let completed = self.check(completed)?;
        self.note_completed(completed);
        Ok(())
    }

    #[inline]
    fn note_completed(&mut self, completed: u32) {
        if completed != 0 {
            self.counters.tx_completed.add(u64::from(completed));
            self.stalled = None;
        }
    }

    pub(crate) fn packets(&mut self) -> PacketsMut<'_> {
        PacketsMut::new(&mut self.inbox, &self.bound.umem)
    }

    /// Gives the frames of the inbox back to the pool, except those that the user kept.
    fn recycle_inbox(&mut self) {
        let pool = &mut self.bound.pair.lock().pool;
        for entry in self.inbox.drain(..) {
            if !entry.is_the_users() {
                pool.put_buf(&entry.buf);
            }
        }
        pool.give_surplus();
    }

    /// Poisons the queue when shared memory broke the protocol.
    #[inline]
    fn check<T>(&mut self, result: Result<T, Violation>) -> Result<T, Error> {
        result.map_err(|violation| {
            _ = self.poison.set(violation);
            self.inbox.clear();
            self.poisoned(violation)
        })
    }

    #[cold]
    fn poisoned(&self, violation: Violation) -> Error {
        Error::Poisoned {
            interface: self.report.interface.clone(),
            queue: self.report.queue,
            violation,
        }
    }

    #[cold]
    pub(crate) fn wrong_direction(&self) -> Error {
        let (direction, action, ring) = match self.bound.rx {
            None => ("transmit", "receiving", "RX"),
            Some(_) => ("receive", "sending", "TX"),
        };
        Error::Setting {
            setting: "direction",
            value: direction.into(),
            reason: format!(
                "{action} on {} queue {} needs the {ring} ring, which was not made; open it for \
                 both directions",
                self.report.interface, self.report.queue
            ),
        }
    }

    fn failed(&self, call: &'static str, errno: Errno) -> Error {
        let (interface, queue) = (self.report.interface.clone(), self.report.queue);
        match errno {
            Errno::NETDOWN => Error::LinkDown {
                interface,
                queue,
                abandoned: 0,
            },
            Errno::NXIO => Error::LinkGone {
                interface,
                queue,
                event: LinkEvent::Removed,
            },
            errno => Error::Socket {
                interface,
                queue,
                call,
                errno,
                advice: match errno {
                    // https://elixir.bootlin.com/linux/v6.18/C/ident/igb_xsk_wakeup
                    Errno::INVAL if self.report.path == Path::ZeroCopy => {
                        "; some drivers have zero-copy only while an XDP program is attached: has something detached it?"
                    }
                    _ => "",
                },
            },
        }
    }
}

impl Drop for Queue {
    /// A burst that was forgotten takes no frames of a shared UMEM along, and neither does a packet without an end.
    fn drop(&mut self) {
        // All of it is the parent's, and a lock that another of its threads held is nobody's here.
        if !self.opener.is_this_process() {
            return;
        }
        self.inbox.append(&mut self.partial);
        self.recycle_inbox();
        self.socket_counters.close();
    }
}

impl AsRawFd for Queue {
    fn as_raw_fd(&self) -> RawFd {
        self.bound.fd.as_raw_fd()
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bound.fd.as_fd()
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("interface", &self.report.interface)
            .field("queue", &self.report.queue)
            .field("path", &self.report.path)
            .finish_non_exhaustive()
    }
}
