//! Wall clocks that jump: what was deleted is remembered for as long as it is to be, and no longer.

use std::time::{Duration, Instant};

use ringside_netlab::wait_until;

use super::Etcd;
use super::common::Folder;
use super::common::daemon::{self, Daemon, put_neighbor};
use super::common::etcd::{IMPATIENT, configure};
use super::hindered::{WrongClock, run_with};

/// How long it is to be remembered; looked for a fourth of it later at the most.
const REMEMBERED: Duration = Duration::from_secs(4);
const OPTION: &str = "tombstone-seconds = 4";
/// Ten years, in seconds.
const YEARS: i64 = 10 * 365 * 24 * 3600;

fn words<'a>(ip: &'a str, version: &'a str) -> Vec<&'a str> {
    put_neighbor(["42", ip, "02:00:00:00:00:07", "192.0.2.1"], Some(version))
}

/// Whether something is remembered of what was there in version 5.
fn is_remembered(gateway: &Daemon, ip: &str) -> bool {
    let output = gateway.patient_ctl(&words(ip, "5"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() || said.contains("something newer"), "{said}");
    !output.status.success()
}

/// At the first gateway, whose clock jumps, something is deleted before it jumps and after it has. All of it is remembered by all
/// of them for its time, and is not for ever.
fn jump(clock: &WrongClock, gateways: &[&Daemon], seconds: i64) {
    let put = |ip| gateways[0].ok(&words(ip, "5"));
    let delete = |ip| gateways[0].ok(&["delete", "neighbor", "42", ip, "--version", "6"]);
    for ip in ["10.0.0.7", "10.0.0.8"] {
        put(ip);
    }
    let deleted = Instant::now();
    delete("10.0.0.7");
    clock.set(seconds);
    delete("10.0.0.8");
    while deleted.elapsed() < REMEMBERED - Duration::from_secs(1) {
        for (ip, gateway) in ["10.0.0.7", "10.0.0.8"]
            .iter()
            .flat_map(|ip| gateways.iter().map(move |gateway| (ip, gateway)))
        {
            let held = is_remembered(gateway, ip);
            let after = deleted.elapsed();
            assert!(held || after > REMEMBERED, "{ip} is forgotten after {after:?}");
        }
        std::thread::sleep(Duration::from_millis(300));
    }
    for ip in ["10.0.0.7", "10.0.0.8"] {
        let is_forgotten = wait_until(Duration::from_secs(30), || !is_remembered(gateways[0], ip));
        assert!(is_forgotten, "{ip} is remembered for ever");
    }
}

fn alone(seconds: i64) {
    let clock = WrongClock::new();
    let folder = Folder::new();
    daemon::configure(&folder, "store.db", "");
    let config = folder.join("gateway.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("[store]", &format!("[store]\n{OPTION}"))).unwrap();
    let gateway = run_with(&clock, folder);
    jump(&clock, &[&gateway], seconds);
}

fn of_a_fleet(seconds: i64) {
    let (clock, etcd) = (WrongClock::new(), Etcd::start());
    let folder = || {
        let folder = Folder::new();
        configure(&folder, &etcd.endpoint(), IMPATIENT, "");
        let config = folder.join("gateway.toml");
        let text = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, text.replace("[store]", &format!("[store]\n{OPTION}"))).unwrap();
        folder
    };
    let gateway = run_with(&clock, folder());
    let other = Daemon::start_in(folder());
    jump(&clock, &[&gateway, &other], seconds);
}

/// Of a gateway with a file, and of two with etcd. All wait at the same time.
#[test]
fn what_was_deleted_is_remembered_for_its_time_whatever_clocks_do() {
    std::thread::scope(|scope| {
        for seconds in [YEARS, -YEARS] {
            scope.spawn(move || alone(seconds));
            scope.spawn(move || of_a_fleet(seconds));
        }
    });
}
