//! The gateway's unit under a real systemd, between tenants: what its sandbox leaves is enough, and systemd does what the unit says.

use std::net::TcpStream;
use std::process::Output;

use ringside_netlab::wait_until;
use serde_json::Value;

use crate::bed::{Bed, FAMILIES, Family, Place};
use crate::common::systemd::{Systemd, install};
use crate::peers::{answered, chat, connect, exchange_during};
use crate::process::PATIENCE;
use crate::ringside::Ringside;
use crate::tenant::neighbors;
use crate::tenants::scraped::Metrics;

const UNIT: &str = "ringside-gateway";
/// As in packaging/ringside-gateway.toml.
const PINS: &str = "/sys/fs/bpf/ringside-gateway";

/// Its client, inside.
fn ctl(systemd: &Systemd, words: &[&str]) -> Output {
    let mut command = systemd.command("ringside-gateway");
    let output = command.arg("ctl").args(words).output().expect("runs");
    assert!(output.status.success(), "{words:?}: {output:?}");
    output
}

/// Packets that one of the two ways sent on.
fn forwarded(systemd: &Systemd, path: &str) -> u64 {
    let said = ctl(systemd, &["stats", "--json"]).stdout;
    let statistics: Value = serde_json::from_slice(&said).expect("JSON");
    let mut paths = statistics["paths"].as_array().expect("paths").iter();
    let found = paths.find(|one| one["path"] == path).expect("both");
    found["forwarded-packets"].as_u64().expect("a number")
}

/// A line of the process's `status`.
fn status(systemd: &Systemd, name: &str) -> String {
    let status = systemd.process(UNIT, "status");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let line = line.and_then(|line| line.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in {status}"))
        .trim()
        .to_owned()
}

/// How often its log says something.
fn times(systemd: &Systemd, text: &str) -> usize {
    systemd.read("log").matches(text).count()
}

#[test]
fn the_unit_does_under_systemd_what_it_says() {
    if !ringside_netlab::testing::is_root() {
        return;
    }
    let bed = Bed::without_gateway("units", crate::tenants::FAST, &[Place::vxlan(Family::V4); 2]);
    let ns = bed.uplinks[0].a.ns.clone();
    let how = Ringside {
        pinned: true,
        ..Ringside::FAST
    };
    let configuration = how.configuration(PINS.as_ref());
    let folder = install(&[("ringside-gateway.toml", &configuration)]);
    Systemd::drop_in(&folder, UNIT, "");
    let mut systemd = Systemd::start(ns.command("setpriv"), folder);

    // Until it says that it is ready.
    systemd.systemctl(&["start", UNIT]);
    systemd.wait_for(UNIT, "active", 0);
    is_in_its_sandbox(&systemd);
    let cards: Vec<_> = bed.tenants().map(|tenant| tenant.card).collect();
    std::fs::write(systemd.folder.join("tenants.yaml"), neighbors(&cards)).expect("a file");
    ctl(&systemd, &["apply", "-f", "/run/test/tenants.yaml"]);
    for family in FAMILIES {
        answered(bed.at(1), bed.at(2).address(family));
    }
    let to = bed.at(2).address(Family::V4);
    let [busy, idle] = [7000, 7001].map(|port| connect(bed.at(1), (bed.at(2), to), port));
    assert!(wait_until(PATIENCE, || {
        chat(&idle).expect("goes");
        forwarded(&systemd, "fast") > 0
    }));
    assert!(forwarded(&systemd, "slow") > 0, "the first packet takes a worker");
    is_asked(&systemd, &bed, &idle);

    // systemd is told again and again that it lives.
    let mut seen = vec![systemd.property(UNIT, "WatchdogTimestampMonotonic")];
    systemd.wait("the watchdog is fed", |systemd| {
        let last = systemd.property(UNIT, "WatchdogTimestampMonotonic");
        if !seen.contains(&last) {
            seen.push(last);
        }
        seen.len() > 2
    });

    let read = "the configuration was read again";
    let configuration = configuration + "tenants = { 42 = 100 }\n";
    configure(&systemd, &configuration);
    systemd.systemctl(&["reload", UNIT]);
    systemd.wait(read, |systemd| times(systemd, read) == 1);
    systemd.wait_for(UNIT, "active", 0);

    // The next one shall feed it more often than the unit says, with which this would be a long test.
    Systemd::drop_in(&systemd.folder, UNIT, "WatchdogSec=5");
    systemd.systemctl(&["daemon-reload"]);
    // Killed, it is started again, and finds its fast path and its connections.
    exchange_during(&busy, || {
        signal(&systemd, "-KILL");
        chat(&idle).expect("goes on without the daemon");
        systemd.wait_for(UNIT, "active", 1);
    });
    assert_eq!(times(&systemd, "adopted=true"), 1, "{}", systemd.all());
    chat(&idle).expect("goes on");

    stands_still(&mut systemd);
    chat(&idle).expect("goes on");

    fails_for_a_while(&mut systemd, &configuration);
    assert_eq!(times(&systemd, "adopted=true"), 3, "{}", systemd.all());
    chat(&idle).expect("goes on");

    // Asked to, it ends; what it pinned stays for the next one, which is there in time.
    systemd.systemctl(&["stop", UNIT]);
    systemd.wait_for(UNIT, "inactive", 0);
    assert_eq!(systemd.property(UNIT, "Result"), "success", "{}", systemd.all());
    assert_eq!(times(&systemd, "the workers have ended"), 0, "{}", systemd.all());
    chat(&idle).expect("goes on without the daemon");
    systemd.systemctl(&["start", UNIT]);
    systemd.wait_for(UNIT, "active", 0);
    assert_eq!(times(&systemd, "adopted=true"), 4, "{}", systemd.all());
    chat(&idle).expect("goes on");
    answered(bed.at(1), to);
}

/// It is what the unit says, and no test bed of ours that lets more through.
fn is_in_its_sandbox(systemd: &Systemd) {
    assert_eq!(status(systemd, "Seccomp"), "2", "a filter of system calls");
    assert_eq!(status(systemd, "NoNewPrivs"), "1");
    let unit = include_str!("../../../../../packaging/ringside-gateway.service");
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let kept = line.expect("it has some").split(' ').count();
    let has = u64::from_str_radix(&status(systemd, "CapEff"), 16).expect("hexadecimal");
    assert!(usize::try_from(has.count_ones()).expect("few") <= kept, "{has:x}");
    let mounts = systemd.process(UNIT, "mountinfo");
    let options = |place: &str| {
        let mut words = mounts.lines().map(|line| line.split(' ').skip(4));
        let found = words.find_map(|mut words| (words.next() == Some(place)).then(|| words.next().map(str::to_owned)));
        found.flatten().unwrap_or_else(|| panic!("no {place} in {mounts}"))
    };
    for (place, expected) in [("/", "ro,"), ("/etc", "ro,"), ("/sys/fs/bpf", "rw,")] {
        assert!(options(place).starts_with(expected), "{place}: {mounts}");
    }
}

/// Whoever asks is answered: its client, with packets of both ways, and who fetches its metrics.
fn is_asked(systemd: &Systemd, bed: &Bed, open: &[TcpStream; 2]) {
    ctl(systemd, &["health"]);
    let mut trace = systemd.command("ringside-gateway");
    trace.args(["ctl", "trace", "--vni", "42", "--count", "3"]);
    let mut traced = crate::process::Running::new(trace);
    assert!(wait_until(PATIENCE, || {
        chat(open).expect("goes");
        traced.is_over()
    }));
    let traced = traced.end();
    assert!(traced.status.success() && traced.out.contains("10.0.0."), "{traced:#?}");
    let metrics = Metrics::of(&bed.uplinks[0].a.ns);
    assert!(
        metrics.get("packets_total{path=\"fast\",verdict=\"forwarded\"}") > 0.0,
        "{metrics:?}"
    );
}

/// What does not feed its watchdog any more is ended by systemd, and started again.
fn stands_still(systemd: &mut Systemd) {
    signal(systemd, "-STOP");
    Systemd::drop_in(&systemd.folder, UNIT, "");
    systemd.systemctl(&["daemon-reload"]);
    systemd.wait_for(UNIT, "active", 2);
    assert_eq!(times(systemd, "adopted=true"), 2, "{}", systemd.all());
}

/// What keeps it from starting lasts for longer than systemd tries by itself, and then is over.
fn fails_for_a_while(systemd: &mut Systemd, configuration: &str) {
    // More than systemd's own limit of starts in ten seconds.
    const STARTS: u32 = 8;
    Systemd::drop_in(&systemd.folder, UNIT, "RestartSec=100ms");
    systemd.systemctl(&["daemon-reload"]);
    let restarts = |systemd: &Systemd| systemd.property(UNIT, "NRestarts").parse::<u32>().expect("a number");
    let before = restarts(systemd);
    configure(systemd, "nonsense");
    signal(systemd, "-KILL");
    systemd.wait("tried again", |systemd| restarts(systemd) >= before + STARTS);
    configure(systemd, configuration);
    systemd.wait("it runs", |systemd| systemd.property(UNIT, "ActiveState") == "active");
}

/// Another configuration, which nobody has read yet.
fn configure(systemd: &Systemd, configuration: &str) {
    std::fs::write(systemd.folder.join("again.toml"), configuration).expect("a file");
    let copied = (systemd.command("cp"))
        .args(["/run/test/again.toml", "/etc/ringside-gateway.toml"])
        .status();
    assert!(copied.expect("runs").success());
}

fn signal(systemd: &Systemd, name: &str) {
    let pid = systemd.property(UNIT, "MainPID");
    let sent = systemd.command("kill").args([name, &pid]).status();
    assert!(sent.expect("runs").success());
}
