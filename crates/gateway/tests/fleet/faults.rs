//! etcd, and gateways, that stop, die and come back.

use std::collections::{BTreeMap, HashMap};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringside_gateway::proto;
use ringside_gateway::proto::neighbor_service_client::NeighborServiceClient;
use ringside_gateway::proto::{PutNeighborsRequest, WatchNeighborsRequest};
use tokio_stream::StreamExt as _;

use super::Etcd;
use super::basics::sees;
use super::common::daemon::Daemon;
use super::common::etcd::gateway;
use super::common::{connect, list_all, neighbor};
use super::history::{Answer, History, Key};

/// Neighbours that all writers write.
const KEYS: u32 = 40;

fn number_of(neighbor: &proto::Neighbor) -> Key {
    let mac = &neighbor.mac;
    u32::from_be_bytes([0, mac[3], mac[4], mac[5]])
}

/// Writers at both gateways, watchers at both, and something that happens meanwhile.
struct Trial {
    history: Arc<Mutex<History>>,
    stop: Arc<AtomicBool>,
    version: Arc<AtomicU64>,
    writers: Vec<tokio::task::JoinHandle<()>>,
    watchers: Vec<tokio::task::JoinHandle<()>>,
}

impl Trial {
    fn new() -> Self {
        Self {
            history: Arc::default(),
            stop: Arc::default(),
            version: Arc::new(AtomicU64::new(1)),
            writers: Vec::new(),
            watchers: Vec::new(),
        }
    }

    /// Writes one after the other: some in the newest version there is, some in one that another writer has just taken.
    async fn write(&mut self, gateway: &Daemon, seed: u64) {
        let channel = connect(&gateway.folder.join("api.sock")).await;
        let mut client = NeighborServiceClient::new(channel);
        let (history, stop, versions) = (
            Arc::clone(&self.history),
            Arc::clone(&self.stop),
            Arc::clone(&self.version),
        );
        self.writers.push(tokio::spawn(async move {
            let mut random = seed;
            while !stop.load(Ordering::Relaxed) {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let key = u32::try_from((random >> 33) % u64::from(KEYS)).unwrap();
                let version = versions.fetch_add(1, Ordering::Relaxed);
                // Taken before, and written late.
                if random >> 60 == 0 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                let request = PutNeighborsRequest {
                    neighbors: vec![neighbor(key, version)],
                };
                let answer = match client.put_neighbors(request).await {
                    Ok(answer) => match answer.into_inner().outcomes().next() {
                        Some(proto::Outcome::Created | proto::Outcome::Replaced) => Answer::Made,
                        // A try whose answer was lost has made it.
                        Some(proto::Outcome::Unchanged) => Answer::Made,
                        Some(proto::Outcome::Older) => Answer::Older,
                        other => panic!("{other:?}"),
                    },
                    Err(status) if status.message().contains("not known whether") => Answer::Unknown,
                    Err(status) if status.message().contains("nothing can be changed") => {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        Answer::Refused
                    }
                    Err(status) => panic!("{status}"),
                };
                history.lock().unwrap().writes.push((key, version, answer));
            }
        }));
    }

    async fn watch(&mut self, name: &'static str, gateway: &Daemon) {
        let channel = connect(&gateway.folder.join("api.sock")).await;
        let request = WatchNeighborsRequest::default();
        let mut stream = NeighborServiceClient::new(channel)
            .watch_neighbors(request)
            .await
            .unwrap()
            .into_inner();
        let history = Arc::clone(&self.history);
        self.watchers.push(tokio::spawn(async move {
            while let Some(Ok(answer)) = stream.next().await {
                let mut history = history.lock().unwrap();
                let watched = history.watched.entry(name).or_default();
                for event in answer.events {
                    if let Some(proto::neighbor_event::Event::Put(neighbor)) = event.event {
                        watched.push((number_of(&neighbor), neighbor.version));
                    }
                }
            }
        }));
    }

    /// Has the writers end, waits until all gateways hold the same, and checks everything.
    async fn end(self, gateways: &[(&'static str, &Daemon)], least: usize) -> History {
        self.stop.store(true, Ordering::Relaxed);
        for writer in self.writers {
            writer.await.expect("no writer panics");
        }
        // What was written last is on its way to watchers.
        tokio::time::sleep(Duration::from_millis(300)).await;
        for watcher in self.watchers {
            watcher.abort();
            _ = watcher.await;
        }
        let begin = Instant::now();
        let held = loop {
            let mut held = HashMap::new();
            for (name, gateway) in gateways {
                let channel = connect(&gateway.folder.join("api.sock")).await;
                let all = list_all(&mut NeighborServiceClient::new(channel), 1000).await;
                let all: BTreeMap<Key, u64> = all
                    .iter()
                    .map(|neighbor| (number_of(neighbor), neighbor.version))
                    .collect();
                held.insert(*name, all);
            }
            let mut values = held.values();
            let first = values.next();
            if values.all(|other| Some(other) == first) {
                break held;
            }
            assert!(
                begin.elapsed() < Duration::from_secs(30),
                "they hold other things: {held:?}"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        let mut history = std::mem::take(&mut *self.history.lock().unwrap());
        history.held = held;
        let made = history
            .writes
            .iter()
            .filter(|(.., answer)| *answer == Answer::Made)
            .count();
        assert!(made >= least, "{made} writes were made");
        assert_eq!(history.violations(), [], "{made} writes made");
        history
    }
}

/// etcd dies under writes and comes back, so many times.
async fn kills(times: usize) -> History {
    let mut etcd = Etcd::start();
    let (a, b) = (gateway(&etcd), gateway(&etcd));
    let mut trial = Trial::new();
    for (at, gateway) in [&a, &b, &a, &b].into_iter().enumerate() {
        trial.write(gateway, at as u64).await;
    }
    trial.watch("a", &a).await;
    trial.watch("b", &b).await;
    for _ in 0..times {
        tokio::time::sleep(Duration::from_millis(500)).await;
        etcd.kill();
        tokio::time::sleep(Duration::from_millis(300)).await;
        etcd.start_again(Command::new("setpriv"));
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    // One that knows nothing but what etcd tells.
    let fresh = gateway(&etcd);
    trial.end(&[("a", &a), ("b", &b), ("etcd", &fresh)], 50).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_write_that_was_answered_is_lost_when_etcd_dies() {
    let history = kills(2).await;
    // What was seen is what the checker needs: without one write it finds the fault.
    let (key, version, _) = *history
        .writes
        .iter()
        .rev()
        .find(|(.., answer)| *answer == Answer::Made)
        .unwrap();
    let mut faulty = history;
    for held in faulty.held.values_mut() {
        held.remove(&key);
    }
    assert!(!faulty.violations().is_empty(), "{key} in version {version}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute: make test-fleet"]
async fn no_write_that_was_answered_is_lost_when_etcd_dies_again_and_again() {
    kills(20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_compacted_while_a_gateway_stood_still_is_known_afterwards() {
    let mut etcd = Etcd::start();
    let (a, mut b) = (gateway(&etcd), gateway(&etcd));
    let mut trial = Trial::new();
    trial.write(&a, 1).await;
    trial.watch("a", &a).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    b.signal("STOP");
    tokio::time::sleep(Duration::from_millis(500)).await;
    // What waits in its connection is lost with that.
    etcd.kill();
    etcd.start_again(Command::new("setpriv"));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    etcd.compact();
    b.signal("CONT");
    trial.end(&[("a", &a), ("b", &b)], 20).await;
    sees(&mut b, &["health"], "ok");
    assert!(b.log().contains("what had to be watched was compacted"), "{}", b.log());
    assert!(!a.log().contains("what had to be watched was compacted"), "{}", a.log());
}

#[test]
fn what_goes_wrong_in_etcd_is_not_believed() {
    let etcd = Etcd::start();
    let mut a = gateway(&etcd);
    a.ok(&[
        "put",
        "neighbor",
        "42",
        "10.0.0.7",
        "--mac",
        "02:00:00:00:00:07",
        "--host",
        "192.0.2.1",
    ]);
    // Somebody removes everything.
    etcd.ctl(&["del", "--prefix", "/ringside/"]);
    a.wait("its complaint", |a| {
        let output = a.ctl(&["health"]);
        String::from_utf8_lossy(&output.stdout).contains("is not believed")
    });
    assert!(
        a.ok(&["get", "neighbor", "42", "10.0.0.7"]).contains("192.0.2.1"),
        "the last good state holds"
    );
    let refused = a.fails(&["put", "port", "1", "10.0.0.9", "--groups", "1", "--version", "1"]);
    assert!(refused.contains("is not believed"), "{refused}");
}
