//! What a gateway's metrics say of how it follows etcd, against what etcd says itself.

use std::process::Command;

use super::Etcd;
use super::common::Folder;
use super::common::daemon::{Daemon, free_port, put_neighbor};
use super::common::etcd::{IMPATIENT, configure, gateway};
pub(crate) use super::common::metrics::Metrics;

impl Metrics {
    /// How it fares with etcd: one of four.
    fn state(&self) -> &'static str {
        let all = ["behind", "following", "cut-off", "rejected"];
        let is = |state: &&str| match self.count(&format!("fleet_state{{state=\"{state}\"}}")) {
            0 => false,
            1 => true,
            other => panic!("{state}: {other}"),
        };
        let states: Vec<&str> = all.into_iter().filter(is).collect();
        assert_eq!(states.len(), 1, "{states:?}");
        states[0]
    }

    /// What the tables have, and what etcd is known to have.
    fn revisions(&self) -> [u64; 2] {
        ["applied", "known"].map(|what| self.count(&format!("fleet_{what}_revision")))
    }

    /// Nothing is missing, as of just now.
    fn is_well(&self) -> bool {
        self.state() == "following" && self.get("fleet_lag_seconds") < 2.0
    }
}

/// A gateway with metrics.
pub(crate) struct Watched {
    pub(crate) daemon: Daemon,
    pub(crate) port: u16,
}

impl Watched {
    /// With more options of `[store.etcd]`.
    pub(crate) fn start(etcd: &Etcd, more: &str) -> Self {
        let (folder, port) = (Folder::new(), free_port());
        let metrics = format!("[metrics]\nlisten = \"127.0.0.1:{port}\"");
        configure(&folder, &etcd.endpoint(), &format!("{IMPATIENT}\n{more}"), &metrics);
        let daemon = Daemon::start_in(folder);
        Self { daemon, port }
    }

    /// Asked to end; something is done with its files, and it is started anew.
    pub(crate) fn restart_after(self, work: impl FnOnce(&Folder)) -> Self {
        let folder = self.daemon.stop();
        work(&folder);
        let daemon = Daemon::start_in(folder);
        Self { daemon, ..self }
    }

    /// Waits until it is so, and says what was told then.
    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn(&Metrics) -> bool) -> Metrics {
        let mut told = Metrics(String::new());
        let port = self.port;
        self.daemon.wait(what, |_| {
            told = Metrics::of(port);
            // It has just begun, and nobody is let in yet.
            !told.0.is_empty() && is_so(&told)
        });
        told
    }
}

#[test]
fn metrics_tell_how_etcd_is_followed() {
    let mut etcd = Etcd::start();
    let mut one = Watched::start(&etcd, "");
    let mut two = gateway(&etcd);
    // Each is a revision; somebody else's, one that only etcd has.
    let put = |version: &'static str| {
        let words = ["42", "10.0.0.7", "02:00:00:00:00:07", "192.0.2.1"];
        put_neighbor(words, Some(version))
    };
    two.ok(&put("1"));
    two.ok(&put("2"));
    let all = etcd.revision();
    assert!(all >= 3, "{all}");
    one.until("all that etcd has", |told| {
        told.is_well() && told.revisions() == [all, all]
    });
    etcd.ctl(&["put", "/somebody/else", "something"]);
    assert_eq!(etcd.revision(), all + 1);
    let told = one.until("a revision of somebody else", |told| told.revisions()[1] > all);
    assert_eq!(told.revisions(), [all, all + 1]);
    two.ok(&put("3"));
    let all = etcd.revision();
    let told = one.until("all that etcd has", |told| {
        told.is_well() && told.revisions() == [all, all]
    });
    assert_eq!(told.count("fleet_relists_total"), 0, "{told:?}");
    let resumes = told.count("fleet_watch_resumes_total");

    // etcd is gone: what is known gets older.
    etcd.kill();
    let told = one.until("its state", |told| told.state() == "cut-off");
    let lag = told.get("fleet_lag_seconds");
    assert!(lag >= 1.0, "{told:?}");
    let told = one.until("a lag", |told| told.get("fleet_lag_seconds") > lag + 1.0);
    assert_eq!((told.state(), told.revisions()), ("cut-off", [all, all]));
    etcd.start_again(Command::new("setpriv"));
    let told = one.until("etcd", Metrics::is_well);
    assert!(told.count("fleet_watch_resumes_total") > resumes, "{told:?}");
    assert_eq!(told.count("fleet_relists_total"), 0, "{told:?}");

    // What it would have to be told is compacted while it stands still; what waits in its connection is lost with that.
    one.daemon.signal("STOP");
    etcd.kill();
    etcd.start_again(Command::new("setpriv"));
    // The last of them is not compacted.
    two.wait("a change", |two| two.ctl(&put("4")).status.success());
    two.ok(&put("5"));
    let all = etcd.revision();
    etcd.compact();
    one.daemon.signal("CONT");
    let told = one.until("all that etcd has", |told| {
        told.is_well() && told.revisions() == [all, all] && told.count("fleet_relists_total") > 0
    });
    assert_eq!(told.count("fleet_relists_total"), 1, "{told:?}");

    // Somebody removes everything.
    etcd.ctl(&["del", "--prefix", "/ringside/"]);
    let told = one.until("its complaint", |told| told.state() == "rejected");
    assert_eq!(told.revisions()[0], all, "the last good state holds");
}
