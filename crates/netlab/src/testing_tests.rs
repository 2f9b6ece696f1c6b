use std::net::UdpSocket;
use std::process::{Command, Output};

use super::*;

#[test]
#[ignore = "skips_are_recorded runs it in a process of its own"]
fn that_needs_a_package() {
    skip("a package");
}

#[test]
#[ignore = "skips_are_recorded runs it in a process of its own"]
fn that_the_machine_cannot_run() {
    skip_unsupported("a kernel function");
    skip_unsupported("a NIC");
}

/// Runs one of the tests above, with its environment, and returns what it recorded.
fn run(test: &str, strict: &str) -> (Output, String) {
    let record = std::env::temp_dir().join(crate::name::unique("skipped").unwrap());
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--test-threads=2"])
        .arg(format!("testing::tests::{test}"))
        .env(SKIPPED, &record)
        .env(STRICT, strict)
        .output()
        .unwrap();
    let recorded = fs::read_to_string(&record).unwrap_or_default();
    _ = fs::remove_file(record);
    (done, recorded)
}

#[test]
fn an_address_is_waited_for_until_its_last_socket_is_closed() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let copy = socket.try_clone().unwrap();
    drop(socket);
    assert_eq!(UdpSocket::bind(address).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    let child = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        drop(copy);
    });
    let socket = bound(|| UdpSocket::bind(address));
    assert_eq!(socket.local_addr().unwrap(), address);
    child.join().unwrap();
}

#[test]
#[should_panic(expected = "AddrNotAvailable")]
fn an_address_that_nobody_has_is_not_waited_for() {
    bound(|| UdpSocket::bind("192.0.2.1:9"));
}

#[test]
fn skips_are_recorded() {
    for strict in ["", "0"] {
        let (done, recorded) = run("that_needs_a_package", strict);
        assert!(done.status.success(), "{done:?}");
        assert_eq!(
            recorded,
            "netlab-ringside_netlab testing::tests::that_needs_a_package\tneeds a package\n"
        );
    }
    // Even in strict mode.
    for strict in ["", "1"] {
        let (done, recorded) = run("that_the_machine_cannot_run", strict);
        assert!(done.status.success(), "{done:?}");
        let lines: Vec<_> = recorded.lines().map(|line| line.split_once('\t').unwrap()).collect();
        let [(first, function), (second, nic)] = lines[..] else {
            panic!("{recorded}");
        };
        assert_eq!(first, second);
        assert_eq!(
            [function, nic],
            ["this machine lacks a kernel function", "this machine lacks a NIC"]
        );
    }
}

#[test]
fn a_skip_that_the_user_can_avoid_is_a_failure_in_strict_mode() {
    let (done, recorded) = run("that_needs_a_package", "1");
    assert!(!done.status.success(), "{done:?}");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(said.contains("RINGSIDE_STRICT forbids to skip it"), "{said}");
    assert_eq!(recorded, "");
}

#[test]
fn waits_as_long_as_a_look_took() {
    let mut looks = 0;
    let held = wait_until(Duration::from_millis(400), || {
        looks += 1;
        thread::sleep(Duration::from_millis(20));
        false
    });
    // Without the pauses there were up to 20.
    assert!(!held && (2..=11).contains(&looks), "{looks}");
}
