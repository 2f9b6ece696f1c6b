//! Names, and keys that stand where they may not.

use super::*;

const HOSTS: &str = "\
[[host]]
name = \"a\"
[[host]]
name = \"b\"
[[host]]
name = \"c\"
[[host]]
name = \"me\"
place = \"here\"
[[host]]
name = \"far\"
serve = \"192.0.2.7\"
[[link]]
name = \"wire\"
ends = [\"a\", \"b\"]
[[link]]
name = \"up\"
ends = [\"b\", \"c\"]
mtu = 1500
";

pub(super) fn text(more: &str) -> Text {
    Text {
        name: "my.toml".to_owned(),
        text: format!("{HOSTS}{more}"),
    }
}

pub(super) fn plan(more: &str) -> Plan {
    Plan::read(&text(more)).unwrap_or_else(|faults| panic!("{faults}"))
}

pub(super) fn probe(keys: &str) -> String {
    format!("[[probe]]\nname = \"p\"\nwith = \"udp\"\n{keys}\n")
}

#[test]
fn what_is_not_said_has_a_usual_value() {
    let plan = plan(&probe("from = \"b\"\nto = \"a\""));
    let [probe] = plan.probes.as_slice() else {
        panic!("{plan:?}")
    };
    assert_eq!((probe.rate, probe.frame_bytes, probe.sleeps), (1_000, 82, true));
    assert_eq!(probe.kind, compare::Kind::UdpBlocking);
    assert_eq!(probe.way, Way::Link { link: 0, back: true });
    assert_eq!(probe.measures, [LatencyKind::RoundTrip, LatencyKind::OneWay]);
    assert_eq!(
        (plan.rounds, plan.turn, plan.settle),
        (5, Duration::from_secs(1), Duration::from_millis(100))
    );
    assert_eq!(plan.samples(probe), 5_000);
    assert!(plan.notes()[0].contains("too few for it in p"), "{:?}", plan.notes());
}

#[test]
fn a_probe_says_beside_which_loads_and_is_compared_beside_the_same() {
    let load = |name: &str| format!("[[load]]\nname = {name:?}\nkind = \"iperf3-tcp\"\n");
    let probe = |name: &str, keys: &str| {
        format!("[[probe]]\nname = {name:?}\nwith = \"udp\"\nfrom = \"a\"\nto = \"b\"\n{keys}\n")
    };
    let loads = load("one") + &load("three");
    let read = plan(
        &(loads.clone()
            + &probe("p", "")
            + &probe("q", "loads = [\"three\"]")
            + &probe("r", "loads = [\"three\", \"three\"]\nidle = false")
            + &probe("s", "loads = []")),
    );
    let conditions: Vec<Vec<bool>> = read.probes.iter().map(|probe| probe.conditions().collect()).collect();
    assert_eq!(
        conditions,
        [vec![false, true], vec![false, true], vec![true], vec![false]]
    );
    let loads_of: Vec<&[usize]> = read.probes.iter().map(|probe| &*probe.loads).collect();
    assert_eq!(loads_of, [&[0, 1][..], &[1], &[1], &[]]);
    // Idle all with the first; loaded only with who has the same loads.
    assert_eq!([1, 3].map(|probe| read.base(probe, false)), [0, 0]);
    assert_eq!([0, 1, 2].map(|probe| read.base(probe, true)), [0, 1, 1]);
    for (more, told) in [
        (
            probe("p", "loads = [\"two\"]"),
            "there is no [[load]] two; there are: one, three",
        ),
        (probe("p", "loads = []\nidle = false"), "it would have no turns"),
        (probe("p", "loads = [\"one\"]"), "no probe has it among its loads"),
    ] {
        let faults = Plan::read(&text(&(loads.clone() + &more))).expect_err(told).to_string();
        assert!(faults.contains(told), "{faults}");
    }
    let faults = Plan::read(&text(&probe("p", "idle = false")))
        .expect_err("no load")
        .to_string();
    assert!(
        faults.contains("there is no [[load]]: it would have no turns"),
        "{faults}"
    );
}

#[test]
fn our_own_streams_go_to_guests_and_other_machines() {
    let load = |keys: &str| format!("[[load]]\nname = \"l\"\n{keys}\n");
    let read =
        plan(&(load("kind = \"udp\"\nfrom = \"me\"\nto = \"far\"") + &probe("from = \"me\"\nto = \"far\"\npcp = 5")));
    assert!(matches!(
        read.loads[0].what,
        Work::Udp {
            way: Some(Way::Serve(4)),
            ..
        }
    ));
    assert_eq!(read.probes[0].pcp, Some(5));
    let read = plan(&(load("kind = \"tcp\"\nwindow = 4096") + &probe("from = \"me\"\nto = \"far\"")));
    let Work::Tcp { stream, .. } = &read.loads[0].what else {
        panic!("{read:#?}")
    };
    assert_eq!(
        *stream,
        Stream::Bulk {
            bits_per_s: None,
            window: Some(4096)
        }
    );
}

#[test]
fn another_machine_is_reached_from_here() {
    let read = plan(&probe("from = \"me\"\nto = \"far\""));
    assert_eq!(read.probes[0].way, Way::Serve(4));
    assert_eq!(read.probes[0].measures, [LatencyKind::RoundTrip]);
    let both = plan(&probe(
        "from = \"me\"\nto = \"far\"\nmeasure = [\"rtt\", \"one-way\"]\nuncertainty = \"1ms\"",
    ));
    assert_eq!(both.probes[0].measures.len(), 2);
    assert_eq!(both.probes[0].frame_bytes, 98);
}

#[test]
fn programs_run_on_this_machine_and_in_guests() {
    let guest = "[[guest]]\nname = \"vm\"\nhost = \"c\"\nattachment = \"macvtap\"\nuplink = \"up\"\n";
    let of = |load: &str| {
        let load = format!("[[load]]\nname = \"l\"\n{load}\n");
        Plan::read(&text(&format!("{guest}{load}{}", probe("from = \"b\"\nto = \"vm\""))))
    };
    for (load, words, place, named) in [
        ("kind = \"stress-ng\"", "stress-ng --cpu 1", None, 0),
        (
            "kind = \"stress-ng\"\nstressor = \"vm\"\ncpus = [4000, 4001]",
            "stress-ng --vm 2",
            None,
            2,
        ),
        (
            "kind = \"stress-ng\"\nworkers = 3\ncpus = [1]\nguest = \"vm\"",
            "stress-ng --cpu 3",
            Some(0),
            0,
        ),
        (
            "kind = \"program\"\ncommand = [\"sh\", \"-c\", \"sleep 5\"]\nguest = \"vm\"",
            "sh -c sleep 5",
            Some(0),
            0,
        ),
    ] {
        let plan = of(load).unwrap_or_else(|faults| panic!("{faults}"));
        let Work::Program { command, guest, .. } = &plan.loads[0].what else {
            panic!("{plan:#?}")
        };
        assert_eq!((command.join(" ").as_str(), *guest), (words, place));
        // Those in a guest are no CPUs of this machine.
        assert_eq!(plan.cpus().count(), named, "{load}");
    }
    for (load, told) in [
        (
            "kind = \"stress-ng\"\nguest = \"vm\"\ncpus = [0, 2]",
            "key load.cpus: the CPUs of the guest vm are 0 to 1",
        ),
        (
            "kind = \"stress-ng\"\nguest = \"c\"",
            "key load.guest: there is no guest c; what is in no guest runs on this machine",
        ),
        ("kind = \"udp\"\nguest = \"vm\"", "key load.guest: guest is nothing"),
        (
            "kind = \"udp\"\ncommand = [\"sh\"]",
            "key load.command: command is nothing",
        ),
        (
            "kind = \"program\"\nworkers = 2\ncommand = [\"sh\"]",
            "key load.workers: workers is nothing",
        ),
        ("kind = \"program\"", "key load.kind: which program"),
        ("kind = \"program\"\ncommand = [\"\"]", "key load.kind: which program"),
    ] {
        let faults = of(load).map(|plan| format!("{plan:?}")).expect_err(load).to_string();
        assert!(faults.contains(told), "{faults}");
    }
}

#[test]
fn probes_take_the_express_lane_unless_other_packets_are_named() {
    let of = |attachment: &str, keys: &str| {
        let guest =
            format!("[[guest]]\nname = \"vm\"\nhost = \"c\"\nattachment = {attachment:?}\nuplink = \"up\"\n{keys}\n");
        Plan::read(&text(&(guest + &probe("from = \"b\"\nto = \"vm\""))))
    };
    for (keys, lane) in [
        ("", "udp:29620"),
        ("express = \"udp:7000\"", "udp:7000"),
        ("express = \"pcp:6\"", "pcp:6"),
    ] {
        let plan = of("xdp-express", keys).unwrap_or_else(|faults| panic!("{faults}"));
        assert_eq!(plan.guests[0].express.to_string(), lane);
    }
    for (attachment, keys, told) in [
        (
            "xdp",
            "express = \"pcp:6\"",
            "express is nothing that the attachment xdp has",
        ),
        (
            "xdp-express",
            "express = \"pcp:0\"",
            "\"pcp:0\" is no express lane; write udp:PORT, or pcp:N",
        ),
        ("xdp-express", "express = \"all\"", "\"all\" is no express lane"),
    ] {
        let faults = of(attachment, keys).expect_err("a fault").to_string();
        assert!(faults.contains(told), "{faults}");
    }
}

#[test]
fn who_serves_vhost_user_is_started_or_runs_already() {
    for (attachment, keys, told) in [
        (
            "tap-bridge",
            "program = [\"x\"]",
            "program is nothing that the attachment tap-bridge has",
        ),
        ("vhost-user", "program = []", "a program and its arguments"),
        (
            "vhost-user",
            "program = [\"x\"]\nsocket = \"/run/x\"",
            "a socket, or a program to be started",
        ),
    ] {
        let guest =
            format!("[[guest]]\nname = \"vm\"\nhost = \"c\"\nattachment = {attachment:?}\nuplink = \"up\"\n{keys}\n");
        let read = Plan::read(&text(&(guest + &probe("from = \"b\"\nto = \"vm\""))));
        let faults = read.expect_err("a fault").to_string();
        assert!(faults.contains(told), "{faults}");
    }
}

#[test]
fn a_guest_with_a_nic_of_its_own_is_reached_from_here() {
    let guest = "[[guest]]\nname = \"vm\"\nhost = \"me\"\nattachment = \"vfio\"\npci = \"0000:01:10.0\"\naddress = \"192.0.2.9/24\"\n";
    let read = plan(&(guest.to_owned() + &probe("from = \"me\"\nto = \"vm\"")));
    assert_eq!((read.guests[0].uplink, read.probes[0].way), (None, Way::Guest(0)));
    let (pci, address) = read.guests[0].nic.expect("a NIC");
    assert_eq!((pci.to_string().as_str(), address.1), ("0000:01:10.0", 24));
}

#[test]
fn a_link_may_be_two_nics() {
    let nics = "[[link]]\nname = \"cable\"\nends = [\"a\", \"c\"]\ninterfaces = [\"enp1s0\", \"enp2s0\"]\n";
    let path = probe("from = \"c\"\nto = \"a\"");
    let steered = "[[steering]]\nname = \"s\"\nhost = \"a\"\nlink = \"cable\"\nrules = [\"udp:29620=3\"]\nqueue = 3\n";
    let plan = plan(&format!("{nics}{path}steering = [\"s\"]\n{steered}"));
    assert_eq!(plan.links[2].wire, Wire::Nics(["enp1s0", "enp2s0"].map(str::to_owned)));
    assert_eq!(plan.probes[0].way, Way::Link { link: 2, back: true });
    let queues = nics.replace("interfaces", "queues = 2\ninterfaces");
    let whole = nics.replace("interfaces", "tso = false\ninterfaces");
    let twice = format!("{nics}{}", nics.replace("cable", "other"));
    let one = nics.replace("enp2", "enp1");
    for (text, why) in [
        (queues, "key link.queues: NICs keep theirs"),
        (whole, "key link.tso: NICs keep theirs"),
        (twice, "the interface enp1s0 would be the end of two links"),
        (
            one,
            "the interface enp1s0 would be the end of two links, or both ends of one",
        ),
    ] {
        let told = Plan::read(&self::text(&format!("{text}{path}")))
            .unwrap_err()
            .to_string();
        assert!(told.contains(why), "{told}");
    }
}

#[test]
fn what_makes_no_sense_is_told_with_its_place() {
    let good = probe("from = \"a\"\nto = \"b\"");
    let stress = |keys: &str| format!("{good}[[load]]\nname = \"l\"\nkind = \"stress-ng\"\n{keys}\n");
    let udp = |keys: &str| format!("{good}[[load]]\nname = \"l\"\nkind = \"udp\"\n{keys}\n");
    let tcp = |keys: &str| format!("{good}[[load]]\nname = \"l\"\nkind = \"tcp\"\n{keys}\n");
    let guest = |keys: &str| format!("{good}[[guest]]\nname = \"vm\"\nhost = \"c\"\n{keys}\n");
    let own_nic =
        |keys: &str| format!("{good}[[guest]]\nname = \"vm\"\nhost = \"me\"\nattachment = \"vfio\"\n{keys}\n");
    let first = HOSTS.lines().count();
    for (more, line, told) in [
        (String::new(), 0, "there is no [[probe]]"),
        (
            probe("from = \"x\"\nto = \"b\""),
            4,
            "key probe.from: there is no host or guest x; there are: a, b, c, me, far",
        ),
        (
            probe("from = \"a\"\nto = \"a\""),
            5,
            "key probe.to: both ends are the same host",
        ),
        (
            probe("from = \"a\"\nto = \"c\""),
            5,
            "key probe.to: no [[link]] joins a and c",
        ),
        (
            probe("from = \"a\"\nto = \"far\""),
            4,
            "key probe.from: no other machine is reached from a namespace",
        ),
        (probe("from = \"far\"\nto = \"a\""), 4, "turn from and to around"),
        (
            probe("from = \"a\"\nto = \"b\"\nmode = \"native\""),
            6,
            "key probe.mode: only with = \"xsk\" has modes",
        ),
        (
            probe("from = \"a\"\nto = \"b\"\nfar-mode = \"zero-copy\""),
            6,
            "key probe.far-mode: only with = \"xsk\" has modes, and only a guest or another machine has one of its own",
        ),
        (
            probe("from = \"a\"\nto = \"b\"\nsize = 1515"),
            6,
            "key probe.size: frames of 1515 bytes do not fit the link, whose MTU allows 1514",
        ),
        (
            probe("from = \"a\"\nto = \"b\"\nmeasure = []"),
            6,
            "key probe.measure: nothing would be measured",
        ),
        (good.clone() + &good, 7, "there is a probe or schedule p already"),
        (
            stress("from = \"a\""),
            9,
            "key load.from: from is nothing that a load of the kind stress-ng has",
        ),
        (stress("rate = 5"), 9, "key load.rate: rate is nothing"),
        (
            udp("from = \"a\""),
            8,
            "key load.kind: a load of the kind udp has a from and a to, or neither",
        ),
        (
            udp("from = \"a\"\nto = \"b\"\nstreams = 2"),
            11,
            "key load.streams: streams is nothing",
        ),
        (
            probe("from = \"a\"\nto = \"b\"\nstop-above = \"1ms\""),
            6,
            "key probe.stop-above: only what is traced can be stopped",
        ),
        (
            probe("from = \"a\"\nto = \"b\"\npcp = 3\npriority = 3"),
            7,
            "key probe.priority: with pcp packets have that for a priority",
        ),
        (
            probe("from = \"a\"\nto = \"b\"\npcp = 8"),
            6,
            "key probe.pcp: 8 is out of range: 0 to 7",
        ),
        (
            tcp("answer = 5"),
            9,
            "key load.answer: only streams of requests have an answer",
        ),
        (
            tcp("rate = 5"),
            9,
            "key load.rate: only streams of requests have a rate",
        ),
        (
            tcp("request = 5\nbitrate = \"5M\""),
            10,
            "key load.bitrate: a stream of requests has a rate",
        ),
        (tcp("size = 500"), 9, "key load.size: size is nothing"),
        (udp("request = 5"), 9, "key load.request: request is nothing"),
        (
            tcp("request = 5\nwindow = 4096"),
            10,
            "key load.window: of requests one is under way at a time",
        ),
        (udp("window = 4096"), 9, "key load.window: window is nothing"),
        (
            guest("attachment = \"tap\""),
            9,
            "key guest.attachment: no attachment is called 'tap': tap-bridge, ",
        ),
        (
            guest("attachment = \"tap-bridge\""),
            9,
            "key guest.attachment: tap-bridge leads from a link",
        ),
        (
            guest("attachment = \"tap-bridge\"\nuplink = \"up\"\nmachine = \"x\""),
            11,
            "key guest.machine: there is no guest x above",
        ),
        (
            guest("attachment = \"macvtap\"\nuplink = \"up\"\nxdp-mode = \"native\""),
            11,
            "xdp-mode is nothing that the attachment macvtap has",
        ),
        (
            guest("attachment = \"vfio\""),
            8,
            "key guest.host: a NIC is this machine's: its host has place",
        ),
        (
            own_nic(""),
            9,
            "key guest.attachment: vfio takes the NIC and its address",
        ),
        (own_nic("pci = \"eth0\""), 10, "key guest.pci: "),
        (
            own_nic("pci = \"0000:01:10.0\"\naddress = \"192.0.2.7\""),
            11,
            "key guest.address: \"192.0.2.7\" is no address with a prefix",
        ),
        (
            own_nic("pci = \"0000:01:10.0\"\naddress = \"192.0.2.7/24\"\nuplink = \"up\""),
            12,
            "key guest.uplink: uplink is nothing",
        ),
        (
            guest("attachment = \"tap-bridge\"\nuplink = \"wire\""),
            10,
            "does not end at the guest's host, c",
        ),
        (
            guest("attachment = \"tap-bridge\"\nuplink = \"none\""),
            10,
            "there is no link none",
        ),
        (
            guest("attachment = \"xdp\"\nuplink = \"up\"\npci = \"0000:01:10.0\""),
            11,
            "pci is nothing that the attachment xdp has",
        ),
        (
            format!("{good}[[link]]\nends = [\"a\", \"me\"]\n"),
            7,
            "key link.ends: me is no network namespace of this machine",
        ),
        (
            format!("{good}[[link]]\nends = [\"a\", \"a\"]\n"),
            7,
            "both ends are the same host",
        ),
        (
            format!("{good}[[host]]\nname = \"z\"\npin = \"x\"\n"),
            8,
            "key host.pin: only a host with serve has it",
        ),
        (
            format!("{good}[[host]]\nname = \"z\"\nserve = \"h\"\ncpu = 1\n"),
            9,
            "key host.cpu: the other machine's",
        ),
    ] {
        let faults = Plan::read(&text(&more))
            .map(|plan| format!("{plan:?}"))
            .expect_err(&more)
            .to_string();
        let place = match line {
            0 => String::new(),
            line => format!("line {}, ", first + line),
        };
        assert!(
            faults.starts_with(&format!("the lab file my.toml, {place}")),
            "{more}: {faults}"
        );
        assert!(faults.contains(told), "{more}: {faults}");
    }
}

#[test]
fn all_faults_are_told_at_once_and_what_follows_from_one_is_not() {
    let more = "[[link]]\nends = [\"a\", \"nobody\"]\n[[probe]]\nname = \"p\"\nfrom = \"a\"\nto = \"c\"\nwith = \"udp\"\nmode = \"native\"\n";
    let faults = Plan::read(&text(more))
        .map(|plan| format!("{plan:?}"))
        .expect_err(more)
        .to_string();
    assert!(
        faults.starts_with("the lab file my.toml has 2 faults:\n  line "),
        "{faults}"
    );
    assert!(
        faults.contains("no host or guest nobody") && faults.contains("key probe.mode"),
        "{faults}"
    );
}
