//! A sender that puts on its TX ring whatever it is told, past the pool and its book: what the kernel makes of it is what
//! the tests beside this file are about.

use std::os::fd::AsFd as _;
use std::time::Instant;

use super::Queue;
use crate::common::PATIENCE;
use crate::common::conformance::Case;
use crate::mode::Path;
use crate::options::QueueOptions;
use crate::ring::Desc;
use crate::umem::Buf;
use crate::wakeup::{wake_tx, wake_tx_by_poll};

pub(super) struct Raw {
    pub(super) queue: Queue,
    /// All frames, in the order of their addresses, each as a whole.
    frames: Vec<Buf>,
    frame_size: u64,
    /// What came back on the completion ring, in its order.
    pub(super) completed: Vec<u64>,
}

impl Raw {
    pub(super) fn open(lab: &ringside_netlab::Lab, case: Case, options: QueueOptions) -> Self {
        let mut queue = case.sender(&lab.a, options);
        let geometry = *queue.bound.umem.geometry();
        // With zero-copy the first ones are on the fill ring for the host, which gets no packets here.
        let host_frames = u64::from(queue.report().host_frames);
        let start = u64::from(geometry.packet_offset());
        let addresses = (0..host_frames).map(|n| n * u64::from(geometry.frame_size()) + start);
        let for_host: Vec<Buf> = addresses
            .map(|addr| {
                queue
                    .bound
                    .pair
                    .lock()
                    .pool
                    .receive_one(addr, 60)
                    .expect("on the fill ring")
            })
            .collect();
        let free = std::iter::from_fn(|| queue.bound.pair.lock().pool.take_buf());
        let frames: Vec<Buf> = for_host
            .into_iter()
            .chain(free)
            .map(|mut buf| {
                let back = i32::try_from(buf.offset(&geometry)).expect("small");
                assert!(buf.move_front(&geometry, -back) && buf.resize(&geometry, geometry.frame_size() as usize));
                buf
            })
            .collect();
        let in_order = (0..)
            .zip(&frames)
            .all(|(n, buf): (u64, _)| buf.start() == n * u64::from(geometry.frame_size()));
        assert!(in_order && frames.len() == geometry.frames() as usize);
        Self {
            queue,
            frames,
            frame_size: geometry.frame_size().into(),
            completed: Vec::new(),
        }
    }

    /// Bytes of the UMEM.
    pub(super) fn size(&self) -> u64 {
        self.frames.len() as u64 * self.frame_size
    }

    /// Writes into the UMEM, across frames if need be.
    pub(super) fn write(&mut self, addr: u64, bytes: &[u8]) {
        for (addr, &byte) in (addr..).zip(bytes) {
            let (frame, offset) = (addr / self.frame_size, addr % self.frame_size);
            let umem = &self.queue.bound.umem;
            self.frames[usize::try_from(frame).expect("small")].data_mut(umem)
                [usize::try_from(offset).expect("small")] = byte;
        }
    }

    /// Puts descriptors on the TX ring, without waking the kernel.
    pub(super) fn put(&mut self, descriptors: &[Desc]) {
        let count = u32::try_from(descriptors.len()).expect("few");
        let mut slots = self
            .queue
            .bound
            .tx
            .as_mut()
            .expect("a TX ring")
            .reserve(count)
            .expect("sound");
        assert_eq!(slots.remaining(), count, "room on the ring");
        for &desc in descriptors {
            assert!(slots.push(desc));
        }
    }

    /// One call that wakes the kernel; tells how many descriptors it took.
    pub(super) fn wake(&mut self) -> u32 {
        let before = self.queue.bound.pending().expect("sound");
        let fd = self.queue.bound.fd.as_fd();
        wake_tx(fd).expect("no error");
        let report = self.queue.report();
        if report.path == Path::ZeroCopy && report.busy_poll.is_some() {
            // Not by `sendto()` then: see there.
            wake_tx_by_poll(fd).expect("no error");
        }
        before - self.queue.bound.pending().expect("sound")
    }

    /// Puts descriptors on the ring and wakes the kernel until it has taken them all, whatever it thought of them.
    pub(super) fn send(&mut self, descriptors: &[Desc]) {
        self.put(descriptors);
        let start = Instant::now();
        while self.queue.bound.pending() != Ok(0) {
            self.complete();
            self.wake();
            assert!(start.elapsed() < PATIENCE, "{:?} are left", self.queue.bound.pending());
        }
    }

    /// Takes what is on the completion ring.
    pub(super) fn complete(&mut self) {
        let mut pair = self.queue.bound.pair.lock();
        self.completed.extend(pair.completion.peek(u32::MAX).expect("sound"));
    }

    /// Waits until each of these addresses has come back, in this order among themselves. Invalid ones may come too: newer
    /// kernels give those back.
    pub(super) fn expect_completed(&mut self, addresses: &[u64]) {
        let start = Instant::now();
        loop {
            self.complete();
            // The lowest bit may get lost: see `Pool::take_from_completion`.
            let mut came = self.completed.iter().map(|addr| addr | 1);
            if addresses.iter().all(|wanted| came.any(|addr| addr == wanted | 1)) {
                return;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "{addresses:x?} are not all in {:x?}",
                self.completed
            );
            ringside_netlab::testing::pause();
        }
    }

    pub(super) fn invalid(&self) -> u64 {
        self.queue.stats().expect("readable").kernel.tx_invalid_descs
    }
}
