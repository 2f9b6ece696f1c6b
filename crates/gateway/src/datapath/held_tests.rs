//! What is pinned goes on, or does not begin anew: with the program's maps, as root.

use std::path::Path;

use ringside_bpf::gateway::{GatewayProgram, Sizes};
use ringside_netlab::testing::is_root;

use super::*;

const SECOND: u64 = 1_000_000_000;

/// Maps of a process that has ended, until it is dropped.
struct Left(PathOptions);

impl Left {
    fn new() -> Self {
        let name = format!("ringside-held-{}", std::process::id());
        let pins = Path::new("/sys/fs/bpf").join(name);
        let sizes = Sizes {
            neighbors: 1,
            connections: 1,
            queues: 1,
            sample_bytes: 4096,
        };
        GatewayProgram::load(sizes).unwrap().pin(&attach::maps(&pins)).unwrap();
        Self(PathOptions {
            pins: Some(pins),
            ..PathOptions::default()
        })
    }

    fn lease(&self) -> PinnedLease {
        let folder = attach::maps(self.0.pins.as_deref().unwrap());
        PinnedLease::open(&folder).unwrap().unwrap()
    }

    /// So many seconds are left of the lease, as it was and after it was renewed.
    fn renewed(&self, left: u64, longest: Option<Duration>) -> u64 {
        self.lease().set(worker::now() + left * SECOND).unwrap();
        let mut held = Held::of(&self.0, longest).expect("it is pinned");
        held.begun = Instant::now().checked_sub(self.0.settings.unowned / 4).unwrap();
        held.renew();
        self.lease()
            .until()
            .unwrap()
            .saturating_sub(worker::now())
            .div_ceil(SECOND)
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        _ = attach::unpin(self.0.pins.as_deref().unwrap());
    }
}

#[test]
fn what_was_left_goes_on_while_somebody_starts() {
    if !is_root() {
        return;
    }
    let left = Left::new();
    assert_eq!(left.renewed(20, None), 60);
    assert_eq!(left.renewed(100, None), 100, "no shorter than it was");
    assert_eq!(left.renewed(0, None), 0, "what is over does not begin anew");
    assert_eq!(left.renewed(20, Some(Duration::from_secs(3600))), 60);
    assert_eq!(left.renewed(20, Some(Duration::ZERO)), 20, "what it knows is too old");
    left.lease().set(worker::now() + 20 * SECOND).unwrap();
    let before = left.lease().until().unwrap();
    Held::of(&left.0, None).unwrap().renew();
    assert_eq!(left.lease().until().unwrap(), before, "it has only begun");
    let none = PathOptions {
        pins: Some("/sys/fs/bpf/ringside-held-none".into()),
        ..PathOptions::default()
    };
    assert!(Held::of(&none, None).is_none() && Held::of(&PathOptions::default(), None).is_none());
}
