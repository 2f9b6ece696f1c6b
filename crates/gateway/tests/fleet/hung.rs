//! A gateway whose own disk hangs: nothing is answered by it, neither an error nor an end.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use ringside_netlab::wait_until;

use super::Etcd;
use super::basics::sees;
use super::common::Folder;
use super::common::daemon::{Daemon, binary, free_port, put_neighbor};
use super::common::etcd::{IMPATIENT, configure, gateway};
use super::hindered::{compile, write_at_once};
use super::members::{member, shares};
use super::metrics::Metrics;

/// For longer than any test.
const FOR_EVER: Duration = Duration::from_secs(1000);

/// What a program's disk is made slow by.
pub(crate) struct SlowDisk {
    folder: Folder,
    program: PathBuf,
}

impl SlowDisk {
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        let program = compile("slow.c", folder.join("slow"), &[]);
        let disk = Self { folder, program };
        disk.set_delay(Duration::ZERO);
        disk
    }

    /// What is said before a gateway's program, so that it has that disk. It dies with what makes the disk slow, its parent.
    pub(crate) fn words(&self) -> Vec<PathBuf> {
        let [slow, delay] = [self.program.clone(), self.folder.join("delay")];
        let mut words: Vec<PathBuf> = ["env", "SLOW_WRITES=1"].map(PathBuf::from).to_vec();
        words.extend([slow, delay]);
        words.extend(["setpriv", "--pdeathsig", "KILL"].map(PathBuf::from));
        words.push(binary().get_program().into());
        words
    }

    /// From now on each flush and each write takes so much longer.
    pub(crate) fn set_delay(&self, delay: Duration) {
        let milliseconds = u32::try_from(delay.as_millis()).unwrap();
        write_at_once(&self.folder.join("delay"), &milliseconds.to_le_bytes());
    }
}

/// The process that what makes its disk slow has started.
fn program_of(daemon: &Daemon) -> String {
    let parent = daemon.child.id();
    let pid = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    pid.trim().to_owned()
}

/// Kills the program, and what its disk is slow by. Nothing has its files open after that.
fn kill(daemon: Daemon) -> Folder {
    let pid = program_of(&daemon);
    let folder = daemon.kill();
    assert!(wait_until(Duration::from_secs(60), || is_over(&pid)), "{pid} lives on");
    folder
}

/// A thread that waits for the disk may be the last one to end; who reaps what is left may take its time.
fn is_over(pid: &str) -> bool {
    let process = PathBuf::from("/proc").join(pid);
    let threads = std::fs::read_dir(process.join("task")).map_or(0, Iterator::count);
    let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
    threads == 0 || (threads == 1 && stat.contains(") Z "))
}

fn put<'a>(ip: &'a str, version: &'a str) -> Vec<&'a str> {
    put_neighbor(["42", ip, "02:00:00:00:00:07", "192.0.2.1"], Some(version))
}

fn health(gateway: &Daemon) -> String {
    String::from_utf8_lossy(&gateway.ctl(&["health"]).stdout).into_owned()
}

/// With that disk.
fn start_on(disk: &SlowDisk, folder: Folder) -> Daemon {
    let words = disk.words();
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .arg("--config")
        .arg(folder.join("gateway.toml"));
    Daemon::spawn(folder, command)
}

#[test]
fn a_gateway_whose_disk_hangs_follows_answers_and_starts_again() {
    let (etcd, disk, port) = (Etcd::start(), SlowDisk::new(), free_port());
    let folder = Folder::new();
    let more = format!("[metrics]\nlisten = \"127.0.0.1:{port}\"");
    configure(&folder, &etcd.endpoint(), IMPATIENT, &more);
    let mut one = start_on(&disk, folder);
    let other = gateway(&etcd);
    one.ok(&put("10.0.0.1", "1"));
    one.ok(&["get", "neighbor", "42", "10.0.0.1"]);
    disk.set_delay(FOR_EVER);
    // The first answer waits for the disk a moment, later ones do not.
    one.ok(&put("10.0.0.2", "1"));
    for number in 1..=50 {
        let ip = format!("10.0.1.{number}");
        one.ok(&put(&ip, "1"));
        other.ok(&put(&ip, "2"));
    }
    one.wait("its complaint", |one| {
        health(one).contains("its disk has not answered for")
    });
    // More batches than there is room for anywhere.
    let newest = etcd.revision();
    one.wait("what etcd has", |_| {
        Metrics::of(port).count("fleet_applied_revision") >= newest
    });
    one.wait("a proof of it", |_| Metrics::of(port).get("fleet_lag_seconds") < 2.0);
    let is_newer = one.fails(&put("10.0.1.7", "1"));
    assert!(is_newer.contains("something newer"), "{is_newer}");
    // It dies with what it had to write, and begins with what etcd has.
    let mut one = Daemon::start_in(kill(one));
    for ip in ["10.0.0.1", "10.0.0.2", "10.0.1.50"] {
        sees(&mut one, &["get", "neighbor", "42", ip], "192.0.2.1");
    }
    assert_eq!(
        one.ok(&["list", "neighbors", "--json"]),
        other.ok(&["list", "neighbors", "--json"])
    );
    one.wait("health", |one| one.ctl(&["health"]).status.success());
}

/// It is asked to end: others have its shards at once, it says what it leaves undone, and does not wait for the disk for ever.
#[test]
fn a_gateway_whose_disk_hangs_ends_when_it_is_asked_to() {
    let (etcd, disk) = (Etcd::start(), SlowDisk::new());
    let mut other = member(&etcd, "other", 100, "");
    other.wait("all shards", |other| shares(other) == [("other".to_owned(), 1024)]);
    let folder = Folder::new();
    let fleet = "[fleet]\nname = \"one\"\naddresses = [\"192.0.2.1\"]\nlease-seconds = 300";
    configure(&folder, &etcd.endpoint(), IMPATIENT, fleet);
    let mut one = start_on(&disk, folder);
    other.wait("shares for both", |other| {
        shares(other).iter().all(|(_, shards)| (300..700).contains(shards))
    });
    one.ok(&put("10.0.0.1", "1"));
    disk.set_delay(FOR_EVER);
    one.ok(&put("10.0.0.2", "1"));
    let began = Instant::now();
    // The program, not what its disk is slow by.
    let pid = program_of(&one);
    assert!(
        Command::new("kill")
            .args(["-s", "TERM", &pid])
            .status()
            .unwrap()
            .success()
    );
    other.wait("its shards", |other| shares(other) == [("other".to_owned(), 1024)]);
    // Who started it is busy being slow, and does not notice.
    one.wait("its end", |_| is_over(&pid));
    // Far less than its lease and the disk take: five seconds for the disk, and some for what else is to be done.
    assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
    let log = one.log();
    let said = log
        .lines()
        .filter(|line| line.contains("is older than what was known"))
        .count();
    assert!(
        said == 1 && log.contains("KiB were not written") && log.contains("ended"),
        "{log}"
    );
    // As after a kill.
    disk.set_delay(Duration::ZERO);
    let mut one = Daemon::start_in(one.kill());
    sees(&mut one, &["get", "neighbor", "42", "10.0.0.2"], "192.0.2.1");
    assert_eq!(
        one.ok(&["list", "neighbors", "--json"]),
        other.ok(&["list", "neighbors", "--json"])
    );
}
