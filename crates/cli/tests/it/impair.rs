//! `ringside impair`: what the tool reports about a path is what the box on it did, exactly.

use std::time::Duration;

use crate::common::load::iperf3;
use crate::common::{Done, Row, Running, assert_clean, assert_reconciles, row_with, run, start, start_receiver, wire};
use ringside_measure::counters::LossCause;
use ringside_measure::schema::{ImpairedDirection, Outcome, RunResult};
use ringside_measure::sequence::Counts;
use ringside_netlab::testing::{LONG_DELAY, expect, is_root, measured};
use serde_json::Value;

/// A host, a box, a host.
fn bed(tag: &str) -> Row {
    row_with(tag, [1, 1], 1500)
}

/// Starts the box, and waits until both its ports are open.
fn start_box(row: &Row, options: &str) -> Running {
    let line = format!("impair in,out --wait poll --json {options}");
    let running = start(&row.left.b, &line).receiving();
    running.wait_for("this host itself is not reached");
    running
}

/// The box's result: it adds up, and nothing happened that was not on purpose.
fn finish(running: Running, row: &Row) -> RunResult {
    checked(&running.interrupt().good(), row)
}

fn checked(done: &Done, row: &Row) -> RunResult {
    let result = done.result();
    assert_reconciles(&result);
    for way in directions(&result) {
        let counts = way.counts;
        assert_eq!((counts.overflowed, counts.uncopied), (0, 0), "{way:#?}");
        assert_eq!((way.too_long_packets, way.link_down_packets), (0, 0), "{way:#?}");
        assert_eq!(
            counts.offered,
            counts.dropped + counts.queue_dropped + counts.passed,
            "{way:#?}"
        );
    }
    assert_clean(&row.left.b);
    assert_clean(&row.right.a);
    result
}

/// Packets that came to the box and about which it decided nothing: one that gets no CPU for long
/// loses some at its socket, and has some there when it ends.
fn undecided(boxed: &RunResult) -> u64 {
    let causes = [
        LossCause::RxDropped,
        LossCause::RxRingFull,
        LossCause::RxMissed,
        LossCause::RunEnded,
    ];
    causes.iter().map(|cause| boxed.packets.lost_by(*cause)).sum()
}

/// Packets that the box passed on and that did not leave: they were held when it ended, or the next
/// host took none for long.
fn not_left(boxed: &RunResult) -> u64 {
    let causes = [LossCause::StillHeld, LossCause::LinkTxDropped, LossCause::LeftOnTxRing];
    causes.iter().map(|cause| boxed.packets.lost_by(*cause)).sum()
}

fn directions(result: &RunResult) -> [&ImpairedDirection; 2] {
    let impair = result.impair.as_ref().expect("a box's");
    let [there, back] = &impair.directions[..] else {
        panic!("{impair:#?}")
    };
    [there, back]
}

/// A ping through a box with these options; its counts, and the box's result.
fn ping(tag: &str, options: &str, ping: &str) -> (Done, RunResult) {
    let row = bed(tag);
    let echo = start_receiver(&row.right.b, "echo {} --wait poll --json");
    let impair = start_box(&row, options);
    let line = format!("ping {{}} --to {} --wait poll --json {ping}", mac(&row));
    let pinged = run(&row.left.a, &line).good();
    let boxed = finish(impair, &row);
    assert_reconciles(&echo.interrupt().good().result());
    let counts = counts(&pinged);
    let [there, back] = directions(&boxed);
    // What holds whatever was done: each probe came in there, and each answer that left is one or a copy.
    assert_eq!(there.counts.offered, counts.sent);
    assert_eq!(
        back.counts.offered,
        there.counts.passed + there.counts.duplicated - there.counts.corrupted
    );
    assert_eq!(
        counts.received + counts.duplicated,
        back.counts.passed + back.counts.duplicated - back.counts.corrupted,
        "{counts:?} {back:#?}"
    );
    assert_eq!((counts.late, counts.unexpected), (0, 0));
    (pinged, boxed)
}

fn mac(row: &Row) -> String {
    row.right.b.mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn counts(pinged: &Done) -> Counts {
    pinged.result().sequence.expect("numbered")
}

/// Enough in flight that others can overtake and that lost ones do not hold up the rest, and not so much
/// that a socket overflows. A CPU that is taken away for a second makes no answer late.
const PROBES: &str = "--count 3000 --depth 128 --timeout 4";

#[test]
fn a_wire_that_does_nothing() {
    if !is_root() {
        return;
    }
    let (pinged, boxed) = ping("imp-none", "", "--count 1000 --depth 8");
    let seen = counts(&pinged);
    assert_eq!(
        (seen.received, seen.lost, seen.duplicated, seen.reordered),
        (1000, 0, 0, 0)
    );
    for way in directions(&boxed) {
        assert_eq!((way.counts.passed, way.settings.as_str()), (1000, "as it comes"));
        assert_eq!(way.unimpaired_packets, 0);
    }
}

#[test]
fn lost_is_what_was_dropped() {
    if !is_root() {
        return;
    }
    for (tag, options) in [
        ("imp-l1", "--loss 2% --only there --seed 5"),
        ("imp-l2", "--loss 2% --only back --seed 5"),
        ("imp-l3", "--loss there=3% --loss back=every:50 --seed 6"),
        ("imp-l4", "--loss burst:1%,25% --seed 7"),
    ] {
        let (pinged, boxed) = ping(tag, options, PROBES);
        let [there, back] = directions(&boxed);
        let seen = counts(&pinged);
        assert_eq!(seen.lost, there.counts.dropped + back.counts.dropped, "{options}");
        assert!(seen.lost > 10, "{options}: {seen:?}");
        assert_eq!((seen.duplicated, seen.reordered), (0, 0), "{options}");
        assert_eq!(boxed.packets.lost_by(LossCause::Impairment), seen.lost);
    }
}

/// The same numbers meet the same, in another run.
#[test]
fn a_seed_says_which() {
    if !is_root() {
        return;
    }
    let dropped = |seed: u32| {
        let options = format!("--loss 5% --duplicate 3% --seed {seed}");
        let (_, boxed) = ping("imp-seed", &options, "--count 1000 --depth 128 --timeout 4");
        let [there, _] = directions(&boxed);
        (there.counts.dropped, there.counts.duplicated)
    };
    let first = dropped(11);
    assert_eq!(dropped(11), first);
    assert_ne!(dropped(12), first);
}

#[test]
fn duplicates_are_what_was_doubled() {
    if !is_root() {
        return;
    }
    for (tag, options) in [
        ("imp-d1", "--duplicate 5% --only there"),
        ("imp-d2", "--duplicate 5% --only back"),
        // The last one, too, whose copy comes when all are answered.
        ("imp-d3", "--duplicate back=every:3 --duplicate there=every:1000"),
    ] {
        let (pinged, boxed) = ping(tag, options, PROBES);
        let [there, back] = directions(&boxed);
        let seen = counts(&pinged);
        // A probe that is doubled is answered twice.
        assert_eq!(
            seen.duplicated,
            there.counts.duplicated + back.counts.duplicated,
            "{options}"
        );
        assert!(seen.duplicated > 50, "{options}: {seen:?}");
        assert_eq!((seen.received, seen.lost, seen.reordered), (3000, 0, 0), "{options}");
    }
}

/// The last probe is answered twice, and the second answer comes later: it is waited for.
#[test]
fn the_last_copy_is_waited_for() {
    if !is_root() {
        return;
    }
    // With this seed the copy arrives 152 ms after the answer. Ping waits for twice the longest
    // round trip, about 400 ms, which covers a box that loses its CPU for a while.
    let late = "--duplicate there=every:50 --delay back=100ms --jitter back=100ms \
                --overtaking --seed 24";
    let (pinged, boxed) = ping("imp-last", late, "--count 50");
    let seen = counts(&pinged);
    let [there, back] = directions(&boxed);
    assert_eq!((there.counts.duplicated, back.counts.offered), (1, 51));
    assert_eq!((seen.received, seen.duplicated, seen.reordered), (50, 1, 0), "{seen:?}");
}

#[test]
fn out_of_order_is_what_was_held_back() {
    if !is_root() {
        return;
    }
    for (tag, options) in [
        ("imp-r1", "--reorder 3%:4 --only there"),
        ("imp-r2", "--reorder every:20:2 --only back"),
        ("imp-r3", "--delay 1ms --jitter 800us --overtaking --only there"),
    ] {
        let (pinged, boxed) = ping(tag, options, PROBES);
        let seen = counts(&pinged);
        let done: Vec<_> = directions(&boxed).map(|way| way.counts).to_vec();
        let (reordered, longest) = (
            done[0].reordered + done[1].reordered,
            done[0].longest_reordering.max(done[1].longest_reordering),
        );
        assert_eq!(
            (seen.reordered, seen.longest_reordering),
            (reordered, longest),
            "{options}"
        );
        assert!(seen.reordered > 20, "{options}: {seen:?}");
        assert_eq!((seen.received, seen.lost, seen.duplicated), (3000, 0, 0), "{options}");
    }
}

/// Reordered and doubled at once: RFC 4737 looks at first arrivals alone, and a copy is no packet out of order.
#[test]
fn all_at_once() {
    if !is_root() {
        return;
    }
    let all = "--loss 2% --duplicate 4% --reorder 3%:5 --delay 500us --jitter 100us --seed 3";
    for (tag, way) in [("imp-a1", 0), ("imp-a2", 1)] {
        let only = ["there", "back"][way];
        let (pinged, boxed) = ping(tag, &format!("{all} --only {only}"), PROBES);
        let (seen, done) = (counts(&pinged), directions(&boxed)[way].counts);
        assert_eq!(
            (seen.lost, seen.duplicated, seen.reordered, seen.longest_reordering),
            (done.dropped, done.duplicated, done.reordered, done.longest_reordering),
            "{only}"
        );
        assert!(
            done.dropped > 20 && done.duplicated > 50 && done.reordered > 20,
            "{done:?}"
        );
    }
    // Both ways at once: that what left arrived, `ping` above has looked at.
    let (pinged, _) = ping("imp-a3", all, PROBES);
    assert!(counts(&pinged).lost > 50, "{pinged:#?}");
}

/// A damaged packet is seen to be damaged, whichever bit it was, and counts as lost.
#[test]
fn damaged_is_lost() {
    if !is_root() {
        return;
    }
    let (pinged, boxed) = ping("imp-corrupt", "--corrupt there=2% --corrupt back=every:25", PROBES);
    let seen = counts(&pinged);
    let [there, back] = directions(&boxed);
    assert_eq!(seen.lost, there.counts.corrupted + back.counts.corrupted);
    assert_eq!((seen.duplicated, seen.reordered), (0, 0));
    assert!(there.counts.corrupted > 20, "{there:#?}");
    let told = format!("{} answer(s) had a wrong UDP checksum", back.counts.corrupted);
    assert!(pinged.err.contains(&told), "{told}: {}", pinged.err);
}

/// No answer is there before both its delays are over, by the clock of another process.
#[test]
fn a_round_trip_takes_both_delays_at_least() {
    if !is_root() {
        return;
    }
    measured(|| {
        let (pinged, boxed) = ping(
            "imp-delay",
            "--delay there=3ms --delay back=5ms --jitter back=1ms",
            "--count 400 --depth 8",
        );
        let rtt = pinged.result().latency.unwrap().raw.unwrap();
        let [there, back] = directions(&boxed);
        assert_eq!(there.asked.unwrap().min_ns, 3_000_000);
        assert_eq!(there.asked.unwrap().max_ns, 3_000_000);
        let (asked, held) = (back.asked.unwrap(), back.held.unwrap());
        assert!(asked.min_ns >= 4_000_000 && asked.max_ns <= 6_000_000, "{asked:?}");
        assert!(held.min_ns >= asked.min_ns && held.samples == 400, "{held:?}");
        assert!(there.held.unwrap().min_ns >= 3_000_000);
        let least = there.held.unwrap().min_ns + held.min_ns;
        assert!(rtt.min_ns >= least, "{} of {least}", rtt.min_ns);
        // Asked for and late is what it took.
        let sum = asked.mean_ns + back.late.unwrap().mean_ns;
        assert!((sum - held.mean_ns).abs() < 1.0, "{sum} {held:?}");
        // Each probe wakes up the box twice, and each host once.
        let most = Duration::from_millis(7) + 4 * LONG_DELAY;
        expect(
            Duration::from_nanos(rtt.min_ns) < most,
            format_args!("{rtt:?}, held for {least} ns at least"),
        )
    });
}

/// What the bucket lets through is what arrives, and it is its rate.
#[test]
fn a_rate_lets_through_what_it_says() {
    if !is_root() {
        return;
    }
    let row = bed("imp-rate");
    let receiver = start_receiver(&row.right.b, "rx {} --wait poll --json --frames 4096");
    let impair = start_box(&row, "--rate there=4000pps --limit 50 --loss back=100% --frames 4096");
    let line = format!(
        "tx {{}} --to-mac {} --size 200 --rate 12000 -t 2 --wait poll --json",
        mac(&row)
    );
    let sent = run(&row.left.a, &line).good().result();
    let boxed = finish(impair, &row);
    let received = receiver.interrupt().good().result();
    assert_reconciles(&sent);
    assert_reconciles(&received);
    let there = directions(&boxed)[0].counts;
    assert_eq!(there.offered + undecided(&boxed), sent.packets.delivered());
    assert_eq!(received.packets.sent + not_left(&boxed), there.passed);
    assert_eq!(there.passed + there.queue_dropped, there.offered);
    assert!(there.queue_dropped > 0, "{there:?}");
    // No more than the rate, from the first packet to the last, and those that waited then.
    let most = 4000 * sent.duration_ns / 1_000_000_000 + 50 + 1;
    assert!(there.passed <= most + 400, "{} of {most}", there.passed);
    let held = directions(&boxed)[0].asked.unwrap();
    assert!(held.max_ns <= 51 * 250_000, "{held:?}");
}

/// A box without a CPU has packets at its socket when it ends. They are counted as lost by the end.
#[test]
fn packets_at_the_socket_of_a_box_that_ends_are_counted() {
    if !is_root() {
        return;
    }
    let row = bed("imp-end");
    let impair = start_box(&row, "--loss back=100%");
    impair.stop();
    let line = format!("tx {{}} --to-mac {} --count 42 --json", mac(&row));
    let sent = run(&row.left.a, &line).good().result();
    impair.signal(libc::SIGINT);
    impair.signal(libc::SIGCONT);
    // A box through which nothing came has no result to speak of.
    let boxed = checked(&impair.end(), &row);
    let there = directions(&boxed)[0].counts;
    assert_eq!(
        there.offered + undecided(&boxed),
        sent.packets.delivered(),
        "{boxed:#?}"
    );
}

/// Bits are those of frames, and what is not matched goes past the bucket.
#[test]
fn a_match_leaves_others_alone() {
    if !is_root() {
        return;
    }
    let row = bed("imp-match");
    let echo = start_receiver(&row.right.b, "echo {} --wait poll");
    let impair = start_box(&row, "--match udp:7 --loss 100%");
    let line = format!("ping {{}} --to {} --wait poll --count 200 --depth 4 --json", mac(&row));
    let pinged = run(&row.left.a, &line).good();
    assert_eq!(counts(&pinged).received, 200);
    let boxed = finish(impair, &row);
    echo.interrupt().good();
    for way in directions(&boxed) {
        assert_eq!((way.counts.offered, way.unimpaired_packets), (0, 200), "{way:#?}");
    }
}

/// Packets that are held while the MTU of the link that they leave by is lowered are counted.
#[test]
fn held_packets_that_no_longer_fit_are_dropped() {
    if !is_root() {
        return;
    }
    let row = bed("imp-mtu");
    let impair = start_box(&row, "--delay there=1s");
    let to = mac(&row);
    run(&row.left.a, &format!("tx {{}} --to-mac {to} --size 1414 --count 20")).good();
    row.right.a.run(|| row.right.a.interface.set_mtu(1300)).unwrap();
    impair.wait_for("has MTU 1300 now");
    run(&row.left.a, &format!("tx {{}} --to-mac {to} --size 200 --count 10")).good();
    std::thread::sleep(Duration::from_millis(1500));
    let result = impair.interrupt().good().result();
    assert_reconciles(&result);
    let there = directions(&result)[0];
    assert_eq!((there.too_long_packets, there.left_packets), (20, 0), "{there:#?}");
    assert_eq!(result.packets.delivered(), 10, "{result:#?}");
}

/// A search finds the rate of the box: never more than it lets through.
#[test]
fn a_search_finds_the_rate() {
    if !is_root() {
        return;
    }
    for (tag, method) in [("imp-mlr", "mlr"), ("imp-2544", "rfc2544")] {
        let row = bed(tag);
        // A fifth of a second may wait: a sender that got no CPU for a while makes up for it.
        let echo = start_receiver(&row.right.b, "echo {} --wait poll --frames 4096");
        let line = format!(
            "search {{}} --to {} --wait poll --frames 4096 --method {method} --loss 0 --from-rate 1000 --to-rate 16000 --exact 10 \
             --trial 300ms --first-trial 150ms --sum 900ms --exceed 60 --no-latency --even-if-unstable -t 12 --json",
            mac(&row)
        );
        measured(|| {
            let impair = start_box(&row, "--rate there=5000pps --limit 1000 --frames 4096");
            let done = run(&row.left.a, &line).good();
            let boxed = finish(impair, &row);
            let there = directions(&boxed)[0].counts;
            let Outcome::Search(result) = done.document().result else {
                panic!("{done:#?}")
            };
            let found = &result.tables[0].goals[0];
            // A trial without loss is limited by the rate and the queue.
            let most = 5000 + (1000 + 1) * 1000 / 150;
            assert!(found.lower_pps <= Some(most), "{method}: {found:#?}");
            // Other losses keep a search below the rate of the box.
            expect(
                found.lower_pps >= Some(2500) && there.queue_dropped > 0,
                format_args!("{method}: {found:#?}, {there:?}"),
            )
        });
        echo.interrupt().good();
    }
}

/// A tool that is not ours sees the same. Its sockets are the kernel's, which leave checksums to the veth: the box completes them,
/// of UDP and of the control connection, which is TCP.
#[test]
fn iperf3_is_witness() {
    if !is_root() {
        return;
    }
    for (tag, options) in [
        ("imp-iperf1", "--loss every:10"),
        ("imp-iperf2", "--reorder every:50:3"),
    ] {
        let row = wire(tag);
        let impair = start_box(&row, &format!("{options} --match udp:5201 --only there"));
        // 250 packets a second: a veth has room for those of a whole second.
        let reports = iperf3(&row, "-u -b 1M -l 500 -t 4");
        let [client, udp] = reports.map(|report| report["end"]["streams"][0]["udp"].clone());
        let sent = figure(&client, "packets");
        let boxed = finish(impair, &row);
        let [there, back] = directions(&boxed).map(|way| way.counts);
        // The greeting comes first, and is answered; then those that are numbered.
        let all = sent + 1;
        assert_eq!((there.offered, back.offered), (all, 1), "{udp}");
        let figure = |name| figure(&udp, name);
        // The server ends as soon as it is told to, and leaves unread what came just before.
        let read = figure("packets") + 1;
        assert!((500..=all).contains(&read), "{udp}");
        let (lost, out_of_order) = (figure("lost_packets"), figure("out_of_order"));
        if options.starts_with("--loss") {
            assert_eq!(there.dropped, all / 10);
            assert_eq!((lost, out_of_order), (read / 10, 0), "{udp}");
        } else {
            // Where the client was away, one that is held back leaves before the next comes.
            let in_order = all / 50 - there.reordered;
            assert!(there.dropped == 0 && in_order <= there.not_overtaken, "{there:?}");
            // One that is held back comes behind three: the last of them may have been the last that was read.
            let reordered = (read - 4) / 50 - in_order..=there.reordered;
            assert!(reordered.contains(&out_of_order) && lost <= 1, "{udp}");
        }
    }
}

/// Returns one figure of a report by iperf3.
fn figure(report: &Value, name: &str) -> u64 {
    (report[name].as_u64()).unwrap_or_else(|| panic!("no {name}: {report}"))
}

/// A box with nothing to do says so; its options are refused before anything is touched.
#[test]
fn what_cannot_be_is_refused() {
    if !is_root() {
        return;
    }
    let row = bed("imp-bad");
    for (line, words) in [
        ("impair in", "name the two interfaces"),
        ("impair in,in", "a wire needs two interfaces"),
        ("impair in,nowhere", "nowhere"),
        ("impair in,out -q 0", "takes all queues"),
        ("impair in,out --delay 1ms --jitter 2ms", "below zero"),
        ("impair in,out --rate 100000pps --delay 1s --hold 100", "--hold 100"),
        ("impair in,out --loss 101%", "from 0% to 100%"),
    ] {
        let message = run(&row.left.b, line).refused();
        assert!(message.contains(words), "{line}: {message}");
    }
    let idle = start_box(&row, "-t 0.2");
    let done: Done = idle.end();
    assert!(done.bad().contains("no packet came through"), "{done:#?}");
    assert!(done.took < Duration::from_secs(10));
}
