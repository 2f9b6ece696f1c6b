//! A real ptp4l at both ends, with software time stamps, which changes no clock.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use ringside_nic::clock::{Discipline, Ptp4l};

use super::*;

/// Clocks are left alone, and all is quick.
const CONFIG: &str = "\
[global]
free_running 1
logAnnounceInterval -3
logSyncInterval -4
logMinDelayReqInterval -4
announceReceiptTimeout 3
";

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = Self(std::env::temp_dir().join(format!("ringside-ptp-test-{}", std::process::id())));
        fs::create_dir_all(&folder.0).expect("a folder");
        fs::write(folder.path("ptp4l.conf"), CONFIG).expect("written");
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

/// A ptp4l, which ends with this, or with the test.
struct Daemon {
    child: Child,
    socket: PathBuf,
}

impl Daemon {
    fn start(end: &End, folder: &Folder, name: &str, options: &[&str]) -> Self {
        let socket = folder.path(name);
        let log = fs::File::create(folder.path(&format!("{name}.log"))).expect("a log");
        let mut command = end.ns.command("setpriv");
        command.args([
            "--pdeathsig",
            "KILL",
            "ptp4l",
            "-S",
            "-m",
            "-i",
            end.interface.name(),
            "-f",
        ]);
        command.arg(folder.path("ptp4l.conf"));
        command.arg(format!("--uds_address={}", socket.display())).args(options);
        let errors = log.try_clone().expect("the same file");
        let child = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn();
        let daemon = Self {
            child: child.expect("ptp4l: see scripts/setup"),
            socket,
        };
        daemon.wait_until("its socket", |_| true);
        daemon
    }

    fn wait_until(&self, what: &str, is_it: impl Fn(Ptp4l) -> bool) {
        // A socket that nobody answers at is an error, and none yet is nothing.
        let ask = || matches!(Ptp4l::ask_at(&self.socket, 0), Ok(Some(told)) if is_it(told));
        let log = || fs::read_to_string(self.socket.with_extension("log")).unwrap_or_default();
        assert!(
            ringside_netlab::wait_until(Duration::from_secs(20), ask),
            "{what}: {}",
            log()
        );
    }

    fn option(&self) -> String {
        format!("--ptp4l {}", Path::display(&self.socket))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn a_real_ptp4l_is_asked() {
    if !is_root() {
        return;
    }
    let (lab, folder) = (lab("schedptp", 1), Folder::new());
    // Nobody gives it the time. The offset of 0 that it tells is none.
    let follows = Daemon::start(&lab.b, &folder, "b", &["-s"]);
    follows.wait_until("waiting for a master", |told| {
        (told.offset_ns, told.steps_removed, told.knows_its_offset()) == (0, 0, false)
    });
    let listener = |most: &str| {
        format!(
            "listener {{}} {CYCLE} --max-clock-offset {most} {} -t 0.2",
            follows.option()
        )
    };
    let message = run(&lab.b, &listener("50ms")).bad();
    if !Discipline::read().expect("the kernel's word").is_synchronised {
        assert!(message.contains("ptp4l has no master"), "{message}");
    }
    let leads = Daemon::start(&lab.a, &folder, "a", &[]);
    leads.wait_until("giving the time", |told| told.is_master && told.steps_removed == 0);
    follows.wait_until("an offset", |told| told.steps_removed == 1 && told.knows_its_offset());
    // One host, one clock: what it is off is what time stamps of software are worth, on a busy machine up to milliseconds.
    let [sends, hears] = [&leads, &follows].map(|one| format!("{} --max-clock-offset 50ms", one.option()));
    let (_, sent, received) = both(&lab, &format!("{sends} -t 0.3"), &hears);
    let state = |result: &RunResult| {
        result
            .schedule
            .as_ref()
            .map(|all| all.clock_state.clone())
            .expect("told")
    };
    let (at_master, at_other) = (state(&sent), state(&received));
    assert_eq!(
        (at_master.ptp4l_offset_ns, at_master.ptp4l_steps_removed),
        (Some(0), Some(0))
    );
    assert_eq!(at_other.ptp4l_steps_removed, Some(1), "{at_other:#?}");
    assert!(
        at_other.ptp4l_path_delay_ns.is_some_and(|delay| delay != 0),
        "{at_other:#?}"
    );
    assert_eq!(
        at_other.by.as_deref(),
        Some("ptp4l"),
        "a veth has no clock: {at_other:#?}"
    );
    assert_eq!(at_other.offset_ns, at_other.ptp4l_offset_ns.map(i64::unsigned_abs));
    // What is worse than asked is refused. By chance it is right to a nanosecond.
    let refused = (0..5).any(|_| {
        let message = run(&lab.b, &listener("1ns")).bad();
        message.contains("--max-clock-offset 0.001 us: CLOCK_TAI may be") && message.contains(" us off, by ptp4l")
    });
    assert!(refused);
}
