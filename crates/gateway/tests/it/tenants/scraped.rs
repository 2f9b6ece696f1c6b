//! What the gateway tells Prometheus, held against what tenants really sent and what it was told.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::UdpSocket;
use std::time::Instant;

use ringside_netlab::{Namespace, wait_until};

use crate::bed::{Bed, Family, Kind, Place, Tenant, ip};
use crate::common::daemon::put_neighbor;
use crate::common::metrics::scrape;
use crate::peers::{answered, chat, connect, exchange, uninterrupted};
use crate::process::PATIENCE;
use crate::ringside::Ringside;
use crate::tenants::on;

/// In the gateway's own namespace nobody else has the port.
pub(crate) const OFFERED: &str = "[metrics]\nlisten = \"127.0.0.1:9465\"";
const FAST: Kind = Kind::Ringside(Ringside {
    more: OFFERED,
    ..Ringside::FAST
});
/// Everything through workers.
const WORKERS: Kind = Kind::Ringside(Ringside {
    fast: false,
    more: OFFERED,
    ..Ringside::FAST
});
/// A cache that has room for nobody else.
const SMALL: Kind = Kind::Ringside(Ringside {
    cache: Some(1),
    ..match FAST {
        Kind::Ringside(how) => how,
        Kind::Kernel { .. } => Ringside::FAST,
    }
});

on! {
    fast = super::FAST => what_is_sent_is_counted, what_is_dropped_is_counted, what_it_is_told_is_counted;
    slow = super::WORKERS => what_is_sent_is_counted, what_is_dropped_is_counted, workers_tell_how_busy_they_are;
    small = super::SMALL => what_finds_no_room_is_counted;
}

/// All that was told at one time.
#[derive(Debug)]
pub(crate) struct Metrics(String);

impl Metrics {
    /// Of the gateway in a namespace.
    pub(crate) fn of(ns: &Namespace) -> Self {
        let text = ns.run(|| scrape(9465));
        assert!(!text.is_empty(), "metrics");
        Self(text)
    }

    fn of_bed(bed: &Bed) -> Self {
        Self::of(&bed.uplinks[0].a.ns)
    }

    /// By its name, without what all of them begin with, and with its labels; 0 if there is none of it, as for reasons that nothing
    /// was dropped for.
    pub(crate) fn get(&self, name: &str) -> f64 {
        let name = format!("ringside_gateway_{name} ");
        let value = self.0.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok());
        value.unwrap_or_default()
    }

    /// All with this name, whatever their labels.
    fn sum(&self, name: &str) -> f64 {
        let prefix = format!("ringside_gateway_{name}{{");
        let values = self.0.lines().filter(|line| line.starts_with(&prefix));
        let value = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
        values.map(|line| value(line).expect("a number")).sum()
    }

    /// Packets of one of the two ways, by what became of them.
    fn packets(&self, path: &str, verdict: &str) -> f64 {
        self.get(&format!("packets_total{{path=\"{path}\",verdict=\"{verdict}\"}}"))
    }

    fn of_path(&self, name: &str, path: &str) -> f64 {
        self.get(&format!("{name}_total{{path=\"{path}\"}}"))
    }

    /// What came by a way has become something.
    pub(crate) fn adds_up(&self, path: &str) -> bool {
        let verdicts = ["forwarded", "answered", "passed", "dropped"].map(|verdict| self.packets(path, verdict));
        let handed_up = match path {
            "fast" => self.sum("handed_up_packets_total"),
            _ => 0.0,
        };
        let sum = verdicts.iter().sum::<f64>() + handed_up;
        // Exactly: whole numbers, far from what is not exact any more.
        (self.of_path("received_packets", path) - sum).abs() < 0.5
    }

    /// What the fast path has handed up a worker has got, or there was no room for it.
    pub(crate) fn is_all_got(&self) -> bool {
        let got = self.of_path("received_packets", "slow");
        let busy = self.get("dropped_packets_total{path=\"slow\",reason=\"worker-busy\"}");
        (self.sum("handed_up_packets_total") - got - busy).abs() < 0.5
    }
}

const PORT: u16 = 9;
/// Bytes of a datagram, and of the frame that it is in between hosts: outer headers, VXLAN, inner headers.
const BYTES: usize = 400;
const FRAME: f64 = (14 + 20 + 8 + 8 + 14 + 20 + 8 + BYTES) as f64;
const TIMES: u32 = 50;

fn bind(tenant: &Tenant, port: u16) -> UdpSocket {
    let socket = tenant.ns.run(|| UdpSocket::bind((tenant.card.v4, port)));
    let socket = socket.expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("time-out");
    socket
}

/// What has changed in a time in which nothing else came than what was sent: others' kernels say something now and then.
fn undisturbed(bed: &Bed, path: &str, sent: f64, send: impl Fn()) -> [Metrics; 2] {
    for _ in 0..50 {
        let before = Metrics::of_bed(bed);
        send();
        let mut after = Metrics::of_bed(bed);
        let came = |after: &Metrics| after.of_path("received_packets", path) - before.of_path("received_packets", path);
        // Workers count what they have sent a moment later.
        let all = wait_until(PATIENCE, || {
            after = Metrics::of_bed(bed);
            came(&after) >= sent && after.adds_up(path)
        });
        assert!(all, "{before:?}\n{after:?}");
        if came(&after) < sent + 0.5 {
            return [before, after];
        }
    }
    panic!("others send all the time");
}

/// Checks that a counter has grown by so much.
#[track_caller]
fn grown([before, after]: &[Metrics; 2], name: &str, by: f64) {
    let grown = after.get(name) - before.get(name);
    assert!(
        (grown - by).abs() < 0.5,
        "{name} has grown by {grown}, not {by}: {after:?}"
    );
}

fn what_is_sent_is_counted(kind: Kind) {
    let bed = Bed::new("scraped", kind, &[Place::vxlan(Family::V4); 2]);
    let (from, to, path) = (bed.at(1), bed.at(2), kind.path());
    answered(from, to.address(Family::V4));
    let (sender, receiver) = (bind(from, 0), bind(to, PORT));
    let say = || {
        sender.send_to(&[0; BYTES], (to.card.v4, PORT)).expect("sent");
        let came = uninterrupted(|| receiver.recv(&mut [0; BYTES + 1]));
        assert_eq!(came.expect("it comes"), BYTES);
    };
    // As soon as it is in the cache.
    let goes_its_way = || {
        let before = Metrics::of_bed(&bed);
        say();
        Metrics::of_bed(&bed).packets(path, "forwarded") > before.packets(path, "forwarded")
    };
    assert!(wait_until(PATIENCE, goes_its_way));
    let sent = f64::from(TIMES);
    let told = undisturbed(&bed, path, sent, || (0..TIMES).for_each(|_| say()));
    for (name, by) in [
        ("packets_total{path=\"PATH\",verdict=\"forwarded\"}", sent),
        ("packets_total{path=\"PATH\",verdict=\"dropped\"}", 0.0),
        ("received_packets_total{path=\"PATH\"}", sent),
        ("received_bytes_total{path=\"PATH\"}", sent * FRAME),
        ("forwarded_bytes_total{path=\"PATH\"}", sent * FRAME),
        ("dropped_bytes_total{path=\"PATH\"}", 0.0),
    ] {
        grown(&told, &name.replace("PATH", path), by);
    }
    if path == "fast" {
        grown(&told, "received_packets_total{path=\"slow\"}", 0.0);
    }
}

fn what_is_dropped_is_counted(kind: Kind) {
    let bed = Bed::new("scraped-drops", kind, &[Place::vxlan(Family::V4); 2]);
    let from = bed.at(1);
    answered(from, bed.at(2).address(Family::V4));
    let sent = f64::from(TIMES);
    // To somebody whom the gateway does not know: the fast path leaves these to workers.
    ip(
        &from.ns,
        "neighbour add 10.0.0.77 lladdr 02:00:00:00:00:77 dev tenant0 nud permanent",
    );
    let sender = bind(from, 0);
    let say = || {
        for _ in 0..TIMES {
            sender.send_to(&[0; BYTES], ("10.0.0.77", PORT)).expect("sent");
        }
    };
    let told = undisturbed(&bed, "slow", sent, say);
    grown(
        &told,
        "dropped_packets_total{path=\"slow\",reason=\"no-neighbor\"}",
        sent,
    );
    grown(&told, "packets_total{path=\"slow\",verdict=\"dropped\"}", sent);
    grown(&told, "received_bytes_total{path=\"slow\"}", sent * FRAME);
    grown(&told, "dropped_bytes_total{path=\"slow\"}", sent * FRAME);
    grown(&told, "forwarded_bytes_total{path=\"slow\"}", 0.0);
    if kind.path() == "slow" {
        return;
    }
    grown(&told, "handed_up_packets_total{cause=\"miss\"}", sent);
    // No VXLAN header that is one: it is dropped where it comes.
    let host = &bed.hosts[0].wire.a;
    let sender = host.ns.run(|| UdpSocket::bind((host.ipv4, 5000))).expect("a socket");
    let gateway = (bed.uplinks[0].a.ipv4, 4789);
    let say = || {
        for _ in 0..TIMES {
            sender.send_to(&[0; BYTES], gateway).expect("sent");
        }
    };
    let told = undisturbed(&bed, "fast", sent, say);
    let whole = (14 + 20 + 8 + BYTES) as f64;
    grown(
        &told,
        "dropped_packets_total{path=\"fast\",reason=\"vxlan-flags\"}",
        sent,
    );
    grown(&told, "dropped_bytes_total{path=\"fast\"}", sent * whole);
    grown(&told, "received_bytes_total{path=\"fast\"}", sent * whole);
}

fn what_it_is_told_is_counted(kind: Kind) {
    let mut bed = Bed::new("scraped-tables", kind, &[Place::vxlan(Family::V4); 2]);
    let begun = Metrics::of_bed(&bed);
    let groups = "groups:\n  - {id: 1, rules: [{id: 1, direction: ingress, protocol: tcp, ports: 7000}]}\n  \
                  - {id: 2, rules: [{id: 1, direction: egress}]}\n";
    let ports = "ports:\n  - {vni: 42, ip: 10.0.0.1, groups: [2]}\n  - {vni: 42, ip: 10.0.0.2, groups: [1]}\n";
    bed.ringside().apply(&format!("{groups}{ports}"));
    let open = connect(bed.at(1), (bed.at(2), bed.at(2).address(Family::V4)), 7000);
    let is = |name: &str, value: f64| {
        let mut told = begun.get(name);
        let is = wait_until(PATIENCE, || {
            chat(&open).expect("goes");
            told = Metrics::of_bed(&bed).get(name);
            (told - value).abs() < 0.5
        });
        assert!(is, "{name} is {told}, not {value}");
    };
    for (name, value) in [
        // Two hosts, two networks, two families.
        ("objects{kind=\"neighbors\"}", 8.0),
        ("objects{kind=\"hosts\"}", 2.0),
        ("objects{kind=\"ports\"}", 2.0),
        ("objects{kind=\"security-groups\"}", 2.0),
        ("connections{state=\"established\"}", 1.0),
        ("connections_begun_total", 1.0),
        ("connection_limit", 10_000.0),
        ("fast_path_cache{what=\"capacity\"}", 4096.0),
        ("fast_path_connection_cache{what=\"capacity\"}", 4096.0),
        // Of both directions, once its words go the fast way.
        ("fast_path_connection_cache{what=\"entries\"}", 1.0),
        ("problems", 0.0),
        ("draining", 0.0),
    ] {
        is(name, value);
    }
    let told = Metrics::of_bed(&bed);
    let entries = told.get("fast_path_cache{what=\"entries\"}");
    assert!((2.0..=8.0).contains(&entries), "{told:?}");

    // One request: one transaction, and once into the tables and maps, in no longer than it took.
    let before = Metrics::of_bed(&bed);
    let began = Instant::now();
    let words = put_neighbor(["42", "10.0.0.9", "02:00:00:00:00:09", "10.77.0.1"], None);
    bed.ringside().daemon().ok(&words);
    let took = began.elapsed().as_secs_f64();
    let told = [before, Metrics::of_bed(&bed)];
    for name in ["map_programming_seconds", "store_commit_seconds"] {
        grown(&told, &format!("{name}_count"), 1.0);
        let [before, after] = &told;
        let sum = after.get(&format!("{name}_sum")) - before.get(&format!("{name}_sum"));
        assert!(sum > 0.0 && sum <= took, "{name}: {sum} of {took} s");
    }
    grown(&told, "store_commits_total", 1.0);
    grown(&told, "objects{kind=\"neighbors\"}", 1.0);

    // What rules allowed and allow no longer.
    let nothing = "groups:\n  - {id: 1, rules: []}\n";
    let before = Metrics::of_bed(&bed);
    bed.ringside().apply(nothing);
    grown(&[before, Metrics::of_bed(&bed)], "policy_changes_total", 1.0);
    let ended = "connections_ended_total{why=\"no-longer-allowed\"}";
    assert!(wait_until(PATIENCE, || {
        _ = (&open[0]).write_all(b"word");
        Metrics::of_bed(&bed).get(ended) > 0.5
    }));
}

/// A worker that carries something says so, and is idle afterwards.
fn workers_tell_how_busy_they_are(kind: Kind) {
    let bed = Bed::new("scraped-load", kind, &[Place::vxlan(Family::V4); 2]);
    let load = || {
        let told = Metrics::of_bed(&bed);
        let load = told.sum("worker_load_permille");
        assert!((0.0..=1000.0).contains(&load), "{told:?}");
        load
    };
    let mut port = 7000;
    assert!(wait_until(PATIENCE, || {
        port += 1;
        let streams = connect(bed.at(1), (bed.at(2), bed.at(2).address(Family::V4)), port);
        exchange(&streams, 8 << 20);
        load() > 0.0
    }));
    assert!(wait_until(PATIENCE, || load() < 1.0));
}

fn what_finds_no_room_is_counted(kind: Kind) {
    let bed = Bed::new("scraped-room", kind, &[Place::vxlan(Family::V4); 2]);
    let to = bed.at(2).address(Family::V4);
    let mut port = 7000;
    let mut told = Metrics(String::new());
    let is_full = wait_until(PATIENCE, || {
        port += 1;
        chat(&connect(bed.at(1), (bed.at(2), to), port)).expect("goes");
        told = Metrics::of_bed(&bed);
        told.sum("fast_path_cache_pressure_total") > 0.0
    });
    assert!(is_full, "{told:?}");
    let room = ["entries", "capacity"].map(|what| told.get(&format!("fast_path_cache{{what=\"{what}\"}}")));
    assert!(room[0] <= room[1] && room[1] < 2.0, "{room:?}");
}

/// Names of metrics, with their kind and labels.
type Offered = BTreeMap<String, (String, BTreeSet<String>)>;

/// What a gateway offers.
fn offered(told: &Metrics) -> Offered {
    let mut offered = Offered::new();
    let of_gateway = |line: &str| line.strip_prefix("ringside_gateway_").map(str::to_owned);
    for line in told.0.lines() {
        if let Some(line) = line.strip_prefix("# TYPE ").and_then(of_gateway) {
            let (name, kind) = line.split_once(' ').expect("its kind");
            offered.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
        } else if let Some((name, labels)) = of_gateway(line).as_deref().and_then(|line| line.split_once('{')) {
            let (labels, _) = labels.split_once('}').expect("an end");
            let family = ["", "_total", "_bucket", "_info"]
                .iter()
                .find_map(|end| {
                    offered
                        .contains_key(name.strip_suffix(end)?)
                        .then(|| name.strip_suffix(end))
                })
                .flatten()
                .unwrap_or_else(|| panic!("{name} is of no family"));
            let labels = labels.split(',').filter_map(|label| label.split_once('='));
            let names = labels.map(|(label, _)| label.to_owned()).filter(|label| label != "le");
            offered.get_mut(family).expect("found").1.extend(names);
        }
    }
    offered
}

/// The table of the docs: `name`, its kind, its labels.
fn documented() -> Offered {
    let docs = include_str!("../../../../../docs/gateway-control.md");
    let (_, docs) = docs.split_once("\n## Metrics and logs\n").expect("the section");
    let (docs, _) = docs.split_once("\n## ").expect("another section");
    let names = |cell: &str| -> Vec<String> {
        let quoted = cell.split('`').skip(1).step_by(2);
        quoted.map(str::to_owned).collect()
    };
    let mut documented = Offered::new();
    for row in docs.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        for name in names(cells[1]) {
            let labels = names(cells[3]).into_iter().collect();
            let twice = documented.insert(name.clone(), (cells[2].to_owned(), labels));
            assert_eq!(twice, None, "{name} is there twice");
        }
    }
    documented
}

#[test]
fn the_docs_list_what_is_offered() {
    if !ringside_netlab::testing::is_root() {
        return;
    }
    let kind = Kind::Ringside(Ringside {
        more: "[path.direct]\npackets-per-second = 1000\n[metrics]\nlisten = \"127.0.0.1:9465\"",
        ..Ringside::FAST
    });
    let bed = Bed::new("scraped-names", kind, &[Place::vxlan(Family::V4); 2]);
    // So that there is one of each kind.
    answered(bed.at(1), bed.at(2).address(Family::V4));
    let host = &bed.hosts[0].wire.a;
    let sender = host.ns.run(|| UdpSocket::bind((host.ipv4, 5000))).expect("a socket");
    sender
        .send_to(&[0; BYTES], (bed.uplinks[0].a.ipv4, 4789))
        .expect("sent");
    let mut told = Metrics::of_bed(&bed);
    assert!(wait_until(PATIENCE, || {
        told = Metrics::of_bed(&bed);
        told.sum("dropped_packets_total") > 0.0
    }));
    assert_eq!(offered(&told), documented());
}
