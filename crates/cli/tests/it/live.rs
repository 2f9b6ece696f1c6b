//! What running commands offer to others: statistics through a socket, metrics over HTTP.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use crate::common;
use crate::common::live::{Folder, address, http, scrape, sum};
use crate::common::{assert_clean, lab, row, run};
use ringside_measure::live::{SCHEMA, Snapshot};
use ringside_measure::schema::Mode;
use ringside_netlab::testing::is_root;
use ringside_netlab::wait_until;

fn received(snapshot: &Snapshot) -> u64 {
    snapshot
        .queues
        .iter()
        .map(|queue| queue.counters.received_packets)
        .sum()
}

fn sent(snapshot: &Snapshot) -> u64 {
    snapshot.queues.iter().map(|queue| queue.counters.sent_packets).sum()
}

/// Every packet is in it, and every frame; it only grows; in the end it is what the result says, and the socket is gone.
#[test]
fn a_receiver_tells_where_its_packets_and_frames_are() {
    if !is_root() {
        return;
    }
    let (lab, folder) = (lab("livetell", 2), Folder::new());
    let (receiver, mut asker) = folder.start_asked(&lab.b, "rx {} --wait poll --json");
    let mode = std::fs::metadata(&folder.sockets()[0]).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "for its user alone");

    let before = asker.ask();
    assert_eq!(
        (&before.schema[..], &before.command[..], before.pid),
        (SCHEMA, "rx", receiver.pid())
    );
    let namespace = lab
        .b
        .run(|| rustix::fs::stat("/proc/thread-self/ns/net").unwrap().st_ino);
    assert_eq!(before.network_namespace, namespace);
    assert_eq!(before.queues.len(), 2);
    assert_eq!((received(&before), before.latency.is_some()), (0, false));

    let count = 3000;
    let tx = format!("tx {{}} --to {} --rate 20000 --count {count}", lab.b.ipv4);
    let sender = folder.start(&lab.a, &tx);
    let mut last = before;
    while received(&last) < count {
        let next = asker.ask_until("growing", |now| now.uptime_ns > last.uptime_ns);
        for (queue, before) in next.queues.iter().zip(&last.queues) {
            assert_eq!(queue.mode, Mode::NativeCopy);
            assert!(queue.counters.received_packets >= before.counters.received_packets);
            assert!(queue.received_bytes >= before.received_bytes && queue.wakeups >= before.wakeups);
            // A thread that the machine did not run has told nothing yet.
            if let Some(frames) = queue.frames {
                assert_eq!(frames.total(), 4096, "{frames:?}");
                assert!(frames.fill <= queue.rings.fill_slots, "{queue:?}");
            }
            let verdicts = queue.counters.xdp_verdicts.unwrap();
            assert!(
                verdicts.redirected_packets >= queue.counters.received_packets,
                "{queue:?}"
            );
        }
        let kernel = next.queues.iter().map(|queue| queue.counters.xdp_statistics.unwrap());
        let lost: u64 = kernel.map(|kernel| kernel.rx_dropped + kernel.rx_ring_full).sum();
        if lost != 0 && received(&next) + lost >= count {
            // A machine that is busy with other things.
            break;
        }
        last = next;
    }
    sender.end().good();
    let last = asker.ask();
    let result = receiver.interrupt().good().result();
    for (queue, told) in result.queues.iter().zip(&last.queues) {
        assert_eq!(queue.received_packets, told.counters.received_packets);
        assert_eq!(queue.xdp_statistics, told.counters.xdp_statistics);
    }
    assert!(folder.sockets().is_empty(), "{:?}", folder.sockets());
    assert_clean(&lab.b);
}

/// The others: what they send and forward, on both interfaces, and the times of a prober.
#[test]
fn every_long_run_tells() {
    if !is_root() {
        return;
    }
    let folder = Folder::new();
    let row = row("liverow");
    let (far, middle, near) = (&row.left.a, &row.left.b, &row.right.b);
    let (fwd_run, mut fwd) = folder.start_asked(middle, "fwd {} --out out");
    let (_rx, mut rx) = folder.start_asked(near, "rx {} --wait poll");
    let mac = ringside_wire::MacAddr(near.mac);
    let (_tx, mut tx) = folder.start_asked(far, &format!("tx {{}} --to-mac {mac} --from-mac {mac} --rate 5000"));
    let told = fwd.ask_until("forwarding", |now| sent(now) > 100 && received(now) > 100);
    let names = Vec::from_iter(told.queues.iter().map(|queue| &queue.counters.interface[..]));
    assert_eq!((&told.command[..], names), ("fwd", vec!["in", "out"]));
    assert!(tx.ask_until("sending", |now| sent(now) > 100).queues[0].completed_frames > 0);
    rx.ask_until("receiving", |now| received(now) > 100);
    fwd_run.interrupt().good();
    let (_impair, mut impair) = folder.start_asked(middle, "impair in,out --delay 1ms --wait poll");
    let told = impair.ask_until("handing on", |now| sent(now) > 100 && received(now) > 100);
    assert_eq!((&told.command[..], told.queues.len()), ("impair", 2));

    let lab = lab("liveping", 1);
    let (_echo, mut echo) = folder.start_asked(&lab.b, "echo {} --wait poll");
    let ping = format!("ping {{}} --to {} --rate 2000 --wait poll", lab.b.ipv4);
    let (prober, mut ping) = folder.start_asked(&lab.a, &ping);
    let told = ping.ask_until("timing", |now| {
        now.latency
            .as_ref()
            .and_then(|times| times.raw)
            .is_some_and(|times| times.samples > 200)
    });
    let (times, histogram) = (
        told.latency.as_ref().unwrap().raw.unwrap(),
        told.latency.as_ref().unwrap().histogram(),
    );
    assert_eq!(histogram.unwrap().samples(), times.samples);
    assert!(
        times.min_ns > 0 && times.p50_ns.is_some() && times.min_ns <= times.max_ns,
        "{times:?}"
    );
    echo.ask_until("answering", |now| sent(now) > 200 && received(now) >= sent(now));
    assert_eq!(folder.sockets().len(), 5);

    // By deadlines, with a thread that sleeps most of the time.
    prober.interrupt().good();
    let (_cycle, mut cycle) = folder.start_asked(&lab.a, &format!("tx {{}} --to {} --cycle 5ms", lab.b.ipv4));
    cycle.ask_until("sending by deadlines", |now| sent(now) > 20);
}

/// Metrics grow, add up, and are in the end what the result says; whatever else is asked for has an answer too.
#[test]
fn metrics_are_those_of_the_result() {
    if !is_root() {
        return;
    }
    let (lab, folder) = (lab("livemetrics", 2), Folder::new());
    let rx = folder.start(&lab.b, "rx {} --wait poll --prometheus 0 --json");
    rx.wait_for("XDP program ringside_xsk");
    let to = address(&rx);
    assert!(to.ip().is_loopback(), "{to}");
    let interface = lab.b.interface.name();

    let before = scrape(&lab.b, to);
    let received = |samples: &[_]| sum(samples, "ringside_received_packets_total", &[("interface", interface)]);
    assert_eq!(received(&before), 0.0);
    assert_eq!(sum(&before, "ringside_run_info", &[("command", "rx")]), 1.0);
    assert_eq!(
        sum(
            &before,
            "ringside_build_info",
            &[("version", env!("CARGO_PKG_VERSION"))]
        ),
        1.0
    );

    let count: u32 = 2000;
    run(
        &lab.a,
        &format!("tx {{}} --to {} --rate 20000 --count {count} --size 200", lab.b.ipv4),
    )
    .good();
    let mut last = before;
    let all = ringside_netlab::wait_until(common::PATIENCE, || {
        let now = scrape(&lab.b, to);
        assert!(received(&now) >= received(&last), "counters only grow");
        last = now;
        received(&last) + sum(&last, "ringside_lost_packets_total", &[]) >= f64::from(count)
    });
    assert!(all, "{last:#?}");
    for queue in ["0", "1"] {
        assert_eq!(
            sum(&last, "ringside_umem_frames", &[("queue", queue)]),
            4096.0,
            "all frames are somewhere"
        );
    }
    assert!(sum(&last, "ringside_received_bytes_total", &[]) >= received(&last) * 200.0 - 1.0);

    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "404"),
        ("DELETE /metrics HTTP/1.1\r\n\r\n", "405"),
        ("nonsense\r\n\r\n", "400"),
    ] {
        let (head, body) = http(&lab.b, to, request);
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status} ")) && body.ends_with('\n'),
            "{head}"
        );
    }
    // In a browser it is text.
    let (head, _) = http(&lab.b, to, "GET /metrics HTTP/1.1\r\nAccept: text/html\r\n\r\n");
    assert!(head.contains("text/plain"), "{head}");

    let result = rx.interrupt().good().result();
    let its: u64 = result.queues.iter().map(|queue| queue.received_packets).sum();
    #[allow(clippy::cast_precision_loss, reason = "some thousand packets")]
    let its = its as f64;
    assert_eq!(received(&last), its);
    for queue in &result.queues {
        let labels = [("interface", interface), ("queue", &queue.queue.to_string())];
        #[allow(clippy::cast_precision_loss, reason = "some thousand packets")]
        let redirected = queue.xdp_verdicts.unwrap().redirected_packets as f64;
        assert_eq!(sum(&last, "ringside_xdp_redirected_packets_total", &labels), redirected);
    }
    assert_clean(&lab.b);
}

/// Times of a prober are a histogram in seconds.
#[test]
fn metrics_of_a_prober_have_its_times() {
    if !is_root() {
        return;
    }
    let (lab, folder) = (lab("livetimes", 1), Folder::new());
    let _echo = folder.start_asked(&lab.b, "echo {} --wait poll");
    let ping = format!(
        "ping {{}} --to {} --wait poll --prometheus 127.0.0.1:0 --json",
        lab.b.ipv4
    );
    let ping = folder.start(&lab.a, &ping);
    let to = address(&ping);
    let count = |samples: &[_]| sum(samples, "ringside_round_trip_seconds_count", &[]);
    // They are there when its worker is, and a run that has sent nothing fails.
    let (mut samples, mut buckets) = (Vec::new(), Vec::new());
    let has_times = wait_until(common::PATIENCE, || {
        samples = scrape(&lab.a, to);
        let of_times = samples.iter().filter(|sample| sample.name.ends_with("_bucket"));
        buckets = of_times.map(|sample| sample.value).collect();
        count(&samples) > 0.0
    });
    assert!(has_times && buckets.len() == 20, "{buckets:?}");
    assert!(buckets.is_sorted(), "{buckets:?}");
    assert_eq!(*buckets.last().unwrap(), count(&samples));
    let mean = sum(&samples, "ringside_round_trip_seconds_sum", &[]) / count(&samples).max(1.0);
    assert!((0.0..1.0).contains(&mean), "{mean}");
    ping.interrupt().good();
}

/// What cannot be listened at is told before anything is opened.
#[test]
fn addresses_that_cannot_be_had() {
    if !is_root() {
        return;
    }
    let lab = lab("liveaddress", 1);
    let taken = lab.a.run(|| TcpListener::bind("127.0.0.1:0").unwrap());
    let taken = taken.local_addr().unwrap();
    for (option, told) in [
        (taken.to_string(), "another program listens there"),
        (
            "192.0.2.99:9464".into(),
            "no interface of this network namespace that is up has that address",
        ),
        ("localhost".into(), "neither a port nor an IP address with one"),
    ] {
        let message = run(&lab.a, &format!("rx {{}} --prometheus {option}")).refused();
        assert!(message.contains(told) && message.contains("--prometheus"), "{message}");
    }
    let packets = format!(
        "tx {{}} --to-mac 02:00:00:00:00:01 --cycle 1ms --via af-packet --prometheus 0 --from 10.0.0.1 --to {}",
        lab.b.ipv4
    );
    let message = run(&lab.a, &packets).refused();
    assert!(message.contains("does not go with --prometheus"), "{message}");
    assert_clean(&lab.a);
}

/// A socket that a killed process left is removed by the next; and who may not write there runs all the same.
#[test]
fn a_kill_leaves_nothing_for_long() {
    if !is_root() {
        return;
    }
    let (lab, folder) = (lab("livekill", 1), Folder::new());
    let (receiver, _) = folder.start_asked(&lab.a, "rx {}");
    let left = folder.socket(receiver.pid()).unwrap();
    receiver.signal(libc::SIGKILL);
    drop(receiver);
    assert!(left.exists());
    let (next, _) = folder.start_asked(&lab.a, "rx {}");
    assert!(!left.exists());
    assert_eq!(folder.sockets(), [folder.socket(next.pid()).unwrap()]);
    next.interrupt();

    // Somebody else's directory.
    std::fs::set_permissions(&folder.0, std::fs::Permissions::from_mode(0o777)).unwrap();
    folder
        .start(&lab.a, "tx {} --to-mac 02:00:00:00:00:09 --from 10.0.0.1 --count 10")
        .end()
        .good();
    assert!(folder.sockets().is_empty());
}
