//! Test beds in a chroot whose `/` is a plain directory, as package builders and rescue systems have it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringside_netlab::{Namespace, testing};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount};

/// What a program needs to run; `/sys` comes extra.
const SYSTEM: [&str; 6] = ["usr", "bin", "lib", "lib64", "proc", "dev"];

/// A directory to change the root to, gone when dropped.
struct Root {
    /// A file system of its own, so that one unmount ends everything below it.
    base: PathBuf,
}

impl Root {
    fn new(tag: &str, sysfs: bool) -> Self {
        let base = std::env::temp_dir().join(format!("ringside-{}-{tag}", std::process::id()));
        fs::create_dir(&base).unwrap();
        let root = Self { base };
        mount("tmpfs", &root.base, "tmpfs", MountFlags::empty(), None).unwrap();
        // Its own peer group, in which mounts propagate: one that came out of the chroot's namespace would show here.
        for kind in [MountPropagationFlags::PRIVATE, MountPropagationFlags::SHARED] {
            mount_change(&root.base, kind).unwrap();
        }
        for name in SYSTEM {
            root.bind(name);
        }
        match sysfs {
            true => root.bind("sys"),
            false => fs::create_dir(root.path().join("sys")).unwrap(),
        }
        testing::copy_program(std::env::current_exe().unwrap(), root.path().join("test"));
        root
    }

    /// Not a mount point itself.
    fn path(&self) -> PathBuf {
        self.base.join("root")
    }

    fn bind(&self, name: &str) {
        let (from, to) = (Path::new("/").join(name), self.path().join(name));
        if !from.exists() {
            return;
        }
        fs::create_dir_all(&to).unwrap();
        mount_bind(&from, &to).unwrap();
        for kind in [MountPropagationFlags::PRIVATE, MountPropagationFlags::SHARED] {
            mount_change(&to, kind).unwrap();
        }
    }

    fn mounts(&self) -> Vec<String> {
        let base = self.base.to_str().unwrap();
        mount_points()
            .into_iter()
            .filter(|path| path.starts_with(base))
            .collect()
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = unmount(&self.base, UnmountFlags::DETACH);
        let _ = fs::remove_dir(&self.base);
    }
}

fn mount_points() -> Vec<String> {
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    points.map(str::to_owned).collect()
}

#[test]
fn a_namespace_is_made_and_entered_in_a_chroot() {
    if !testing::is_root() {
        return;
    }
    for (tag, sysfs) in [("sysfs", true), ("empty", false)] {
        let root = Root::new(tag, sysfs);
        let before = root.mounts();
        assert!(
            !before.contains(&root.path().to_str().unwrap().to_owned()),
            "{before:?}"
        );
        let output = Command::new("chroot")
            .arg(root.path())
            .args(["/test", "--exact", "chroot::inside", "--ignored", "--nocapture"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{tag}: {output:#?}");
        assert!(
            String::from_utf8_lossy(&output.stdout).contains("entered"),
            "{output:#?}"
        );
        // What stays is the place for names, which is a mount as iproute2 has it.
        let names = root.path().join("run/netns");
        let expected = [before, vec![names.to_str().unwrap().to_owned()]].concat();
        assert_eq!(root.mounts(), expected, "{tag}: a mount came out of the namespace");
        assert_eq!(fs::read_dir(names).unwrap().count(), 0);
        let base = root.base.clone();
        drop(root);
        assert!(!base.exists());
    }
}

#[test]
#[ignore = "a_namespace_is_made_and_entered_in_a_chroot runs it in a process of its own"]
fn inside() {
    assert!(!mount_points().contains(&"/".to_owned()), "{:?}", mount_points());
    std::env::set_current_dir("/usr/bin").unwrap();
    let outside = fs::read_dir("/sys").unwrap().count();
    let names = || -> Vec<_> {
        let entries = fs::read_dir("/sys/class/net").unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    };
    let ns = Namespace::create("chroot").unwrap();
    // Still in the chroot, in the directory it was in, and with the namespace's own sysfs.
    ns.run(|| {
        assert_eq!(names(), ["lo"]);
        assert_eq!(std::env::current_dir().unwrap(), Path::new("/usr/bin"));
        assert!(Path::new("/test").is_file());
    });
    ns.spawn(|| assert!(Path::new("/test").is_file()))
        .unwrap()
        .join()
        .unwrap();
    let listing = ns
        .command("/bin/sh")
        .args(["-c", "pwd; ls /test /sys/class/net"])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&listing.stdout),
        "/usr/bin\n/test\n\n/sys/class/net:\nlo\n"
    );
    assert_eq!(fs::read_dir("/sys").unwrap().count(), outside);
    println!("entered");
}
