//! Faults under traffic. Each test lets packets flow all the while, breaks something, and adds up: no packet is lost or
//! there twice without being counted, nothing stays behind, and what can recover does within two seconds. Processes that lack
//! a capability are in `privileges.rs`.

mod fork;
mod jam;
mod kill;
mod last_words;
mod limits;
mod link;
mod pause;
mod race;
mod server;
mod shared;
mod starve;

use crate::common;
use std::time::Duration;

use ringside_netlab::VethConfig;
use ringside_netlab::testing::{Off, is_root, measured};
use ringside_xsk::Path;

/// Within which everything recovers that can.
const RECOVERY: Duration = Duration::from_secs(2);

/// A link as [`common::lab`] makes it, to be put in the place of one that was deleted.
fn successor(queues: u32) -> VethConfig {
    VethConfig {
        queues,
        tx_checksum: false,
        ipv6: false,
        gro: true,
        ..VethConfig::default()
    }
}

/// Runs a test in every mode at the same time, each with a tag of its own for its lab.
fn in_every_mode(tag: &str, test: impl Fn(Path, &str) -> Result<(), Off> + Sync) {
    if !is_root() {
        return;
    }
    std::thread::scope(|scope| {
        let modes = common::MODES.map(|path| {
            let test = &test;
            let tag = format!("{tag}-{}", path.name());
            scope.spawn(move || measured(|| test(path, &tag)))
        });
        for mode in modes {
            mode.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}

/// Not a test by itself: what the other processes do.
#[test]
#[ignore = "other tests run it in a process of its own"]
fn child() {
    let (part, interface) = common::child::part();
    match part.as_str() {
        "fork" => fork::play(interface),
        "compete" => race::compete(&interface),
        "serve" => server::serve(interface),
        other => panic!("{other}"),
    }
}
