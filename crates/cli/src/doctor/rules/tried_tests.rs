use super::super::super::tried::{CameTo, Seen};
use super::super::testing::{Check, device, nic};
use super::*;

fn asked(queue: u32, mode: Mode, sent: u64, answered: u64) -> Try {
    let answers = Answers {
        sent,
        answered,
        came_to: vec![CameTo {
            queue,
            packets: answered,
        }],
        median_rtt_ns: Some(16_400),
        ..Answers::default()
    };
    Try {
        queue,
        mode,
        outcome: Outcome::Asked(answers),
    }
}

fn refused(queue: u32, mode: Mode, of_mode: bool) -> Try {
    Try {
        queue,
        mode,
        outcome: Outcome::Refused {
            reason: "because".into(),
            of_mode,
        },
    }
}

fn test(tries: Vec<Try>) -> Test {
    Test {
        tries,
        ..Test::default()
    }
}

fn veth(tries: Vec<Try>) -> Check {
    Check::of(|findings| judge_veth(&test(tries), findings))
}

fn live(tries: Vec<Try>) -> Check {
    Check::of(|findings| judge_live(&test(tries), &nic(), findings))
}

/// What comes of a healthy machine.
fn healthy() -> Vec<Try> {
    let mut tries = vec![refused(0, Mode::ZeroCopy, true), refused(1, Mode::ZeroCopy, true)];
    for mode in [Mode::NativeCopy, Mode::Generic] {
        tries.extend([asked(0, mode, 64, 64), asked(1, mode, 64, 64)]);
    }
    tries
}

#[test]
fn a_machine_that_echoes_is_fine() {
    let check = veth(healthy());
    check.is_fine();
    let told = check.all("veth.echo");
    assert_eq!(told[0], format!("zero-copy: {ONLY_NICS}"));
    assert_eq!(
        told[1],
        "native copy: queues 0-1 bound, 64 of 64 packets echoed on each, median round trip 16 µs"
    );
    assert_eq!(told.len(), 3);
}

#[test]
fn each_queue_that_does_not_echo_is_an_error() {
    let mut tries = healthy();
    tries[3] = asked(1, Mode::NativeCopy, 64, 63);
    let finding = veth(tries.clone()).only("veth.echo", "error");
    assert_eq!(finding.what, "native copy, queue 1: 63 of 64 packets came back");
    tries[3] = refused(1, Mode::NativeCopy, true);
    veth(tries.clone()).only("veth.echo", "error");
    tries[3].outcome = Outcome::Failed { reason: "stuck".into() };
    assert!(veth(tries).only("veth.echo", "error").what.contains("stuck"));
}

/// It says nothing about zero-copy, and the other modes were not tried.
#[test]
fn a_refusal_of_all_modes_is_an_error_whichever_was_first() {
    veth(vec![refused(0, Mode::ZeroCopy, false)]).only("veth.echo", "error");
    veth(vec![refused(0, Mode::ZeroCopy, true)]).is_fine();
}

#[test]
fn a_test_that_could_not_be_made_is_a_warning() {
    let failed = Test {
        failure: Some("no namespaces".into()),
        ..Test::default()
    };
    let finding = Check::of(|findings| judge_veth(&failed, findings)).only("veth.test", "warning");
    assert!(finding.what.contains("no namespaces"));
}

#[test]
fn flows_are_counted_by_queue_and_a_lost_one_is_an_error() {
    let flows = |queues: [Option<u32>; 3]| {
        let seen = queues.map(|queue| Seen {
            flow: "udp:a-b".into(),
            queue,
        });
        let test = Test {
            flows: seen.to_vec(),
            ..Test::default()
        };
        Check::of(|findings| judge_veth(&test, findings))
    };
    let all = flows([Some(1), Some(0), Some(1)]);
    all.is_fine();
    assert!(
        all.ok("veth.flows")
            .starts_with("of 3 flows of the kernel's sockets came 1 to queue 0, 2 to queue 1")
    );
    assert!(
        flows([Some(1), None, Some(1)])
            .only("veth.flows", "error")
            .what
            .ends_with("udp:a-b")
    );
}

#[test]
fn what_the_driver_offers_has_to_work() {
    // The NIC of these tests offers all of it.
    let finding =
        live(vec![refused(0, Mode::ZeroCopy, true), refused(1, Mode::ZeroCopy, true)]).only("live.mode", "warning");
    assert!(
        finding.what.contains("zero-copy, queues 0-1: refused: because"),
        "{finding:?}"
    );
    live(vec![refused(0, Mode::NativeCopy, true)]).only("live.mode", "warning");
    live(vec![refused(0, Mode::Generic, true)]).only("live.mode", "error");
    let mut without = nic();
    without.device = device(XdpFeatures::default());
    let tries = test(vec![
        refused(0, Mode::ZeroCopy, true),
        refused(0, Mode::NativeCopy, true),
    ]);
    Check::of(|findings| judge_live(&tries, &without, findings)).is_fine();
}

#[test]
fn a_queue_that_somebody_has_is_an_error_in_whichever_mode() {
    for mode in [Mode::ZeroCopy, Mode::NativeCopy, Mode::Generic] {
        let mut without = nic();
        without.device = device(XdpFeatures::default());
        let tries = test(vec![refused(1, mode, false)]);
        let check = Check::of(|findings| judge_live(&tries, &without, findings));
        assert_eq!(check.only("live.refused", "error").what, "queue 1: because");
    }
}

#[test]
fn probes_without_answers_are_warnings() {
    live(vec![asked(0, Mode::NativeCopy, 64, 64)]).is_fine();
    let silent = live(vec![asked(0, Mode::NativeCopy, 3, 0)]).only("live.echo", "warning");
    assert!(silent.why.contains("answers ping"), "{silent:?}");
    let lossy = live(vec![asked(0, Mode::NativeCopy, 64, 60)]).only("live.echo", "warning");
    assert!(lossy.why.contains("lost"), "{lossy:?}");
}

#[test]
fn a_frame_to_nobody_is_enough_where_nobody_answers() {
    let sent = |queue| Try {
        queue,
        mode: Mode::ZeroCopy,
        outcome: Outcome::Sent,
    };
    let check = live(vec![sent(0), sent(1)]);
    check.is_fine();
    assert_eq!(
        check.ok("live.mode"),
        "zero-copy: queues 0-1 bound, a frame sent from each"
    );
    assert!(without_peer(&test(vec![sent(0)])));
    assert!(!without_peer(&test(vec![asked(0, Mode::Generic, 1, 1)])));
}

#[test]
fn answers_that_come_to_other_queues_are_told() {
    let mut elsewhere = asked(1, Mode::Generic, 64, 64);
    let Outcome::Asked(answers) = &mut elsewhere.outcome else {
        unreachable!("made above")
    };
    answers.came_to[0].queue = 0;
    let check = live(vec![asked(0, Mode::Generic, 64, 64), elsewhere]);
    check.is_fine();
    assert!(check.ok("live.mode").ends_with("; those from queue 1 come to queue 0"));
}

#[test]
fn an_end_too_early_and_what_is_left_behind_are_errors() {
    let mut early = test(healthy());
    early.failure = Some("it hung".into());
    let check = Check::of(|findings| judge_live(&early, &nic(), findings));
    assert!(check.finding("live.test", "error").what.ends_with("it hung"));
    let mut left = test(vec![asked(0, Mode::Generic, 1, 1)]);
    left.left_behind = Some("a program".into());
    let check = Check::of(|findings| judge_live(&left, &nic(), findings));
    assert!(check.only("live.left", "error").what.contains("a program"));
}
