//! A gateway by itself whose disk is slow, hangs or fails: what waits for it, what does not, and what is there afterwards.

use std::time::{Duration, Instant};

use ringside_gateway::proto::neighbor_service_client::NeighborServiceClient;
use ringside_gateway::proto::{PutNeighborsRequest, PutNeighborsResponse};
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use crate::common::bulk::{BATCH, Bulk, list};
use crate::common::daemon::{Daemon, configure, free_port};
use crate::common::disk::{Calls, FOR_EVER, SlowDisk, kill};
use crate::common::metrics::Metrics;
use crate::common::{Folder, connect, neighbor};
use crate::crash::is_root;

type Answer = Result<Response<PutNeighborsResponse>, Status>;

/// A gateway on such a disk, with something that was answered: a batch of neighbours.
struct Bed {
    disk: SlowDisk,
    daemon: Daemon,
    port: u16,
    channel: Channel,
}

impl Bed {
    async fn start() -> Self {
        let (disk, folder, port) = (SlowDisk::new(), Folder::new(), free_port());
        configure(
            &folder,
            "store.db",
            &format!("[metrics]\nlisten = \"127.0.0.1:{port}\""),
        );
        let daemon = disk.start(folder);
        let channel = connect(&daemon.folder.join("api.sock")).await;
        let bed = Self {
            disk,
            daemon,
            port,
            channel,
        };
        bed.put(0).await.unwrap();
        bed
    }

    /// A batch of neighbours from a number on.
    fn put(&self, from: u32) -> impl Future<Output = Answer> + Send + use<> {
        let mut client = NeighborServiceClient::new(self.channel.clone());
        let neighbors = (from..from + BATCH).map(|number| neighbor(number, 1)).collect();
        async move { client.put_neighbors(PutNeighborsRequest { neighbors }).await }
    }

    async fn count(&self) -> u32 {
        count(&self.daemon).await
    }

    fn health(&self) -> String {
        self.daemon.health()
    }

    fn wait_for_health(&mut self) {
        self.daemon.wait("health", |daemon| daemon.health().starts_with("ok"));
    }

    fn gauge(&self, name: &str) -> u64 {
        Metrics::of(self.port).count(name)
    }
}

/// How many neighbours there are, of whole batches.
async fn count(daemon: &Daemon) -> u32 {
    let there = list(connect(&daemon.folder.join("api.sock")).await).await;
    let count = u32::try_from(there.len()).unwrap();
    assert!(count.is_multiple_of(BATCH), "a part of a batch: {count}");
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_waits_for_a_slow_disk_and_nothing_else_does() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::start().await;
    // What is written, and that it is flushed, take so long each.
    let delay = Duration::from_millis(50);
    bed.disk.set_delay(delay);
    let began = Instant::now();
    let put = tokio::spawn(bed.put(BATCH));
    let mut lists = 0;
    while !put.is_finished() {
        assert!([BATCH, 2 * BATCH].contains(&bed.count().await));
        lists += 1;
    }
    put.await.unwrap().unwrap();
    assert!(began.elapsed() >= 2 * delay, "{:?}", began.elapsed());
    // One was begun when it was answered; the disk took far longer than any of them.
    assert!(lists > 1, "{lists} lists");
    assert!(Metrics::of(bed.port).get("store_commit_seconds_sum") >= 2.0 * delay.as_secs_f64());

    bed.disk.set_delay(FOR_EVER);
    let put = tokio::spawn(bed.put(2 * BATCH));
    bed.daemon.wait("its complaint", |daemon| {
        daemon.health().contains("has not answered for")
    });
    assert_eq!(
        ["store_stalled", "problems", "store_read_only"].map(|name| bed.gauge(name)),
        [1, 1, 0]
    );
    assert_eq!(bed.count().await, 2 * BATCH);
    assert!(!put.is_finished());
    bed.disk.heal();
    put.await.unwrap().unwrap();
    bed.wait_for_health();
    assert_eq!(["store_stalled", "problems"].map(|name| bed.gauge(name)), [0, 0]);

    // Killed while it waits: what was answered is there, and of what was not all, or nothing.
    bed.disk.set_delay(FOR_EVER);
    let put = tokio::spawn(bed.put(3 * BATCH));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!put.is_finished());
    let folder = kill(bed.daemon);
    put.await.unwrap().unwrap_err();
    let daemon = Daemon::start_in(folder);
    assert!([3 * BATCH, 4 * BATCH].contains(&count(&daemon).await));
    daemon.stop();
}

/// In the middle of its writes, for it does little else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_slow_disk_has_taken_survives_kill_9() {
    if !is_root() {
        return;
    }
    let (disk, folder) = (SlowDisk::new(), Folder::new());
    configure(&folder, "store.db", "");
    let mut daemon = disk.start(folder);
    let mut total = 0;
    for version in 1..=3 {
        disk.set_delay(Duration::from_millis(2));
        let bulk = Bulk::begin(connect(&daemon.folder.join("api.sock")).await, version).await;
        let folder = kill(daemon);
        let acknowledged = bulk.end().await;
        disk.heal();
        daemon = disk.start(folder);
        let there = list(connect(&daemon.folder.join("api.sock")).await).await;
        total = acknowledged.check(&there, total);
        assert!(daemon.health().starts_with("ok"));
    }
    daemon.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fails_makes_it_read_only_until_it_is_well() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::start().await;
    let mut there = BATCH;
    // At once, in the middle of what is written, and at its end; by an error of its own, or for want of room.
    for (round, (which, errno, spare)) in [
        (Calls::Writes, libc::EIO, 0),
        (Calls::Writes, libc::ENOSPC, 5),
        (Calls::Flushes, libc::EIO, 0),
    ]
    .into_iter()
    .enumerate()
    {
        bed.disk.fail(which, errno, spare);
        let why = if errno == libc::ENOSPC {
            "the disk is full"
        } else {
            "I/O error"
        };
        for _ in 0..3 {
            let refused = bed.put(there).await.unwrap_err();
            let said = refused.message();
            assert_eq!(refused.code(), Code::Unavailable, "{refused}");
            assert!(said.contains(why), "{refused}");
            // All of it is written, and whether it is kept nobody knows.
            let is_open = matches!(which, Calls::Flushes);
            assert_eq!(said.contains("it is not known whether"), is_open, "{refused}");
            assert_ne!(said.contains("nothing can be changed now"), is_open, "{refused}");
        }
        assert!(bed.health().contains("nothing can be changed now"), "{}", bed.health());
        assert_eq!(
            ["store_read_only", "problems", "store_stalled"].map(|name| bed.gauge(name)),
            [1, 1, 0]
        );
        assert_eq!(bed.count().await, there);
        // It is tried every second, and said once.
        tokio::time::sleep(Duration::from_millis(2500)).await;
        let said = |text: &str| bed.daemon.log().matches(text).count();
        assert_eq!(
            said("nothing can be changed; packets go on"),
            round + 1,
            "{}",
            bed.daemon.log()
        );
        bed.disk.heal();
        bed.wait_for_health();
        assert_eq!(
            bed.daemon.log().matches("the store can be written again").count(),
            round + 1,
            "{}",
            bed.daemon.log()
        );
        // Nothing of what was refused has come back with what was written since.
        assert_eq!(bed.count().await, there);
        bed.put(there).await.unwrap();
        there += BATCH;
    }
    assert_eq!(["store_read_only", "problems"].map(|name| bed.gauge(name)), [0, 0]);
    // Killed while it fails: what was refused is not there.
    bed.disk.fail(Calls::Writes, libc::EIO, 5);
    bed.put(there).await.unwrap_err();
    let daemon = Daemon::start_in(kill(bed.daemon));
    assert_eq!(count(&daemon).await, there);
    daemon.stop();
}

/// What could not be flushed may be there after all, if nothing was written since: so it was said, and it may be said again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_not_be_flushed_is_there_as_a_whole_or_not_at_all() {
    if !is_root() {
        return;
    }
    let bed = Bed::start().await;
    bed.disk.fail(Calls::Flushes, libc::EIO, 0);
    let refused = bed.put(BATCH).await.unwrap_err();
    assert!(refused.message().contains("it is not known whether"), "{refused}");
    assert_eq!(bed.count().await, BATCH, "as long as it runs it is not");
    // Whatever is tried from now on does not get there.
    bed.disk.fail(Calls::All, libc::EIO, 0);
    let daemon = Daemon::start_in(kill(bed.daemon));
    let there = count(&daemon).await;
    assert!([BATCH, 2 * BATCH].contains(&there), "{there}");
    let mut client = NeighborServiceClient::new(connect(&daemon.folder.join("api.sock")).await);
    let neighbors = (BATCH..2 * BATCH).map(|number| neighbor(number, 1)).collect();
    client.put_neighbors(PutNeighborsRequest { neighbors }).await.unwrap();
    assert_eq!(count(&daemon).await, 2 * BATCH);
    daemon.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_whose_disk_hangs_does_what_it_is_asked_to_and_ends() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::start().await;
    bed.disk.set_delay(FOR_EVER);
    // More than there is room for.
    let puts: Vec<_> = (0..100).map(|_| tokio::spawn(bed.put(BATCH))).collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    bed.daemon.signal("HUP");
    bed.daemon.wait("its configuration", |daemon| {
        daemon.log().contains("the configuration was read again")
    });
    assert_eq!(bed.count().await, BATCH);
    bed.daemon.signal("TERM");
    bed.daemon
        .wait("its end", |daemon| daemon.child.try_wait().unwrap().is_some());
    assert!(bed.daemon.child.wait().unwrap().success());
    for put in puts {
        put.await.unwrap().unwrap_err();
    }
    let log = bed.daemon.log();
    assert_eq!(log.matches("the store's disk does not answer").count(), 1, "{log}");
    assert!(log.contains("ended"), "{log}");
    let daemon = Daemon::start_in(bed.daemon.kill());
    assert!([BATCH, 2 * BATCH].contains(&count(&daemon).await));
    daemon.stop();
}
