//! `ringside delay` on the real kernel: every cell, on a test bed and on an interface, and nothing left behind.

use std::collections::HashMap;
use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::common;
use crate::common::{Done, Running, assert_clean, lab, run, settings, start, words};
use ringside_measure::delay::{CStates, Cell, Core, Wait};
use ringside_measure::latency::Latency;
use ringside_measure::schema::{DelayCell, DelayResult, Outcome};
use ringside_netlab::Lab;
use ringside_netlab::testing::{has_cpus, is_root};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Each test pins spinning threads to CPUs: two at once would measure each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The binary in the namespace of the test, with a line as one writes it.
fn tool(line: &str) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
    command.args(line.split_whitespace()).env_remove("SSH_CONNECTION");
    Running::new(command)
}

fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).expect("an online CPU");
}

fn cpus() -> usize {
    thread::available_parallelism().expect("told").get()
}

fn result(done: &Done) -> DelayResult {
    match done.document().result {
        Outcome::Delay(result) => result,
        other => panic!("not delays: {other:?}"),
    }
}

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("ringside-delay-{}-{name}", std::process::id()))
}

/// On a machine that is given away while measuring, a cell may have no quiet turn: that is said, and no failure.
fn stolen(cell: &DelayCell) -> bool {
    let why = cell.unavailable.as_deref();
    why.is_some_and(|why| why.contains("CPU steal"))
}

/// Namespaces of a process are named by its id; their interfaces and all programs on those go with them.
fn assert_nothing_is_left_of(pid: u32) {
    let names = fs::read_dir("/run/netns").expect("a directory of namespaces");
    let left: Vec<String> = names
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(&format!("rs-{pid}-")))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// What holds of each cell that was measured.
fn check(cell: &DelayCell, samples: u64) {
    let what = format!("{cell:#?}");
    assert_eq!(cell.unavailable, None, "{what}");
    let delay = cell.delay.expect("samples");
    // Turns that are left out are made up for, as long as there is time. All take some 50 ms.
    let in_time = cell.measured_ns < 500_000_000;
    let all = in_time && !cell.turns.iter().any(|turn| turn.left_out);
    assert!(delay.samples >= if all { samples } else { 1 }, "{what}");
    let (min, p50, max) = (delay.min_ns, delay.p50_ns.expect("enough for a median"), delay.max_ns);
    // A packet is copied and crosses a ring: that takes more than reading a clock, and never a second.
    assert!(min > 50 && min <= p50 && p50 <= max && max < 1_000_000_000, "{what}");
    assert!(min as f64 <= delay.mean_ns && delay.mean_ns <= max as f64, "{what}");
    let histogram = Latency::from_hdr(cell.delay_hdr.as_deref().expect("samples")).expect("what other tools read");
    assert_eq!(histogram.samples(), delay.samples, "{what}");
    let others = cell.warm_up_packets + cell.elsewhere_packets + cell.impossible_packets + cell.without_hints_packets;
    assert_eq!(cell.received_packets, delay.samples + others, "{what}");
    assert_eq!((cell.impossible_packets, cell.without_hints_packets), (0, 0), "{what}");
    assert!(cell.warm_up_packets > 0, "{what}");
    let (napi, application) = (cell.napi_cpu.expect("a CPU"), cell.application_cpu.expect("a CPU"));
    assert_eq!(napi == application, cell.core == Core::Same, "{what}");
    assert_eq!(
        cell.busy_polling_drives.is_some(),
        cell.wait == Wait::BusyPoll,
        "{what}"
    );
    let cpu = cell.cpu.expect("ticks");
    assert_eq!(cpu.cpu, application, "{what}");
    let thread = cell.thread_percent.expect("the scheduler tells");
    assert!(thread > 0.0 && thread <= 101.0 && cell.measured_ns > 0, "{what}");
    let of_turns: u64 = cell
        .turns
        .iter()
        .filter(|turn| !turn.left_out)
        .map(|turn| turn.samples)
        .sum();
    assert_eq!(of_turns, delay.samples, "{what}");
}

#[test]
fn every_cell_is_measured_on_a_test_bed() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let csv = file("all.csv");
    let line = format!(
        "delay --lab veth --samples 120 --rounds 2 --interval 400us --reference --json --csv {}",
        csv.display()
    );
    let running = tool(&line);
    let pid = running.pid();
    let done = running.end().good();
    assert_nothing_is_left_of(pid);
    let (document, result) = (done.document(), result(&done));
    let expected: Vec<Cell> = Cell::all().collect();
    assert_eq!(result.cells.iter().map(DelayCell::cell).collect::<Vec<_>>(), expected);
    for cell in result.cells.iter().filter(|cell| !stolen(cell)) {
        if cell.core == Core::Other && cpus() == 1 {
            assert!(cell.unavailable.as_deref().expect("a reason").contains("no other CPU"));
            continue;
        }
        check(cell, 120);
        let sent = cell.sent_packets.expect("our own sender");
        assert_eq!(sent, cell.received_packets + cell.lost_packets, "{cell:#?}");
        // Its sender is on NAPI's CPU: there is nowhere else for a packet to be.
        assert_eq!((cell.lost_packets, cell.elsewhere_packets), (0, 0), "{cell:#?}");
        let states: Vec<&str> = cell.idle.iter().map(|state| state.name.as_str()).collect();
        let machine: Vec<&str> = document
            .system
            .c_states
            .iter()
            .map(|state| state.name.as_str())
            .collect();
        assert_eq!(states, machine, "{cell:#?}");
        // Nobody else may need to hold it: what is asked for is what happens.
        if cell.c_states == CStates::Off {
            let deep = cell.idle.iter().filter(|state| state.name != "POLL");
            let slept: u64 = deep.map(|state| state.entries).sum();
            assert!(
                slept <= 2 * cell.turns.len() as u64,
                "asleep with C-states off: {cell:#?}"
            );
        }
    }
    assert_eq!((result.interval_ns, result.observed_interval_ns), (Some(400_000), None));
    let read = result.clock_read;
    assert!(
        read.min_ns > 0.0 && read.min_ns <= read.median_ns && read.median_ns < 100_000.0,
        "{read:?}"
    );
    assert_eq!(document.interfaces.len(), 1);
    assert_eq!(document.interfaces[0].driver.as_deref(), Some("veth"));
    assert_eq!(document.interfaces[0].queues.len(), 1);

    // The histograms hold every sample.
    let text = fs::read_to_string(&csv).expect("the file");
    fs::remove_file(&csv).expect("removed");
    let mut sums: HashMap<String, u64> = HashMap::new();
    for line in text.lines().skip(1) {
        let (name, bucket) = line
            .match_indices(',')
            .nth(2)
            .map(|(at, _)| line.split_at(at))
            .expect("six fields");
        *sums.entry(name.to_owned()).or_default() += bucket.rsplit(',').next().unwrap().parse::<u64>().unwrap();
    }
    for cell in &result.cells {
        let wait = match cell.wait {
            Wait::Spin => "spin",
            Wait::Poll => "poll",
            Wait::BusyPoll => "busy-poll",
        };
        let core = if cell.core == Core::Same { "same" } else { "other" };
        let c_states = if cell.c_states == CStates::AsIs { "as-is" } else { "off" };
        let expected = cell.delay.map(|delay| delay.samples);
        let found = sums.get(&format!("{wait},{core},{c_states}")).copied();
        assert_eq!(found, expected, "{text}");
    }

    // The table went to the other stream.
    for words in [
        "test bed: two namespaces, veth pair, native copy",
        "Delay from the XDP program",
        "| busy-poll | same",
        "igc, A",
        "47420 - 56156",
        "Reading it takes",
        "C-states (exit latency)",
    ] {
        assert!(
            done.err.contains(words) || document.system.c_states.is_empty(),
            "{words}: {done:#?}"
        );
    }
}

#[test]
fn a_process_with_one_cpu_has_no_other() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let on_one = |line: &'static str| {
        let started = thread::spawn(move || {
            pin(0);
            tool(line).end()
        });
        started.join().expect("no panic")
    };
    let done = on_one("delay --lab veth --waits poll --samples 60 --rounds 1 --interval 400us --json").good();
    let result = result(&done);
    assert_eq!(result.cells.len(), 4);
    for cell in &result.cells {
        match cell.core {
            Core::Other => {
                let reason = cell.unavailable.as_deref().expect("a reason");
                assert_eq!(reason, "no other CPU: this process may run on CPU 0 alone");
                assert_eq!((cell.delay, cell.received_packets), (None, 0));
            }
            Core::Same if stolen(cell) => {}
            Core::Same => check(cell, 60),
        }
    }
    assert!(
        done.err
            .contains("poll, other core, C-states as is: not available: no other CPU"),
        "{done:#?}"
    );
    let message = on_one("delay --lab veth --cores other").refused_after_plan();
    assert!(
        message.contains("none of the cells that were asked for can be had here: no other CPU"),
        "{message}"
    );
}

trait RefusedAfterPlan {
    fn refused_after_plan(&self) -> String;
}

impl RefusedAfterPlan for Done {
    /// A test bed was built and taken down again, and nothing was measured.
    fn refused_after_plan(&self) -> String {
        assert_eq!(self.out, "", "{self:#?}");
        self.bad()
    }
}

/// Sends from one end to the other, from a CPU, until it is dropped.
struct Flow<'a> {
    end: &'a AtomicBool,
}

impl Drop for Flow<'_> {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
    }
}

/// Runs `body` while packets come to `lab.b`, from each CPU of `sources` one every so many microseconds.
fn while_packets_come<T>(lab: &Lab, port: u16, sources: &[(usize, u64)], body: impl FnOnce() -> T) -> T {
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        let _flow = Flow { end: &end };
        for (cpu, micros) in sources {
            let socket = lab.a.run(|| UdpSocket::bind((lab.a.ipv4, 0)).expect("a socket"));
            let (end, to) = (&end, (lab.b.ipv4, port));
            scope.spawn(move || {
                pin(*cpu);
                while !end.load(Ordering::Relaxed) {
                    // A socket that nobody has bound may answer before the program is there.
                    _ = socket.send_to(b"a packet", to);
                    thread::sleep(Duration::from_micros(*micros));
                }
            });
        }
        body()
    })
}

/// NAPI is where the packet's sender is. A share of them comes elsewhere than where most do: they are told apart one by one.
#[test]
fn samples_are_told_apart_by_what_happened() {
    if !is_root() || !has_cpus(2) {
        return;
    }
    let _alone = alone();
    let lab = lab("delaymix", 1);
    let line = "delay {} --filter udp:7000 --waits spin,poll --c-states as-is --samples 100 --rounds 1 -t 16 --json";
    let done = while_packets_come(&lab, 7000, &[(0, 300), (1, 1500)], || run(&lab.b, line)).good();
    let result = result(&done);
    let elsewhere: u64 = result.cells.iter().map(|cell| cell.elsewhere_packets).sum();
    assert!(elsewhere > 0, "{result:#?}");
    for cell in result.cells.iter().filter(|cell| !stolen(cell)) {
        check(cell, 20);
        assert_eq!((cell.sent_packets, cell.lost_packets), (None, 0), "{cell:#?}");
    }
    let gap = result.observed_interval_ns.expect("as it was seen");
    assert!((50_000..50_000_000).contains(&gap), "{gap}");
    assert!(done.err.contains("whose NAPI runs on CPU"), "{done:#?}");
    assert_clean(&lab.b);
}

/// Of several queues the one that packets come to is found, and measured alone; changes for busy-polling are put back.
#[test]
fn an_interface_is_left_as_it_was() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = lab("delayif", 2);
    let napi = || lab.b.run(|| lab.b.interface.napi().expect("settings"));
    let before = (settings(&lab.b), napi());
    let line =
        "delay --interface {} --waits busy-poll --cores same --samples 40 --rounds 1 -t 10 --napi-defer 2:200 --json";
    let (done, used, message) = while_packets_come(&lab, 29_620, &[(0, 500)], || {
        let done = run(&lab.b, line).good();
        let used = done.document().interfaces[0].queues[0].queue;
        // The other queue has none of this flow.
        let other = run(&lab.b, &format!("delay {{}} --queue {} -t 2", 1 - used)).bad();
        (done, used, other)
    });
    let result = result(&done);
    for cell in result.cells.iter().filter(|cell| !stolen(cell)) {
        check(cell, 20);
    }
    let interfaces = done.document().interfaces;
    assert_eq!(
        (interfaces.len(), interfaces[0].queues.len()),
        (1, 1),
        "{interfaces:#?}"
    );
    assert!(done.err.contains(&format!("packets come to queue {used}")), "{done:#?}");
    assert_eq!((settings(&lab.b), napi()), before);
    assert!(
        message.contains("came to another queue: leave --queue out"),
        "{message}"
    );
    assert_clean(&lab.b);
}

#[test]
fn nothing_sampled_is_an_error() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = lab("delaynone", 1);
    let done = run(&lab.b, "delay {}");
    let message = done.bad();
    assert!(
        message.contains("no packet for filter udp:29620 came to veth-b"),
        "{message}"
    );
    assert!(
        message.contains("none at all came: is another host sending?"),
        "{message}"
    );
    assert!(done.took < Duration::from_secs(15), "{done:#?}");
    let message = while_packets_come(&lab, 7001, &[(0, 1000)], || run(&lab.b, "delay {}").bad());
    assert!(
        message.contains("others did and went up the stack: see --filter"),
        "{message}"
    );
    assert_clean(&lab.b);
}

#[test]
fn an_interrupt_ends_it_with_the_results_so_far() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let running =
        tool("delay --lab veth --waits poll --cores same --samples 1000000 --rounds 100 --interval 400us --json");
    let pid = running.pid();
    running.wait_for("cells in turn");
    thread::sleep(Duration::from_secs(2));
    let done = running.interrupt().good();
    assert!(done.took < Duration::from_secs(5), "{done:#?}");
    let result = result(&done);
    let first = &result.cells[0];
    assert!(first.delay.is_some() || stolen(first), "{result:#?}");
    assert!(done.err.contains("ended early: the results so far"), "{done:#?}");
    assert_nothing_is_left_of(pid);
    // Before there is anything to tell.
    let lab = lab("delayint", 1);
    let running = start(&lab.b, "delay {}");
    thread::sleep(Duration::from_millis(1500));
    let message = running.interrupt().bad();
    assert!(message.contains("interrupted before anything was sampled"), "{message}");
    assert_clean(&lab.b);
}

#[test]
fn a_time_that_is_too_short_is_told_and_kept() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let line = "delay --lab veth --waits poll --cores same --samples 100000 --rounds 2 -t 2 --json";
    let done = tool(line).end().good();
    assert!(
        done.err.contains("2 s at the most; not all samples fit into that time"),
        "{done:#?}"
    );
    assert!(done.took < Duration::from_secs(12), "{done:#?}");
    for cell in result(&done).cells.iter().filter(|cell| !stolen(cell)) {
        let samples = cell.delay.expect("some").samples;
        assert!((1..100_000).contains(&samples), "{cell:#?}");
        assert_eq!(cell.delay.unwrap().p99_9_ns, None, "{cell:#?}");
    }
}

#[test]
fn nonsense_is_refused_before_anything_is_built() {
    if !is_root() {
        return;
    }
    for (line, expected) in [
        ("delay", "required"),
        ("delay nothere --lab veth", "cannot be used with"),
        ("delay --interface nothere --lab veth", "cannot be used with"),
        ("delay nothere --interface nothere", "cannot be used with"),
        ("delay --lab vlan", "veth"),
        ("delay --lab veth --samples 0", "no number from 1 to"),
        ("delay --lab veth --samples many", "invalid value"),
        ("delay --lab veth --rounds 0", "no number from 1 to"),
        ("delay --lab veth --interval 1us", "it takes 50us to 10s"),
        ("delay --lab veth --interval 11s", "it takes 50us to 10s"),
        ("delay --lab veth --interval 1", "with a unit"),
        ("delay nothere --interval 1ms", "--interval is the test bed's"),
        ("delay --interface nothere --napi-cpu 0", "--napi-cpu is the test bed's"),
        ("delay --lab veth --queue 0", "cannot be used with"),
        ("delay --lab veth --filter all", "cannot be used with"),
        ("delay nothere --filter udp:0", "0 is no UDP port"),
        ("delay --lab veth --waits sleep", "spin, poll, busy-poll"),
        ("delay --lab veth --cores both", "same, other"),
        ("delay --lab veth --c-states c6", "as-is, off"),
        (
            "delay --lab veth --napi-cpu 60000",
            "--napi-cpu 60000: this process may run on",
        ),
        (
            "delay --lab veth --other-cpu 60000",
            "--other-cpu 60000: this process may run on",
        ),
        (
            "delay --lab veth --napi-cpu 0 --other-cpu 0",
            "that is the CPU that runs NAPI",
        ),
        ("delay --lab veth --priority 99", "99 is not in"),
        ("delay --lab veth --mode fast", "zero-copy"),
        ("delay --lab veth --busy-poll-budget 0", "no number from 1 to"),
        ("delay --lab veth --napi-defer 0:1", "POLLS:MICROS"),
        ("delay --lab veth -t 0", "no time"),
        ("delay --lab veth -t -1", "no time"),
        (
            "delay --lab veth --csv /no/such/folder/file",
            "--csv /no/such/folder/file",
        ),
        (
            "delay --lab veth --json-file /no/such/folder/file",
            "--json-file /no/such/folder/file",
        ),
        ("delay nothere", "no interface named 'nothere'"),
    ] {
        let running = tool(line);
        let pid = running.pid();
        let message = running.end().refused();
        assert!(message.contains(expected), "{line}: {message}");
        assert_nothing_is_left_of(pid);
    }
    // What only the kernel can tell, after the test bed was built.
    let running = tool("delay --lab veth --mode zero-copy");
    let pid = running.pid();
    let message = running.end().bad();
    assert!(message.contains("zero-copy"), "{message}");
    assert_nothing_is_left_of(pid);
    let lab = lab("delaybad", 1);
    lab.b.set_up(false).expect("down");
    let message = run(&lab.b, "delay {}").refused();
    assert!(message.contains("veth-b is down; bring it up first"), "{message}");
}

/// As one who is root without capabilities.
#[test]
fn no_privilege() {
    if !is_root() {
        return;
    }
    let lab = lab("delaypriv", 1);
    for line in ["delay --lab veth", "delay {}"] {
        let mut setpriv = lab.b.ns.command("setpriv");
        setpriv.args(["--bounding-set=-all", "--inh-caps=-all", "--"]);
        setpriv.arg(common::readable_copy()).args(words(&lab.b, line));
        let message = Running::new(setpriv).end().refused();
        assert!(
            message.contains("CAP_") || message.contains("root"),
            "{line}: {message}"
        );
    }
    assert_clean(&lab.b);
}
