//! Namespaces appear, isolate and vanish: on drop, on panic and after a kill.

use std::io::{BufRead as _, BufReader};
use std::os::fd::AsRawFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ringside_netlab::{Namespace, reap_stale, testing, wait_until};
use ringside_nic::Interface;

/// Set in a copy that has mounts of its own.
const INSIDE: &str = "RINGSIDE_NETLAB_INSIDE";

fn ip_netns() -> String {
    let output = Command::new("ip").args(["netns", "list"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_namespace_appears_and_vanishes() {
    if !testing::is_root() {
        return;
    }
    let ns = Namespace::create("appears").unwrap();
    let (name, path) = (ns.name().to_owned(), ns.path().to_owned());
    assert!(name.len() <= 60 && name.ends_with("-appears"), "{name}");
    assert!(ip_netns().contains(&name));
    let links = Command::new("ip")
        .args(["netns", "exec", &name, "ip", "-o", "link"])
        .output()
        .unwrap();
    let links = String::from_utf8(links.stdout).unwrap();
    assert!(
        links.lines().count() == 1 && links.contains("lo: <LOOPBACK,UP,LOWER_UP>"),
        "{links}"
    );
    assert!(ns.fd().as_raw_fd() >= 0);
    drop(ns);
    assert!(!path.exists() && !ip_netns().contains(&name));
}

#[test]
fn a_closure_inside_sees_only_its_namespace() {
    if !testing::is_root() {
        return;
    }
    let outside: Vec<_> = Interface::all().unwrap();
    let ns = Namespace::create("inside").unwrap();
    let (names, sysfs, bpf) = ns.run(|| {
        let names: Vec<_> = Interface::all().unwrap().iter().map(|i| i.name().to_owned()).collect();
        let sysfs: Vec<_> = std::fs::read_dir("/sys/class/net")
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        (names, sysfs, Path::new("/sys/fs/bpf").is_dir())
    });
    assert_eq!(names, ["lo"]);
    assert_eq!(sysfs, ["lo"], "sysfs is that of the namespace");
    assert!(bpf);
    // The calling thread and its /sys are as before.
    assert_eq!(Interface::all().unwrap(), outside);
    for interface in &outside {
        assert!(Path::new("/sys/class/net").join(interface.name()).exists());
    }
    // A handle from outside does not act on the namesake inside.
    let lo = Interface::by_name("lo").unwrap();
    let error = ns.run(|| lo.set_mtu(1280)).unwrap_err();
    assert!(error.to_string().contains("another network namespace"), "{error}");
}

#[test]
fn file_systems_below_sys_are_carried_inside() {
    if !testing::is_root() {
        return;
    }
    let below = |path: &str| {
        let mounts = std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        let mut points: Vec<_> = mounts
            .lines()
            .filter_map(|line| line.split(' ').nth(4))
            .map(str::to_owned)
            .collect();
        points.retain(|point| point.starts_with(path));
        points.sort();
        points.dedup();
        points
    };
    let ns = Namespace::create("carried").unwrap();
    assert_eq!(ns.run(|| below("/sys/")), below("/sys/"));
}

#[test]
fn a_panic_inside_comes_out_and_leaves_nothing() {
    if !testing::is_root() {
        return;
    }
    let mut path = None;
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let ns = Namespace::create("panic").unwrap();
        path = Some(ns.path().to_owned());
        ns.run(|| panic!("the reason {}", std::hint::black_box(42)));
    }))
    .unwrap_err();
    assert_eq!(
        panic.downcast_ref::<String>().map(String::as_str),
        Some("the reason 42")
    );
    assert!(!path.unwrap().exists());
}

#[test]
fn a_spawned_thread_outlives_the_handle() {
    if !testing::is_root() {
        return;
    }
    let ns = Namespace::create("spawn").unwrap();
    let (go, wait) = std::sync::mpsc::channel();
    let running = ns
        .spawn(move || {
            wait.recv().unwrap();
            Interface::all().unwrap().len()
        })
        .unwrap();
    drop(ns);
    go.send(()).unwrap();
    assert_eq!(running.join().unwrap(), 1);
}

#[test]
fn a_command_runs_inside_and_dies_with_its_thread() {
    if !testing::is_root() {
        return;
    }
    let ns = Namespace::create("command").unwrap();
    let listing = ns.command("ls").arg("/sys/class/net").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&listing.stdout), "lo\n");
    assert!(ns.command("/no/such/program").spawn().is_err());
    // Two namespaces deep: from a thread inside one into another.
    let other = Namespace::create("command2").unwrap();
    let listing = ns.run(|| other.command("ls").arg("/sys/class/net").output().unwrap());
    assert_eq!(String::from_utf8_lossy(&listing.stdout), "lo\n");

    let spawn = || ns.command("sleep").arg("1000").spawn().unwrap();
    let mut child = std::thread::scope(|scope| scope.spawn(spawn).join().unwrap());
    // The thread that started it is gone, so it is killed, long before it would end by itself.
    let mut status = None;
    assert!(wait_until(Duration::from_secs(10), || {
        status = child.try_wait().unwrap();
        status.is_some()
    }));
    use std::os::unix::process::ExitStatusExt as _;
    assert_eq!(status.and_then(|status| status.signal()), Some(9));
}

#[test]
fn what_a_killed_process_left_is_reaped() {
    if !testing::is_root() {
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "namespaces::victim", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut name = None;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        name = line
            .unwrap()
            .split_once("victim made ")
            .map(|(_, name)| name.to_owned());
        if name.is_some() {
            break;
        }
    }
    let name = name.expect("the copy says which namespace it made");
    let path = Path::new("/run/netns").join(&name);
    // While it lives, its namespace is left alone.
    assert!(!reap_stale().contains(&name));
    assert!(path.exists());
    // Killed, but not yet waited for: a zombie is dead enough.
    child.kill().unwrap();
    assert!(wait_until(Duration::from_secs(10), || {
        // Another test that creates a namespace may be faster.
        reap_stale();
        !path.exists()
    }));
    child.wait().unwrap();
    assert!(!ip_netns().contains(&name));
}

#[test]
#[ignore = "what_a_killed_process_left_is_reaped runs it in a process of its own"]
fn victim() {
    let ns = Namespace::create("victim").unwrap();
    println!("victim made {}", ns.name());
    std::thread::sleep(Duration::from_secs(60));
}

/// Whoever says `ip netns add` for the first time in a machine's life while there are test beds hides none of their names.
#[test]
fn names_vanish_though_ip_netns_came_after_them() {
    if !testing::is_root() {
        return;
    }
    if std::env::var_os(INSIDE).is_none() {
        // Where nobody has used names so far: this test's own process, in mounts of its own.
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", "mount -t tmpfs tmpfs /run && exec \"$@\"", "sh"]);
        command.arg(std::env::current_exe().unwrap());
        command.args([
            "--exact",
            "namespaces::names_vanish_though_ip_netns_came_after_them",
            "--nocapture",
        ]);
        let output = command.env(INSIDE, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let ns = Namespace::create("before").unwrap();
    let ip = |words: [&str; 2]| {
        let mut command = Command::new("ip");
        assert!(command.arg("netns").args(words).status().unwrap().success());
    };
    ip(["add", "other"]);
    assert!(ip_netns().contains(ns.name()));
    let path = ns.path().to_owned();
    drop(ns);
    assert!(
        !path.exists(),
        "{}",
        std::fs::read_to_string("/proc/self/mountinfo").unwrap()
    );
    ip(["delete", "other"]);
}

#[test]
fn without_privileges_the_error_says_what_to_do() {
    if !testing::is_root() {
        return;
    }
    // A thread without capabilities: they are per thread, so no other test notices.
    let error = std::thread::spawn(|| {
        use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
        let none = CapabilitySet::empty();
        set_capabilities(
            None,
            CapabilitySets {
                effective: none,
                permitted: none,
                inheritable: none,
            },
        )
        .unwrap();
        Namespace::create("denied").unwrap_err()
    })
    .join()
    .unwrap();
    assert!(
        error.is_permission_denied() && error.to_string().contains("run as root"),
        "{error}"
    );
}
