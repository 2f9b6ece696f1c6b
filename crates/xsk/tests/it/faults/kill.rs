//! Processes that are killed at any moment.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libbpf_rs::{MapHandle, Program};
use ringside_netlab::testing::{expect, measured};
use ringside_netlab::wait_until;
use ringside_xsk::{Path, QueueOptions, Stats, Wait};

use super::common::PATIENCE;
use super::common::account::{Account, Balance};
use super::common::bystander::Bystander;
use super::common::child::again;
use super::common::flow::{Flow, Seen, lanes, receiving};
use super::common::{assert_clean, lab, open, roomy};
use super::server::Server;
use super::{RECOVERY, in_every_mode};

/// In each of the two modes.
const KILLS: usize = 100;

/// One of so many asks for deferral.
const DEFERRED: usize = 5;

/// SplitMix64.
struct Random(u64);

impl Random {
    /// From the environment, or by the clock; tells which.
    fn new(of: &str) -> Self {
        let given = std::env::var("RINGSIDE_SEED").ok().map(|seed| seed.parse().unwrap());
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let seed = given.unwrap_or_else(|| u64::from(now.subsec_nanos()) ^ now.as_secs() << 30);
        eprintln!("{of}: RINGSIDE_SEED={seed}");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        most.mul_f64((self.next() >> 11) as f64 / (1_u64 << 53) as f64)
    }
}

/// The BPF programs and maps that a process holds.
#[derive(Debug, Default)]
struct Held {
    programs: BTreeSet<u32>,
    maps: BTreeSet<u32>,
}

impl Held {
    fn by(pid: u32) -> Self {
        let mut held = Self::default();
        // Descriptors come and go while this looks at them.
        for fd in std::fs::read_dir(format!("/proc/{pid}/fdinfo"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let info = std::fs::read_to_string(fd.path()).unwrap_or_default();
            let id = |name| {
                info.lines()
                    .find_map(|line| line.strip_prefix(name)?.trim().parse::<u32>().ok())
            };
            held.programs.extend(id("prog_id:"));
            held.maps.extend(id("map_id:"));
        }
        held
    }

    fn len(&self) -> usize {
        self.programs.len() + self.maps.len()
    }

    /// Those of them that the kernel still has.
    fn left(&self) -> Self {
        let program = |id: &&u32| Program::fd_from_id(**id).is_ok();
        let map = |id: &&u32| MapHandle::from_map_id(**id).is_ok();
        Self {
            programs: self.programs.iter().filter(program).copied().collect(),
            maps: self.maps.iter().filter(map).copied().collect(),
        }
    }
}

/// Where the processes write down what they change.
struct State(PathBuf);

impl Drop for State {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Killed while it opens, under full traffic, or while it ends: nothing of it stays, and the next one works within two
/// seconds. Its settings are put back by the next one that changes some.
#[test]
fn two_hundred_kills_leave_nothing_behind() {
    in_every_mode("kill", |path, tag| {
        let lab = lab(tag, 3);
        let state = State(std::env::temp_dir().join(format!("ringside-{tag}-{}", std::process::id())));
        let settings = || lab.b.run(|| lab.b.interface.napi().unwrap());
        let before = settings();
        let mut random = Random::new(tag);
        let bystander = Bystander::beside(&lab.b);
        let (account, back) = (Account::open(&lab.a, &lab.b), Account::open(&lab.b, &lab.a));
        let client = open(&lab.a, Path::NativeCopy, |port| port.options(roomy()));
        let flow = Flow::on(client, &lab.a, &lab.b, &lanes(path, 2), 500);
        let answers = Arc::clone(&flow.answers);
        let (seen, mut stats, mut served_well) = (Seen::default(), Stats::default(), 0);
        let (mut opening, mut serving, mut held, mut changed) = (0, 0, 0, 0);
        let mut usual = Duration::from_millis(50);
        let mut slowest = Duration::ZERO;
        let mut kills = 0;
        // Kills a server, and lets the next one take its place.
        let mut kill_one = |kill: usize| {
            kills += 1;
            let command = || {
                let mut command = again(&lab, "serve");
                command.env(ringside_nic::changes::STATE_DIR, &state.0);
                if kill.is_multiple_of(DEFERRED) {
                    Server::with_deferral(command)
                } else {
                    command
                }
            };
            let start = Instant::now();
            let mut server = Server::start(command(), path);
            let answered = answers.packets();
            match kill % 4 {
                0 | 2 => {
                    std::thread::sleep(random.up_to(usual));
                    opening += usize::from(answers.packets() == answered);
                }
                moment => {
                    server.ready();
                    usual = start.elapsed();
                    assert!(answers.more(1));
                    serving += 1;
                    if moment == 3 {
                        server.ask_to_end();
                    }
                    std::thread::sleep(random.up_to(Duration::from_millis(30)));
                }
            }
            let loaded = Held::by(server.pid());
            held += loaded.len();
            server.kill();
            let since = Instant::now();
            let detached = || lab.b.state().unwrap().xdp.is_none();
            assert!(
                wait_until(PATIENCE, detached),
                "{path}: the program is attached after kill {kill}"
            );
            changed += usize::from(settings() != before);
            let took = if kill.is_multiple_of(DEFERRED) {
                let mut next = Server::start(command(), path);
                next.ready();
                let took = bystander.time_since(since);
                let counted = next.end();
                stats += counted;
                served_well += counted.own.rx_packets;
                took
            } else {
                let options = QueueOptions::new();
                let mut next = open(&lab.b, path, |port| port.queues([0, 1]).options(options.clone()));
                receiving(&mut next, &seen, Wait::Poll(Duration::from_millis(20)), || {
                    assert!(seen.more(1))
                });
                stats += next.stats().unwrap();
                bystander.time_since(since)
            };
            slowest = slowest.max(took);
            // The kernel takes its time for that.
            let unloaded = wait_until(PATIENCE, || loaded.left().len() == 0);
            assert!(unloaded, "{path}: after kill {kill} {:?}", loaded.left());
            assert_eq!(settings(), before, "{path}: after kill {kill}");
            expect(took < RECOVERY, format!("{path}: {took:?} after kill {kill}"))
        };
        for kill in 0..KILLS {
            measured(|| kill_one(kill));
        }
        let sent = flow.stop();
        println!(
            "{path}: {opening} killed while opening, {serving} later, with {held} programs and maps; \
             {changed} left settings; recovered within {slowest:?}"
        );
        assert!(opening >= KILLS / 20 && changed > 0);
        // The program, its map of sockets, that of its counters, and its constants.
        assert!(held >= 4 * serving);

        // Every packet that was carried is somewhere. What the killed had, and was not answered, died with them: at the
        // most all their frames.
        let received = seen.packets() + served_well;
        let balance = account.close(path, sent.taken(), received, stats.kernel);
        assert_eq!(balance.purged, 0);
        let lost = (balance.unread + served_well).checked_sub(answers.packets());
        let lost = lost.expect("no more answers than packets");
        println!("{path}: {} answers; {lost} packets died", answers.packets());
        let frames = 2 * u64::from(QueueOptions::DEFAULT_FRAMES);
        assert!(path == Path::Generic || lost <= 2 * kills * frames);
        // Every answer that was carried is there.
        let dropped = sent.ports[0].kernel;
        let balance = back.close(Path::NativeCopy, back.given(), answers.packets(), dropped);
        assert_eq!(balance, Balance::EVEN);
        assert_clean(&lab.b);
        Ok(())
    });
}
