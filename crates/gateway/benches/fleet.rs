//! How long neighbours take by way of etcd: from a client through etcd and its watch to the XDP program's map, from etcd to the map
//! at a start with nothing else, and to another gateway; and what etcd keeps for each.
//!
//! `cargo bench -p ringside-gateway --bench fleet [-- ROUNDS [LARGEST]]`, as root, with `etcd`, `etcdctl` and `setpriv`. One server with its
//! own defaults, on the disk of the temporary folder, on the same machine and CPUs as the gateway. Neighbours are either dense, a
//! thousand beside each other in each network, or sparse: one to each block of 16 addresses.

mod common;

use std::collections::HashMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::neighbors::{Gateway, Order, ROOM, batches, flush, milliseconds, neighbor};
use ringside_gateway::proto::neighbor_event::Event;
use ringside_gateway::proto::neighbor_service_client::NeighborServiceClient;
use ringside_gateway::proto::{PutNeighborsRequest, WatchNeighborsRequest};
use ringside_netlab::{Lab, VethConfig};
use tokio_stream::StreamExt as _;

const SIZES: [u32; 8] = [1, 5, 100, 1000, 10_000, 100_000, 300_000, LARGEST];
const LARGEST: u32 = 1_000_000;
const ENDPOINT: &str = "http://127.0.0.1:23790";

/// In the gateway's namespace, killed when it is dropped.
struct Etcd<'a> {
    child: Child,
    lab: &'a Lab,
}

impl<'a> Etcd<'a> {
    fn start(folder: &Path, lab: &'a Lab) -> Self {
        let data = folder.join("etcd");
        _ = std::fs::remove_dir_all(&data);
        let peer = "http://127.0.0.1:23800";
        let log = std::fs::File::create(folder.join("etcd.log")).expect("a log");
        let mut command = lab.b.ns.command("setpriv");
        command
            .args([
                "--pdeathsig",
                "KILL",
                "etcd",
                "--name",
                "one",
                "--logger",
                "zap",
                "--data-dir",
            ])
            .arg(data)
            .args(["--listen-client-urls", ENDPOINT, "--advertise-client-urls", ENDPOINT])
            .args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer])
            .args(["--initial-cluster", &format!("one={peer}")])
            .stdin(Stdio::null())
            .stderr(log);
        let child = command.spawn().expect("etcd and setpriv are installed");
        let etcd = Self { child, lab };
        let begin = Instant::now();
        while !etcd.ctl(&["endpoint", "health"]).status.success() {
            assert!(begin.elapsed() < Duration::from_secs(30), "etcd does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        etcd
    }

    fn ctl(&self, words: &[&str]) -> std::process::Output {
        let mut command: Command = self.lab.b.ns.command("etcdctl");
        let command = command
            .env("ETCDCTL_API", "3")
            // To compact a database that has just been filled takes longer than the five seconds that are usual.
            .args(["--endpoints", ENDPOINT, "--command-timeout", "120s"])
            .args(words);
        command.output().expect("etcdctl")
    }

    /// Bytes of the database that are in use, and its revision.
    fn status(&self) -> (u64, u64) {
        let output = self.ctl(&["endpoint", "status", "--write-out", "json"]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let status = &status[0]["Status"];
        let number = |value: &serde_json::Value| value.as_u64().expect("a number");
        (number(&status["dbSizeInUse"]), number(&status["header"]["revision"]))
    }

    /// Bytes in use when nothing but what is there is kept.
    fn bytes(&self) -> u64 {
        let (_, revision) = self.status();
        let done = self.ctl(&["compact", &revision.to_string(), "--physical"]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let done = self.ctl(&["defrag"]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        self.status().0
    }
}

impl Drop for Etcd<'_> {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn store() -> String {
    format!("kind = \"etcd\"\n[store.etcd]\nendpoints = [\"{ENDPOINT}\"]\n")
}

async fn start(folder: &Path, lab: &Lab) -> Gateway {
    let interface = lab.b.interface.name();
    let path = format!("[path]\ninterface = \"{interface}\"\ncached-neighbors = {ROOM}\n");
    Gateway::start_as(folder, lab, &store(), &path).await
}

fn remove_copy(folder: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        _ = std::fs::remove_file(folder.join(format!("store.db{suffix}")));
    }
}

/// What a second gateway's watchers see, after so long, of changes that the first one is told at this rate.
async fn lag(one: &Gateway, other: &Gateway, per_second: u32, seconds: u32) -> Vec<Duration> {
    let mut client = NeighborServiceClient::new(other.channel.clone());
    let stream = client.watch_neighbors(WatchNeighborsRequest::default()).await;
    let mut stream = stream.expect("a watch").into_inner();
    let total = per_second * seconds;
    let begin = Instant::now();
    let due = move |number: u32| begin + Duration::from_secs(1) * number / per_second;
    let channel = one.channel.clone();
    let sender = tokio::spawn(async move {
        let mut under_way = tokio::task::JoinSet::new();
        for number in 0..total {
            tokio::time::sleep_until(due(number).into()).await;
            let mut client = NeighborServiceClient::new(channel.clone());
            // What is there, in no order.
            let changed = neighbor(number.wrapping_mul(7919) % 100_000, Order::Dense, u64::from(number) + 2);
            under_way.spawn(async move {
                let request = PutNeighborsRequest {
                    neighbors: vec![changed],
                };
                client.put_neighbors(request).await.expect("a change")
            });
        }
        under_way.join_all().await;
    });
    let mut seen = HashMap::new();
    while seen.len() < total as usize {
        let answer = stream.next().await.expect("goes on").expect("an answer");
        let now = Instant::now();
        for event in answer.events {
            if let Some(Event::Put(neighbor)) = event.event {
                let number = u32::try_from(neighbor.version - 2).expect("few");
                // From when it was due: who is late does not look better.
                seen.insert(number, now.saturating_duration_since(due(number)));
            }
        }
    }
    sender.await.expect("no panic");
    seen.into_values().collect()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut numbers = common::numbers();
    let (rounds, largest) = (numbers.next().unwrap_or(3), numbers.next().unwrap_or(LARGEST));
    let lab = Lab::veth(VethConfig::tagged("gwf")).expect("a namespace, which takes root");
    let folder = std::env::temp_dir().join(format!("ringside-fleet-{}", std::process::id()));
    let other_folder = folder.join("other");
    std::fs::create_dir_all(&other_folder).expect("a folder");
    let load_average = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let flush = flush(&folder).as_secs_f64() * 1e3;
    println!(
        "{rounds} rounds; milliseconds: median (least to most); a write of 4 KiB with its flush: {flush:.2}; load before: {}",
        load_average.trim()
    );
    for order in [Order::Dense, Order::Rising] {
        let mut written: Vec<Vec<Duration>> = vec![Vec::new(); SIZES.len()];
        let (mut started, mut again) = (written.clone(), Vec::new());
        let mut bytes = [0; SIZES.len()];
        for _ in 0..rounds {
            for (at, size) in SIZES.into_iter().enumerate().filter(|(_, size)| *size <= largest) {
                let etcd = Etcd::start(&folder, &lab);
                remove_copy(&folder);
                let gateway = start(&folder, &lab).await;
                let batches: Vec<_> = batches(size, order, 1).collect();
                let mut last = (0, Duration::ZERO);
                gateway
                    .load(batches.into_iter(), |changed, took| last = (changed, took))
                    .await;
                assert_eq!(last.0, u64::from(size), "all of them are there");
                written[at].push(last.1);
                drop(gateway);
                // With nothing but etcd, until packets could be forwarded.
                remove_copy(&folder);
                let gateway = start(&folder, &lab).await;
                let statistics = gateway.statistics().await;
                let all = u64::from(size);
                assert_eq!((statistics.neighbors, statistics.cache_entries), (all, all));
                started[at].push(gateway.took);
                drop(gateway);
                if size == LARGEST {
                    // It may have been killed while it wrote its copy.
                    drop(start(&folder, &lab).await);
                    again.push(start(&folder, &lab).await.took);
                }
                bytes[at] = etcd.bytes();
            }
        }
        println!(
            "\n{order:?}\n{:>10}   {:<28}  {:<28}  bytes of etcd's database",
            "neighbours", "write, watch and map", "start with etcd alone, to map"
        );
        let all = SIZES.into_iter().zip(written).zip(started).zip(bytes);
        for (((size, written), started), bytes) in all.filter(|(((size, _), _), _)| *size <= largest) {
            println!(
                "{size:>10}   {:<28}  {:<28}  {bytes} ({} each)",
                milliseconds(written),
                milliseconds(started),
                bytes / u64::from(size)
            );
        }
        if !again.is_empty() {
            println!("start with a million in the copy: {}", milliseconds(again));
        }
    }
    let _etcd = Etcd::start(&folder, &lab);
    remove_copy(&folder);
    let one = start(&folder, &lab).await;
    let first: Vec<_> = batches(100_000, Order::Dense, 1).collect();
    one.load(first.into_iter(), |_, _| {}).await;
    let other = Gateway::start_as(&other_folder, &lab, &store(), "").await;
    let mut all = lag(&one, &other, 1000, 10).await;
    all.sort();
    let of = |permille: usize| all[(all.len() - 1) * permille / 1000].as_secs_f64() * 1e3;
    println!(
        "1000 changes a second, until another gateway's tables have them, ms: median {:.1}, 99 of 100 {:.1}, most {:.1}",
        of(500),
        of(990),
        of(1000)
    );
    drop((one, other));
    _ = std::fs::remove_dir_all(&folder);
}
