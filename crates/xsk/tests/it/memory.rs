//! Limits of memory: what is refused, is refused before anything was taken, and told to the byte.
//!
//! The processes with less are this very binary, started once more; see `common/child.rs`.

use std::path::Path;

use crate::common::PATIENCE;
use crate::common::child::{part, play, said, say_outcome};
use crate::common::{assert_clean, lab};
use ringside_netlab::testing::{MemoryGroup, is_root, join_group, skip_unsupported};
use ringside_nic::host::cgroup_memory;
use ringside_xsk::{Error, Interface, Mode, Port, Queue, QueueOptions};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// In which control group a child is to be.
const GROUP: &str = "RINGSIDE_TEST_GROUP";
/// A further interface of that namespace.
const SECOND: &str = "second";
const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// Not a test by itself: what the other processes do.
#[test]
#[ignore = "other tests run it in a process of its own"]
fn child() {
    let (part, interface) = part();
    if let Ok(group) = std::env::var(GROUP) {
        join_group(Path::new(&group));
    }
    // A kernel worker frees the queues and memory of the previous process later.
    let patient = QueueOptions::new().busy_timeout(PATIENCE);
    match part.as_str() {
        "open-port" => {
            say_outcome(Port::builder(interface).options(patient).open().map(drop));
        }
        "open-queue" => say_outcome(Queue::builder(&interface, 1).options(patient).open().map(drop)),
        "open-small-queue" => say_outcome(open_small(&interface, 1).map(drop)),
        "open-large-queue" => {
            let options = QueueOptions::new().frames(32768);
            say_outcome(Queue::builder(&interface, 1).options(options).open().map(drop));
        }
        "open-in-spite-of-limit" => {
            let hard = getrlimit(Resource::Memlock).maximum.expect("a limit");
            let more = Rlimit {
                current: Some(hard + 1),
                maximum: Some(hard + 1),
            };
            assert_eq!(
                setrlimit(Resource::Memlock, more),
                Err(Errno::PERM),
                "root, and refused"
            );
            say_outcome(open_small(&interface, 1).map(drop));
            say_outcome(Queue::builder(&interface, 1).open().map(drop));
            say_outcome(Port::builder(interface).open().map(drop));
        }
        "open-two-queues" => {
            // The limit is the user's, so that another process may take its part of it.
            say_outcome(open_small(&interface, 0).and_then(|first| {
                let second = open_small(&interface, 1)?;
                drop((first, second));
                Ok(())
            }));
        }
        "say-used" => {
            let group = cgroup_memory().expect("a control group with memory");
            println!("says: {}", group.used);
        }
        "open-two-ports" => {
            let second = Interface::by_name(SECOND).expect("the second interface");
            let options = patient.frame_size(4096).memory_shares(2);
            let open = |interface| {
                let port = Port::builder(interface).queues([0]).options(options.clone());
                // The memory of a step of the ladder that was refused is freed some time later.
                port.mode(Mode::Require(ringside_xsk::Path::NativeCopy))
                    .open()
                    .expect("opens")
            };
            let ports = [open(interface), open(second)];
            for report in ports.iter().flat_map(|port| &port.report().queues) {
                println!("says: {}: {}", report.frames, report.notes.join("; "));
            }
        }
        other => panic!("{other}"),
    }
}

/// 32 KiB of frames.
fn open_small(interface: &Interface, queue: u32) -> Result<Queue, Error> {
    let options = QueueOptions::new().frames(16).tx_ring(16);
    Queue::builder(interface, queue).options(options).open()
}

/// K14: with CAP_NET_RAW alone the locked memory is limited, and the error has the exact number of bytes.
#[test]
fn too_little_locked_memory_is_told_to_the_byte() {
    if !is_root() {
        return;
    }
    let lab = lab("k14memory", 2);
    let told = said(&mut play(
        &lab,
        "open-queue",
        "-all,+net_raw",
        Some((256 * KIB, 256 * KIB)),
    ));
    assert!(told.starts_with("Memory / "), "{told}");
    assert!(
        told.contains("1048576 bytes of memory are needed")
            && told.contains("RLIMIT_MEMLOCK is 262144 bytes and CAP_IPC_LOCK is missing"),
        "{told}"
    );
    assert!(
        told.contains("CAP_IPC_LOCK") && told.contains("ulimit -l") && told.contains("veth-b queue 1"),
        "{told}"
    );
    let told = said(&mut play(
        &lab,
        "open-small-queue",
        "-all,+net_raw",
        Some((256 * KIB, 256 * KIB)),
    ));
    assert_eq!(told, "opened", "32 KiB are within the limit");
    // Within the limit by itself, but not together with what is locked already: the kernel tells.
    let told = said(&mut play(
        &lab,
        "open-two-queues",
        "-all,+net_raw",
        Some((48 * KIB, 48 * KIB)),
    ));
    assert!(
        told.starts_with("Memory / ") && told.contains("32768 bytes of memory are needed"),
        "{told}"
    );
    assert!(
        told.contains("refused to pin") && told.contains("49152 bytes"),
        "{told}"
    );
    // With the capability the limit does not count.
    let told = said(&mut play(
        &lab,
        "open-queue",
        "-all,+net_raw,+ipc_lock",
        Some((4096, 4096)),
    ));
    assert_eq!(told, "opened");
    assert_clean(&lab.b);
}

/// Exactly enough is enough, although each step of the ladder of modes needs memory of its own.
#[test]
fn a_port_opens_with_exactly_enough_locked_memory() {
    if !is_root() {
        return;
    }
    let lab = lab("k14exact", 2);
    let exactly = Some((2 * MIB, 2 * MIB));
    for _ in 0..5 {
        let told = said(&mut play(&lab, "open-port", "-all,+net_raw,+net_admin,+bpf", exactly));
        assert_eq!(told, "opened");
    }
    assert_clean(&lab.b);
}

/// K14: root that may not raise the limit gets by with what there is: up to the hard limit.
#[test]
fn a_limit_that_cannot_be_raised_is_no_error_by_itself() {
    if !is_root() {
        return;
    }
    let lab = lab("k14hard", 2);
    let root_but = "+all,-sys_resource,-ipc_lock";
    let limit = Some((16 * KIB, 256 * KIB));
    let told = said(&mut play(&lab, "open-in-spite-of-limit", root_but, limit));
    let told: Vec<&str> = told.lines().collect();
    // 32 KiB: beyond the soft limit, within the hard one.
    assert_eq!(told[0], "opened");
    for (told, needed) in [(told[1], MIB), (told[2], 2 * MIB)] {
        assert!(
            told.starts_with("Memory / ")
                && told.contains(&format!("{needed} bytes of memory are needed"))
                && told.contains("RLIMIT_MEMLOCK is 262144 bytes and CAP_IPC_LOCK is missing"),
            "{told}"
        );
    }
    assert_clean(&lab.b);
}

/// What the control group has no room for is refused before it is mapped: the kernel would kill the process instead.
#[test]
fn too_little_memory_of_the_control_group_is_told_to_the_byte() {
    if !is_root() {
        return;
    }
    const LIMIT: u64 = 32 * MIB;
    let Some(group) = MemoryGroup::with_limit(LIMIT) else {
        return skip_unsupported("a control group below which one with a memory limit can be made");
    };
    let lab = lab("cgroup", 2);
    let inside = |part| said(play(&lab, part, "+all", None).env(GROUP, group.path()));
    assert_eq!(inside("open-queue"), "opened", "1 MiB fits");

    let told = inside("open-large-queue");
    assert!(
        told.starts_with("Memory / ") && told.contains("veth-b queue 1: 67108864 bytes of memory are needed"),
        "{told}"
    );
    let place = format!("the control group {} has ", group.path().display());
    let (left, rest) = told
        .split_once(&place)
        .and_then(|(_, rest)| rest.split_once(' '))
        .unwrap_or_else(|| panic!("no {place}: {told}"));
    assert!((1..LIMIT).contains(&left.parse().unwrap()), "{told}");
    assert!(
        rest.starts_with(&format!("bytes left of its memory limit of {LIMIT}")) && rest.contains("use fewer frames"),
        "{told}"
    );
    assert_clean(&lab.b);
    let path = group.path().to_owned();
    drop(group);
    assert!(!path.exists(), "{} is left", path.display());
}

#[test]
fn ports_get_equal_shares_of_what_a_control_group_has_left() {
    if !is_root() {
        return;
    }
    let Some(group) = MemoryGroup::with_limit(256 * MIB) else {
        return skip_unsupported("a control group below which one with a memory limit can be made");
    };
    let lab = lab("cgroupshares", 1);
    for arguments in [
        &["link", "add", SECOND, "type", "veth", "peer", "name", "peer"][..],
        &["link", "set", SECOND, "up"],
        &["link", "set", "peer", "up"],
    ] {
        let status = lab.b.ns.command("ip").args(arguments).status();
        assert!(status.expect("ip").success(), "{arguments:?}");
    }
    let inside = |part| said(play(&lab, part, "+all", None).env(GROUP, group.path()));
    // What such a process uses before it opens anything.
    let used: u64 = inside("say-used").parse().expect("bytes");
    // Two ports with 2048 frames of 4 KiB take 16 MiB. From 24 MiB on half of what the first one
    // leaves would be enough for the second one, too.
    let limit = used + 20 * MIB;
    group.set_limit(limit).expect("a limit above what is used");
    let told = inside("open-two-ports");
    let notes: Vec<&str> = told.lines().collect();
    assert_eq!(notes.len(), 2, "{told}");
    let group = format!("the control group {}", group.path().display());
    let reason = format!("2048: 2048 frames instead of 4096, because {group} has ");
    let shared = format!(" bytes left of its memory limit of {limit}, shared by 2 ports");
    for note in notes {
        assert!(note.starts_with(&reason) && note.contains(&shared), "{told}");
    }
}
