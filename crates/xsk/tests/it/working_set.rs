//! How many frames wait for packets: all of an idle queue, few under steady load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringside_bpf::{Generator, GeneratorOptions};
use ringside_netlab::testing::is_root;
use ringside_netlab::{Lab, VethConfig};
use ringside_xsk::testing::{Harness, Kernel, Ring, set_clock};
use ringside_xsk::{Direction, Path, Queue, QueueOptions, Wait};

use crate::common::traffic::{expect, only, packets, send};
use crate::common::{PATIENCE, open, roomy};

/// A queue under load, with a clock of its own: a busy machine's gaps count as pauses.
struct Load {
    queue: Queue,
    kernel: Kernel,
    now: Duration,
}

impl Load {
    fn on(options: QueueOptions, path: Path) -> Self {
        set_clock(Some(Duration::ZERO));
        let (queue, kernel) = Harness::new(options).path(path).open().expect("opens");
        Self {
            queue,
            kernel,
            now: Duration::ZERO,
        }
    }

    /// Delivers 320,000 packets a second for a time, 32 together.
    fn steady(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.pass(Duration::from_micros(100));
            for _ in 0..32 {
                assert!(self.kernel.deliver(&[7; 60]));
            }
            assert_eq!(self.queue.recv(Wait::Spin).expect("receives").len(), 32);
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        set_clock(Some(self.now));
    }

    fn look(&mut self, wait: Wait) {
        assert!(self.queue.recv(wait).expect("receives").is_empty());
    }

    fn waiting(&self) -> u32 {
        self.kernel.queued(Ring::Fill)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        set_clock(None);
    }
}

#[test]
fn steady_load_leaves_few_frames_waiting_and_a_pause_restores_all() {
    type Pause = fn(&mut Load);
    let pauses: [(&str, Pause); 3] = [
        ("spinning", |load| {
            for _ in 0..40 {
                load.pass(Duration::from_millis(1));
                load.look(Wait::Spin);
            }
        }),
        ("sleeping", |load| load.look(Wait::Poll(Duration::from_millis(50)))),
        ("away", |load| {
            load.pass(Duration::from_millis(50));
            load.look(Wait::Spin);
        }),
    ];
    for (name, pause) in pauses {
        let mut load = Load::on(QueueOptions::new(), Path::Copy);
        assert_eq!(load.waiting(), 2048);
        for times in 1..4 {
            load.steady(Duration::from_millis(20));
            assert!(load.waiting() > 2000, "{name}: {}", load.waiting());
            load.steady(Duration::from_millis(80));
            assert!(load.waiting() <= 1024, "{name}: {}", load.waiting());
            assert_eq!(load.queue.counters().rx_shrunk, times, "{name}");
            pause(&mut load);
            assert_eq!(load.waiting(), 2048, "{name}");
            load.queue.ledger().expect("each frame has one owner");
        }
    }
}

/// The kernel's generator pauses between its runs, and whoever shares the CPUs makes more pauses.
#[test]
fn a_real_sender_without_pauses_leaves_few_frames_waiting() {
    if !is_root() {
        return;
    }
    let config = VethConfig {
        ipv6: false,
        gro: true,
        ..VethConfig::tagged("steady")
    };
    let lab = Lab::veth(config).expect("test bed");
    let options = QueueOptions::new().direction(Direction::Receive);
    let mut receiver = open(&lab.b, Path::NativeCopy, |port| port.options(options.clone()));
    let [packet] = packets(0..1, 60, &lab.a, &lab.b).try_into().expect("one");
    let load = || Generator::new(lab.a.interface.index(), &packet, GeneratorOptions::default());
    let mut generator = lab.a.run(load).expect("loads");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| generator.run_for(PATIENCE, &stop).expect("runs"));
        let queue = only(&mut receiver);
        let end = Instant::now() + PATIENCE;
        while queue.counters().rx_shrunk == 0 && Instant::now() < end {
            drop(queue.recv(Wait::Spin).expect("receives"));
        }
        stop.store(true, Ordering::Relaxed);
        assert_ne!(queue.counters().rx_shrunk, 0, "{:?}", queue.counters());
    });
}

#[test]
fn the_working_set_can_be_chosen_and_is_all_frames_with_zero_copy() {
    for (path, packets, waiting) in [
        (Path::Copy, 100, 100),
        (Path::Copy, u32::MAX, 2048),
        (Path::ZeroCopy, 100, 2048),
    ] {
        let options = QueueOptions::new().frames(4096).working_set(packets);
        let mut load = Load::on(options, path);
        load.steady(Duration::from_millis(400));
        load.look(Wait::Spin);
        assert_eq!(load.waiting(), waiting, "{path}");
    }
    let error = Harness::new(QueueOptions::new().working_set(0))
        .open()
        .map(drop)
        .expect_err("nothing would be received");
    assert!(error.to_string().contains("working_set = 0"), "{error}");
}

#[test]
fn a_burst_of_a_thousand_packets_finds_an_idle_queue_ready() {
    if !is_root() {
        return;
    }
    for (path, direction) in [
        (Path::NativeCopy, Direction::Both),
        (Path::NativeCopy, Direction::Receive),
        (Path::Generic, Direction::Both),
    ] {
        let config = VethConfig {
            ipv6: false,
            ..VethConfig::tagged("burst")
        };
        let lab = Lab::veth(config).expect("test bed");
        let mut receiver = open(&lab.b, path, |port| {
            port.options(QueueOptions::new().direction(direction))
        });
        let mut sender = open(&lab.a, Path::NativeCopy, |port| port.options(roomy()));
        let burst = packets(0..1000, 100, &lab.a, &lab.b);
        send(only(&mut sender), &burst);
        let rx = only(&mut receiver);
        expect(rx, Wait::Poll(PATIENCE), &burst);
        let kernel = rx.stats().expect("statistics").kernel;
        assert_eq!((kernel.rx_fill_ring_empty, kernel.rx_dropped), (0, 0), "{path}");
    }
}
