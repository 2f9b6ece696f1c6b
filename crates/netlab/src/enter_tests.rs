use super::*;

#[test]
fn only_the_outermost_mounts_below_sys_are_carried() {
    let mountinfo = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
23 27 0:22 / /sys rw,relatime - sysfs sysfs rw
30 23 0:30 / /sys/fs/cgroup rw - tmpfs tmpfs rw
31 30 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
32 23 0:32 / /sys/fs/bpf rw - bpf bpf rw
33 23 0:33 / /sys/fs/cgroup2 rw - cgroup2 cgroup2 rw
34 27 0:34 / /system rw - tmpfs tmpfs rw
35 23 0:35 / /sys/fs/bpf rw - bpf bpf rw
garbage
";
    let expected = [c"/sys/fs/bpf", c"/sys/fs/cgroup", c"/sys/fs/cgroup2"];
    assert_eq!(mounts_below_sys(mountinfo), expected.map(CStr::to_owned));
    assert!(mounts_below_sys("").is_empty());
}
