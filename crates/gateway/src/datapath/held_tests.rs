//! What is pinned goes on, or does not begin anew: with the program's maps, as root.

use std::path::Path;

use ringside_bpf::gateway::{GatewayProgram, Sizes};
use ringside_bpf::testing::of_another_version;
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
    fn renewed(&self, left: u64, longest: u64) -> u64 {
        self.lease().set(lease(left, longest)).unwrap();
        let mut held = Held::of(&self.0).expect("it is pinned");
        held.begun = Instant::now().checked_sub(self.0.settings.unowned / 4).unwrap();
        held.renew();
        self.lease()
            .read()
            .unwrap()
            .until
            .saturating_sub(worker::now())
            .div_ceil(SECOND)
    }
}

/// Seconds from now.
fn lease(until: u64, longest: u64) -> Lease {
    let [until, longest] = [until, longest].map(|seconds| worker::now() + seconds * SECOND);
    Lease { until, longest }
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
    assert_eq!(left.renewed(20, 3600), 60);
    assert_eq!(left.renewed(100, 3600), 100, "no shorter than it was");
    assert_eq!(left.renewed(0, 3600), 0, "what is over does not begin anew");
    assert_eq!(left.renewed(20, 40), 40, "what it knows is too old then");
    assert_eq!(left.renewed(20, 0), 20, "what it knows is too old");
    let before = lease(20, 3600);
    left.lease().set(before).unwrap();
    Held::of(&left.0).unwrap().renew();
    assert_eq!(left.lease().read().unwrap(), before, "it has only begun");
    of_another_version(&attach::maps(left.0.pins.as_deref().unwrap())).unwrap();
    assert_eq!(left.renewed(20, 3600), 60, "of another version");
    let none = PathOptions {
        pins: Some("/sys/fs/bpf/ringside-held-none".into()),
        ..PathOptions::default()
    };
    assert!(Held::of(&none).is_none() && Held::of(&PathOptions::default()).is_none());
}
