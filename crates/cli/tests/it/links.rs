//! Links that go down and come back under traffic, which a run rides out; and those that are gone, which end it.

use std::time::{Duration, Instant};

use crate::common::{
    Done, PATIENCE, Row, Running, assert_clean, assert_reconciles, lab, losses, row, run, start, start_receiver,
};
use ringside_measure::counters::LossCause;
use ringside_measure::schema::{LinkEvent, RunResult};
use ringside_netlab::testing::{expect, is_root, measured};
use ringside_netlab::{End, Namespace, wait_until};
use ringside_wire::MacAddr;

const FLAPS: usize = 3;
/// How long a link is down at least.
const DOWN: Duration = Duration::from_millis(50);
/// Frames that a veth may hold for its peer, and that are lost uncounted with it
/// (<https://elixir.bootlin.com/linux/v6.18/C/ident/VETH_RING_SIZE>).
const VETH_RING: u64 = 256;

fn down_note(end: &End) -> String {
    format!("{} is down; waiting for it to come back\n", end.interface.name())
}

fn up_note(end: &End) -> String {
    format!("{} is up again after ", end.interface.name())
}

/// Packets that have come in over a link.
fn arrived(end: &End) -> u64 {
    end.state().unwrap().stats.rx_packets
}

fn wait_for_more(end: &End) {
    let then = arrived(end);
    assert!(wait_until(PATIENCE, || arrived(end) >= then + 20), "nothing more comes");
}

/// Switches an interface that `running` is on off and on again, several times, traffic in between; it tells each.
fn flap(end: &End, running: &Running, receiver: &End) {
    wait_for_more(receiver);
    for round in 1..=FLAPS {
        end.set_up(false).unwrap();
        running.wait_for_times(&down_note(end), round);
        std::thread::sleep(DOWN);
        end.set_up(true).unwrap();
        running.wait_for_times(&up_note(end), round);
        end.wait_ready().unwrap();
        wait_for_more(receiver);
    }
}

/// A run on a link that flapped has told each once, whatever the number of its queues, and has written it down.
fn assert_flapped(done: &Done, end: &End) -> RunResult {
    let result = done.result();
    for note in [down_note(end), up_note(end)] {
        assert_eq!(done.err.matches(&note).count(), FLAPS, "{done:#?}");
    }
    let events = result.link_events.as_deref().expect("watched");
    let of = |wanted| events.iter().filter(|told| told.event == wanted).count();
    assert_eq!((of(LinkEvent::Down), of(LinkEvent::Up)), (FLAPS, FLAPS), "{events:#?}");
    assert!(
        events.iter().all(|told| told.interface == end.interface.name()),
        "{events:#?}"
    );
    assert!(events.is_sorted_by_key(|told| told.at_ns), "{events:#?}");
    assert!(events.last().unwrap().at_ns < result.duration_ns, "{events:#?}");
    assert_eq!(result.link_flaps, Some(FLAPS as u64));
    let down = Duration::from_nanos(result.link_down_ns.expect("watched"));
    assert!(down >= DOWN * 3, "{down:?}");
    assert!(down < Duration::from_nanos(result.duration_ns), "{down:?}");
    assert_reconciles(&result);
    result
}

/// What waited on the TX ring of a link that was down leaves when it is up: nothing is lost that is not counted.
#[test]
fn tx_rides_out_its_own_link() {
    if !is_root() {
        return;
    }
    let lab = lab("own-tx", 2);
    for wait in ["spin", "poll"] {
        let receiver = start_receiver(&lab.b, "rx {} --frames 4096 --wait poll --json");
        let sender = start(
            &lab.a,
            &format!("tx {{}} --to {} --rate 5000 --wait {wait} --json", MacAddr(lab.b.mac)),
        );
        flap(&lab.a, &sender, &lab.b);
        let sent = assert_flapped(&sender.interrupt().good(), &lab.a);
        let received = receiver.interrupt().good().result();
        assert_reconciles(&received);
        assert!(sent.packets.sent > 100, "{sent:#?}");
        assert_eq!(
            sent.packets.sent,
            received.packets.delivered() + losses(&received) + losses(&sent),
            "{sent:#?} {received:#?}"
        );
        assert_clean(&lab.a);
    }
}

#[test]
fn receivers_ride_out_their_own_link() {
    if !is_root() {
        return;
    }
    for (command, mode, wait) in [
        ("rx", "native", "spin"),
        ("rx", "generic", "poll"),
        ("rx", "native", "busy-poll"),
        ("fwd", "native", "poll"),
        ("fwd", "generic", "spin"),
        ("echo", "native", "busy-poll"),
    ] {
        let lab = lab("own-rx", 2);
        let receiver = start_receiver(
            &lab.b,
            &format!("{command} {{}} -m {mode} --wait {wait} --frames 4096 --json"),
        );
        // Without a carrier it goes on: the link drops what it sends, and counts it.
        let load = match command {
            "echo" => "ping {} --rate 500 --timeout 0.05",
            _ => "tx {} --rate 2000",
        };
        let load = start(
            &lab.a,
            &format!("{load} --to {} --wait poll --json", MacAddr(lab.b.mac)),
        );
        flap(&lab.b, &receiver, &lab.b);
        let sent = load.interrupt().good().result();
        let received = assert_flapped(&receiver.interrupt().good(), &lab.b);
        assert_reconciles(&sent);
        let arrived = received.packets.sent;
        assert!(arrived > 60, "{received:#?}");
        match command {
            "echo" => assert!(
                sent.packets.delivered() <= arrived && arrived <= sent.packets.sent,
                "{sent:#?} {received:#?}"
            ),
            // The kernel does not count what it throws away with the ring of a veth that goes down.
            _ => assert!(
                (arrived..=arrived + FLAPS as u64 * VETH_RING).contains(&sent.packets.delivered()),
                "{command} {mode} {wait}: {sent:#?} {received:#?}"
            ),
        }
        assert_clean(&lab.b);
    }
}

#[test]
fn ping_rides_out_its_own_link() {
    if !is_root() {
        return;
    }
    let lab = lab("own-ping", 2);
    let echo = start_receiver(&lab.b, "echo {} --wait poll --json");
    for more in ["--timeout 0.02", "--rate 1000 --wait poll"] {
        let ping = start_receiver(&lab.a, &format!("ping {{}} --to {} {more} --json", lab.b.ipv4));
        flap(&lab.a, &ping, &lab.a);
        let result = assert_flapped(&ping.interrupt().good(), &lab.a);
        let counts = result.sequence.expect("probes");
        assert_eq!(counts.sent, counts.received + counts.lost, "{counts:?}");
        assert!(counts.received > 60, "{counts:?}");
    }
    assert_reconciles(&echo.interrupt().good().result());
}

/// Of a forwarder either link may flap. What came in and did not go out again is counted.
#[test]
fn fwd_rides_out_either_of_its_links() {
    if !is_root() {
        return;
    }
    let Row { left, right } = row("own-fwd");
    let (fwd, impair) = ("fwd {} --out out", "impair in,out --delay 2ms");
    for (command, note, flapping) in [
        (fwd, "one UMEM", &right.a),
        (fwd, "one UMEM", &left.b),
        (impair, "this host itself", &right.a),
        (impair, "this host itself", &left.b),
    ] {
        let receiver = start_receiver(&right.b, "rx {} --frames 4096 --wait poll --json");
        let forwarder = start_receiver(&left.b, &format!("{command} --wait poll --json"));
        forwarder.wait_for(note);
        let load = format!("tx {{}} --rate 5000 --to {} --json", MacAddr(left.b.mac));
        let load = start(&left.a, &load);
        flap(flapping, &forwarder, &right.b);
        let sent = load.interrupt().good().result();
        // What is under way comes to an end.
        std::thread::sleep(Duration::from_millis(200));
        let forwarded = assert_flapped(&forwarder.interrupt().good(), flapping);
        let received = receiver.interrupt().good().result();
        for result in [&sent, &received] {
            assert_reconciles(result);
        }
        assert!(forwarded.packets.delivered() > 100, "{forwarded:#?}");
        let uncounted = sent.packets.delivered() - forwarded.packets.sent;
        match flapping.interface.name() {
            "out" => assert_eq!(uncounted, 0, "{sent:#?} {forwarded:#?}"),
            _ => assert!(uncounted <= FLAPS as u64 * VETH_RING, "{sent:#?} {forwarded:#?}"),
        }
        assert_eq!(
            forwarded.packets.delivered(),
            received.packets.delivered() + losses(&received),
            "{forwarded:#?} {received:#?}"
        );
        assert_clean(&left.b);
        assert_clean(&right.a);
    }
}

/// The other end goes down: a sender goes on, and what the link drops meanwhile is counted.
#[test]
fn a_carrier_that_is_lost_costs_packets() {
    if !is_root() {
        return;
    }
    for command in ["tx {} --rate 2000", "ping {} --timeout 0.01"] {
        let lab = lab("carrier", 2);
        let sender = start(&lab.a, &format!("{command} --to {} --json", MacAddr(lab.b.mac)));
        for round in 1..=2 {
            wait_for_more(&lab.b);
            let dropped = || lab.a.state().unwrap().stats.tx_dropped;
            let before = dropped();
            lab.b.set_up(false).unwrap();
            sender.wait_for_times("veth-a has no carrier; waiting for it to come back\n", round);
            assert!(wait_until(PATIENCE, || dropped() > before), "{}", sender.told());
            lab.b.set_up(true).unwrap();
            sender.wait_for_times(&up_note(&lab.a), round);
            lab.b.wait_ready().unwrap();
        }
        wait_for_more(&lab.b);
        // Nobody answers the ping.
        let result = sender.interrupt().result();
        assert_reconciles(&result);
        assert_eq!(result.link_flaps, Some(2));
        assert!(result.packets.sent > 60 && result.packets.lost() > 0, "{result:#?}");
        let events: Vec<LinkEvent> = (result.link_events.unwrap().iter()).map(|told| told.event).collect();
        let [down, up] = [LinkEvent::NoCarrier, LinkEvent::Up];
        assert_eq!(events, [down, up, down, up]);
        assert_clean(&lab.a);
    }
}

/// A run may begin before there is a carrier.
#[test]
fn a_carrier_that_comes_is_told() {
    if !is_root() {
        return;
    }
    let lab = lab("comes", 1);
    lab.b.set_up(false).unwrap();
    let receiver = start_receiver(&lab.a, "rx {} --wait poll --json");
    receiver.wait_for("veth-a has no carrier so far\n");
    lab.b.set_up(true).unwrap();
    receiver.wait_for("veth-a is up after ");
    lab.b.wait_ready().unwrap();
    run(&lab.b, &format!("tx {{}} --to {} --count 20", lab.a.ipv4)).good();
    let result = receiver.interrupt().good().result();
    assert_eq!((result.packets.delivered(), result.link_flaps), (20, Some(0)));
    assert!(result.link_down_ns.unwrap() > 0);
}

/// Time, count and signals end a run also while its link is down, and what did not leave is counted.
#[test]
fn an_outage_is_as_long_as_it_was() {
    if !is_root() {
        return;
    }
    let lab = lab("outage", 1);
    measured(|| {
        let echo = start_receiver(&lab.b, "echo {} --wait poll -i 0.05 --json");
        // It watches its link by then.
        echo.wait_for("packets/s");
        // A short one: the kernel gathers the messages of all others within the next second.
        lab.a.set_up(false).unwrap();
        echo.wait_for("veth-b has no carrier; waiting for it to come back");
        lab.a.set_up(true).unwrap();
        echo.wait_for("veth-b is up again after ");
        let begin = Instant::now();
        lab.a.set_up(false).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        lab.a.set_up(true).unwrap();
        let was = begin.elapsed();
        echo.wait_for_times("veth-b is up again after ", 2);
        let result = echo.interrupt().result();
        let events = result.link_events.expect("watched");
        let kinds: Vec<LinkEvent> = events.iter().map(|change| change.event).collect();
        let [down, up] = [LinkEvent::NoCarrier, LinkEvent::Up];
        assert_eq!(kinds, [down, up, down, up]);
        let outage = Duration::from_nanos(events[3].at_ns - events[2].at_ns);
        // Switching a link takes a while where others work on theirs.
        expect(
            (Duration::from_millis(400)..was + Duration::from_millis(100)).contains(&outage),
            format!("500 ms to {was:?} without a carrier: {outage:?}"),
        )
    });
}

#[test]
fn a_run_ends_while_its_link_is_down() {
    if !is_root() {
        return;
    }
    let lab = lab("while-down", 1);
    let to = MacAddr(lab.b.mac);
    let receiver = start_receiver(&lab.b, "rx {} --frames 4096 --wait poll --json");
    // By signal.
    for command in ["tx {} --rate 2000", "ping {} --timeout 0.05"] {
        let sender = start(&lab.a, &format!("{command} --to {to} --json"));
        wait_for_more(&lab.b);
        lab.a.set_up(false).unwrap();
        sender.wait_for(&down_note(&lab.a));
        std::thread::sleep(Duration::from_millis(300));
        let done = sender.interrupt();
        let result = done.result();
        assert_reconciles(&result);
        assert!(done.took < Duration::from_secs(5), "{done:#?}");
        if command.starts_with("tx") {
            let left = result.packets.lost_by(LossCause::LeftOnTxRing);
            assert!(left > 0, "{result:#?}");
            done.good();
        }
        lab.a.set_up(true).unwrap();
        lab.a.wait_ready().unwrap();
    }
    // By time.
    let sender = start(&lab.a, &format!("tx {{}} --rate 2000 --to {to} -t 2 --json"));
    wait_for_more(&lab.b);
    lab.a.set_up(false).unwrap();
    let done = sender.end().good();
    let result = done.result();
    assert_reconciles(&result);
    assert_eq!(result.link_flaps, Some(1));
    assert!(Duration::from_nanos(result.link_down_ns.unwrap()) > Duration::from_millis(100));
    lab.a.set_up(true).unwrap();
    lab.a.wait_ready().unwrap();
    receiver.interrupt().good();
    // The count is waited for, and exact.
    let receiver = start_receiver(&lab.b, "rx {} --frames 4096 --wait poll --json");
    let sender = start(&lab.a, &format!("tx {{}} --rate 2000 --to {to} --count 6000 --json"));
    wait_for_more(&lab.b);
    lab.a.set_up(false).unwrap();
    sender.wait_for(&down_note(&lab.a));
    std::thread::sleep(Duration::from_millis(700));
    lab.a.set_up(true).unwrap();
    let sent = sender.end().good().result();
    assert_eq!(
        (sent.packets.sent, sent.packets.delivered() + losses(&sent)),
        (6000, 6000)
    );
    let received = receiver.interrupt().good().result();
    assert_eq!(
        received.packets.sent,
        sent.packets.delivered(),
        "{sent:#?} {received:#?}"
    );
}

/// The interface is taken away: the run ends, with what was measured until then.
#[test]
fn an_interface_that_is_removed_ends_the_run() {
    if !is_root() {
        return;
    }
    for wait in ["spin", "poll", "busy-poll"] {
        for command in ["rx {} --json", "fwd {} --json", "echo {} --json"] {
            let lab = lab("removed", 2);
            let receiver = start_receiver(&lab.b, &format!("{command} --wait {wait} -i 0.05"));
            // The forwarder's answers are none, so it times out; all the same to the receiver.
            let ping = format!("ping {{}} --to {} --count 20 --timeout 0.01", lab.b.ipv4);
            run(&lab.a, &ping);
            receiver.wait_until("packets taken", |told| {
                let counts = told
                    .lines()
                    .filter_map(|line| line.split_once(" s   received ")?.1.split_whitespace().next());
                counts.into_iter().any(|count| count != "0")
            });
            lab.delete_link().unwrap();
            let done = receiver.end();
            let message = done.bad();
            assert!(
                message.contains("ended early: veth-b was removed during the run"),
                "{command} {wait}: {message}"
            );
            let result = done.result();
            assert!(
                result.queues.iter().map(|queue| queue.received_packets).sum::<u64>() >= 20,
                "{result:#?}"
            );
            assert_reconciles(&result);
        }
    }
    // The last one is idle when it happens.
    for command in [
        "tx {} --rate 100000",
        "ping {} --timeout 0.01 --depth 4",
        "tx {} --rate 1 --wait poll",
    ] {
        let lab = lab("removed", 2);
        let sender = start(&lab.a, &format!("{command} --to {} --json", lab.b.ipv4));
        assert!(wait_until(PATIENCE, || arrived(&lab.b) > 0));
        let there = arrived(&lab.b);
        lab.delete_link().unwrap();
        let done = sender.end();
        assert!(done.bad().contains("removed during the run"), "{command}: {done:#?}");
        let result = done.result();
        assert!(result.packets.sent > 0);
        assert_reconciles(&result);
        // The link's counters are gone with it, and not what they have counted.
        if command.starts_with("tx") {
            assert!(
                result.packets.delivered() >= there,
                "{there} came: {:#?}",
                result.packets
            );
        }
    }
}

/// To another network namespace: for the run it is gone.
#[test]
fn an_interface_that_moves_away_ends_the_run() {
    if !is_root() {
        return;
    }
    let ip = |end: &End, arguments: &str| {
        let mut command = end.ns.command("ip");
        command.args(arguments.split(' '));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    for command in ["rx {} --wait poll", "tx {} --rate 1000"] {
        let lab = lab("moved", 1);
        let other = Namespace::create("moved-to").expect("namespace");
        let to = match command.starts_with("tx") {
            true => format!("--to {}", lab.a.ipv4),
            false => String::new(),
        };
        let running = start(&lab.b, &format!("{command} {to} -i 0.05 --json"));
        // It watches its link by then.
        running.wait_for("packets/s");
        if !command.starts_with("tx") {
            run(&lab.a, &format!("tx {{}} --to {} --count 20", lab.b.ipv4)).good();
        }
        // A new name is none of our business.
        ip(&lab.b, "link set veth-b down");
        ip(&lab.b, "link set veth-b name other");
        ip(&lab.b, "link set other up");
        running.wait_for("veth-b is called other now; going on");
        running.wait_for("other is up again");
        ip(&lab.b, &format!("link set other netns {}", other.name()));
        let done = running.end();
        let message = done.bad();
        assert!(
            message.contains("ended early: other was moved to another network namespace during the run"),
            "{command}: {message}"
        );
        let events = done.result().link_events.unwrap();
        for event in [LinkEvent::Renamed, LinkEvent::Moved] {
            assert!(events.iter().any(|told| told.event == event), "{events:#?}");
        }
    }
}

/// Packets that no longer fit can never be sent.
#[test]
fn a_lowered_mtu_ends_senders_of_longer_packets() {
    if !is_root() {
        return;
    }
    let lab = lab("own-mtu", 1);
    let _echo = start_receiver(&lab.b, "echo {} --wait poll");
    for command in ["tx", "ping"] {
        lab.a.run(|| lab.a.interface.set_mtu(1500)).unwrap();
        let line = format!(
            "{command} {{}} --to {} --size 1414 --rate 1000 -i 0.05 --json",
            lab.b.ipv4
        );
        let running = start(&lab.a, &line);
        running.wait_for("packets/s");
        lab.a.run(|| lab.a.interface.set_mtu(1300)).unwrap();
        let done = running.end();
        let message = done.bad();
        assert!(
            message.contains("ended early: the MTU of veth-a was changed to 1300 during the run: packet length"),
            "{command}: {message}"
        );
        assert_eq!(done.status.code(), Some(1), "{command}: {message}");
        let events = done.result().link_events.unwrap();
        assert!(
            events.iter().any(|told| told.event == LinkEvent::MtuChanged),
            "{events:#?}"
        );
    }
}

/// The interface that a forwarder sends to, on which nothing is received.
#[test]
fn a_second_interface_that_is_removed_ends_the_run() {
    if !is_root() {
        return;
    }
    let Row { left, right } = row("out");
    let forwarder = start_receiver(&left.b, "fwd {} --out out --json");
    forwarder.wait_for("one UMEM");
    run(&left.a, &format!("tx {{}} --to {} --count 30", left.b.ipv4)).good();
    assert!(wait_until(PATIENCE, || arrived(&right.b) >= 30));
    right.delete_link().unwrap();
    let done = forwarder.end();
    assert!(done.bad().contains("out was removed during the run"), "{done:#?}");
    assert_eq!(
        done.result().queues.iter().map(|queue| queue.sent_packets).sum::<u64>(),
        30
    );
    assert_clean(&left.b);
}
