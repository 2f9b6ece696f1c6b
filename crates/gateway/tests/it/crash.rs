//! What was acknowledged survives: kill -9 in the middle of bulk loads, and a full disk.

mod disk;
mod reads;

use std::process::Command;

use crate::common::bulk::{BATCH, Bulk, kills, list};
use crate::common::daemon::{Daemon, configure, on_small_disk};
use crate::common::{Folder, connect, neighbor};
use ringside_gateway::proto::PutNeighborsRequest;
use ringside_gateway::proto::neighbor_service_client::NeighborServiceClient;
use ringside_netlab::testing::is_root;

/// Ten times; see [`kills`].
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_kill_9() {
    let mut daemon = Daemon::start("");
    let mut total = 0;
    for version in 1..=kills(10) {
        let bulk = Bulk::begin(connect(&daemon.folder.join("api.sock")).await, version).await;
        let folder = daemon.kill();
        let acknowledged = bulk.end().await;
        daemon = Daemon::start_in(folder);
        let there = list(connect(&daemon.folder.join("api.sock")).await).await;
        total = acknowledged.check(&there, total);
        let health = daemon.ok(&["health", "--json"]);
        assert!(health.contains("\"status\": \"ok\""), "{health}");
    }
    daemon.stop();
}

fn start_on_small_disk(folder: Folder) -> Daemon {
    let config = configure(&folder, "disk/store.db", "");
    let mut command = on_small_disk(Command::new("unshare"), &folder.join("disk"));
    command.arg("--config").arg(config);
    Daemon::spawn(folder, command)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_makes_it_read_only_until_there_is_room() {
    if !is_root() {
        return;
    }
    let mut daemon = start_on_small_disk(Folder::new());
    let channel = connect(&daemon.folder.join("api.sock")).await;
    let mut client = NeighborServiceClient::new(channel.clone());
    let put = |from: u32, version| PutNeighborsRequest {
        neighbors: (from..from + BATCH).map(|number| neighbor(number, version)).collect(),
    };
    client.put_neighbors(put(0, 1)).await.unwrap();
    let filler = daemon.fill_disk();
    let mut acknowledged = BATCH;
    let refused = loop {
        match client.put_neighbors(put(acknowledged, 1)).await {
            Ok(_) => acknowledged += BATCH,
            Err(refused) => break refused,
        }
        assert!(acknowledged < 100 * BATCH, "the disk does not get full");
    };
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    assert!(refused.message().contains("the disk is full"), "{refused}");
    // It says so, and answers what only reads.
    let health = String::from_utf8(daemon.ctl(&["health", "--json"]).stdout).unwrap();
    assert!(
        health.contains("\"status\": \"degraded\"") && health.contains("\"read-only\": true"),
        "{health}"
    );
    assert_eq!(list(channel.clone()).await.len(), acknowledged as usize);
    std::fs::remove_file(&filler).unwrap();
    // By itself, without anybody who puts something.
    daemon.wait("room", |daemon| daemon.ctl(&["health"]).status.success());
    client.put_neighbors(put(acknowledged, 1)).await.unwrap();
    assert_eq!(list(channel).await.len(), (acknowledged + BATCH) as usize);
    assert!(
        daemon.log().contains("the store can be written again"),
        "{}",
        daemon.log()
    );
    daemon.stop();
}

/// A damaged file is told at the start and in health, and the gateway goes on with what is sound.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_damaged_store_is_told_and_does_not_keep_it_from_starting() {
    let daemon = Daemon::start("");
    let mut client = NeighborServiceClient::new(connect(&daemon.folder.join("api.sock")).await);
    client
        .put_neighbors(PutNeighborsRequest {
            neighbors: (0..9000).map(|number| neighbor(number, 1)).collect(),
        })
        .await
        .unwrap();
    drop(client);
    let folder = daemon.stop();
    let store = folder.join("store.db");
    let mut bytes = std::fs::read(&store).unwrap();
    let at = bytes.len() / 2 / 4096 * 4096;
    bytes[at..at + 4096].fill(0x5a);
    std::fs::write(&store, bytes).unwrap();
    // Also by who was killed, and starts again.
    let mut folder = Some(folder);
    for _ in 0..2 {
        let daemon = Daemon::start_in(folder.take().unwrap());
        let health = daemon.ctl(&["health"]);
        assert_eq!(health.status.code(), Some(1));
        let health = String::from_utf8(health.stdout).unwrap();
        assert!(
            health.starts_with("degraded") && health.contains("its file was damaged"),
            "{health}"
        );
        assert!(daemon.log().contains("its file was damaged"), "{}", daemon.log());
        folder = Some(daemon.kill());
    }
    // Until it is said that nothing is missing any more. No port was lost, so nobody is let out by that.
    let daemon = Daemon::start_in(folder.take().unwrap());
    assert!(daemon.ok(&["repaired"]).contains("from now on: 0"));
    assert!(daemon.ok(&["health"]).starts_with("ok"));
    let daemon = Daemon::start_in(daemon.kill());
    assert!(daemon.ok(&["health"]).starts_with("ok"));
    assert!(daemon.ok(&["repaired"]).contains("nothing was missing"));
    daemon.stop();
}
