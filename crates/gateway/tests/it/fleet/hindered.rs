//! Programs that are hindered by clocks that are wrong. What does that is built when a test needs it.

use std::path::PathBuf;
use std::process::Command;

use super::common::Folder;
use super::common::daemon::Daemon;
use super::common::disk::{compile, write_at_once};

/// A gateway's wall clock that is wrong.
pub(crate) struct WrongClock {
    folder: Folder,
    library: PathBuf,
}

impl WrongClock {
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        let library = compile("fleet/clock.c", folder.join("clock.so"), &["-shared", "-fPIC"]);
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
