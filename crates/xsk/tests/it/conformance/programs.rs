//! What XDP programs do to packets on their way: drop them, put something in front, resize them.

use std::time::Instant;

use ringside_bpf::testing::{Task, TestProgram, Told};
use ringside_netlab::{Lab, VethConfig};
use ringside_xsk::{Port, Program, QueueOptions};

use crate::common::PATIENCE;
use crate::common::conformance::{Case, Outcome, lacks, passed, row_on, usual};
use crate::common::traffic::{expect, expect_nothing, only, packets, same, send};

const JUMBO: u32 = 9000;

fn jumbo(tag: &str) -> VethConfig {
    VethConfig {
        mtu: JUMBO,
        ..usual(tag)
    }
}

/// Frames of 4096 bytes, and packets in several of them if it is about such.
fn options(multi_buffer: bool) -> QueueOptions {
    QueueOptions::new()
        .frame_size(4096)
        .frames(1024)
        .multi_buffer(multi_buffer)
}

fn open(lab: &Lab, case: Case, multi_buffer: bool, task: Task) -> (Port, Told) {
    let TestProgram {
        program,
        xsks_map,
        told,
    } = TestProgram::load(task, multi_buffer).expect("loads");
    let program = Program::Custom { program, xsks_map };
    let port = case.port(&lab.b, options(multi_buffer), |port| port.program(program));
    (port, told)
}

#[test]
fn xdp_drop_half() {
    row_on("XDP_DROP_HALF", usual("drophalf"), |lab, case| {
        let (mut port, _) = open(lab, case, false, Task::DropHalf);
        let (mut tx, rx) = (case.sender(&lab.a, options(false)), only(&mut port));
        for first in (0..4096).step_by(64) {
            let burst = packets(first..first + 64, 64, &lab.a, &lab.b);
            send(&mut tx, &burst);
            let kept: Vec<_> = burst.into_iter().step_by(2).collect();
            expect(rx, case.wait(), &kept);
        }
        expect_nothing(rx);
    });
}

#[test]
fn xdp_metadata_copy() {
    row_on("XDP_METADATA_COPY", usual("metacopy"), |lab, case| {
        count_in_front(lab, case, false, 64);
    });
}

#[test]
fn xdp_metadata_copy_multi_buff() {
    row_on("XDP_METADATA_COPY_MULTI_BUFF", jumbo("metacopymb"), |lab, case| {
        count_in_front(lab, case, true, JUMBO as usize);
    });
}

/// What the program put in front of a packet arrives in front of it: its own count for each.
fn count_in_front(lab: &Lab, case: Case, multi_buffer: bool, len: usize) {
    let (mut port, _) = open(lab, case, multi_buffer, Task::CountInFront);
    let (mut tx, rx) = (case.sender(&lab.a, options(multi_buffer)), only(&mut port));
    let mut count = 0;
    for first in (0..512).step_by(32) {
        let burst = packets(first..first + 32, len, &lab.a, &lab.b);
        send(&mut tx, &burst);
        let start = Instant::now();
        let mut next = burst.iter();
        while next.len() != 0 {
            assert!(start.elapsed() < PATIENCE, "{count} packets came");
            let mut burst = rx.recv(case.wait()).expect("recv");
            for mut packet in &mut burst {
                same(count, &packet, next.next().expect("no more than sent"), 4096 - 256);
                assert_eq!(packet.headroom(), 256);
                assert!(packet.extend_front(8));
                let front = u64::from_ne_bytes(packet.data()[..8].try_into().expect("eight"));
                assert_eq!(front, count as u64, "in front of packet {count}");
                count += 1;
            }
        }
    }
}

#[test]
fn xdp_adjust_tail_shrink() {
    row_on("XDP_ADJUST_TAIL_SHRINK", usual("shrink"), |lab, case| {
        adjust_tail(lab, case, false, -4, 128)
    });
}

/// As much as a whole frame is taken away.
#[test]
fn xdp_adjust_tail_shrink_multi_buff() {
    row_on("XDP_ADJUST_TAIL_SHRINK_MULTI_BUFF", jumbo("shrinkmb"), |lab, case| {
        adjust_tail(lab, case, true, -4096, 6144)
    });
}

#[test]
fn xdp_adjust_tail_grow() {
    row_on("XDP_ADJUST_TAIL_GROW", usual("grow"), |lab, case| {
        // Not 128 bytes: with XDP's headroom they fill the kernel's smallest socket buffer, in which nothing can grow.
        adjust_tail(lab, case, false, 4, 200)
    });
}

#[test]
fn xdp_adjust_tail_grow_multi_buff() {
    row_on("XDP_ADJUST_TAIL_GROW_MULTI_BUFF", jumbo("growmb"), |lab, case| {
        adjust_tail(lab, case, true, 2047, 6144)
    });
}

fn adjust_tail(lab: &Lab, case: Case, multi_buffer: bool, by: i32, len: usize) -> Outcome {
    let (mut port, told) = open(lab, case, multi_buffer, Task::AdjustTail(by));
    let (mut tx, rx) = (case.sender(&lab.a, options(multi_buffer)), only(&mut port));
    let mut all = packets(0..64, len, &lab.a, &lab.b);
    send(&mut tx, &all[..1]);
    for packet in &mut all {
        packet.resize(len.checked_add_signed(by as isize).expect("positive"), 0);
    }
    // Not every driver can resize every packet. The first one tells.
    let start = Instant::now();
    while rx.recv(case.wait()).expect("recv").is_empty() {
        if told.adjusted() == i64::from(-libc::EOPNOTSUPP) {
            return lacks("bpf_xdp_adjust_tail() answers EOPNOTSUPP");
        }
        assert!(
            start.elapsed() < PATIENCE,
            "bpf_xdp_adjust_tail() answers {}",
            told.adjusted()
        );
    }
    send(&mut tx, &packets(1..64, len, &lab.a, &lab.b));
    // The bytes that come in are zeros: https://elixir.bootlin.com/linux/v6.18/C/ident/bpf_xdp_adjust_tail
    expect(rx, case.wait(), &all[1..]);
    expect_nothing(rx);
    passed()
}
