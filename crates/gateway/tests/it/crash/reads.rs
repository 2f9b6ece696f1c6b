//! A gateway whose disk does not tell what it holds: at a start, and while it runs.

use std::fs::File;
use std::process::Stdio;
use std::time::{Duration, Instant};

use ringside_gateway::proto::PutNeighborsRequest;
use ringside_gateway::proto::neighbor_service_client::NeighborServiceClient;
use tonic::Code;

use crate::common::bulk::{BATCH, list};
use crate::common::daemon::{Daemon, configure, free_port};
use crate::common::disk::{Calls, SlowDisk, kill, kill_both};
use crate::common::metrics::Metrics;
use crate::common::{Folder, connect, neighbor};
use crate::crash::is_root;

/// How long a start may take on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(60);
const BATCHES: u32 = 4;
const GROUPS: &str = "groups:\n  - {id: 1, rules: [{id: 1, direction: ingress, protocol: tcp}]}\nports:\n  - {vni: 1, ip: 10.0.0.1, groups: [1]}\n";

async fn put(daemon: &Daemon, from: u32) {
    let mut client = NeighborServiceClient::new(connect(&daemon.folder.join("api.sock")).await);
    let neighbors = (from..from + BATCH).map(|number| neighbor(number, 1)).collect();
    client.put_neighbors(PutNeighborsRequest { neighbors }).await.unwrap();
}

/// Something of each kind.
async fn fill(daemon: &Daemon) {
    for batch in 0..BATCHES {
        put(daemon, batch * BATCH).await;
    }
    let file = daemon.folder.join("all.yaml");
    std::fs::write(&file, GROUPS).unwrap();
    daemon.ok(&["apply", "-f", file.to_str().unwrap()]);
}

async fn assert_all(daemon: &Daemon) {
    let there = list(connect(&daemon.folder.join("api.sock")).await).await;
    assert_eq!(there.len(), (BATCHES * BATCH) as usize);
    for kind in ["groups", "ports"] {
        let listed = daemon.ok(&["list", kind, "--json"]);
        assert!(listed.contains("\"version\""), "{listed}");
    }
    assert!(daemon.health().starts_with("ok"), "{}", daemon.health());
}

/// What it says as it ends; None: it has started, and was killed.
fn start(disk: &SlowDisk, folder: &Folder) -> Option<String> {
    let log = folder.join("log");
    let mut child = (disk.command(folder))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    loop {
        let status = child.try_wait().unwrap();
        let said = std::fs::read_to_string(&log).unwrap();
        if let Some(status) = status {
            assert_eq!(status.code(), Some(1), "{said}");
            return Some(said);
        }
        let has_started = said.contains("the API is offered");
        if has_started || begin.elapsed() > PATIENCE {
            kill_both(&mut child);
            assert!(has_started, "it neither starts nor ends: {said}");
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Wherever the first error is: in what the file is, in its log, in a page of it. It says what it has tried, on what and what is to be done, and all is there
/// when the disk is well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_cannot_read_its_disk_says_so_and_changes_nothing() {
    if !is_root() {
        return;
    }
    // What a gateway leaves that was asked to end, and one that was killed: the most of it is in the log then.
    for kindly in [true, false] {
        let daemon = Daemon::start("");
        fill(&daemon).await;
        let folder = if kindly { daemon.stop() } else { daemon.kill() };
        let disk = SlowDisk::new();
        disk.see_reads();
        let mut refused = Vec::new();
        let mut spare = 0;
        loop {
            disk.fail(Calls::Reads, libc::EIO, spare);
            let Some(said) = start(&disk, &folder) else { break };
            let last = said.lines().last().unwrap_or_default();
            let is_told = |part: &str| last.contains(part);
            assert!(
                [
                    "ringside-gateway: the store",
                    "store.db",
                    "its disk cannot be read",
                    "look at the disk"
                ]
                .into_iter()
                .all(is_told)
                    && (is_told("disk I/O error") || is_told("Input/output error")),
                "{spare}: {said}"
            );
            assert!(disk.failed() > 0);
            let others = std::fs::read_dir(folder.path()).unwrap().filter(|entry| {
                let name = entry.as_ref().unwrap().file_name().into_string().unwrap();
                [".damaged", ".new", ".whole"].iter().any(|of| name.contains(of))
            });
            assert_eq!(others.count(), 0, "{spare}: nothing takes its place");
            refused.push(last.to_owned());
            spare += 1 + spare / 8;
        }
        let distinct: std::collections::BTreeSet<_> = refused.iter().collect();
        println!(
            "kindly {kindly}: {} starts refused, up to read {spare}: {distinct:#?}",
            refused.len()
        );
        assert!(refused.len() > 10, "{}", refused.len());
        disk.heal();
        let daemon = Daemon::start_in(folder);
        assert_all(&daemon).await;
        daemon.stop();
    }
}

/// Questions are refused, changes and what they need no read for go on; and it is told until a question is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_is_refused_until_the_disk_is_well() {
    if !is_root() {
        return;
    }
    let (disk, folder, port) = (SlowDisk::new(), Folder::new(), free_port());
    disk.see_reads();
    let metrics = format!("[metrics]\nlisten = \"127.0.0.1:{port}\"");
    configure(&folder, "store.db", &metrics);
    let daemon = disk.start(folder);
    fill(&daemon).await;
    let problems = || Metrics::of(port).count("problems");
    assert_eq!(problems(), 0);
    // Nobody has asked for neighbours yet: they have to be read.
    disk.fail(Calls::Reads, libc::EIO, 0);
    let mut client = NeighborServiceClient::new(connect(&daemon.folder.join("api.sock")).await);
    for _ in 0..2 {
        let refused = client
            .list_neighbors(ringside_gateway::proto::ListNeighborsRequest::default())
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
        assert!(refused.message().contains("its disk cannot be read"), "{refused}");
    }
    let health = daemon.health();
    assert!(
        health.contains("the last question to the store was not answered"),
        "{health}"
    );
    assert_eq!(problems(), 1);
    // The writer has read all that it needs.
    put(&daemon, BATCHES * BATCH).await;
    disk.heal();
    let there = list(connect(&daemon.folder.join("api.sock")).await).await;
    assert_eq!(there.len(), ((BATCHES + 1) * BATCH) as usize);
    assert!(daemon.health().starts_with("ok"), "{}", daemon.health());
    assert_eq!(problems(), 0);
    daemon.stop();
}

/// The log cannot be read, and so not written back into the file: it grows, and nothing of it is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_cannot_be_written_back_is_kept() {
    const LARGE: u64 = 5 << 20;
    if !is_root() {
        return;
    }
    let (disk, folder) = (SlowDisk::new(), Folder::new());
    disk.see_reads();
    configure(&folder, "store.db", "");
    let mut daemon = disk.start(folder);
    disk.fail(Calls::Reads, libc::EIO, 0);
    let log = daemon.folder.join("store.db-wal");
    let length = || std::fs::metadata(&log).unwrap().len();
    let mut count = 0;
    while length() < LARGE {
        put(&daemon, count).await;
        count += BATCH;
    }
    daemon.wait("its complaint", |daemon| {
        daemon.log().contains("the store's log could not be written back")
    });
    assert!(daemon.log().contains("its disk cannot be read"), "{}", daemon.log());
    assert!(length() >= LARGE);
    // So the next start finds it.
    disk.heal();
    let folder = kill(daemon);
    let mut daemon = disk.start(folder);
    let there = list(connect(&daemon.folder.join("api.sock")).await).await;
    assert_eq!(there.len(), count as usize);
    daemon.wait("the log's end", |_| length() == 0);
    daemon.stop();
}
