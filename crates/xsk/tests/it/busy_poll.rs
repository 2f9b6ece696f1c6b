//! Busy-polling that drives the driver, what it needs changed, and that everything is put back.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use crate::common;
use crate::common::{PATIENCE, assert_clean, collect, lab, leading_to, open, send_numbers, sender, within};
use ringside_netlab::testing::is_root;
use ringside_xsk::{BusyPoll, BusyPolling, Deferral, Path, Port, QueueOptions, ThreadedNapi, Wait};

fn deferral() -> Deferral {
    Deferral {
        defer_hard_irqs: 2,
        gro_flush_timeout: Duration::from_micros(200),
        ..Deferral::default()
    }
}

fn busy() -> QueueOptions {
    QueueOptions::new().busy_poll(BusyPoll::with_budget(64))
}

fn since_6_14() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse::<u32>().unwrap());
    (numbers.next(), numbers.next()) >= (Some(6), Some(14))
}

/// Receives by busy-polling until `enough` packets came, or none for a while.
fn busily(port: &mut Port, queue: usize, enough: usize) -> Vec<u64> {
    let queue = port.queues_mut().nth(queue).unwrap();
    let mut last = std::time::Instant::now();
    let mut got = Vec::new();
    while got.len() < enough && last.elapsed() < PATIENCE {
        let mut burst = queue.recv(Wait::BusyPoll).unwrap();
        if !burst.is_empty() {
            last = std::time::Instant::now();
        }
        got.extend(burst.iter_mut().filter_map(|packet| common::check(packet.data())));
    }
    got
}

/// With deferral the turns of busy-polling bring the packets, or it is told that they cannot; and the interface is as
/// before when the port is closed.
#[test]
fn busy_polling_drives_the_driver_and_leaves_no_trace() {
    if !is_root() {
        return;
    }
    let lab = lab("busy", 2);
    let before = lab.b.run(|| lab.b.interface.napi().unwrap());
    let mut port = open(&lab.b, Path::NativeCopy, |port| {
        port.options(busy()).deferral(deferral())
    });
    let during = lab.b.run(|| lab.b.interface.napi().unwrap());
    assert_eq!(
        (during.defer_hard_irqs, during.gro_flush_timeout),
        (2, Duration::from_micros(200))
    );
    let report = port.report().to_string();
    assert!(
        report.contains("interrupts deferred for 2 empty polls, 200 µs each"),
        "{report}"
    );
    assert_eq!(port.queues()[1].busy_polling(), BusyPolling::Off, "no turn so far");
    drop(port.queues_mut().nth(1).unwrap().recv(Wait::BusyPoll).unwrap());
    assert_eq!(port.queues()[1].busy_polling(), BusyPolling::Waiting);

    let mut source = sender(&lab.a);
    let port = within(Duration::from_secs(20), move || {
        std::thread::scope(|scope| {
            let (a, b) = (lab.a.clone(), lab.b.clone());
            let source = &mut source;
            scope.spawn(move || {
                for n in 0..200 {
                    send_numbers(source.queues_mut().nth(1).unwrap(), n..n + 1, &a, &b);
                    std::thread::sleep(Duration::from_micros(300));
                }
            });
            assert!(busily(&mut port, 1, 200).into_iter().eq(0..200));
        });
        (port, lab)
    });
    let state = port.0.queues()[1].busy_polling();
    // Since Linux 6.14 a copy path has no NAPI instance to poll (`BusyPolling`).
    match state {
        BusyPolling::Driving { polls, fruitful } => {
            assert!(!since_6_14() && fruitful > 0 && polls >= fruitful, "{state}");
            assert_eq!(state.warning(), None);
        }
        state => {
            assert!(since_6_14() && state == BusyPolling::NoNapi, "{state}");
            assert!(state.warning().unwrap().contains("Linux 6.14"));
        }
    }
    let lab = port.1;
    drop(port.0);
    let after = lab.b.run(|| lab.b.interface.napi().unwrap());
    assert_eq!(after, before);
    assert_clean(&lab.b);
}

/// Where it cannot work, it is said.
#[test]
fn busy_polling_that_does_nothing_is_told() {
    if !is_root() {
        return;
    }
    let lab = lab("busy-not", 3);
    let mut port = open(&lab.b, Path::Generic, |port| port.options(busy()));
    let mut source = sender(&lab.a);
    let tx = leading_to(1, Path::Generic);
    send_numbers(source.queues_mut().nth(tx).unwrap(), 0..10, &lab.a, &lab.b);
    drop(port.queues_mut().nth(1).unwrap().recv(Wait::Poll(PATIENCE)).unwrap());
    drop(port.queues_mut().nth(1).unwrap().recv(Wait::BusyPoll).unwrap());
    let state = port.queues()[1].busy_polling();
    assert_eq!(state, BusyPolling::NoNapi);
    assert!(state.warning().unwrap().contains("generic XDP"), "{state}");
}

/// On one socket, one way to wait after the other; what is refused leaves it as it was.
#[test]
fn busy_polling_is_switched_on_and_off() {
    if !is_root() {
        return;
    }
    let lab = lab("busy-switch", 1);
    let mut port = open(&lab.b, Path::NativeCopy, |port| port);
    let queue = port.queues_mut().next().unwrap();
    let options = |queue: &ringside_xsk::Queue| {
        let socket = socket_options(queue);
        (queue.report().busy_poll, socket)
    };
    assert_eq!(options(queue), (None, [0, 0]));
    let senseless = BusyPoll {
        budget: 1 << 16,
        micros: 30,
    };
    let error = queue.set_busy_poll(Some(senseless)).unwrap_err().to_string();
    assert!(error.contains("a poll handles 1 to 65535 packets"), "{error}");
    assert_eq!(options(queue), (None, [0, 0]));
    let wanted = BusyPoll::with_budget(16);
    queue.set_busy_poll(Some(wanted)).unwrap();
    assert_eq!(options(queue), (Some(wanted), [1, 20]));
    queue.set_busy_poll(None).unwrap();
    assert_eq!(options(queue), (None, [0, 0]));
    drop(queue.recv(Wait::BusyPoll).unwrap());
    assert_eq!(queue.busy_polling(), BusyPolling::Off);
}

/// Whether busy-polling is preferred, and for how many microseconds.
fn socket_options(queue: &ringside_xsk::Queue) -> [i32; 2] {
    // https://elixir.bootlin.com/linux/v6.18/source/include/uapi/asm-generic/socket.h#L119
    const SO_PREFER_BUSY_POLL: i32 = 69;
    [SO_PREFER_BUSY_POLL, libc::SO_BUSY_POLL].map(|option| {
        let (mut value, mut length) = (0_i32, 4);
        // SAFETY: the kernel writes at most `length` bytes, 4, to a live `i32`, and the length to a live `u32`.
        let answer = unsafe {
            libc::getsockopt(
                queue.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw mut value).cast(),
                &raw mut length,
            )
        };
        assert_eq!(answer, 0, "option {option}");
        value
    })
}

/// Kernel threads poll the queues, where they were pinned to, and are gone with the port.
#[test]
fn threaded_napi_is_pinned_and_put_back() {
    if !is_root() {
        return;
    }
    let lab = lab("threaded", 2);
    let mut port = open(&lab.b, Path::NativeCopy, |port| {
        port.threaded_napi(ThreadedNapi { cpus: vec![0] })
    });
    let threads = lab.b.run(|| lab.b.interface.napi_threads().unwrap());
    assert!(!threads.is_empty());
    for thread in &threads {
        assert!(thread.name.starts_with("napi/veth-b-"), "{thread:?}");
        let status = std::fs::read_to_string(format!("/proc/{}/status", thread.pid)).unwrap();
        assert!(status.lines().any(|line| line == "Cpus_allowed_list:\t0"), "{status}");
    }
    let report = port.report().to_string();
    assert!(report.contains("NAPI in kernel threads: napi/veth-b-"), "{report}");
    let mut source = sender(&lab.a);
    send_numbers(source.queues_mut().nth(1).unwrap(), 0..50, &lab.a, &lab.b);
    assert!(
        collect(port.queues_mut().nth(1).unwrap(), 50, PATIENCE)
            .into_iter()
            .eq(0..50)
    );
    drop(port);
    assert!(!lab.b.run(|| lab.b.interface.napi().unwrap().threaded));
    assert_clean(&lab.b);
}
