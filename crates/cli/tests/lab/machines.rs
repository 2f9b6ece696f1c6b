//! Another machine, known by the `ringside serve` there: a namespace of this one, and for stages, which take another kernel, a guest that the lab
//! does not know as one. One boot.

use ringside_measure::schema::{LatencyKind, LoadKind};
use ringside_measure::trace::Stage;
use ringside_netlab::attach::{AttachConfig, Attachment, Uplink, Way};
use ringside_netlab::guest::{Agent, Guest, GuestConfig, Kernel};
use ringside_netlab::testing::is_root;
use ringside_netlab::{Lab, VethConfig};

use super::common::{self, Running};
use super::guests::PATIENCE;
use super::{Scratch, alone, check_cell, result};

const RINGSIDE: &str = env!("CARGO_BIN_EXE_ringside");

#[test]
fn another_machine_answers_by_its_server() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let hosts = common::lab("lab-far", 1);
    let server = common::start(&hosts.b, "serve {} --insecure --trace");
    server.wait_for("UDP port");
    let mut content = format!(
        "rounds = 2\nturn = \"100ms\"\nsettle = \"10ms\"\n[[host]]\nname = \"me\"\nplace = \"here\"\n\
         [[host]]\nname = \"far\"\nserve = \"{}\"\n",
        hosts.b.ipv4
    );
    let sink = common::start(&hosts.b, "lab sink");
    sink.wait_for("Taking streams");
    content += "[[load]]\nname = \"tcp\"\nkind = \"tcp\"\nbitrate = \"8M\"\nwindow = 16384\n\
                [[load]]\nname = \"packets\"\nkind = \"udp\"\nrate = 2000\n";
    let both = "measure = [\"rtt\", \"one-way\"]\nuncertainty = \"20ms\"\n";
    for (name, keys) in [
        ("udp", both),
        // Tagged, and taken there without a VLAN device.
        ("packet", "loads = []\npcp = 5\ntrace = true\n"),
        ("xsk", "wait = \"spin\"\nloads = []\n"),
    ] {
        content += &format!("[[probe]]\nname = {name:?}\nfrom = \"me\"\nto = \"far\"\nwith = {name:?}\n{keys}");
    }
    scratch.lab(&content);
    let mut command = common::ringside(&hosts.a, "lab run my.toml --into run --json");
    command.current_dir(&scratch.0);
    let result = result(&Running::new(command).end().good().out);
    let cells: Vec<(&str, LatencyKind, bool)> = result
        .cells
        .iter()
        .map(|cell| {
            (
                cell.path.as_str(),
                cell.latency.kind,
                cell.condition == LoadKind::Foreign,
            )
        })
        .collect();
    use LatencyKind::{OneWay, RoundTrip};
    assert_eq!(
        cells,
        [
            ("udp", RoundTrip, false),
            ("udp", RoundTrip, true),
            ("udp", OneWay, false),
            ("udp", OneWay, true),
            ("packet", RoundTrip, false),
            ("xsk", RoundTrip, false)
        ]
    );
    result.cells.iter().for_each(check_cell);
    for cell in result.cells.iter().filter(|cell| cell.unavailable.is_none()) {
        // It is the same clock, though nothing here knows that.
        let clock = cell.clock.as_ref();
        assert_eq!(clock.is_some(), cell.latency.kind == OneWay, "{cell:#?}");
        assert!(
            clock.is_none_or(|clock| clock.offset_ns.unsigned_abs() <= clock.uncertainty_ns),
            "{cell:#?}"
        );
        for load in &cell.loads {
            let (bits, packets) = (load.received_bits_per_s, load.received_pps);
            let (came, least) = if load.name == "tcp" {
                (bits, 1e5)
            } else {
                (packets, 100.0)
            };
            assert!(came.is_some_and(|rate| rate > least), "{load:#?}");
            // No more came than was sent.
            assert!(packets <= load.sent_pps, "{load:#?}");
        }
        assert!(cell.loads.is_empty() || cell.loads.len() == 2, "{cell:#?}");
    }
    assert!(result.cells.iter().filter(|cell| !cell.loads.is_empty()).count() <= 2);
    // Its record came, and says that both have one kernel.
    let [stages] = &result.stages[..] else {
        panic!("{result:#?}")
    };
    let why = stages.unavailable.as_deref().unwrap_or_default();
    assert!(why.contains("the other end is on this machine"), "{stages:#?}");
    drop((server, sink));
    common::assert_clean(&hosts.a);
}

#[test]
#[ignore = "make test-guests runs it"]
fn stages_are_those_of_both_machines() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let lab = Lab::veth(VethConfig {
        hosts: [1, 0],
        subnet: 41,
        ipv6: false,
        ..VethConfig::tagged("labmachine")
    })
    .expect("test bed");
    let mut attach = AttachConfig::new("lm".to_owned());
    attach.ringside = RINGSIDE.into();
    let attachment = Attachment::make(Way::TapBridge, &Uplink::of(&lab), &attach).expect("a bridge");
    let kernel = Kernel::usual().expect("a kernel for guests");
    let mut config = GuestConfig::new("machine", kernel, Agent::program(RINGSIDE));
    config.programs = ["ip", "sh"].map(Into::into).to_vec();
    config.nics = vec![attachment.nic("eth0".to_owned())];
    let guest = Guest::start(&config).expect("a guest");
    let script = format!(
        "ip link set lo up; ip addr add 10.77.41.2/24 dev eth0; ip link set eth0 up; exec {RINGSIDE} serve eth0 --listen 10.77.41.2 --insecure --trace"
    );
    let mut server = guest.command("sh").args(["-c", &script]).spawn().expect("starts");
    server
        .wait_for("XDP program ringside_xsk", PATIENCE)
        .expect("it serves");
    scratch.lab(
        "rounds = 1\nturn = \"1s\"\ntrace = true\n[[host]]\nname = \"me\"\nplace = \"here\"\n\
         [[host]]\nname = \"far\"\nserve = \"10.77.41.2\"\n\
         [[probe]]\nname = \"p\"\nfrom = \"me\"\nto = \"far\"\nwith = \"udp\"\nrate = 200\n",
    );
    let mut command = common::ringside(&lab.a, "lab run my.toml --into run --json");
    command.current_dir(&scratch.0);
    let result = result(&Running::new(command).end_within(PATIENCE).good().out);
    let [stages] = &result.stages[..] else {
        panic!("{result:#?}")
    };
    assert!(stages.is_round_trip && stages.unavailable.is_none(), "{stages:#?}");
    let path = stages.traced.as_ref().expect("traced");
    assert!(path.traced_packets > 20, "{path:#?}");
    let whole = path.whole.expect("packets").mean_ns;
    assert!((path.sum_mean_ns - whole).abs() < 1_000.0, "they add up: {path:#?}");
    let clock = stages.clock.as_ref().expect("a clock");
    assert_eq!((clock.contradiction_ns, clock.asked_apart_ns), (0, None), "{clock:#?}");
    for (crossing, name) in [
        (Stage::IntoGuest, "NICs and wire, there"),
        (Stage::OutOfGuest, "NICs and wire, back"),
    ] {
        let found = path.stages.iter().find(|stage| stage.stage == crossing);
        let found = found.unwrap_or_else(|| panic!("{path:#?}"));
        assert_eq!(
            (found.name.as_str(), found.uncertainty_ns),
            (name, Some(clock.uncertainty_ns))
        );
    }
    let there = path
        .stages
        .iter()
        .filter(|stage| stage.interface.as_deref() == Some("eth0 at far"));
    assert!(there.count() >= 2, "{path:#?}");
    drop(server);
    drop(guest);
    common::assert_clean(&lab.a);
}
