//! etcd is put back to a backup, with all its members: what gateways know does not go back with it, until they are told to forget it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ringside_netlab::wait_until;

use super::cluster::{Cluster, How, Member, PATIENCE, SILENCE};
use super::history::{Key, State};
use super::node::Gateway;
use super::objects::connect;
use super::recorder::Recorder;
use super::trial::Trial;

const SECOND: Duration = Duration::from_secs(1);

impl Member {
    /// What it holds, in a file.
    fn back_up(&self) -> PathBuf {
        let path = self.folder.join("backup");
        let saved = self.ctl(&["snapshot", "save", path.to_str().unwrap()]);
        assert!(saved.is_some(), "no backup: {}", self.log());
        path
    }

    /// As an operator would, when it does not run: with the data of the backup, and the members that there were.
    fn put_back(&self, backup: &Path) {
        std::fs::remove_dir_all(self.folder.join("data")).unwrap();
        let mut command = self.host.command("etcdctl");
        command
            .env("ETCDCTL_API", "3")
            .args(["snapshot", "restore"])
            .arg(backup)
            .arg("--data-dir")
            .arg(self.folder.join("data"))
            .args(["--name", &self.name(), "--initial-cluster", self.peers()])
            .args(["--initial-advertise-peer-urls", &self.peer_url()]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Gateway {
    /// As its operator is told to: it is stopped, its copy removed, and it is started.
    fn forget(&mut self) {
        self.restart_after(|folder| {
            for name in ["store.db", "store.db-wal", "store.db-shm"] {
                _ = std::fs::remove_file(folder.join(name));
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-fleet"]
async fn a_backup_is_not_believed_until_gateways_are_told_to_forget() {
    if !ringside_netlab::testing::is_root() {
        return;
    }
    let how = How {
        tenants: false,
        slow_disks: false,
        wrong_members: false,
        wrong_clocks: false,
        lease: Duration::from_secs(5),
        silence: SILENCE,
        slow_gateway: false,
        talks: false,
        more: "",
    };
    let mut cluster = Cluster::start("ft-back", how);
    let sockets = cluster.sockets();
    let mut trial = Trial::new();
    for (seed, (name, socket)) in (0..).zip(&sockets) {
        trial.write(name, socket.clone(), seed);
        trial.watch(name, socket.clone()).await;
    }
    std::thread::sleep(2 * SECOND);
    let backup = cluster.members[cluster.leader()].back_up();
    std::thread::sleep(2 * SECOND);
    trial.stop();
    std::thread::sleep(SECOND);
    cluster.members.iter_mut().for_each(Member::kill);
    for member in &mut cluster.members {
        member.put_back(&backup);
        member.start();
    }
    cluster.members.iter_mut().for_each(Member::wait);
    let put = "put neighbor 7 10.1.0.1 --mac 02:00:00:00:00:01 --host 192.0.2.1 --version 3";
    let put: Vec<&str> = put.split(' ').collect();
    for gateway in &mut cluster.gateways {
        gateway.daemon().wait("its complaint", |daemon| {
            let said = daemon.ctl(&["health"]).stdout;
            let said = String::from_utf8_lossy(&said);
            said.contains("its revision went back") && said.contains("is not believed")
        });
        let refused = gateway.daemon().refuses(&put);
        assert!(refused.contains("is not believed"), "{refused}");
    }
    // Nothing that was answered is lost in any gateway, and none was told of anything older.
    let shown = trial.end(&sockets, None, 30).await;
    let (before, now) = (&shown.history.held[sockets[0].0], cluster.objects());
    let newest = |held: &std::collections::BTreeMap<Key, State>| held.values().map(|state| state.version).max();
    assert!(newest(before) > newest(&now), "the backup is no older");
    // What is documented.
    cluster.gateways.iter_mut().for_each(Gateway::forget);
    let recorder = Recorder::start(&sockets);
    recorder.settled().await;
    cluster.wait_well();
    for (name, socket) in &sockets {
        let mut clients = connect(socket).await.expect("it answers");
        assert_eq!(clients.held(before.keys().copied()).await, now, "{name}");
    }
    cluster.gateways[0].daemon().ok(&put);
    for gateway in &mut cluster.gateways {
        let get = ["get", "neighbor", "7", "10.1.0.1"];
        let is_there = || gateway.daemon().ctl(&get).status.success();
        assert!(wait_until(PATIENCE, is_there), "{}", gateway.name);
    }
}
