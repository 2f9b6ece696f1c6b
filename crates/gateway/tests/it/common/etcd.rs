//! A real etcd server, as a child with a folder of its own.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Folder;
use super::daemon::{Daemon, binary, free_port, write_configuration};

/// How long it may take to start on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(30);

/// On loopback, killed when the test ends; by the kernel, should the test be killed.
pub(crate) struct Etcd {
    child: Option<Child>,
    ports: [u16; 2],
    folder: Folder,
    scheme: &'static str,
    more: Vec<String>,
}

impl Etcd {
    pub(crate) fn start() -> Self {
        Self::with("http", |_| Vec::new(), || Command::new("setpriv"))
    }

    /// With other options, and what `setpriv` is run by.
    pub(crate) fn with(
        scheme: &'static str,
        more: impl FnOnce(&Folder) -> Vec<String>,
        run: impl Fn() -> Command,
    ) -> Self {
        let folder = Folder::new();
        let more = more(&folder);
        let mut etcd = Self {
            child: None,
            ports: [free_port(), free_port()],
            folder,
            scheme,
            more,
        };
        for attempt in 0.. {
            if etcd.try_spawn(run()) {
                break;
            }
            assert!(attempt < 3, "etcd does not start: {}", etcd.log());
            etcd.ports = [free_port(), free_port()];
            _ = std::fs::remove_dir_all(etcd.folder.join("data"));
        }
        etcd
    }

    /// False if it has ended, as it does where a port is taken.
    fn try_spawn(&mut self, mut command: Command) -> bool {
        let [client, peer] = self.ports;
        let (client, peer) = (
            format!("{}://127.0.0.1:{client}", self.scheme),
            format!("http://127.0.0.1:{peer}"),
        );
        let log = std::fs::File::options()
            .append(true)
            .create(true)
            .open(self.folder.join("log"))
            .unwrap();
        command
            .args(["--pdeathsig", "KILL", "etcd", "--name", "one", "--logger", "zap"])
            .args(["--heartbeat-interval", "20", "--election-timeout", "200"])
            .arg("--data-dir")
            .arg(self.folder.join("data"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("one={peer}")])
            .args(&self.more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let started = self.started();
        let child = command.spawn();
        let child = self
            .child
            .insert(child.expect("etcd and setpriv are installed: scripts/setup does that"));
        let begin = Instant::now();
        loop {
            if child.try_wait().unwrap().is_some() {
                self.child = None;
                return false;
            }
            let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            // In a namespace of its own it cannot be asked from here.
            let ready = log.matches("serving client traffic").count();
            if ready > started {
                self.note_start(ready);
                return true;
            }
            assert!(begin.elapsed() < PATIENCE, "etcd is not ready: {log}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn started(&self) -> usize {
        std::fs::read_to_string(self.folder.join("started")).map_or(0, |count| count.parse().unwrap())
    }

    fn note_start(&self, count: usize) {
        std::fs::write(self.folder.join("started"), count.to_string()).unwrap();
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.ports[0])
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// As the kernel does when memory is short.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.as_ref().expect("it runs").id().to_string();
        let status = Command::new("kill").args(["-s", name, &id]).status();
        assert!(status.unwrap().success());
    }

    /// Where it was, with what it has put down.
    pub(crate) fn start_again(&mut self, run: Command) {
        assert!(self.child.is_none(), "it still runs");
        assert!(self.try_spawn(run), "etcd does not start again: {}", self.log());
    }

    /// With other options from the next start on.
    pub(crate) fn set_options(&mut self, more: Vec<String>) {
        self.more = more;
    }

    /// `etcdctl …`, which has to succeed.
    pub(crate) fn ctl(&self, words: &[&str]) -> String {
        self.ctl_by(Command::new("etcdctl"), words)
    }

    /// The same, by an `etcdctl` in another namespace.
    pub(crate) fn ctl_by(&self, command: Command, words: &[&str]) -> String {
        let output = self.run(command, words);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "etcdctl {words:?}: {complaint}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// `etcdctl …`; None if it fails.
    #[allow(dead_code, reason = "shared; not all tests use all of it")]
    pub(crate) fn try_ctl(&self, words: &[&str]) -> Option<String> {
        let output = self.run(Command::new("etcdctl"), words);
        (output.status.success()).then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn run(&self, mut command: Command, words: &[&str]) -> std::process::Output {
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.endpoint()]);
        command.args(words).output().unwrap()
    }

    /// The last one that it has.
    pub(crate) fn revision(&self) -> u64 {
        let status = self.ctl(&["endpoint", "status", "--write-out", "json"]);
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        status[0]["Status"]["header"]["revision"].as_u64().unwrap()
    }

    /// Forgets all revisions but the last.
    pub(crate) fn compact(&self) {
        self.ctl(&["compact", &self.revision().to_string()]);
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A configuration of a gateway whose truth is in etcd.
pub(crate) fn configure(folder: &Folder, endpoint: &str, more_of_etcd: &str, more: &str) -> PathBuf {
    let mut text = String::new();
    let path = |name: &str| folder.join(name).display().to_string();
    writeln!(text, "[store]\nkind = \"etcd\"\npath = \"{}\"", path("store.db")).unwrap();
    writeln!(text, "[store.etcd]\nendpoints = [\"{endpoint}\"]\n{more_of_etcd}").unwrap();
    writeln!(text, "[api]\nsocket = \"{}\"", path("api.sock")).unwrap();
    write_configuration(folder, text, more)
}

/// So that a test sees soon that something is wrong.
pub(crate) const IMPATIENT: &str = "request-ms = 1000\nsilence-ms = 1000";

/// A gateway of a fleet.
pub(crate) fn gateway(etcd: &Etcd) -> Daemon {
    let folder = Folder::new();
    configure(&folder, &etcd.endpoint(), IMPATIENT, "");
    Daemon::start_in(folder)
}

/// What `ringside-gateway --config …` is, for a folder.
pub(crate) fn program(folder: &Path) -> Command {
    let mut command = binary();
    command.arg("--config").arg(folder.join("gateway.toml"));
    command
}
