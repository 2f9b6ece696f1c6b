//! Threads that have no CPU while they measure: said before a run where it is to be expected, and
//! of a result.

use std::process::{Child, Command};

use crate::common::{Done, Running, lab, run, start, start_receiver, unwrapped};
use ringside_measure::validity::{Reason, Validity};
use ringside_netlab::End;
use ringside_netlab::testing::{expect, is_root, measured};

const SEND: &str = "tx {} --to-mac 02:00:00:00:00:01 --rate 1000";

const SEARCH: &str = "--quick --trial 50ms --first-trial 20ms --sum 200ms --to-rate 20000 \
                      --exceed 90 --even-if-unstable --loss 5 --no-latency --json";

/// A process that keeps a CPU busy, ended with the value.
struct Hog(Child);

impl Hog {
    fn start(cpus: &str) -> Self {
        let busy = ["-c", cpus, "sh", "-c", "while :; do :; done"];
        Self(Command::new("taskset").args(busy).spawn().expect("taskset runs"))
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Runs the program, and again if it had no CPU for as long as its run or a connection's silence.
fn sampled(end: &End, line: &str) -> Done {
    measured(|| {
        let done = run(end, line);
        expect(done.status.success(), &done.err)?;
        Ok(done)
    })
}

/// Returns what was judged of a result, which has to be invalid because threads waited for a CPU.
fn contention(done: &Done) -> Validity {
    let validity = done.document().validity.expect("judged");
    let mut reasons = validity.reasons.iter().map(|invalid| invalid.reason);
    assert!(reasons.any(|reason| reason == Reason::CpuContention), "{validity:?}");
    validity
}

#[test]
fn a_result_of_a_busy_cpu_is_invalid() {
    if !is_root() {
        return;
    }
    let lab = lab("valid-busy", 1);
    let _hogs = [(); 2].map(|()| Hog::start("0"));
    let done = sampled(&lab.a, &format!("{SEND} -c 0 -t 500ms --wait spin"));
    let text = unwrapped(&done.out);
    // The hypervisor may have taken some of it, too.
    for part in [
        "INVALID: ",
        "other processes had the CPU for ",
        "while one of ours was ready",
    ] {
        assert!(text.contains(part), "{done:#?}");
    }
    let done = sampled(&lab.a, &format!("{SEND} -c 0 -t 500ms --wait spin --json"));
    let validity = contention(&done);
    assert!(validity.cpu_wait_percent > Some(4.0), "{validity:?}");
    let threads = done.result().cpu_stages.expect("read").threads;
    assert!(threads.iter().any(|thread| thread.wait_ns > Some(0)), "{threads:?}");
}

/// Results of rounds are judged by the CPU time that their threads waited for.
#[test]
fn results_of_rounds_on_busy_cpus_are_invalid() {
    if !is_root() {
        return;
    }
    let lab = lab("valid-rounds", 1);
    let _hogs = ["0", "1", "0", "1"].map(Hog::start);
    for line in [
        "compare --variants udp-blocking,af-packet --operations tx --rounds 2 --slot-ms 50",
        "sweep --for tx-rate --rounds 1 --confirm 1 --slot-ms 50 --knob batch=8,64",
        "delay --waits spin --samples 60 --rounds 1 --interval 400us",
    ] {
        let done = run(&lab.a, &format!("{line} --lab veth --json --require-valid"));
        assert!(
            done.bad().contains("--require-valid: the result is invalid"),
            "{done:#?}"
        );
        let validity = contention(&done);
        assert!(validity.cpu_wait_percent > Some(4.0), "{line}: {validity:?}");
    }
}

#[test]
fn results_of_both_ends_of_a_path_on_busy_cpus_are_invalid() {
    if !is_root() {
        return;
    }
    let lab = lab("valid-ends", 1);
    let _hogs = ["0", "1", "0", "1"].map(Hog::start);
    let to = lab.b.ipv4;
    for (receiver, sender) in [
        ("echo {}", format!("ping {{}} --to {to}")),
        ("rx {}", format!("tx {{}} --to {to} --rate 1000")),
    ] {
        let far = start_receiver(&lab.b, &format!("{receiver} --wait spin --json"));
        let near = sampled(&lab.a, &format!("{sender} -t 500ms --wait spin --json"));
        for done in [near, far.interrupt().good()] {
            let validity = contention(&done);
            assert!(validity.cpu_wait_percent > Some(4.0), "{validity:?}");
        }
    }
}

#[test]
fn a_search_on_busy_cpus_is_invalid() {
    if !is_root() {
        return;
    }
    let lab = lab("valid-search", 1);
    let _hogs = ["0", "1", "0", "1"].map(Hog::start);
    let line = format!("search --lab veth {SEARCH} --require-valid");
    let done = run(&lab.a, &line);
    let message = done.bad();
    assert!(message.contains("--require-valid: the result is invalid"), "{message}");
    let validity = contention(&done);
    assert!(validity.cpu_wait_percent > Some(4.0), "{validity:?}");
}

/// The other end of a test bed is a process of its own.
#[test]
fn a_search_whose_echo_is_on_a_busy_cpu_is_invalid() {
    if !is_root() {
        return;
    }
    let lab = lab("valid-echo", 1);
    let _hogs = [(); 2].map(|()| Hog::start("0"));
    let mut command = lab.a.ns.command("taskset");
    let line = format!(
        "-c 0 {} search --lab veth -c 1 {SEARCH}",
        env!("CARGO_BIN_EXE_ringside")
    );
    command.args(line.split_whitespace());
    let validity = contention(&Running::new(command).end().good());
    // Beside two others it has a third of the CPU.
    assert!(validity.cpu_wait_percent > Some(30.0), "{validity:?}");
}

/// Only the server's CPU is busy: nothing else would say why the times are long.
#[test]
fn a_client_reports_the_cpu_time_that_its_server_lost() {
    if !is_root() {
        return;
    }
    let lab = lab("valid-far", 1);
    let _hogs = [(); 2].map(|()| Hog::start("0"));
    let server = start(&lab.b, "serve {} --insecure -c 0 --wait spin");
    server.wait_for("on TCP port");
    let line = format!("ping {} -c 1 --wait spin -t 500ms", lab.b.ipv4);
    let text = unwrapped(&sampled(&lab.a, &line).out);
    assert!(
        text.contains("at the far end other processes had the CPU for"),
        "{text}"
    );
    let done = sampled(&lab.a, &format!("{line} --json"));
    contention(&done);
    let far = done.document().far.expect("a far end");
    assert!(far.cpu_wait_percent > Some(4.0), "{far:#?}");
    // In rounds it counts turn by turn.
    let line = format!(
        "compare {} --cpus 1,0 --operations rx --variants udp-blocking --rounds 3 \
         --slot-ms 100 --json",
        lab.b.ipv4
    );
    let done = sampled(&lab.a, &line);
    let validity = contention(&done);
    let mut texts = validity.reasons.iter().map(|invalid| &invalid.text);
    assert!(
        texts.any(|text| text.starts_with("at the far end other processes had the CPU for")),
        "{validity:?}"
    );
    let far = done.document().far.expect("a far end");
    assert!(far.cpu_wait_percent > Some(4.0), "{far:#?}");
}

#[test]
fn more_spinning_threads_than_cpus_are_warned_of() {
    if !is_root() {
        return;
    }
    let lab = lab("valid-spin", 2);
    let warning = "2 threads spin on 1 CPU(s)";
    for (options, warns) in [
        ("--wait spin", true),
        ("--wait poll", false),
        ("--wait spin -q 0", false),
    ] {
        let done = run(&lab.a, &format!("{SEND} -t 200ms -c 0 {options}")).good();
        assert_eq!(done.err.contains(warning), warns, "{options}: {done:#?}");
    }
}

/// The server has a thread for each queue, and the ping one for all.
#[test]
fn spinning_threads_of_a_server_on_this_machine_are_counted() {
    if !is_root() {
        return;
    }
    let cpus = rustix::thread::sched_getaffinity(None).unwrap().count();
    let lab = lab("valid-sum", cpus);
    let warning = format!(
        "{} threads spin on {cpus} CPU(s), {cpus} of them of the other end",
        cpus + 1
    );
    for (options, warns) in [("--wait spin", true), ("--wait poll", false)] {
        let server = start(&lab.b, &format!("serve {{}} --insecure {options}"));
        server.wait_for("on TCP port");
        let lines = [
            format!("ping {} --wait spin -t 200ms", lab.b.ipv4),
            format!(
                "search {} --quick --trial 50ms --first-trial 20ms --sum 100ms --to-rate 2000 \
                 --exceed 90 --even-if-unstable --loss 50 --no-latency",
                lab.b.ipv4
            ),
        ];
        for line in lines {
            let done = run(&lab.a, &line);
            assert_eq!(done.err.contains(&warning), warns, "{line}, {options}: {done:#?}");
        }
        server.interrupt().good();
    }
}
