//! What is asked of etcd past all gateways, and done to it; and that those who check find it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ringside_gateway::fleet::shards::{Map, record};
use ringside_netlab::wait_until;

use super::changes::{self, Changes};
use super::cluster::{Cluster, How, NAMES, PATIENCE};
use super::followed::{What, Wrong};
use super::history::{Key, State};
use super::movers::Movers;
use super::objects::in_etcd;
use super::ownership::{Moves, Owners, Violation};
use super::recorder::Recorder;
use super::table::PLAIN;
use super::traffic::Packets;
use super::trial::Trial;

/// What all keys begin with.
const PREFIX: &str = "/ringside/gateway/";
const SECOND: Duration = Duration::from_secs(1);

impl Cluster {
    /// A key of a kind: `neighbors`, `ports`, `groups`.
    fn some_key(&self, kind: &str) -> String {
        let prefix = format!("{PREFIX}v1/{kind}/");
        let words = ["get", "--prefix", &prefix, "--keys-only", "--limit", "1"];
        let key = || self.members[0].ctl(&words).expect("it answers").trim().to_owned();
        assert!(wait_until(PATIENCE, || key().starts_with(&prefix)), "no key of {kind}");
        key()
    }

    /// Removes a key, past all rules. Which one that was.
    pub(crate) fn remove(&self, kind: &str) -> String {
        let key = self.some_key(kind);
        assert_eq!(self.members[0].ctl(&["del", &key]).as_deref(), Some("1\n"));
        key
    }

    /// All that etcd holds of objects, by a read of its own.
    pub(crate) fn objects(&self) -> BTreeMap<Key, State> {
        let words = ["get", "--prefix", &format!("{PREFIX}v1/"), "--hex"];
        let said = self.members[0].ctl(&words).expect("it answers");
        let bytes = |line: &str| -> Vec<u8> {
            let digits = line.split("\\x").skip(1);
            digits.map(|two| u8::from_str_radix(two, 16).unwrap()).collect()
        };
        let lines: Vec<Vec<u8>> = said.lines().map(bytes).collect();
        let pairs = lines.as_chunks::<2>().0.iter();
        pairs
            .flat_map(|[key, value]| in_etcd(key.strip_prefix(PREFIX.as_bytes()).unwrap(), value))
            .collect()
    }

    /// Puts what a key of a kind held a while ago in the place of what it holds now. Which key that was.
    pub(crate) fn put_back(&self, kind: &str) -> String {
        let key = self.some_key(kind);
        let name = key.strip_prefix(PREFIX).unwrap();
        let read = |value: &[u8]| -> BTreeMap<Key, State> { in_etcd(name.as_bytes(), value).into_iter().collect() };
        let before = self.value(&key);
        let old = read(&before);
        // Of an object that it held then: another one is put again by the next write, and nobody sees that it was gone.
        let is_newer = || {
            let now = read(&self.value(&key));
            let is_newer = |(key, old): (&Key, &State)| now.get(key).is_some_and(|now| now.version > old.version);
            old.iter().any(is_newer)
        };
        assert!(wait_until(PATIENCE, is_newer), "nobody writes {key}");
        self.put_value(&key, &before);
        key
    }

    /// What a key holds.
    pub(crate) fn value(&self, key: &str) -> Vec<u8> {
        let mut get = self.members[0].command(&["get", key, "--print-value-only"]);
        let mut value = get.output().unwrap().stdout;
        assert_eq!(value.pop(), Some(b'\n'), "a line, says etcdctl");
        value
    }

    /// Puts something in the place of what a key holds, past all rules.
    pub(crate) fn put_value(&self, key: &str, value: &[u8]) {
        let member = &self.members[0];
        let copy = member.folder.join("copy");
        std::fs::write(&copy, value).unwrap();
        let mut put = member.command(&["put", key]);
        let done = put.stdin(File::open(&copy).unwrap()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Who owns what, by the key that says so; and how often that has changed.
    pub(crate) fn shard_map(&self) -> (u64, Owners) {
        let map = Map::decode(&self.value(&format!("{PREFIX}v1/shards/map"))).unwrap();
        let owners = map.iter().map(|(_, owner)| owner.map_or(0, |owner| owner.0));
        (map.generation, owners.collect())
    }
}

/// Who owns what is written anew by hand, past all rules: the checker of owners finds it, whatever gateways make of it. Only who has a certificate
/// may do that: a member without one is none to the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_map_put_by_hand_is_found() {
    let how = How {
        tenants: false,
        ..PLAIN
    };
    let mut cluster = Cluster::start("ft-map", how);
    let sockets = cluster.sockets();
    let key = format!("{PREFIX}v1/shards/map");
    let all = BTreeSet::from(NAMES.map(record::id));
    // The next generation, the same one, and an older one: in each of them a shard is another's.
    for (newer, is_found) in [
        (
            1,
            (|wrong| matches!(wrong, Violation::Moved { .. })) as fn(&Violation) -> bool,
        ),
        (0, |wrong| matches!(wrong, Violation::TwoMaps { .. })),
        (-2, |wrong| matches!(wrong, Violation::Backwards { .. })),
    ] {
        let mut found = Vec::new();
        // They put it right at once, and need not say what they knew for a few milliseconds.
        for _ in 0..10 {
            let recorder = Recorder::start(&sockets);
            recorder.settled().await;
            let mut map = Map::decode(&cluster.value(&key)).unwrap();
            map.generation = map.generation.checked_add_signed(newer).unwrap();
            let (shard, owner) = map.iter().next().unwrap();
            map.set(shard, *all.iter().find(|id| Some(**id) != owner).unwrap());
            cluster.put_value(&key, &map.encode());
            // Until each has heard of it; they make of it what they want to.
            sleep(SECOND / 2);
            found = recorder.end(|| cluster.shard_map()).await.violations(Moves::None);
            if found.iter().any(is_found) {
                break;
            }
        }
        assert!(found.iter().any(is_found), "{newer}: {found:#?}");
    }
    cluster.wait_well();
    cluster.refuse_a_stranger();
    // Nobody has touched it.
    let recorder = Recorder::start(&sockets);
    recorder.settled().await;
    assert_eq!(recorder.end(|| cluster.shard_map()).await.violations(Moves::None), []);
}

/// The checker finds what was done to a history that it has found nothing in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-fleet"]
async fn an_older_version_put_by_hand_is_found() {
    for kind in ["neighbors", "ports", "groups"] {
        put_by_hand(kind, false).await;
    }
}

/// A neighbour that was removed past all rules is missing at all gateways and in etcd alike: only the
/// history knows that it was there. Ports are put back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-fleet"]
async fn a_key_removed_by_hand_is_found() {
    put_by_hand("neighbors", true).await;
}

async fn put_by_hand(kind: &str, removes: bool) {
    let began = Instant::now();
    let how = How {
        tenants: false,
        ..PLAIN
    };
    let mut cluster = Cluster::start("ft-hand", how);
    let sockets = cluster.sockets();
    let mut trial = Trial::new();
    trial.write(NAMES[0], sockets[0].1.clone(), 1);
    for (name, socket) in &sockets {
        trial.watch(name, socket.clone()).await;
    }
    sleep(2 * SECOND);
    // Somebody puts back what a key held before, past all rules; or takes it away when nobody writes any more.
    let done = match removes {
        false => cluster.put_back(kind),
        true => {
            trial.stop();
            sleep(SECOND);
            cluster.remove(kind)
        }
    };
    sleep(SECOND);
    cluster.wait_well();
    // What the key held before may have been nothing of an object that is there.
    let expected: &[&str] = if removes { &["Lost"] } else { &["Backwards", "Lost"] };
    let ended = tokio::spawn(async move { trial.end(&sockets, Some(&|| cluster.objects()), 10).await.history });
    let found = ended.await.expect_err("what was put back is found").into_panic();
    let found = found.downcast_ref::<String>().expect("words");
    assert!(expected.iter().any(|what| found.contains(what)), "{done}: {found}");
    eprintln!("{done}: found after {:?}", began.elapsed());
}

/// What somebody puts back past all rules, packets show: an address that has moved, and a rule that was withdrawn. The gateway believes
/// etcd: it is the check that has to find it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-fleet"]
async fn an_older_version_put_by_hand_is_found_by_its_packets() {
    let mut cluster = Cluster::start("ft-back", PLAIN);
    cluster.wait_well();
    let mut changes = Changes::start(&cluster).await;
    let began = changes.now();
    changes.followed(4).await;
    let before = Movers::keys().map(|key| (cluster.value(&by_hand(&key)), by_hand(&key)));
    changes.followed(5).await;
    // So that nothing of the fourth step is under way any more.
    sleep(2 * SECOND);
    for (value, key) in &before {
        cluster.put_value(key, value);
    }
    let until = changes.now() + 20 * SECOND;
    let is_back = |found: &[Wrong]| {
        let is_so = |what| move |wrong: &Wrong| matches!(wrong, Wrong::Backwards { what: of, had: 5, newest: 5, .. } if *of == what);
        found.iter().any(is_so(What::Moved)) && found.iter().any(is_so(What::Even))
    };
    while !changes.goes_back_to(4, &[What::Moved, What::Even]) {
        assert!(changes.now() < until, "no packet shows it");
        sleep(SECOND / 20);
    }
    let during = changes::during(began, changes.now(), Packets::All, NAMES);
    let found = changes.stop(&cluster).await.violations(&during);
    assert!(is_back(&found), "{found:#?}");
    eprintln!("put back by hand: {} packets are found", found.len());
}

fn by_hand(key: &str) -> String {
    format!("{PREFIX}{key}")
}

/// What a gateway is told after it was begun anew is compared with what was known before: its new watch has told nothing newer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-fleet"]
async fn an_older_version_after_a_restart_is_found() {
    let how = How {
        tenants: false,
        ..PLAIN
    };
    let mut cluster = Cluster::start("ft-next", how);
    let sockets = cluster.sockets();
    let mut trial = Trial::new();
    for (name, socket) in &sockets {
        trial.watch(name, socket.clone()).await;
    }
    // A neighbour that nobody else writes, in a key of its own; and back to what it was.
    let key = Key::Neighbor(5000);
    let name = format!("{PREFIX}v1/neighbors/{:06x}/0a00138", 5000 % 10);
    trial.put(&sockets[0], key).await;
    let before = cluster.value(&name);
    assert!(!before.is_empty(), "{name} is its key");
    trial.put(&sockets[0], key).await;
    cluster.gateways[2].kill();
    trial.write(NAMES[0], sockets[0].1.clone(), 1);
    trial.tells(NAMES[2], 1).await;
    cluster.put_value(&name, &before);
    sleep(SECOND);
    let ended = tokio::spawn(async move { trial.end(&sockets, Some(&|| cluster.objects()), 10).await.history });
    let found = ended.await.expect_err("what was put back is found").into_panic();
    let found = found.downcast_ref::<String>().expect("words");
    // Under another name than the first one, which has told what is newer.
    let told = format!("Backwards {{ at: \"{} ", NAMES[2]);
    let before = format!("{told}0\"");
    assert!(found.contains(&told) && !found.contains(&before), "{found}");
}
