//! ping --under-load: the same probes without load and with it, each packet of both accounted for.

use std::process::Command;

use crate::common;
use crate::common::{PATIENCE, assert_clean, lab, ringside, run, start_receiver};
use ringside_measure::compare::Round;
use ringside_measure::schema::{LoadCondition, LoadKind, RunResult};
use ringside_netlab::testing::{expect, is_root, measured};
use ringside_netlab::{End, wait_until};

fn conditions(result: &RunResult) -> Vec<&LoadCondition> {
    let under_load = result.under_load.as_ref().expect("asked for");
    under_load.conditions.iter().collect()
}

/// Runs it with one argument more that has blanks in it.
fn with_command(end: &End, arguments: &str, command: &str) -> common::Running {
    let mut ping = ringside(end, arguments);
    ping.args(["--load-command", command]);
    common::Running::new(ping)
}

#[test]
fn idle_self_induced_and_foreign_load_stand_side_by_side() {
    if !is_root() {
        return;
    }
    let lab = lab("load", 2);
    let to = lab.b.ipv4;
    let echo = start_receiver(&lab.b, "echo {} --frames 4096 --json");
    let ping = format!("ping {{}} --to {to} --under-load --rounds 2 --time 2.4 --load-rate 3000 --rate 500 --json");
    let result = run(&lab.a, &ping).good().result();
    let all = conditions(&result);
    let kinds: Vec<LoadKind> = all.iter().map(|condition| condition.kind).collect();
    assert_eq!(kinds, [LoadKind::Idle, LoadKind::SelfInduced, LoadKind::Foreign]);
    for condition in &all {
        let answers = condition.responsiveness.expect("answered");
        assert!(
            (answers.round_trips_per_minute * answers.round_trip_ms - 60_000.0).abs() < 1.0,
            "{answers:?}"
        );
        assert_eq!(condition.rounds.len(), 2, "a median of each turn");
        assert!(condition.probes.received > 0, "{condition:#?}");
        assert_eq!(
            condition.latency.raw.map(|raw| raw.samples),
            Some(condition.probes.received)
        );
    }
    let sum = result.sequence.expect("numbered");
    assert_eq!(sum.sent, all.iter().map(|condition| condition.probes.sent).sum::<u64>());
    assert_eq!(sum.unexpected, 0, "the load's packets are no stray ones");
    assert_eq!(result.unaccounted_packets, 0);

    let [idle, own, foreign] = all[..] else { panic!("three") };
    assert_eq!((idle.load_sent_packets, idle.ratio_to_idle), (None, None));
    // A schedule may be late, never early: 3000/s for two turns of 0.4 s, the first packet of each at its begin.
    let (sent, back) = (own.load_sent_packets.unwrap(), own.load_received_packets.unwrap());
    assert!(
        (1..=2402).contains(&sent) && back <= sent && back > 0,
        "{sent} sent, {back} came back"
    );
    let sent = foreign.load_sent_packets.unwrap();
    assert!(sent > 0 && foreign.load_received_packets.is_none(), "{sent}");
    // Turns in which the host took CPU time away are left out, all at worst.
    let quiet = |condition: &LoadCondition| condition.rounds.iter().all(Round::is_quiet);
    for loaded in [own, foreign] {
        assert!(
            loaded.ratio_to_idle.is_some() || !quiet(loaded) || !quiet(idle),
            "{loaded:?}"
        );
    }
    let pps = |condition: &LoadCondition| condition.link_tx_pps.unwrap();
    assert!(
        pps(own) > pps(idle) && pps(foreign) > pps(idle),
        "the link carried the load too"
    );

    // The other end saw probes and own load, and nothing of the foreign.
    let echo = echo.interrupt().good().result();
    let asked = sum.sent + own.load_sent_packets.unwrap();
    assert!(echo.packets.sent <= asked, "{} came of {asked}", echo.packets.sent);
    assert_clean(&lab.a);
    assert_clean(&lab.b);
}

#[test]
fn load_as_fast_as_it_can_leaves_room_for_probes() {
    if !is_root() {
        return;
    }
    let lab = lab("loadmax", 1);
    let _echo = start_receiver(&lab.b, "echo {}");
    let to = lab.b.ipv4;
    let ping = format!("ping {{}} --to {to} --under-load=self --rounds 1 --time 1 --timeout 0.2");
    let done = run(&lab.a, &format!("{ping} --json")).good();
    let result = done.result();
    let all = conditions(&result);
    assert_eq!(all.len(), 2);
    let sent = all[1].load_sent_packets.unwrap();
    assert!(sent > 1000, "{sent} packets are no load");
    assert!(all[1].probes.sent > 100, "probes come first: {:?}", all[1].probes);

    let text = run(&lab.a, &format!("{ping} -v")).good().out;
    for part in ["self-induced load", "x idle", "round trips/min", " ms)", "came back"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn a_command_loads_the_path_and_ends_with_its_turn() {
    if !is_root() {
        return;
    }
    let lab = lab("loadcmd", 1);
    let _echo = start_receiver(&lab.b, "echo {}");
    let to = lab.b.ipv4;
    let ping = format!("ping {{}} --to {to} --under-load=foreign --rounds 1 --time 2 --json");
    let flood = format!("ping -q -f {to}; sleep 7131");
    measured(|| {
        let result = with_command(&lab.a, &ping, &flood).end().good().result();
        let all = conditions(&result);
        assert_eq!(all[1].load.as_deref(), Some(&*flood));
        expect(all[1].link_tx_pps > all[0].link_tx_pps, format_args!("{all:#?}"))
    });
    let runs = || {
        Command::new("pgrep")
            .args(["-fx", "sleep 7131"])
            .status()
            .unwrap()
            .success()
    };
    assert!(wait_until(PATIENCE, || !runs()));

    let told = with_command(&lab.a, &ping, "exit 3").end().bad();
    assert!(
        told.contains("--load-command \"exit 3\" failed: exit status 3"),
        "{told}"
    );
    let told = with_command(&lab.a, &ping, "sleep 0.1 & sleep 0.1 & wait; exit 7")
        .end()
        .bad();
    assert!(told.contains("failed: exit status 7"), "{told}");
    let told = with_command(&lab.a, &ping, "true").end().bad();
    assert!(told.contains("ended before its turn was over"), "{told}");
    assert_clean(&lab.a);
}

#[test]
fn a_command_that_loads_the_path_ends_with_a_killed_run() {
    if !is_root() {
        return;
    }
    let lab = lab("loadkill", 1);
    let _echo = start_receiver(&lab.b, "echo {}");
    let to = lab.b.ipv4;
    let ping = format!("ping {{}} --to {to} --under-load=foreign --rounds 1 --time 20");
    let running = with_command(&lab.a, &ping, "sleep 7132; true");
    let runs = || {
        Command::new("pgrep")
            .args(["-fx", "sleep 7132"])
            .status()
            .unwrap()
            .success()
    };
    assert!(wait_until(PATIENCE, runs), "the load never began: {}", running.told());
    running.signal(libc::SIGKILL);
    assert!(wait_until(PATIENCE, || !runs()));
}

#[test]
fn what_makes_no_sense_is_refused() {
    if !is_root() {
        return;
    }
    let lab = lab("loadbad", 1);
    let to = lab.b.ipv4;
    let refused = |arguments: &str| run(&lab.a, &format!("ping {{}} {arguments}")).bad();
    let told = refused("--to 02:00:00:00:00:01 --under-load=foreign");
    assert!(
        told.contains("needs an IP address") && told.contains("--load-command"),
        "{told}"
    );
    let told = refused(&format!("--to {to} --under-load --time 0.5"));
    assert!(told.contains("--time 0.5") && told.contains("15 turns"), "{told}");
    let told = refused(&format!("--to {to} --under-load --load-size 9000"));
    assert!(told.contains("--load-size") && told.contains("MTU"), "{told}");
    let told = refused(&format!("--to {to} --load-rate 10"));
    assert!(told.contains("--under-load"), "{told}");
    let told = refused(&format!("--to {to} --under-load=nonsense"));
    assert!(told.contains("nonsense") && told.contains("foreign"), "{told}");
    assert_clean(&lab.a);
}
