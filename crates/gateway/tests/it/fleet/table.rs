//! What may happen to three members of etcd and three gateways, one function each; around each the same trial: writers and watchers
//! at all gateways, tenants who talk to each other through them, and everything that was answered and seen is checked.
//!
//! What tenants' packets go by changes meanwhile, and packets have to follow.
//!
//! `make test` has a few of them, `make test-fleet` all, and it prints what each one has shown: the file that `RINGSIDE_FAULTS`
//! names gets a line of each.

use std::io::Write as _;
use std::thread::sleep;
use std::time::Duration;

use super::authority::Authority;
use super::changes::{self, Changes};
use super::cluster::{Cluster, ELECTION, How, NAMES, SILENCE};
use super::followed::Times;
use super::ownership::{Moves, Ownership};
use super::recorder::Recorder;
use super::traffic::{Carried, Packets, Traffic};
use super::trial::{Shown, Trial};

const SECOND: Duration = Duration::from_secs(1);
/// The file that gets a line of each fault, in `make test-fleet`.
const LINES: &str = "RINGSIDE_FAULTS";
/// Longer than a gateway waits for etcd.
const LONG: Duration = Duration::from_millis(4000);
const _: () = assert!(LONG.as_millis() > 2 * SILENCE.as_millis() && LONG.as_millis() > 4 * ELECTION.as_millis());

/// How often a gateway is killed: `RINGSIDE_KILLS`.
fn kills(usually: u64) -> u64 {
    super::common::bulk::kills(usually)
}

/// With as many faults as are said, or else with what they are to be tried with.
pub(crate) const PLAIN: How = How {
    tenants: true,
    slow_disks: false,
    wrong_members: false,
    wrong_clocks: false,
    lease: Duration::from_secs(10),
    silence: SILENCE,
    more: "",
    slow_gateway: false,
    talks: false,
};
/// With a lease that is over before what happens is.
const SHORT: How = How {
    lease: Duration::from_secs(3),
    ..PLAIN
};
/// Until hosts send to another gateway when one is gone: its lease, and what etcd takes to end it, the others to share out, agents to
/// follow, and a busy machine. A new leader of etcd begins all leases anew: see [`Packets::after_an_election`].
const REPLACED: Duration = Duration::from_secs(SHORT.lease.as_secs() + 3);
/// Who is asked to end gives its networks up first: hosts send to others by then, but for a busy machine.
const RESTART: Duration = Duration::from_millis(500);
/// Longer than [`REPLACED`].
const GONE: Duration = Duration::from_secs(8);
const _: () = assert!(GONE.as_millis() > REPLACED.as_millis());
/// Longer than that lease, and what etcd takes to end it.
const CUT: Duration = Duration::from_secs(5);
const _: () = assert!(CUT.as_millis() > SHORT.lease.as_millis() + 3 * ELECTION.as_millis());
/// As gateways are if they are told nothing else.
const USUAL: How = How {
    lease: Duration::from_secs(5),
    silence: Duration::from_secs(5),
    ..PLAIN
};
const SLOW: How = How {
    slow_disks: true,
    ..PLAIN
};
const HUNG: How = How {
    slow_gateway: true,
    ..PLAIN
};
const WRONG: How = How {
    wrong_clocks: true,
    ..PLAIN
};
const WRONG_MEMBERS: How = How {
    wrong_members: true,
    ..PLAIN
};
/// In seconds.
const TEN_YEARS: i64 = 10 * 365 * 24 * 3600;
/// Where clocks jump to, one after the other: of each of three.
const JUMPS: [[i64; 3]; 3] = [[TEN_YEARS, 0, -TEN_YEARS], [-TEN_YEARS, TEN_YEARS, 0], [0, 0, 0]];

/// What each fault is, in words, how the cluster is made, which shards may move, what tenants may lose, and whether it takes too long
/// for `make test`.
macro_rules! faults {
    ($($(#[$long:meta])* $name:ident: $words:literal, $how:expr, $moves:expr, $packets:expr;)+) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        $(#[$long])*
        async fn $name() {
            if ringside_netlab::testing::is_root() {
                let is_long = !<[&str]>::is_empty(&[$(stringify!($long)),*]);
                trial(stringify!($name), $words, ($how, $moves, $packets), (happens::$name, is_long)).await;
            }
        })+
    };
}

faults! {
    leader_killed: "the leader is killed, and started again after 2 s", PLAIN, Moves::None, Packets::All;
    leader_apart: "the leader is cut off from the other members for 2 s", PLAIN, Moves::None, Packets::All;
    #[ignore = "make test-fleet"]
    gateway_not_heard: "what a gateway sends gets nowhere for 5 s, what it is told arrives", SHORT, Moves::Some("a"), Packets::All;
    #[ignore = "make test-fleet"]
    leader_alone: "the leader is cut off from the other members for 4 s, gateways reach all of them", PLAIN, Moves::None, Packets::All;
    #[ignore = "make test-fleet"]
    leader_paused: "the leader stands still for 3 s", PLAIN, Moves::None, Packets::All;
    #[ignore = "make test-fleet"]
    followers_paused: "one follower after the other stands still for 7 s; leases and silence of 5 s", USUAL, Moves::None, Packets::All;
    // etcd before 3.4.31 and 3.5.13 has its old leader end all leases when it goes on (https://github.com/etcd-io/etcd/issues/15247): gateways
    // wait for each other then.
    #[ignore = "make test-fleet"]
    leader_paused_longer: "the leader stands still for 7 s; leases and silence of 5 s", USUAL, Moves::None, Packets::All;
    #[ignore = "make test-fleet"]
    quorum_lost: "two members are killed, and started again after 4 s", SHORT, Moves::None, Packets::All;
    #[ignore = "make test-fleet"]
    all_killed: "all members are killed, and started again after 4 s", SHORT, Moves::None, Packets::All;
    #[ignore = "make test-fleet"]
    all_gone: "all members are killed, and started again after 60 s", SHORT, Moves::None, Packets::All;
    #[ignore = "make test-fleet"]
    compacted_meanwhile: "a gateway stands still while all members restart and history is compacted", SHORT, Moves::Of("c"), Packets::All;
    #[ignore = "make test-fleet"]
    member_unreachable: "one member after the other is out of a gateway's reach for 4 s", PLAIN, Moves::None, Packets::All;
    #[ignore = "make test-fleet"]
    gateway_cut_off: "a gateway's cable is out for 8 s", SHORT, Moves::Some("a"), Packets::Of("a", REPLACED);
    #[ignore = "make test-fleet"]
    gateway_deaf: "what a gateway sends arrives, answers do not, for 5 s", SHORT, Moves::Some("a"), Packets::All;
    #[ignore = "make test-fleet"]
    follower_alone: "a follower is cut off from the other members for 4 s, gateways reach all of them", PLAIN, Moves::None, Packets::All;
    #[ignore = "make test-fleet"]
    leader_not_heard: "what the leader sends to the other members gets nowhere for 4 s, it hears them", PLAIN, Moves::None, Packets::All;
    #[ignore = "make test-fleet"]
    leader_deaf: "the leader hears the other members no more for 4 s, they hear it", PLAIN, Moves::None, Packets::All;
    #[ignore = "make test-fleet"]
    wires_flap: "each wire of a gateway and of the leader is cut ten times for 0.2 s", PLAIN, Moves::Of("a"), Packets::Of("a", SECOND);
    #[ignore = "make test-fleet"]
    leaders_disk_slow: "each flush of the leader's disk takes 0.4 s longer, for 6 s", SLOW, Moves::None, Packets::All;
    #[ignore = "make test-fleet"]
    all_disks_slow: "each flush of each member's disk takes 0.1 s longer, for 6 s", SLOW, Moves::None, Packets::All;
    #[ignore = "make test-fleet"]
    gateways_disk_hangs: "a gateway's disk takes nothing for 8 s, neither flushes nor writes", HUNG, Moves::None, Packets::All;
    #[ignore = "make test-fleet"]
    clocks_jump: "gateways' wall clocks jump by ten years, forwards and backwards", WRONG, Moves::None, Packets::All;
    #[ignore = "make test-fleet"]
    members_clocks_jump: "members' wall clocks jump by ten years, forwards and backwards", WRONG_MEMBERS, Moves::None, Packets::All;
    #[ignore = "make test-fleet"]
    gateway_killed: "a gateway is killed and started again, 50 times", PLAIN, Moves::Of("a"), Packets::Of("a", PLAIN.lease);
    #[ignore = "make test-fleet"]
    gateway_gone: "a gateway is killed, and started again after 8 s", SHORT, Moves::Some("a"), Packets::Of("a", REPLACED);
    #[ignore = "make test-fleet"]
    gateways_restarted: "all gateways are stopped and started, one after the other, three times", PLAIN, Moves::Any, Packets::Any(RESTART);
    #[ignore = "make test-fleet"]
    members_restarted: "all members are stopped and started, one after the other", PLAIN, Moves::None, Packets::All;
    #[ignore = "make test-fleet"]
    certificates_rotated: "other authorities and certificates of them for all members, gateways and hosts, and then a gateway is drained", PLAIN, Moves::Some("a"), Packets::All;
}

/// Two writers and a watcher at each gateway, tenants who talk through them, and something that happens meanwhile; and, where that
/// may take its time, a comparison by each gateway of its tables with all that etcd holds: what gateways list is their copies.
async fn trial(
    name: &str,
    words: &str,
    (how, moves, packets): (How, Moves, Packets),
    (happens, is_long): (fn(&mut Cluster), bool),
) {
    let mut cluster = Cluster::start(&tag(name), how);
    let sockets = cluster.sockets();
    let mut trial = Trial::new();
    for (seed, (name, socket)) in (0..).zip(sockets.iter().chain(&sockets)) {
        trial.write(name, socket.clone(), seed);
    }
    trial.load(sockets[1].1.clone());
    for (name, socket) in &sockets {
        trial.watch(name, socket.clone()).await;
    }
    let recorder = Recorder::start(&sockets);
    recorder.settled().await;
    let traffic = Traffic::start(cluster.hosts());
    let changes = Changes::start(&cluster).await;
    let term = cluster.term();
    let began = changes.now();
    changes.go_on(SECOND / 4);
    happens(&mut cluster);
    let over = changes.now();
    let packets = match cluster.term() == term {
        true => packets,
        false => packets.after_an_election(how.lease + ELECTION),
    };
    trial.converge(&sockets).await;
    cluster.wait_well();
    let during = changes::during(began, over, packets, NAMES);
    let followed = changes.end(&cluster).await;
    let compared = cluster.comparisons();
    recorder.settled().await;
    let carried = traffic.end(cluster.hosts());
    let shown = trial.end(&sockets, Some(&|| cluster.objects()), 50).await;
    let ownership = recorder.end(|| cluster.shard_map()).await;
    match is_long || std::env::var_os(LINES).is_some() {
        true => cluster.wait_compared(&compared),
        false => _ = cluster.comparisons(),
    }
    note(name, words, (&shown, &ownership, &carried, followed.times(&during)));
    assert_eq!(ownership.violations(moves), []);
    assert!(
        carried.violations(packets).is_empty(),
        "{:#?}",
        carried.violations(packets)
    );
    let wrong = followed.violations(&during);
    assert!(
        wrong.is_empty(),
        "{} of them: {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(20)]
    );
}

/// What namespaces can be told apart by.
fn tag(name: &str) -> String {
    let letters = name.split('_').filter_map(|word| word.get(..2));
    format!("ft-{}", letters.collect::<String>())
}

fn note(name: &str, words: &str, (shown, ownership, carried, times): (&Shown, &Ownership, &Carried, Times)) {
    let mut line = format!(
        "{name}: {words}: {shown}; {carried}; {times}; {} moves of shards",
        ownership.moved()
    );
    if !ownership.is_judged() {
        let stalled = ownership.stalled.as_secs_f64();
        line.push_str(&format!(", not judged: the test itself stood still for {stalled:.1} s"));
    }
    line.push('\n');
    eprint!("{line}");
    if let Some(path) = std::env::var_os(LINES) {
        let file = std::fs::File::options().append(true).create(true).open(path);
        file.unwrap().write_all(line.as_bytes()).unwrap();
    }
}

/// Each returns when it is over.
mod happens {
    use super::*;

    pub(super) fn leader_killed(cluster: &mut Cluster) {
        let leader = cluster.leader();
        cluster.members[leader].kill();
        sleep(2 * SECOND);
        cluster.members[leader].start();
        cluster.members[leader].wait();
    }

    pub(super) fn leader_paused(cluster: &mut Cluster) {
        let leader = cluster.leader();
        cluster.members[leader].signal("STOP");
        sleep(6 * ELECTION);
        cluster.members[leader].signal("CONT");
    }

    /// Longer than the lease.
    fn pause(cluster: &Cluster, which: usize) {
        cluster.members[which].signal("STOP");
        sleep(7 * SECOND);
        cluster.members[which].signal("CONT");
        // Another one may lead by now, and the one that comes back has to hear of it.
        sleep(2 * ELECTION);
    }

    pub(super) fn followers_paused(cluster: &mut Cluster) {
        for next in [1, 2] {
            pause(cluster, (cluster.leader() + next) % cluster.members.len());
        }
    }

    pub(super) fn leader_paused_longer(cluster: &mut Cluster) {
        pause(cluster, cluster.leader());
    }

    fn some_killed(cluster: &mut Cluster, count: usize, gone: Duration) {
        let killed = &mut cluster.members[..count];
        killed.iter_mut().for_each(|member| member.kill());
        sleep(gone);
        killed.iter_mut().for_each(|member| member.start());
        killed.iter_mut().for_each(|member| member.wait());
    }

    pub(super) fn quorum_lost(cluster: &mut Cluster) {
        some_killed(cluster, 2, LONG);
    }

    pub(super) fn all_killed(cluster: &mut Cluster) {
        some_killed(cluster, 3, LONG);
    }

    pub(super) fn all_gone(cluster: &mut Cluster) {
        some_killed(cluster, 3, 60 * SECOND);
    }

    pub(super) fn compacted_meanwhile(cluster: &mut Cluster) {
        cluster.gateways[2].daemon().signal("STOP");
        sleep(SECOND / 2);
        // What waits in its connections is lost with these.
        members_restarted(cluster);
        sleep(SECOND);
        cluster.compact();
        cluster.gateways[2].daemon().signal("CONT");
        let compacted = "what had to be watched was compacted";
        cluster.gateways[2]
            .daemon()
            .wait(compacted, |daemon| daemon.log().contains(compacted));
    }

    pub(super) fn member_unreachable(cluster: &mut Cluster) {
        for member in &cluster.members {
            cluster.gateways[0].host.part(&member.host, true);
            sleep(LONG);
            cluster.gateways[0].host.part(&member.host, false);
        }
    }

    pub(super) fn gateway_cut_off(cluster: &mut Cluster) {
        cluster.gateways[0].host.unplug(true);
        sleep(GONE);
        cluster.gateways[0].host.unplug(false);
    }

    pub(super) fn gateway_not_heard(cluster: &mut Cluster) {
        for is_cut in [true, false] {
            for member in &cluster.members {
                cluster.gateways[0].host.cut(&member.host, is_cut);
            }
            if is_cut {
                sleep(CUT);
            }
        }
    }

    pub(super) fn gateway_deaf(cluster: &mut Cluster) {
        for is_cut in [true, false] {
            for member in &cluster.members {
                member.host.cut(&cluster.gateways[0].host, is_cut);
            }
            if is_cut {
                sleep(CUT);
            }
        }
    }

    /// Cuts a member off from the others, in these directions, for so long.
    fn alone(cluster: &Cluster, alone: usize, [sends, hears]: [bool; 2], time: Duration) {
        let each = |is_cut: bool| {
            for (at, other) in cluster.members.iter().enumerate() {
                let member = &cluster.members[alone];
                if at != alone && !sends {
                    member.host.cut(&other.host, is_cut);
                }
                if at != alone && !hears {
                    other.host.cut(&member.host, is_cut);
                }
            }
        };
        each(true);
        sleep(time);
        each(false);
    }

    /// Long enough for another one to lead.
    pub(super) fn leader_apart(cluster: &mut Cluster) {
        alone(cluster, cluster.leader(), [false, false], 4 * ELECTION);
    }

    pub(super) fn leader_alone(cluster: &mut Cluster) {
        alone(cluster, cluster.leader(), [false, false], LONG);
    }

    pub(super) fn follower_alone(cluster: &mut Cluster) {
        let follower = (cluster.leader() + 1) % cluster.members.len();
        alone(cluster, follower, [false, false], LONG);
    }

    pub(super) fn leader_not_heard(cluster: &mut Cluster) {
        alone(cluster, cluster.leader(), [false, true], LONG);
    }

    pub(super) fn leader_deaf(cluster: &mut Cluster) {
        alone(cluster, cluster.leader(), [true, false], LONG);
    }

    pub(super) fn wires_flap(cluster: &mut Cluster) {
        let leader = cluster.leader();
        let hosts = [&cluster.gateways[0].host, &cluster.members[leader].host];
        for round in 0..20 {
            hosts[round % 2].unplug(true);
            sleep(SECOND / 5);
            hosts[round % 2].unplug(false);
            sleep(SECOND / 10);
        }
    }

    fn slow(cluster: &Cluster, which: &[usize], delay: Duration) {
        which.iter().for_each(|at| cluster.members[*at].set_delay(delay));
        sleep(6 * SECOND);
        which
            .iter()
            .for_each(|at| cluster.members[*at].set_delay(Duration::ZERO));
    }

    pub(super) fn leaders_disk_slow(cluster: &mut Cluster) {
        slow(cluster, &[cluster.leader()], 2 * SECOND / 5);
    }

    pub(super) fn all_disks_slow(cluster: &mut Cluster) {
        slow(cluster, &[0, 1, 2], SECOND / 10);
    }

    pub(super) fn gateways_disk_hangs(cluster: &mut Cluster) {
        let gateway = &mut cluster.gateways[0];
        gateway.set_delay(8 * SECOND);
        for _ in 0..6 {
            sleep(SECOND);
            let told = gateway.metrics();
            assert!(told.get("fleet_lag_seconds") < 4.0, "{told:?}");
        }
        let said = gateway.daemon().ctl(&["health"]);
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains("its disk has not answered for"), "{said}");
        sleep(2 * SECOND);
        gateway.set_delay(Duration::ZERO);
    }

    pub(super) fn clocks_jump(cluster: &mut Cluster) {
        for jumps in JUMPS {
            for (gateway, jump) in cluster.gateways.iter().zip(jumps) {
                gateway.set_clock(jump);
            }
            sleep(SECOND);
        }
    }

    /// In the middle of it a member is started anew, to find what it wrote at another time.
    pub(super) fn members_clocks_jump(cluster: &mut Cluster) {
        for (round, jumps) in JUMPS.into_iter().enumerate() {
            for (member, jump) in cluster.members.iter().zip(jumps) {
                member.set_clock(jump);
            }
            sleep(2 * SECOND);
            if round == 1 {
                let member = &mut cluster.members[1];
                member.stop();
                member.start();
                member.wait();
                assert!(
                    member.log().contains("\"ts\":\"203"),
                    "its clock was right: {}",
                    member.log()
                );
            }
        }
    }

    pub(super) fn gateway_killed(cluster: &mut Cluster) {
        for _ in 0..kills(50) {
            cluster.gateways[0].kill();
            // So that connections, which wait twice as long each time, meet it alive.
            sleep(SECOND / 2);
        }
    }

    pub(super) fn gateway_gone(cluster: &mut Cluster) {
        cluster.gateways[0].kill_for(GONE);
    }

    pub(super) fn gateways_restarted(cluster: &mut Cluster) {
        for _ in 0..3 {
            for gateway in &mut cluster.gateways {
                gateway.restart();
            }
        }
    }

    /// One leaves when the one before is back.
    pub(super) fn members_restarted(cluster: &mut Cluster) {
        for member in &mut cluster.members {
            member.stop();
            member.start();
            member.wait();
            sleep(ELECTION);
        }
    }

    /// As an operator would: both are trusted for a time.
    pub(super) fn certificates_rotated(cluster: &mut Cluster) {
        let other = Authority::new("two");
        // Members take both, and gateways do.
        cluster.trust(&cluster.authority, &[&cluster.authority, &other]);
        members_restarted(cluster);
        Cluster::renew_gateways(&mut cluster.gateways, &cluster.authority, &[&cluster.authority, &other]);
        // Gateways show the new ones, and members do.
        Cluster::renew_gateways(&mut cluster.gateways, &other, &[&cluster.authority, &other]);
        cluster.trust(&other, &[&other]);
        members_restarted(cluster);
        Cluster::renew_gateways(&mut cluster.gateways, &other, &[&other]);
        // By which connections are handed over, and hosts ask.
        cluster.rotate();
        let gateway = &mut cluster.gateways[0];
        assert!(gateway.daemon().ok(&["drain"]).contains("drained"));
        let bare = gateway.metrics().count("fleet_shard_moves_total{what=\"given-bare\"}");
        assert_eq!(bare, 0, "{}", gateway.daemon().log());
        gateway.daemon().ok(&["drain", "--off"]);
    }
}
