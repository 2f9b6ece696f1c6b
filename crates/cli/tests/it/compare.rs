//! `ringside compare` on the real kernel: short, whole, and nothing left behind.

use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::common::unwrapped;
use ringside_measure::schema::{CompareResult, Document, LoadKind, Operation, Outcome, Variant};
use ringside_netlab::testing::{self, has_root, is_root};
use ringside_netlab::{Lab, Namespace, VethConfig};

const RINGSIDE: &str = env!("CARGO_BIN_EXE_ringside");

/// Each test pins spinning threads to both CPUs: two at once would measure each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// The child's id, and what it said.
fn finish(child: Child) -> (u32, Output) {
    (child.id(), child.wait_with_output().expect("it ends"))
}

fn start(mut command: Command, line: &str) -> Child {
    command
        .args(words(line))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts")
}

fn result(output: &Output) -> (Document, CompareResult) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}\n{text}", output.status);
    let document: Document = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let Outcome::Compare(result) = document.result.clone() else {
        panic!("{:?}", document.result)
    };
    (document, result)
}

/// Returns whether a variant measured nothing because its threads had no CPU for a whole slot.
fn is_starved(failure: Option<&str>) -> bool {
    let reasons = ["the flow of packets stopped", "too few for a median"];
    failure.is_some_and(|why| reasons.iter().any(|reason| why.contains(reason)))
}

/// Runs the comparison and repeats it if a variant was starved. Returns the last child's id too.
fn measured(mut child: impl FnMut() -> Child) -> (u32, Output, Document, CompareResult) {
    testing::measured(|| {
        let (id, output) = finish(child());
        let (document, result) = result(&output);
        for table in &result.tables {
            let variants = table.variants.iter().map(|variant| (&variant.name, &variant.failure));
            let loaded = table.under_load.iter().map(|variant| (&variant.name, &variant.failure));
            for (name, failure) in variants.chain(loaded) {
                testing::expect(!is_starved(failure.as_deref()), format_args!("{name}: {failure:?}"))?;
            }
            for aa in &table.aa {
                testing::expect(!aa.rounds.is_empty(), format_args!("{} has no second turn", aa.name))?;
            }
        }
        Ok((id, output, document, result))
    })
}

/// Namespaces of a process are named by its id; their interfaces and all programs on those go with them.
fn assert_nothing_is_left_of(id: u32) {
    let names = std::fs::read_dir("/run/netns").expect("a directory of namespaces");
    let left: Vec<String> = names
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(&format!("rs-{id}-")))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// On a machine whose host takes CPU time away all rounds of a variant may be left out.
fn is_steal(failure: &str) -> bool {
    failure.contains("left out for CPU steal")
}

fn check_figures(operation: Operation, variant: &Variant) {
    let what = format!("{operation:?} {variant:?}");
    assert_eq!(variant.failure, None, "{what}");
    assert!(!variant.set_up.is_empty(), "{what}");
    assert!(!variant.rounds.is_empty() && variant.rounds.len() <= 2, "{what}");
    assert!(variant.packets_pps.expect("a rate").median > 0.0, "{what}");
    assert!(
        variant.wire_bps.expect("bits").median > variant.payload_bps.expect("bits").median,
        "{what}"
    );
    let loss = variant.loss_percent.expect("losses");
    assert!((0.0..=100.0).contains(&loss.min) && loss.max <= 100.0, "{what}");
    let cpu = [
        variant.cpu_user_percent,
        variant.cpu_system_percent,
        variant.cpu_softirq_percent,
        variant.cpu_busy_percent,
    ];
    assert!(cpu.iter().all(Option::is_some), "{what}");
    let rates = [variant.packets_pps, variant.wire_bps, variant.payload_bps, Some(loss)];
    for figure in cpu.into_iter().chain(rates).flatten() {
        // A round may have been left out for CPU steal.
        assert_eq!(figure.spread.is_some(), figure.rounds_used > 1, "{what}");
    }
    if operation == Operation::Ping {
        let (min, mean) = (variant.rtt_min_ns, variant.rtt_mean_ns);
        let times = [min, mean, variant.rtt_p50_ns, variant.rtt_max_ns].map(|figure| figure.expect("a time"));
        let [min, mean, p50, max] = times.map(|figure| figure.median);
        assert!(
            0.0 < min && min <= p50 && p50 <= max && min <= mean && mean <= max,
            "{what}"
        );
        for figure in times {
            assert_eq!(figure.spread.is_some(), figure.rounds_used > 1, "{what}");
        }
    }
}

/// Each variant of each operation works and has figures, the kernel's limit is one, and the namespaces are gone.
#[test]
fn everything_is_compared_on_a_test_bed() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    // Longer than a CPU is away at a time on a busy machine.
    let line = "compare --lab veth --rounds 2 --slot-ms 160 --sizes 64,1500 --operations rx,tx,fwd,ping -v --json";
    let (id, output, document, result) = measured(|| start(Command::new(RINGSIDE), line));
    assert_nothing_is_left_of(id);

    assert_eq!(document.interfaces.len(), 2);
    assert!(
        document
            .interfaces
            .iter()
            .all(|interface| interface.driver.as_deref() == Some("veth"))
    );
    assert!(!document.system.kernel_release.is_empty());
    assert_eq!((result.rounds, result.round_duration_ns), (2, 160_000_000));
    assert_eq!(result.tables.len(), 8);
    // On a machine that is given away while measuring, a variant may have no quiet round: that is said, and no failure.
    let stolen = |variant: &&Variant| variant.failure.as_deref().is_some_and(is_steal);
    for table in &result.tables {
        assert_eq!(table.payload_bytes, table.frame_bytes - 42);
        let names: Vec<&str> = table.variants.iter().map(|variant| variant.name.as_str()).collect();
        let expected: &[&str] = match table.operation {
            Operation::Tx => &[
                "udp-blocking",
                "udp-sendmmsg",
                "udp-gso",
                "af-packet",
                "af-xdp-copy",
                "xdp-limit",
            ],
            _ => &[
                "udp-blocking",
                "udp-spin",
                "af-packet",
                "af-xdp-generic",
                "af-xdp-native",
                "xdp-limit",
            ],
        };
        assert_eq!(names, expected);
        assert!(table.variants.iter().any(|variant| variant.name == table.base));
        for variant in table.variants.iter().filter(|variant| !stolen(variant)) {
            check_figures(table.operation, variant);
        }
    }
    assert_eq!(
        result
            .tables
            .iter()
            .filter(|table| table.operation == Operation::Ping)
            .count(),
        2
    );
    // The tables went to the other stream.
    let text = String::from_utf8_lossy(&output.stderr);
    for name in ["Receive", "Transmit", "Forward", "Ping", "af-xdp-native", "[95 %]"] {
        assert!(text.contains(name), "{name} in\n{text}");
    }
}

#[test]
fn prints_a_summary_of_eighty_columns() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let child = start(
        Command::new(RINGSIDE),
        "compare --lab veth --rounds 1 --slot-ms 160 --operations rx,tx,fwd,ping",
    );
    let (_, output) = finish(child);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for name in ["receive", "transmit", "send back", "round trip"] {
        let answers = text.lines().filter(|line| line.starts_with(&format!("  {name} ")));
        assert_eq!(answers.count(), 1, "{name} in\n{text}");
    }
    assert!(text.contains("Best here: ") && text.contains("add -v"), "{text}");
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(80) && text.lines().count() <= 24, "{text}");
}

/// Two interfaces in one namespace: UDP has a row that says why not, the others work, and nothing stays attached.
#[test]
fn existing_interfaces_are_left_as_they_were() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let host = Namespace::create("compare-host").expect("a namespace");
    let config = VethConfig {
        ipv6: false,
        ..VethConfig::tagged("compare")
    };
    let lab = Lab::join(&host, &host, config).expect("a pair of interfaces");
    for end in lab.ends() {
        end.run(|| end.interface.set_feature("rx-gro", true)).expect("GRO");
    }
    let before = lab
        .ends()
        .map(|end| end.run(|| end.interface.features()).expect("features"));
    let line = "compare --interface veth-a,veth-b --rounds 1 --slot-ms 160 --json \
                --variants udp-spin,af-packet,af-xdp-native,af-xdp-zero-copy,xdp-limit";
    let (_, output) = finish(start(host.command(RINGSIDE), line));
    let (_, result) = result(&output);
    assert_eq!(result.tables.len(), 4);
    for variant in result.tables.iter().flat_map(|table| &table.variants) {
        let failure = variant.failure.as_deref().unwrap_or_default();
        match variant.name.as_str() {
            "udp-spin" => assert!(failure.contains("one network namespace"), "{failure}"),
            "af-xdp-zero-copy" => assert!(failure.contains("zero-copy"), "{failure}"),
            name => assert!(
                failure.is_empty() || is_steal(failure) || is_starved(Some(failure)),
                "{name}: {failure}"
            ),
        }
    }
    for name in ["af-packet", "af-xdp-native"] {
        let mut variants = result.tables.iter().flat_map(|table| &table.variants);
        let measured = variants.any(|variant| variant.name == name && variant.failure.is_none());
        assert!(measured, "{name} has no figures in any table");
    }
    let after = lab
        .ends()
        .map(|end| end.run(|| end.interface.features()).expect("features"));
    assert_eq!(before, after);
    for end in lab.ends() {
        assert_eq!(end.state().expect("a state").xdp, None);
    }
    // What was dropped behind the packet socket's tap arrives again.
    let reply = lab.a.run(|| {
        let (here, there) = (lab.a.ipv4, lab.b.ipv4);
        let receiver = std::net::UdpSocket::bind((there, 7)).expect("a port");
        let sender = std::net::UdpSocket::bind((here, 0)).expect("a port");
        receiver
            .set_read_timeout(Some(crate::common::PATIENCE))
            .expect("a time-out");
        sender.send_to(b"hello", (there, 7)).expect("sends");
        receiver.recv(&mut [0; 8])
    });
    assert_eq!(reply.expect("an answer"), 5);
}

/// With the second interface in a namespace of its own UDP takes part, and the namespace is still there afterwards.
#[test]
fn an_interface_in_another_namespace_is_compared_with_udp_too() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let config = VethConfig {
        ipv6: false,
        gro: true,
        ..VethConfig::tagged("compare-far")
    };
    let lab = Lab::veth(config).expect("a pair of interfaces");
    let line = format!(
        "compare --interface veth-a,veth-b@{} --rounds 1 --slot-ms 200 --json --variants udp-spin,af-xdp-native",
        lab.b.ns.name()
    );
    let (_, _, document, result) = measured(|| start(lab.a.ns.command(RINGSIDE), &line));
    for variant in result.tables.iter().flat_map(|table| &table.variants) {
        let failure = variant.failure.as_deref().unwrap_or_default();
        assert!(failure.is_empty() || is_steal(failure), "{}: {failure}", variant.name);
    }
    for interface in &document.interfaces {
        assert_eq!(interface.queues.len(), 1, "the mode that can be had: {interface:?}");
    }
    assert!(lab.b.ns.path().exists());
    assert_eq!(lab.b.state().expect("a state").xdp, None);
}

/// A veth takes redirected frames only while its peer has GRO on or native XDP: told once, with the
/// command.
#[test]
fn a_missing_prerequisite_is_told_once_with_its_command() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let config = VethConfig {
        ipv6: false,
        ..VethConfig::tagged("compare-gro")
    };
    let lab = Lab::veth(config).expect("a pair of interfaces");
    let name = lab.b.ns.name();
    let line = format!(
        "compare --interface veth-a,veth-b@{name} --rounds 1 --slot-ms 200 --operations rx,fwd \
         --variants udp-spin,af-packet,af-xdp-generic,af-xdp-native"
    );
    let output = start(lab.a.ns.command(RINGSIDE), &line)
        .wait_with_output()
        .expect("ends");
    let text = unwrapped(&String::from_utf8_lossy(&output.stdout));
    let reason = format!(
        "veth-b has GRO off, and veth-a, a veth, takes the generator's frames only while its peer has GRO on or native XDP: \
         ip netns exec {name} ethtool -K veth-b gro on"
    );
    assert_eq!(text.matches(&reason).count(), 1, "{text}");
    let (before, _) = text.split_once(&reason).expect("counted");
    let (_, failed) = before.rsplit_once("Failed: ").expect("a sentence");
    for row in ["udp-spin (receive)", "af-packet (receive)", "af-xdp-generic (receive)"] {
        assert!(failed.contains(row), "{row}: {text}");
    }
    assert!(!failed.contains("af-xdp-native"), "{text}");
    assert!(!text.contains("with index"), "{text}");
}

/// Each variant takes part twice: the second one is compared with the first, and shows what a difference has to be.
#[test]
fn a_variant_is_compared_with_itself() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let line = "compare --lab veth --aa --rounds 6 --slot-ms 160 --operations rx \
                --variants af-packet,af-xdp-native --json";
    let (_, output, _, result) = measured(|| start(Command::new(RINGSIDE), line));
    let [table] = result.tables.as_slice() else {
        panic!("one table: {result:?}")
    };
    let names = |names: &mut dyn Iterator<Item = &String>| names.cloned().collect::<Vec<_>>();
    let variants = names(&mut table.variants.iter().map(|variant| &variant.name));
    assert_eq!(variants, ["af-packet", "af-xdp-native"]);
    assert_eq!(names(&mut table.aa.iter().map(|aa| &aa.name)), variants);
    let mut reach = 0.0_f64;
    let mut known = true;
    for (aa, variant) in table.aa.iter().zip(&table.variants) {
        assert!(aa.rounds.len() <= 6, "{aa:?}");
        // Other rounds than the variant's own, in the same unit.
        assert_ne!(aa.rounds, variant.rounds);
        match aa.ratio.and_then(|ratio| ratio.low.zip(ratio.high)) {
            Some((low, high)) => reach = reach.max(1.0 / low - 1.0).max(high - 1.0),
            None => known = false,
        }
    }
    let floor = table.noise_floor_percent;
    assert_eq!(floor.is_some(), known, "{table:?}");
    assert!(
        floor.is_none_or(|floor| (floor - reach * 100.0).abs() < 1e-6),
        "{floor:?} {reach}"
    );
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("x itself") && text.contains("Noise: "), "{text}");
}

/// It goes on until the intervals are narrow, which hardly any are not here, or until the rounds are over, which is told.
/// Round trips under load stand beside the same without, of every variant and condition.
#[test]
fn round_trips_idle_and_under_load() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let line = "compare --lab veth --load --load-rate 2000 --rounds 3 --slot-ms 160 \
                --operations ping --variants udp-spin,af-packet,af-xdp-native --json";
    let (_, _, _, result) = measured(|| start(Command::new(RINGSIDE), line));
    let [table] = result.tables.as_slice() else {
        panic!("{} tables", result.tables.len())
    };
    assert_eq!((table.variants.len(), table.under_load.len()), (3, 6));
    for loaded in &table.under_load {
        assert_eq!(loaded.load_pps, 2000.0, "{loaded:?}");
        // Rounds in which the host took CPU time are left out, all three at worst.
        if let Some(failure) = &loaded.failure {
            assert!(is_steal(failure), "{loaded:?}");
            continue;
        }
        let per_minute = loaded.round_trips_per_minute.expect("measured");
        assert!(per_minute.median > 0.0, "{loaded:?}");
        assert!((1..=3).contains(&loaded.rounds.len()), "{loaded:?}");
        if let Some(ratio) = loaded.ratio_to_idle {
            assert!(ratio.median > 0.0 && ratio.rounds_used <= 3, "{ratio:?}");
        }
        assert_ne!(loaded.kind, LoadKind::Idle);
        assert!(table.variants.iter().any(|variant| variant.name == loaded.name));
    }
}

#[test]
fn it_goes_on_until_it_is_known_well_enough() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let line = "compare --lab veth --until-ci 90% --rounds 60 --slot-ms 20 --operations tx --variants udp-blocking,af-xdp-copy --json";
    let (_, output, _, result) = measured(|| start(Command::new(RINGSIDE), line));
    let until = result.until_ci.clone().expect("asked for");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(until.goal_percent, 90.0);
    assert_eq!(until.of, "tx 64 af-xdp-copy");
    // Ten rounds and three more are the least there can be.
    assert!((13..=60).contains(&result.rounds), "{result:?}");
    match until.reached {
        true => assert!(
            result.rounds < 60 && until.width_percent.expect("an interval") < 90.0 && text.contains(": reached"),
            "{text}"
        ),
        false => assert!(result.rounds == 60 && text.contains("NOT reached"), "{text}"),
    }
    let line = "compare --lab veth --until-ci 0.001% --rounds 2 --slot-ms 20 --operations tx --variants udp-blocking,af-xdp-copy --json";
    let (_, output, _, result) = measured(|| start(Command::new(RINGSIDE), line));
    let until = result.until_ci.clone().expect("asked for");
    assert!(
        !until.reached && until.width_percent.is_none() && result.rounds == 2,
        "{until:?}"
    );
    assert!(String::from_utf8_lossy(&output.stderr).contains("NOT reached"));
}

#[test]
fn nothing_sampled_is_an_error() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let host = Namespace::create("compare-none").expect("a namespace");
    let lab = Lab::join(&host, &host, VethConfig::default()).expect("a pair of interfaces");
    let child = start(
        host.command(RINGSIDE),
        "compare --interface veth-a,veth-b --rounds 1 --slot-ms 20 --variants udp-spin",
    );
    let (_, output) = finish(child);
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("nothing was sampled") && text.contains("one network namespace"),
        "{text}"
    );
    assert!(output.stdout.is_empty());
    drop(lab);
}

#[test]
fn an_interrupt_ends_it_with_the_results_so_far() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let child = start(
        Command::new(RINGSIDE),
        "compare --lab veth --time 600 --slot-ms 50 --operations tx --json",
    );
    std::thread::sleep(Duration::from_secs(8));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("a signal");
    let (id, output) = finish(child);
    let (_, result) = result(&output);
    assert!(result.rounds >= 1);
    assert!(
        result.tables[0]
            .variants
            .iter()
            .any(|variant| !variant.rounds.is_empty())
    );
    assert_nothing_is_left_of(id);
}

#[test]
fn nonsense_is_refused_before_anything_is_built() {
    for (line, word) in [
        ("compare", "required"),
        ("compare --lab veth --interface a,b", "cannot be used with"),
        ("compare --interface eth0,eth0", "two different interfaces"),
        ("compare --lab veth --sizes 59", "bytes from 60 to 3000"),
        ("compare --lab veth --cpus 0", "two CPUs"),
        ("compare --lab veth --cpus 0,100000", "not online"),
        ("compare --lab veth --variants udp", "udp-spin"),
        ("compare --lab veth --rounds 0", "no number from 1 to"),
        (
            "compare --lab veth --load --operations rx,tx",
            "add ping to --operations",
        ),
        ("compare --lab veth --load-rate 5", "--load"),
        ("compare --lab veth --until-ci 100%", "between 0 and 100 %"),
        ("compare --lab veth --until-ci soon", "no percentage"),
        (
            "compare --lab veth --operations tx --until-ci 1% --variants udp-gso",
            "one variant and no ratio",
        ),
        (
            "compare --lab veth --operations tx --variants udp-spin",
            "none of the variants",
        ),
    ] {
        if line.contains("--variants udp-") && !has_root() {
            continue;
        }
        let (id, output) = finish(start(Command::new(RINGSIDE), line));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(word), "{line}: {text}");
        assert_nothing_is_left_of(id);
    }
}
