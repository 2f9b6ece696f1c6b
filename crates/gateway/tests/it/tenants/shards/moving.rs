//! Connections that begin while a network goes from one gateway to another, and one host hears of it later than the other one: what only a
//! connection allows comes to a gateway that has not seen it begin.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ringside_netlab::testing::{bound, is_root};
use ringside_netlab::wait_until;

use super::{Fleet, How};
use crate::bed::Family;
use crate::peers::{AtEnd, listen, uninterrupted};
use crate::process::{PATIENCE, Running};

/// Nothing but answers comes back.
const ONE_WAY: &str = "\
groups:
  - {id: 2, rules: [{id: 1, direction: egress}]}
  - {id: 4, rules: [{id: 1, direction: ingress, protocol: tcp, ports: 7000}, {id: 2, direction: ingress, protocol: udp, ports: 9000}]}
ports:
  - {vni: 42, ip: 10.0.0.1, groups: [2]}
  - {vni: 42, ip: 10.0.0.2, groups: [4]}
";
/// For so long one host sends to the old gateway.
const LATE: Duration = Duration::from_millis(400);
/// What a gateway says that refuses what is none of its connections'.
const REFUSALS: [&str; 4] = ["egress-denied", "no-connection", "out-of-state", "out-of-window"];

/// A host that hears nothing of the map meanwhile.
struct Stopped<'a>(&'a Running);

impl<'a> Stopped<'a> {
    fn new(agent: &'a Running) -> Self {
        agent.signal(libc::SIGSTOP);
        Self(agent)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.signal(libc::SIGCONT);
    }
}

/// Connections that were begun, and those of which all came back.
#[derive(Default)]
struct Tally {
    begun: AtomicU64,
    done: AtomicU64,
}

impl Tally {
    fn count(&self, is_done: bool) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.done.fetch_add(u64::from(is_done), Ordering::Relaxed);
    }

    fn read(&self) -> [u64; 2] {
        [&self.begun, &self.done].map(|count| count.load(Ordering::Relaxed))
    }
}

impl Fleet {
    fn refused(&self) -> Vec<u64> {
        let of = |one: &super::One| {
            let all = one.json(&["stats"]);
            let paths = all["paths"].as_array().cloned().unwrap_or_default();
            let count = |reason: &str| {
                paths
                    .iter()
                    .map(|path| path["dropped-packets"][reason].as_u64().unwrap_or(0))
                    .sum::<u64>()
            };
            REFUSALS.iter().map(|reason| count(reason)).sum()
        };
        self.living().map(of).collect()
    }

    /// A connection after the other, by both protocols, while something else is done.
    fn begin_connections(&self, work: impl FnOnce()) -> [Tally; 2] {
        let (from, to) = (self.bed.at(1), self.bed.at(2));
        let at = |port| SocketAddr::from((to.address(Family::V4), port));
        let listener = listen(to, at(7000));
        let echoes = to.ns.run(|| bound(|| UdpSocket::bind(at(9000))));
        echoes.set_read_timeout(Some(Duration::from_millis(50))).expect("set");
        // Who answers goes on until all is answered.
        let [over, all_over] = [AtomicBool::new(false), AtomicBool::new(false)];
        let goes_on = || !over.load(Ordering::Relaxed);
        let answers = || !all_over.load(Ordering::Relaxed);
        let [tcp, udp] = [Tally::default(), Tally::default()];
        std::thread::scope(|scope| {
            let (at_end, at_last) = (AtEnd(&over), AtEnd(&all_over));
            scope.spawn(|| {
                let mut packet = [0; 16];
                while answers() {
                    if let Ok((length, from)) = echoes.recv_from(&mut packet) {
                        _ = echoes.send_to(&packet[..length], from);
                    }
                }
            });
            scope.spawn(|| {
                while answers() {
                    let Ok((mut stream, _)) = listener.accept() else {
                        std::thread::sleep(Duration::from_millis(1));
                        continue;
                    };
                    stream.set_nonblocking(false).expect("set");
                    stream.set_read_timeout(Some(PATIENCE)).expect("set");
                    let mut byte = [0];
                    if stream.read_exact(&mut byte).is_ok() {
                        _ = stream.write_all(&byte);
                    }
                }
            });
            let asks = scope.spawn(|| {
                from.ns.run(|| {
                    while goes_on() {
                        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
                        socket.set_read_timeout(Some(PATIENCE)).expect("set");
                        let is_asked = socket.send_to(b"question", at(9000)).is_ok();
                        udp.count(is_asked && uninterrupted(|| socket.recv(&mut [0; 16])).is_ok());
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
            });
            let connects = scope.spawn(|| {
                from.ns.run(|| {
                    while goes_on() {
                        let mut byte = [7];
                        let whole = TcpStream::connect_timeout(&at(7000), PATIENCE).and_then(|mut stream| {
                            stream.set_read_timeout(Some(PATIENCE))?;
                            stream.write_all(&byte)?;
                            stream.read_exact(&mut byte)
                        });
                        tcp.count(whole.is_ok());
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
            });
            assert!(
                wait_until(PATIENCE, || tcp.read()[1] > 5 && udp.read()[1] > 5),
                "nothing goes"
            );
            work();
            drop(at_end);
            asks.join().and_then(|()| connects.join()).expect("no panic");
            drop(at_last);
        });
        [tcp, udp]
    }
}

#[test]
fn what_begins_meanwhile_is_answered() {
    if !is_root() {
        return;
    }
    let fleet = Fleet::new(
        "shards-move",
        How {
            // Longer than a busy machine stands still: none is to run out.
            lease: 10,
            hands_over: true,
            learns: true,
            outer: Family::V4,
        },
    );
    let first = fleet.gateways[0].daemon();
    let file = first.folder.join("one-way.yaml");
    std::fs::write(&file, ONE_WAY).expect("a file");
    first.ok(&["apply", "-f", file.to_str().expect("UTF-8")]);
    let owner = fleet.owner();
    fleet.hosts_send_to(owner);
    // Every gateway has the rules, and refuses what answers nothing.
    assert!(wait_until(PATIENCE, || {
        let groups = |one: &super::One| one.json(&["get", "port", "42", "10.0.0.2"])["groups"].to_string();
        fleet.living().all(|one| groups(one).contains('4'))
    }));
    let before = fleet.refused();
    let [tcp, udp] = fleet.begin_connections(|| {
        // There, with the host of who asks behind the other; and back, the other way round.
        for (late, words) in [(0, &["drain"][..]), (1, &["drain", "--off"])] {
            let stopped = Stopped::new(&fleet.agents[late]);
            fleet.gateways[owner].daemon().ok(words);
            let is_moved = || fleet.find_owner().is_some_and(|now| (now == owner) == (late == 1));
            assert!(wait_until(PATIENCE, is_moved), "{words:?}");
            let to = fleet.gateways[fleet.owner()].address();
            let follows = || Fleet::remote(fleet.bed.at(2 - late)) == Some(to);
            assert!(wait_until(PATIENCE, follows), "the other one follows");
            std::thread::sleep(LATE);
            assert_ne!(Fleet::remote(fleet.bed.at(1 + late)), Some(to), "it does not know yet");
            drop(stopped);
            let follows = || Fleet::remote(fleet.bed.at(1 + late)) == Some(to);
            assert!(wait_until(PATIENCE, follows), "it follows");
            std::thread::sleep(LATE / 2);
        }
    });
    for (name, tally) in [("TCP", &tcp), ("UDP", &udp)] {
        let [begun, done] = tally.read();
        eprintln!("{name}: {done} of {begun}");
        assert_eq!(begun, done, "{name}");
    }
    assert_eq!(fleet.refused(), before, "{REFUSALS:?}");
}
