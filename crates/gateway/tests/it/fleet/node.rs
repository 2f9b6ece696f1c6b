//! A gateway at the cluster's switch.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ringside_bpf::Link;

use super::cluster::{Host, METRICS};
use super::common::Folder;
use super::common::daemon::{Daemon, binary};
use super::common::disk::SlowDisk;
use super::hindered::WrongClock;
use super::metrics::Metrics;

/// A gateway that may be killed and started anew.
pub(crate) struct Gateway {
    pub(crate) name: &'static str,
    pub(crate) host: Host,
    pub(super) daemon: Option<Daemon>,
    /// Where its API is, whether it runs or not.
    pub(crate) socket: PathBuf,
    pub(super) clock: Option<WrongClock>,
    pub(super) disk: Option<SlowDisk>,
    /// When it was ended, and begun anew with what it had known, for etcd was late.
    pub(crate) restarts: Vec<[Instant; 2]>,
    /// With tenants: see [`wake_for_what_is_sent_back`].
    pub(super) _wake: Option<Link>,
}

impl Gateway {
    pub(crate) fn daemon(&mut self) -> &mut Daemon {
        self.daemon.as_mut().expect("it runs")
    }

    pub(super) fn start(&mut self, folder: Folder) {
        let words = match &self.disk {
            Some(disk) => disk.words(),
            None => vec![binary().get_program().into()],
        };
        let mut command = self.host.ns.command(&words[0]);
        command
            .args(&words[1..])
            .arg("--config")
            .arg(folder.join("gateway.toml"));
        if let Some(clock) = &self.clock {
            clock.give(&mut command);
        }
        self.daemon = Some(Daemon::spawn(folder, command));
    }

    /// Kills it and starts it anew.
    pub(crate) fn kill(&mut self) {
        self.kill_for(Duration::ZERO);
    }

    /// The same, and it is gone for so long.
    pub(crate) fn kill_for(&mut self, gone: Duration) {
        let ended = Instant::now();
        let folder = self.daemon.take().expect("it runs").kill();
        std::thread::sleep(gone);
        self.start_again(folder, ended);
    }

    /// Asks it to end, and starts it anew.
    pub(crate) fn restart(&mut self) {
        self.restart_after(|_| ());
    }

    /// Asks it to end, does something with its files, and starts it anew.
    pub(crate) fn restart_after(&mut self, work: impl FnOnce(&Folder)) {
        let ended = Instant::now();
        let folder = self.daemon.take().expect("it runs").stop();
        work(&folder);
        self.start_again(folder, ended);
    }

    fn start_again(&mut self, folder: Folder, ended: Instant) {
        self.start(folder);
        if self.daemon().log().contains("packets go by what was known") {
            self.restarts.push([ended, Instant::now()]);
        }
    }

    /// What it offers of itself.
    pub(crate) fn metrics(&self) -> Metrics {
        self.host.ns.run(|| Metrics::of(METRICS))
    }

    /// From now on each flush of its disk, and each write, takes so much longer.
    pub(crate) fn set_delay(&self, delay: Duration) {
        self.disk
            .as_ref()
            .expect("with a disk that can be slow")
            .set_delay(delay);
    }

    /// How often it has compared all that etcd holds with its tables since it was started. None of that has been otherwise.
    pub(super) fn comparisons(&self) -> u64 {
        let told = self.metrics();
        let found = told.count("fleet_divergences_total");
        assert_eq!(found, 0, "gateway {}: {told:?}", self.name);
        told.count("fleet_comparisons_total")
    }

    /// From now on its wall clock is wrong by so many seconds.
    pub(crate) fn set_clock(&self, seconds: i64) {
        self.clock
            .as_ref()
            .expect("with a clock that can be wrong")
            .set(seconds);
    }
}
