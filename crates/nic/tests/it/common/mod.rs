//! The test bed of changes: see `changes.rs` and `recover.rs`.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(unreachable_pub, reason = "shared by test binaries, not an API")]

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use ringside_netlab::{End, Lab, VethConfig};
use ringside_nic::changes::{Changes, Outcome, Recovered, Restored, Undo};
use ringside_nic::{Deferral, Interface};

/// A test bed whose ends have NAPI instances, and a state directory of its own.
pub struct Bed {
    pub lab: Lab,
    pub directory: PathBuf,
    pub changes: Changes,
}

impl Bed {
    pub fn new(tag: &str) -> Self {
        let lab = Lab::veth(VethConfig {
            queues: 2,
            gro: true,
            ipv6: false,
            ..VethConfig::tagged(tag)
        })
        .unwrap();
        let directory = std::env::temp_dir().join(format!("ringside-{tag}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        Self {
            lab,
            changes: Changes::in_directory(&directory),
            directory,
        }
    }

    pub fn end(&self) -> &End {
        &self.lab.a
    }

    pub fn run<T: Send>(&self, closure: impl FnOnce(&Interface) -> T + Send) -> T {
        self.end().run(|| closure(&self.end().interface))
    }

    /// Changes the deferral, from a thread in the namespace that then ends.
    pub fn defer(&self, polls: u32) -> Undo {
        self.run(|interface| self.changes.set_deferral(interface, &[0, 1], deferral(polls)))
            .unwrap()
            .1
    }

    /// The interface's `napi_defer_hard_irqs`, and each instance's.
    pub fn polls(&self) -> (u32, Vec<u32>) {
        self.run(|interface| {
            let napis = interface.napis().unwrap();
            let each = napis.iter().map(|napi| napi.defer_hard_irqs.unwrap());
            (interface.napi().unwrap().defer_hard_irqs, each.collect())
        })
    }

    pub fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|kind| kind == "json"))
            .collect()
    }

    pub fn recover(&self) -> Vec<Recovered> {
        self.changes.recover().unwrap()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

pub fn deferral(polls: u32) -> Deferral {
    Deferral {
        defer_hard_irqs: polls,
        gro_flush_timeout: Duration::from_micros(polls.into()),
        irq_suspend_timeout: Some(Duration::from_millis(polls.into())),
    }
}

pub fn outcomes(restored: &[Restored]) -> Vec<&Outcome> {
    restored.iter().map(|one| &one.outcome).collect()
}

/// All of them were put back: those of the interface, and those of its instances, which get back theirs.
#[track_caller]
pub fn assert_restored(restored: &[Restored]) {
    assert!(!restored.is_empty());
    assert!(
        restored.iter().all(|one| one.outcome == Outcome::Restored),
        "{restored:#?}"
    );
}
