use super::*;
use crate::lab::file::Text;
use crate::lab::plan::Plan;

const LAB: &str = r#"
rounds = 5
turn = "1s"

[[host]]
name = "a"
[[host]]
name = "b"
[[host]]
name = "c"
[[host]]
name = "here"
place = "here"
[[host]]
name = "far"
serve = "192.0.2.7"

[[link]]
ends = ["a", "b"]
[[link]]
name = "up1"
ends = ["a", "c"]
[[link]]
name = "up2"
ends = ["a", "c"]

[[guest]]
name = "vm1"
host = "c"
attachment = "tap-bridge"
uplink = "up1"
[[guest]]
name = "vm2"
host = "c"
attachment = "tap-bridge"
uplink = "up2"
machine = "vm1"

[[load]]
name = "first"
kind = "udp"
[[load]]
name = "second"
kind = "iperf3-tcp"

[[steering]]
name = "rps"
host = "b"
rps = ["0=1"]

[[probe]]
name = "plain"
from = "a"
to = "b"
with = "udp"
loads = []
[[probe]]
name = "steered"
from = "a"
to = "b"
with = "udp"
steering = ["rps"]
loads = ["second"]
[[probe]]
name = "guest1"
from = "a"
to = "vm1"
with = "udp"
loads = ["first"]
[[probe]]
name = "guest2"
from = "a"
to = "vm2"
with = "udp"
loads = ["first"]
[[probe]]
name = "elsewhere"
from = "here"
to = "far"
with = "udp"
loads = ["first"]
"#;

fn text() -> Text {
    Text {
        name: "my.toml".to_owned(),
        text: LAB.to_owned(),
    }
}

fn only(names: &[&str]) -> Plan {
    let overrides = Overrides {
        only: names.iter().map(|&name| name.to_owned()).collect(),
        ..Overrides::default()
    };
    Plan::read_with(&text(), &overrides).unwrap_or_else(|error| panic!("{names:?}: {error}"))
}

/// Names of probes, loads, guests, hosts and steering, and how many links there are.
fn parts(plan: &Plan) -> ([Vec<&str>; 5], usize) {
    let hosts = plan.hosts.iter().map(|host| host.name.as_str());
    let all = [
        plan.probes.iter().map(|probe| probe.name.as_str()).collect(),
        plan.loads.iter().map(|load| load.name.as_str()).collect(),
        plan.guests.iter().map(|guest| guest.name.as_str()).collect(),
        hosts.collect(),
        plan.steerings.iter().map(|one| one.name.as_str()).collect(),
    ];
    (all, plan.links.len())
}

#[test]
fn what_is_not_measured_is_not_built() {
    let hosts = vec!["a", "b", "c", "here"];
    let all = parts(&only(&[])).0.map(|names| names.len());
    assert_eq!(all, [5, 2, 2, 5, 1]);
    assert_eq!(
        parts(&only(&["plain"])),
        ([vec!["plain"], vec![], vec![], hosts.clone(), vec![]], 1)
    );
    assert_eq!(
        parts(&only(&["steered", "plain"])),
        (
            [
                vec!["plain", "steered"],
                vec!["second"],
                vec![],
                hosts.clone(),
                vec!["rps"]
            ],
            1
        )
    );
    assert_eq!(
        parts(&only(&["guest1"])),
        ([vec!["guest1"], vec!["first"], vec!["vm1"], hosts.clone(), vec![]], 2)
    );
    // It is a NIC of the other's machine.
    assert_eq!(parts(&only(&["guest2"])).0[2], ["vm1", "vm2"]);
    assert_eq!(parts(&only(&["elsewhere"])).0[3], ["a", "b", "c", "here", "far"]);
}

#[test]
fn loads_keep_their_ports() {
    let plan = only(&["steered"]);
    assert_eq!((plan.loads[0].name.as_str(), plan.loads[0].number), ("second", 1));
}

#[test]
fn rounds_and_turns_are_those_of_the_command_line() {
    let overrides = Overrides {
        rounds: Some(2),
        turn: Some(Duration::from_millis(50)),
        only: Vec::new(),
    };
    let plan = Plan::read_with(&text(), &overrides).unwrap();
    assert_eq!((plan.rounds, plan.turn), (2, Duration::from_millis(50)));
    assert_eq!(overrides.options(), "--rounds 2 --turn 50000us");
    let plan = Plan::read_with(&text(), &Overrides::default()).unwrap();
    assert_eq!((plan.rounds, plan.turn), (5, Duration::from_secs(1)));
}

#[test]
fn unknown_names_are_refused_with_those_that_there_are() {
    let overrides = Overrides {
        only: vec!["plain".to_owned(), "nobody".to_owned()],
        ..Overrides::default()
    };
    let error = Plan::read_with(&text(), &overrides).unwrap_err();
    assert!(crate::args::is_about_a_value(&error));
    assert_eq!(
        error.to_string(),
        "--only nobody: the lab my.toml has no probe or schedule of that name; it has plain, \
         steered, guest1, guest2, elsewhere"
    );
}

#[test]
fn each_study_can_be_measured_probe_by_probe() {
    for (name, text) in crate::lab::study::ALL {
        let text = Text {
            name: name.to_owned(),
            text: text.to_owned(),
        };
        let file = File::read(&text).unwrap_or_else(|error| panic!("{error}"));
        let probes = file.probe.iter().map(|probe| &probe.name);
        for one in probes.chain(file.schedule.iter().map(|schedule| &schedule.name)) {
            let overrides = Overrides {
                only: vec![named(one).to_owned()],
                ..Overrides::default()
            };
            let plan = Plan::read_with(&text, &overrides);
            let one = named(one);
            let plan = plan.unwrap_or_else(|error| panic!("{name} --only {one}: {error:#}"));
            assert!(!plan.probes.is_empty(), "{name} --only {one}");
        }
    }
}
