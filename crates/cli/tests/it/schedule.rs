//! `talker` and `listener`: three classes over a veth pair, one that is late on purpose, and one that loses packets.
//!
//! Windows are long, and cycles longer: how well a busy machine keeps times is no test's affair. That a class which is sent after its
//! window is counted, and no other, is.

mod ptp;

use crate::common;
use crate::common::{Done, assert_clean, assert_reconciles, lab, run, start};
use ringside_measure::schema::{ArrivalStamps, ClassReceived, ClassSent, LaunchBy, RunResult, Via};
use ringside_netlab::testing::{expect, is_root, measured};
use ringside_netlab::{End, Lab};

const CYCLE: &str = "--cycle 40ms --class 5:0ms:10ms:200:2 --class 3:13ms:10ms:1000 --class 1:26ms:10ms";

/// A listener that has its socket.
fn listen(end: &End, options: &str) -> common::Running {
    let running = start(end, &format!("listener {{}} {CYCLE} --wait poll --json {options}"));
    running.wait_until("its socket", |err| {
        err.contains("a packet socket listens") || err.contains("XDP program ringside_xsk")
    });
    running
}

/// A whole run: what the talker and the listener say.
fn both(lab: &Lab, talker: &str, listener: &str) -> (Done, RunResult, RunResult) {
    let listening = listen(&lab.b, listener);
    let line = format!("talker {{}} --to-mac {} {CYCLE} {talker} --json", mac(&lab.b));
    let done = run(&lab.a, &line).good();
    let sent = done.result();
    // What is on its way.
    std::thread::sleep(std::time::Duration::from_millis(50));
    let received = listening.interrupt().good().result();
    assert_reconciles(&received);
    (done, sent, received)
}

fn mac(end: &End) -> String {
    let mac = end.state().expect("state").mac.map(|byte| format!("{byte:02x}"));
    mac.join(":")
}

fn sent_of(result: &RunResult, pcp: u8) -> ClassSent {
    let classes = &result.schedule.as_ref().expect("a schedule").classes;
    classes
        .iter()
        .find(|class| class.class.pcp == pcp)
        .and_then(|class| class.sent.clone())
        .expect("sent")
}

fn received_of(result: &RunResult, pcp: u8) -> ClassReceived {
    let classes = &result.schedule.as_ref().expect("a schedule").classes;
    classes
        .iter()
        .find(|class| class.class.pcp == pcp)
        .and_then(|class| class.received.clone())
        .expect("received")
}

/// Everything came, with its priority, each class on its own, and what the two say of each other fits.
fn check(sent: &RunResult, received: &RunResult) {
    let (by, at) = (sent.schedule.clone().unwrap(), received.schedule.clone().unwrap());
    assert_eq!(by.session, at.session);
    assert_eq!(
        (at.other_session_packets, at.other_schedule_packets),
        (Some(0), Some(0))
    );
    for pcp in [5, 3, 1] {
        let (sent, received) = (sent_of(sent, pcp), received_of(received, pcp));
        let omitted = sent.omitted_packets.unwrap_or(0);
        assert!(sent.sent_packets + sent.skipped_packets + omitted >= 15, "{sent:#?}");
        // A veth loses none; a busy machine may leave some out, which the packets after them say.
        assert_eq!(
            received.received_packets, sent.sent_packets,
            "class {pcp}: {received:#?}"
        );
        assert!(
            received.lost_packets <= omitted && received.skipped_packets <= sent.skipped_packets,
            "class {pcp}: {sent:#?} {received:#?}"
        );
        assert_eq!(
            (received.duplicated_packets, received.reordered_packets),
            (0, 0),
            "{received:#?}"
        );
        assert_eq!(
            (received.changed_pcp_packets, received.untold_pcp_packets),
            (0, 0),
            "{received:#?}"
        );
        assert_eq!(
            (received.early_packets, received.impossible_packets),
            (0, 0),
            "class {pcp}: {received:#?}"
        );
        let latency = received.latency.expect("timed");
        assert_eq!(latency.samples, received.received_packets);
        assert!(received.path.unwrap().max_ns <= latency.max_ns + 1_000, "{received:#?}");
        assert_eq!(received.gap.unwrap().samples, received.received_packets - 1);
        assert_eq!(received.jitter.unwrap().differences, received.received_packets - 1);
    }
    // Two packets of class 5 are due half of its window apart, and then there is a pause.
    let gap = received_of(received, 5).gap.unwrap();
    assert!(gap.min_ns < 20_000_000 && gap.max_ns > 20_000_000, "{gap:?}");
}

/// A talker that did not run for a while is too late for some cycles, and says so.
#[test]
fn packets_that_the_talker_skipped_are_not_lost() {
    if !is_root() {
        return;
    }
    let lab = lab("sched-skip", 1);
    let listening = listen(&lab.b, "");
    let line = format!("talker {{}} --to-mac {} {CYCLE} -t 2 --json", mac(&lab.b));
    let talking = start(&lab.a, &line);
    talking.wait_for("a packet socket for each class");
    std::thread::sleep(std::time::Duration::from_millis(500));
    talking.stop();
    std::thread::sleep(std::time::Duration::from_millis(400));
    talking.signal(libc::SIGCONT);
    let sent = talking.end().good().result();
    let received = listening.interrupt().good().result();
    assert_reconciles(&received);
    check(&sent, &received);
    for pcp in [5, 3, 1] {
        let (sent, received) = (sent_of(&sent, pcp), received_of(&received, pcp));
        assert!(sent.skipped_packets >= 8, "{sent:#?}");
        assert!(received.skipped_packets >= 8, "{received:#?}");
    }
    assert!(received.packets.not_sent() >= 24, "{:?}", received.packets);
}

/// As on a machine that lets the listener run only when it is ended.
#[test]
fn what_came_before_the_end_counts() {
    if !is_root() {
        return;
    }
    let lab = lab("sched-end", 1);
    for listener in ["--via af-packet", "--via af-xdp --mode native"] {
        let listening = listen(&lab.b, listener);
        listening.stop();
        let line = format!("talker {{}} --to-mac {} {CYCLE} --count 64 --json", mac(&lab.b));
        let sent = run(&lab.a, &line).good().result();
        listening.signal(libc::SIGINT);
        listening.signal(libc::SIGCONT);
        let received = listening.end().good().result();
        assert_reconciles(&received);
        check(&sent, &received);
    }
}

#[test]
fn three_classes_come_in_their_windows() {
    if !is_root() {
        return;
    }
    let lab = lab("sched", 2);
    for (talker, listener, via, stamps) in [
        (
            "--via af-packet --count 64",
            "--via af-packet",
            Via::AfPacket,
            ArrivalStamps::Kernel,
        ),
        (
            "--via af-packet --vlan 7 --count 64",
            "--via af-xdp --mode native",
            Via::AfPacket,
            ArrivalStamps::Xdp,
        ),
        (
            "--via af-xdp --count 64",
            "--via af-xdp --mode generic",
            Via::AfXdp,
            ArrivalStamps::Xdp,
        ),
        (
            "--via af-xdp --sleep --count 64",
            "--via af-packet",
            Via::AfXdp,
            ArrivalStamps::Kernel,
        ),
    ] {
        measured(|| {
            let (done, sent, received) = both(&lab, talker, listener);
            check(&sent, &received);
            let cycle = sent.cycle.clone().expect("deadlines");
            assert_eq!((cycle.via, cycle.period_ns), (via, 40_000_000));
            let launch = cycle.launch.expect("told");
            assert_eq!((launch.kept_by, launch.lead_ns), (LaunchBy::Thread, 0), "{}", done.err);
            assert_eq!(sent.packets.sent, 64);
            assert_eq!(received.schedule.as_ref().unwrap().stamps, Some(stamps));
            let violations = [5, 3, 1].map(|pcp| received_of(&received, pcp).violations());
            expect(
                violations.iter().sum::<u64>() <= 6,
                format_args!("{violations:?} of 64 came outside of windows of 10 ms"),
            )
        });
    }
    assert_clean(&lab.a);
    assert_clean(&lab.b);
}

#[test]
fn a_late_class_and_no_other_is_found() {
    if !is_root() {
        return;
    }
    let lab = lab("schedlate", 1);
    let few = |class: &ClassReceived| expect(class.violations() <= 3, format_args!("{class:#?}"));
    // Class 3 is due in 13 to 23 ms, and sent at 24.
    measured(|| {
        let (_, sent, received) = both(&lab, "--fault late:3:11ms --count 80", "");
        check(&sent, &received);
        let late = received_of(&received, 3);
        assert_eq!(late.late_packets, late.received_packets, "{late:#?}");
        assert!(late.late_most_ns.unwrap() >= 1_000_000, "{late:#?}");
        assert_eq!(sent_of(&sent, 3).later_ns, Some(11_000_000));
        few(&received_of(&received, 5))?;
        few(&received_of(&received, 1))
    });
    // A path that is known to take as long makes it right, and the others early.
    measured(|| {
        let (_, _, received) = both(&lab, "--fault late:3:11ms --count 80", "--path 11ms");
        let others = received_of(&received, 1);
        expect(
            others.early_packets >= others.received_packets / 2,
            format_args!("{others:#?}"),
        )?;
        few(&received_of(&received, 3))
    });
}

#[test]
fn what_is_lost_is_missing_by_its_number() {
    if !is_root() {
        return;
    }
    let lab = lab("schedloss", 1);
    let (_, sent, received) = both(&lab, "--fault omit:5:4 --count 60", "--via af-xdp");
    check(&sent, &received);
    let class = sent_of(&sent, 5);
    let (omitted, skipped) = (class.omitted_packets.unwrap(), class.skipped_packets);
    let due = class.sent_packets + skipped + omitted;
    // Every fourth packet is left out, unless the talker skips it because it is late.
    assert!(
        omitted <= due / 4 && omitted + skipped >= due / 4,
        "{due} due, {omitted} left out, {skipped} skipped"
    );
    let lost = received_of(&received, 5).lost_packets;
    // The last of them has none behind it that tells.
    assert!(
        lost + 2 >= omitted && lost <= omitted + skipped,
        "{lost} lost, {omitted} left out, {skipped} skipped"
    );
    assert_eq!(
        received.sequence.unwrap().lost,
        lost + received_of(&received, 3).lost_packets + received_of(&received, 1).lost_packets
    );
}

#[test]
fn the_texts_tell_it() {
    if !is_root() {
        return;
    }
    let lab = lab("schedtext", 1);
    let listening = start(&lab.b, &format!("listener {{}} {CYCLE} --wait poll -v"));
    listening.wait_for("a packet socket listens");
    let line = format!("talker {{}} --to-mac {} {CYCLE} --count 24 --vlan 5 -v", mac(&lab.b));
    let talker = run(&lab.a, &line).good();
    for words in [
        "schedule       every 40000 µs of CLOCK_TAI, VLAN 5, session ",
        "class 5        window of 10000 µs from 0 µs on, 2 packet(s) of 200 bytes",
        "socket priority 5",
        "kept by the sending thread",
    ] {
        assert!(talker.out.contains(words), "{words:?} is not in {}", talker.out);
    }
    assert!(talker.err.contains("neither etf nor taprio"), "{}", talker.err);
    let listener = listening.interrupt().good();
    for words in [
        "stamps         by the kernel",
        "latency, µs",
        "gap, µs",
        "jitter, µs",
        "came after it",
        "clock ",
    ] {
        assert!(listener.out.contains(words), "{words:?} is not in {}", listener.out);
    }
}

/// This kernel may have them; where it has not, it says so and nothing is left.
#[test]
fn queueing_disciplines_are_installed_or_refused() {
    if !is_root() {
        return;
    }
    let lab = lab("schedqdisc", 4);
    let roots = || lab.a.run(|| lab.a.interface.qdiscs().expect("qdiscs"));
    let before = roots();
    for qdisc in ["mqprio", "etf", "taprio"] {
        let line = format!(
            "talker {{}} --to-mac {} {CYCLE} --lead 5ms --count 24 --qdisc {qdisc} --json",
            mac(&lab.b)
        );
        let done = run(&lab.a, &line);
        if done.status.success() {
            let schedule = done.result().schedule.expect("a schedule");
            assert!(schedule.qdiscs.iter().any(|told| told.contains(qdisc)), "{schedule:#?}");
        } else {
            let message = done.bad();
            assert!(
                message.contains("install the queueing discipline") && message.contains("No such file or directory"),
                "{message}"
            );
        }
        assert_eq!(roots(), before);
    }
    let one = common::lab("schedqdisc1", 1);
    let message = run(
        &one.a,
        &format!("talker {{}} --to-mac {} {CYCLE} --qdisc taprio -t 1", mac(&one.b)),
    )
    .bad();
    assert!(message.contains("one TX queue"), "{message}");
}

#[test]
fn the_clock_is_a_gate() {
    if !is_root() {
        return;
    }
    let lab = lab("schedgate", 1);
    let to = mac(&lab.b);
    // Nobody can promise a nanosecond, and here nobody may know anything. A ptp4l of this machine,
    // or of another test, may happen to be right to a nanosecond.
    let gate = format!("{CYCLE} --ptp4l /nowhere --max-clock-offset 1ns -t 1");
    for line in [
        format!("talker {{}} --to-mac {to} {gate}"),
        format!("listener {{}} {gate}"),
    ] {
        let message = run(&lab.a, &line).bad();
        assert!(message.contains("--max-clock-offset 0.001 µs"), "{message}");
    }
    let message = run(
        &lab.a,
        &format!("listener {{}} {CYCLE} --ptp4l /nowhere --max-clock-offset 1us -t 1"),
    );
    let message = message.bad();
    assert!(
        message.contains("nobody") || message.contains("kernel's bound"),
        "{message}"
    );
}

#[test]
fn nonsense_is_refused() {
    if !is_root() {
        return;
    }
    let lab = lab("schedbad", 1);
    let to = format!("--to-mac {}", mac(&lab.b));
    for (options, words) in [
        ("--class 5:0us", "PCP:OFFSET:WINDOW"),
        ("--class 9:0us:10us", "0 to 7"),
        ("--class 5:0us:10us --vlan 4095", "4095"),
        ("--class 5:0us:10us --fault slow:5:1us", "late:PCP:TIME"),
        ("--class 5:0us:10us --spin --sleep", "--sleep"),
        ("--class 5:0us:10us --qdisc htb", "as-it-is"),
        ("", "--class"),
    ] {
        let message = run(&lab.a, &format!("talker {{}} {to} {options}")).refused();
        assert!(message.contains(words), "{options}: {message}");
    }
    for (options, words) in [
        ("--class 5:0us:2ms", "does not lie in the cycle"),
        ("--class 5:0us:10us --class 3:9us:10us", "overlap by 1 µs"),
        ("--class 5:0us:100us,5:200us:10us", "is there twice"),
        ("--class 5:0us:1us:1514:2", "of a link of 10000 Mbit/s"),
        ("--class 5:0us:500us:1519", "MTU"),
        ("--class 5:0us:10us --fault late:3:1us", "there is no class 3"),
        ("--class 5:900us:100us --fault late:5:200us", "next cycle"),
        (
            "--class 5:0us:10us --via af-xdp --qdisc taprio",
            "pass queueing disciplines by",
        ),
        ("--class 5:0us:10us -q 0", "--queues"),
        ("--class 5:0us:10us --etf-offload", "--qdisc etf"),
    ] {
        let message = run(&lab.a, &format!("talker {{}} {to} {options} -t 0.1")).bad();
        assert!(message.contains(words), "{options}: {message}");
    }
    let message = run(&lab.b, "listener {} --class 5:0us:10us -t 0.2").bad();
    assert!(
        message.contains("nothing was sampled") && message.contains("no packet of the schedule"),
        "{message}"
    );
}
