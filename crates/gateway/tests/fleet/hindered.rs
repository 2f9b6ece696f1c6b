//! Programs that are hindered: by clocks that are wrong, by disks that are slow. What does that is built when a test needs it.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::common::Folder;
use super::common::daemon::Daemon;

/// A gateway's wall clock that is wrong.
pub(crate) struct WrongClock {
    folder: Folder,
    library: PathBuf,
}

impl WrongClock {
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        let library = compile("clock.c", folder.join("clock.so"), &["-shared", "-fPIC"]);
        let clock = Self { folder, library };
        clock.set(0);
        clock
    }

    /// From now on by so many seconds.
    pub(crate) fn set(&self, seconds: i64) {
        write_at_once(&self.folder.join("wrong"), &seconds.to_le_bytes());
    }

    pub(crate) fn give(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("RINGSIDE_CLOCK", self.folder.join("wrong"));
    }
}

/// A gateway with such a clock.
pub(crate) fn run_with(clock: &WrongClock, folder: Folder) -> Daemon {
    let mut command = super::common::etcd::program(&folder.join(""));
    clock.give(&mut command);
    Daemon::spawn(folder, command)
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
    let source = format!("{}/tests/fleet/{source}", env!("CARGO_MANIFEST_DIR"));
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
