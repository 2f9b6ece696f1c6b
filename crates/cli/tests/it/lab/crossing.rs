//! What crosses between this machine and a guest: schedules there and back, by its clock where that is known well enough, and by one clock alone where
//! it is not; and a delay on the way, which is found there and nowhere else. Three boots.

use std::fs;
use std::thread;
use std::time::Duration;

use ringside_measure::schema::{LabCell, LabWindows, LaunchBy, StageResult};
use ringside_measure::trace::Stage;
use ringside_netlab::testing::is_root;
use ringside_netlab::{find_program, wait_until};
use rustix::process::{Pid, Signal, kill_process};

use super::guests::{PATIENCE, agrees, all_children_of};
use super::{Scratch, alone, assert_nothing_is_left_of, quiet, result, run, run_whole, start, unwrapped};

/// Long cycles, for an emulated CPU.
fn content() -> String {
    let mut content = "rounds = 1\nturn = \"1s\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n\
                       [[link]]\nname = \"up\"\nends = [\"a\", \"b\"]\n\
                       [[guest]]\nname = \"vm\"\nhost = \"b\"\nattachment = \"tap-bridge\"\nuplink = \"up\"\nqueues = 2\n"
        .to_owned();
    for (name, from, to, keys) in [
        ("in", "a", "vm", "uncertainty = \"10ms\"\n"),
        ("out", "vm", "a", "uncertainty = \"10ms\"\nqdisc = \"mqprio\"\n"),
        ("etf", "vm", "a", "uncertainty = \"10ms\"\nqdisc = \"etf\"\n"),
        ("taprio", "vm", "a", "uncertainty = \"10ms\"\nqdisc = \"taprio\"\n"),
        ("xdp", "a", "vm", "uncertainty = \"10ms\"\nvia = \"af-xdp\"\n"),
        ("blind", "a", "vm", "uncertainty = \"1us\"\n"),
    ] {
        content += &format!(
            "[[schedule]]\nname = {name:?}\nfrom = {from:?}\nto = {to:?}\ncycle = \"50ms\"\n\
             class = [\"5:0ms:20ms:200:2\", \"3:25ms:20ms\"]\n{keys}"
        );
    }
    content
}

#[test]
#[ignore = "make test-guests runs it"]
fn schedules_go_into_a_guest_and_out_of_it() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    scratch.lab(&content());
    let checked = run(&scratch, "check my.toml").good().out;
    assert!(checked.contains("vm to a, by schedule: PCP 5"), "{checked}");
    let (done, result) = run_whole(&scratch, PATIENCE);
    let names: Vec<&str> = result.cells.iter().map(|cell| cell.path.as_str()).collect();
    assert_eq!(
        names,
        [
            "in PCP 5",
            "in PCP 3",
            "out PCP 5",
            "out PCP 3",
            "etf PCP 5",
            "etf PCP 3",
            "taprio PCP 5",
            "taprio PCP 3",
            "xdp PCP 5",
            "xdp PCP 3",
            "blind PCP 5",
            "blind PCP 3"
        ]
    );
    quiet(&result).into_iter().for_each(check);
    let blind = "worse than asked for: no latencies, and windows are counted from the fastest packet on";
    let text = unwrapped(&done.err);
    assert!(text.contains("from packet to packet") && text.contains(blind), "{text}");
}

fn check(cell: &LabCell) {
    // The queueing discipline drops what comes to it too late for its time: of a guest that stands still for long enough, all. It has to say so itself: what it
    // loses otherwise is a fault. That it keeps packets for their time is tested with longer leads (`guest/schedules.rs`).
    let is_etf = cell.path.starts_with("etf");
    if let Some(why) = cell.unavailable.as_deref().filter(|_| is_etf) {
        let missed = why.split("the queueing discipline threw ").nth(1);
        let missed: Option<u64> = missed.and_then(|rest| rest.split(' ').next()?.parse().ok());
        assert!(
            why.contains("no packet arrived; of ") && missed.is_some_and(|missed| missed >= 5),
            "{cell:#?}"
        );
        return;
    }
    assert_eq!((&cell.unavailable, cell.failed_turns), (&None, 0), "{cell:#?}");
    let of = cell.schedule.as_ref().expect("a schedule");
    let each = u64::from(of.class.packets_per_cycle);
    let keeper = match cell.path.as_str() {
        "etf PCP 5" | "etf PCP 3" => LaunchBy::Etf,
        "taprio PCP 5" | "taprio PCP 3" => LaunchBy::Taprio,
        _ => LaunchBy::Thread,
    };
    assert_eq!(of.kept_by, keeper, "{cell:#?}");
    if is_etf {
        assert!(
            of.missed_packets.is_some_and(|missed| cell.probes.lost <= missed),
            "{cell:#?}"
        );
        if cell.probes.received < 5 {
            return;
        }
    }
    // Twenty cycles; a busy machine may leave some out.
    assert!(cell.probes.received >= 5 * each || is_etf, "{cell:#?}");
    assert!(cell.probes.lost == 0 || is_etf, "{cell:#?}");
    assert_eq!((cell.probes.reordered, cell.probes.duplicated), (0, 0), "{cell:#?}");
    // From packet to packet 10 or 40 ms of a class with two in a cycle, 50 ms of the other: by one clock.
    let gap = of.gap.as_ref().expect("several packets");
    assert!(
        gap.samples + 1 == cell.probes.received && gap.max_ns > 20_000_000,
        "{cell:#?}"
    );
    // So is jitter, whatever is known of the clocks; but of what came before it was due or sent by them.
    let jitter = cell.latency.jitter.expect("several packets");
    assert!(jitter.differences < cell.probes.received, "{cell:#?}");
    let is_most = 2 * (jitter.differences + 1) >= cell.probes.received;
    assert!(is_most || keeper != LaunchBy::Thread, "{cell:#?}");
    assert!(
        jitter.mean_abs_consecutive_difference_ns > 0.0 && jitter.rfc3550_smoothed_ns > 0.0,
        "{cell:#?}"
    );
    let clock = cell.clock.as_ref().expect("a guest's clock");
    agrees(clock);
    if cell.path.starts_with("blind") {
        assert_eq!((of.windows, of.early_packets), (LabWindows::Fastest, 0));
        assert_eq!((cell.latency.corrected, cell.latency.raw), (None, None), "{cell:#?}");
        return;
    }
    assert!(clock.uncertainty_ns <= 10_000_000, "{clock:#?}");
    assert_eq!(of.windows, LabWindows::Clock);
    // What the kernel sends at its time comes so soon after it that a clock which is known less well may say before.
    let impossible = cell.latency.impossible_packets;
    assert!(impossible == 0 || keeper != LaunchBy::Thread, "{cell:#?}");
    let times = cell.latency.corrected.expect("latencies");
    assert_eq!(times.samples + impossible, cell.probes.received, "{cell:#?}");
    // A window is 20 ms: of what was sent in it half came soon after, whatever the machine did.
    assert!(times.min_ns < 30_000_000 + clock.uncertainty_ns, "{cell:#?}");
}

/// A forwarder that stands still most of the time: packets wait in front of it on both ways, and nowhere else.
#[test]
#[ignore = "make test-guests runs it"]
fn a_slow_forwarder_is_found_on_the_way_into_the_guest_and_out_of_it() {
    /// Of each period.
    const STOPPED: Duration = Duration::from_millis(45);
    const GOES_ON: Duration = Duration::from_millis(5);
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    scratch.lab(
        "rounds = 1\nturn = \"2s\"\ntrace = true\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n\
         [[link]]\nname = \"up\"\nends = [\"a\", \"b\"]\n\
         [[guest]]\nname = \"vm\"\nhost = \"b\"\nattachment = \"af-xdp\"\nuplink = \"up\"\n\
         [[probe]]\nname = \"p\"\nfrom = \"a\"\nto = \"vm\"\nwith = \"udp\"\nrate = 40\nmeasure = [\"rtt\"]\n",
    );
    let mut running = start(&scratch, "run my.toml --into run --json");
    let pid = running.pid();
    let is_traced = wait_until(PATIENCE, || {
        running.is_over() || running.told().contains("p, stages, idle")
    });
    assert!(is_traced, "{}", running.told());
    let forwarder = all_children_of(pid).into_iter().find(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == b"impair")
    });
    let forwarder = forwarder.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let forwarder = forwarder.expect("the process of the forwarder");
    while !running.is_over() {
        for (signal, time) in [(Signal::STOP, STOPPED), (Signal::CONT, GOES_ON)] {
            // It goes with the lab.
            _ = kill_process(forwarder, signal);
            thread::sleep(time);
        }
    }
    let result = result(&running.end().good().out);
    assert_nothing_is_left_of(pid);
    let [stages] = &result.stages[..] else {
        panic!("{result:#?}")
    };
    let path = stages.traced.as_ref().unwrap_or_else(|| panic!("{stages:#?}"));
    assert!(path.traced_packets >= 10, "{path:#?}");
    let whole = path.whole.expect("packets").mean_ns;
    assert!((path.sum_mean_ns - whole).abs() < 1_000.0, "they add up: {path:#?}");
    // What stands still with a packet in its hands has it in its own stage, which the guest's answering program has as well.
    let in_guest = 2;
    let is_crossing = |stage: &StageResult| match stage.stage {
        Stage::IntoGuest | Stage::OutOfGuest => true,
        Stage::Relay => stage.hop != in_guest,
        Stage::From(point) => point.is_of_vcpu(),
        _ => false,
    };
    let (crossings, others): (Vec<_>, Vec<_>) = path.stages.iter().partition(|stage| is_crossing(stage));
    let part: f64 = crossings.iter().map(|stage| stage.part_ns).sum();
    // On its way there a packet waits for half of the time that it stands still, on average, if it comes then; its answer may come out while it goes on.
    let wait = STOPPED.as_secs_f64() * 1e9 / 2.0;
    assert!(part > wait / 2.0 && part > whole / 2.0, "{part} of {whole}: {path:#?}");
    for stage in others {
        let median = stage.times.and_then(|times| times.p50_ns).unwrap_or(0);
        assert!((median as f64) < wait / 6.0, "{stage:#?}");
    }
}

/// Somebody kills the talker in the guest: what it had put at the NIC's root is not there in the next turn. A program in the guest does it, and says in the
/// next loaded turn what it finds.
#[test]
#[ignore = "make test-guests runs it"]
fn a_talker_that_is_killed_in_a_guest_leaves_no_queueing_discipline() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let tc = find_program("tc").expect("tc");
    // The talker is there once it has its packet sockets, and is the last that was started.
    let script = format!(
        "sockets() {{ n=0; while read line; do n=$((n+1)); done </proc/net/packet; }}
         if [ -e /killed ]; then {} qdisc show dev eth0 root >&2; exit 1; fi
         sockets; before=$n
         while [ $n -le $before ]; do sockets; done
         last=0
         for each in /proc/[0-9]*; do
             read name <$each/comm || continue
             each=${{each#/proc/}}
             [ $name = ringside ] && [ $each -gt $last ] && last=$each
         done
         : >/killed; kill -9 $last; kill -STOP $$",
        tc.display()
    );
    scratch.lab(&format!(
        "rounds = 2\nturn = \"5s\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n\
         [[link]]\nname = \"up\"\nends = [\"a\", \"b\"]\n\
         [[guest]]\nname = \"vm\"\nhost = \"b\"\nattachment = \"tap-bridge\"\nuplink = \"up\"\nqueues = 2\n\
         [[load]]\nname = \"tc\"\nkind = \"program\"\nguest = \"vm\"\ncommand = [\"tc\", \"monitor\"]\n\
         [[load]]\nname = \"killer\"\nkind = \"program\"\nguest = \"vm\"\ncommand = [\"sh\", \"-c\", '''{script}''']\n\
         [[schedule]]\nname = \"out\"\nfrom = \"vm\"\nto = \"a\"\nqdisc = \"mqprio\"\nuncertainty = \"10ms\"\n\
         cycle = \"50ms\"\nclass = [\"5:0ms:20ms\"]\n"
    ));
    let running = start(&scratch, "run my.toml --into run --json");
    let pid = running.pid();
    let done = running.end_within(PATIENCE);
    let told = done.bad();
    let killed = "out PCP 5, one way, loaded: ringside talker in the guest: ";
    assert!(done.err.contains(killed), "{}", done.err);
    assert!(
        told.contains("qdisc mq 0: root") && !done.err.contains("not undone"),
        "{told}"
    );
    assert_nothing_is_left_of(pid);
}
