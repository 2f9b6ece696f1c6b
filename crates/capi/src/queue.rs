//! A queue as C has it: the burst that is open, and what becomes of its packets.

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use ringside_xsk::{LinkEvent, LinkWatch, Packet, Queue, SendError, Wait};

use crate::error::{Failure, rsd_error as Code};
use crate::options::rsd_wait;
use crate::packet::{Token, describe, edit, edited, first_token, rsd_fate, rsd_packet, stale};
use crate::slab;
use crate::table::{Entered, QUEUE, Table};

/// A queue of a port: for one thread at a time, whichever that is.
pub struct rsd_queue {
    _opaque: (),
}

/// What happened to a link.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub enum rsd_event {
    /// Nothing.
    RSD_EVENT_NONE = 0,
    /// It was switched off.
    RSD_EVENT_DOWN = 1,
    /// It has no carrier.
    RSD_EVENT_NO_CARRIER = 2,
    /// Packets pass.
    RSD_EVENT_UP = 3,
    /// The interface has another number of queues.
    RSD_EVENT_QUEUES = 4,
    /// The interface has another name.
    RSD_EVENT_RENAMED = 5,
    /// Something else.
    RSD_EVENT_OTHER = 6,
    /// The interface has another MTU.
    RSD_EVENT_MTU = 7,
}

pub(crate) static QUEUES: Table<Entry, QUEUE> = Table::new();

/// Room for the numbers of bursts in a token; 0 is none of them.
const BURSTS: u32 = 0x7fff_ffff;

/// Bytes of an Ethernet header.
const SHORTEST: u32 = 14;

/// A queue, and the burst of it that C has.
pub(crate) struct Entry {
    /// Of the port that this entry belongs to, which lives longer.
    queue: NonNull<Queue>,
    wait: rsd_wait,
    most: u32,
    /// Packets of the open burst; 0 is none.
    open: u32,
    /// The number of the open burst, or of the one before the next.
    burst: u32,
    /// Packets of the open burst have marks, of an rsd_finish() that failed.
    marked: bool,
    pub(crate) event: rsd_event,
    /// For an event loop, once it was asked for.
    link: Option<LinkWatch>,
    /// For each packet of the open burst, where it is among those that C has given back, and one; 0 is nowhere.
    places: Box<[u32]>,
    frames: usize,
}

// SAFETY: it is the only way to its queue, which may go from thread to thread.
unsafe impl Send for Entry {}

impl Entry {
    /// # Safety
    /// Nothing else uses the queue, or moves it, until the entry is dropped.
    pub(crate) unsafe fn new(queue: NonNull<Queue>, wait: rsd_wait, batch: u32, first_burst: u32) -> Self {
        // SAFETY: the caller's promise.
        let report = unsafe { queue.as_ref() }.report();
        let frames = report.frames as usize;
        slab::reserve(frames);
        Self {
            queue,
            wait,
            most: batch,
            open: 0,
            burst: first_burst & BURSTS,
            marked: false,
            event: rsd_event::RSD_EVENT_NONE,
            link: None,
            places: vec![0; batch as usize].into(),
            frames,
        }
    }

    /// The queue.
    #[inline]
    pub(crate) fn queue(&mut self) -> &mut Queue {
        // SAFETY: ours alone, by the promise of `new`; and `&mut self` says that nobody else has it from us.
        unsafe { self.queue.as_mut() }
    }

    /// As [`queue`](Self::queue), to look at.
    pub(crate) fn peek(&self) -> &Queue {
        // SAFETY: as above; nobody can have it mutably meanwhile.
        unsafe { self.queue.as_ref() }
    }

    /// The queue's watch of its link, which the first call opens.
    pub(crate) fn link(&mut self) -> Result<&mut LinkWatch, Failure> {
        if self.link.is_none() {
            self.link = Some(self.peek().watch_link()?);
        }
        Ok(self.link.as_mut().expect("just opened"))
    }

    /// Returns the next event of that watch.
    pub(crate) fn next_link_event(&mut self) -> Result<rsd_event, Failure> {
        let event = self.link()?.next()?;
        if let Some(LinkEvent::Removed | LinkEvent::Moved { .. }) = event {
            let text = "the interface was removed or moved: call rsd_receive() until it returns \
                        RSD_EGONE, the packets that came before are still there";
            return Err(Failure::new(Code::RSD_EGONE, text));
        }
        Ok(event.as_ref().map_or(rsd_event::RSD_EVENT_NONE, event_of))
    }

    /// No packet of a burst so far is one of the next.
    #[inline]
    fn close_burst(&mut self) {
        self.open = 0;
        self.marked = false;
    }

    /// Hands the packets of the queue's burst out.
    #[inline]
    fn open_burst(&mut self, slot: usize, packets: &mut [MaybeUninit<rsd_packet>], fate: rsd_fate) -> u32 {
        self.burst = if self.burst == BURSTS { 1 } else { self.burst + 1 };
        let first = first_token(self.burst, slot);
        let mut burst = self.queue().held();
        let mut token = first;
        for (mut packet, to) in burst.iter_mut().zip(packets) {
            to.write(describe(&mut packet, token, fate));
            token += 1;
        }
        burst.hold();
        #[allow(clippy::cast_possible_truncation, reason = "at most a batch")]
        let open = (token - first) as u32;
        self.open = open;
        open
    }

    pub(crate) fn receive(
        &mut self,
        slot: usize,
        packets: &mut [MaybeUninit<rsd_packet>],
        timeout: i64,
    ) -> Result<u32, Failure> {
        self.close_burst();
        self.event = rsd_event::RSD_EVENT_NONE;
        let most = self.batch_for(packets.len())?;
        let limit = u64::try_from(timeout).map_or(Duration::MAX, Duration::from_nanos);
        let way = self.wait;
        let queue = self.queue();
        queue.set_batch(most);
        let wait = match way {
            rsd_wait::RSD_WAIT_POLL if timeout != 0 => Wait::Poll(limit),
            rsd_wait::RSD_WAIT_BUSY_POLL => Wait::BusyPoll,
            _ => Wait::Spin,
        };
        let mut start = None;
        loop {
            let burst = queue.recv(wait)?;
            if !burst.is_empty() {
                burst.hold();
                return Ok(self.open_burst(slot, packets, rsd_fate::RSD_DROP));
            }
            let event = burst.event().map(event_of);
            drop(burst);
            if let Some(event) = event {
                self.event = event;
                return Ok(0);
            }
            // The time is that of the first look in vain, which is when it would be late to ask the clock for the first time.
            let start = *start.get_or_insert_with(Instant::now);
            if timeout == 0 || matches!(wait, Wait::Poll(_)) || timeout > 0 && start.elapsed() >= limit {
                return Ok(0);
            }
        }
    }

    pub(crate) fn reserve(&mut self, slot: usize, packets: &mut [MaybeUninit<rsd_packet>]) -> Result<u32, Failure> {
        self.no_burst()?;
        let most = self.batch_for(packets.len())?;
        let burst = self.queue().reserve(most)?;
        if burst.is_empty() {
            return Ok(0);
        }
        burst.hold();
        Ok(self.open_burst(slot, packets, rsd_fate::RSD_SEND))
    }

    /// Packets of a burst that there is room for.
    fn batch_for(&self, room: usize) -> Result<u32, Failure> {
        match u32::try_from(room) {
            Ok(0) => Err(Failure::invalid("there is room for no packet: max is 0")),
            room => Ok(room.map_or(self.most, |room| room.min(self.most))),
        }
    }

    /// Calls that would drop the packets of an open burst are refused.
    pub(crate) fn no_burst(&self) -> Result<(), Failure> {
        match self.open {
            0 => Ok(()),
            open => Err(Failure::new(
                Code::RSD_EOPEN,
                format!(
                    "a burst of {open} packet(s) is open on the queue: end it first, with rsd_finish() or rsd_finish_all()"
                ),
            )),
        }
    }

    /// The index of a packet of the open burst.
    fn index_of(&self, slot: usize, token: Token) -> Result<usize, Failure> {
        match token {
            Token::Burst { slot: other, .. } if other != slot => Err(Failure::new(
                Code::RSD_EQUEUE,
                "this packet is of another queue's burst",
            )),
            Token::Burst { burst, index, .. } if burst == self.burst && index < self.open as usize => Ok(index),
            Token::Burst { .. } => Err(stale("this packet is of a burst that has ended")),
            Token::Kept(_) => Err(Failure::invalid(
                "this packet was kept and is of no burst any more: rsd_send() or rsd_free() gives it back",
            )),
        }
    }

    pub(crate) fn finish(&mut self, slot: usize, packets: &mut [rsd_packet]) -> Result<u32, Failure> {
        if self.open == 0 && packets.is_empty() {
            return Ok(0);
        }
        let first = first_token(self.burst, slot);
        let in_order = packets.len() <= self.open as usize
            && (first..)
                .zip(&*packets)
                .all(|(token, packet)| packet.token == token && is_fate(packet.fate));
        if !in_order {
            self.place(slot, packets)?;
        }
        let kept = self.mark(in_order, packets)?;
        let full = kept != 0 && self.keep(in_order, packets);
        self.close_burst();
        let sent = self.queue().held().finish()?;
        if full {
            return Err(Failure::new(
                Code::RSD_EFULL,
                "as many packets are kept as can be; some were dropped instead",
            ));
        }
        Ok(sent)
    }

    /// Finds out which packet of the burst is where among those given back.
    #[cold]
    fn place(&mut self, slot: usize, packets: &[rsd_packet]) -> Result<(), Failure> {
        let open = self.open as usize;
        if let Some(places) = self.places.get_mut(..open) {
            places.fill(0);
        }
        for (place, packet) in (1..).zip(packets) {
            let index = Token::of(packet.token).and_then(|token| self.index_of(slot, token))?;
            if !is_fate(packet.fate) {
                return Err(Failure::invalid(format!(
                    "packet {} of those given back has fate {}: no value of enum rsd_fate",
                    place - 1,
                    packet.fate
                )));
            }
            match self.places.get_mut(index) {
                Some(at @ 0) => *at = place,
                _ => {
                    return Err(Failure::invalid(format!(
                        "packet {} of those given back is there twice",
                        place - 1
                    )));
                }
            }
        }
        Ok(())
    }

    /// Brings the packets to what C has made of them, and marks those that are to be sent. Tells how many are to be kept.
    #[inline]
    fn mark(&mut self, in_order: bool, packets: &[rsd_packet]) -> Result<u32, Failure> {
        // SAFETY: as in `queue`; the places are another part of the entry.
        let mut burst = unsafe { self.queue.as_mut() }.held();
        let mut marks = Marks {
            kept: 0,
            failure: None,
            clear: self.marked,
        };
        if in_order {
            let mut told = packets.iter();
            for mut packet in &mut burst {
                marks.one(&mut packet, told.next());
            }
        } else {
            for (index, mut packet) in burst.iter_mut().enumerate() {
                marks.one(&mut packet, at_place(&self.places, packets, index));
            }
        }
        burst.hold();
        match marks.failure {
            None => Ok(marks.kept),
            Some(failure) => {
                self.marked = true;
                Err(failure)
            }
        }
    }

    /// Takes the packets that are to be kept out of the burst. True when there was no room for one.
    #[cold]
    fn keep(&mut self, in_order: bool, packets: &mut [rsd_packet]) -> bool {
        // SAFETY: as in `mark`.
        let mut burst = unsafe { self.queue.as_mut() }.held();
        let mut full = false;
        for (index, packet) in burst.iter_mut().enumerate() {
            let place = match in_order {
                true => Some(index),
                false => place_of(&self.places, index),
            };
            let Some(told) = place.and_then(|place| packets.get_mut(place)) else {
                continue;
            };
            if told.fate != rsd_fate::RSD_KEEP as u32 {
                continue;
            }
            let mut frame = Packet::keep(packet);
            let mut new = describe(&mut frame, 0, rsd_fate::RSD_KEEP);
            match slab::keep(frame) {
                Ok(kept) => new.token = Token::of_kept(kept),
                Err(_) => full = true,
            }
            *told = new;
        }
        burst.hold();
        full
    }

    pub(crate) fn finish_all(&mut self, fate: u32) -> Result<u32, Failure> {
        let send = match fate {
            fate if fate == rsd_fate::RSD_SEND as u32 => true,
            fate if fate == rsd_fate::RSD_DROP as u32 => false,
            _ => {
                return Err(Failure::invalid(format!(
                    "fate {fate}: all packets can be dropped or sent at once"
                )));
            }
        };
        let marked = self.marked;
        self.close_burst();
        let mut burst = self.queue().held();
        if marked {
            for mut packet in &mut burst {
                if send { packet.send() } else { packet.drop() }
            }
        }
        Ok(if send { burst.send_back() } else { burst.finish() }?)
    }

    /// Sends kept packets; tells how many, and why not all.
    pub(crate) fn send(&mut self, packets: &mut [rsd_packet]) -> Result<u32, Failure> {
        self.no_burst()?;
        let mut sent = 0;
        for packet in packets {
            match self.send_one(packet) {
                Ok(()) => sent += 1,
                Err(failure) if sent == 0 => return Err(failure),
                Err(failure) => {
                    failure.tell();
                    break;
                }
            }
        }
        // One kick, as at the end of a burst: what a driver that is awake takes by itself is not waited for.
        self.queue().drain(Duration::ZERO)?;
        Ok(sent)
    }

    fn send_one(&mut self, packet: &mut rsd_packet) -> Result<(), Failure> {
        let kept = match Token::of(packet.token)? {
            Token::Kept(kept) => kept,
            Token::Burst { .. } => return Err(Failure::invalid("this packet is of a burst: rsd_finish() sends it")),
        };
        let gone = || stale("this packet was sent or freed before, or another thread is at it");
        let mut claimed = slab::claim(kept).ok_or_else(gone)?;
        let place = claimed.frame();
        let frame = place.as_mut().ok_or_else(gone)?;
        if frame.umem_id() != self.queue().umem_id() {
            return Err(Failure::new(
                Code::RSD_EQUEUE,
                "this packet is in another queue's memory: copy it into one that was reserved here",
            ));
        }
        edit(frame, packet)?;
        let frame = place.take().ok_or_else(gone)?;
        match self.queue().send(frame) {
            Ok(()) => {
                packet.token = 0;
                Ok(())
            }
            Err(SendError { error, frame, .. }) => {
                *place = Some(frame);
                Err(error.into())
            }
        }
    }
}

/// A handle for a queue without a port, which is never given back.
#[cfg(feature = "testing")]
pub fn adopt(queue: Queue, batch: u32) -> *mut rsd_queue {
    let queue = NonNull::from(Box::leak(Box::new(queue)));
    // SAFETY: nothing else knows it.
    let entry = unsafe { Entry::new(queue, rsd_wait::RSD_WAIT_SPIN, batch, 1) };
    QUEUES.insert(entry).expect("there are fewer handles")
}

impl Drop for Entry {
    fn drop(&mut self) {
        slab::unreserve(self.frames);
    }
}

/// What `mark` finds on its way.
struct Marks {
    kept: u32,
    failure: Option<Failure>,
    /// There are marks of an earlier attempt.
    clear: bool,
}

impl Marks {
    #[inline(always)]
    fn one(&mut self, packet: &mut Packet<'_>, told: Option<&rsd_packet>) {
        let (mut fate, mut len) = (rsd_fate::RSD_DROP as u32, 0);
        if let Some(told) = told {
            (fate, len) = (told.fate, told.len);
            if !edited(packet, told)
                && let Err(failure) = edit(packet, told)
            {
                self.failure = Some(failure);
            }
        }
        if fate == rsd_fate::RSD_SEND as u32 {
            if len < SHORTEST {
                self.failure = Some(too_short(len));
            }
            packet.send();
        } else if fate == rsd_fate::RSD_KEEP as u32 {
            self.kept += 1;
        } else if self.clear {
            packet.drop();
        }
    }
}

#[cold]
fn too_short(len: u32) -> Failure {
    Failure::invalid(format!(
        "a packet that is sent has at least an Ethernet header of {SHORTEST} bytes in its first frame; one has a len of {len}"
    ))
}

fn is_fate(fate: u32) -> bool {
    fate <= rsd_fate::RSD_KEEP as u32
}

fn place_of(places: &[u32], index: usize) -> Option<usize> {
    (*places.get(index)? as usize).checked_sub(1)
}

fn at_place<'p>(places: &[u32], packets: &'p [rsd_packet], index: usize) -> Option<&'p rsd_packet> {
    packets.get(place_of(places, index)?)
}

fn event_of(event: &LinkEvent) -> rsd_event {
    match event {
        LinkEvent::Down => rsd_event::RSD_EVENT_DOWN,
        LinkEvent::NoCarrier => rsd_event::RSD_EVENT_NO_CARRIER,
        LinkEvent::Up => rsd_event::RSD_EVENT_UP,
        LinkEvent::QueuesChanged { .. } => rsd_event::RSD_EVENT_QUEUES,
        LinkEvent::Renamed { .. } => rsd_event::RSD_EVENT_RENAMED,
        LinkEvent::MtuChanged { .. } => rsd_event::RSD_EVENT_MTU,
        _ => rsd_event::RSD_EVENT_OTHER,
    }
}

/// Returns the queue of a handle, for this thread alone until the result is dropped; an error in a
/// child of fork().
#[inline]
pub(crate) fn enter(queue: *mut rsd_queue) -> Result<Entered<Entry>, Failure> {
    let entry = QUEUES.enter(queue)?;
    entry.peek().check_process()?;
    Ok(entry)
}

/// A packet of the open burst of a queue.
pub(crate) fn with_open<T>(
    queue: *mut rsd_queue,
    token: Token,
    with: impl FnOnce(&mut Packet<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut entry = enter(queue)?;
    let index = entry.index_of(entry.key.slot, token)?;
    let mut burst = entry.queue().held();
    let done = match burst.iter_mut().nth(index) {
        Some(mut packet) => with(&mut packet),
        None => Err(stale("this packet is of a burst that has ended")),
    };
    burst.hold();
    done
}
