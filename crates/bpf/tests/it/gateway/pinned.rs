//! A data path that outlives its process.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use ringside_bpf::gateway::{GatewayProgram, Lease, Outcome, PinnedLease};
use ringside_bpf::testing::of_another_version;
use ringside_bpf::{Error, Generator, GeneratorOptions, Neighbours, Sink, Verdict, XdpMode, dry_run};

use crate::common::{DEVICE, Pair, privileged, settled};
use crate::gateway::bed::{Bed, LOOPBACK, Wanted, in_namespace};
use crate::gateway::fixtures::udp;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A bpffs of the test's own.
pub(crate) struct Bpffs(PathBuf);

impl Bpffs {
    pub(crate) fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("rsb-bpffs-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        let mounted = Command::new("mount").args(["-t", "bpf", "bpf"]).arg(&path).status();
        assert!(mounted.unwrap().success());
        Self(path)
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.0.join("gateway")
    }
}

impl Drop for Bpffs {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        if !unmounted.is_ok_and(|status| status.success()) || fs::remove_dir(&self.0).is_err() {
            eprintln!("{} could not be removed", self.0.display());
        }
    }
}

#[test]
fn maps_are_taken_over_with_what_is_in_them() {
    if !privileged() {
        return;
    }
    in_namespace(|second| {
        let bpffs = Bpffs::new();
        let folder = bpffs.folder();
        assert!(GatewayProgram::adopt(&folder).unwrap().is_none(), "nothing is there");
        let bed = Bed::new(second, Wanted::default());
        let frame = udp(2, b"data").bytes();
        let first = bed.run(&frame);
        bed.program.pin(&folder).unwrap();
        let refused = bed.program.pin(&folder).unwrap_err();
        assert_eq!(refused.errno(), Some(17), "{refused}");
        let sizes = bed.program.sizes();
        drop(bed);

        let next = GatewayProgram::adopt(&folder).unwrap().expect("it was pinned");
        assert_eq!(next.sizes(), sizes);
        assert_eq!(dry_run(&next, &frame).unwrap(), (Verdict::Tx, first.bytes));
        assert_eq!(next.count(Outcome::Forwarded).unwrap().packets, 2, "counted on");
        drop(next);
        GatewayProgram::unpin(&folder).unwrap();
        GatewayProgram::unpin(&folder).unwrap();
        assert!(GatewayProgram::adopt(&folder).unwrap().is_none());
        assert!(!folder.exists());
    });
}

/// Who starts, and takes long, can say that what is pinned goes on meanwhile.
#[test]
fn a_lease_is_had_before_the_maps_are() {
    if !privileged() {
        return;
    }
    in_namespace(|second| {
        let bpffs = Bpffs::new();
        let folder = bpffs.folder();
        assert!(PinnedLease::open(&folder).unwrap().is_none(), "nothing is there");
        let bed = Bed::new(second, Wanted::default());
        bed.program.pin(&folder).unwrap();
        let first = Lease { until: 17, longest: 18 };
        bed.program.lease(first).unwrap();
        let lease = PinnedLease::open(&folder).unwrap().expect("it is pinned");
        assert_eq!((lease.read().unwrap(), bed.program.leased().unwrap()), (first, first));
        let second = Lease {
            until: u64::MAX,
            ..first
        };
        lease.set(second).unwrap();
        let another = PinnedLease::open(&folder).unwrap().expect("it is pinned");
        assert_eq!(another.read().unwrap(), second);
        GatewayProgram::unpin(&folder).unwrap();
    });
}

#[test]
fn maps_of_another_version_are_refused() {
    if !privileged() {
        return;
    }
    in_namespace(|second| {
        let bpffs = Bpffs::new();
        let folder = bpffs.folder();
        Bed::new(second, Wanted::default()).program.pin(&folder).unwrap();
        of_another_version(&folder).unwrap();
        // It can be told to go on all the same.
        let lease = PinnedLease::open(&folder).unwrap().expect("it is pinned");
        let until = Lease { until: 17, longest: 18 };
        lease.set(until).unwrap();
        assert_eq!(lease.read().unwrap(), until);
        // But for one whose lease is another thing.
        let [counters, lease] = ["counters", "lease"].map(|name| folder.join(name));
        fs::rename(counters, lease).unwrap();
        assert!(PinnedLease::open(&folder).unwrap().is_none());
        let refused = GatewayProgram::adopt(&folder).unwrap_err();
        assert!(matches!(refused, Error::Layout { found: 99, .. }), "{refused}");
        let text = refused.to_string();
        assert!(
            text.contains(&folder.display().to_string()) && text.contains("remove the folder"),
            "{text}"
        );
    });
}

#[test]
fn a_folder_that_is_no_bpffs() {
    if !privileged() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("rsb-none-{}", std::process::id()));
    in_namespace(|second| {
        let refused = Bed::new(second, Wanted::default()).program.pin(&folder).unwrap_err();
        assert!(refused.to_string().contains("is it in a bpffs?"), "{refused}");
    });
    fs::remove_dir(&folder).unwrap();
}

/// Packets that are sent on while nobody runs, and while the program is replaced: none goes astray.
#[test]
fn packets_go_on_without_a_process() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    let bpffs = Bpffs::new();
    let (folder, link_path) = (bpffs.folder(), bpffs.folder().join("link"));
    let sink = Sink::load(Neighbours::Pass).unwrap();
    let frame = udp(2, b"data").bytes();
    pair.left.enter(|left| {
        let _left = sink.attach(left, XdpMode::Native).unwrap();
        let send = |count| {
            Generator::new(left, &frame, GeneratorOptions::default())
                .unwrap()
                .run(count)
                .unwrap()
        };
        let right = pair.right.enter(|right| {
            let bed = Bed::new(LOOPBACK, Wanted::default());
            let mut config = bed.config.clone();
            config.ports[0].as_mut().unwrap().ifindex = right;
            config.sampling = None;
            bed.program.configure(&config).unwrap();
            bed.program.pin(&folder).unwrap();
            _ = bed.program.attach_pinned(right, XdpMode::Native, &link_path).unwrap();
            right
        });
        // Nobody has the program any more.
        let mut sent = send(10_000).transmitted;
        assert!(settled(|| sink.traffic().unwrap()).packets > 0, "it is still there");

        let next = pair.right.enter(|_| GatewayProgram::adopt(&folder).unwrap().unwrap());
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert!(next.take_over(right, &link_path).unwrap().is_some());
                }
            });
            sent += send(100_000).transmitted;
            done.store(true, Ordering::Relaxed);
        });
        let forwarded = settled(|| next.count(Outcome::Forwarded).unwrap());
        assert_eq!(forwarded.packets, sent, "each by one of the programs");
        assert_eq!(next.count(Outcome::Passed).unwrap().packets, 0);

        // That of another interface is no use, and of one that is gone neither.
        assert!(next.take_over(right + 1, &link_path).unwrap().is_none());
        assert!(!link_path.exists());
        assert!(next.take_over(right, &link_path).unwrap().is_none());
    });
}

/// The interface goes away with the link's file still there.
#[test]
fn a_link_whose_interface_is_gone() {
    if !privileged() {
        return;
    }
    let bpffs = Bpffs::new();
    let folder = bpffs.folder();
    let link_path = folder.join("link");
    let pair = Pair::new();
    let program = GatewayProgram::load(crate::gateway::bed::SIZES).unwrap();
    program.pin(&folder).unwrap();
    let index = pair.right.enter(|index| {
        _ = program.attach_pinned(index, XdpMode::Generic, &link_path).unwrap();
        index
    });
    pair.right.command(&format!("ip link del {DEVICE}"));
    assert!(program.take_over(index, &link_path).unwrap().is_none());
    assert!(!link_path.exists());
}
