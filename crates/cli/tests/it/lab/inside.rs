//! What is done to a guest's machine, and seen in it: virtual CPUs that are pinned, and packets for its XDP and packet sockets, stage by stage. One boot.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ringside_measure::schema::{LabCell, LabResult, LabStages};
use ringside_measure::trace::{Point, Stage};
use ringside_netlab::testing::is_root;
use ringside_nic::process;

use super::guests::{PATIENCE, cost_is_told, few_are_left_out, kick_is_named, machine_of, ring_is_told};
use super::{Scratch, alone, assert_nothing_is_left_of, result, start};

/// Probes whose virtual CPUs are the kernel's to place, and pinned one way and the other; one that asks for vhost; and ones to XDP sockets.
fn content() -> String {
    let mut content = "rounds = 2\nturn = \"1s\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n".to_owned();
    for (name, attachment, machine) in [
        ("g", "tap-bridge", ""),
        ("x", "xdp", "machine = \"g\"\n"),
        ("v", "vhost-net", ""),
    ] {
        content += &format!(
            "[[link]]\nname = {name:?}\nends = [\"a\", \"b\"]\n\
             [[guest]]\nname = {name:?}\nhost = \"b\"\nattachment = {attachment:?}\nuplink = {name:?}\n{machine}"
        );
    }
    for (name, guest, pins) in [
        ("straight", "g", "vcpus = [0, 1]"),
        ("crossed", "g", "vcpus = [1, 0]"),
        ("vhost", "v", "vhost = [1]"),
    ] {
        content += &format!("[[steering]]\nname = {name:?}\nguest = {guest:?}\n{pins}\n");
    }
    let probe = |name: &str, guest: &str, keys: &str| {
        format!("[[probe]]\nname = {name:?}\nfrom = \"a\"\nto = {guest:?}\nrate = 200\nmeasure = [\"rtt\"]\n{keys}\n")
    };
    for (name, guest) in [("straight", "g"), ("crossed", "g"), ("vhost", "v")] {
        content += &probe(name, guest, &format!("with = \"udp\"\nsteering = [{name:?}]"));
    }
    for (name, guest, mode) in [
        ("xsk-native", "g", "native"),
        ("xsk-generic", "g", "generic"),
        ("xsk-by-xdp", "x", "native"),
    ] {
        let keys = format!("with = \"xsk\"\nmode = {mode:?}\nwait = \"wake-up\"\ntrace = true");
        content += &probe(name, guest, &keys);
    }
    // A veth has no zero-copy; the guest's NIC has.
    content += &probe(
        "xsk-zero-copy",
        "g",
        "with = \"xsk\"\nfar-mode = \"zero-copy\"\nwait = \"wake-up\"",
    );
    content += &probe("packet", "g", "with = \"packet\"\nwait = \"spin\"\ntrace = true");
    content + &probe("free", "g", "with = \"udp\"")
}

#[test]
#[ignore = "make test-guests runs it"]
fn virtual_cpus_are_pinned_and_packets_of_xdp_sockets_traced() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    scratch.lab(&content());
    let running = start(&scratch, "run my.toml --into run --json");
    let pid = running.pid();
    let stop = AtomicBool::new(false);
    let (done, seen) = thread::scope(|scope| {
        let looking = scope.spawn(|| look(pid, &stop));
        let done = running.end_within(PATIENCE);
        stop.store(true, Ordering::Relaxed);
        (done.good(), looking.join().expect("looks"))
    });
    assert_nothing_is_left_of(pid);
    let result = result(&done.out);
    check_pins(&result);
    let zero_copy = result.cells.iter().find(|cell| cell.path == "xsk-zero-copy");
    let zero_copy = zero_copy.expect("a row");
    assert!(
        zero_copy
            .description
            .contains("AF_XDP, native here and zero-copy at the other end"),
        "{zero_copy:#?}"
    );
    // It has to be had, or there would be no times.
    assert_eq!(
        (&zero_copy.unavailable, zero_copy.failed_turns),
        (&None, 0),
        "{zero_copy:#?}"
    );
    assert!(zero_copy.probes.received > 20, "{zero_copy:#?}");
    assert_eq!(result.stages.len(), 4, "{result:#?}");
    result.stages.iter().for_each(check_stages);
    // Read from the kernel by another process, while it went on: free, one way, the other way, and free again.
    let of = |cpus: [&[usize]; 2]| seen.iter().position(|now| *now == cpus.map(<[usize]>::to_vec));
    let (straight, crossed) = (of([&[0], &[1]]), of([&[1], &[0]]));
    let (Some(straight), Some(crossed)) = (straight, crossed) else {
        panic!("{seen:?}")
    };
    let free = &seen[0];
    assert!(
        free.iter().all(|cpus| cpus.len() > 1),
        "before anything was set: {seen:?}"
    );
    let last = straight.max(crossed);
    assert!(seen[last..].contains(free), "put back while the guest runs: {seen:?}");
}

/// The CPUs that the guest's two virtual ones may run on, each time that they change.
fn look(lab: u32, stop: &AtomicBool) -> Vec<[Vec<usize>; 2]> {
    let mut seen: Vec<[Vec<usize>; 2]> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(2));
        // Where KVM does not work another one takes its place.
        let Some(machine) = machine_of(lab) else { continue };
        let threads = process::threads(machine).into_iter();
        let numbers: BTreeMap<String, u32> = threads.map(|thread| (thread.name, thread.id)).collect();
        let cpus = |number: u32| {
            let id = numbers
                .iter()
                .find(|(name, _)| name.starts_with(&format!("CPU {number}/")))?
                .1;
            let id = rustix::process::Pid::from_raw(i32::try_from(*id).ok()?)?;
            let set = rustix::thread::sched_getaffinity(Some(id)).ok()?;
            Some((0..64).filter(|cpu| set.is_set(*cpu)).collect())
        };
        let now = cpus(0).zip(cpus(1)).map(|(first, second)| [first, second]);
        seen.extend(now.filter(|now| seen.last() != Some(now)));
    }
    seen
}

/// An XDP socket's way in the guest, or a packet socket's: its interrupt, the ring, and the reader that is woken up. What an XDP socket answers is not seen there. On this side of the guest there is what
/// the host's kernel lets be seen.
fn check_stages(stages: &LabStages) {
    assert!(stages.is_round_trip && stages.unavailable.is_none(), "{stages:#?}");
    let lacks = |hook: &str| {
        stages
            .missing
            .iter()
            .any(|missing| missing.hook == format!("{hook} in the guest"))
    };
    if lacks("fentry __xsk_map_redirect") || lacks("fentry xsk_generic_rcv") {
        panic!(
            "the usual kernel of a guest lets functions be entered: {:#?}",
            stages.missing
        );
    }
    let traced = stages.traced.as_ref().expect("stages");
    // 200 a second, of which a guest on a busy machine answers few.
    assert!(traced.traced_packets > 5, "{stages:#?}");
    few_are_left_out(stages);
    let inside = traced.stages.iter().filter(|stage| {
        let at = stage.interface.as_deref();
        at.is_some_and(|name| name.ends_with(" in the guest"))
    });
    let inside: Vec<Stage> = inside.map(|stage| stage.stage).collect();
    let all: Vec<Stage> = traced.stages.iter().map(|stage| stage.stage).collect();
    assert!(inside.contains(&Stage::From(Point::Socket)), "{stages:#?}");
    assert_eq!(
        inside.contains(&Stage::From(Point::Stack)),
        ["xsk-generic", "packet"].contains(&stages.path.as_str()),
        "the stack has no part in native XDP: {stages:#?}"
    );
    // Who looks at the ring again and again is not woken up.
    let woken = (stages.path != "packet").then_some(Point::Waking);
    for stage in [Point::SoftIrq, Point::Ready].into_iter().chain(woken).map(Stage::From) {
        assert!(all.contains(&stage), "{stage:?}: {stages:#?}");
    }
    kick_is_named(stages);
    ring_is_told(traced);
    cost_is_told(stages);
    for stage in [Stage::IntoGuest, Stage::OutOfGuest] {
        assert!(all.contains(&stage), "{stage:?}: {stages:#?}");
    }
    let whole = traced.whole.expect("packets").mean_ns;
    assert!((traced.sum_mean_ns - whole).abs() < 1_000.0, "they add up: {stages:#?}");
    let clock = stages.clock.as_ref().expect("a clock");
    assert_eq!(clock.contradiction_ns, 0, "{clock:#?}");
    eprintln!(
        "{}: {} packets, clock known to {} µs",
        stages.path,
        traced.traced_packets,
        clock.uncertainty_ns / 1_000
    );
    for stage in &traced.stages {
        let at = stage.interface.as_deref().unwrap_or_default();
        eprintln!("  {:<28} {:>6.1} % {at}", stage.name, stage.part_percent);
    }
}

fn check_pins(result: &LabResult) {
    let cell = |name: &str| -> &LabCell {
        let mut all = result.cells.iter().filter(|cell| cell.path == name);
        all.next().unwrap_or_else(|| panic!("{name}: {result:#?}"))
    };
    for (name, wanted) in [("straight", ["0", "1"]), ("crossed", ["1", "0"])] {
        let cell = cell(name);
        assert_eq!((&cell.unavailable, cell.failed_turns), (&None, 0), "{cell:#?}");
        assert!(cell.probes.received > 50, "{cell:#?}");
        let [steering] = &cell.steering[..] else {
            panic!("{cell:#?}")
        };
        let settings = steering.seen.settings.iter();
        let obtained: Vec<&str> = settings.map(|one| one.obtained.as_str()).collect();
        assert_eq!(obtained, wanted, "{steering:#?}");
        let threads = &steering.seen.threads;
        assert_eq!(threads.len(), 2, "{steering:#?}");
        for ((number, thread), cpu) in threads.iter().enumerate().zip(wanted) {
            assert!(thread.name.starts_with(&format!("CPU {number}/")), "{thread:?}");
            assert!(
                thread.ran_ns > 0 && !thread.seen.is_empty(),
                "packets keep it busy: {thread:?}"
            );
            assert!(thread.seen.iter().all(|seen| seen.cpu.to_string() == cpu), "{thread:?}");
        }
        let said = &steering.seen.sentences;
        assert!(said.len() == 2 && said.iter().all(|one| one.right), "{said:#?}");
    }
    assert!(cell("free").steering.is_empty());
    let vhost = cell("vhost");
    if fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/vhost-net")
        .is_err()
    {
        let why = vhost.unavailable.as_deref().unwrap_or_default();
        let told = why.contains("the steering vhost") && why.contains("/dev/vhost-net cannot be opened");
        assert!(told && why.contains("CONFIG_VHOST_NET"), "{why}");
    } else {
        let thread = &vhost.steering[0].seen.threads[0];
        assert!(
            thread.name.starts_with("vhost-") && thread.wanted_cpus == [1],
            "{thread:?}"
        );
    }
}
