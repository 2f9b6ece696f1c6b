//! Two processes that want the same queue.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use ringside_netlab::Lab;
use ringside_xsk::{Interface, Mode, Path, Port, Queue, QueueOptions, Stats, Wait};

use super::common::PATIENCE;
use super::common::account::Account;
use super::common::bystander::Bystander;
use super::common::child::{Guard, again, say_outcome};
use super::common::flow::{Flow, lanes};
use super::common::{assert_clean, lab};
use super::server::{PATH, counted, path};
use super::{RECOVERY, in_every_mode};

/// Slots of the RX ring of a queue with the default options.
const RX_RING: u64 = 256;

/// What such a process does: opens what it is told to, and closes it when it is told to.
pub(crate) fn compete(interface: &Interface) {
    let mut lines = std::io::stdin().lines().map_while(Result::ok);
    while let Some(line) = lines.next() {
        let mode = Mode::Require(path());
        let patient = QueueOptions::new().busy_timeout(PATIENCE);
        let until_told = || drop(lines.next());
        let held = match line.as_str() {
            "port" => {
                let port = Port::builder(interface.clone()).queues([0, 1]);
                port.options(patient)
                    .mode(mode)
                    .open()
                    .map(|port| receive(port, until_told))
            }
            "queue" => {
                let queue = Queue::builder(interface, 0).options(patient).open();
                queue.map(|queue| keep(&queue, until_told))
            }
            other => panic!("{other}"),
        };
        match held {
            Ok(stats) => println!("says: {}", serde_json::to_string(&stats).unwrap()),
            Err(error) => say_outcome(Err(error)),
        }
    }
}

fn receive(mut port: Port, until_told: impl FnOnce()) -> Stats {
    println!("says: opened");
    let closed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for queue in port.queues_mut() {
            let closed = &closed;
            scope.spawn(move || {
                while !closed.load(Ordering::Relaxed) {
                    drop(queue.recv(Wait::Poll(Duration::from_millis(10))).unwrap());
                }
            });
        }
        until_told();
        closed.store(true, Ordering::Relaxed);
    });
    port.stats().unwrap()
}

fn keep(queue: &Queue, until_told: impl FnOnce()) -> Stats {
    println!("says: opened");
    until_told();
    queue.stats().unwrap()
}

/// Two such processes, as seen by the test.
struct Rivals {
    processes: [(Guard, ChildStdin); 2],
    said: Receiver<(usize, String)>,
    says: Sender<(usize, String)>,
}

impl Rivals {
    fn start(lab: &Lab, path: Path) -> Self {
        let (says, said) = channel();
        Self {
            processes: [0, 1].map(|number| rival(lab, path, number, says.clone())),
            said,
            says,
        }
    }

    fn tell(&mut self, which: usize, line: &str) {
        writeln!(self.processes[which].1, "{line}").unwrap();
    }

    fn hear(&self) -> (usize, String) {
        self.said.recv_timeout(PATIENCE).expect("one of them says something")
    }

    fn pid(&self, which: usize) -> u32 {
        self.processes[which].0.0.id()
    }

    /// Kills one, and starts another in its place.
    fn replace(&mut self, which: usize, lab: &Lab, path: Path) {
        let killed = &mut self.processes[which].0.0;
        killed.kill().unwrap();
        killed.wait().unwrap();
        self.processes[which] = rival(lab, path, which, self.says.clone());
    }
}

fn rival(lab: &Lab, path: Path, number: usize, says: Sender<(usize, String)>) -> (Guard, ChildStdin) {
    let mut command = again(lab, "compete");
    let mut process = command.env(PATH, path.name()).stdin(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if let Some((_, said)) = line.split_once("says: ") {
                _ = says.send((number, said.to_owned()));
            }
        }
    });
    let orders = process.stdin.take().unwrap();
    (Guard(process), orders)
}

/// Fifty times at once: one of the two has it. For a port the other one is told at once who that is; for a queue it waits,
/// and has it as soon as the first one closes it, or is killed.
#[test]
fn of_two_that_race_for_a_queue_one_has_it() {
    in_every_mode("race", |path, tag| {
        let lab = lab(tag, 3);
        let bystander = Bystander::beside(&lab.b);
        let account = Account::open(&lab.a, &lab.b);
        let flow = Flow::start(&lab.a, &lab.b, &lanes(path, 2), 200);
        let mut rivals = Rivals::start(&lab, path);
        let (mut stats, mut wins, mut ports) = (Stats::default(), [0, 0], 0);
        for round in 0..50 {
            let wanted = match round % 5 {
                0..=2 => ["port", "port"],
                3 => ["queue", "queue"],
                _ => ["port", "queue"],
            };
            rivals.tell(0, wanted[0]);
            rivals.tell(1, wanted[1]);
            if wanted == ["port", "port"] {
                let mut said = [rivals.hear(), rivals.hear()];
                said.sort_by_key(|(_, said)| said != "opened");
                let [(winner, first), (_, second)] = said;
                assert_eq!(first, "opened", "{path}: nobody has it: {second}");
                let named = format!("held by process {}", rivals.pid(winner));
                assert!(
                    second.starts_with("ProgramAttached") && second.contains(&named),
                    "{path}: {second}"
                );
                rivals.tell(winner, "close");
                stats += counted(&rivals.hear().1);
                wins[winner] += 1;
                ports += 1;
                continue;
            }
            let (winner, said) = rivals.hear();
            assert_eq!(said, "opened", "{path} {wanted:?}");
            let early = rivals.said.recv_timeout(Duration::from_millis(20));
            assert!(
                early.is_err(),
                "{path} {wanted:?}: both have it, or the other gave up: {early:?}"
            );
            wins[winner] += 1;
            let other = 1 - winner;
            let since = Instant::now();
            if wanted == ["queue", "queue"] {
                rivals.replace(winner, &lab, path);
                assert_eq!(rivals.hear(), (other, "opened".to_owned()));
            } else {
                // The other one may have it before the first one has told what it counted.
                rivals.tell(winner, "close");
                let mut said = [rivals.hear(), rivals.hear()];
                said.sort_by_key(|(which, _)| *which != winner);
                let [(_, first), second] = said;
                assert_eq!(second, (other, "opened".to_owned()));
                stats += counted(&first);
                ports += 1;
            }
            bystander.within(RECOVERY, since);
            rivals.tell(other, "close");
            stats += counted(&rivals.hear().1);
        }
        drop(rivals);
        let sent = flow.stop();
        println!("{path}: {wins:?}");
        let balance = account.close(path, sent.taken(), stats.own.rx_packets, stats.kernel);
        assert_eq!(balance.purged, 0);
        assert!(balance.unread <= ports * 2 * RX_RING, "{balance:?}");
        assert!(stats.own.rx_packets > 0);
        assert_clean(&lab.b);
        bystander.in_time()
    });
}
