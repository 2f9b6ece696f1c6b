//! What an interface and this kernel can do: with everything, and with as little as a process may have.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::DirEntry;

use crate::common::PATIENCE;
use crate::common::child::{part, play, said};
use crate::common::{assert_clean, lab};
use libbpf_rs::query::ProgInfoIter;
use ringside_netlab::testing::is_root;
use ringside_netlab::wait_until;
use ringside_xsk::{Capabilities, Error, KernelCapabilities, Support};
use serde_json::Value;

/// Not a test by itself: what the other processes do.
#[test]
#[ignore = "other tests run it in a process of its own"]
fn child() {
    let (part, interface) = part();
    let before = (open_files(), namespaces());
    let capabilities = Capabilities::of(&interface).unwrap();
    let after = || (open_files(), namespaces());
    // A thread that has been joined is in the list of threads a moment longer.
    wait_until(PATIENCE, || before == after());
    assert_eq!(before, after(), "left open, or not where it was");
    match part.as_str() {
        "json" => println!("says: {}", serde_json::to_string(&capabilities).unwrap()),
        "text" => capabilities
            .to_string()
            .lines()
            .for_each(|line| println!("says: {line}")),
        other => panic!("{other}"),
    }
}

/// Numbers of the open descriptors of the process, except that of the directory it reads here.
///
/// Not their targets: the process may have inherited one from another test's thread (libbpf opens
/// `/sys/fs/bpf` without `O_CLOEXEC`), whose target changes when that test unmounts it.
fn open_files() -> BTreeSet<OsString> {
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    let is_other = |file: &DirEntry| {
        std::fs::read_link(file.path()).is_ok_and(|target| !target.display().to_string().contains("/fd"))
    };
    files
        .map(Result::unwrap)
        .filter(is_other)
        .map(|file| file.file_name())
        .collect()
}

/// The network namespaces of its threads.
fn namespaces() -> BTreeSet<String> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let links = threads.filter_map(|thread| std::fs::read_link(thread.unwrap().path().join("ns/net")).ok());
    links.map(|link| link.display().to_string()).collect()
}

/// "6.18.44-something" → (6, 18)
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// A kernel has at least what came with its version or before; on 6.17 and later that is everything.
#[test]
fn root_sees_all_that_the_kernel_brings() {
    if !is_root() {
        return;
    }
    let kernel = KernelCapabilities::probe();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(kernel.release, release.trim());
    assert_eq!(kernel.features().count(), 15);
    for feature in kernel.features() {
        assert!(
            *feature.support == Support::Yes || version(feature.since) > version(&release),
            "{}: {}",
            feature.name,
            feature.support
        );
        assert_ne!(feature.support.known(), None, "{}: {}", feature.name, feature.support);
    }
    let mut versions: Vec<_> = kernel.features().map(|feature| version(feature.since)).collect();
    versions.sort_unstable();
    let listed = kernel.features().map(|feature| version(feature.since));
    assert!(listed.eq(versions), "oldest first");
}

/// Neither a change of the interface nor a program that was loaded for a try. Descriptors: see `child`.
#[test]
fn nothing_is_left_behind() {
    if !is_root() {
        return;
    }
    let lab = lab("capsleft", 2);
    let before = lab.b.state().unwrap();
    for _ in 0..3 {
        lab.b.run(|| Capabilities::of(&lab.b.interface)).unwrap();
    }
    let after = lab.b.state().unwrap();
    assert_eq!(
        (before.mtu, before.xdp, before.admin_up),
        (after.mtu, after.xdp, after.admin_up)
    );
    said(&mut play(&lab, "json", "+all", None));
    // Other tests probe at the same time, and the kernel frees programs a little later.
    let gone = wait_until(PATIENCE, || {
        !ProgInfoIter::default().any(|program| program.name == "ringside_probe")
    });
    assert!(gone, "a program is left");
    assert_clean(&lab.b);
}

#[test]
fn of_a_veth() {
    if !is_root() {
        return;
    }
    let lab = lab("capsveth", 2);
    let capabilities = lab.b.run(|| Capabilities::of(&lab.b.interface)).unwrap();
    assert_eq!(capabilities.interface, "veth-b");
    assert_eq!(capabilities.driver.as_deref(), Some("veth"));
    let told = lab.b.run(|| lab.b.interface.device_capabilities()).unwrap();
    assert_eq!(capabilities.device, told);
    let json = serde_json::to_value(&capabilities).unwrap();
    let features = json["device"]["xdp_features"].as_array().unwrap();
    assert!(
        features.contains(&"basic".into()) && features.contains(&"redirect".into()),
        "{json}"
    );
    assert!(!features.contains(&"xsk-zerocopy".into()), "{json}");
    // The same index may be somebody else's here.
    let error = Capabilities::of(&lab.b.interface).unwrap_err();
    assert!(matches!(error, Error::Interface(_)), "{error:?}");
    assert!(error.to_string().contains("another network namespace"), "{error}");
}

/// What cannot be tried is unknown, and the capability that is missing is named: it and no other.
#[test]
fn with_less_the_missing_capabilities_are_named() {
    if !is_root() {
        return;
    }
    let lab = lab("capsless", 1);
    let told = |held: &str, memlock| -> Value {
        let capabilities = format!("-all{held}");
        serde_json::from_str(&said(&mut play(&lab, "json", &capabilities, memlock))).unwrap()
    };
    let sockets = [
        "af_xdp",
        "need_wakeup",
        "six_statistics",
        "unaligned_chunks",
        "tx_metadata",
        "tx_metadata_len_flag",
        "tx_software_checksum",
        "tx_budget",
    ];
    let umem = &sockets[3..7];
    let private = ["multi_buffer", "shared_umem", "xdp_link", "device_bound_programs"];
    let unknown = |json: &Value, names: &[&str], reason: &str| {
        for name in names {
            let entry = &json["kernel"][name];
            assert!(entry["available"].is_null(), "{name}: {entry}");
            assert_eq!(entry["reason"], reason, "{name}");
        }
    };
    let known = |json: &Value, names: &[&str]| {
        for name in names {
            let entry = &json["kernel"][name];
            assert!(
                entry["available"].is_boolean() && entry["reason"].is_null(),
                "{name}: {entry}"
            );
        }
    };
    let (raw, load) = ("socket(AF_XDP) needs CAP_NET_RAW", "loading an XDP program needs ");
    let own = "a network namespace of its own needs CAP_SYS_ADMIN";

    let none = told("", None);
    unknown(&none, &sockets, raw);
    unknown(&none, &["preferred_busy_poll"], raw);
    unknown(&none, &private, own);
    unknown(&none, &["frags_programs"], &format!("{load}CAP_BPF and CAP_NET_ADMIN"));
    // The device tells everybody.
    let features = none["device"]["xdp_features"].as_array().unwrap();
    assert!(features.contains(&"basic".into()), "{none}");

    let json = told(",+net_raw", None);
    known(&json, &sockets);
    assert_eq!(json["kernel"]["af_xdp"]["available"], true);
    unknown(
        &json,
        &["preferred_busy_poll"],
        "SO_BUSY_POLL_BUDGET needs CAP_NET_ADMIN",
    );
    unknown(&json, &private, own);

    let json = told(",+net_raw,+net_admin,+bpf", None);
    known(&json, &sockets);
    known(&json, &["preferred_busy_poll", "frags_programs"]);
    unknown(&json, &private, own);

    let json = told(",+net_raw,+sys_admin", None);
    unknown(&json, &private, "switching on an interface needs CAP_NET_ADMIN");

    let json = told(",+sys_admin,+net_admin", None);
    unknown(&json, &["multi_buffer", "shared_umem", "tx_budget"], raw);
    // CAP_SYS_ADMIN stands for CAP_BPF.
    known(&json, &["xdp_link", "device_bound_programs", "frags_programs"]);

    let json = told(",+net_raw,+net_admin,+bpf,+sys_admin", Some((0, 0)));
    known(
        &json,
        &["af_xdp", "need_wakeup", "six_statistics", "tx_budget", "xdp_link"],
    );
    for name in umem.iter().chain(&private[..2]) {
        let reason = json["kernel"][name]["reason"].as_str().unwrap();
        assert!(reason.contains("RLIMIT_MEMLOCK is 0 bytes"), "{name}: {reason}");
        assert!(reason.contains("CAP_IPC_LOCK is missing"), "{name}: {reason}");
    }

    let text = said(&mut play(&lab, "text", "-all", None));
    assert!(text.contains("AF_XDP sockets") && text.contains("unknown because: socket(AF_XDP) needs CAP_NET_RAW"));
    assert_clean(&lab.b);
}
