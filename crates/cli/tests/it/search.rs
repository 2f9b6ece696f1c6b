//! `ringside search` on the real kernel: there and back, in at one interface and out at another, and what it refuses.

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::common::{Done, PATIENCE, Running};
use crate::common::{assert_clean, lab, lab_with, run, start, start_receiver};
use ringside_measure::schema::{LatencyKind, Outcome, SearchResult, SearchTable};
use ringside_netlab::testing::is_root;
use ringside_netlab::{Lab, Namespace, VethConfig};

/// Two searches at once would search each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Short enough for a test: rates up to 20,000, trials of 50 ms, a third of them good is good enough on a busy machine.
const SHORT: &str =
    "--quick --trial 50ms --first-trial 20ms --sum 200ms --to-rate 20000 --exceed 90 --even-if-unstable --json";

fn result(done: &Done) -> SearchResult {
    match done.document().result {
        Outcome::Search(result) => result,
        other => panic!("not a search: {other:?}"),
    }
}

/// What holds of every search that came to its end, whatever the machine did.
fn check(result: &SearchResult) {
    for table in &result.tables {
        assert!(table.trials > 10 && table.refused.is_none(), "{table:#?}");
        for goal in &table.goals {
            assert!(goal.finished, "{goal:#?}");
            assert!(
                goal.lower_pps.is_some() || goal.upper_pps == Some(result.min_pps),
                "{goal:#?}"
            );
            assert!(
                goal.upper_pps.is_some() || goal.lower_pps == Some(result.max_pps),
                "{goal:#?}"
            );
            if let (Some(lower), Some(upper)) = (goal.lower_pps, goal.upper_pps) {
                assert!(
                    lower < upper && (upper - lower) as f64 <= 0.05 * upper as f64 + 1.0,
                    "{goal:#?}"
                );
            }
            if let (Some(lower), Some(throughput)) = (goal.lower_pps, goal.throughput_pps) {
                assert!(
                    throughput <= lower as f64 && throughput >= lower as f64 * (1.0 - goal.loss_percent / 100.0),
                    "{goal:#?}"
                );
            }
            for at in &goal.latency {
                assert!(at.trial.intended_packets > 0, "{at:#?}");
                let share = at.trial.load_pps as f64 / goal.lower_pps.unwrap() as f64;
                assert!((share * 100.0 - at.percent).abs() < 0.5, "{at:#?}");
                let samples = at.raw.map_or(0, |times| times.samples);
                assert_eq!(samples, at.trial.received_packets, "{at:#?}");
            }
        }
        // Asked for more loss, it finds no less.
        let rates: Vec<u64> = table.goals.iter().map(|goal| goal.lower_pps.unwrap_or(0)).collect();
        assert!(rates.is_sorted(), "{rates:?}");
    }
}

/// Latencies were measured, and none is nonsense: short probes do not carry their times.
fn check_times(table: &SearchTable) {
    let times: Vec<_> = table
        .goals
        .iter()
        .flat_map(|goal| &goal.latency)
        .filter_map(|at| at.raw)
        .collect();
    assert!(!times.is_empty(), "{table:#?}");
    for raw in times {
        assert!(raw.min_ns > 0 && raw.max_ns < 60_000_000_000, "{raw:?}");
    }
}

#[test]
fn the_smallest_frames_over_ipv6_and_jumbo_frames() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = lab_with(VethConfig {
        mtu: 9000,
        ..VethConfig::tagged("search-sizes")
    });
    let _echo = start_receiver(&lab.b, "echo {} --wait poll --multi-buffer --frames 4096");
    let line = format!(
        "search {{}} --to {} --loss 10 --sizes 80,9000 --multi-buffer --frames 4096 {SHORT}",
        lab.b.ipv6
    );
    // 14 of Ethernet, 40 of IPv6, 8 of UDP, 18 of the probe.
    let told = run(&lab.a, &line.replace("--sizes 80,", "--sizes 79,")).bad();
    let words = "--sizes 79: a packet of this flow has 80 to 9014 bytes";
    assert!(told.contains(words), "{told}");
    let result = result(&run(&lab.a, &line).good());
    let [small, jumbo] = &result.tables[..] else {
        panic!("{result:#?}")
    };
    assert_eq!(
        (&small.frame_bytes[..], &jumbo.frame_bytes[..]),
        (&[80][..], &[9000][..])
    );
    check_times(small);
    check_times(jumbo);
}

#[test]
fn a_test_bed_of_its_own_is_searched_and_gone() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
    command
        .args("search --lab veth --loss 0,5 --sizes 100,imix --latency-at 0,100".split(' '))
        .args(SHORT.split(' '));
    let done = Running::new(command).end().good();
    let result = result(&done);
    check(&result);
    assert_eq!(
        (result.method.as_str(), result.kind, result.interrupted),
        ("mlr", LatencyKind::RoundTrip, false)
    );
    let [one, imix] = &result.tables[..] else {
        panic!("{result:#?}")
    };
    assert_eq!(
        (one.name.as_str(), &one.frame_bytes[..], one.wire_bytes),
        ("100", &[100][..], 124.0)
    );
    assert_eq!((imix.name.as_str(), imix.frame_bytes.len()), ("imix", 12));
    assert_eq!(imix.frame_bytes[0], 60, "64 on the wire");
    assert!(!done.err.contains("raised"), "{}", done.err);
    // Whole probes and short ones: each that came has its time.
    check_times(imix);
    assert!(one.goals[1].latency.iter().any(|at| at.raw.is_some()), "{one:#?}");
    let left = Command::new("ip").arg("netns").output().unwrap();
    let pid = std::process::id();
    assert!(
        !String::from_utf8_lossy(&left.stdout).contains(&format!("{pid}-search")),
        "{left:?}"
    );
}

/// The time is that of the trials, which is the same on a busy machine but for trials repeated there.
#[test]
#[ignore = "sends as much as this machine can for half a minute: make test-guests"]
fn a_search_with_default_options_takes_about_the_time_that_it_announces() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
    command.args("search --lab veth --json".split(' '));
    let done = Running::new(command).end_within(PATIENCE * 8).good();
    let (_, behind) = done.err.split_once("takes about ").expect("an estimate");
    let announced: u64 = behind.split(' ').next().unwrap().parse().expect("seconds");
    assert!(announced < 60, "{}", done.err);
    let result = result(&done);
    assert!(!result.interrupted, "{result:#?}");
    let [table] = &result.tables[..] else {
        panic!("{result:#?}")
    };
    if table.refused.is_some() {
        // A host that had no CPU for a thousand packets a second is no reason to search.
        assert_eq!(done.document().validity.map(|validity| validity.valid), Some(false));
        return;
    }
    check(&result);
    // No trial is longer than those that count.
    let trial = Duration::from_millis(500);
    let trials = u32::try_from(table.trials).unwrap();
    let time = Duration::from_nanos(table.trial_time_ns);
    assert!(time <= trial * trials, "{table:#?}");
    let announced = Duration::from_secs(announced);
    let repeated = trial * u32::try_from(table.repeated_trials).unwrap();
    assert!(
        time > announced / 4 && time < announced * 4 + repeated,
        "{time:?} of {trials} trials, {announced:?} were announced: {table:#?}"
    );
}

#[test]
fn rfc2544_with_curve_bursts_and_soak() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = lab("search-rfc", 1);
    let _echo = start_receiver(&lab.b, "echo {} --wait poll");
    let line = format!(
        "search {{}} --to {} --method rfc2544 --loss 5 --curve --burst 2 --soak 0.3s {SHORT}",
        lab.b.ipv4
    );
    // Each search of bursts has up to 15 trials of up to 2 s. A disturbed trial is repeated once.
    let done = start(&lab.a, &line).end_within(PATIENCE * 6).good();
    let result = result(&done);
    check(&result);
    let table = &result.tables[0];
    assert!(
        table
            .stability
            .is_some_and(|stability| stability.trials == 10 && stability.load_pps == 1_000)
    );
    assert!(
        table.curve.len() >= 2 && table.curve.windows(2).all(|pair| pair[0].load_pps > pair[1].load_pps),
        "{table:#?}"
    );
    let burst = table.burst.unwrap();
    assert!(
        burst.searches == 2
            && burst.min_packets as f64 <= burst.mean_packets
            && burst.mean_packets <= burst.max_packets as f64
    );
    if let (Some(rate), Some(soak)) = (table.goals[0].lower_pps, table.soak) {
        assert_eq!((soak.load_pps, soak.duration_ns), (rate, 300_000_000));
    }
    assert_clean(&lab.a);
}

#[test]
fn a_device_in_between_is_searched_from_one_side_to_the_other() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    // Both outer interfaces are the tester's; the device forwards from one to the other.
    let [tester, device] = ["t", "d"].map(|end| Namespace::create(&format!("search-{end}")).expect("namespace"));
    let config = |subnet: u8, names: [&str; 2]| VethConfig {
        subnet,
        ipv6: false,
        gro: true,
        ..VethConfig::named(names[0], names[1])
    };
    let first = Lab::join(&tester, &device, config(1, ["out", "in"])).expect("link");
    let second = Lab::join(&tester, &device, config(2, ["back", "on"])).expect("link");
    let _device = start_receiver(&first.b, "fwd in --out on --wait poll");
    let line = format!(
        "search out --receive back --to {} --to-mac 02:00:00:00:00:09 {SHORT}",
        second.a.ipv4
    );
    let result = result(&run(&first.a, &line).good());
    check(&result);
    assert_eq!(result.kind, LatencyKind::OneWay);
    assert!(
        result.tables[0].goals.iter().all(|goal| goal.lower_pps.is_some()),
        "{result:#?}"
    );
}

#[test]
fn a_search_that_nobody_answers_is_an_error() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = lab("search-deaf", 1);
    let line = format!(
        "search {{}} --to {} --to-mac 02:00:00:00:00:09 --quick --trial 50ms --drain 20ms --json",
        lab.b.ipv4
    );
    let done = run(&lab.a, &line);
    let message = done.bad();
    assert!(
        message.contains("none answered: is `ringside echo` running there, on UDP port"),
        "{message}"
    );
    let result = result(&done);
    let table = &result.tables[0];
    assert!(
        table
            .refused
            .as_ref()
            .is_some_and(|why| why.contains("no packet came out of the path")),
        "{table:#?}"
    );
    assert!(
        table.goals.is_empty()
            && table
                .stability
                .is_some_and(|seen| seen.bad_trials == 10 && seen.lost_packets == seen.intended_packets)
    );
}

#[test]
fn an_interrupt_ends_it_with_what_is_known() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = lab("search-int", 1);
    let _echo = start_receiver(&lab.b, "echo {} --wait poll");
    let line = format!(
        "search {{}} --to {} --trial 5s --even-if-unstable --to-rate 5000 --json",
        lab.b.ipv4
    );
    let running = start(&lab.a, &line);
    running.wait_for("XDP program");
    std::thread::sleep(Duration::from_secs(2));
    let done = running.interrupt().good();
    let result = result(&done);
    assert!(
        result.interrupted
            && result
                .tables
                .iter()
                .flat_map(|table| &table.goals)
                .all(|goal| !goal.finished),
        "{result:#?}"
    );
    assert_clean(&lab.a);
}

#[test]
fn nonsense_is_refused_before_anything_is_touched() {
    let refused = |line: &str, part: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
        command.args(line.split_whitespace());
        let message = Running::new(command).end().refused();
        assert!(message.contains(part), "{line}: {message}");
    };
    refused("search", "Give an interface, or --lab veth");
    refused("search lo --lab veth", "brings its own");
    for (option, part) in [
        ("--loss 100", "--loss 100"),
        ("--loss nonsense", "invalid"),
        ("--exact 0", "--exact 0"),
        ("--exceed 100", "--exceed 100"),
        ("--latency-at 101", "--latency-at 101"),
        ("--from-rate 0", "0 sends nothing"),
        ("--from-rate 9 --to-rate 9", "below the higher"),
        ("--first-trial 2s", "initial trial"),
        ("--sum 1ms", "sum"),
        ("--sizes big", "no number of bytes"),
        ("--burst 0", "no number from 1 to"),
        ("--trial 5", "no time with a unit"),
    ] {
        refused(&format!("search --lab veth {option}"), part);
    }
}

#[test]
fn trials_are_sent_from_the_cpu_that_was_chosen() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = lab("search-cpu", 1);
    let _echo = start_receiver(&lab.b, "echo {} --wait poll");
    let line = format!("search {{}} --to {} -c 1 {SHORT}", lab.b.ipv4);
    let running = start(&lab.a, &line);
    running.wait_for("takes about");
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap();
    assert!(status.contains("Cpus_allowed_list:\t1\n"), "{status}");
    running.interrupt();
}

/// The sizes were right when it began.
#[test]
fn a_lowered_mtu_ends_a_search_of_longer_packets_as_a_failure() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let lab = lab("search-mtu", 1);
    let _echo = start_receiver(&lab.b, "echo {} --wait poll");
    let line = format!("search {{}} --to {} --sizes 1414 {SHORT}", lab.b.ipv4);
    let running = start(&lab.a, &line);
    running.wait_for("takes about");
    lab.a.run(|| lab.a.interface.set_mtu(1300)).unwrap();
    let done = running.end();
    let message = done.bad();
    assert!(
        message.contains("the MTU of veth-a was changed to 1300 during the run: packet length"),
        "{message}"
    );
    assert_eq!(done.status.code(), Some(1), "{message}");
}
