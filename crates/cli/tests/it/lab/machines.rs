//! Another machine, known by the `ringside serve` there: a namespace of this one, and for stages, which take another kernel, a guest that the lab
//! does not know as one, whose receiver is made to stand still, too. One boot.

use ringside_measure::schema::{LabStages, LatencyKind, StageResult};
use ringside_measure::trace::{Point, Stage};
use ringside_netlab::attach::{AttachConfig, Attachment, Uplink, Way};
use ringside_netlab::guest::{Agent, Guest, GuestChild, GuestConfig, Kernel};
use ringside_netlab::testing::{Off, expect, is_root, measured};
use ringside_netlab::{Lab, VethConfig};

use super::common;
use super::guests::PATIENCE;
use super::{Scratch, alone, check_cell, result, rows, start_at};

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
        "rounds = 2\nturn = \"250ms\"\nsettle = \"10ms\"\n[[host]]\nname = \"me\"\nplace = \"here\"\n\
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
    let run = start_at(&hosts.a, &scratch, "run my.toml --into run --json");
    let result = result(&run.end().good().out);
    use LatencyKind::{OneWay, RoundTrip};
    assert_eq!(
        rows(&result.cells),
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

/// A guest that the lab does not know as one, with two CPUs.
struct Far {
    guest: Guest,
    _attachment: Attachment,
    lab: Lab,
}

impl Far {
    fn boot() -> Self {
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
        config.programs = ["ip", "perl", "sh"].map(Into::into).to_vec();
        config.nics = vec![attachment.nic("eth0".to_owned())];
        let guest = Guest::start(&config).expect("a guest");
        let script = "ip link set lo up; ip addr add 10.77.41.2/24 dev eth0; ip link set eth0 up";
        let set_up = guest.command("sh").args(["-c", script]).output().expect("runs");
        assert!(set_up.status.success(), "{set_up:?}");
        Self {
            guest,
            _attachment: attachment,
            lab,
        }
    }

    /// Killed when it is dropped.
    fn start(&self, script: &str) -> GuestChild<'_> {
        self.guest.command("sh").args(["-c", script]).spawn().expect("starts")
    }

    /// A server, whose number is in the file `/served`.
    fn serve(&self) -> GuestChild<'_> {
        let mut server = self.start(&format!(
            "echo $$ >/served; exec {RINGSIDE} serve eth0 --listen 10.77.41.2 --insecure --trace"
        ));
        server
            .wait_for("XDP program ringside_xsk", PATIENCE)
            .expect("it serves");
        server
    }

    /// The stages of round trips to it, so many a second.
    fn stages(&self, scratch: &Scratch, into: &str, rate: u32) -> LabStages {
        scratch.lab(&format!(
            "rounds = 1\nturn = \"4s\"\ntrace = true\n[[host]]\nname = \"me\"\nplace = \"here\"\n\
             [[host]]\nname = \"far\"\nserve = \"10.77.41.2\"\n\
             [[probe]]\nname = \"p\"\nfrom = \"me\"\nto = \"far\"\nwith = \"udp\"\nrate = {rate}\n"
        ));
        let run = start_at(&self.lab.a, scratch, &format!("run my.toml --into {into} --json"));
        let mut result = result(&run.end_within(PATIENCE).good().out);
        let stages = result.stages.pop().unwrap_or_else(|| panic!("{result:#?}"));
        assert!(stages.is_round_trip && stages.unavailable.is_none(), "{stages:#?}");
        let path = stages.traced.as_ref().expect("traced");
        let whole = path.whole.expect("packets").mean_ns;
        assert!((path.sum_mean_ns - whole).abs() < 1_000.0, "they add up: {path:#?}");
        stages
    }
}

#[test]
#[ignore = "make test-guests runs it"]
fn stages_are_those_of_both_machines() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let far = Far::boot();
    let server = far.serve();
    let stages = far.stages(&scratch, "run", 200);
    let path = stages.traced.as_ref().expect("traced");
    assert!(path.traced_packets > 20, "{path:#?}");
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
    // There it is traced all the time.
    if let Some(cost) = &path.cost {
        assert_eq!(cost.always_on.as_deref(), Some("at far"), "{cost:#?}");
        assert!(cost.off.events > 0 && cost.on.events > 0, "{cost:#?}");
    }
    let there = path
        .stages
        .iter()
        .filter(|stage| stage.interface.as_deref() == Some("eth0 at far"));
    assert!(there.count() >= 2, "{path:#?}");
    drop(server);

    // The guest's receiver stands still for most of the time, once its tracing programs are attached: a signal ends the verifier's work. They are looked
    // for no longer then, which takes long there. An answer is waited for 100 ms.
    let server = far.serve();
    let sleeps = far.start(
        "exec perl -e 'open(F, \"/served\"); chomp($p = <F>); \
         while (kill 0 => $p) { \
         $on ||= opendir(D, \"/proc/$p/fd\") && 8 < grep { readlink(\"/proc/$p/fd/$_\") =~ /bpf.link/ } readdir(D); \
         kill STOP => $p if $on; select(undef, undef, undef, 0.07); kill CONT => $p; select(undef, undef, undef, 0.01) }'",
    );
    measured(|| assert_delay_in(&far.stages(&scratch, "sleeps", 25), Stage::From(Point::Ready)));
    drop(sleeps);
    drop(server);
    let Far { guest, lab, .. } = far;
    drop(guest);
    common::assert_clean(&lab.a);
}

/// Half of the packets lose 10 ms and more there, and next to nothing of that anywhere else.
fn assert_delay_in(stages: &LabStages, stage: Stage) -> Result<(), Off> {
    let path = stages.traced.as_ref().expect("traced");
    assert!(path.traced_packets >= 10, "{path:#?}");
    let median = |of: &StageResult| of.times.and_then(|times| times.p50_ns).unwrap_or(0);
    for one in &path.stages {
        eprintln!("{:<28} {:>9} ns, {:>5.1} %", one.name, median(one), one.part_percent);
    }
    let at = |stage: Stage| {
        let found = path.stages.iter().position(|other| other.stage == stage);
        found.unwrap_or_else(|| panic!("{stage:?}: {path:#?}"))
    };
    // The sender's kernel has such a stage for the answer, too.
    let inside = at(Stage::IntoGuest)..at(Stage::OutOfGuest);
    let is_it = |number: usize, one: &StageResult| one.stage == stage && inside.contains(&number);
    let delayed = path.stages.iter().enumerate().find(|(number, one)| is_it(*number, one));
    let (_, delayed) = delayed.unwrap_or_else(|| panic!("{stage:?} in the guest: {path:#?}"));
    let found = median(delayed);
    expect(
        delayed.part_percent > 60.0,
        format_args!("{} of all: {path:#?}", delayed.name),
    )?;
    expect(found > 10_000_000, format_args!("{found} ns: {path:#?}"))?;
    for (number, other) in path.stages.iter().enumerate() {
        let small = is_it(number, other) || median(other) < found / 8;
        expect(small, format_args!("{}: {path:#?}", other.name))?;
    }
    Ok(())
}
