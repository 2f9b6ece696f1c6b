//! Which member of etcd a gateway asks: another one when that one is gone, and its first again when that is back.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::Etcd;
use super::common::Folder;
use super::common::daemon::{Daemon, put_neighbor};
use super::common::etcd::{IMPATIENT, configure, gateway};

/// A way to etcd, which can be closed.
struct Way {
    at: SocketAddr,
    is_open: Arc<AtomicBool>,
    connections: Arc<AtomicUsize>,
    ended: Arc<AtomicBool>,
}

impl Way {
    fn to(etcd: &Etcd) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let to = etcd.endpoint().trim_start_matches("http://").to_owned();
        let way = Self {
            at: listener.local_addr().unwrap(),
            is_open: Arc::new(AtomicBool::new(true)),
            connections: Arc::default(),
            ended: Arc::default(),
        };
        let (is_open, connections) = (Arc::clone(&way.is_open), Arc::clone(&way.connections));
        let ended = Arc::clone(&way.ended);
        thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let Ok((stream, _)) = listener.accept() else {
                    thread::sleep(Duration::from_millis(5));
                    continue;
                };
                if is_open.load(Ordering::Relaxed)
                    && let Ok(there) = TcpStream::connect(&to)
                {
                    let (is_open, connections) = (Arc::clone(&is_open), Arc::clone(&connections));
                    connections.fetch_add(1, Ordering::Relaxed);
                    thread::spawn(move || {
                        carry([stream, there], &is_open);
                        connections.fetch_sub(1, Ordering::Relaxed);
                    });
                }
            }
        });
        way
    }

    fn set_open(&self, is_open: bool) {
        self.is_open.store(is_open, Ordering::Relaxed);
    }

    fn is_used(&self) -> bool {
        self.connections.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.set_open(false);
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// What one says to the other, until one of them ends or the way is closed.
fn carry(ends: [TcpStream; 2], is_open: &AtomicBool) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for [mut from, mut to] in [[&ends[0], &ends[1]], [&ends[1], &ends[0]]] {
            let is_over = &is_over;
            scope.spawn(move || {
                _ = io::copy(&mut from, &mut to);
                is_over.store(true, Ordering::Relaxed);
            });
        }
        while is_open.load(Ordering::Relaxed) && !is_over.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(5));
        }
        ends.iter().for_each(|end| _ = end.shutdown(Shutdown::Both));
    });
}

#[test]
fn a_gateway_turns_to_another_member_and_back_to_its_first() {
    let etcd = Etcd::start();
    let ways = [Way::to(&etcd), Way::to(&etcd)];
    let endpoints = ways.each_ref().map(|way| format!("http://{}", way.at)).join("\", \"");
    let folder = Folder::new();
    configure(&folder, &endpoints, &format!("{IMPATIENT}\nbalance-seconds = 1"), "");
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
