//! A real ptp4l, with software time stamps, which changes no clock.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ringside_netlab::{End, Lab};
use ringside_nic::clock::Ptp4l;

/// Clocks are left alone, and all is quick.
const CONFIG: &str = "\
[global]
free_running 1
logAnnounceInterval -3
logSyncInterval -4
logMinDelayReqInterval -4
announceReceiptTimeout 16
";

/// A folder that goes with the test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "ringside-ptp-test-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let folder = Self(std::env::temp_dir().join(name));
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
pub struct Daemon {
    child: Child,
    pub socket: PathBuf,
}

impl Daemon {
    pub fn start(end: &End, folder: &Folder, name: &str, options: &[&str]) -> Self {
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
        if has_read_only_socket() {
            // Otherwise it answers at /var/run/ptp4lro, and to other tests.
            command.arg(format!("--uds_ro_address={}-ro", socket.display()));
        }
        let errors = log.try_clone().expect("the same file");
        let child = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn();
        let daemon = Self {
            child: child.expect("ptp4l: see scripts/setup"),
            socket,
        };
        daemon.wait_until("its socket", |_| true);
        daemon
    }

    pub fn wait_until(&self, what: &str, is_it: impl Fn(Ptp4l) -> bool) {
        // A socket that nobody answers at is an error, and none yet is nothing.
        let ask = || matches!(Ptp4l::ask_at(&self.socket, 0), Ok(Some(told)) if is_it(told));
        let log = || fs::read_to_string(self.socket.with_extension("log")).unwrap_or_default();
        assert!(
            ringside_netlab::wait_until(Duration::from_secs(20), ask),
            "{what}: {}",
            log()
        );
    }

    pub fn option(&self) -> String {
        format!("--ptp4l {}", Path::display(&self.socket))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Returns whether ptp4l has a second socket, which anybody may ask: since linuxptp 4.0.
fn has_read_only_socket() -> bool {
    let version = Command::new("ptp4l")
        .arg("-v")
        .output()
        .expect("ptp4l: see scripts/setup");
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let major = version
        .split('.')
        .next()
        .and_then(|major| major.trim().parse::<u32>().ok());
    major.unwrap_or_else(|| panic!("ptp4l -v: {version}")) >= 4
}

/// One that gives the time at the first end, and one at the second that has it from there.
pub fn pair(lab: &Lab, folder: &Folder) -> [Daemon; 2] {
    let leads = Daemon::start(&lab.a, folder, "a", &[]);
    let follows = Daemon::start(&lab.b, folder, "b", &["-s"]);
    leads.wait_until("giving the time", |told| told.is_master && told.steps_removed == 0);
    follows.wait_until("an offset", |told| told.steps_removed == 1 && told.knows_its_offset());
    [leads, follows]
}
