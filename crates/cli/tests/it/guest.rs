//! In a guest whose NICs have zero-copy: what a veth pair cannot show. One boot.
//!
//! ```text
//!  guest:  eth0 10.9.0.1 ────────── virtio-net, back to back ────────── eth1 10.9.0.2, in the namespace "far"
//!            └ eth0.5 10.9.5.1                                            └ eth1.5 10.9.5.2        VLAN 5
//! ```
//!
//! The same guest has NICs that are joined to hosts here: see `guest/attached.rs`.
#![cfg(target_arch = "x86_64")]

mod attached;
mod debian;
mod host_network;
mod igb;
mod kernel_ways;
mod schedules;
mod steering;

use std::process::Output;
use std::time::Duration;

use crate::common::Done;
use attached::Attached;
use ringside_measure::schema::{Mode, Outcome};
use ringside_measure::trace::{Point, Stage};
use ringside_netlab::guest::{Agent, Guest, GuestChild, GuestConfig, Kernel, Model};
use ringside_netlab::testing::is_root;
use serde_json::Value;

/// An emulated CPU, on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_mins(3);

const RINGSIDE: &str = env!("CARGO_BIN_EXE_ringside");

/// What a command takes for each mode.
const MODES: [&str; 4] = ["zero-copy", "zero-copy --wait busy-poll", "native", "generic"];

struct Hosts {
    guest: Guest,
    model: Model,
}

impl Hosts {
    fn boot(model: Model, attached: Option<&Attached>) -> Self {
        Self::boot_on(Kernel::usual().expect("a kernel for guests"), model, attached)
    }

    fn boot_on(kernel: Kernel, model: Model, attached: Option<&Attached>) -> Self {
        let mut config = GuestConfig::new("cli", kernel, Agent::program(RINGSIDE)).back_to_back(model);
        config.programs = [RINGSIDE, "cat", "ip", "ping", "sh", "tc"].map(Into::into).to_vec();
        if model == Model::Igb {
            let own = ["ethtool", "perl", "phc2sys", "phc_ctl", "ptp4l"];
            config.programs.extend(own.map(Into::into));
        }
        if let Some(attached) = attached {
            attached.configure(&mut config);
        }
        let modules = ["8021q", "veth", "sch_mqprio", "sch_taprio", "sch_etf"];
        config.modules = modules.map(str::to_owned).to_vec();
        let guest = Guest::start(&config).expect("a guest");
        eprintln!(
            "Linux {} on {}, ready after {:?}",
            guest.release(),
            guest.accelerator().name(),
            guest.boot_time()
        );
        let hosts = Self { guest, model };
        hosts.run(
            "sh -c set -e
            ip netns add far; ip link set eth1 netns far
            ip link set eth0 up; ip -n far link set eth1 up
            ip link add link eth0 name eth0.5 type vlan id 5; ip -n far link add link eth1 name eth1.5 type vlan id 5
            ip link set eth0.5 up; ip -n far link set eth1.5 up
            ip addr add 10.9.0.1/24 dev eth0; ip -n far addr add 10.9.0.2/24 dev eth1
            ip addr add 10.9.5.1/24 dev eth0.5; ip -n far addr add 10.9.5.2/24 dev eth1.5",
        );
        if let Some(attached) = attached {
            hosts.run(&format!("sh -c set -e\n{}", attached.script()));
        }
        hosts
    }

    /// A line of words; after `-c` all the rest is one.
    fn start(&self, line: &str) -> GuestChild<'_> {
        let (words, script) = match line.split_once(" -c ") {
            Some((words, script)) => (words, Some(script)),
            None => (line, None),
        };
        let mut words: Vec<&str> = words.split_whitespace().collect();
        words.extend(script.into_iter().flat_map(|script| ["-c", script]));
        let command = self.guest.command(words[0]).args(words[1..].iter().copied());
        command.spawn().expect("starts")
    }

    fn run(&self, line: &str) -> Done {
        end(line, self.start(line)).good()
    }

    /// The tool here or in the namespace "far".
    fn ringside(&self, line: &str) -> Done {
        let line = format!("{RINGSIDE} {line}");
        end(&line, self.start(&line))
    }

    fn far(&self, line: &str) -> GuestChild<'_> {
        let mut child = self.start(&format!("ip netns exec far {RINGSIDE} {line}"));
        child
            .wait_for("XDP program ringside_xsk", PATIENCE)
            .expect("it receives");
        child
    }
}

fn end(what: &str, child: GuestChild<'_>) -> Done {
    end_within(what, child, PATIENCE)
}

fn end_within(what: &str, child: GuestChild<'_>, limit: Duration) -> Done {
    let Output { status, stdout, stderr } = child.wait(limit).expect("ends");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Done {
        what: what.to_owned(),
        status,
        took: Duration::ZERO,
        out: text(stdout),
        err: text(stderr),
    }
}

#[test]
#[ignore = "make test-guests runs it"]
fn zero_copy_on_virtio_net_and_ways_to_attach_a_guest() {
    if !is_root() {
        return;
    }
    let attached = Attached::new();
    let hosts = Hosts::boot(Model::VirtioNet, Some(&attached));
    doctor_finds_it(&hosts, "note");
    packets_come_over(&hosts, "zero-copy", ["eth0", "eth1"]);
    // Sending and receiving are different NAPI instances here.
    packets_come_over(&hosts, "zero-copy --wait busy-poll", ["eth0", "eth1"]);
    round_trips(&hosts);
    a_vlan_is_a_network_of_its_own(&hosts);
    delays_are_measured(&hosts);
    steering::run(&hosts);
    schedules::run(&hosts);
    attached.carry_packets(&hosts.guest);
    drop(hosts);
    attached.leave_nothing();
}

#[test]
#[ignore = "make test-guests runs it"]
fn zero_copy_on_igb() {
    if !is_root() {
        return;
    }
    let hosts = Hosts::boot(Model::Igb, None);
    all_ways_on_igb(&hosts);
    stages_are_traced(&hosts);
}

#[test]
#[ignore = "make test-guests runs it"]
fn frames_fit_an_igb() {
    if !is_root() {
        return;
    }
    let hosts = Hosts::boot(Model::Igb, None);
    igb::one_queue_for_all(&hosts);
    igb::two_nics_share_frames(&hosts);
    igb::a_lab_takes_both_nics(&hosts);
}

#[test]
#[ignore = "make test-guests runs it"]
fn clocks_of_igb() {
    if !is_root() {
        return;
    }
    igb::schedules_wait_for_the_nics_clock(&Hosts::boot(Model::Igb, None));
}

#[test]
#[ignore = "make test-guests runs it"]
fn steering_on_igb() {
    if !is_root() {
        return;
    }
    let hosts = Hosts::boot(Model::Igb, None);
    steering::run_on_igb(&hosts);
    steering::study_on_igb(&hosts);
}

#[test]
#[ignore = "make test-guests runs it"]
fn ways_that_take_modules() {
    if is_root() {
        kernel_ways::are_made_in_a_guest();
    }
}

/// An older kernel, and what it has not.
#[test]
#[ignore = "make test-guests runs it"]
fn doctor_on_debian_12() {
    if !is_root() {
        return;
    }
    let kernel = Kernel::named(debian::DEBIAN_12).expect("a kernel for guests");
    debian::doctor_tells_what_6_1_has(&Hosts::boot_on(kernel, Model::VirtioNet, None));
}

/// A kernel whose interrupts are threads and whose locks sleep.
fn boot_preempt_rt(model: Model) -> Hosts {
    let kernel = Kernel::named("linux-image-rt-amd64/trixie-backports").expect("a kernel for guests");
    let hosts = Hosts::boot_on(kernel, model, None);
    let version = hosts.run("cat /proc/version").out;
    assert!(version.contains("PREEMPT_RT"), "{version}");
    hosts
}

#[test]
#[ignore = "make test-guests runs it"]
fn preempt_rt() {
    if !is_root() {
        return;
    }
    let hosts = boot_preempt_rt(Model::VirtioNet);
    doctor_finds_it(&hosts, "note");
    for mode in MODES {
        packets_come_over(&hosts, mode, ["eth0", "eth1"]);
    }
    round_trips(&hosts);
    a_vlan_is_a_network_of_its_own(&hosts);
    hints_are_the_programs(&hosts);
    delays_are_measured(&hosts);
    schedules::run(&hosts);
}

/// The NIC's interrupts, for each queue and direction one, are threads there, too.
#[test]
#[ignore = "make test-guests runs it"]
fn preempt_rt_on_igb() {
    if !is_root() {
        return;
    }
    let hosts = boot_preempt_rt(Model::Igb);
    all_ways_on_igb(&hosts);
    // Clocks jump there.
    igb::schedules_wait_for_the_nics_clock(&hosts);
}

fn all_ways_on_igb(hosts: &Hosts) {
    igb::one_queue_for_all(hosts);
    // It takes VLAN tags off.
    doctor_finds_it(hosts, "warning");
    round_trips(hosts);
    // A queue gets its usual rings back some time after its zero-copy socket has gone, and what is in the others then is lost. Who binds it again waits
    // for that, who uses the VLAN does not: so the modes that copy are the last.
    for mode in MODES {
        packets_come_over(hosts, mode, ["eth0", "eth1"]);
    }
    a_vlan_is_a_network_of_its_own(hosts);
    igb::no_stamps_for_all_packets(hosts);
    hints_are_the_programs(hosts);
    delays_are_measured(hosts);
    schedules::each_keeps_it(hosts, &schedules::IGB);
}

/// A NIC with a driver and interrupts of its own, and a kernel that has the entries of functions, too.
fn stages_are_traced(hosts: &Hosts) {
    // A queue gets its usual rings back some time after its zero-copy socket has gone: that is the last.
    let receivers = [
        "udp-blocking",
        "af-packet",
        "af-xdp-native",
        "af-xdp-generic",
        "af-xdp-zero-copy",
    ];
    let line = format!(
        "trace --interface eth0,eth1@far --receivers {} --rate 50 -t 6 --slot-ms 1000 --json",
        receivers.join(",")
    );
    let done = hosts.ringside(&line).good();
    let Outcome::Trace(result) = done.document().result else {
        panic!("not a trace: {done:#?}");
    };
    assert_eq!(result.missing, [], "{result:#?}");
    assert_eq!(result.paths.len(), receivers.len());
    for (path, receiver) in result.paths.iter().zip(receivers) {
        assert_eq!((path.receiver.as_deref(), &path.failure), (Some(receiver), &None));
        let stages: Vec<Stage> = path.stages.iter().map(|stage| stage.stage).collect();
        use Point::{Call, Queue, Raised, Ready, Socket, SoftIrq, Stack, Transmit, Xdp};
        let here: &[Point] = match receiver {
            "udp-blocking" | "af-packet" => &[Stack, Socket, Ready],
            "af-xdp-native" | "af-xdp-zero-copy" => &[Xdp, Socket],
            _ => &[Stack, Xdp],
        };
        // What the NIC puts into the socket's memory itself is no socket buffer, of which the stack would know.
        let is_native = !here.contains(&Stack);
        assert!(!is_native || !stages.contains(&Stage::From(Stack)), "{path:#?}");
        for point in [Call, Queue, Transmit, Raised, SoftIrq].iter().chain(here) {
            let stage = Stage::From(*point);
            assert!(stages.contains(&stage), "{receiver}: {point:?} in {path:#?}");
        }
        let whole = path.whole.expect("packets");
        assert!(
            (path.sum_mean_ns - whole.mean_ns).abs() <= path.clock_error_ns as f64 + 1.0,
            "{path:#?}"
        );
    }
}

fn doctor_finds_it(hosts: &Hosts, severity: &str) {
    let done = hosts.ringside("doctor eth0 --no-veth --live --deadline 120 --probes 20 --peer 10.9.0.2 --json");
    let json = done.json();
    assert_eq!(json["severity"], severity, "{json:#}");
    let live = &json["facts"]["live"];
    let tries = live["tries"].as_array().expect("tries").iter();
    let outcomes: Vec<_> = tries
        .map(|tried| [&tried["mode"], &tried["outcome"]].map(|value| value.as_str()))
        .collect();
    let expected = ["zero_copy", "native_copy", "generic"].map(|mode| [Some(mode), Some("asked")]);
    // Each queue of its own.
    let mut outcomes = outcomes;
    outcomes.dedup();
    assert_eq!(outcomes, expected, "{live:#}");
    assert_eq!([&live["failure"], &live["left_behind"]], [&Value::Null; 2], "{live:#}");
}

fn packets_come_over(hosts: &Hosts, mode: &str, [from, to]: [&str; 2]) {
    // An igb that has no frame loses the packet: so many fit into its ring, however long a busy machine keeps its receiver waiting.
    let count: u64 = if hosts.model == Model::Igb { 200 } else { 1000 };
    let common = format!("--count {count} -t 100 --json --mode");
    let only = mode.split(' ').next().unwrap_or(mode);
    let receiver = hosts.far(&format!("rx {to} --wait poll --filter udp:29620 {common} {only}"));
    let address = if from == "eth0" { "10.9.0.2" } else { "10.9.5.2" };
    let sent = hosts
        .ringside(&format!("tx {from} --to {address} --rate 1000 {common} {mode}"))
        .good();
    let received = end("rx", receiver).good();
    assert_eq!(sent.result().packets.sent, count, "{sent:#?}");
    assert_eq!(received.result().packets.delivered(), count, "{sent:#?} {received:#?}");
    if hosts.model == Model::Igb {
        // Its NIC is reset when a program comes, for longer than the schedule is here, which begins when the carrier is back.
        let run = sent.result();
        assert_eq!((run.link_flaps, run.link_down_ns), (Some(0), Some(0)), "{sent:#?}");
    }
    for (done, name) in [(&sent, from), (&received, to)] {
        let document = done.document();
        assert_eq!(document.interfaces[0].name, name);
        let queues = &document.interfaces[0].queues;
        let expected = match (only, name == from) {
            ("zero-copy", _) => Mode::ZeroCopy,
            (_, true) => Mode::Copy,
            ("native", false) => Mode::NativeCopy,
            (_, false) => Mode::Generic,
        };
        // With smaller ones an igb would cut packets, those for the host too.
        let is_cut = hosts.model == Model::Igb && only == "zero-copy";
        let frame_size = Some(if is_cut { 4096 } else { 2048 });
        assert!(
            !queues.is_empty()
                && queues
                    .iter()
                    .all(|queue| (queue.mode, queue.frame_size_bytes) == (expected, frame_size)),
            "{queues:#?}"
        );
    }
}

fn round_trips(hosts: &Hosts) {
    let echo = hosts.far("echo eth1 --mode zero-copy");
    let ping = hosts
        .ringside("ping eth0 --mode zero-copy --to 10.9.0.2 --count 50 --json")
        .good();
    let result = ping.result();
    assert_eq!(result.packets.delivered(), 50, "{result:#?}");
    // Its end resets an igb, which is over with only when it has ended.
    echo.signal(libc::SIGINT).expect("signalled");
    end("echo", echo).good();
}

fn a_vlan_is_a_network_of_its_own(hosts: &Hosts) {
    hosts.run("ping -c1 -w 60 10.9.5.2");
    packets_come_over(hosts, "generic", ["eth0.5", "eth1.5"]);
}

/// Neither driver has anything for an XDP program (Linux 7.3): that is told, and what the program knows by itself is there.
fn hints_are_the_programs(hosts: &Hosts) {
    let silent = "the driver tells nothing about received packets (xdp-rx-metadata-features)";
    let behind = "generic XDP runs behind the driver, which cannot be asked any more";
    for (mode, why_not) in [("zero-copy", silent), ("native", silent), ("generic", behind)] {
        let receiver = hosts.far(&format!(
            "rx eth1 --hints --wait poll --filter udp:29620 --count 20 --mode {mode} --json"
        ));
        let sent = "tx eth0 --to 10.9.0.2 --rate 100 --size 200 --count 20 --json";
        hosts.ringside(&format!("{sent} --mode {mode}")).good();
        let received = end("rx --hints", receiver).good().result();
        assert_eq!(received.packets.delivered(), 20, "{received:#?}");
        let hints = received.hints.as_ref().expect("hints");
        let written: Vec<_> = (hints.layouts.iter())
            .map(|layout| (layout.name.as_str(), layout.packets))
            .filter(|(_, packets)| *packets != 0)
            .collect();
        assert_eq!(written, [("ringside_rx", 20)], "{hints:#?}");
        let nic = hints.nic.as_ref().expect("what the NIC knows");
        assert!(!nic.device_bound, "{nic:#?}");
        assert_eq!(
            (nic.why_not.as_deref(), nic.offers.as_deref()),
            (Some(why_not), Some(&[][..])),
            "{nic:#?}"
        );
        let stamps: Vec<_> = nic
            .stamps
            .iter()
            .map(|count| (count.source.as_str(), count.packets))
            .collect();
        assert_eq!(stamps, [("hardware", 0), ("xdp", 20), ("application", 0)], "{nic:#?}");
        assert_eq!((nic.hash.packets, nic.vlan.packets), (0, 0), "{nic:#?}");
        // Only the one has a clock.
        let has_clock = nic.stamps[0].clock.starts_with("PHC /dev/ptp");
        assert_eq!(has_clock, hosts.model == Model::Igb, "{nic:#?}");
    }
}

/// Figures of an emulated CPU: that there are some for each way to wait, and none that is impossible.
fn delays_are_measured(hosts: &Hosts) {
    let line =
        "delay eth1 --waits poll,spin --cores other,same --c-states as-is --samples 100 --rounds 1 -t 120 --json";
    let delay = hosts.start(&format!("ip netns exec far {RINGSIDE} {line}"));
    // Nobody answers ARP while the other end's NIC is reset.
    let to = "--to 10.9.0.2 --to-mac 02:72:73:67:00:02";
    let sender = hosts.start(&format!("{RINGSIDE} tx eth0 {to} --rate 100 --json"));
    let done = end("delay", delay).good();
    sender.signal(libc::SIGINT).expect("signalled");
    end("tx", sender).good();
    let Outcome::Delay(result) = done.document().result else {
        panic!("not a delay: {done:#?}");
    };
    assert_eq!(result.cells.len(), 4, "{result:#?}");
    for cell in &result.cells {
        let delay = cell
            .delay
            .as_ref()
            .unwrap_or_else(|| panic!("nothing was sampled: {cell:#?}"));
        assert!(delay.samples >= 100 && cell.impossible_packets == 0, "{cell:#?}");
        eprintln!("{:?} {:?}: {delay:?}", cell.wait, cell.core);
    }
}
