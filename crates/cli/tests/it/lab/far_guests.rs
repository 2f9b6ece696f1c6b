//! Guests that another machine's server starts: what it does not allow is told before anything begins, probes and loads go over the wire to a guest that
//! is up, and nothing of it is left there, however the run ends. The other machine is a namespace of this one. Two boots, and two that are not
//! waited for.

use std::fs;
use std::time::Duration;

use ringside_measure::schema::{LabCell, LatencyKind, LoadKind};
use ringside_measure::trace::Stage;
use ringside_netlab::testing::{interfaces, is_root};
use ringside_netlab::{Device, Lab, VethConfig, wait_until};

use super::common::{self, Running, Settings};
use super::guests::{PATIENCE, machine_of};
use super::together::folders_of;
use super::{
    Scratch, alone, cannot_be_run, check_cell, has_ended, idle_and_loaded, kill, namespaces_of, result, rows, start_at,
    turns,
};

/// How long a machine may take to be gone with all that is of it.
const GONE: Duration = Duration::from_secs(20);

const HEAD: &str = "rounds = 1\nturn = \"1s\"\n[[host]]\nname = \"me\"\nplace = \"here\"\n";

/// Two machines with two wires: the second one's interface there has no address.
struct Wires {
    first: Lab,
    second: Lab,
}

impl Wires {
    fn new() -> Self {
        let first = common::lab("lab-lodge", 1);
        let second = VethConfig {
            hosts: [1, 0],
            subnet: 42,
            ipv6: false,
            gro: true,
            ..VethConfig::named("second", "up")
        };
        let second = Lab::join(&first.a.ns, &first.b.ns, second).expect("a second wire");
        Self { first, second }
    }

    /// Of the other machine's interfaces.
    fn settings(&self) -> [Settings; 2] {
        [&self.first.b, &self.second.b].map(common::settings)
    }

    /// `ringside serve` on the other machine, with more words.
    fn serve(&self, words: &str) -> Running {
        let server = common::start(&self.first.b, &format!("serve {{}} --insecure --lab {words}"));
        server.wait_for("UDP port");
        server
    }

    /// Whose guests may have both interfaces.
    fn serve_guests(&self) -> Running {
        self.serve("--lab-guests up --lab-guests veth-b")
    }

    fn lab(&self, scratch: &Scratch, line: &str) -> Running {
        start_at(&self.first.a, scratch, line)
    }

    /// The server's own sockets are open.
    fn answers(&self) {
        let ping = format!("ping {} --far-via af-xdp --count 5", self.first.b.ipv4);
        common::run(&self.first.a, &ping).good();
    }

    fn far(&self) -> String {
        format!("[[host]]\nname = \"far\"\nserve = \"{}\"\n", self.first.b.ipv4)
    }

    /// Nothing of a guest is left with its machine, whose server still runs, and whose interfaces were like this.
    fn are_as_before(&self, server: u32, before: &[Settings; 2]) {
        let left = || {
            (
                machine_of(server),
                namespaces_of(server),
                folders_of(server),
                interfaces(&self.first.b.ns),
            )
        };
        let nothing = || {
            (
                None,
                Vec::new(),
                Vec::new(),
                ["lo", "up", "veth-b"].map(str::to_owned).to_vec(),
            )
        };
        let is_so = || left() == nothing() && self.settings() == *before;
        assert!(wait_until(GONE, is_so), "{:?}", left());
        assert_eq!(left(), nothing());
    }
}

fn guest(name: &str, keys: &str) -> String {
    format!("[[guest]]\nname = {name:?}\nhost = \"far\"\n{keys}\n")
}

fn probe(to: &str, keys: &str) -> String {
    format!("[[probe]]\nname = {to:?}\nfrom = \"me\"\nto = {to:?}\nwith = \"udp\"\nrate = 200\n{keys}\n")
}

const BRIDGED: &str = "attachment = \"tap-bridge\"\ninterface = \"up\"\naddress = \"10.77.42.2/24\"";

/// What a run says, and `check` before it: nothing has begun.
fn refused(wires: &Wires, scratch: &Scratch, content: &str, why: &str) {
    scratch.lab(content);
    let checked = cannot_be_run(&wires.lab(scratch, "check my.toml").end());
    assert!(checked.contains(why), "{why}: {checked}\n{content}");
    let told = wires.lab(scratch, "run my.toml --into run").end().bad();
    assert!(told.contains(why), "{why}: {told}\n{content}");
    assert!(!scratch.path("run").exists(), "nothing has begun: {content}");
}

#[test]
fn what_a_server_does_not_allow_its_guests_is_told_before_anything_begins() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let wires = Wires::new();
    let one = |keys: &str| HEAD.to_owned() + &wires.far() + &guest("vm", keys) + &probe("vm", "");
    for (words, why) in [
        ("", "start `ringside serve` there with --lab --lab-guests INTERFACE"),
        (
            "--lab-guests up --max-time 1",
            "its server has guests for no longer than 1s",
        ),
        (
            "--lab-guests up --max-guest-memory 512",
            "MiB of memory: 768 are asked for, this server allows 512 (--max-guest-memory)",
        ),
    ] {
        let server = wires.serve(words);
        // Both its turns, and more than its second.
        let content = one(BRIDGED).replace("rounds = 1", "rounds = 2");
        refused(&wires, &scratch, &content, why);
        server.interrupt().good();
    }
    let server = wires.serve_guests();
    let second = "attachment = \"macvtap\"\ninterface = \"veth-b\"\naddress = \"10.77.0.9/24\"";
    for (content, why) in [
        (
            one(&format!("{BRIDGED}\nkernel = \"linux-image-rt-amd64\"")),
            "the kernel linux-image-rt-amd64 is asked for, this server allows",
        ),
        (one(&format!("{BRIDGED}\ncpus = 64")), "virtual CPUs: 64 are asked for"),
        (
            one(&BRIDGED.replace("\"up\"", "\"lo\"")),
            "the interface lo is asked for, this server allows up, veth-b (--lab-guests)",
        ),
        (
            one(&BRIDGED.replace("\"up\"", "\"veth-b\"")),
            "tap-bridge would take veth-b from its machine, where it has the address 10.77.0.2: take macvtap",
        ),
        (
            one(&BRIDGED.replace("42.2", "43.2")),
            "no way leads to 10.77.43.2: give it one of a network that an interface of this machine is on",
        ),
        (
            one(&BRIDGED.replace("42.2", "42.1")),
            "10.77.42.1 is this machine's own address",
        ),
        (
            one(BRIDGED) + &guest("other", second),
            "2 guests with a machine of their own are asked for, its server allows 1 (--max-guests)",
        ),
    ] {
        refused(&wires, &scratch, &content, why);
    }
    // One that is allowed is told of, and that is all.
    scratch.lab(&one(BRIDGED));
    let checked = wires.lab(&scratch, "check my.toml").end().good().out;
    assert!(
        checked.contains("guest  vm of far, which starts it: tap-bridge at up, 10.77.42.2/24, 2 CPUs, 768 MiB"),
        "{checked}"
    );
    assert!(!checked.contains("cannot be run"), "{checked}");
    let said = server.interrupt().good().err;
    assert!(!said.contains("a guest for a lab"), "{said}");
    common::assert_clean(&wires.first.a);
}

/// No device of that kind is made on a loopback interface. The machine is not booted then.
#[test]
fn what_the_other_machine_cannot_join_is_a_row() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let wires = Wires::new();
    let server = wires.serve("--lab-guests lo");
    let before = wires.settings();
    let guest = guest("vm", "attachment = \"macvtap\"\naddress = \"10.77.0.9/24\"");
    scratch.lab(&(HEAD.to_owned() + &wires.far() + &guest + &probe("vm", "") + &probe("far", "")));
    let done = wires.lab(&scratch, "run my.toml --into run --json").end().good();
    wires.are_as_before(server.pid(), &before);
    let result = result(&done.out);
    let [vm, far] = &result.cells[..] else {
        panic!("{result:#?}")
    };
    assert!(
        vm.unavailable.as_ref().is_some_and(|why| why.contains("macvtap")),
        "{vm:#?}"
    );
    check_cell(far);
    let machine = result.machines.last().expect("the guest");
    assert_eq!((machine.name.as_str(), &machine.accelerator), ("vm", &None));
    server.interrupt().good();
    common::assert_clean(&wires.first.a);
}

#[test]
fn guests_take_an_interface_and_the_word_for_it() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let wires = Wires::new();
    for (words, why) in [
        ("serve {} --insecure --lab-guests up", "--lab"),
        ("serve {} --insecure --lab --max-guests 2", "--lab-guests"),
        ("serve {} --insecure --lab --lab-guests nothing", "nothing"),
        (
            "serve --via udp --insecure --lab --lab-guests up",
            "--lab-guests: a lab takes an interface",
        ),
        (
            "serve {} --insecure --lab --lab-guests up --guest-kernel no/such/kernel",
            "--guest-kernel no/such/kernel",
        ),
    ] {
        let told = common::run(&wires.first.b, words).bad();
        assert!(told.contains(why), "{words}: {told}");
    }
}

/// One machine with two NICs, one beside the server's own interface and one that has the other for itself.
fn content(wires: &Wires) -> String {
    let beside = "attachment = \"macvtap\"\ninterface = \"veth-b\"\naddress = \"10.77.0.9/24\"\nacceleration = \"tcg\"";
    HEAD.to_owned()
        + &wires.far()
        + &guest("beside", beside)
        + &guest("bridged", &format!("{BRIDGED}\nmachine = \"beside\"\nqueues = 2"))
        + "[[load]]\nname = \"packets\"\nkind = \"udp\"\nrate = 200\nsize = 300\n\
           [[load]]\nname = \"tcp\"\nkind = \"tcp\"\nbitrate = \"1M\"\n"
        + "[[steering]]\nname = \"rps\"\nhost = \"far\"\nrps = [\"0=0\"]\n"
        + &probe("beside", "steering = [\"rps\"]")
        + &probe(
            "bridged",
            "measure = [\"rtt\", \"one-way\"]\nuncertainty = \"20ms\"\ntrace = true",
        )
        + &schedule("in", ["me", "bridged"], "")
        + &schedule("out", ["bridged", "me"], "qdisc = \"mqprio\"")
}

/// Long windows, for an emulated CPU.
fn schedule(name: &str, [from, to]: [&str; 2], keys: &str) -> String {
    format!(
        "[[schedule]]\nname = {name:?}\nfrom = {from:?}\nto = {to:?}\nuncertainty = \"20ms\"\ncycle = \"50ms\"\nclass = [\"5:0ms:20ms:200:2\"]\n{keys}\n"
    )
}

#[test]
#[ignore = "make test-guests runs it"]
fn a_guest_behind_another_machine_is_reached_over_the_wire() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let wires = Wires::new();
    let server = wires.serve_guests();
    let before = wires.settings();
    scratch.lab(&content(&wires));
    let done = wires.lab(&scratch, "run my.toml --into run --json");
    let done = done.end_within(PATIENCE).good();
    wires.are_as_before(server.pid(), &before);
    let result = result(&done.out);
    let [_, _, machines @ ..] = &result.machines[..] else {
        panic!("{result:#?}")
    };
    let told: Vec<_> = machines
        .iter()
        .map(|of| (of.name.as_str(), of.attachment.as_deref(), of.accelerator.as_deref()))
        .collect();
    assert_eq!(
        told,
        [
            ("beside", Some("macvtap"), Some("tcg")),
            ("bridged", Some("tap-bridge"), Some("tcg"))
        ]
    );
    let emulated = "the CPUs of beside, bridged are emulated (tcg)";
    assert!(
        result.warnings.iter().any(|warning| warning.contains(emulated)),
        "{:?}",
        result.warnings
    );
    use LatencyKind::{OneWay, RoundTrip};
    let (classes, cells): (Vec<_>, Vec<_>) = result.cells.iter().partition(|cell| cell.schedule.is_some());
    let paths: Vec<&str> = classes.iter().map(|cell| cell.path.as_str()).collect();
    assert_eq!(paths, ["in PCP 5", "in PCP 5", "out PCP 5", "out PCP 5"], "{result:#?}");
    for cell in classes {
        // Of twenty cycles; a busy machine may leave some out.
        assert!(cell.probes.received >= 10 && cell.clock.is_some(), "{cell:#?}");
    }
    cells.iter().copied().for_each(check);
    let expected = [("beside", RoundTrip), ("bridged", RoundTrip), ("bridged", OneWay)];
    assert_eq!(rows(cells), idle_and_loaded(&expected));
    // The guest's kernel is followed, its host's is not, and that is told.
    for stages in &result.stages {
        let traced = stages.traced.as_ref().unwrap_or_else(|| panic!("{stages:#?}"));
        assert!(traced.traced_packets > 20, "{stages:#?}");
        for crossing in [Stage::IntoGuest, Stage::OutOfGuest] {
            assert!(traced.stages.iter().any(|stage| stage.stage == crossing), "{stages:#?}");
        }
        let inside = |name: &str| name.ends_with(" at bridged");
        let inside = traced
            .stages
            .iter()
            .filter(|stage| stage.interface.as_deref().is_some_and(inside));
        assert!(inside.count() >= 2, "{stages:#?}");
        assert!(
            stages.missing.iter().any(|hook| hook.hook == "all hooks at far"),
            "{stages:#?}"
        );
    }
    assert_eq!(result.stages.len(), 2, "{result:#?}");
    wires.answers();
    let said = server.interrupt().good().err;
    assert_eq!(said.matches("a guest for a lab").count(), 1, "{said}");
    assert!(
        !said.contains("closed the connection"),
        "it was told that all is over: {said}"
    );
    common::assert_clean(&wires.first.a);
}

fn check(cell: &LabCell) {
    check_cell(cell);
    if cell.unavailable.is_some() {
        return;
    }
    assert!(
        cell.probes.received > 50 && cell.probes.received * 2 > cell.probes.sent,
        "{cell:#?}"
    );
    assert_eq!(
        cell.clock.is_some(),
        cell.latency.kind == LatencyKind::OneWay,
        "{cell:#?}"
    );
    assert_eq!(cell.loads.is_empty(), cell.condition != LoadKind::Foreign, "{cell:#?}");
    assert_eq!(cell.steering.len(), usize::from(cell.path == "beside"), "{cell:#?}");
    for steering in &cell.steering {
        // What comes to the guest by the server's interface.
        let mut classes = steering.seen.classes.iter();
        assert!(classes.any(|class| !class.landings.is_empty()), "{steering:#?}");
    }
    for load in &cell.loads {
        // The guest counts them.
        let came = load.received_pps.or(load.received_bits_per_s);
        assert!(came.is_some_and(|rate| rate > 20.0), "{load:#?}");
    }
}

#[test]
#[ignore = "make test-guests runs it"]
fn a_killed_run_leaves_no_guest_on_the_other_machine() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let wires = Wires::new();
    let server = wires.serve_guests();
    let before = wires.settings();
    let content = HEAD.replace("rounds = 1", "rounds = 60") + &wires.far() + &guest("vm", BRIDGED) + &probe("vm", "");
    scratch.lab(&content);
    let mut running = wires.lab(&scratch, "run my.toml --into run");
    let is_measured = || turns(&scratch.path("run")) >= 2;
    assert!(
        wait_until(PATIENCE, || is_measured() || running.is_over()) && is_measured(),
        "{}",
        running.told()
    );
    let machine = machine_of(server.pid()).expect("a machine");
    assert_eq!(interfaces(&wires.first.b.ns), ["lo", "veth-b"], "the guest has it");
    running.signal(libc::SIGKILL);
    running.end();
    wires.are_as_before(server.pid(), &before);
    assert!(has_ended(machine));
    // What was measured is a result.
    wires.lab(&scratch, "report run -o part.json").end().good();
    let part = result(&fs::read_to_string(scratch.path("part.json")).unwrap());
    assert!(part.interrupted, "{part:#?}");
    part.cells.iter().for_each(check);
    wires.answers();
    server.interrupt().good();
}

/// A client that goes, and a machine that somebody ends, while it boots.
#[test]
#[ignore = "make test-guests runs it"]
fn a_guest_that_boots_is_not_waited_for_by_nobody() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let wires = Wires::new();
    let server = wires.serve_guests();
    let before = wires.settings();
    // Not one that is tried once more with another accelerator.
    let emulated = format!("{BRIDGED}\nacceleration = \"tcg\"");
    scratch.lab(&(HEAD.to_owned() + &wires.far() + &guest("vm", &emulated) + &probe("vm", "")));
    let boots = || {
        let run = wires.lab(&scratch, "run my.toml --into run");
        assert!(
            wait_until(PATIENCE, || machine_of(server.pid()).is_some()),
            "{}",
            run.told()
        );
        run
    };
    let run = boots();
    run.signal(libc::SIGKILL);
    run.end();
    wires.are_as_before(server.pid(), &before);
    fs::remove_dir_all(scratch.path("run")).expect("its folder");

    let told = boots().interrupt().bad();
    assert!(told.contains("interrupted"), "{told}");
    wires.are_as_before(server.pid(), &before);
    fs::remove_dir_all(scratch.path("run")).expect("its folder");

    let run = boots();
    kill(machine_of(server.pid()).expect("a machine"));
    let told = run.end_within(PATIENCE).bad();
    assert!(told.contains("refuses: the guest vm: "), "{told}");
    wires.are_as_before(server.pid(), &before);
    fs::remove_dir_all(scratch.path("run")).expect("its folder");

    // Somebody takes the name of the interface that it has: that this is not back is told here, too.
    let run = boots();
    let other = Device::bridge(&wires.first.b.ns, "up").expect("a bridge");
    let cut = run.interrupt();
    assert!(cut.bad().contains("interrupted"), "{cut:#?}");
    let why = "up, which a guest had, is not as it was before: cannot give back an interface for 'up'";
    let left = format!("the host far ({}): {why}", wires.first.b.ipv4);
    assert!(cut.err.contains(&format!("not undone: {left}")), "{}", cut.err);
    let kept = fs::read_to_string(scratch.path("run/left.json")).expect("kept");
    assert!(kept.contains(&left), "{kept}");
    assert!(wait_until(GONE, || namespaces_of(server.pid()).is_empty()));
    drop(other);
    let said = server.interrupt().good().err;
    assert!(said.contains(why), "{said}");
    assert_eq!(said.matches("a guest for a lab").count(), 4, "{said}");
    common::assert_clean(&wires.first.a);
}
