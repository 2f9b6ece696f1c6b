//! fwd to a second interface: unchanged, from the same frames or from copies, whatever the numbers of queues.

use crate::common::frames::{frame, receive, spread};
use crate::common::{Done, MODES, assert_clean, assert_reconciles, port, row_with, run, start_receiver};
use ringside_measure::schema::RunResult;
use ringside_netlab::testing::is_root;
use ringside_xsk::{Direction, QueueOptions};

/// The frames that a fwd with these options needs, several times.
const PACKETS: u32 = 2000;

/// Both interfaces' UMEMs, a number for each queue.
fn umems(done: &Done) -> [Vec<u64>; 2] {
    let interfaces = done.document().interfaces;
    let of = |at: usize| -> Vec<u64> {
        let queues = &interfaces[at].queues;
        queues.iter().map(|queue| queue.umem.expect("told")).collect()
    };
    assert_eq!([&*interfaces[0].name, &*interfaces[1].name], ["in", "out"]);
    [of(0), of(1)]
}

fn sent_to(result: &RunResult, queue: u32) -> u64 {
    let queues = result.queues.iter();
    let of = queues.filter(|counted| counted.interface == "in" && counted.queue == queue);
    of.map(|counted| counted.received_packets).sum()
}

/// Sends frames of many sizes on all queues through a forwarder; they come out as they went in.
fn forwards(queues: [u32; 2], command: &str, note: &str) -> Done {
    let row = row_with("fwd", queues, 1500);
    let mut receiver = port(&row.right.b, |port| port.options(QueueOptions::new().frames(4096)));
    let forwarder = start_receiver(&row.left.b, &format!("{command} --json"));
    forwarder.wait_for(note);
    let mut sender = port(&row.left.a, |port| {
        port.options(QueueOptions::new().direction(Direction::Transmit))
    });
    let mut frames: Vec<Vec<u8>> = (0..PACKETS)
        .map(|number| frame(number, &row.left.a, &row.right.b))
        .collect();
    // No more at once than the forwarder has frames for, should it not get a CPU for a while.
    let mut got = Vec::new();
    for some in frames.chunks(200) {
        spread(&mut sender, some);
        got.extend(receive(&mut receiver, some.len()));
    }
    let done = forwarder.interrupt().good();
    let result = done.result();
    assert_reconciles(&result);
    got.sort();
    frames.sort();
    assert!(
        got == frames,
        "{queues:?} {command}: {} of {PACKETS}: {result:#?}",
        got.len()
    );
    assert_eq!(result.packets.delivered(), u64::from(PACKETS), "{result:#?}");
    assert_clean(&row.left.b);
    assert_clean(&row.right.a);
    done
}

#[test]
fn one_umem_for_both() {
    if !is_root() {
        return;
    }
    let note = "  packets are sent from the frames that they were received in: one UMEM for both\n";
    for (queues, mode) in [
        ([1, 1], "native"),
        ([4, 1], "native"),
        ([1, 4], "generic"),
        // What is refused first, zero-copy, costs no frames.
        ([4, 4], "auto"),
        ([4, 2], "generic"),
    ] {
        let done = forwards(queues, &format!("fwd {{}} --out out -m {mode} --wait poll"), note);
        let [incoming, outgoing] = umems(&done);
        assert_eq!(incoming.len(), queues[0] as usize);
        assert_eq!(outgoing.len(), queues[0].min(queues[1]) as usize);
        assert!(
            incoming.iter().chain(&outgoing).all(|&umem| umem == incoming[0]),
            "{incoming:?} {outgoing:?}"
        );
        if mode != "generic" {
            for queue in 0..queues[0] {
                assert!(sent_to(&done.result(), queue) > 0, "{queue}: {done:#?}");
            }
        }
    }
}

#[test]
fn copies_where_asked_for() {
    if !is_root() {
        return;
    }
    let note = "  packets are copied from one UMEM to the other: as --copy-between asks for\n";
    for (queues, mode) in [([1, 1], "native"), ([4, 1], "generic"), ([1, 4], "native")] {
        // By the option's other name.
        let command = format!("fwd {{}} --to out --copy-between -m {mode} --wait poll");
        let done = forwards(queues, &command, note);
        let [incoming, outgoing] = umems(&done);
        assert!(
            outgoing.iter().all(|umem| !incoming.contains(umem)),
            "{incoming:?} {outgoing:?}"
        );
    }
    for mode in MODES {
        let command = format!("fwd {{}} -m {mode} --copy-between");
        let row = row_with("fwd", [1, 1], 1500);
        assert!(run(&row.left.b, &command).refused().contains("--out"));
    }
}

/// A box that impairs nothing is a forwarder, whatever the numbers of queues, and on one UMEM.
#[test]
fn a_wire_hands_on_what_comes() {
    if !is_root() {
        return;
    }
    for (queues, options) in [
        ([1, 1], "-m native --wait poll"),
        ([4, 2], "-m native --wait poll --delay 1ms"),
        ([1, 4], "-m generic --wait poll"),
        ([2, 1], "--wait busy-poll"),
    ] {
        let command = format!("impair in,out {options} --frames 512");
        let done = forwards(queues, &command, "this host itself is not reached");
        let [incoming, outgoing] = umems(&done);
        assert_eq!([incoming.len(), outgoing.len()], queues.map(|queues| queues as usize));
        assert!(incoming.iter().chain(&outgoing).all(|&umem| umem == incoming[0]));
        for queue in 0..queues[0] {
            assert!(
                options.contains("generic") || sent_to(&done.result(), queue) > 0,
                "{queue}: {done:#?}"
            );
        }
    }
}

/// Few frames make it slow, not wrong; and a choice of queues applies to the first interface.
#[test]
fn few_frames_and_some_queues() {
    if !is_root() {
        return;
    }
    for more in [
        "--frames 16",
        "--frames 16 --copy-between",
        "--frames 2 --batch 1",
        "--ring 4",
    ] {
        let done = few(more);
        assert_reconciles(&done.result());
        assert!(done.result().packets.delivered() > 0, "{more}: {done:#?}");
    }
    let done = few("-q 1,2");
    let [incoming, outgoing] = umems(&done);
    assert_eq!((incoming.len(), outgoing.len()), (2, 2));
}

fn few(more: &str) -> Done {
    let row = row_with("few", [4, 4], 1500);
    let forwarder = start_receiver(&row.left.b, &format!("fwd {{}} --out out {more} --wait poll --json"));
    forwarder.wait_for("one UMEM");
    let tx = format!("tx {{}} --rate 20000 --count 2000 --to {}", row.left.b.ipv4);
    run(&row.left.a, &tx).good();
    forwarder.interrupt().good()
}
