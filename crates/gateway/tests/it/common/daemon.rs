//! The program itself, as a child process, and its client.

use std::fmt::Write as _;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt};

use super::Folder;

/// How long a start, an end or a change of state may take on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// `ringside-gateway` with a configuration, killed when the test ends.
pub(crate) struct Daemon {
    pub(crate) child: Child,
    pub(crate) folder: Folder,
}

pub(crate) fn binary() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ringside-gateway"))
}

/// The program with a file system of four megabytes of its own at `disk`, by the command `unshare`. Its mount is gone with it.
pub(crate) fn on_small_disk(mut unshare: Command, disk: &Path) -> Command {
    std::fs::create_dir_all(disk).unwrap();
    let script = "mount -t tmpfs -o size=4m none \"$0\" && exec \"$@\"";
    unshare.args(["--mount", "sh", "-c", script]).arg(disk);
    unshare.arg(env!("CARGO_BIN_EXE_ringside-gateway"));
    unshare
}

/// Metrics off, files in a folder, and some more lines.
pub(crate) fn configure(folder: &Folder, store: &str, more: &str) -> PathBuf {
    let mut text = String::new();
    writeln!(text, "[store]\npath = \"{}\"\n[api]", folder.join(store).display()).unwrap();
    writeln!(text, "socket = \"{}\"", folder.join("api.sock").display()).unwrap();
    write_configuration(folder, text, more)
}

/// Writes a configuration: `text`, then `more`, then metrics off and room for few connections,
/// unless `more` has these parts.
pub(super) fn write_configuration(folder: &Folder, mut text: String, more: &str) -> PathBuf {
    writeln!(text, "{more}").unwrap();
    if !more.contains("[metrics]") {
        text.push_str("[metrics]\nenabled = false\n");
    }
    if !more.contains("[connections") {
        // The default's table of 140 MB takes most of the time of a start.
        text.push_str("[connections]\nlimit = 10000\n");
    }
    let path = folder.join("gateway.toml");
    std::fs::write(&path, text).unwrap();
    path
}

/// Reserves a TCP port on 127.0.0.1 until this process ends, even while no server listens on it.
///
/// The reserving socket is bound but does not listen. A server with `SO_REUSEADDR` can bind to it.
pub(crate) fn free_port() -> u16 {
    let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    sockopt::set_socket_reuseaddr(&socket, true).unwrap();
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap();
    std::mem::forget(socket);
    address.port()
}

/// Complaint about a change that the store has not confirmed.
pub(crate) const LATE: &str = "send it again, which does no harm";
/// Complaints about a store that does not answer: nothing is changed.
pub(crate) const AWAY: [&str; 2] = [
    "changes are taken when it is back",
    "nothing can be changed now: no answer within",
];

/// What its client is told to put a neighbour: network, address, MAC address and host; without a version the next one.
pub(crate) fn put_neighbor<'a>([vni, ip, mac, host]: [&'a str; 4], version: Option<&'a str>) -> Vec<&'a str> {
    let mut words = vec!["put", "neighbor", vni, ip, "--mac", mac, "--host", host];
    words.extend(version.iter().flat_map(|version| ["--version", version]));
    words
}

impl Daemon {
    pub(crate) fn start(more: &str) -> Self {
        let folder = Folder::new();
        configure(&folder, "store.db", more);
        Self::start_in(folder)
    }

    pub(crate) fn start_in(folder: Folder) -> Self {
        let mut command = binary();
        command.arg("--config").arg(folder.join("gateway.toml"));
        Self::spawn(folder, command)
    }

    /// Waits until the API answers.
    pub(crate) fn spawn(folder: Folder, mut command: Command) -> Self {
        _ = std::fs::remove_file(folder.join("api.sock"));
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut daemon = Self { child, folder };
        let socket = daemon.folder.join("api.sock");
        daemon.wait("the socket", |daemon| {
            assert_eq!(daemon.child.try_wait().unwrap(), None, "it ended: {}", daemon.log());
            socket.exists()
        });
        daemon
    }

    pub(crate) fn wait(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let begin = Instant::now();
        while !is_so(self) {
            assert!(begin.elapsed() < PATIENCE, "waiting for {what}: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Somebody else's file takes the room of [`on_small_disk`], as seen from inside: this one.
    pub(crate) fn fill_disk(&self) -> PathBuf {
        let inside = self.folder.join("disk/filler");
        let filler = PathBuf::from(format!("/proc/{}/root{}", self.child.id(), inside.display()));
        let filled = std::fs::write(&filler, vec![0; 8 << 20]).unwrap_err();
        assert_eq!(filled.kind(), std::io::ErrorKind::StorageFull);
        filler
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-s", name, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Kills it, as the kernel does when memory is short, and leaves its files.
    pub(crate) fn kill(mut self) -> Folder {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::mem::replace(&mut self.folder, Folder::none())
    }

    /// Kills it, and starts the next one while the kernel may still take this one apart.
    pub(crate) fn kill_and_start(mut self, start: impl FnOnce(Folder) -> Self) -> Self {
        self.child.kill().unwrap();
        start(std::mem::replace(&mut self.folder, Folder::none()))
    }

    /// Asks it to end, and waits for that.
    pub(crate) fn stop(mut self) -> Folder {
        self.signal("TERM");
        self.wait("its end", |daemon| daemon.child.try_wait().unwrap().is_some());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.log());
        std::mem::replace(&mut self.folder, Folder::none())
    }

    /// `ringside-gateway ctl …`
    pub(crate) fn ctl(&self, words: &[&str]) -> Output {
        self.ctl_command(words).output().unwrap()
    }

    pub(crate) fn ctl_command(&self, words: &[&str]) -> Command {
        let mut command = binary();
        command
            .arg("ctl")
            .arg("--socket")
            .arg(self.folder.join("api.sock"))
            .args(words);
        command
    }

    /// What it says of its health, good or not.
    pub(crate) fn health(&self) -> String {
        String::from_utf8(self.ctl(&["health"]).stdout).unwrap()
    }

    /// Runs `ctl`, and again while the store does not answer: a busy machine is slow.
    ///
    /// Sends a change again, at most twice, when the gateway asks for it because its store did not
    /// answer within a second. Waits up to [`PATIENCE`] when nothing was changed for that reason.
    pub(crate) fn patient_ctl(&self, words: &[&str]) -> Output {
        let begin = Instant::now();
        let mut repeats = 0;
        loop {
            let output = self.ctl(words);
            let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
            let is_late = complaint.contains(LATE) && repeats < 2;
            let is_away = AWAY.iter().any(|part| complaint.contains(part)) && begin.elapsed() < PATIENCE;
            if output.status.success() || !is_late && !is_away {
                return output;
            }
            eprintln!("sent again: {words:?}: {complaint}");
            repeats += u32::from(is_late);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Returns the answer of a command that has to succeed, by [`Self::patient_ctl`].
    pub(crate) fn ok(&self, words: &[&str]) -> String {
        let output = self.patient_ctl(words);
        // What health finds is no complaint.
        let (answer, complaint) = (
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{words:?}: {complaint}{answer}");
        answer
    }

    /// Returns the complaint of a command that has to fail, by [`Self::patient_ctl`].
    pub(crate) fn refuses(&self, words: &[&str]) -> String {
        let output = self.patient_ctl(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// The complaint, if there has to be one: the first, also where the store does not answer.
    pub(crate) fn fails(&self, words: &[&str]) -> String {
        let output = self.ctl(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Returns the complaint of a command with a bad value, on the command line or in a file of it.
    pub(crate) fn rejects(&self, words: &[&str]) -> String {
        let output = self.ctl(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Runs it to its end, which has to be a failure, and returns what it says.
pub(crate) fn refusal(command: Command) -> String {
    complaint(command, 1)
}

/// Runs it to its end, which has to have this status, and returns what it says.
pub(crate) fn complaint(mut command: Command, status: i32) -> String {
    let mut child = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it goes on");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(status), "{said}");
    said
}
