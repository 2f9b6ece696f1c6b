//! Steering and schedules as parts of a lab.

use ringside_measure::schema::{LabSteering, SteerFlow, SteerLanding, SteerTo};
use ringside_netlab::testing::{expect, measured};

use super::*;

const LAB: &str = "\
rounds = 2
turn = \"300ms\"
settle = \"10ms\"
[[host]]
name = \"left\"
cpu = 0
[[host]]
name = \"right\"
cpu = 1
[[link]]
ends = [\"left\", \"right\"]
queues = 3
[[steering]]
name = \"sent\"
host = \"left\"
xps = [\"2=0\"]
[[steering]]
name = \"right-cpu\"
host = \"right\"
rps = [\"1=1\"]
queue = 1
cpu = 1
[[steering]]
name = \"wrong-cpu\"
host = \"right\"
rps = [\"1=0\"]
queue = 1
cpu = 1
[[schedule]]
name = \"tt\"
from = \"left\"
to = \"right\"
cycle = \"10ms\"
class = [\"5:0ms:3ms:200:2\", \"3:5ms:3ms\"]
steering = [\"sent\", \"right-cpu\"]
max-clock-offset = \"1ns\"
";

fn landings(one: &LabSteering) -> Vec<&SteerLanding> {
    one.seen.classes.iter().flat_map(|class| &class.landings).collect()
}

#[test]
fn probes_are_steered_and_classes_sent_by_schedule() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let one_way = |name: &str, steering: &str| {
        let keys = format!("with = \"udp\"\nmeasure = [\"one-way\"]\nsteering = [{steering}]");
        probe(name, &keys)
    };
    let content = [
        LAB,
        &one_way("right", "\"sent\", \"right-cpu\""),
        &one_way("wrong", "\"sent\", \"wrong-cpu\""),
    ];
    scratch.lab(&content.concat());
    let checked = run(&scratch, "check my.toml").good().out;
    assert!(
        checked.contains("steer  wrong-cpu at right: RPS of queue 1 on CPU 0; packets are to land on queue 1, CPU 1"),
        "{checked}"
    );
    // Both ends have one clock, whatever keeps that.
    assert!(
        unwrapped(&checked).contains("both ends of tt have one clock, which is not off itself"),
        "{checked}"
    );
    let (done, result) = measured(|| {
        _ = fs::remove_dir_all(scratch.path("run"));
        let (done, result) = run_quietly(&scratch);
        let names: Vec<&str> = result.cells.iter().map(|cell| cell.path.as_str()).collect();
        assert_eq!(names, ["right", "wrong", "tt PCP 5", "tt PCP 3"]);
        for (cell, each_cycle) in result.cells[2..].iter().zip([2, 1]) {
            // Two turns of thirty cycles. A busy host takes the machine away for half of one.
            let enough = cell.unavailable.is_some() || cell.probes.received >= 8 * each_cycle;
            expect(enough, format_args!("{}: {:?}", cell.path, cell.probes))?;
        }
        Ok((done, result))
    });
    quiet(&result).into_iter().for_each(check_cell);
    let [right, wrong, five, three] = &result.cells[..] else {
        panic!("{result:#?}")
    };
    if right.unavailable.is_none() && wrong.unavailable.is_none() {
        for (cell, cpu) in [(right, 1), (wrong, 0)] {
            let [sent, received] = &cell.steering[..] else {
                panic!("{cell:#?}")
            };
            assert_eq!((sent.host.as_str(), received.host.as_str()), ("left", "right"));
            assert_eq!(sent.seen.settings[0].obtained, "0", "{sent:#?}");
            let all = landings(received);
            assert!(
                all.iter().all(|landing| (landing.queue, landing.cpu) == (1, cpu)) && !all.is_empty(),
                "{received:#?}"
            );
            assert_eq!(received.seen.is_right(), cpu == 1, "{received:#?}");
            // One way nothing comes back to the sender, and nobody asked for it.
            assert_eq!(sent.seen.sentences, [], "{sent:#?}");
        }
        let sentence = "asked for queue 1, CPU 1: RPS spreads queue 1 over CPUs 0";
        let said = &wrong.steering[1].seen.sentences;
        assert!(
            said[0].text.starts_with("UDP port ") && said[0].text.ends_with(sentence),
            "{said:#?}"
        );
        let report = fs::read_to_string(scratch.path("run/report.html")).unwrap();
        assert!(report.contains(sentence) && report.contains("Windows"), "{report}");
    }
    for (cell, each_cycle) in [(five, 2), (three, 1)] {
        let of = cell.schedule.as_ref().filter(|_| cell.unavailable.is_none());
        let Some(of) = of else { continue };
        assert_eq!(of.class.packets_per_cycle, each_cycle);
        let clocks = of.clocks.as_deref().expect("recorded");
        assert!(clocks.is_one && clocks.most_offset_ns == Some(1), "{clocks:#?}");
        assert_eq!(cell.probes.lost, 0, "{cell:#?}");
        // No difference between two turns.
        let jitter = cell.latency.jitter.expect("two turns");
        assert_eq!(jitter.differences + 2, cell.probes.received, "{cell:#?}");
        let text = unwrapped(&done.err);
        assert!(
            text.contains("; jitter ") && text.contains(" by RFC 3550 and "),
            "{text}"
        );
    }
    assert_eq!(right.latency.jitter, None);
    // All classes of a schedule are counted at once, by their tags.
    if let Some(received) = five.steering.get(1) {
        assert_eq!(received.seen.classes.len(), 2, "{received:#?}");
        let all = landings(received);
        assert!(
            all.iter().all(|landing| (landing.queue, landing.cpu) == (1, 1)) && !all.is_empty(),
            "{received:#?}"
        );
    }
    assert!(three.steering.is_empty());
}

#[test]
fn a_traced_turn_is_steered_too() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let keys = "with = \"udp\"\nmeasure = [\"one-way\"]\ntrace = true\nsteering = [\"sent\", \"right-cpu\"]";
    let (lab, _) = LAB.split_once("[[schedule]]").expect("a schedule");
    scratch.lab(&(lab.replace("rounds = 2", "rounds = 1") + &probe("right", keys)));
    let (done, result) = run_quietly(&scratch);
    let [stages] = result.stages.as_slice() else {
        panic!("{result:#?}")
    };
    let traced = stages.traced.as_ref().expect("stages");
    assert!(traced.traced_packets > 20, "{stages:#?}");
    // By which queue they come is the sender's matter.
    let received = stages.steering.iter().find(|one| one.name == "right-cpu");
    let received = received.unwrap_or_else(|| panic!("{stages:#?}"));
    let all = landings(received);
    assert!(
        all.iter().all(|landing| (landing.queue, landing.cpu) == (1, 1)) && !all.is_empty(),
        "{received:#?}"
    );
    assert!(received.seen.is_right(), "{received:#?}");
    // Without a terminal each turn is a line.
    assert!(
        done.err.contains("turn 1 of 2, round 1: right, one way, idle\n")
            && done.err.contains("turn 2 of 2, right, stages, idle\n"),
        "{}",
        done.err
    );
}

#[test]
fn what_iperf3_did_is_beside_what_it_was_asked_for() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let load = |name: &str, kind: &str, keys: &str| {
        format!("[[load]]\nname = {name:?}\nkind = {kind:?}\nfrom = \"left\"\nto = \"right\"\n{keys}\n")
    };
    let content = [
        "rounds = 1\nturn = \"1s\"\nsettle = \"10ms\"\n",
        HOSTS,
        &load("tcp", "iperf3-tcp", "bitrate = \"8M\""),
        &load("udp", "iperf3-udp", "bitrate = \"2M\"\nstreams = 2\nsize = 500"),
        &probe("p", "with = \"udp\"\nmeasure = [\"rtt\"]"),
    ];
    scratch.lab(&content.concat());
    let (_, result) = run_quietly(&scratch);
    let Some(cell) = result
        .cells
        .iter()
        .find(|cell| cell.unavailable.is_none() && !cell.loads.is_empty())
    else {
        // On a machine that is given away while measuring a cell may have no quiet turn, and says so.
        assert!(result.cells.iter().any(|cell| cell.turns_left_out > 0), "{result:#?}");
        return ringside_netlab::testing::skip_unsupported("a turn without CPU steal");
    };
    let [tcp, udp] = cell.loads.as_slice() else {
        panic!("{cell:#?}")
    };
    for (load, asked) in [(tcp, 8e6), (udp, 4e6)] {
        assert_eq!(load.asked_bits_per_s, Some(asked), "{load:#?}");
        let (sent, received) = (
            load.sent_bits_per_s.expect("told"),
            load.received_bits_per_s.expect("told"),
        );
        // It begins with a burst, and a busy machine makes less of it.
        assert!(sent > asked * 0.2 && sent < asked * 5.0, "{load:#?}");
        assert!(received > 0.0 && received <= sent * 1.2, "{load:#?}");
    }
    let report = fs::read_to_string(scratch.path("run/report.html")).unwrap();
    assert!(
        report.contains("the load tcp sent ") && report.contains("of 8.00 Mbit/s asked for"),
        "{report}"
    );
}

#[test]
fn probes_have_the_priority_that_the_file_gives_them() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let steering = "[[steering]]\nname = \"seen\"\nhost = \"right\"\nqueue = 0\n";
    let with = |name: &str, keys: &str| {
        let keys = format!("{keys}\nmeasure = [\"rtt\"]\npcp = 5\ntrace = false\nsteering = [\"seen\"]");
        probe(name, &keys)
    };
    let content = [
        "rounds = 1\nturn = \"250ms\"\nsettle = \"10ms\"\n",
        HOSTS,
        steering,
        &with("udp", "with = \"udp\""),
        &with("packet", "with = \"packet\""),
        &with("xsk", "with = \"xsk\""),
        &probe("plain", "with = \"udp\"\nmeasure = [\"rtt\"]\nsteering = [\"seen\"]"),
    ];
    scratch.lab(&content.concat());
    let checked = run(&scratch, "check my.toml").good().out;
    assert!(checked.contains("frames of 82 bytes and a tag of PCP 5"), "{checked}");
    let (_, result) = run_quietly(&scratch);
    assert_eq!(result.cells.len(), 4);
    for cell in quiet(&result) {
        assert_eq!((&cell.unavailable, cell.probes.lost), (&None, 0), "{cell:#?}");
        let [seen] = &cell.steering[..] else {
            panic!("{cell:#?}")
        };
        let flow = match cell.path.as_str() {
            "plain" => SteerFlow::UdpPort(ringside_measure::probe::DEFAULT_PORT),
            _ => SteerFlow::VlanPriority(5),
        };
        assert_eq!(seen.seen.classes[0].flow, flow, "{cell:#?}");
        let came = check_landings(cell, seen);
        let taker = if cell.path == "xsk" {
            " for an AF_XDP socket"
        } else {
            ""
        };
        let text = format!("{flow}: all {came} packets arrived on queue 0{taker}, as asked for");
        let said = seen.seen.sentences.first().expect("a sentence");
        assert_eq!((said.mark(), said.text.as_str()), ("ok", text.as_str()), "{cell:#?}");
    }
}

/// All that came are counted, by who got them; how many came.
fn check_landings(cell: &LabCell, of: &LabSteering) -> u64 {
    let to = match cell.path.as_str() {
        "udp" | "packet" | "plain" => SteerTo::Stack,
        "generic" => SteerTo::XskGeneric,
        _ => SteerTo::Xsk,
    };
    let all = landings(of);
    assert!(all.iter().all(|landing| landing.to == to), "{cell:#?}");
    let came = all.iter().map(|landing| landing.packets).sum();
    assert!(came >= cell.probes.received && came > 0, "{came}: {cell:#?}");
    came
}

/// What comes to an AF_XDP socket never comes to the stack, and is counted all the same: where, and whether that is right.
#[test]
fn probes_and_schedules_by_af_xdp_are_judged_by_where_they_came() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let steering = |name: &str, place: &str| format!("[[steering]]\nname = {name:?}\nhost = \"right\"\n{place}\n");
    let with = |name: &str, mode: &str, steering: &str| {
        let keys = format!("with = \"xsk\"\nmode = {mode:?}\nmeasure = [\"one-way\"]\nsteering = [{steering:?}]");
        probe(name, &keys)
    };
    // The sender's sockets send by its first queue, from CPU 0.
    let content = [
        "rounds = 1\nturn = \"500ms\"\nsettle = \"10ms\"\n",
        &HOSTS.replace("ends =", "queues = 2\nends ="),
        &steering("there", "queue = 0\ncpu = 0"),
        &steering("elsewhere", "queue = 1\ncpu = 1\nrps = [\"0=1\", \"1=1\"]"),
        &steering("behind-rps", "queue = 0\ncpu = 1\nrps = [\"0=1\"]"),
        &with("right", "native", "there"),
        &with("wrong", "native", "elsewhere"),
        &with("generic", "generic", "behind-rps"),
        "[[schedule]]\nname = \"tt\"\nfrom = \"left\"\nto = \"right\"\nvia = \"af-xdp\"\ncycle = \"10ms\"\n\
         class = [\"5:0ms:3ms\", \"3:5ms:3ms\"]\nsteering = [\"there\"]\n",
    ];
    scratch.lab(&content.concat());
    let (done, result) = run_quietly(&scratch);
    for cell in quiet(&result) {
        assert_eq!(cell.unavailable, None, "{cell:#?}");
        // Of a schedule's classes the first has the steering of all.
        let Some(of) = cell.steering.first() else {
            assert_eq!(cell.path, "tt PCP 3");
            continue;
        };
        assert_eq!(of.seen.xsk_not_counted, None, "{of:#?}");
        let came = check_landings(cell, of);
        let said: Vec<(&str, &str)> = of
            .seen
            .sentences
            .iter()
            .map(|one| (one.mark(), one.text.as_str()))
            .collect();
        let port = ringside_measure::probe::DEFAULT_PORT;
        match cell.path.as_str() {
            "right" => {
                let text = format!(
                    "UDP port {port}: all {came} packets arrived on queue 0, CPU 0 for an AF_XDP socket, as asked for"
                );
                assert_eq!(said, [("ok", text.as_str())]);
            }
            "wrong" => {
                let text = format!(
                    "UDP port {port}: {came} of {came} packets arrived on queue 0, CPU 0 for an AF_XDP socket, asked for queue 1, CPU 1: \
                     veth has no rules for queues: the sender's transmit queue decides, which its AF_XDP socket has, or else its CPU \
                     chooses by XPS; queue 0: native XDP comes before RPS, and a veth receives on the CPU that sends"
                );
                assert_eq!(said, [("WRONG", text.as_str())]);
                assert!(unwrapped(&done.err).contains("WRONG: UDP port"), "{}", done.err);
            }
            "generic" => {
                let text = format!(
                    "UDP port {port}: all {came} packets arrived on queue 0, CPU 1 for an AF_XDP socket, as asked for"
                );
                assert_eq!(said, [("ok", text.as_str())]);
            }
            _ => {
                assert_eq!(said.len(), 2, "{said:#?}");
                for (class, (mark, text)) in of.seen.classes.iter().zip(&said) {
                    let all = class.arrived();
                    let right = format!(
                        "{}: all {all} packets arrived on queue 0, CPU 0 for an AF_XDP socket, as asked for",
                        class.flow
                    );
                    assert_eq!((*mark, *text, all > 0), ("ok", right.as_str(), true));
                }
            }
        }
    }
    assert!(
        !done.err.contains("somebody has to send such packets here"),
        "{}",
        done.err
    );
}

#[test]
fn our_own_tcp_streams_are_on_beside_the_probes_that_name_them() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let load = |name: &str, keys: &str| format!("[[load]]\nname = {name:?}\nkind = \"tcp\"\n{keys}\n");
    let content = [
        "rounds = 1\nturn = \"500ms\"\nsettle = \"10ms\"\n",
        HOSTS,
        &load("bulk", "streams = 2\nbitrate = \"8M\""),
        &load("web", "streams = 3\nrequest = 100\nanswer = 2000\nrate = 100"),
        &probe("both", "with = \"udp\"\nmeasure = [\"rtt\"]"),
        &probe(
            "web-only",
            "with = \"udp\"\nmeasure = [\"rtt\"]\nloads = [\"web\"]\nidle = false",
        ),
    ];
    scratch.lab(&content.concat());
    let checked = run(&scratch, "check my.toml").good().out;
    for words in [
        "TCP in 2 streams, 8.00 Mbit/s each",
        "TCP in 3 streams, requests of 100 bytes and answers of 2000, 100/s each at the most",
        "only beside web",
    ] {
        assert!(checked.contains(words), "{words}: {checked}");
    }
    let result = measured(|| {
        _ = fs::remove_dir_all(scratch.path("run"));
        let (_, result) = run_quietly(&scratch);
        for load in quiet(&result).into_iter().flat_map(|cell| &cell.loads) {
            let is_near = load.requests_per_s.is_none_or(|rate| rate > 10.0 && rate < 400.0);
            expect(is_near, format_args!("{load:#?}"))?;
        }
        Ok(result)
    });
    let cells: Vec<(&str, LoadKind)> = result
        .cells
        .iter()
        .map(|cell| (cell.path.as_str(), cell.condition))
        .collect();
    let expected = [
        ("both", LoadKind::Idle),
        ("both", LoadKind::Foreign),
        ("web-only", LoadKind::Foreign),
    ];
    assert_eq!(cells, expected);
    for cell in quiet(&result) {
        let names: Vec<&str> = cell.loads.iter().map(|load| load.name.as_str()).collect();
        match (cell.path.as_str(), cell.condition) {
            (_, LoadKind::Idle) => assert!(names.is_empty()),
            ("both", _) => assert_eq!(names, ["bulk", "web"]),
            _ => assert_eq!(names, ["web"]),
        }
        // Nothing else is beside the same loads.
        assert_eq!(cell.ratio_to_base, None, "{cell:#?}");
        for load in &cell.loads {
            let (sent, received) = (load.sent_bits_per_s.expect("told"), load.received_bits_per_s);
            assert!(
                received.is_some_and(|received| received > 0.0 && received <= sent),
                "{load:#?}"
            );
            match load.name.as_str() {
                "bulk" => {
                    assert_eq!((load.asked_bits_per_s, load.requests_per_s), (Some(16e6), None));
                    assert!(sent > 1e6 && sent < 32e6, "{load:#?}");
                }
                _ => assert!(load.requests_per_s.is_some(), "{load:#?}"),
            }
        }
    }
    let report = fs::read_to_string(scratch.path("run/report.html")).unwrap();
    assert!(report.contains(" requests/s were answered"), "{report}");
}
