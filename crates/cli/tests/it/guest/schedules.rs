//! Schedules with the queueing disciplines that keep them: installed, read back, and gone afterwards, also after a kill.
//!
//! ```text
//!  guest:  talk ─────────── veth, four queues ─────────── hear, in the namespace "far"
//!          eth0 ────── NICs, two queues or one ─────────── eth1
//! ```

use ringside_measure::schema::{ClassReceived, LaunchBy, RunResult, Via};

use super::{Done, Hosts, PATIENCE, end};

/// Long, for an emulated CPU.
const CYCLE: &str = "--cycle 400ms --class 5:0ms:100ms:200:2 --class 3:120ms:100ms:1000 --class 1:260ms:100ms";
/// Of 8 to 16 packets: an emulated CPU of a busy machine does not always wake up within 40 ms.
const FEW: u64 = 4;
const TRIES: u32 = 6;
const MAC: &str = "02:00:00:00:00:99";

/// From here to there.
pub(super) struct Way {
    talk: &'static str,
    hear: &'static str,
    /// The listener's.
    mac: &'static str,
    queues: u32,
    /// Traffic classes by socket priority.
    map: &'static str,
    /// The kind of what hangs at the talker's root when nobody else has put something there.
    root: &'static str,
}

const VETH: Way = Way {
    talk: "talk",
    hear: "hear",
    mac: MAC,
    queues: 4,
    map: "0 0 0 0 0 0 0 0 0 3 0 2 0 1 0 0",
    root: "noqueue",
};

/// Two queues: one for the three classes, and one for all the rest.
pub(super) const IGB: Way = Way {
    talk: "eth0",
    hear: "eth1",
    mac: "02:72:73:67:00:02",
    queues: 2,
    map: "0 0 0 0 0 0 0 0 0 1 0 1 0 1 0 0",
    root: "mq",
};

pub(super) fn run(hosts: &Hosts) {
    hosts.run(&format!(
        "sh -c set -e
        ip link add talk numtxqueues 4 numrxqueues 4 type veth peer name hear address {MAC} numtxqueues 4 numrxqueues 4 netns far
        ip link set talk up; ip -n far link set hear up"
    ));
    each_keeps_it(hosts, &VETH);
    a_killed_talker_leaves_nothing(hosts);
}

/// By taprio, by a thread with mqprio, and by etf.
pub(super) fn each_keeps_it(hosts: &Hosts, way: &Way) {
    for (qdisc, kept_by, count) in [("taprio", LaunchBy::Taprio, 12), ("mqprio", LaunchBy::Thread, 8)] {
        let (sent, received) = until_kept(hosts, way, &format!("--qdisc {qdisc} --count {count}"), &[5, 3, 1]);
        check(way, &sent, &received, kept_by, qdisc);
        for pcp in [5, 3, 1] {
            let class = class(&received, pcp);
            assert!(class.violations() <= FEW, "{qdisc}, class {pcp}: {class:#?}");
        }
    }
    // Sent when its window of 120 to 220 ms is over, and kept until then by etf.
    let (sent, received) = until_kept(hosts, way, "--qdisc etf --fault late:3:110ms --count 16", &[5, 1]);
    check(way, &sent, &received, LaunchBy::Etf, "etf");
    let late = class(&received, 3);
    assert!(late.received_packets > 0, "{late:#?}");
    assert_eq!(late.late_packets, late.received_packets, "{late:#?}");
    for pcp in [5, 1] {
        let other = class(&received, pcp);
        assert!(other.violations() <= FEW, "class {pcp}: {other:#?}");
    }
}

fn talker(way: &Way) -> String {
    let Way { talk, mac, .. } = way;
    format!("talker {talk} --lead 60ms --delta 40ms --to-mac {mac} {CYCLE}")
}

fn both(hosts: &Hosts, way: &Way, options: &str) -> (RunResult, RunResult) {
    let line = format!("listener {} {CYCLE} --wait poll --json", way.hear);
    let mut listener = hosts.start(&format!("ip netns exec far {} {line}", super::RINGSIDE));
    listener
        .wait_for("a packet socket listens", PATIENCE)
        .expect("it listens");
    let talker = hosts.ringside(&format!("{} {options} --json", talker(way))).good();
    assert!(talker.err.contains("put back at the end"), "{}", talker.err);
    assert!(
        talker.err.contains("root queueing discipline") && talker.err.contains(": restored"),
        "{}",
        talker.err
    );
    listener.signal(libc::SIGINT).expect("signalled");
    let listener: Done = end(&line, listener).good();
    assert_eq!(root(hosts, way), way.root, "{options}");
    (talker.result(), listener.result())
}

/// Again, a few times, where the talker had no CPU when a class was due, or the listener none: an emulated machine cannot keep more than it gets.
fn until_kept(hosts: &Hosts, way: &Way, options: &str, classes: &[u8]) -> (RunResult, RunResult) {
    let is_kept = |sent: &RunResult, received: &RunResult| {
        let launch = sent.cycle.as_ref().and_then(|cycle| cycle.launch.as_ref());
        let all = &sent.schedule.as_ref().expect("a schedule").classes;
        let are_sent = all
            .iter()
            .all(|of| of.sent.as_ref().is_some_and(|sent| sent.sent_packets > 0));
        let are_in_time = classes.iter().all(|pcp| class(received, *pcp).violations() <= FEW);
        are_sent && are_in_time && launch.and_then(|launch| launch.missed_packets).unwrap_or(0) <= FEW
    };
    let mut left = TRIES;
    loop {
        left -= 1;
        let (sent, received) = both(hosts, way, options);
        if left == 0 || is_kept(&sent, &received) {
            return (sent, received);
        }
        eprintln!("{options}: not kept; once more");
    }
}

/// The kind of what hangs at the talker's root.
fn root(hosts: &Hosts, way: &Way) -> String {
    let shown = hosts.run(&format!("tc qdisc show dev {} root", way.talk)).out;
    shown.split_whitespace().nth(1).unwrap_or_default().to_owned()
}

fn class(received: &RunResult, pcp: u8) -> ClassReceived {
    let classes = &received.schedule.as_ref().expect("a schedule").classes;
    let found = classes.iter().find(|class| class.class.pcp == pcp);
    found.and_then(|class| class.received.clone()).expect("received")
}

/// Each class came as it was sent: with its priority in the tag, in order, nothing lost.
fn check(way: &Way, sent: &RunResult, received: &RunResult, kept_by: LaunchBy, qdisc: &str) {
    let cycle = sent.cycle.as_ref().expect("deadlines");
    let launch = cycle.launch.as_ref().expect("told");
    assert_eq!((cycle.via, launch.kept_by), (Via::AfPacket, kept_by));
    let missed = launch.missed_packets.unwrap_or(0);
    assert!(missed <= FEW, "{launch:?}");
    let schedule = sent.schedule.as_ref().expect("a schedule");
    let [told] = &schedule.qdiscs[..] else {
        panic!("{schedule:#?}")
    };
    let kind = if qdisc == "taprio" { "taprio" } else { "mqprio" };
    assert!(
        told.contains(&format!("{kind} num_tc {}", way.queues)) && told.contains(&format!("map {}", way.map)),
        "{told}"
    );
    let etf = format!("etf on queue {}", way.queues - 1);
    assert_eq!(told.contains(&etf), qdisc == "etf", "{told}");
    assert_eq!(
        told.contains("sched-entry S 02 100000000 sched-entry S 01 20000000"),
        qdisc == "taprio",
        "{told}"
    );
    let mut all = 0;
    for of in &schedule.classes {
        let (pcp, sent) = (of.class.pcp, of.sent.clone().expect("sent"));
        assert_eq!(sent.socket_priority, Some(8 + u32::from(pcp)));
        let came = class(received, pcp);
        assert!(
            came.received_packets + missed >= sent.sent_packets && sent.sent_packets >= 1,
            "{sent:?} {came:#?}"
        );
        assert_eq!((came.changed_pcp_packets, came.untold_pcp_packets), (0, 0), "{came:#?}");
        assert_eq!((came.reordered_packets, came.duplicated_packets), (0, 0), "{came:#?}");
        all += came.received_packets;
    }
    assert_eq!(all + missed, sent.packets.sent, "{sent:#?}");
}

fn a_killed_talker_leaves_nothing(hosts: &Hosts) {
    // Whatever `ringside` is next, a talker's own installation among them, and who is told to clean.
    let again = format!("{} --qdisc taprio --count 1", talker(&VETH));
    for (qdisc, kind, next) in [
        ("taprio", "taprio", "caps talk --json"),
        ("mqprio", "mqprio", "lab clean"),
        ("etf", "mqprio", again.as_str()),
    ] {
        let line = format!("{} {} --qdisc {qdisc}", super::RINGSIDE, talker(&VETH));
        let mut talker = hosts.start(&line);
        talker
            .wait_for("put back at the end", PATIENCE)
            .expect("it is installed");
        assert_eq!(root(hosts, &VETH), kind);
        talker.signal(libc::SIGKILL).expect("killed");
        _ = talker.wait(PATIENCE);
        assert_eq!(root(hosts, &VETH), kind, "nobody has looked after it yet");
        // Whether an emulated talker keeps its one packet's time is no matter here.
        let next = hosts.ringside(next);
        assert!(
            next.err.contains("left changes behind") && next.err.contains("root queueing discipline"),
            "{}",
            next.err
        );
        assert_eq!(root(hosts, &VETH), "noqueue", "{}", next.err);
    }
}
