//! Lab files with steering and schedules: what they mean, and all that can be wrong with them.

use super::*;
use crate::lab::file::Text;
use crate::lab::plan::{At, Plan};
use crate::steer::EgressArg;

const HOSTS: &str = "\
[[host]]
name = \"a\"
[[host]]
name = \"b\"
[[host]]
name = \"me\"
place = \"here\"
[[link]]
name = \"wire\"
ends = [\"a\", \"b\"]
queues = 2
";

fn read(more: &str) -> Result<Plan, String> {
    let text = Text {
        name: "t".into(),
        text: format!("{HOSTS}{more}"),
    };
    Plan::read(&text).map_err(|error| error.to_string())
}

fn probe(keys: &str) -> String {
    format!("[[probe]]\nname = \"p\"\nfrom = \"a\"\nto = \"b\"\nwith = \"udp\"\n{keys}\n")
}

/// A guest behind the link, by an attachment.
fn guest(attachment: &str) -> String {
    format!("[[guest]]\nname = \"g\"\nhost = \"b\"\nattachment = {attachment:?}\nuplink = \"wire\"\n")
}

fn steering(keys: &str) -> String {
    format!("[[steering]]\nname = \"s\"\n{keys}\n")
}

fn schedule(keys: &str) -> String {
    format!("[[schedule]]\nname = \"tt\"\nfrom = \"a\"\nto = \"b\"\n{keys}\n")
}

#[test]
fn a_steering_is_of_a_link_s_end() {
    let text = steering("host = \"b\"\nrps = [\"0=1\", \"1=none\"]\nqueue = 0\ncpu = 1") + &probe("steering = [\"s\"]");
    let plan = read(&text).unwrap();
    let [one] = &plan.steerings[..] else {
        panic!("{plan:#?}")
    };
    assert_eq!((one.host, &one.at), (1, &At::Link(0)));
    assert_eq!(one.settings.rps, [CpusArg(0, vec![1]), CpusArg(1, Vec::new())]);
    assert_eq!((one.queue, one.cpu), (Some(0), Some(1)));
    assert_eq!(plan.probes[0].steering, [0]);
    assert!(
        plan.cpus()
            .any(|(what, cpu)| (what.as_str(), cpu) == ("the steering s", 1))
    );
}

#[test]
fn threads_are_of_a_guest() {
    let text = guest("vhost-net") + &steering("guest = \"g\"\nvcpus = [1, 0]\nvhost = [0]");
    let probe = "[[probe]]\nname = \"p\"\nfrom = \"a\"\nto = \"g\"\nwith = \"udp\"\nsteering = [\"s\"]\n";
    let plan = read(&(text + probe)).unwrap();
    let [one] = &plan.steerings[..] else {
        panic!("{plan:#?}")
    };
    assert_eq!(one.at, At::Guest { guest: 0, uplink: 0 });
    assert_eq!((&one.vcpus[..], &one.vhost[..]), (&[1, 0][..], &[0][..]));
}

#[test]
fn rules_are_of_an_interface_that_is_here() {
    let text =
        steering("host = \"me\"\ninterface = \"eth1\"\nrules = [\"pcp:5=1\"]\nrss = [0]\nirq = [\"1=1\"]") + &probe("");
    let plan = read(&text).unwrap();
    assert_eq!(plan.steerings[0].at, At::Interface("eth1".into()));
    assert_eq!(plan.steerings[0].settings.rules.len(), 1);
    let text = steering("host = \"me\"\ninterface = \"eth1.7\"\negress = [\"3=5\"]") + &probe("priority = 3");
    let plan = read(&text).unwrap();
    assert_eq!(plan.steerings[0].settings.egress, [EgressArg(3, 5)]);
    assert_eq!(plan.probes[0].priority, Some(3));
}

#[test]
fn each_class_of_a_schedule_is_a_cell() {
    let text = schedule("cycle = \"10ms\"\nclass = [\"3:5ms:2ms:200:4\", \"5:0ms:2ms\"]");
    let plan = read(&text).unwrap();
    let names: Vec<&str> = plan.probes.iter().map(|probe| probe.name.as_str()).collect();
    // In the order of their windows.
    assert_eq!(names, ["tt PCP 5", "tt PCP 3"]);
    let second = &plan.probes[1];
    assert_eq!(
        (second.rate, second.frame_bytes, second.measures.as_slice()),
        (400, 200, &[LatencyKind::OneWay][..])
    );
    assert_eq!(second.scheduled, Some(Scheduled { schedule: 0, class: 1 }));
    assert_eq!(plan.schedules[0].schedule.cycle_ns(), 10_000_000);
}

#[test]
fn a_schedule_goes_into_a_guest_and_out_of_it() {
    let with = |from: &str, to: &str, keys: &str| {
        guest("tap-bridge")
            + &format!(
                "queues = 2\n[[schedule]]\nname = \"tt\"\nfrom = {from:?}\nto = {to:?}\nclass = [\"5:0us:200us\"]\n{keys}\n"
            )
    };
    let into = read(&with("a", "g", "uncertainty = \"2ms\"")).unwrap();
    let [one] = &into.schedules[..] else {
        panic!("{into:#?}")
    };
    assert_eq!(
        (one.from, one.way, one.is_back, one.uncertainty),
        (0, Way::Guest(0), false, Duration::from_millis(2))
    );
    let out = read(&with("g", "a", "qdisc = \"taprio\"")).unwrap();
    let [one] = &out.schedules[..] else { panic!("{out:#?}") };
    // From the host's side, as all ways are.
    assert_eq!((one.from, one.way, one.is_back), (0, Way::Guest(0), true));
    assert_eq!(one.uncertainty, UNCERTAINTY);
    assert!(out.probes[0].description.starts_with("g to a, by schedule"));
    for (text, why) in [
        (with("g", "b", ""), "packets to the guest g start at a"),
        (with("g", "g", ""), "one end of a schedule is a host"),
        (
            with("g", "a", "qdisc = \"etf\"").replace("queues = 2\n[[sch", "queues = 1\n[[sch"),
            "key schedule.qdisc: it takes two queues, one for the schedule and one for everything else: give the guest queues = 2",
        ),
        (
            with("a", "g", "uncertainty = \"0us\""),
            "key schedule.uncertainty: \"0us\" is out of range",
        ),
        (
            schedule("class = [\"5:0us:200us\"]\nuncertainty = \"1ms\""),
            "key schedule.uncertainty: only a guest or another machine has another clock",
        ),
    ] {
        let error = read(&text).expect_err(&text);
        assert!(error.contains(why), "{text}\n{error}");
    }
}

#[test]
fn how_right_clocks_have_to_be_is_asked_of_machines() {
    let with = |keys: &str| {
        "[[host]]\nname = \"far\"\nserve = \"192.0.2.7\"\n".to_owned()
            + "[[schedule]]\nname = \"tt\"\nfrom = \"far\"\nto = \"me\"\nclass = [\"5:0us:200us\"]\n"
            + keys
    };
    let plan = read(&with(
        "max-clock-offset = \"1us\"\nptp4l = \"/run/near\"\nptp-domain = 7\n",
    ))
    .unwrap();
    let [one] = &plan.schedules[..] else {
        panic!("{plan:#?}")
    };
    assert_eq!(one.most_clock_offset_ns, Some(1_000));
    assert_eq!(one.ptp.words(), ["--ptp4l", "/run/near", "--ptp-domain", "7"]);
    // Between namespaces there is one clock: nothing to refuse, which is said.
    let plan = read(&schedule("class = [\"5:0us:200us\"]\nmax-clock-offset = \"1ns\"")).unwrap();
    let notes = plan.notes().join("\n");
    assert!(
        notes.contains("both ends of tt have one clock, which is not off itself: max-clock-offset refuses nothing"),
        "{notes}"
    );
    let to_guest =
        guest("tap-bridge") + "[[schedule]]\nname = \"tt\"\nfrom = \"a\"\nto = \"g\"\nclass = [\"5:0us:200us\"]\n";
    for (text, why) in [
        (
            to_guest + "max-clock-offset = \"1us\"\n",
            "key schedule.max-clock-offset: nobody keeps a guest's clock",
        ),
        (
            schedule("class = [\"5:0us:200us\"]\nptp4l = \"/run/near\""),
            "key schedule.ptp4l: only another machine has a clock",
        ),
        (with("ptp-domain = 7\n"), "key schedule.ptp-domain: of which ptp4l?"),
        (with("max-clock-offset = \"1\"\n"), "key schedule.max-clock-offset: "),
    ] {
        let error = read(&text).expect_err(&text);
        assert!(error.contains(why), "{text}\n{error}");
    }
}

#[test]
fn another_machine_has_schedules_and_is_steered() {
    let with = |from: &str, to: &str, place: &str, keys: &str| {
        format!(
            "[[host]]\nname = \"far\"\nserve = \"192.0.2.7\"\n[[host]]\nname = \"own\"\nplace = {place:?}\n\
             [[steering]]\nname = \"s\"\nhost = \"far\"\nirq = [\"0=8000\"]\n{keys}\n\
             [[schedule]]\nname = \"tt\"\nfrom = {from:?}\nto = {to:?}\nclass = [\"5:0us:200us\"]\nsteering = [\"s\"]\n"
        )
    };
    for (from, to, is_back) in [("own", "far", false), ("far", "own", true)] {
        let plan = read(&with(from, to, "here", "")).unwrap();
        let [one] = &plan.schedules[..] else {
            panic!("{plan:#?}")
        };
        assert_eq!((one.from, one.way, one.is_back), (4, Way::Serve(3), is_back));
        assert_eq!((plan.steerings[0].host, &plan.steerings[0].at), (3, &At::There));
        // Its CPUs are not this machine's.
        assert_eq!(plan.cpus().count(), 0);
    }
    for (text, why) in [
        (
            with("own", "far", "namespace", ""),
            "no other machine is reached from a namespace",
        ),
        (
            with("far", "far", "here", ""),
            "one end of a schedule is a host of this machine",
        ),
        (
            with("own", "far", "here", "interface = \"eth1\""),
            "on another machine it is the interface of the `ringside serve` there",
        ),
    ] {
        let error = read(&text).expect_err(&text);
        assert!(error.contains(why), "{text}\n{error}");
    }
}

#[test]
fn what_is_wrong_is_told_with_line_and_key() {
    let with = |text: String| text + &probe("");
    let cases = [
        (
            with(steering("rps = [\"0=1\"]")),
            "key steering.name: a steering is a host's or a guest's",
        ),
        (
            with(steering("host = \"b\"")),
            "key steering.name: nothing is set and nothing asked for",
        ),
        (with(steering("host = \"b\"\nrps = [\"0=x\"]")), "\"x\" is no number"),
        (
            with(steering("host = \"b\"\nrps = [\"2=1\"]")),
            "key steering.rps: there is no receive queue 2",
        ),
        (
            with(steering("host = \"b\"\ncpu = 0\nqueue = 2")),
            "key steering.queue: there is no queue 2",
        ),
        (
            with(steering("host = \"b\"\nrules = [\"pcp:5=1\"]")),
            "key steering.rules: this link is a veth pair, which has no rules",
        ),
        (
            with(steering("host = \"b\"\negress = [\"3=5\"]")),
            "key steering.egress: an end of a link has no egress-qos-map",
        ),
        (
            with(steering("host = \"b\"\nirq = [\"0=1\"]")),
            "key steering.irq: this link is a veth pair",
        ),
        (
            with(steering("host = \"b\"\ncpu = 0\nlink = \"other\"")),
            "key steering.link: no link other ends at b",
        ),
        (
            with(steering("host = \"b\"\ncpu = 0\nvhost = [1]")),
            "key steering.vhost: vhost is a guest's",
        ),
        (
            with(steering("host = \"me\"\ncpu = 0")),
            "key steering.host: this machine's interface is to be named",
        ),
        (
            with(steering("host = \"me\"\ninterface = \"x\"\nlink = \"wire\"\ncpu = 0")),
            "key steering.link: a host that is here",
        ),
        (
            guest("tap-bridge") + &steering("guest = \"g\"\nvhost = [0]"),
            "key steering.vhost: only vhost-net has threads of its own for packets; the guest's attachment is tap-bridge",
        ),
        (
            with(steering("guest = \"b\"\nvcpus = [0]")),
            "key steering.guest: b is a host",
        ),
        (
            with(steering("host = \"nobody\"\ncpu = 0")),
            "there is no host or guest nobody",
        ),
        (
            probe("steering = [\"left\"]"),
            "key probe.steering: there is no [[steering]] left",
        ),
        (
            schedule("class = [\"9:0us:1us\"]"),
            "key schedule.class: \"9\" is no priority code point",
        ),
        (schedule("class = [\"5:0us:2ms\"]"), "does not lie in the cycle"),
        (schedule("class = [\"5:0us:20us\", \"3:10us:20us\"]"), "overlap"),
        (
            schedule("class = [\"5:0us:200us:1600\"]"),
            "key schedule.class: class 5: frames of 1600 bytes do not fit",
        ),
        (
            schedule("class = [\"5:0us:200us\"]\nvia = \"af-xdp\"\nqdisc = \"etf\""),
            "key schedule.qdisc: XDP sockets pass",
        ),
        (schedule("class = [\"5:0us:200us\"]\nfaults = 1"), "unknown field"),
        (
            schedule("class = [\"5:0us:200us\"]") + &schedule("class = [\"5:0us:200us\"]"),
            "there is a probe or schedule tt already",
        ),
        (String::new(), "there is no [[probe]] and no [[schedule]]"),
    ];
    for (text, why) in cases {
        let error = read(&text).expect_err(&text);
        assert!(error.contains(why), "{text}\n{error}");
    }
}
