//! Steering that takes a NIC with interrupts, or VLAN devices: set, verified by sending and counting, and put back.

use ringside_measure::schema::{Outcome, SteerClass, SteerFlow, SteerResult};

use super::{Done, Hosts, PATIENCE, RINGSIDE, end, end_within};

/// Packets of each class: 20 a second, for an emulated CPU, and so many seconds.
const SENT: &str = "--rate 20 -t 2 --json";

/// On virtio-net back to back, whose only queue has an interrupt of its own, and on the VLAN device of a veth pair.
pub(super) fn run(hosts: &Hosts) {
    for cpu in [1, 0] {
        let line = format!("steer run eth1@far --from eth0 --irq 0={cpu} --class udp:7000=0@{cpu} {SENT}");
        let (done, result) = steer(hosts, &line);
        assert_put_back(
            &done,
            &format!("CPUs of IRQ {}", result.queues[0].irq.expect("an interrupt")),
        );
        assert_mostly_on(&result.classes[0], 0, cpu);
        let queue = &result.queues[0];
        assert_eq!(queue.irq_cpus, [cpu], "{queue:#?}");
        assert!(
            queue.interrupts.iter().any(|count| count.cpu == cpu && count.count > 0),
            "{queue:#?}"
        );
    }
    // A socket's priority is a tag's: by the device's map, which has no entry before and none behind.
    hosts.run(
        "sh -c set -e
        ip link add mark type veth peer name seen netns far; ip link set mark up; ip -n far link set seen up
        ip link add link mark name mark.7 type vlan id 7; ip link set mark.7 up",
    );
    let line = format!("steer run seen@far --from mark.7 --egress 3=5 --class pcp:5 --class pcp:3 {SENT}");
    let (done, result) = steer(hosts, &line);
    assert_put_back(&done, "PCP for priority 3");
    let [five, three] = &result.classes[..] else {
        panic!("{result:#?}")
    };
    let sent = |class: &SteerClass| class.sent_packets.expect("sent by us");
    // What is to have PCP 3 has priority 3, for which the map says 5; nothing says 3.
    assert_eq!(
        (five.flow, three.flow),
        (SteerFlow::VlanPriority(5), SteerFlow::VlanPriority(3))
    );
    assert_eq!(
        (five.arrived(), three.arrived()),
        (sent(five) + sent(three), 0),
        "{result:#?}"
    );
    assert!(
        result
            .sentences
            .iter()
            .any(|one| !one.right && one.text.starts_with("PCP 3: ")),
        "{result:#?}"
    );
    let shown = hosts.run("ip -d link show mark.7").out;
    assert!(!shown.contains("egress-qos-map"), "{shown}");
}

/// An emulated 82576: two queues with an interrupt each, and a table of queues for its hash.
pub(super) fn run_on_igb(hosts: &Hosts) {
    for (queue, cpu) in [(1, 0), (0, 1)] {
        let line = format!(
            "steer run eth1@far --from eth0 --rss {queue} --irq {queue}={cpu} --class udp:7000={queue}@{cpu} {SENT}"
        );
        let (done, result) = steer(hosts, &line);
        assert_put_back(&done, "RSS table");
        assert_eq!(result.rss_queues, [queue]);
        assert_mostly_on(&result.classes[0], queue, cpu);
    }
    // An 82576 has no rules: the driver refuses them, and nothing is left of what was asked for with one.
    let refused = hosts.ringside("steer run eth1@far --from eth0 --rule pcp:5=1 --rss 0 --class pcp:5=1 --json");
    assert!(!refused.status.success(), "{refused:#?}");
    let why = "ethtool -N eth1 flow-type ether vlan 0xa000 vlan-mask 0x1fff action 1): cannot insert a rule for a receive queue on 'eth1'";
    assert!(
        refused.err.contains(why) && refused.err.contains("the driver does not offer this"),
        "{}",
        refused.err
    );
    // Without one the hash decides.
    let (done, result) = steer(
        hosts,
        &format!("steer run eth1@far --from eth0 --rss 0 --class pcp:5=1 {SENT}"),
    );
    assert_put_back(&done, "RSS table");
    assert_eq!(result.rules, Some(Vec::new()));
    let sentence = &result.sentences[0];
    let why = "there is no rule for PCP 5: the NIC's hash decides, over queues 0, which does not look at the priority";
    assert!(!sentence.right && sentence.text.ends_with(why), "{result:#?}");
    let (_, after) = steer(
        hosts,
        "steer run eth1@far --from eth0 --class pcp:5 --rate 20 -t 1 --json",
    );
    assert_eq!(after.rss_queues, [0, 1]);
    a_lab_s_probes_are_marked(hosts);
}

/// The study `steering-igb` over both NICs: priority, queue, interrupt and CPU, and the load that nothing keeps out of the probes' queue. Its report goes
/// into the folder that `RINGSIDE_REPORTS` names.
pub(super) fn study_on_igb(hosts: &Hosts) {
    hosts.run(
        "sh -c set -e
        ip link del eth0.5; ip -n far link del eth1.5; ip addr flush dev eth0; ip -n far addr flush dev eth1
        ip -n far link set eth1 netns 1",
    );
    let line = format!("{RINGSIDE} lab run steering-igb --into /study --json");
    let done = end_within(&line, hosts.start(&line), PATIENCE * 3).good();
    if let Some(folder) = std::env::var_os("RINGSIDE_REPORTS") {
        for (name, kept) in [
            ("report.html", "steering-igb.html"),
            ("result.json", "steering-igb.json"),
        ] {
            let content = hosts.guest.read(format!("/study/{name}")).expect("a file");
            std::fs::write(std::path::Path::new(&folder).join(kept), content).expect("written");
        }
    }
    let Outcome::Lab(lab) = done.document().result else {
        panic!("no lab: {done:#?}")
    };
    assert_eq!(lab.cells.len(), 8, "{lab:#?}");
    for cell in &lab.cells {
        let of = format!("{cell:#?}");
        if cell.path == "by-rule" {
            let why = cell.unavailable.as_deref().unwrap_or_default();
            assert!(why.contains("cannot insert a rule for a receive queue"), "{of}");
            continue;
        }
        assert_eq!((&cell.unavailable, cell.failed_turns), (&None, 0), "{of}");
        let [steered] = &cell.steering[..] else { panic!("{of}") };
        let [class] = &steered.seen.classes[..] else {
            panic!("{of}")
        };
        assert_eq!(class.flow, SteerFlow::VlanPriority(5));
        let (mut queues, mut interrupts) = (Vec::new(), 0);
        for queue in &steered.seen.queues {
            queues.push(queue.queue);
            interrupts += queue.interrupts.iter().map(|count| count.count).sum::<u64>();
        }
        assert!(queues == [0, 1] && interrupts > 50, "{of}");
        let said = |words: &str| {
            steered
                .seen
                .sentences
                .iter()
                .any(|one| !one.right && one.text.contains(words))
        };
        let is_loaded = !cell.loads.is_empty();
        match cell.path.as_str() {
            "plain" => {}
            "by-table" => {
                assert_mostly_on(class, 1, 1);
                assert_eq!(
                    said("packets of no class landed on queue 1, which PCP 5 asked for"),
                    is_loaded,
                    "{of}"
                );
            }
            _ => {
                assert_mostly_on(class, 1, 0);
                assert!(said("asked for queue 1, CPU 1"), "{of}");
            }
        }
        eprintln!("{} {is_loaded}: {:?}", cell.path, steered.seen.sentences);
    }
}

/// A lab from here to another machine, which is a namespace, over VLAN devices: what the map says is in the tags, and the map is as before.
fn a_lab_s_probes_are_marked(hosts: &Hosts) {
    hosts.run(
        "sh -c set -e
        ip link add lab type veth peer name seen netns far; ip link set lab up; ip -n far link set seen up
        ip link add link lab name lab.7 type vlan id 7; ip link set lab.7 up; ip addr add 10.9.7.1/24 dev lab.7
        ip -n far link add link seen name seen.7 type vlan id 7; ip -n far link set seen.7 up
        ip -n far addr add 10.9.7.2/24 dev seen.7
        printf '%s\n' 'rounds = 1' 'turn = \"1s\"' \
            '[[host]]' 'name = \"me\"' 'place = \"here\"' '[[host]]' 'name = \"far\"' 'serve = \"10.9.7.2\"' \
            '[[steering]]' 'name = \"marked\"' 'host = \"me\"' 'interface = \"lab.7\"' 'egress = [\"3=5\"]' \
            '[[probe]]' 'name = \"five\"' 'from = \"me\"' 'to = \"far\"' 'with = \"udp\"' 'rate = 50' \
            'priority = 3' 'steering = [\"marked\"]' >/marked.toml",
    );
    let mut server = hosts.start(&format!(
        "ip netns exec far {RINGSIDE} serve seen.7 --listen 10.9.7.2 --insecure"
    ));
    server.wait_for("UDP port", PATIENCE).expect("it serves");
    let line = format!("{RINGSIDE} steer run seen@far --class pcp:5 --class pcp:3 -t 20 --json");
    let watching = hosts.start(&line);
    let done = hosts.ringside("lab run /marked.toml --into /marked --json").good();
    let Outcome::Lab(lab) = done.document().result else {
        panic!("no lab: {done:#?}")
    };
    let [cell] = &lab.cells[..] else { panic!("{lab:#?}") };
    assert_eq!((&cell.unavailable, cell.probes.lost), (&None, 0), "{cell:#?}");
    let set = &cell.steering[0].seen.settings;
    assert!(
        set.iter()
            .any(|one| one.what.contains("PCP for priority 3") && one.obtained == "5"),
        "{set:#?}"
    );
    let Outcome::Steer(seen) = end(&line, watching).good().document().result else {
        panic!("no steering")
    };
    let [five, three] = &seen.classes[..] else {
        panic!("{seen:#?}")
    };
    assert!(
        five.arrived() >= cell.probes.received && cell.probes.received > 0,
        "{seen:#?}"
    );
    assert_eq!(three.arrived(), 0, "{seen:#?}");
    let shown = hosts.run("ip -d link show lab.7").out;
    assert!(!shown.contains("egress-qos-map"), "{shown}");
    server.signal(libc::SIGINT).expect("told to end");
}

fn steer(hosts: &Hosts, line: &str) -> (Done, SteerResult) {
    let done = hosts.ringside(line).good();
    match done.document().result {
        Outcome::Steer(result) => (done, *result),
        other => panic!("no steering: {other:?}"),
    }
}

fn assert_put_back(done: &Done, what: &str) {
    let restored = |line: &str| line.contains(what) && line.ends_with(": restored");
    assert!(done.err.lines().any(restored), "{what}: {}", done.err);
}

/// An interrupt that has been moved may come to the old CPU once more.
fn assert_mostly_on(class: &SteerClass, queue: u32, cpu: u32) {
    let there = class
        .landings
        .iter()
        .filter(|landing| (landing.queue, landing.cpu) == (queue, cpu));
    let there: u64 = there.map(|landing| landing.packets).sum();
    assert!(class.arrived() > 0 && there * 10 >= class.arrived() * 8, "{class:#?}");
}
