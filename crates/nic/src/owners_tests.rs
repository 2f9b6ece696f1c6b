use super::*;

#[test]
fn fields_are_found_by_their_whole_name() {
    let info = Info("pos:\t0\nlink_type:\txdp\nlink_id:\t7\nprog_id:\t9\nifindex:\t12\n".to_owned());
    assert_eq!(
        (info.text("link_type"), info.number("link_id"), info.number("ifindex")),
        (Some("xdp"), Some(7), Some(12))
    );
    assert_eq!(
        (info.text("link"), info.number("link_type"), info.number("map_id")),
        (None, None, None)
    );
}

#[test]
fn only_descriptors_of_the_kind_are_looked_at() {
    let root = std::env::temp_dir().join(format!("ringside-nic-owners-{}", std::process::id()));
    let descriptor = |pid: &str, fd: &str, target: &str, info: &str| {
        for directory in ["fd", "fdinfo"] {
            fs::create_dir_all(root.join(pid).join(directory)).unwrap();
        }
        std::os::unix::fs::symlink(target, root.join(pid).join("fd").join(fd)).unwrap();
        fs::write(root.join(pid).join("fdinfo").join(fd), info).unwrap();
    };
    descriptor("12", "3", "anon_inode:bpf_link", "link_id:\t1\n");
    descriptor("12", "4", "anon_inode:bpf-map", "link_id:\t2\n");
    descriptor("self", "5", "anon_inode:bpf_link", "link_id:\t3\n");
    let found = scan(&root, "anon_inode:bpf_link", |process, info| {
        Some((process.pid, info.number("link_id")))
    });
    fs::remove_dir_all(&root).unwrap();
    assert_eq!(found, [(12, Some(1))]);
}
