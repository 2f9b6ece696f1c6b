//! Traffic by programs that are not measured.

use std::fs;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ringside_bpf::{Generator, GeneratorOptions};
use ringside_netlab::{End, wait_until};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::Value;

use super::{PATIENCE, Row, Running};

/// Runs iperf3 from the left to the right, and returns what its client and its server report.
pub fn iperf3(row: &Row, options: &str) -> [Value; 2] {
    let mut server = row.right.b.ns.command("iperf3");
    server.args(["-s", "-1", "-J"]);
    let server = Running::new(server);
    let listens = || {
        let there = |file: &str| fs::read_to_string(file).is_ok_and(|text| text.contains(":1451 "));
        (row.right.b).run(|| there("/proc/thread-self/net/tcp6") || there("/proc/thread-self/net/tcp"))
    };
    assert!(wait_until(PATIENCE, listens), "iperf3 does not listen");
    let mut client = row.left.a.ns.command("iperf3");
    client
        .args(["-J", "-c", &row.right.b.ipv4.to_string()])
        .args(options.split(' '));
    [Running::new(client), server].map(|program| serde_json::from_str(&program.end().good().out).expect("JSON"))
}

/// Returns the kernel's generator of frames of a protocol that no host knows.
pub fn generator(from: &End, to: &End, size: usize) -> Generator {
    let mut frame = [to.mac, from.mac].concat();
    frame.extend_from_slice(&[0x88, 0xb5]);
    frame.resize(size, 7);
    let options = GeneratorOptions {
        rewrite: 16,
        ..GeneratorOptions::default()
    };
    from.run(|| Generator::new(from.interface.index(), &frame, options))
        .expect("loads")
}

/// Runs a generator on CPU 0, for this time or until it is stopped.
pub fn generate(generator: &mut Generator, time: Duration, stop: &AtomicBool) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut cpu = CpuSet::new();
            cpu.set(0);
            sched_setaffinity(None, &cpu).expect("CPU 0");
            generator.run_for(time, stop).expect("runs")
        });
    });
}
