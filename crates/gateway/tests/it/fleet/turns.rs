//! Which member of etcd a gateway asks: another one when that one is gone, and its first again when that is back.

use std::thread;
use std::time::Duration;

use super::Etcd;
use super::common::Folder;
use super::common::daemon::{Daemon, put_neighbor};
use super::common::etcd::{configure, gateway};
use super::way::Way;

#[test]
fn a_gateway_turns_to_another_member_and_back_to_its_first() {
    let etcd = Etcd::start();
    let ways = [Way::to(&etcd), Way::to(&etcd)];
    let endpoints = ways.each_ref().map(Way::endpoint).join("\", \"");
    let folder = Folder::new();
    // It turns where a way is shut, and not where a busy machine is slow.
    let times = "request-ms = 5000\nsilence-ms = 5000\nbalance-seconds = 1";
    configure(&folder, &endpoints, times, "");
    let mut one = Daemon::start_in(folder);
    let other = gateway(&etcd);
    // What each tells etcd, the other hears of.
    let works = |one: &mut Daemon, version: &str| {
        let words = |ip| put_neighbor(["42", ip, "02:00:00:00:00:07", "192.0.2.1"], Some(version));
        one.wait("a change", |one| one.ctl(&words("10.0.0.7")).status.success());
        other.ok(&words("10.0.0.8"));
        one.wait("another's change", |one| {
            let shown = one.ctl(&["get", "neighbor", "42", "10.0.0.8", "--json"]).stdout;
            let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap_or_default();
            shown["version"].to_string().trim_matches('"') == version
        });
    };
    works(&mut one, "1");
    let first = usize::from(ways[1].is_used());
    assert!(ways[first].is_used() && !ways[1 - first].is_used(), "one at a time");
    ways[first].set_open(false);
    one.wait("the other way", |_| ways[1 - first].is_used() && !ways[first].is_used());
    works(&mut one, "2");
    ways[first].set_open(true);
    one.wait("its first way", |_| ways[first].is_used() && !ways[1 - first].is_used());
    works(&mut one, "3");
    thread::sleep(Duration::from_secs(2));
    assert!(ways[first].is_used() && !ways[1 - first].is_used(), "there it stays");
}
