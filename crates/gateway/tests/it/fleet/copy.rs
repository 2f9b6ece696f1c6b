//! A gateway's copy of etcd's state on a disk that is slow, hangs or fails: tables follow all the same, and in the end the copy has everything,
//! which a start without etcd shows.

use std::time::{Duration, Instant};

use ringside_gateway::proto::neighbor_service_client::NeighborServiceClient;
use ringside_gateway::proto::rule::Remote;
use ringside_gateway::proto::security_group_service_client::SecurityGroupServiceClient;
use ringside_gateway::proto::{Direction, PutNeighborsRequest, PutSecurityGroupsRequest, Rule, SecurityGroup};
use rusqlite::OpenFlags;

use super::Etcd;
use super::common::daemon::{AWAY, Daemon, LATE, free_port, refusal};
use super::common::disk::{Calls, FOR_EVER, SlowDisk, kill};
use super::common::etcd::{IMPATIENT, configure, gateway};
use super::common::metrics::Metrics;
use super::common::{Folder, connect, neighbor};

/// Limit of the time that a change takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// One whose copy is on such a disk, and another one that is told what changes.
struct Bed {
    etcd: Etcd,
    disk: SlowDisk,
    one: Daemon,
    other: Daemon,
    port: u16,
}

impl Bed {
    fn start() -> Self {
        let (etcd, disk, folder, port) = (Etcd::start(), SlowDisk::new(), Folder::new(), free_port());
        let more = format!("[metrics]\nlisten = \"127.0.0.1:{port}\"");
        configure(&folder, &etcd.endpoint(), IMPATIENT, &more);
        let one = disk.start(folder);
        let other = gateway(&etcd);
        Self {
            etcd,
            disk,
            one,
            other,
            port,
        }
    }

    /// Makes a change, again while the store does not answer: a busy machine is slow.
    async fn put<T>(mut change: impl AsyncFnMut() -> Result<T, tonic::Status>) {
        let begin = Instant::now();
        while let Err(status) = change().await {
            let mut complaints = AWAY.iter().chain([&LATE]);
            let is_late = complaints.any(|part| status.message().contains(part));
            assert!(is_late && begin.elapsed() < PATIENCE, "{status}");
            eprintln!("sent again: {status}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// So many neighbours, told the other one.
    async fn put_neighbors(&self, count: u32, version: u64) {
        let mut client = NeighborServiceClient::new(connect(&self.other.folder.join("api.sock")).await);
        let neighbors = (0..count).map(|number| neighbor(number, version)).collect();
        let request = PutNeighborsRequest { neighbors };
        Self::put(async || client.put_neighbors(request.clone()).await).await;
    }

    /// So many of the largest security groups.
    async fn put_groups(&self, count: u32, version: u64) {
        let mut client = SecurityGroupServiceClient::new(connect(&self.other.folder.join("api.sock")).await);
        let rule = |id: u32| Rule {
            id: id.into(),
            direction: Direction::Ingress.into(),
            protocol: Some(6),
            remote: Some(Remote::RemotePrefix(format!("10.{}.{}.0/24", id >> 8, id & 0xff))),
            ..Rule::default()
        };
        let rules: Vec<Rule> = (0..4096).map(rule).collect();
        for first in (0..count).step_by(16) {
            let group = |id| SecurityGroup {
                id,
                name: format!("group {id}"),
                rules: rules.clone(),
                version,
            };
            let groups = (first..count.min(first + 16)).map(group).collect();
            let request = PutSecurityGroupsRequest { groups };
            Self::put(async || client.put_security_groups(request.clone()).await).await;
        }
    }

    fn metrics(&self) -> Metrics {
        Metrics::of(self.port)
    }

    /// Waits until the tables have what etcd has, and says what waits for the disk at that time.
    fn follow(&mut self) -> u64 {
        let newest = self.etcd.revision();
        let port = self.port;
        let mut waits = 0;
        self.one.wait("what etcd has", |_| {
            let told = Metrics::of(port);
            waits = told.count("fleet_copy_waiting_bytes");
            told.count("fleet_applied_revision") >= newest && told.get("fleet_lag_seconds") < 2.0
        });
        waits
    }

    fn health(&self) -> String {
        self.one.health()
    }

    /// How often its log says something.
    fn said(&self, what: &str) -> usize {
        self.one.log().matches(what).count()
    }

    /// Waits until all is well, and the copy has all of it.
    fn wait_for_copy(&mut self) {
        let port = self.port;
        self.one.wait("health and a copy", |one| {
            one.health().starts_with("ok") && Metrics::of(port).count("fleet_copy_waiting_bytes") == 0
        });
    }

    /// etcd is gone, and it is killed: what is there by its copy alone is what the other one knows.
    fn starts_alone(mut self) {
        let known = copied(&self.other);
        assert_eq!(copied(&self.one), known);
        self.etcd.kill();
        let one = Daemon::start_in(kill(self.one));
        assert!(one.log().contains("packets go by what was known"), "{}", one.log());
        assert_eq!(copied(&one), known);
        // And by tables, too.
        assert_eq!(objects(&one), objects(&self.other));
    }
}

/// What a gateway's copy has: neighbours as it lists them; and of security groups, which are large, number, version, and a checksum over all
/// that they say.
fn copied(gateway: &Daemon) -> (String, Vec<[i64; 3]>) {
    let neighbors = gateway.ok(&["list", "neighbors", "--json"]);
    let path = gateway.folder.join("store.db");
    let file = rusqlite::Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let mut query = file
        .prepare("SELECT id, version, checksum FROM security_groups ORDER BY id")
        .unwrap();
    let groups = query.query_map([], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]));
    (neighbors, groups.unwrap().map(Result::unwrap).collect())
}

fn bytes(gateway: &Daemon, file: &str) -> u64 {
    std::fs::metadata(gateway.folder.join(file)).map_or(0, |file| file.len())
}

/// By its tables.
fn objects(gateway: &Daemon) -> [u64; 2] {
    let stats: serde_json::Value = serde_json::from_str(&gateway.ok(&["stats", "--json"])).unwrap();
    ["neighbors", "security-groups"].map(|kind| stats[kind].as_u64().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_follow_while_the_disk_of_the_copy_is_slow_or_fails() {
    if !ringside_netlab::testing::is_root() {
        return;
    }
    let mut bed = Bed::start();
    bed.put_neighbors(100, 1).await;
    bed.follow();
    bed.wait_for_copy();
    // It is slow.
    bed.disk.set_delay(Duration::from_millis(200));
    bed.put_neighbors(1000, 2).await;
    assert!(bed.follow() > 0, "it was not slow");
    assert_eq!(objects(&bed.one), [1000, 0]);
    bed.disk.heal();
    bed.wait_for_copy();
    assert_eq!(copied(&bed.one), copied(&bed.other));
    // It fails, at once and in the middle of what is written, with many changes one after the other.
    for (round, (errno, why, spare)) in [(libc::EIO, "I/O error", 0), (libc::ENOSPC, "the disk is full", 3)]
        .into_iter()
        .enumerate()
    {
        let before = copied(&bed.one);
        bed.disk.fail(Calls::All, errno, spare);
        let (began, failed) = (Instant::now(), bed.disk.failed());
        let first = 1000 * (round as u64 + 1);
        let mut version = first;
        while began.elapsed() < Duration::from_secs(2) || version - first < 3 {
            bed.put_neighbors(50, version).await;
            version += 1;
        }
        assert!(bed.follow() > 0);
        // Once a second, and a few calls each time, and not with each change.
        let (failed, changes) = (bed.disk.failed() - failed, version - first);
        let most = 4 * (began.elapsed().as_secs() + 2);
        assert!(
            (1..=most).contains(&failed.into()),
            "{failed} calls in {:?}",
            began.elapsed()
        );
        assert!(changes > 2, "{changes}");
        let health = bed.health();
        assert!(
            health.contains("it is brought up to date when it can be written") && health.contains(why),
            "{health}"
        );
        assert_eq!(copied(&bed.one), before, "what the copy has");
        // However often it was tried, and whatever came meanwhile.
        assert_eq!(
            bed.said("the copy of etcd's state cannot be written"),
            round + 1,
            "{}",
            bed.one.log()
        );
        bed.disk.heal();
        bed.wait_for_copy();
        assert_eq!(
            bed.said("the copy of etcd's state can be written again"),
            round + 1,
            "{}",
            bed.one.log()
        );
        assert_eq!(copied(&bed.one), copied(&bed.other));
    }
    assert_eq!(bed.metrics().count("fleet_copies_given_up_total"), 0);
    bed.starts_alone();
}

/// More waits for it than there is room for; and when it is made anew the disk fails twice more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "writes hundreds of megabytes: make test-fleet"]
async fn a_copy_that_was_given_up_is_made_anew_however_often_that_fails() {
    const GROUPS: u32 = 256;
    if !ringside_netlab::testing::is_root() {
        return;
    }
    let mut bed = Bed::start();
    bed.put_groups(GROUPS, 1).await;
    bed.put_neighbors(1000, 1).await;
    bed.follow();
    bed.wait_for_copy();
    // More than SQLite keeps in memory until the end of a transaction.
    bed.one.wait("all in the file", |one| bytes(one, "store.db") > 72 << 20);
    bed.disk.set_delay(FOR_EVER);
    let mut version = 1;
    while bed.metrics().count("fleet_copies_given_up_total") == 0 {
        version += 1;
        assert!(version < 10, "it takes all of it: {:?}", bed.metrics());
        bed.put_groups(GROUPS, version).await;
        bed.follow();
    }
    let waits = bed.follow();
    assert!((128 << 20..160 << 20).contains(&waits), "{waits}");
    assert!(
        bed.health()
            .contains("it was given up, and is made anew when it can be written"),
        "{}",
        bed.health()
    );
    assert_eq!(bed.said("too much waits for its disk"), 1);
    // It answers again; but it fails in the middle of what is written anew, and so it does the next time.
    let (why, anew) = ("cannot be written anew yet", "it was given up, and is being made anew");
    for (tries, errno, what) in [(1, libc::EIO, "I/O error"), (2, libc::ENOSPC, "the disk is full")] {
        bed.disk.set_delay(Duration::from_millis(1));
        bed.one.wait(anew, |one| one.health().contains(anew));
        assert_eq!(bed.said(why), tries - 1, "{}", bed.one.log());
        let before = copied(&bed.one);
        bed.disk.fail(Calls::All, errno, 2000);
        bed.disk.set_delay(Duration::ZERO);
        bed.one.wait(why, |one| one.log().matches(why).count() == tries);
        // The next try is slow enough for all of this.
        bed.disk.heal();
        bed.disk.set_delay(Duration::from_millis(1));
        bed.one
            .wait("the disk's room", |one| bytes(one, "store.db-wal") < 8 << 20);
        assert_eq!(copied(&bed.one), before, "nothing of it is to be seen");
        bed.put_neighbors(1000, 10 + tries as u64).await;
        bed.follow();
        assert!(bed.health().contains(what), "{}", bed.health());
    }
    bed.disk.heal();
    bed.wait_for_copy();
    assert_eq!(bed.said("the copy of etcd's state was made anew"), 1);
    assert_eq!(bed.said("too much waits for its disk"), 1);
    assert_eq!(bed.metrics().count("fleet_copies_given_up_total"), 3);
    bed.starts_alone();
}

/// Lists are refused, and tables follow; and no start takes a copy for damaged that may be read another time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_cannot_be_read_holds_nothing_up() {
    const COUNT: u32 = 1000;
    let mut bed = Bed::start();
    bed.put_neighbors(COUNT, 1).await;
    bed.follow();
    bed.disk.see_reads();
    bed.one = bed.disk.start(kill(bed.one));
    bed.disk.fail(Calls::Reads, libc::EIO, 0);
    bed.put_neighbors(COUNT, 2).await;
    bed.follow();
    let list = ["list", "neighbors", "--json"];
    let refused = bed.one.fails(&list);
    assert!(refused.contains("its disk cannot be read"), "{refused}");
    let health = bed.health();
    assert!(
        health.contains("the last question to the store was not answered"),
        "{health}"
    );
    let folder = kill(bed.one);
    let refused = refusal(bed.disk.command(&folder));
    assert!(refused.contains("its disk cannot be read"), "{refused}");
    bed.disk.heal();
    let mut one = bed.disk.start(folder);
    let other = bed.other;
    one.wait("all of it", |one| one.ok(&list) == other.ok(&list));
    assert!(!one.log().contains("damaged"), "{}", one.log());
}
