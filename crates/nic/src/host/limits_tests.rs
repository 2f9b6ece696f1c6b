use super::*;

#[test]
fn capabilities_are_read_from_their_bits() {
    let caps = Capabilities::parse("Name:\tx\nCapPrm:\tffff\nCapEff:\t0000000000003000\n").unwrap();
    assert!(caps.has(Cap::NetAdmin) && caps.has(Cap::NetRaw));
    assert!(!caps.has(Cap::IpcLock) && !caps.has(Cap::Bpf));
    assert_eq!(Capabilities::parse("CapPrm:\tffff\n"), None);
    assert!(Capabilities::effective().is_ok());
}

#[test]
fn both_versions_of_control_groups_are_located() {
    let mounts = "\
30 23 0:30 / /sys/fs/cgroup rw - tmpfs tmpfs rw
31 30 0:31 / /sys/fs/cgroup/memory rw,nosuid shared:5 - cgroup cgroup rw,memory
32 30 0:32 / /sys/fs/cgroup/unified rw - cgroup2 none rw
";
    let groups = "4:cpu,cpuacct:/x\n3:memory:/a/b\n0::/c\n";
    let found = |version| locate(version, groups, mounts).map(|(m, g)| m.join(g));
    assert_eq!(found(Version::One), Some("/sys/fs/cgroup/memory/a/b".into()));
    assert_eq!(found(Version::Two), Some("/sys/fs/cgroup/unified/c".into()));
    // In a container that sees only its own subtree.
    let contained = "31 30 0:31 /a /sys/fs/cgroup rw - cgroup2 none rw\n";
    assert_eq!(
        locate(Version::Two, "0::/a/b\n", contained),
        Some(("/sys/fs/cgroup".into(), "b".into()))
    );
    assert_eq!(locate(Version::One, "0::/a\n", mounts), None);
}

#[test]
fn the_group_that_leaves_least_counts() {
    let root = std::env::temp_dir().join(format!("ringside-nic-cgroup-{}", std::process::id()));
    let group = |path: &str, limit: &str, used: &str| {
        let directory = root.join(path);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("memory.max"), limit).unwrap();
        fs::write(directory.join("memory.current"), used).unwrap();
    };
    group("a/b", "max\n", "10\n");
    group("a", "1000\n", "900\n");
    let found = tightest(Version::Two, &root, Path::new("a/b")).unwrap();
    assert_eq!(
        (found.path.as_path(), found.limit, found.available()),
        (root.join("a").as_path(), Some(1000), Some(100))
    );
    group("a", "max\n", "900\n");
    let found = tightest(Version::Two, &root, Path::new("a/b")).unwrap();
    assert_eq!((found.path, found.limit, found.used), (root.join("a/b"), None, 10));
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn this_machine_has_a_memory_group_or_none() {
    if let Some(memory) = cgroup_memory() {
        assert!(memory.path.is_dir() && memory.used > 0, "{memory:?}");
    }
}
