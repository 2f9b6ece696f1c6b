//! The rows of the conformance list about descriptors on the TX ring that a user of the library cannot put there: the kernel
//! refuses each invalid one, and goes on with what is behind it.

use std::collections::BTreeSet;
use std::time::Instant;

use ringside_netlab::{Lab, VethConfig};

use super::Queue;
use super::raw_tests::Raw;
use crate::common::PATIENCE;
use crate::common::conformance::{Case, lacks, passed, passed_on, row_on, usual};
use crate::common::packet_of;
use crate::common::traffic::{expect, expect_but, expect_nothing, only, packets, through};
use crate::mmap::Pages;
use crate::mode::{Mode, Path};
use crate::options::QueueOptions;
use crate::ring::Desc;

/// The smallest packet of the kernel's suite, and one that is longer than any frame.
const SHORT: u32 = 64;
const TOO_LONG: u32 = 9001;
/// A part of a packet in several frames.
const PART: u32 = 3072;
const PAGE: u64 = 4096;
/// Another experimental ethertype than that of the packets that count.
const STRAY: [u8; 2] = [0x88, 0xb6];
/// Options that no kernel knows.
const NONSENSE: u32 = 0xffff;

/// A small UMEM of the sender's, whose end is at hand.
fn options(frame_size: u32) -> QueueOptions {
    QueueOptions::new().frame_size(frame_size).frames(64)
}

fn jumbo(tag: &str) -> VethConfig {
    VethConfig {
        mtu: 9000,
        ..usual(tag)
    }
}

/// Descriptors to be put on the ring, with what is known of each.
struct Script<'l> {
    lab: &'l Lab,
    sender: Raw,
    descriptors: Vec<Desc>,
    /// Addresses of valid descriptors, and the packets that they make.
    valid: Vec<u64>,
    packets: Vec<Vec<u8>>,
    /// Invalid descriptors, and all of packets with an invalid one or without an end.
    invalid: u64,
    broken: u64,
}

impl<'l> Script<'l> {
    fn new(lab: &'l Lab, sender: Raw) -> Self {
        Self {
            lab,
            sender,
            descriptors: Vec::new(),
            valid: Vec::new(),
            packets: Vec::new(),
            invalid: 0,
            broken: 0,
        }
    }

    /// A packet whose parts lie at these addresses, with these lengths.
    fn packet(&mut self, parts: &[(u64, u32)]) {
        let n = self.packets.len() as u64;
        let len = parts.iter().map(|&(_, len)| len as usize).sum();
        let packet = packet_of(n, len, self.lab.a.mac, self.lab.b.mac);
        let mut left = packet.as_slice();
        for (behind, &(addr, len)) in (0..parts.len()).rev().zip(parts) {
            let (now, rest) = left.split_at(len as usize);
            self.sender.write(addr, now);
            let options = if behind == 0 { 0 } else { Desc::CONTINUED };
            self.descriptors.push(Desc { addr, len, options });
            self.valid.push(addr);
            left = rest;
        }
        self.packets.push(packet);
    }

    /// A descriptor of a packet that will not be sent, without being to blame for it.
    fn raw(&mut self, addr: u64, len: u32, options: u32) {
        self.descriptors.push(Desc { addr, len, options });
        self.broken += 1;
    }

    /// The end of a packet that will not be sent. Newer kernels pass over the rest of a packet with an invalid descriptor;
    /// older ones begin anew behind that, and take this for a packet of its own.
    fn end(&mut self, addr: u64) {
        let mut bytes = packet_of(0, SHORT as usize, self.lab.a.mac, self.lab.b.mac);
        bytes[12..14].copy_from_slice(&STRAY);
        self.sender.write(addr, &bytes);
        self.raw(addr, SHORT, 0);
    }

    /// An invalid descriptor.
    fn bad(&mut self, addr: u64, len: u32, options: u32) {
        self.raw(addr, len, options);
        self.invalid += 1;
    }

    /// A packet if `valid`, else an invalid descriptor.
    fn perhaps(&mut self, valid: bool, addr: u64) {
        match valid {
            true => self.packet(&[(addr, SHORT)]),
            false => self.bad(addr, SHORT, 0),
        }
    }

    /// Sends it all, in one go, to a receiver of the same options: the valid packets arrive and no other, each invalid
    /// descriptor is counted, and the frames of the valid ones come back. The pages of the sender's UMEM.
    fn play(mut self, case: Case, receiver: QueueOptions) -> Pages {
        let mut port = case.port(&self.lab.b, receiver.frames(1024), |port| port);
        self.sender.send(&self.descriptors);
        expect_but(only(&mut port), case.wait(), &self.packets, |packet| {
            packet[12..14] == STRAY
        });
        expect_nothing(only(&mut port));
        // Newer kernels count every descriptor of a broken packet, older ones the invalid alone.
        let counted = self.sender.invalid();
        assert!(
            counted == self.invalid || counted == self.broken,
            "{counted} of {:x?}",
            self.descriptors
        );
        self.sender.expect_completed(&self.valid);
        self.sender.queue.report().pages
    }
}

#[test]
fn aligned_inv_desc() {
    row_on("ALIGNED_INV_DESC", usual("inv"), |lab, case| {
        invalid_descriptors(lab, case, 4096, false);
    });
}

#[test]
fn aligned_inv_desc_2k_frame_size() {
    row_on("ALIGNED_INV_DESC_2K_FRAME_SIZE", usual("inv2k"), |lab, case| {
        invalid_descriptors(lab, case, 2048, false);
    });
}

#[test]
fn unaligned_inv_desc() {
    row_on("UNALIGNED_INV_DESC", usual("invunal"), |lab, case| {
        passed_on(invalid_descriptors(lab, case, 4096, true))
    });
}

/// The UMEM ends in the middle of a page.
#[test]
fn unaligned_inv_desc_4001_frame_size() {
    row_on("UNALIGNED_INV_DESC_4001_FRAME_SIZE", usual("inv4001"), |lab, case| {
        passed_on(invalid_descriptors(lab, case, 4001, true))
    });
}

fn invalid_descriptors(lab: &Lab, case: Case, frame_size: u32, unaligned: bool) -> Pages {
    let options = options(frame_size).unaligned_chunks(unaligned).huge_pages(unaligned);
    let sender = Raw::open(lab, case, options.clone());
    let (size, frame, short) = (sender.size(), u64::from(frame_size), u64::from(SHORT));
    assert!(frame_size != 4001 || (short..PAGE - short).contains(&(size % PAGE)));
    let mut script = Script::new(lab, sender);
    script.packet(&[(0, SHORT)]);
    script.packet(&[(frame, SHORT)]);
    // Before the UMEM, longer than a frame, and at its end: its last bytes, none of it, and half in it.
    script.bad(0_u64.wrapping_sub(2), SHORT, 0);
    script.bad(2 * frame, TOO_LONG, 0);
    script.packet(&[(size - short, SHORT)]);
    script.bad(size, SHORT, 0);
    script.bad(size - short / 2, SHORT, 0);
    // Across the border of two pages, and of the two halves of one.
    script.perhaps(unaligned, 5 * PAGE - short / 2);
    script.perhaps(frame_size != 2048, 7 * PAGE + 2048 - short / 2);
    script.packet(&[(20 * frame, SHORT)]);
    script.play(case, options)
}

#[test]
fn aligned_inv_desc_multi_buff() {
    row_on("ALIGNED_INV_DESC_MULTI_BUFF", jumbo("invmb"), |lab, case| {
        invalid_fragments(lab, case, false);
    });
}

#[test]
fn unaligned_inv_desc_multi_buff() {
    row_on("UNALIGNED_INV_DESC_MULTI_BUFF", jumbo("invunalmb"), |lab, case| {
        passed_on(invalid_fragments(lab, case, true))
    });
}

fn invalid_fragments(lab: &Lab, case: Case, unaligned: bool) -> Pages {
    let options = options(4096)
        .multi_buffer(true)
        .unaligned_chunks(unaligned)
        .huge_pages(unaligned);
    let sender = Raw::open(lab, case, options.clone());
    let size = sender.size();
    let mut script = Script::new(lab, sender);
    let mut frames = (0..).map(|n| n * 4096);
    let mut next = || frames.next().expect("endless");
    script.packet(&[(next(), SHORT)]);
    // An empty last part.
    script.raw(next(), PART, Desc::CONTINUED);
    script.raw(next(), PART, Desc::CONTINUED);
    script.bad(next(), 0, 0);
    // In the middle: an address outside, a length beyond the frame, options that there are not.
    script.raw(next(), PART, Desc::CONTINUED);
    script.bad(size, PART, Desc::CONTINUED);
    script.end(next());
    script.raw(next(), PART, Desc::CONTINUED);
    script.bad(next(), TOO_LONG, Desc::CONTINUED);
    script.end(next());
    script.raw(next(), PART, Desc::CONTINUED);
    script.bad(next(), PART, NONSENSE);
    script.end(next());
    // Two frames here, three at the receiver, whose frames have headroom.
    script.packet(&[(next(), 4096), (next(), 4096)]);
    // A part across the border of two frames.
    let (head, _, border) = (next(), next(), next());
    let across = border - u64::from(SHORT) / 2;
    if unaligned {
        script.packet(&[(head, PART), (across, SHORT)]);
    } else {
        script.raw(head, PART, Desc::CONTINUED);
        script.bad(across, SHORT, 0);
    }
    script.packet(&[(next(), SHORT)]);
    script.play(case, options)
}

/// As many parts as a packet may have with any driver arrive; twice as many and no end are dropped, and the next packet is not.
#[test]
fn too_many_frags() {
    row_on("TOO_MANY_FRAGS", jumbo("toomany"), |lab, case| {
        let options = options(4096).multi_buffer(true);
        let sender = Raw::open(lab, case, options.clone());
        let most = sender.queue.bound.most_frames as u64;
        let mut script = Script::new(lab, sender);
        script.packet(&[(0, SHORT)]);
        let parts: Vec<(u64, u32)> = (1..=most).map(|n| (n * 4096, SHORT)).collect();
        script.packet(&parts);
        for n in most + 1..=3 * most {
            script.raw(n * 4096, SHORT, Desc::CONTINUED);
        }
        script.end((3 * most + 1) * 4096);
        script.packet(&[((3 * most + 2) * 4096, SHORT)]);
        script.play(case, options);
    });
}

/// Every second packet longer than a frame: as many are counted, exactly, and the others arrive.
#[test]
fn stat_tx_invalid() {
    row_on("STAT_TX_INVALID", usual("txinvalid"), |lab, case| {
        let mut port = case.port(&lab.b, options(4096).frames(1024), |port| port);
        let mut sender = Raw::open(lab, case, options(4096));
        for round in 0..32 {
            let mut script = Script::new(lab, sender);
            for n in 0..32 {
                script.packet(&[(2 * n * 4096, SHORT)]);
                script.bad((2 * n + 1) * 4096, TOO_LONG, 0);
            }
            script.sender.send(&script.descriptors);
            expect(only(&mut port), case.wait(), &script.packets);
            assert_eq!(script.sender.invalid(), 32 * (round + 1));
            sender = script.sender;
        }
    });
}

/// Half of the packets lie across the border of two pages.
#[test]
fn send_receive_unaligned() {
    row_on("SEND_RECEIVE_UNALIGNED", usual("unaligned"), |lab, case| {
        let options = options(4096).unaligned_chunks(true).huge_pages(true);
        let mut port = case.port(&lab.b, options.clone().frames(1024), |port| port);
        let mut sender = Raw::open(lab, case, options);
        for _ in 0..64 {
            let mut script = Script::new(lab, sender);
            for n in 0..31 {
                script.packet(&[(2 * n * PAGE, SHORT)]);
                script.packet(&[((2 * n + 1) * PAGE - 32, SHORT)]);
            }
            script.sender.send(&script.descriptors);
            expect(only(&mut port), case.wait(), &script.packets);
            script.sender.expect_completed(&script.valid);
            sender = script.sender;
            sender.completed.clear();
        }
        assert_eq!(sender.invalid(), 0);
        passed_on(sender.queue.report().pages)
    });
}

/// Frames across the borders of pages that may lie anywhere in the NIC's memory: copied all the same, and refused for zero-copy. Past the
/// library the kernel looks at each packet: it sends one across two pages that follow each other there, and no half of one
/// that does not.
#[test]
fn unaligned_on_normal_pages() {
    row_on("UNALIGNED_ON_NORMAL_PAGES", usual("normalpages"), |lab, case| {
        let odd = QueueOptions::new().frame_size(3000).frames(1024);
        if case.path == Path::ZeroCopy {
            let wanted = Queue::builder(&lab.a.interface, case.from()).mode(Mode::Require(Path::ZeroCopy));
            let error = lab.a.run(|| wanted.options(odd.clone()).open()).expect_err("refused");
            assert!(error.to_string().contains("across the borders of pages"), "{error}");
            let next_best = Queue::builder(&lab.a.interface, case.from()).options(odd);
            let queue = lab.a.run(|| next_best.open()).expect("copies");
            assert_ne!(queue.report().path, Path::ZeroCopy);
            let refused = queue.report().refused_modes.join("\n");
            assert!(refused.contains("across the borders of pages"), "{refused}");
        } else {
            through(lab, case, odd, (1024, 64));
        }
        let options = options(4096).unaligned_chunks(true);
        let mut port = case.port(&lab.b, options.clone().frames(1024), |port| port);
        let mut script = Script::new(lab, Raw::open(lab, case, options));
        for n in 0..31 {
            script.packet(&[(2 * n * PAGE, SHORT)]);
            script.packet(&[((2 * n + 1) * PAGE - 32, SHORT)]);
        }
        script.sender.send(&script.descriptors);
        let (mut came, start) = (BTreeSet::new(), Instant::now());
        while came.len() as u64 + script.sender.invalid() < 62 {
            assert!(
                start.elapsed() < PATIENCE,
                "{came:?}, and {} invalid",
                script.sender.invalid()
            );
            let mut burst = only(&mut port).recv(case.wait()).expect("recv");
            for packet in &mut burst {
                let n = script.packets.iter().position(|sent| sent == packet.data());
                let n = n.unwrap_or_else(|| panic!("nobody has sent {:x?}", packet.data()));
                assert!(came.insert(n), "packet {n} came twice");
            }
        }
        expect_nothing(only(&mut port));
        let whole = (0..62).step_by(2).all(|n| came.contains(&n));
        assert!(whole, "in one page each: {came:?}");
        assert!(case.path == Path::ZeroCopy || came.len() == 62, "{came:?}");
        script
            .sender
            .expect_completed(&came.iter().map(|&n| script.valid[n]).collect::<Vec<_>>());
    });
}

/// Of 33 packets one call takes exactly 32, which is the budget of a call on copy paths, and the ring says so.
#[test]
fn tx_queue_consumer() {
    row_on("TX_QUEUE_CONSUMER", usual("consumer"), |lab, case| {
        if case.path == Path::ZeroCopy {
            return lacks("with zero-copy the driver decides how many it takes");
        }
        let mut port = case.port(&lab.b, options(4096).frames(1024), |port| port);
        let mut script = Script::new(lab, Raw::open(lab, case, options(4096).tx_budget(32)));
        for n in 0..33 {
            script.packet(&[(n * 4096, SHORT)]);
        }
        script.sender.put(&script.descriptors);
        assert_eq!(script.sender.wake(), 32);
        assert_eq!(script.sender.wake(), 1);
        expect(only(&mut port), case.wait(), &script.packets);
        script.sender.expect_completed(&script.valid);
        passed()
    });
}

/// Frames of an odd size, and packets on their very first bytes: the kernel gives some of their addresses back without the
/// lowest bit, which is in the frame before.
#[test]
fn a_packet_at_an_odd_address_comes_back() {
    if !ringside_netlab::testing::is_root() {
        return;
    }
    let lab = Lab::veth(usual("odd")).expect("test bed");
    let case = Case {
        path: Path::NativeCopy,
        queue: 0,
        busy_poll: false,
        wired: false,
    };
    let mut port = case.port(&lab.b, options(4096).frames(256), |port| port);
    let mut tx = case.sender(&lab.a, options(2049));
    let free = tx.free_frames();
    let all = packets(0..64, 64, &lab.a, &lab.b);
    // All frames at once: every second one begins at an odd address.
    for packet in &all {
        let mut frame = tx.alloc().expect("a free frame");
        assert!(frame.extend_front(frame.headroom()) && frame.write(packet));
        assert_eq!(frame.headroom(), 0);
        tx.send(frame).expect("room");
    }
    tx.flush().expect("sends");
    expect(only(&mut port), case.wait(), &all);
    assert!(tx.drain(PATIENCE).expect("sound"));
    assert_eq!(tx.free_frames(), free);
}
