//! etcd, and gateways, that stop, die and come back.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::Etcd;
use super::basics::sees;
use super::common::daemon::{Daemon, put_neighbor};
use super::common::etcd::gateway;
use super::history::{Answer, History};
use super::trial::Trial;

fn socket(gateway: &Daemon) -> PathBuf {
    gateway.folder.join("api.sock")
}

/// etcd dies under writes and comes back, so many times.
async fn kills(times: usize) -> History {
    let mut etcd = Etcd::start();
    let (a, b) = (gateway(&etcd), gateway(&etcd));
    let mut trial = Trial::new();
    for (at, (name, gateway)) in [("a", &a), ("b", &b), ("a", &a), ("b", &b)].into_iter().enumerate() {
        trial.write(name, socket(gateway), at as u64);
    }
    trial.watch("a", socket(&a)).await;
    trial.watch("b", socket(&b)).await;
    for _ in 0..times {
        tokio::time::sleep(Duration::from_millis(500)).await;
        etcd.kill();
        tokio::time::sleep(Duration::from_millis(300)).await;
        etcd.start_again(Command::new("setpriv"));
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    trial.wait_made(50).await;
    // One that knows nothing but what etcd tells.
    let fresh = gateway(&etcd);
    let all = [("a", socket(&a)), ("b", socket(&b)), ("etcd", socket(&fresh))];
    trial.end(&all, None, 50).await.history
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_write_that_was_answered_is_lost_when_etcd_dies() {
    let history = kills(2).await;
    // What was seen is what the checker needs: without one write it finds the fault.
    let (key, state, _) = *history
        .writes
        .iter()
        .rev()
        .find(|(.., answer)| *answer == Answer::Made)
        .unwrap();
    let mut faulty = history;
    for held in faulty.held.values_mut() {
        held.remove(&key);
    }
    assert!(!faulty.violations().is_empty(), "{key:?}: {state:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute: make test-fleet"]
async fn no_write_that_was_answered_is_lost_when_etcd_dies_again_and_again() {
    kills(20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_compacted_while_a_gateway_stood_still_is_known_afterwards() {
    let mut etcd = Etcd::start();
    let (a, mut b) = (gateway(&etcd), gateway(&etcd));
    let mut trial = Trial::new();
    trial.write("a", socket(&a), 1);
    trial.watch("a", socket(&a)).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    b.signal("STOP");
    tokio::time::sleep(Duration::from_millis(500)).await;
    // What waits in its connection is lost with that.
    etcd.kill();
    etcd.start_again(Command::new("setpriv"));
    // The first answer may be to a write that was begun before.
    trial.wait_made(trial.count_made() + 2).await;
    etcd.compact();
    b.signal("CONT");
    trial.wait_made(20).await;
    trial.end(&[("a", socket(&a)), ("b", socket(&b))], None, 20).await;
    sees(&mut b, &["health"], "ok");
    assert!(b.log().contains("what had to be watched was compacted"), "{}", b.log());
    assert!(!a.log().contains("what had to be watched was compacted"), "{}", a.log());
}

#[test]
fn what_goes_wrong_in_etcd_is_not_believed() {
    let etcd = Etcd::start();
    let mut a = gateway(&etcd);
    a.ok(&put_neighbor(
        ["42", "10.0.0.7", "02:00:00:00:00:07", "192.0.2.1"],
        None,
    ));
    // Somebody removes everything.
    etcd.ctl(&["del", "--prefix", "/ringside/"]);
    a.wait("its complaint", |a| {
        let output = a.ctl(&["health"]);
        String::from_utf8_lossy(&output.stdout).contains("is not believed")
    });
    assert!(
        a.ok(&["get", "neighbor", "42", "10.0.0.7"]).contains("192.0.2.1"),
        "the last good state holds"
    );
    let refused = a.refuses(&["put", "port", "1", "10.0.0.9", "--groups", "1", "--version", "1"]);
    assert!(refused.contains("is not believed"), "{refused}");
}
