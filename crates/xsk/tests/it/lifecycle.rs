//! Opening, closing, and who is in the way: K7, K11, K13.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::conformance::{Case, OTHER, row, row_on, usual};
use crate::common::traffic::{expect, only, queue};
use crate::common::{
    MODES, PATIENCE, assert_clean, collect, kernel_socket, lab, open, send_numbers, send_one, sender, try_open, udp,
};
use ringside_bpf::{Filter, XskProgram};
use ringside_netlab::testing::{is_root, retry};
use ringside_netlab::wait_until;
use ringside_xsk::{AttachMode, Direction, Error, Mode, Path, Port, Queue, QueueOptions, Wait, XdpLink};

/// K7: ten times open, use and close, at once after each other.
#[test]
fn a_port_is_reopened_at_once() {
    row_on("K7", usual("k7"), |lab, case| {
        let mut sender = case.sender(&lab.a, QueueOptions::new());
        for n in 0..10 {
            let mut port = case.port(&lab.b, QueueOptions::new(), |port| port);
            send_numbers(&mut sender, n..n + 1, &lab.a, &lab.b);
            assert_eq!(collect(only(&mut port), 1, PATIENCE), [n]);
        }
        assert_clean(&lab.b);
    });
}

/// K7 for single queues, where no XDP program is in the way.
#[test]
fn a_queue_is_reopened_at_once() {
    if !is_root() {
        return;
    }
    let lab = lab("k7queue", 2);
    lab.a.run(|| {
        for _ in 0..10 {
            let patient = QueueOptions::new().busy_timeout(PATIENCE);
            drop(Queue::builder(&lab.a.interface, 1).options(patient).open().unwrap());
        }
    });
    assert_clean(&lab.a);
}

/// A queue is only waited for as long as the kernel may take to give it back where no socket holds it.
#[test]
fn a_queue_that_a_socket_holds_is_not_waited_for_long() {
    if !is_root() {
        return;
    }
    let lab = lab("k7held", 2);
    lab.a.run(|| {
        let _held = Queue::builder(&lab.a.interface, 1).open().unwrap();
        match Queue::builder(&lab.a.interface, 1).open() {
            Err(Error::QueueBusy { queue: 1, waited, .. }) => assert_eq!(waited, Duration::from_secs(2)),
            other => panic!("{other:?}"),
        }
    });
}

/// K11: packets of a queue without a socket go up the stack, are counted, and the report says so beforehand.
#[test]
fn packets_on_unbound_queues_go_up_and_are_counted() {
    row("K11", |case| {
        let lab = case.lab("k11");
        let unbound = case.queue;
        let others: Vec<u32> = (0..4).filter(|&queue| queue != unbound).collect();
        let mut port = case.port(&lab.b, QueueOptions::new(), |port| port.queues(others));
        assert_eq!(port.report().unbound_queues, [unbound]);
        let report = port.report().to_string();
        assert!(
            report.contains(&format!("without a socket: queues [{unbound}]")),
            "{report}"
        );
        let socket = kernel_socket(&lab.b, 5000);
        let mut sender = case.sender(&lab.a, QueueOptions::new());
        for n in 0..10 {
            send_one(&mut sender, &udp(&lab.a, &lab.b, 5000, &[n; 30]));
            let mut data = [0; 64];
            let got = socket.recv(&mut data);
            assert_eq!(got.ok(), Some(30), "packet {n}: {:?}", port.program_counters());
            assert_eq!(data[..30], [n; 30]);
        }
        let counted = port.program_counters().unwrap()[case.index()];
        assert_eq!((counted.passed_unbound, counted.redirected), (10, 0));
        drop(sender);
        let bound = Case {
            queue: OTHER - unbound,
            ..case
        };
        let packet = udp(&lab.a, &lab.b, 5000, &[99; 30]);
        send_one(&mut bound.sender(&lab.a, QueueOptions::new()), &packet);
        expect(queue(&mut port, bound.queue), case.wait(), &[packet]);
    });
}

/// All queues are the default.
#[test]
fn all_queues_are_bound_by_default() {
    if !is_root() {
        return;
    }
    let lab = lab("allqueues", 4);
    for path in MODES {
        let port = open(&lab.b, path, |port| port);
        assert_eq!(port.queues().iter().map(Queue::id).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!(port.report().unbound_queues.is_empty());
        assert_eq!(port.report().queues.len(), 4);
    }
    let some = open(&lab.b, Path::NativeCopy, |port| port.queues([3, 1]));
    assert_eq!(some.queues().iter().map(Queue::id).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(some.report().unbound_queues, [0, 2]);
}

/// K13: a second socket on a queue is refused with the queue and the probable owner.
#[test]
fn a_second_socket_on_a_queue_is_refused_by_name() {
    row_on("K13", usual("k13queue"), |lab, case| {
        let port = case.port(&lab.b, QueueOptions::new(), |port| port);
        let options = case.options(QueueOptions::new().busy_timeout(Duration::from_millis(50)));
        let error = lab
            .b
            .run(|| Queue::builder(&lab.b.interface, case.queue).options(options).open())
            .expect_err("taken");
        let Error::QueueBusy { queue, holder, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(*queue, case.queue);
        assert!(holder.contains(&std::process::id().to_string()), "{error}");
        let text = error.to_string();
        assert!(
            text.contains(&format!("queue {queue} is in use")) && text.contains(own_name().trim_end()),
            "{text}"
        );
        // Another queue is free, and the first socket did not suffer.
        if lab.b.run(|| lab.b.interface.rx_queues()).expect("readable") > OTHER {
            let patient = QueueOptions::new().busy_timeout(PATIENCE);
            let free = Queue::builder(&lab.b.interface, OTHER - case.queue).options(patient);
            lab.b.run(|| free.open()).expect("free");
        }
        let mut port = port;
        let mut sender = case.sender(&lab.a, QueueOptions::new());
        send_numbers(&mut sender, 3..4, &lab.a, &lab.b);
        assert_eq!(collect(only(&mut port), 1, PATIENCE), [3]);
        drop(port);
        assert_clean(&lab.b);
    });
}

/// K13: a port whose queue is taken by a lone socket names the socket's holder, and leaves no
/// program behind.
#[test]
fn a_port_on_a_taken_queue_names_its_holder() {
    if !is_root() {
        return;
    }
    let lab = lab("k13lone", 2);
    let lone = lab.b.run(|| Queue::builder(&lab.b.interface, 1).open()).unwrap();
    for path in MODES {
        let refused = || {
            let options = QueueOptions::new().busy_timeout(Duration::from_millis(50));
            try_open(&lab.b, path, |port| port.options(options)).expect_err("taken")
        };
        // The kernel may free queue 0 some time after the previous attempt has ended.
        let error = retry(PATIENCE, refused, |error| {
            !matches!(error, Error::QueueBusy { queue: 0, .. })
        });
        let Error::QueueBusy { queue: 1, holder, .. } = &error else {
            panic!("{error}");
        };
        // The lone queue is of this process, too; the port's program is not the reason.
        let expected = match lab.b.run(ringside_nic::sockets::list) {
            Ok(Some(_)) => format!(", held by this process itself, {}", std::process::id()),
            _ => String::new(),
        };
        assert!(
            holder.starts_with(&expected) && (holder.is_empty() == expected.is_empty()),
            "{error}"
        );
        assert_eq!(lab.b.state().unwrap().xdp, None);
    }
    drop(lone);
    drop(open(&lab.b, Path::NativeCopy, |port| port));
    assert_clean(&lab.b);
}

/// Returns the name of this process, as the kernel has it.
fn own_name() -> String {
    std::fs::read_to_string("/proc/self/comm").expect("proc")
}

/// K13: a second port is refused before anything is touched; the program, its id, its holder and the way out are named.
#[test]
fn a_second_port_names_the_first() {
    row_on("TWO_PROGRAMS_ON_ONE_QUEUE", usual("k13port"), |lab, case| {
        let mut port = case.port(&lab.b, QueueOptions::new(), |port| port);
        let id = port.report().program.as_ref().unwrap().id;
        for wanted in MODES {
            let options = case.options(QueueOptions::new());
            let error = try_open(&lab.b, wanted, |port| port.queues([case.queue]).options(options)).expect_err("taken");
            assert!(
                matches!(&error, Error::ProgramAttached { id: named, .. } if *named == id),
                "{error}"
            );
            let text = error.to_string();
            let holder = format!("held by this process itself, {}", std::process::id());
            assert!(
                text.contains("ringside_xsk") && text.contains(&format!("id {id}")),
                "{text}"
            );
            assert!(text.contains(&holder) && text.contains(own_name().trim_end()), "{text}");
            assert!(text.contains("To remove it: close the port or the bpf_link"), "{text}");
        }
        // Nothing of it disturbed the first.
        let mut sender = case.sender(&lab.a, QueueOptions::new());
        send_numbers(&mut sender, 3..4, &lab.a, &lab.b);
        assert_eq!(collect(only(&mut port), 1, PATIENCE), [3]);
        drop(port);
        assert_clean(&lab.b);
    });
}

/// A program that a process holds by a link goes with the process, or here with the link.
#[test]
fn a_link_attachment_is_named_with_its_holder() {
    if !is_root() {
        return;
    }
    let lab = lab("foreignlink", 1);
    let foreign = XskProgram::load(1, Filter::None).unwrap();
    for mode in [AttachMode::Native, AttachMode::Generic] {
        let attach = || lab.b.run(|| XdpLink::attach(foreign.program(), &lab.b.interface, mode));
        let link = attach().unwrap();
        assert_eq!(link.mode(), mode);
        let text = try_open(&lab.b, Path::Generic, |port| port)
            .expect_err("in the way")
            .to_string();
        assert!(
            text.contains("close the port or the bpf_link that holds it in this process"),
            "{text}"
        );
        assert!(text.contains(mode.name()), "{text}");
        let again = attach().expect_err("never over another").to_string();
        assert!(again.contains("already has an XDP program"), "{again}");
        drop(link);
        drop(open(&lab.b, Path::Generic, |port| port));
        assert_clean(&lab.b);
    }
}

/// K13: the kernel does not take away a queue that is bound, so that a port cannot lose one unseen.
#[test]
fn a_bound_queue_cannot_be_taken_away() {
    if !is_root() {
        return;
    }
    let lab = lab("k13chan", 4);
    let port = open(&lab.b, Path::NativeCopy, |port| port.queues([3]));
    let fewer = lab.b.run(|| {
        let mut channels = lab.b.interface.channels().unwrap();
        (channels.rx, channels.tx) = (2, 2);
        let refused = lab.b.interface.set_channels(channels).expect_err("queue 3 is bound");
        assert_eq!(refused.errno(), Some(libc::EINVAL), "{refused}");
        channels
    });
    assert_eq!(lab.b.run(|| lab.b.interface.rx_queues()).unwrap(), 4);
    drop(port);
    // As K7: the kernel's worker frees the queue a moment after the close. It needs the lock that
    // set_channels takes, too.
    let is_free = wait_until(Duration::from_secs(30), || {
        std::thread::sleep(Duration::from_millis(50));
        lab.b.run(|| lab.b.interface.set_channels(fewer)).is_ok()
    });
    assert!(is_free, "queue 3 is still bound");
    let error = try_open(&lab.b, Path::Generic, |port| port.queues([3])).expect_err("gone");
    assert!(
        matches!(
            error,
            Error::NoSuchQueue {
                queue: 3,
                available: 2,
                ..
            }
        ),
        "{error}"
    );
    // Native XDP on a veth wants as many receive queues as the peer has transmit queues.
    assert_eq!(open(&lab.b, Path::Generic, |port| port).queues().len(), 2);
}

/// A panic in a worker thread: program detached, queues free.
#[test]
fn a_panic_in_a_worker_leaves_nothing_behind() {
    if !is_root() {
        return;
    }
    let lab = lab("panic", 2);
    for path in MODES {
        let panicked = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let mut port = open(&lab.b, path, |port| port);
            let mut sender = sender(&lab.a);
            send_numbers(sender.queues_mut().nth(1).unwrap(), 0..20, &lab.a, &lab.b);
            let came = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for queue in port.queues_mut() {
                    let came = &came;
                    scope.spawn(move || {
                        wait_until(PATIENCE, || {
                            let mut burst = queue.recv(Wait::Poll(Duration::from_millis(50))).unwrap();
                            for mut packet in &mut burst {
                                came.store(true, Ordering::Relaxed);
                                packet.send();
                                assert!(packet.is_a_surprise(), "on purpose");
                            }
                            came.load(Ordering::Relaxed)
                        });
                    });
                }
            });
        }));
        assert!(panicked.is_err());
        assert_clean(&lab.b);
    }
}

trait Surprise {
    fn is_a_surprise(&self) -> bool;
}

impl Surprise for ringside_xsk::Packet<'_> {
    fn is_a_surprise(&self) -> bool {
        self.len() == usize::MAX
    }
}

/// After a panic that was caught the queue itself goes on, with all its frames.
#[test]
fn a_panic_in_a_closure_loses_no_frame() {
    if !is_root() {
        return;
    }
    let lab = lab("panicwith", 1);
    let mut port = open(&lab.a, Path::NativeCopy, |port| port);
    let mut peer = open(&lab.b, Path::NativeCopy, |port| port);
    let tx = port.queues_mut().next().unwrap();
    let free = tx.free_frames();
    for _ in 0..1000 {
        let panicked = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let mut n = 0;
            tx.send_with(8, |_| {
                n += 1;
                if n == 5 {
                    std::panic::resume_unwind(Box::new("on purpose"));
                }
            })
        }));
        assert!(panicked.is_err());
    }
    send_numbers(tx, 0..4, &lab.a, &lab.b);
    assert_eq!(collect(peer.queues_mut().next().unwrap(), 4, PATIENCE), [0, 1, 2, 3]);
    assert!(tx.drain(PATIENCE).unwrap());
    assert_eq!(tx.free_frames(), free);
    assert_eq!(tx.counters().tx_packets, 4);
}

/// The XDP program is only detached by whoever attached it: a UDP socket of the kernel works again after a close.
#[test]
fn a_closed_port_gives_the_traffic_back() {
    if !is_root() {
        return;
    }
    let lab = lab("back", 1);
    let (there, here): (UdpSocket, UdpSocket) = (kernel_socket(&lab.b, 5001), kernel_socket(&lab.a, 5002));
    for path in MODES {
        let port = open(&lab.b, path, |port| port);
        there.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        here.send_to(b"to the socket", (lab.b.ipv4, 5001)).unwrap();
        assert!(there.recv(&mut [0; 64]).is_err(), "{path}: redirected");
        drop(port);
        there.set_read_timeout(Some(PATIENCE)).unwrap();
        here.send_to(b"to the kernel", (lab.b.ipv4, 5001)).unwrap();
        let mut data = [0; 64];
        let len = there.recv(&mut data).unwrap();
        assert_eq!(&data[..len], b"to the kernel", "{path}");
    }
}

/// The statistics are the kernel's six and ours, per queue and for the port.
#[test]
fn all_counters_can_be_read() {
    if !is_root() {
        return;
    }
    let lab = lab("stats", 2);
    let mut port = open(&lab.b, Path::NativeCopy, |port| {
        port.options(QueueOptions::new().direction(Direction::Receive).frames(4))
    });
    let mut sender = sender(&lab.a);
    send_numbers(sender.queues_mut().nth(1).unwrap(), 0..10, &lab.a, &lab.b);
    assert_eq!(collect(port.queues_mut().nth(1).unwrap(), 4, PATIENCE).len(), 4);
    wait_until(PATIENCE, || port.stats().unwrap().kernel.rx_fill_ring_empty == 6);
    let stats = port.stats().unwrap();
    assert_eq!(stats.kernel.rx_fill_ring_empty, 6, "{stats:?}");
    assert_eq!(stats.own.rx_packets, 4);
    assert_eq!(port.queues()[0].stats().unwrap().own.rx_packets, 0);
    assert_eq!(port.queues()[1].stats().unwrap().kernel, stats.kernel);
    let json = serde_json::to_value(stats).unwrap();
    let kernel: Vec<&String> = json["kernel"].as_object().unwrap().keys().collect();
    let expected = [
        "rx_dropped",
        "rx_fill_ring_empty",
        "rx_invalid_descs",
        "rx_ring_full",
        "tx_invalid_descs",
        "tx_ring_empty",
    ];
    let mut kernel = kernel;
    kernel.sort();
    assert_eq!(kernel, expected);
}

/// What was obtained and why, for people and for machines.
#[test]
fn the_report_tells_the_mode_and_why() {
    if !is_root() {
        return;
    }
    let lab = lab("report", 2);
    let port = lab
        .b
        .run(|| Port::builder(lab.b.interface.clone()).mode(Mode::Auto).open())
        .unwrap();
    let report = port.report();
    assert_eq!(report.driver.as_deref(), Some("veth"));
    for (q, queue) in report.queues.iter().enumerate() {
        assert_eq!((queue.queue as usize, queue.path), (q, Path::NativeCopy));
        assert!(
            queue
                .refused_modes
                .iter()
                .any(|refused| refused.contains("zero-copy refused")),
            "{queue:?}"
        );
    }
    let text = report.to_string();
    for part in [
        "veth-b (driver veth)",
        "ringside_xsk",
        "native",
        "filter all",
        "queue 0: native copy",
        "zero-copy refused",
        "4096 frames of 2048 B (8192 KiB, normal pages)",
        "need_wakeup",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    let json = serde_json::to_value(report).unwrap();
    assert_eq!(json["queues"][1]["mode"], "native");
    assert_eq!(json["queues"][1]["queue"], 1);
    assert_eq!(json["queues"][1]["memory_bytes"], 4096 * 2048);
    assert!(
        json["queues"][1]["refused_modes"][0]
            .as_str()
            .unwrap()
            .contains("zero-copy refused"),
        "{json}"
    );
    assert_eq!(json["program"]["attached"], "native");
    assert_eq!(json["program"]["filter"], "all");
    let id = lab.b.state().unwrap().xdp.unwrap().prog_id;
    assert_eq!(json["program"]["id"], id);
}

/// Where native XDP cannot be had (K15: the MTU is too large for it), generic is taken and the report says why.
#[test]
fn the_ladder_ends_at_generic_and_says_why() {
    if !is_root() {
        return;
    }
    let lab = ringside_netlab::Lab::veth(ringside_netlab::VethConfig {
        mtu: 3700,
        queues: 2,
        ipv6: false,
        gro: true,
        ..ringside_netlab::VethConfig::tagged("ladder")
    })
    .unwrap();
    let with = |mode| {
        lab.b.run(|| {
            Port::builder(lab.b.interface.clone())
                .mode(mode)
                .options(QueueOptions::new().frame_size(4096).busy_timeout(PATIENCE))
                .open()
        })
    };
    let refused = with(Mode::Require(Path::NativeCopy)).expect_err("too large for a veth's native XDP");
    assert!(matches!(refused, Error::Attach { mode: "native", .. }), "{refused}");
    assert!(refused.to_string().contains("MTU"), "{refused}");
    assert_clean(&lab.b);
    let mut port = with(Mode::Auto).unwrap();
    assert_eq!(port.report().queues[1].path, Path::Generic);
    assert_eq!(port.report().program.as_ref().unwrap().attached, "generic");
    let notes = port.report().queues[1].refused_modes.join("\n");
    assert!(notes.contains("native") && notes.contains("MTU"), "{notes}");
    // And a packet as long as the MTU allows arrives.
    let mut tx = sender_of(&lab.a);
    let mut long = udp(&lab.a, &lab.b, 7, &[5; 3700 - 28]);
    long[..6].copy_from_slice(&lab.b.mac);
    send_one(tx.queues_mut().nth(1).unwrap(), &long);
    let received = port.queues_mut().rev().any(|rx| {
        let mut burst = rx.recv(Wait::Poll(Duration::from_millis(500))).unwrap();
        burst.iter_mut().any(|packet| packet.data() == long)
    });
    assert!(received);
}

fn sender_of(end: &ringside_netlab::End) -> Port {
    open(end, Path::Copy, |port| {
        port.options(QueueOptions::new().direction(Direction::Transmit).frame_size(4096))
    })
}

/// Huge pages that cannot be had are no failure, and told.
#[test]
fn huge_pages_fall_back_and_the_report_says_so() {
    if !is_root() {
        return;
    }
    let reserved: u64 = std::fs::read_to_string("/proc/sys/vm/nr_hugepages")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let lab = lab("huge", 2);
    let mut port = open(&lab.b, Path::NativeCopy, |port| {
        port.options(QueueOptions::new().frames(512).huge_pages(true))
    });
    let report = port.report().queues[1].clone();
    if reserved == 0 {
        assert_eq!(report.pages, ringside_xsk::Pages::Normal);
        assert!(
            report
                .notes
                .iter()
                .any(|note| note.contains("sysctl vm.nr_hugepages=1")),
            "{:?}",
            report.notes
        );
        assert!(port.report().to_string().contains("huge pages were asked for"));
    }
    let mut sender = sender(&lab.a);
    send_numbers(sender.queues_mut().nth(1).unwrap(), 0..100, &lab.a, &lab.b);
    assert_eq!(collect(port.queues_mut().nth(1).unwrap(), 100, PATIENCE).len(), 100);
    let _ = port.queues()[0].as_fd();
}

/// Whoever looks whether a queue is closed neither waits for another reader nor is misled by it.
#[test]
fn a_closed_queue_is_closed_while_another_thread_reads_its_counters() {
    if !is_root() {
        return;
    }
    let lab = lab("closed", 1);
    let mut port = open(&lab.b, Path::NativeCopy, |port| port);
    let reader = only(&mut port).stats_reader();
    assert!(!reader.is_closed());
    drop(port);
    let (ends, reads) = (AtomicBool::new(false), AtomicU32::new(0));
    let looks_open = thread::scope(|scope| {
        let reading = scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                reader.stats().expect("as it was when it was closed");
                reads.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut looks_open = 0;
        while reads.load(Ordering::Relaxed) < 100_000 && !reading.is_finished() {
            looks_open += u32::from(!reader.is_closed());
        }
        ends.store(true, Ordering::Relaxed);
        looks_open
    });
    assert_eq!(looks_open, 0, "answers that it is open");
}
