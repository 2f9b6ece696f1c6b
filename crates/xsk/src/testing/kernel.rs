//! The kernel's side of a queue, as it should be.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::hostile::Hostile;
use crate::queue::Queue;
use crate::ring::{Addr, ConsumerRing, Desc, HeapRing, Indices, ProducerRing, RingMap};
use crate::sync::Ordering;
use crate::tx_metadata::METADATA_LEN;
use crate::umem::{Lent, PairId, Umem};

/// The bytes of `struct xsk_tx_metadata`.
pub type Metadata = [u8; METADATA_LEN as usize];

/// One of a queue's rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ring {
    /// Frames for the kernel to receive into.
    Fill,
    /// Frames that the kernel has sent.
    Completion,
    /// Packets received.
    Rx,
    /// Packets to be sent.
    Tx,
}

/// What is on the other side of a queue of [`Harness`](super::Harness).
///
/// It keeps to the protocol, in the kernel's order, and may do so on another thread; [`Kernel::hostile`] is the way not to.
pub struct Kernel {
    fill: ConsumerRing<Addr, RingMap>,
    completion: ProducerRing<Addr, RingMap>,
    rx: Option<ProducerRing<Desc, RingMap>>,
    tx: Option<ConsumerRing<Desc, RingMap>>,
    /// Addresses taken from the TX ring and not completed.
    taken: VecDeque<Addr>,
    /// The packet that is being put together of its parts.
    packet: Vec<u8>,
    umem: Arc<Umem>,
    pub(super) pair: PairId,
    socket: OwnedFd,
    pub(super) raw: Raw,
    /// It has always kept to the protocol. One that has not cannot tell any more which frames it has, and leaves their
    /// bytes alone.
    pub(super) honest: bool,
}

/// The rings, for whoever does not look at them from one side.
pub(super) struct Raw {
    pub(super) fill: HeapRing<Addr>,
    pub(super) completion: HeapRing<Addr>,
    pub(super) rx: Option<HeapRing<Desc>>,
    pub(super) tx: Option<HeapRing<Desc>>,
}

impl Kernel {
    pub(super) fn new(
        umem: Arc<Umem>,
        pair: PairId,
        socket: OwnedFd,
        [fill, completion]: [HeapRing<Addr>; 2],
        rx: Option<HeapRing<Desc>>,
        tx: Option<HeapRing<Desc>>,
    ) -> Self {
        Self {
            fill: ConsumerRing::new(fill.side()),
            completion: ProducerRing::new(completion.side()),
            rx: rx.as_ref().map(|ring| ProducerRing::new(ring.side())),
            tx: tx.as_ref().map(|ring| ConsumerRing::new(ring.side())),
            taken: VecDeque::with_capacity(umem.geometry().frames() as usize),
            packet: Vec::new(),
            umem,
            pair,
            socket,
            raw: Raw {
                fill,
                completion,
                rx,
                tx,
            },
            honest: true,
        }
    }

    /// A packet arrives: into frames of the fill ring, and onto the RX ring. False when it is dropped, because there are
    /// too few frames, too little room on the ring, or no such ring; or because it needs several frames and the queue is
    /// without [`multi_buffer`](crate::QueueOptions::multi_buffer).
    ///
    /// # Panics
    ///
    /// When the library gave a frame that it did not lend.
    pub fn deliver(&mut self, packet: &[u8]) -> bool {
        let room = self.umem.geometry().packet_room() as usize;
        let parts: Vec<&[u8]> = match packet.len() {
            0 => vec![packet],
            _ => packet.chunks(room).collect(),
        };
        self.deliver_parts(&parts)
    }

    /// As [`deliver`](Self::deliver), of a packet that fits a frame, with `front` right in front of it, as an XDP program puts
    /// metadata there.
    ///
    /// # Panics
    ///
    /// As [`deliver`](Self::deliver), and for more in front than fits there.
    pub fn deliver_behind(&mut self, front: &[u8], packet: &[u8]) -> bool {
        self.deliver_with(front, &[packet])
    }

    /// As [`deliver`](Self::deliver), with the parts of the packet as a driver may cut it: one a frame.
    ///
    /// # Panics
    ///
    /// When a part does not fit a frame, or the library gave one that it did not lend.
    pub fn deliver_parts(&mut self, parts: &[&[u8]]) -> bool {
        self.deliver_with(&[], parts)
    }

    fn deliver_with(&mut self, front: &[u8], parts: &[&[u8]]) -> bool {
        let geometry = self.umem.geometry();
        let Some(rx) = &mut self.rx else { return false };
        let count = u32::try_from(parts.len()).expect("a packet's parts");
        if count > 1 && !geometry.multi_buffer() {
            return false;
        }
        let (Ok(mut slots), Ok(mut frames)) = (rx.reserve(count), self.fill.peek(count)) else {
            return false;
        };
        if slots.remaining() < count || frames.len() < parts.len() {
            return false;
        }
        let offset = u64::from(geometry.packet_offset());
        let place = |frame: u64, offset: u64| match geometry.unaligned() {
            true => frame | offset << 48,
            false => frame.wrapping_add(offset),
        };
        let mut front = front;
        for (left, part) in (0..count).rev().zip(parts) {
            let frame = frames.next().expect("counted");
            let addr = place(frame, offset);
            if self.honest {
                let front = std::mem::take(&mut front);
                let behind = offset.checked_sub(front.len() as u64).expect("there is room in front");
                assert!(
                    self.umem
                        .kernel_writes(Lent::Fill(self.pair), place(frame, behind), front)
                );
                let written = self.umem.kernel_writes(Lent::Fill(self.pair), addr, part);
                assert!(written, "frame {frame:#x} was lent, and holds {} bytes", part.len());
            }
            let pushed = slots.push(Desc {
                addr,
                len: u32::try_from(part.len()).expect("fits a frame"),
                options: if left == 0 { 0 } else { Desc::CONTINUED },
            });
            debug_assert!(pushed);
        }
        true
    }

    /// Takes up to `max` packets off the TX ring and shows each to `see`; tells how many.
    ///
    /// # Panics
    ///
    /// When the library put a frame there that it did not lend, or a packet that leaves its frame.
    pub fn transmit(&mut self, max: u32, mut see: impl FnMut(&[u8])) -> u32 {
        self.transmit_asking(max, |packet, _| see(packet))
    }

    /// As [`transmit`](Self::transmit), with the metadata in front of a packet that asks for something, which `see` may write
    /// over as a driver does.
    ///
    /// # Panics
    ///
    /// As [`transmit`](Self::transmit); also when another descriptor than a packet's first says that there is metadata.
    pub fn transmit_asking(&mut self, max: u32, mut see: impl FnMut(&[u8], Option<&mut Metadata>)) -> u32 {
        let Some(tx) = &mut self.tx else { return 0 };
        let (mut count, mut asked) = (0, None);
        self.packet.clear();
        while count < max {
            let Some(desc) = tx.peek(1).ok().and_then(|mut filled| filled.next()) else {
                break;
            };
            self.taken.push_back(desc.addr);
            if self.honest {
                let start = self.packet.len();
                if desc.options & Desc::WITH_METADATA != 0 {
                    assert!(start == 0, "only a packet's first part has metadata");
                    asked = Some(desc.addr - u64::from(METADATA_LEN));
                }
                self.packet.resize(start + desc.len as usize, 0);
                let part = &mut self.packet[start..];
                let read = self.umem.kernel_reads(Lent::Tx(self.pair), desc.addr, part);
                assert!(read, "{desc:?} is in a frame that was lent");
            }
            if !desc.is_continued() {
                if let Some(at) = asked.take() {
                    let mut metadata = [0; METADATA_LEN as usize];
                    assert!(self.umem.kernel_reads(Lent::Tx(self.pair), at, &mut metadata));
                    see(&self.packet, Some(&mut metadata));
                    assert!(self.umem.kernel_writes(Lent::Tx(self.pair), at, &metadata));
                } else if self.honest {
                    see(&self.packet, None);
                }
                self.packet.clear();
                count += 1;
            }
        }
        assert!(!self.honest || self.packet.is_empty(), "a packet was published in part");
        count
    }

    /// As [`transmit`](Self::transmit), for those who only count.
    pub fn take(&mut self, max: u32) -> u32 {
        self.transmit(max, |_| ())
    }

    /// Puts up to `max` of the frames taken on the completion ring, as far as there is room; tells how many.
    pub fn complete(&mut self, max: u32) -> u32 {
        let wanted = max.min(u32::try_from(self.taken.len()).unwrap_or(u32::MAX));
        let Ok(mut slots) = self.completion.reserve(wanted) else {
            return 0;
        };
        let mut count = 0;
        while slots.remaining() != 0 && slots.push(self.taken[count as usize]) {
            count += 1;
        }
        drop(slots);
        self.taken.drain(..count as usize);
        count
    }

    pub(super) fn umem_id(&self) -> u64 {
        self.umem.id()
    }

    /// The addresses at which the UMEM's bytes are.
    pub fn memory(&self) -> Range<usize> {
        let start = self.umem.region().as_ptr().addr().get();
        start..start + self.umem.geometry().bytes()
    }

    /// Frames taken and not completed.
    pub fn sending(&self) -> usize {
        self.taken.len()
    }

    /// Filled slots of a ring, as its words tell.
    pub fn queued(&self, ring: Ring) -> u32 {
        fn count(words: &impl Indices) -> u32 {
            let producer = words.producer().load(Ordering::Acquire);
            producer.wrapping_sub(words.consumer().load(Ordering::Acquire))
        }
        let raw = &self.raw;
        match ring {
            Ring::Fill => count(raw.fill.words()),
            Ring::Completion => count(raw.completion.words()),
            Ring::Rx => raw.rx.as_ref().map_or(0, |ring| count(ring.words())),
            Ring::Tx => raw.tx.as_ref().map_or(0, |ring| count(ring.words())),
        }
    }

    /// Sets or clears the flag by which the kernel asks to be woken for a ring. It is clear at first, so that a queue with
    /// need_wakeup makes no system call.
    pub fn sleeps(&self, ring: Ring, yes: bool) {
        let flags = u32::from(yes);
        match ring {
            Ring::Fill => self.raw.fill.words().flags().store(flags, Ordering::Relaxed),
            Ring::Completion => self.raw.completion.words().flags().store(flags, Ordering::Relaxed),
            Ring::Rx => self
                .raw
                .rx
                .iter()
                .for_each(|ring| ring.words().flags().store(flags, Ordering::Relaxed)),
            Ring::Tx => self
                .raw
                .tx
                .iter()
                .for_each(|ring| ring.words().flags().store(flags, Ordering::Relaxed)),
        }
    }

    /// Times that the user has called `sendto()` since the last question, at least: the socket holds so many and no more.
    pub fn wakeups(&mut self) -> u32 {
        let mut calls = 0;
        while recv(self.socket.as_fd(), &mut [0_u8; 0][..], RecvFlags::DONTWAIT).is_ok() {
            calls += 1;
        }
        calls
    }

    /// Wakes a user who sleeps in `poll()`; the next `recvfrom()` of the library takes note.
    pub fn interrupt(&self) {
        _ = send(self.socket.as_fd(), &[], SendFlags::DONTWAIT);
    }

    /// Ways to break the protocol. `queue` is the one on the other side: while it is borrowed nobody looks at the rings.
    ///
    /// # Panics
    ///
    /// When `queue` is another one.
    pub fn hostile<'k>(&'k mut self, queue: &'k mut Queue) -> Hostile<'k> {
        Hostile::new(self, queue)
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel")
            .field("sending", &self.taken.len())
            .field("honest", &self.honest)
            .finish_non_exhaustive()
    }
}
