//! What is no task is named as well: interrupts of a disk, and the soft interrupt that receives others' packets.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Seek as _, Write as _};
use std::path::Path;

use ringside_netlab::testing::skip_unsupported;

use super::*;

/// How long the receiver's CPU is somebody else's, and how seldom: most packets meet nothing.
const BUSY: Duration = Duration::from_millis(8);
const QUIET: Duration = Duration::from_millis(110);

/// At the most.
const RUNS: usize = 20;

/// Sends datagrams that nobody wants: each is received by a soft interrupt of the same CPU, in front of all tasks.
fn flood(cpu: usize, socket: &UdpSocket, end: &AtomicBool) {
    take_cpu(cpu);
    while !end.load(Ordering::Relaxed) {
        let begun = Instant::now();
        while begun.elapsed() < BUSY {
            _ = socket.send(&[0; 64]);
        }
        thread::sleep(QUIET);
    }
}

/// Has a disk write again and again; each time it says that it is done by an interrupt.
fn write_down(path: &Path, end: &AtomicBool) {
    let mut file = File::create(path).expect("a file");
    while !end.load(Ordering::Relaxed) {
        file.rewind().expect("at its beginning");
        file.write_all(&[1; 4096]).expect("written");
        file.sync_data().expect("on the disk");
    }
}

/// Interrupts of devices so far, by their numbers.
fn interrupts() -> BTreeMap<u32, u64> {
    let text = fs::read_to_string("/proc/interrupts").expect("readable");
    let of = |line: &str| {
        let (number, rest) = line.trim_start().split_once(':')?;
        let each = rest.split_ascii_whitespace().map_while(|word| word.parse::<u64>().ok());
        Some((number.parse().ok()?, each.sum()))
    };
    text.lines().filter_map(of).collect()
}

#[test]
fn interrupts_and_soft_interrupts_of_others_are_named() {
    if !is_root() || !has_cpus(2) {
        return;
    }
    let _alone = alone();
    let Lab { a, b, .. } = &lab("traceflood", 1);
    let socket = socket(a, 0);
    // Somebody is there who never reads, so that nobody is told of nobody.
    let _nobody = super::socket(b, 9);
    socket.set_nonblocking(true).expect("set");
    socket.connect((b.ipv4, 9)).expect("connected");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("trace-disk-{}", std::process::id()));
    let end = AtomicBool::new(false);
    let before = interrupts();
    let mut all: Vec<Culprit> = Vec::new();
    let received = |all: &[Culprit]| {
        let is_it = |culprit: &&Culprit| culprit.kind == DisturberKind::SoftInterrupt && culprit.name == "NET_RX";
        let found = all.iter().filter(is_it);
        found.map(|culprit| culprit.more_ns()).fold(0.0, f64::max) > MS / 4.0
    };
    let of_devices = |all: &[Culprit]| -> Vec<String> {
        let found = all.iter().filter(|culprit| culprit.kind == DisturberKind::Interrupt);
        found.map(|culprit| culprit.name.clone()).collect()
    };
    thread::scope(|scope| {
        let _flow = Flow(&end);
        scope.spawn(|| flood(1, &socket, &end));
        scope.spawn(|| write_down(&path, &end));
        // The slowest packet of a run may be slow for another reason, on a machine that has one.
        for _ in 0..RUNS {
            let running = tool("trace --lab veth --rate 200 --cpus 0,1 -t 1.2 --no-cost --json");
            let traced = result(&running.end().good());
            let slow = only(&traced).unwrap().slow.clone().expect("a slowest packet");
            all.extend(slow.culprits);
            if received(&all) && !of_devices(&all).is_empty() {
                break;
            }
        }
    });
    let after = interrupts();
    fs::remove_file(&path).expect("removed");
    assert!(received(&all), "{all:#?}");
    // By number and name, as /proc/interrupts has them; of a device that has had some.
    let named = of_devices(&all);
    assert!(!named.is_empty(), "a disk's, at least: {all:#?}");
    for name in named {
        let (number, name) = name.split_once(' ').expect("both");
        let number: u32 = number.parse().expect("a number");
        assert!(
            !name.is_empty() && after.get(&number) > before.get(&number),
            "{number} {name}"
        );
    }
}

/// Exits from idle states among the culprits of a run at a rate at which the receiver's CPU sleeps between packets, and whether it does, in percent.
fn exits() -> (Vec<Culprit>, u64) {
    let idle = || {
        let text = fs::read_to_string("/proc/stat").expect("readable");
        let line = text
            .lines()
            .find(|line| line.starts_with("cpu1 "))
            .expect("a second CPU");
        line.split_ascii_whitespace()
            .nth(4)
            .and_then(|ticks| ticks.parse::<u64>().ok())
            .expect("ticks")
    };
    let (before, begun) = (idle(), Instant::now());
    let running = tool("trace --lab veth --rate 100 --cpus 0,1 -t 0.8 --no-cost --json");
    let traced = result(&running.end().good());
    // Ticks of 10 ms.
    let percent = (idle() - before) * 1000 / u64::try_from(begun.elapsed().as_millis()).expect("short").max(1);
    let slow = only(&traced).unwrap().slow.clone().expect("a slowest packet");
    let all = slow
        .culprits
        .into_iter()
        .filter(|culprit| culprit.kind == DisturberKind::Idle);
    (all.collect(), percent)
}

/// A CPU that sleeps between packets takes time to wake up, of which a slow packet has more than others sooner or later. One that is kept busy has none.
#[test]
fn the_way_out_of_an_idle_state_is_named_where_there_is_one() {
    if !is_root() || !has_cpus(2) {
        return;
    }
    let _alone = alone();
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        let _flow = Flow(&end);
        scope.spawn(|| {
            pin(1);
            let param = libc::sched_param { sched_priority: 0 };
            // SAFETY: 0 is the calling thread, and `param` is alive for the call, which only reads it.
            let answer = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const param) };
            assert_eq!(answer, 0, "SCHED_IDLE");
            while !end.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let (busy, _) = exits();
        assert!(busy.is_empty(), "{busy:#?}");
    });
    let mut all = Vec::new();
    for _ in 0..RUNS {
        let (named, idle_percent) = exits();
        if named.iter().any(|culprit| culprit.slow_mean_ns > culprit.usual_mean_ns) {
            return;
        }
        all.push(idle_percent);
        // On a machine where others have the CPU there may be no such packet.
        if all.iter().filter(|percent| **percent < 50).count() >= 3 {
            return skip_unsupported(&format!("an idle CPU: CPU 1 was idle for {all:?} %"));
        }
    }
    panic!("no exit from an idle state is named, although the CPU was idle for {all:?} %");
}
