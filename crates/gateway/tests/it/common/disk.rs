//! Programs' disks that are slow, hang or fail, while they run.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringside_netlab::wait_until;

use super::Folder;
use super::daemon::{Daemon, binary};

/// What is so slow hangs, for longer than any test: it answers nothing, neither an error nor an end.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(1000);
/// How long an end may take on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is asked of a disk.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Calls {
    Flushes = 1,
    Writes = 2,
    All = 3,
    /// Of the store's files: see [`SlowDisk::see_reads`].
    Reads = 4,
}

/// What a gateway's disk is made slow by, hang and fail: see `slow.c`.
pub(crate) struct SlowDisk {
    folder: Folder,
    program: PathBuf,
    settings: Mutex<[u32; 5]>,
    sees_reads: AtomicBool,
}

impl SlowDisk {
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        let program = compile("common/slow.c", folder.join("slow"), &[]);
        let disk = Self {
            folder,
            program,
            settings: Mutex::default(),
            sees_reads: AtomicBool::new(false),
        };
        disk.set(|_| ());
        disk
    }

    /// Of a program that is started from now on reads may fail, too. They wait behind what hangs.
    pub(crate) fn see_reads(&self) {
        self.sees_reads.store(true, Ordering::Relaxed);
    }

    /// What is said before a gateway's program, so that it has that disk. It dies with what makes the disk slow, its parent.
    pub(crate) fn words(&self) -> Vec<PathBuf> {
        let [slow, settings] = [self.program.clone(), self.folder.join("settings")];
        let mut words: Vec<PathBuf> = ["env", "SLOW_WRITES=1"].map(PathBuf::from).to_vec();
        if self.sees_reads.load(Ordering::Relaxed) {
            words.push("SLOW_READS=store.db".into());
        }
        words.extend([slow, settings]);
        words.extend(["setpriv", "--pdeathsig", "KILL"].map(PathBuf::from));
        words.push(binary().get_program().into());
        words
    }

    /// A gateway with that disk.
    pub(crate) fn start(&self, folder: Folder) -> Daemon {
        let command = self.command(&folder);
        Daemon::spawn(folder, command)
    }

    /// That begins one.
    pub(crate) fn command(&self, folder: &Folder) -> Command {
        let words = self.words();
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .arg("--config")
            .arg(folder.join("gateway.toml"));
        command
    }

    fn set(&self, change: impl FnOnce(&mut [u32; 5])) {
        let mut settings = self.settings.lock().unwrap();
        change(&mut settings);
        let bytes: Vec<u8> = settings.iter().flat_map(|number| number.to_le_bytes()).collect();
        write_at_once(&self.folder.join("settings"), &bytes);
    }

    /// From now on each flush and each write takes so much longer.
    pub(crate) fn set_delay(&self, delay: Duration) {
        self.set(|settings| settings[0] = u32::try_from(delay.as_millis()).unwrap());
    }

    /// From now on these end with an error, when so many more of them have gone well.
    pub(crate) fn fail(&self, which: Calls, errno: i32, spare: u32) {
        self.set(|settings| {
            let edition = settings[4] + 1;
            settings[1..].copy_from_slice(&[errno.unsigned_abs(), which as u32, spare, edition]);
        });
    }

    /// How many calls have ended with an error.
    pub(crate) fn failed(&self) -> u32 {
        let all = std::fs::read(self.folder.join("settings")).unwrap();
        let count = all
            .get(20..24)
            .map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap()));
        count.unwrap_or(0)
    }

    /// Nothing is wrong with it any more.
    pub(crate) fn heal(&self) {
        self.fail(Calls::All, 0, 0);
        self.set_delay(Duration::ZERO);
    }
}

/// Kills a program on such a disk, and what its disk is slow by. Nothing has its files open after that.
pub(crate) fn kill(mut daemon: Daemon) -> Folder {
    kill_both(&mut daemon.child);
    daemon.kill()
}

/// The same of what is no daemon yet.
pub(crate) fn kill_both(slow: &mut Child) {
    let parent = slow.id();
    let pid = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    slow.kill().unwrap();
    slow.wait().unwrap();
    let pid = pid.trim();
    assert!(wait_until(PATIENCE, || is_over(pid)), "{pid} lives on");
}

/// A thread that waits for the disk may be the last one to end; who reaps what is left may take its time.
fn is_over(pid: &str) -> bool {
    let process = PathBuf::from("/proc").join(pid);
    let threads = std::fs::read_dir(process.join("task")).map_or(0, Iterator::count);
    let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
    threads == 0 || (threads == 1 && stat.contains(") Z "))
}

/// In place, and not by a new file: who reads it has it open.
pub(crate) fn write_at_once(path: &Path, bytes: &[u8]) {
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .unwrap();
    file.write_all_at(bytes, 0).unwrap();
}

/// What is built when a test needs it, by the C compiler that Rust's linker is.
pub(crate) fn compile(source: &str, into: PathBuf, more: &[&str]) -> PathBuf {
    let source = format!("{}/tests/it/{source}", env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("cc")
        .args(["-O1", "-o"])
        .arg(&into)
        .arg(source)
        .args(more)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    into
}
