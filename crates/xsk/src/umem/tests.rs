//! Frames and their book, without a kernel.

use std::sync::Arc;

use proptest::prelude::*;

use super::pool::Pool;
use super::*;
use crate::error::Violation;

fn umem(frame_size: u32, frames: u32, headroom: u32) -> Arc<Umem> {
    let geometry = Geometry::new(frame_size, frames, headroom, false).expect("valid");
    Umem::new(Region::map(geometry.bytes(), false).expect("memory"), geometry, None)
}

#[test]
fn nonsense_sizes_are_refused_with_their_name() {
    for (frame_size, frames, headroom, name) in [
        (1024, 64, 0, "frame_size"),
        (8192, 64, 0, "frame_size"),
        (2048, 0, 0, "frames"),
        (2048, u32::MAX, 0, "frames"),
        (2048, 64, 1800, "headroom"),
        (4096, 64, u32::MAX, "headroom"),
    ] {
        let error = Geometry::new(frame_size, frames, headroom, false)
            .unwrap_err()
            .to_string();
        assert!(error.starts_with(name), "{error}");
    }
}

#[test]
fn the_last_frame_given_back_is_the_first_taken() {
    let mut pool = Pool::new(umem(2048, 8, 0), 8).unwrap();
    let (a, b) = (pool.take().unwrap(), pool.take().unwrap());
    assert_eq!((a.0, b.0), (0, 1));
    pool.put(b);
    pool.put(a);
    assert_eq!(pool.take(), Some(a));
}

/// In each way in which the code is compiled: frames of 2048 bytes, of 4096, and unaligned ones.
#[test]
fn what_the_kernel_gives_back_is_checked() {
    for size in [2048, 4096, 3000] {
        let umem = umem(size, 4, 0);
        let mut pool = Pool::new(umem.clone(), 4).unwrap();
        let addr = pool.lend_one();

        let outside = pool.receive_one(4 * u64::from(size), 60).err();
        assert!(
            matches!(outside, Some(Violation::Address { ring: "RX", addr, umem }) if addr == umem),
            "{outside:?}"
        );
        for far in [u64::MAX, 1 << 63, (1 << 48) - 1] {
            let outside = pool.receive_one(far, 60).err();
            assert!(matches!(outside, Some(Violation::Address { .. })), "{outside:?}");
        }
        // What an older kernel's completion of an invalid descriptor looks like (K1).
        let garbage = pool.take_from_completion([0x100_0000_0000]).err();
        assert!(
            matches!(garbage, Some(Violation::Address { ring: "completion", .. })),
            "{garbage:?}"
        );
        for too_long in [size - 255, size, u32::MAX - 256, u32::MAX] {
            let too_long = pool.receive_one(addr + 256, too_long).err();
            assert!(matches!(too_long, Some(Violation::Length { .. })), "{too_long:?}");
        }
        let not_sent = pool.take_from_completion([addr]).err();
        assert!(matches!(not_sent, Some(Violation::NotOwned { .. })), "{not_sent:?}");
        let not_lent = pool.receive_one(addr + u64::from(size), 60).err();
        assert!(matches!(not_lent, Some(Violation::NotOwned { .. })), "{not_lent:?}");

        let buf = pool.receive_one(addr + 256, size - 256).expect("exactly to the end");
        assert_eq!(buf.data(&umem).len(), size as usize - 256);
        // The same frame delivered twice (K8) would alias it.
        let twice = pool.receive_one(addr + 256, 60).err();
        assert!(
            matches!(twice, Some(Violation::NotOwned { ring: "RX", .. })),
            "{twice:?}"
        );

        let addr = pool.lend_to_tx(&buf);
        assert_eq!(pool.in_flight(), 1);
        pool.take_from_completion([addr]).expect("sent");
        assert_eq!(pool.in_flight(), 0);
        assert!(pool.take_from_completion([addr]).is_err(), "completed twice");
    }
}

#[test]
fn a_dropped_frame_comes_home_from_any_thread() {
    let umem = umem(4096, 4, 128);
    let mut pool = Pool::new(umem.clone(), 4).unwrap();
    let frames: Vec<Frame> = std::iter::from_fn(|| pool.take_buf())
        .map(|buf| Frame::new(umem.clone(), buf))
        .collect();
    assert_eq!(frames.len(), 4);
    assert!(
        frames
            .iter()
            .all(|frame| frame.headroom() == 256 + 128 && frame.capacity() == 4096 - 384)
    );
    std::thread::spawn(move || drop(frames)).join().unwrap();
    let mut home: Vec<u32> = std::iter::from_fn(|| pool.take()).map(|frame| frame.0).collect();
    home.sort_unstable();
    assert_eq!(home, [0, 1, 2, 3]);
}

#[test]
fn a_umem_survives_any_number_of_pools() {
    let umem = umem(2048, 4, 0);
    let stays = Pool::new(umem.clone(), 1).unwrap();
    for round in 0..100_000 {
        let mut pool = Pool::new(umem.clone(), 3).unwrap_or_else(|| panic!("none in round {round}"));
        pool.lend_one();
        let buf = pool.take_buf().unwrap();
        pool.lend_to_tx(&buf);
    }
    assert_eq!((umem.unclaimed(), stays.available()), (3, 1));
}

#[test]
fn frames_do_not_overlap() {
    let umem = umem(2048, 3, 0);
    let mut pool = Pool::new(umem.clone(), 3).unwrap();
    let mut frames: Vec<Frame> = std::iter::from_fn(|| pool.take_buf())
        .map(|buf| Frame::new(umem.clone(), buf))
        .collect();
    for (fill, frame) in (1..).zip(&mut frames) {
        let all = frame.capacity();
        assert!(frame.resize(all) && frame.extend_front(256));
        frame.data_mut().fill(fill);
    }
    for (fill, frame) in (1_u8..).zip(&frames) {
        assert_eq!(frame.len(), 2048);
        assert!(frame.data().iter().all(|&byte| byte == fill));
    }
}

proptest! {
    /// Moving the front and resizing never leaves the frame, and refusals change nothing.
    #[test]
    fn a_buf_stays_in_its_frame(moves in prop::collection::vec((any::<bool>(), 0..6000_usize, 0..6000_usize), 0..50)) {
        let umem = umem(2048, 2, 0);
        let mut frame = Frame::new(umem.clone(), Pool::new(umem, 2).unwrap().take_buf().unwrap());
        for (extend, by, len) in moves {
            let (headroom, before) = (frame.headroom(), frame.len());
            let done = if extend { frame.extend_front(by) } else { frame.trim_front(by) };
            // Where its frame ends the next one begins: no packet starts there, not even one without bytes.
            let fits = if extend { by <= headroom } else { by <= before && headroom + by < 2048 };
            prop_assert_eq!(done, fits);
            if !done {
                prop_assert_eq!((frame.headroom(), frame.len()), (headroom, before));
            }
            prop_assert_eq!(frame.headroom() + frame.capacity(), 2048);
            prop_assert_eq!(frame.resize(len), len <= frame.capacity());
            prop_assert!(frame.len() <= frame.capacity());
            prop_assert_eq!(frame.data().len(), frame.len());
        }
    }
}
