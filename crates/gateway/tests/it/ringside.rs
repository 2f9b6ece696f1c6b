//! The gateway that is tested: the daemon with its data path, told by its own client.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringside_netlab::{End, Lab, wait_until};
use serde_json::Value;

use crate::bed::Card;
use crate::common::Folder;
use crate::common::daemon::{Daemon, binary, configure, on_small_disk, refusal};
use crate::common::disk::{self, SlowDisk};
use crate::common::etcd::{self, Etcd};
use crate::process::PATIENCE;
use crate::tenant::neighbors;

/// How the daemon is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ringside {
    /// XDP mode, as the configuration names it.
    pub(crate) mode: &'static str,
    /// False: workers alone.
    pub(crate) fast: bool,
    /// Entries of the fast path's cache of neighbours; None for more than there are.
    pub(crate) cache: Option<u32>,
    /// Entries of its cache of connections.
    pub(crate) cached_connections: u32,
    /// The gateway's, each with a switch of its own.
    pub(crate) interfaces: u8,
    /// Of each of its interfaces.
    pub(crate) queues: u32,
    /// Hosts have made all checksums of what they send, as behind a NIC. Else they leave them to one, which a veth is not; then
    /// workers do it, and the fast path takes no part.
    pub(crate) summed: bool,
    /// The fast path goes on without the daemon.
    pub(crate) pinned: bool,
    /// How long packets wait for the MAC address of their host, in milliseconds.
    pub(crate) patience: u32,
    /// What the store is on.
    pub(crate) disk: Disk,
    /// What it knows is in etcd.
    pub(crate) fleet: bool,
    /// So many seconds without etcd, and nothing is sent on any more; 0: no limit.
    pub(crate) stale: u32,
    /// More lines about the data path.
    pub(crate) more: &'static str,
}

/// What a store is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disk {
    Usual,
    /// Four megabytes.
    Small,
    /// One that can be made slow, hang and fail.
    Slow,
}

impl Ringside {
    /// In native mode, all in the cache.
    pub(crate) const FAST: Self = Self {
        mode: "native",
        fast: true,
        cache: None,
        cached_connections: 4096,
        interfaces: 1,
        queues: 1,
        summed: true,
        pinned: false,
        // The kernel asks again after a second, if a question got lost.
        patience: 10_000,
        disk: Disk::Usual,
        fleet: false,
        stale: 0,
        more: "",
    };

    /// `[path]` and `[connections]`.
    pub(crate) fn configuration(&self, pins: &Path) -> String {
        let mut text = format!("[path]\nmode = \"{}\"\n", self.mode);
        let names: Vec<String> = (0..self.interfaces).map(|number| format!("eth{number}")).collect();
        match &*names {
            [one] => writeln!(text, "interface = {one:?}"),
            several => writeln!(text, "interface = {several:?}"),
        }
        .expect("text");
        if !self.fast {
            text.push_str("fast = false\n");
        }
        if self.pinned {
            writeln!(text, "pins = \"{}\"", pins.display()).expect("text");
        }
        // The defaults are a part of the memory and a million connections, which take their time to be made.
        let entries = self.cache.unwrap_or(4096);
        writeln!(text, "cached-neighbors = {entries}").expect("text");
        writeln!(text, "cached-connections = {}", self.cached_connections).expect("text");
        writeln!(text, "patience-ms = {}\n{}", self.patience, self.more).expect("text");
        text.push_str("[connections]\nlimit = 10000\nper-tenant = 5000\n");
        text
    }
}

pub(crate) struct Gateway {
    daemon: Option<Daemon>,
    end: End,
    how: Ringside,
    files: u32,
    etcd: Option<Etcd>,
    disk: Option<SlowDisk>,
}

impl Gateway {
    pub(crate) fn start(uplinks: &[Lab], how: Ringside) -> Self {
        let mut gateway = Self {
            daemon: None,
            end: uplinks[0].a.clone(),
            how,
            files: 0,
            etcd: None,
            disk: (how.disk == Disk::Slow).then(SlowDisk::new),
        };
        if how.fleet {
            gateway.etcd = Some(Etcd::with("http", |_| Vec::new(), || gateway.end.ns.command("setpriv")));
        }
        gateway.start_in(Folder::new());
        gateway
    }

    /// Starts it on the files of one before it, run in another way.
    pub(crate) fn start_as(&mut self, how: Ringside, folder: Folder) {
        self.how = how;
        self.start_in(folder);
    }

    /// Starts it on the files of one before it.
    pub(crate) fn start_in(&mut self, folder: Folder) {
        let command = self.command(&folder);
        self.daemon = Some(Daemon::spawn(folder, command));
    }

    /// What it says where such a start has to fail.
    pub(crate) fn refused_in(&self, folder: &Folder) -> String {
        refusal(self.command(folder))
    }

    fn command(&self, folder: &Folder) -> Command {
        let (store, mut command) = match (self.how.disk, &self.disk) {
            (Disk::Small, _) => {
                let unshare = self.end.ns.command("unshare");
                ("disk/store.db", on_small_disk(unshare, &folder.join("disk")))
            }
            (_, Some(disk)) => {
                let words = disk.words();
                let mut command = self.end.ns.command(&words[0]);
                command.args(&words[1..]);
                ("store.db", command)
            }
            (_, None) => ("store.db", self.end.ns.command(binary().get_program())),
        };
        let config = match &self.etcd {
            Some(etcd) => {
                let of_etcd = format!("{}\nforward-stale-seconds = {}", etcd::IMPATIENT, self.how.stale);
                etcd::configure(folder, &etcd.endpoint(), &of_etcd, &self.configuration())
            }
            None => configure(folder, store, &self.configuration()),
        };
        command.arg("--config").arg(config);
        command
    }

    fn configuration(&self) -> String {
        self.how.configuration(&self.pins())
    }

    /// Has it read its configuration again, with this in it.
    pub(crate) fn reload_as(&mut self, how: Ringside, connections: &str) {
        self.how = how;
        self.reload(connections);
    }

    /// Has it read its configuration again, with these lines of `[connections]`.
    pub(crate) fn reload(&self, connections: &str) {
        let daemon = self.daemon();
        configure(&daemon.folder, "store.db", &(self.configuration() + connections));
        let times = |daemon: &Daemon| daemon.log().matches("the configuration was read again").count();
        let before = times(daemon);
        daemon.signal("HUP");
        assert!(wait_until(PATIENCE, || times(daemon) > before), "{}", daemon.log());
    }

    /// A folder of the BPF file system for this gateway alone.
    pub(crate) fn pins(&self) -> PathBuf {
        Path::new("/sys/fs/bpf").join(format!("ringside-{}", self.end.ns.name()))
    }

    /// The store's, that can be made slow.
    pub(crate) fn disk(&self) -> &SlowDisk {
        self.disk.as_ref().expect("one that can be slow")
    }

    pub(crate) fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("it runs")
    }

    /// Kills its etcd, or starts it again.
    pub(crate) fn set_etcd(&mut self, runs: bool) {
        let etcd = self.etcd.as_mut().expect("of a fleet");
        if runs {
            etcd.start_again(self.end.ns.command("setpriv"));
        } else {
            etcd.kill();
        }
    }

    /// `etcdctl …` past all gateways, which has to succeed.
    pub(crate) fn etcdctl(&self, words: &[&str]) -> String {
        let etcd = self.etcd.as_ref().expect("of a fleet");
        etcd.ctl_by(self.end.ns.command("etcdctl"), words)
    }

    /// Kills it, or asks it to end; its files stay.
    pub(crate) fn end(&mut self, kindly: bool) -> Folder {
        let daemon = self.daemon.take().expect("it runs");
        match (kindly, &self.disk) {
            (true, _) => daemon.stop(),
            // Two processes.
            (false, Some(_)) => disk::kill(daemon),
            (false, None) => daemon.kill(),
        }
    }

    /// Tells it where tenants live.
    pub(crate) fn learn(&mut self, cards: &[Card]) {
        self.apply(&neighbors(cards));
    }

    /// Makes it so, and waits until it is.
    pub(crate) fn apply(&mut self, yaml: &str) {
        self.files += 1;
        let file = self.daemon().folder.join(&format!("objects-{}.yaml", self.files));
        std::fs::write(&file, yaml).expect("a file");
        self.daemon().ok(&["apply", "-f", file.to_str().expect("UTF-8")]);
    }

    pub(crate) fn statistics(&self) -> Value {
        serde_json::from_str(&self.daemon().ok(&["stats", "--json"])).expect("JSON")
    }

    /// What health says needs attention.
    pub(crate) fn problems(&self) -> Vec<String> {
        let answer = self.daemon().ctl(&["health", "--json"]).stdout;
        let health: Value = serde_json::from_slice(&answer).expect("JSON");
        let problems = health["problems"].as_array().expect("problems").iter();
        problems
            .map(|problem| problem.as_str().expect("text").to_owned())
            .collect()
    }

    /// How often something happened to the interface.
    pub(crate) fn events(&self, name: &str) -> u64 {
        self.statistics()["interface-events"][name].as_u64().expect("a number")
    }

    /// The names of workers that run.
    pub(crate) fn workers(&self) -> Vec<String> {
        let statistics = self.statistics();
        let workers = statistics["workers"].as_array().expect("workers").iter();
        workers
            .map(|worker| worker["name"].as_str().expect("text").to_owned())
            .collect()
    }

    /// Waits until the gateway has counted what it has to: workers do it after they have sent.
    pub(crate) fn wait_until(&self, is_so: impl Fn(&Self) -> bool) {
        assert!(wait_until(PATIENCE, || is_so(self)), "{}", self.statistics());
    }

    /// Packets that one of the two ways sent on.
    pub(crate) fn forwarded(&self, path: &str) -> u64 {
        self.of_path(path)["forwarded-packets"].as_u64().expect("a number")
    }

    /// Questions that both ways have answered.
    pub(crate) fn answered(&self) -> u64 {
        let of = |path| self.of_path(path)["answered-packets"].as_u64().expect("a number");
        of("fast") + of("slow")
    }

    /// Packets that were dropped for a reason, by both ways.
    pub(crate) fn dropped(&self, reason: &str) -> u64 {
        self.dropped_by("fast", reason) + self.dropped_by("slow", reason)
    }

    /// The same of one of them.
    pub(crate) fn dropped_by(&self, path: &str, reason: &str) -> u64 {
        self.of_path(path)["dropped-packets"][reason].as_u64().unwrap_or(0)
    }

    /// Packets that were sent on, by both ways.
    pub(crate) fn sent_on(&self) -> u64 {
        self.forwarded("fast") + self.forwarded("slow")
    }

    fn of_path(&self, path: &str) -> Value {
        let all = self.statistics();
        let paths = all["paths"].as_array().expect("paths");
        let found = paths.iter().find(|one| one["path"] == path);
        found.unwrap_or_else(|| panic!("no {path} in {all}")).clone()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(daemon) = &self.daemon
        {
            let statistics = daemon.ctl(&["stats"]).stdout;
            eprintln!("{}\n{}", String::from_utf8_lossy(&statistics), daemon.log());
        }
        // It would bring the program back.
        self.daemon = None;
        if self.how.pinned {
            let removed = std::fs::remove_dir_all(self.pins());
            let is_gone = removed.is_ok() || !self.pins().exists();
            assert!(is_gone || std::thread::panicking(), "{removed:?}");
        }
    }
}
