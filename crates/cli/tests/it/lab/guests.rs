//! Guests of a lab: cells, one way by the guest's clock, stages into the guest and back, and a disk
//! that is full. Two boots.

use std::fs;
use std::process::Command;
use std::time::Duration;

use ringside_measure::schema::{LabCell, LabClock, LabStages, LatencyKind, LoadKind, TracedPath};
use ringside_measure::trace::{Point, Stage};
use ringside_netlab::testing::is_root;
use ringside_netlab::wait_until;
use rustix::mount::{MountFlags, mount_remount};

use super::broken::State;
use super::common::Running;
use super::{Scratch, Small, alone, run_whole, turns};

/// How long an emulated guest and its turns may take on a machine that does other things.
pub(super) const PATIENCE: Duration = Duration::from_secs(400);

/// Three ways into one machine, one of them by two lanes, and four loads to it.
fn content() -> String {
    let mut content =
        "rounds = 2\nturn = \"1s\"\ntrace = true\nrings = true\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n"
            .to_owned();
    let one_way = "measure = [\"rtt\", \"one-way\"]\nuncertainty = \"20ms\"\ndisturbers = true\n";
    let also = "machine = \"tap-bridge\"\n";
    let by_priority = format!("{also}express = \"pcp:5\"\n");
    for (name, attachment, more, keys) in [
        ("tap-bridge", "tap-bridge", "", one_way),
        ("xdp", "xdp", also, ""),
        ("xdp-express", "xdp-express", also, "stop-above = \"1us\"\n"),
        ("lane", "xdp-express", &*by_priority, "trace = false\npcp = 5\n"),
    ] {
        content += &format!(
            "[[link]]\nname = {name:?}\nends = [\"a\", \"b\"]\n\
             [[guest]]\nname = {name:?}\nhost = \"b\"\nattachment = {attachment:?}\nuplink = {name:?}\n{more}\
             [[probe]]\nname = {name:?}\nfrom = \"a\"\nto = {name:?}\nwith = \"udp\"\nrate = 200\n{keys}"
        );
    }
    content
        + "[[load]]\nname = \"packets\"\nkind = \"udp\"\nrate = 200\nsize = 300\n\
           [[load]]\nname = \"own\"\nkind = \"tcp\"\nbitrate = \"1M\"\nstreams = 2\n\
           [[load]]\nname = \"tcp\"\nkind = \"iperf3-tcp\"\nbitrate = \"5M\"\n\
           [[load]]\nname = \"udp\"\nkind = \"iperf3-udp\"\nbitrate = \"500K\"\nsize = 500\n"
}

/// With a device that a guest has had, crates/netlab/tests/it/attach.rs does it.
#[test]
fn clean_gives_devices_of_killed_runs_back() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let state = scratch.path("state");
    fs::create_dir_all(&state).expect("a folder");
    // Of a process with the number of the first one, which did not start then. There is no such device any more.
    let (record, device) = (state.join("rs-1-zzzz-0-vfio.vfio"), "ffff:1f:1f.7");
    let was = format!("{{\"address\": {device:?}, \"driver\": null, \"overridden\": null}}");
    fs::write(&record, was).expect("written");
    let clean = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
        command.args(["lab", "clean"]).env("RINGSIDE_STATE_DIR", &state);
        Running::new(command).end().good().out
    };
    let told = clean();
    assert!(
        told.contains(&format!("Back with their drivers, of killed runs: {device}\n")),
        "{told}"
    );
    assert!(!record.exists());
    assert!(!clean().contains("Back with their drivers"));
}

#[test]
#[ignore = "make test-guests runs it"]
fn guests_are_a_part_of_the_matrix() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    scratch.lab(&content());
    let (done, result) = run_whole(&scratch, PATIENCE);
    let [_, _, tap, xdp, express, lane] = result.machines.as_slice() else {
        panic!("{result:#?}")
    };
    assert_eq!(
        [tap, xdp, express, lane].map(|guest| guest.attachment.as_deref()),
        [
            Some("tap-bridge"),
            Some("xdp"),
            Some("xdp-express"),
            Some("xdp-express")
        ]
    );
    let accelerator = tap.accelerator.as_deref();
    assert_eq!(xdp.accelerator.as_deref(), accelerator, "one machine: {result:#?}");
    let is_told = result
        .warnings
        .iter()
        .any(|warning| warning.contains("are emulated (tcg)"));
    assert_eq!(is_told, accelerator == Some("tcg"), "{:?}", result.warnings);
    assert_eq!(result.cells.len(), 10);
    for cell in &result.cells {
        assert_eq!((&cell.unavailable, cell.failed_turns), (&None, 0), "{cell:#?}");
        assert!(
            cell.probes.received > 50 && cell.probes.received * 2 > cell.probes.sent,
            "{cell:#?}"
        );
        check_redirected(cell);
        let tap = cell.tap.expect("what the guest took");
        assert!(tap.packets >= cell.probes.received && tap.bytes > 0, "{cell:#?}");
        assert!(tap.waiting.is_some_and(|waiting| waiting.places > 0), "{cell:#?}");
        // What finds no room is dropped, and all of it is counted.
        let full = tap.waiting.map_or(0, |waiting| waiting.full_packets);
        assert!(
            !tap.dropped_at_least && tap.dropped_packets.abs_diff(full) <= full / 10,
            "{cell:#?}"
        );
        for load in &cell.loads {
            if load.name == "packets" {
                // The guest counts them.
                let (sent, received) = (load.sent_pps.expect("sent"), load.received_pps.expect("told"));
                assert!(received > 20.0 && received <= sent && sent < 250.0, "{load:#?}");
                continue;
            }
            let (asked, sent) = (load.asked_bits_per_s.expect("asked"), load.sent_bits_per_s);
            let wanted = match load.name.as_str() {
                "own" => 2e6,
                "tcp" => 5e6,
                _ => 5e5,
            };
            assert!((asked - wanted).abs() < 1.0, "{load:#?}");
            if load.name == "own" {
                // The guest says it itself.
                assert!(load.received_bits_per_s.is_some_and(|bits| bits > 0.0), "{load:#?}");
            }
            // An emulated guest may take less of it.
            assert!(sent.is_some_and(|sent| sent > 0.0 && sent < asked * 2.0), "{load:#?}");
        }
        let is_one_way = cell.latency.kind == LatencyKind::OneWay;
        assert_eq!(cell.clock.is_some(), is_one_way, "{cell:#?}");
        if let Some(clock) = &cell.clock {
            assert!(clock.uncertainty_ns <= 20_000_000, "{clock:#?}");
            agrees(clock);
            // No packet is there before it was sent.
            assert_eq!(cell.latency.impossible_packets, 0, "{cell:#?}");
        }
    }
    assert_eq!(result.stages.len(), 6, "{result:#?}");
    for stages in &result.stages {
        let traced = stages.traced.as_ref().expect("stages");
        assert!(traced.slow.as_ref().is_some_and(|slow| slow.from_ns > 0), "{stages:#?}");
        match stages.path.as_str() {
            // Any packet is one to stop at.
            "xdp-express" => {
                assert_eq!(traced.cost, None, "nothing to compare with: {stages:#?}");
                let record = traced.recorded.as_ref().expect("a flight record");
                assert!(record.whole_ns > 1_000 && record.points.len() > 4, "{stages:#?}");
            }
            _ => {
                assert_eq!(traced.recorded, None);
                check_stages(stages);
                let slow = traced.slow.as_ref().expect("told");
                // Only who asks for it has an emulated guest looked at.
                let inside = slow
                    .culprits
                    .iter()
                    .filter(|culprit| culprit.name.ends_with(" in the guest"));
                let is_asked = stages.path == "tap-bridge";
                assert!(
                    is_asked || accelerator != Some("tcg") || inside.count() == 0,
                    "{slow:#?}"
                );
                let is_named = stages
                    .missing
                    .iter()
                    .any(|hook| hook.hook.contains("tasks in the guest"));
                assert_eq!(
                    is_named,
                    !is_asked && accelerator == Some("tcg"),
                    "{:#?}",
                    stages.missing
                );
            }
        }
    }
    assert!(
        done.err.contains("vCPU") || done.err.contains("out of the guest"),
        "{}",
        done.err
    );
    assert!(
        fs::read_to_string(scratch.path("run/report.html"))
            .unwrap()
            .contains("Stages, there and back")
    );
}

/// Probes took the lane that they were to take, both ways, unless it is by a priority, which answers of the guest's socket have not; loads beside them
/// the bridge.
fn check_redirected(cell: &LabCell) {
    let Some(lane) = cell.redirected else {
        assert_eq!(cell.path, "tap-bridge", "{cell:#?}");
        return;
    };
    assert!(lane.to_guest_packets >= cell.probes.received, "{cell:#?}");
    match cell.path.as_str() {
        "lane" => assert_eq!(lane.from_guest_packets, 0, "{cell:#?}"),
        _ => assert!(lane.from_guest_packets >= cell.probes.received, "{cell:#?}"),
    }
    if cell.path != "xdp" {
        // Probes settle before they are counted: nothing else is on the lane, streams of a load least of all.
        assert!(lane.to_guest_packets <= 2 * cell.probes.sent + 100, "{cell:#?}");
        let is_loaded = cell.condition == LoadKind::Foreign;
        assert!(!is_loaded || lane.to_guest_passed_packets > 50, "{cell:#?}");
    }
}

/// What the guest's agent says of its clock is within what both are uncertain about.
pub(super) fn agrees(clock: &LabClock) {
    let (apart, asked) = (
        clock.asked_apart_ns.expect("asked"),
        clock.asked_uncertainty_ns.expect("asked"),
    );
    // What clocks drift until it is asked is small beside that.
    assert!(apart <= asked + clock.uncertainty_ns + 50_000, "{clock:#?}");
    assert_eq!(clock.contradiction_ns, 0, "{clock:#?}");
}

/// All the way: through the host, into the guest, to its application, and back.
fn check_stages(stages: &LabStages) {
    assert!(stages.is_round_trip && stages.unavailable.is_none(), "{stages:#?}");
    let traced = stages.traced.as_ref().expect("stages");
    assert!(traced.traced_packets > 20, "{stages:#?}");
    few_are_left_out(stages);
    let all: Vec<Stage> = traced.stages.iter().map(|stage| stage.stage).collect();
    use Point::{Call, Driver, Intended, Queue, Ready, SoftIrq, Stack};
    for point in [Intended, Call, Queue, SoftIrq, Driver, Stack, Ready] {
        assert!(all.contains(&Stage::From(point)), "{point:?}: {stages:#?}");
    }
    for crossing in [Stage::IntoGuest, Stage::OutOfGuest] {
        let found = traced
            .stages
            .iter()
            .find(|stage| stage.stage == crossing)
            .expect("a crossing");
        let clock = stages.clock.as_ref().expect("a clock");
        assert_eq!(found.uncertainty_ns, Some(clock.uncertainty_ns), "{stages:#?}");
    }
    let inside = traced.stages.iter().filter(|stage| {
        let at = stage.interface.as_deref();
        at.is_some_and(|name| name.ends_with(" in the guest"))
    });
    assert!(inside.count() >= 3, "interrupt, NAPI and stack: {stages:#?}");
    let whole = traced.whole.expect("packets").mean_ns;
    assert!((traced.sum_mean_ns - whole).abs() < 1_000.0, "they add up: {stages:#?}");
    agrees(stages.clock.as_ref().expect("a clock"));
    kick_is_named(stages);
    ring_is_told(traced);
    cost_is_told(stages);
}

/// Both kernels traced in half of the turns only, and what the asking program measured agrees with the stages of these packets.
pub(super) fn cost_is_told(stages: &LabStages) {
    let traced = stages.traced.as_ref().expect("stages");
    match &traced.cost {
        Some(cost) => {
            eprintln!(
                "{:?}: {:?}, on {:?}, off {:?}",
                stages.path, cost.ratio, cost.on, cost.off
            );
            assert_eq!((cost.off.events, &cost.always_on), (0, &None), "{stages:#?}");
            assert!(cost.on.turns >= 3 && cost.on.turns == cost.off.turns, "{stages:#?}");
            assert!(
                cost.off.packets >= 10 && cost.on.events > cost.on.packets * 8,
                "{stages:#?}"
            );
        }
        None => assert!(stages.steal_percent > 1.0, "{stages:#?}"),
    }
    let measured = traced.measured.expect("by the asking program");
    assert_eq!(measured.packets, traced.traced_packets, "{stages:#?}");
    assert!(measured.apart_max_ns <= traced.clock_error_ns * 2, "{stages:#?}");
}

/// However packets come to the TAP device, by the stack or by XDP: how long they wait in its ring, and that QEMU is woken up for one and takes it. Where QEMU's
/// taking is not seen, its wake-up is the last point before the guest, and there is no stage behind it.
pub(super) fn ring_is_told(path: &TracedPath) {
    let into = path.stages.iter().position(|stage| stage.stage == Stage::IntoGuest);
    let here = &path.stages[..into.expect("a way in")];
    let samples = |point: Point| -> u64 {
        let of = here.iter().filter(|stage| stage.stage == Stage::From(point));
        of.filter_map(|stage| stage.times).map(|times| times.samples).sum()
    };
    let [ring, woken, runs] = [Point::Ring, Point::Waking, Point::Running].map(samples);
    eprintln!(
        "of {} packets {ring} were in the TAP ring, {woken} woke QEMU up, {runs} were taken then",
        path.traced_packets
    );
    assert!(
        ring * 10 >= path.traced_packets * 9 && ring <= path.traced_packets,
        "{path:#?}"
    );
    assert!(woken > 0 && runs * 10 >= woken * 9, "{path:#?}");
}

/// All of the way is seen of nearly all packets, unless events were lost, which is told. What is on its way when tracing begins or ends is seen in part.
pub(super) fn few_are_left_out(stages: &LabStages) {
    let traced = stages.traced.as_ref().expect("stages");
    if traced.lost_events == 0 {
        assert!(
            traced.incomplete_packets <= 2 + traced.traced_packets / 20,
            "{} of {}: {stages:#?}",
            traced.incomplete_packets,
            traced.traced_packets
        );
    }
}

/// What no hook tells of the crossings is named, with the reason.
pub(super) fn kick_is_named(stages: &LabStages) {
    vcpu_is_told(stages.traced.as_ref().expect("stages"));
    for (hook, stage) in [
        ("kvm:kvm_entry", "'vCPU to guest interrupt'"),
        ("kvm:kvm_exit", "'out of the guest'"),
    ] {
        let named = stages.missing.iter().find(|missing| missing.hook.contains(hook));
        let told = named.is_some_and(|missing| missing.tells.contains(stage) && !missing.reason.is_empty());
        assert!(told, "{hook}: {:#?}", stages.missing);
    }
}

/// Of each packet it is told whether the virtual CPU that saw it was awake, or slept and was woken up, or waited for a CPU; in this order, and before anything in
/// the guest.
fn vcpu_is_told(path: &TracedPath) {
    let of = |stage: Stage| {
        let at = path.stages.iter().position(|other| other.stage == stage);
        let times = at.and_then(|at| path.stages[at].times);
        (at, times.map_or(0, |times| times.samples))
    };
    let [awake, kick, entered] = [Point::Awake, Point::Kick, Point::Entered].map(|point| of(Stage::From(point)));
    let qemu = of(Stage::IntoGuest);
    // One or the other led into the guest.
    assert_eq!(qemu.1 + awake.1, path.traced_packets, "{path:#?}");
    assert!(kick.1 <= entered.1 && entered.1 <= qemu.1, "{path:#?}");
    // Whose way in is not known is one whose times contradict each other by more than is known of the clocks.
    let unknown = qemu.1 - entered.1;
    assert!(unknown * 10 <= path.traced_packets, "{unknown}: {path:#?}");
    let inside = path.stages.iter().position(|stage| {
        stage
            .interface
            .as_deref()
            .is_some_and(|at| at.ends_with("in the guest"))
    });
    let order = [qemu.0, kick.0, entered.0, inside].into_iter().flatten();
    assert!(
        order.is_sorted() && awake.0.is_none_or(|at| Some(at) < inside),
        "{path:#?}"
    );
    eprintln!(
        "of {} packets {} found the vCPU awake, {} woke it up, {unknown} unknown",
        path.traced_packets, awake.1, kick.1
    );
}

#[test]
#[ignore = "make test-guests runs it"]
fn a_disk_that_is_full_ends_a_run_and_its_guest() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let state = State::new(&scratch);
    let small = Small::mount(scratch.path("small"));
    mount_remount(&small.0, MountFlags::empty(), "size=4m").expect("remounted");
    scratch.lab(
        "rounds = 500\nturn = \"100ms\"\nsettle = \"1ms\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n\
         [[link]]\nname = \"up\"\nends = [\"a\", \"b\"]\n\
         [[guest]]\nname = \"vm\"\nhost = \"b\"\nattachment = \"tap-bridge\"\nuplink = \"up\"\n\
         [[probe]]\nname = \"p\"\nfrom = \"a\"\nto = \"vm\"\nwith = \"udp\"\nmeasure = [\"rtt\"]\n",
    );
    let mut running = state.start(&scratch, "run my.toml --into small/run");
    let pid = running.pid();
    let folder = scratch.path("small/run");
    assert!(
        wait_until(PATIENCE, || turns(&folder) >= 2 || running.is_over()),
        "{}",
        running.told()
    );
    let children = all_children_of(pid);
    fs::write(scratch.path("small/filler"), vec![1; 8 << 20]).expect_err("full");
    let done = running.end_within(Duration::from_secs(60));
    let told = done.bad();
    assert!(
        told.contains("small/run/turns/0") && told.contains("No space left on device"),
        "{told}"
    );
    assert!(told.contains("make room, then go on with --resume"), "{told}");
    assert_eq!(done.err.matches("ringside: ").count(), 1, "one error: {}", done.err);
    assert!(!children.is_empty());
    state.assert_nothing_is_left_of(pid, &children);
}

/// Children of all threads of a process: a machine is started by one of its own.
pub(super) fn all_children_of(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|text| text.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// The one guest's machine of a run, once it runs.
pub(super) fn machine_of(lab: u32) -> Option<u32> {
    let is_machine =
        |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("qemu"));
    let machines: Vec<u32> = all_children_of(lab).into_iter().filter(is_machine).collect();
    machines.last().copied()
}
