//! systemd as the first process of a container, with what was installed there: a real one reads the units, and does what they say.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use ringside_netlab::wait_until;

use super::Folder;

/// For whatever systemd is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

const SCRIPT: &str = include_str!("systemd.sh");

/// A container whose first process is systemd, with its units that nobody started yet. It ends with its handle.
pub(crate) struct Systemd {
    child: Child,
    /// `/run/test` inside.
    pub(crate) folder: Folder,
    /// That of systemd.
    pid: String,
    cgroup: String,
}

/// Installs the gateway for a container, which begins with these files of `/etc`, as root would.
pub(crate) fn install(etc: &[(&str, &str)]) -> Folder {
    let folder = Folder::new();
    for name in ["built", "etc", "units"] {
        std::fs::create_dir(folder.join(name)).unwrap();
    }
    for (name, text) in etc {
        std::fs::write(folder.join("etc").join(name), text).unwrap();
    }
    let built = folder.join("built");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ringside-gateway"), built.join("ringside-gateway")).unwrap();
    let mut install = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/install"));
    install.arg("--from").arg(built).env("DESTDIR", folder.join("root"));
    let output = install.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    folder
}

impl Systemd {
    /// On what was installed; `setpriv` of the network namespace that it is in.
    pub(crate) fn start(mut setpriv: Command, folder: Folder) -> Self {
        // Of a folder that no other test has.
        let cgroup = folder.path().file_name().unwrap().to_str().unwrap().to_owned();
        let log = std::fs::File::create(folder.join("container.log")).unwrap();
        setpriv.args(["--pdeathsig", "KILL", "unshare", "--mount", "sh", "-c", SCRIPT, "sh"]);
        setpriv.arg(folder.path()).arg(&cgroup).env("THIS", SCRIPT);
        setpriv
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let mut systemd = Self {
            child: setpriv.spawn().unwrap(),
            folder,
            pid: String::new(),
            cgroup,
        };
        systemd.wait("it answers", |systemd| {
            systemd.pid = systemd.read("pid").trim().to_owned();
            !systemd.pid.is_empty() && systemd.ask(&["is-active", "multi-user.target"]).status.success()
        });
        systemd
    }

    /// A file of its folder.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    /// Has what a unit says go to the file `log`, and gives it these settings, in place of those before. A system call that its
    /// filter refuses ends it: an error might go unnoticed.
    pub(crate) fn drop_in(folder: &Folder, unit: &str, settings: &str) {
        let place = folder.join("units").join(format!("{unit}.service.d"));
        std::fs::create_dir_all(&place).unwrap();
        let log = "[Service]\nStandardOutput=append:/run/test/log\nStandardError=append:/run/test/log\nSystemCallErrorNumber=kill\n";
        std::fs::write(place.join("test.conf"), format!("{log}{settings}\n")).unwrap();
    }

    /// A program inside.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.pid, "--all", program]);
        command
    }

    fn ask(&self, words: &[&str]) -> Output {
        self.command("systemctl").args(words).output().unwrap()
    }

    /// `systemctl …`, which waits until it is done.
    pub(crate) fn systemctl(&self, words: &[&str]) {
        let output = self.ask(words);
        assert!(output.status.success(), "{words:?}: {output:?}\n{}", self.all());
    }

    /// Of a unit.
    pub(crate) fn property(&self, unit: &str, name: &str) -> String {
        let output = self.ask(&["show", "--value", "--property", name, unit]);
        assert!(output.status.success(), "{unit} {name}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// How a unit's process is seen from inside: a file of its `/proc`.
    pub(crate) fn process(&self, unit: &str, file: &str) -> String {
        let path = format!("/proc/{}/{file}", self.property(unit, "MainPID"));
        let output = self.command("cat").arg(&path).output().unwrap();
        assert!(output.status.success(), "{path}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn wait(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let done = wait_until(PATIENCE, || {
            let ended = self.child.try_wait().unwrap();
            assert_eq!(ended, None, "systemd ended: {}", self.all());
            is_so(self) || {
                // Each question takes a process.
                std::thread::sleep(Duration::from_millis(20));
                false
            }
        });
        assert!(done, "not {what}: {}", self.all());
    }

    /// Until a unit has come so far: with this state, started anew so often.
    pub(crate) fn wait_for(&mut self, unit: &str, state: &str, restarts: u32) {
        self.wait(&format!("{unit} is {state} after {restarts} restarts"), |systemd| {
            systemd.property(unit, "ActiveState") == state
                && systemd.property(unit, "NRestarts") == restarts.to_string()
        });
    }

    /// All that anybody inside had to say.
    pub(crate) fn all(&self) -> String {
        let status = self.ask(&["status", "--no-pager", "--full", "ringside-*"]).stdout;
        let status = String::from_utf8_lossy(&status);
        let [container, kernel, log] = ["container.log", "kmsg", "log"].map(|name| self.read(name));
        format!("{container}\n{kernel}\n{status}\n{log}")
    }
}

impl Drop for Systemd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.all());
        }
        _ = self.child.kill();
        _ = self.child.wait();
        let first = Path::new("/proc").join(&self.pid);
        let script = "mount -t cgroup2 cgroup /mnt && { test ! -d \"/mnt/$0\" || find \"/mnt/$0\" -depth -type d -exec rmdir {} +; }";
        let clean = || {
            let mut remove = Command::new("unshare");
            remove
                .args(["--mount", "sh", "-c", script, &self.cgroup])
                .stderr(Stdio::null());
            remove.status().is_ok_and(|status| status.success())
        };
        _ = wait_until(PATIENCE, || (self.pid.is_empty() || !first.exists()) && clean());
    }
}
