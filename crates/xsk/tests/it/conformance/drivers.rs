//! What drivers have to cope with, after the kernel's tests of them: queues.py, xsk_reconfig.py, xdp.py.

use std::os::fd::AsFd as _;
use std::time::Duration;

use ringside_bpf::testing::{Task, TestProgram};
use ringside_netlab::{End, wait_until};
use ringside_nic::QueueDetail;
use ringside_xsk::{AttachMode, Direction, Path, Queue, QueueOptions, XdpLink, XskMap};

use crate::common::PATIENCE;
use crate::common::conformance::{Case, lacks, passed, row_on, usual};
use crate::common::traffic::{expect, expect_nothing, expect_some, packets, send};

/// Over netlink the queue that is bound says so, and no other does.
#[test]
fn xsk_queue_attribute() {
    row_on("XSK_QUEUE_ATTRIBUTE", usual("xskattr"), |lab, case| {
        let bound = |end: &End| -> Vec<QueueDetail> { end.run(|| end.interface.queue_details()).expect("readable") };
        if bound(&lab.b).iter().any(|queue| queue.xsk.is_none()) {
            return lacks("the kernel tells it since Linux 6.15");
        }
        let port = case.port(&lab.b, QueueOptions::new(), |port| port);
        for queue in bound(&lab.b) {
            assert_eq!(queue.xsk, Some(queue.id == case.queue), "{queue:?}");
        }
        drop(port);
        let free = || bound(&lab.b).iter().all(|queue| queue.xsk == Some(false));
        assert!(wait_until(PATIENCE, free), "{:?}", bound(&lab.b));
        passed()
    });
}

/// Whether 32 packets have found 16 frames. With zero-copy it is counted how often the driver looked for one in vain, packets or not.
fn is_full(case: Case, rx: &mut Queue) -> bool {
    let empty = rx.stats().expect("readable").kernel.rx_fill_ring_empty;
    match case.path {
        Path::ZeroCopy => empty > 0 && rx.ledger().expect("sound").rx == 16,
        _ => empty == 16,
    }
}

/// What these frames had. With zero-copy the others may wait in the NIC, and come then.
fn took_16(case: Case, rx: &mut Queue, sent: &[Vec<u8>]) {
    match case.path {
        Path::ZeroCopy => assert!(expect_some(rx, sent) >= 16),
        _ => expect(rx, case.wait(), &sent[..16]),
    }
}

/// Attached and detached ten times while a socket is bound whose fill ring is empty: the socket goes on when there are frames
/// and a program again.
#[test]
fn xdp_on_off_while_bound() {
    row_on("XDP_ON_OFF_WHILE_BOUND", usual("onoff"), |lab, case| {
        let mode = match case.path {
            Path::Generic => AttachMode::Generic,
            _ => AttachMode::Native,
        };
        let TestProgram { program, xsks_map, .. } = TestProgram::load(Task::Steer(1), false).expect("loads");
        let map = XskMap::from_fd(xsks_map).expect("an XSKMAP");
        let attach = || {
            let link = lab
                .b
                .run(|| XdpLink::attach(program.as_fd(), &lab.b.interface, mode))
                .expect("attached");
            lab.b.wait_ready().expect("up");
            link
        };
        let link = attach();
        let options = QueueOptions::new().direction(Direction::Receive).frames(16);
        let mut rx = case.queue_of(&lab.b, case.queue, options);
        map.insert_at(0, &rx).expect("a place");
        let mut tx = case.sender(&lab.a, QueueOptions::new());
        let all = packets(0..64, 64, &lab.a, &lab.b);
        // Sixteen frames, all of which wait on the RX ring now.
        send(&mut tx, &all[..32]);
        assert!(wait_until(PATIENCE, || is_full(case, &mut rx)), "{:?}", rx.stats());
        drop(link);
        for _ in 0..10 {
            drop(attach());
        }
        // Without a program nothing comes any more; with it, and frames, everything does.
        let link = if case.path == Path::ZeroCopy {
            send(&mut tx, &all[32..48]);
            // Drivers of Intel's NICs have no zero-copy meanwhile: who waits is told so. A NIC that keeps packets until there are frames
            // may have kept these, too, and there is a program by then: seen of virtio-net under PREEMPT_RT.
            let link = attach();
            took_16(case, &mut rx, &all[..48]);
            link
        } else {
            took_16(case, &mut rx, &all[..32]);
            send(&mut tx, &all[32..48]);
            expect_nothing(&mut rx);
            attach()
        };
        send(&mut tx, &all[48..]);
        expect(&mut rx, case.wait(), &all[48..]);
        drop(link);
    });
}

/// Other sizes of the NIC's rings while a socket is bound whose fill ring is empty.
#[test]
fn ring_resize_while_bound() {
    row_on("RING_RESIZE_WHILE_BOUND", usual("resize"), |lab, case| {
        let mut port = case.port(&lab.b, QueueOptions::new().frames(32), |port| port);
        let mut tx = case.sender(&lab.a, QueueOptions::new());
        let all = packets(0..64, 64, &lab.a, &lab.b);
        send(&mut tx, &all[..32]);
        let rx = port.queues_mut().next().expect("one queue");
        assert!(wait_until(PATIENCE, || is_full(case, rx)), "{:?}", rx.stats());
        let before = lab.b.run(|| lab.b.interface.rings());
        let changed = before.and_then(|before| {
            for half in [2, 1] {
                let mut rings = before;
                rings.rx = before.rx / half;
                lab.b.run(|| lab.b.interface.set_rings(rings))?;
                std::thread::sleep(Duration::from_millis(50));
            }
            lab.b.wait_ready().expect("the link comes back");
            Ok(())
        });
        took_16(case, rx, &all[..32]);
        expect_nothing(rx);
        send(&mut tx, &all[32..48]);
        expect(rx, case.wait(), &all[32..48]);
        match changed {
            Ok(()) => passed(),
            Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => {
                lacks(format!("the NIC's rings cannot be set: {error}"))
            }
            Err(error) => panic!("{error}"),
        }
    });
}
