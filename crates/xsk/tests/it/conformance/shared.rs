//! Several sockets on one UMEM, and the program that says which of them a packet goes to.

use ringside_bpf::testing::{Task, TestProgram};
use ringside_netlab::Lab;
use ringside_xsk::{Port, Program, Queue, QueueOptions, XskMap};

use crate::common::PATIENCE;
use crate::common::conformance::{Case, passed_on, row_on, usual};
use crate::common::packet_of;
use crate::common::traffic::{expect, expect_nothing, only, packets, send};

/// A port on the queue under test, with so many sockets on it, at the places 0 and up of the program's XSKMAP.
struct Sockets {
    others: Vec<Queue>,
    port: Port,
    map: XskMap,
}

impl Sockets {
    fn open(lab: &Lab, case: Case, options: QueueOptions, task: Task, count: u32) -> Self {
        let TestProgram { program, xsks_map, .. } = TestProgram::load(task, false).expect("loads");
        let map = XskMap::from_fd(xsks_map.try_clone().expect("a descriptor")).expect("an XSKMAP");
        let mut port = case.port(&lab.b, options, |port| {
            port.program(Program::Custom { program, xsks_map })
        });
        let first = only(&mut port);
        // A port puts its socket where most programs look for it: at the number of its queue.
        map.remove(first.id());
        map.insert_at(0, first).expect("a place");
        let more = || first.sibling(&case.options(QueueOptions::new())).expect("a sibling");
        let others: Vec<Queue> = lab
            .b
            .run(|| std::iter::repeat_with(more).take(count as usize - 1).collect());
        for (place, other) in (1..).zip(&others) {
            map.insert_at(place, other).expect("a place");
        }
        Self { others, port, map }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Queue> {
        self.port.queues_mut().chain(&mut self.others)
    }
}

/// Sends packets of which `place` says where each goes, and looks whether it did: each socket gets its own, in order.
fn steered(lab: &Lab, case: Case, sockets: &mut Sockets, options: QueueOptions, place: impl Fn(u64, usize) -> usize) {
    let mut tx = case.sender(&lab.a, options);
    let count = sockets.all().count();
    for first in (0..2048_u64).step_by(64) {
        let length = |n: u64| if n.is_multiple_of(3) { 1000 } else { 64 };
        let burst: Vec<(u64, Vec<u8>)> = (first..first + 64)
            .map(|n| (n, packet_of(n, length(n), lab.a.mac, lab.b.mac)))
            .collect();
        let all: Vec<Vec<u8>> = burst.iter().map(|(_, packet)| packet.clone()).collect();
        send(&mut tx, &all);
        let mut by_place = vec![Vec::new(); count];
        for (n, packet) in burst {
            by_place[place(n, packet.len())].push(packet);
        }
        for (socket, packets) in sockets.all().zip(&by_place) {
            assert!(!packets.is_empty(), "each socket gets some of a burst");
            expect(socket, case.wait(), packets);
        }
    }
    for socket in sockets.all() {
        expect_nothing(socket);
    }
    assert!(tx.drain(PATIENCE).expect("drains"));
}

fn options() -> QueueOptions {
    QueueOptions::new().frames(1024)
}

#[test]
fn xdp_shared_umem() {
    row_on("XDP_SHARED_UMEM", usual("shared"), |lab, case| {
        let mut sockets = Sockets::open(lab, case, options(), Task::Steer(2), 2);
        steered(lab, case, &mut sockets, options(), |n, _| (n % 256 % 2) as usize);
    });
}

#[test]
fn shared_umem_4_sockets() {
    row_on("SHARED_UMEM_4_SOCKETS", usual("shared4"), |lab, case| {
        let mut sockets = Sockets::open(lab, case, options(), Task::Steer(4), 4);
        steered(lab, case, &mut sockets, options(), |n, _| (n % 256 % 4) as usize);
    });
}

#[test]
fn shared_umem_length_based() {
    row_on("SHARED_UMEM_LENGTH_BASED", usual("sharedlen"), |lab, case| {
        let mut sockets = Sockets::open(lab, case, options(), Task::ByLength(500), 2);
        steered(lab, case, &mut sockets, options(), |_, len| usize::from(len > 500));
    });
}

#[test]
fn shared_umem_uneven_dist() {
    row_on("SHARED_UMEM_UNEVEN_DIST", usual("shareduneven"), |lab, case| {
        let mut sockets = Sockets::open(lab, case, options(), Task::Uneven(16), 2);
        steered(lab, case, &mut sockets, options(), |n, _| {
            usize::from(n % 256 % 16 == 15)
        });
    });
}

#[test]
fn shared_umem_unaligned() {
    row_on("SHARED_UMEM_UNALIGNED", usual("sharedunal"), |lab, case| {
        let options = options().frame_size(3000).huge_pages(true);
        let mut sockets = Sockets::open(lab, case, options.clone(), Task::Steer(2), 2);
        let pages = only(&mut sockets.port).report().pages;
        steered(lab, case, &mut sockets, options, |n, _| (n % 256 % 2) as usize);
        passed_on(pages)
    });
}

/// A socket takes over the place of another in the XSKMAP: all packets go to it from then on, and none to the first.
#[test]
fn xdp_prog_cleanup() {
    row_on("XDP_PROG_CLEANUP", usual("cleanup"), |lab, case| {
        let mut sockets = Sockets::open(lab, case, options(), Task::Steer(1), 2);
        let mut tx = case.sender(&lab.a, options());
        let all = packets(0..128, 64, &lab.a, &lab.b);
        send(&mut tx, &all[..64]);
        expect(only(&mut sockets.port), case.wait(), &all[..64]);
        sockets.map.insert_at(0, &sockets.others[0]).expect("replaced");
        send(&mut tx, &all[64..]);
        expect(&mut sockets.others[0], case.wait(), &all[64..]);
        expect_nothing(only(&mut sockets.port));
        // The first one's end takes nothing away from the second.
        drop(sockets.port);
        sockets.map.insert_at(0, &sockets.others[0]).expect("there");
    });
}
