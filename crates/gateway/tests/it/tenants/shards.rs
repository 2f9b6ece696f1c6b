//! Three gateways that share networks out among them, with one etcd, between tenants on hosts that follow the map.
//!
//! Each gateway reaches etcd by a way of its own, which can be cut.

mod foreign;
mod moving;
mod questions;
mod uplink;

use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use ringside_bpf::Link;
use ringside_gateway::fleet::shards::record;
use ringside_gateway_core::shard::{Member, Shard, preferred};
use ringside_netlab::testing::{expect, measured};
use ringside_netlab::{End, Lab, wait_until};
use serde_json::Value;

use crate::bed::{Bed, Family, Kind, Place, Tenant};
use crate::common::bulk::kills;
use crate::common::daemon::{Daemon, binary};
use crate::common::etcd::{self, Etcd};
use crate::common::{Folder, certificate};
use crate::peers::{answered, chat, connect};
use crate::process::{PATIENCE, Running};
use crate::tenant::neighbors;
use crate::tenants::way::Way;
use questions::Questions;

/// TCP in one direction, UDP in both.
const RULES: &str = "\
groups:
  - {id: 1, rules: [{id: 1, direction: ingress, protocol: tcp, ports: 7000}, {id: 2, direction: egress, protocol: udp}]}
  - {id: 2, rules: [{id: 1, direction: egress}]}
  - {id: 3, rules: [{id: 1, direction: ingress, protocol: udp}]}
ports:
  - {vni: 42, ip: 10.0.0.1, groups: [2, 3]}
  - {vni: 42, ip: 10.0.0.2, groups: [1, 3]}
";

/// Last bytes of the gateways' addresses.
const PLACES: [u8; 3] = [254, 253, 252];

/// How the gateways are run.
#[derive(Debug, Clone, Copy)]
struct How {
    /// Seconds.
    lease: u64,
    /// Connections go along with networks, and `learns` says whether any are learned besides.
    hands_over: bool,
    learns: bool,
    /// How hosts' packets come and go.
    outer: Family,
}

struct One {
    daemon: Option<Daemon>,
    way: Way,
    end: End,
    how: How,
    place: Option<(Lab, Link)>,
}

struct Fleet {
    // In the order in which it is taken down.
    agents: Vec<Running>,
    gateways: Vec<One>,
    _etcd: Etcd,
    bed: Bed,
    objects: String,
}

impl One {
    /// Where hosts send to.
    fn address(&self) -> IpAddr {
        match self.how.outer {
            Family::V4 => self.end.ipv4.into(),
            Family::V6 => self.end.ipv6.into(),
        }
    }

    fn name(&self) -> String {
        format!("gateway-{}", self.end.ipv4.octets()[3])
    }

    /// As the planner sees it, when it serves.
    fn member(&self) -> Member {
        Member {
            id: record::id(&self.name()),
            weight: 100,
            is_synced: true,
            is_draining: false,
        }
    }

    fn start(&mut self, folder: Folder) {
        let Kind::Ringside(how) = crate::tenants::FAST else {
            unreachable!("it is the daemon")
        };
        let address = self.end.ipv4;
        let mut more = format!(
            "[fleet]\nname = {:?}\naddresses = [\"{address}\", \"{}\"]\nlease-seconds = {}\n",
            self.name(),
            self.end.ipv6,
            self.how.lease,
        );
        if self.how.hands_over {
            let tls =
                ["certificate", "key", "client-ca", "host-ca"].map(|name| format!("{name} = {:?}", folder.join(name)));
            more += &format!(
                "api = \"https://{address}:7443\"\n[api.tcp]\nlisten = \"{address}:7443\"\n{}\n",
                tls.join("\n")
            );
            more += &how.configuration(std::path::Path::new("/none"));
            if !self.how.learns {
                // What goes on was handed over.
                more += "pick-up = false\n";
            }
        } else {
            more += &how.configuration(std::path::Path::new("/none"));
        }
        let config = etcd::configure(&folder, &self.way.endpoint(), etcd::IMPATIENT, &more);
        let mut command = self.end.ns.command(binary().get_program());
        command.arg("--config").arg(config);
        self.daemon = Some(Daemon::spawn(folder, command));
    }

    fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("it runs")
    }

    fn json(&self, words: &[&str]) -> Value {
        let output = self.daemon().ctl(&[words, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// What health says needs attention.
    fn problems(&self) -> String {
        self.json(&["health"])["problems"].to_string()
    }
}

impl Fleet {
    /// All three with their shares, and hosts that follow them.
    fn new(tag: &str, how: How) -> Self {
        let bed = Bed::without_gateway(tag, crate::tenants::FAST, &[Place::vxlan(how.outer); 2]);
        let etcd = Etcd::start();
        let mut gateways = Vec::new();
        for number in PLACES {
            let place = (number != 254).then(|| bed.another_uplink(&format!("{tag}-gateway{number}"), number));
            let end = place.as_ref().map_or(&bed.uplinks[0], |(uplink, _)| uplink).a.clone();
            gateways.push(One {
                daemon: None,
                way: Way::start(&end.ns, &etcd.endpoint()),
                end,
                how,
                place,
            });
        }
        let cards: Vec<_> = bed.tenants().map(|tenant| tenant.card).collect();
        let mut fleet = Self {
            agents: Vec::new(),
            gateways,
            _etcd: etcd,
            bed,
            objects: format!("{}{RULES}", neighbors(&cards)),
        };
        let keys: Vec<_> = fleet
            .gateways
            .iter()
            .map(|one| certificate(&one.end.ipv4.to_string()))
            .collect();
        let authorities: Vec<u8> = keys.iter().flat_map(|(authority, ..)| authority.clone()).collect();
        let (hosts, of_host, key_of_host) = certificate("host");
        for (one, (_, signed, key)) in fleet.gateways.iter_mut().zip(&keys) {
            let folder = Folder::new();
            for (name, text) in [
                ("certificate", signed),
                ("key", key),
                ("client-ca", &authorities),
                ("host-ca", &hosts),
                ("host-certificate", &of_host),
                ("host-key", &key_of_host),
            ] {
                std::fs::write(folder.join(name), text).expect("a file");
            }
            one.start(folder);
        }
        let first = fleet.gateways[0].daemon();
        let file = first.folder.join("objects.yaml");
        std::fs::write(&file, &fleet.objects).expect("a file");
        first.ok(&["apply", "-f", file.to_str().expect("UTF-8")]);
        fleet.settles();
        fleet.agents = [1, 2].map(|host| fleet.agent(host)).into();
        fleet
    }

    /// Has a host follow the map.
    fn agent(&self, host: usize) -> Running {
        let mut command = self.bed.hosts[host - 1].wire.a.ns.command(binary().get_program());
        // Over TCP, where there is.
        let endpoint = |one: &One| match one.how.hands_over {
            true => format!("https://{}:7443", one.end.ipv4),
            false => format!("unix:{}", one.daemon().folder.join("api.sock").display()),
        };
        let endpoints: Vec<String> = self.gateways.iter().map(endpoint).collect();
        command.arg("ctl");
        if self.gateways[0].how.hands_over {
            let folder = &self.gateways[0].daemon().folder;
            for (option, file) in [
                ("--ca", "client-ca"),
                ("--certificate", "host-certificate"),
                ("--key", "host-key"),
            ] {
                command.arg(option).arg(folder.join(file));
            }
        }
        let tenants = self.bed.tenants[host - 1]
            .iter()
            .map(|tenant| tenant.ns.name().to_owned());
        let tenants: Vec<String> = tenants.collect();
        command.args([
            "agent",
            "--endpoint",
            &endpoints.join(","),
            "--netns",
            &tenants.join(","),
        ]);
        let agent = Running::new(command);
        agent.wait_for("of the map");
        agent
    }

    fn living(&self) -> impl Iterator<Item = &One> {
        self.gateways
            .iter()
            .filter(|one| one.daemon.is_some() && !one.way.is_cut())
    }

    /// Waits until those that live have their shares, and all of them know it.
    fn settles(&self) {
        let living: Vec<Member> = self.living().map(One::member).collect();
        let share = |id| {
            let owners = Shard::all().filter_map(|shard| preferred(shard, &living));
            owners.filter(|member| member.id == id).count() as u64
        };
        let shares: Vec<(String, u64)> = self.living().map(|one| (one.name(), share(one.member().id))).collect();
        let is_good = |fleet: &Value| {
            let all = fleet["members"].as_array().map_or(&[][..], |members| members);
            let has_share = |member: &Value| {
                let of = |(name, shards): &(String, u64)| member["name"] == **name && member["shards"] == *shards;
                member["state"] == "synced" && shares.iter().any(of)
            };
            fleet["membership"] == "member" && all.len() == shares.len() && all.iter().all(has_share)
        };
        let settled = wait_until(PATIENCE, || self.living().all(|one| is_good(&one.json(&["fleet"]))));
        assert!(
            settled,
            "{:#?}",
            self.living().map(|one| one.json(&["fleet"])).collect::<Vec<_>>()
        );
    }

    /// A connection between the tenants of network 42.
    fn connect(&self) -> [TcpStream; 2] {
        let to = self.bed.at(2);
        connect(self.bed.at(1), (to, to.address(Family::V4)), 7000)
    }

    /// Returns the owner of network 42, as a gateway that lives says.
    fn find_owner(&self) -> Option<usize> {
        let told = self.first_living().json(&["fleet", "--vni", "42"]);
        let name = told["gateway"].as_str().unwrap_or_default();
        self.gateways.iter().position(|one| one.name() == name)
    }

    /// Waits until network 42 has an owner, and returns it.
    fn owner(&self) -> usize {
        let mut found = None;
        let has_owner = || {
            found = self.find_owner();
            found.is_some()
        };
        assert!(
            wait_until(PATIENCE, has_owner),
            "nobody: {}",
            self.first_living().json(&["fleet"])
        );
        found.expect("an owner")
    }

    fn first_living(&self) -> &One {
        self.living().next().expect("one lives")
    }

    /// Waits until network 42 has another owner.
    fn leaves(&self, owner: usize) {
        let is_moved = || self.find_owner().is_some_and(|now| now != owner);
        assert!(wait_until(PATIENCE, is_moved), "gateway {owner} is still the owner");
    }

    /// Where a tenant's packets go.
    fn remote(tenant: &Tenant) -> Option<IpAddr> {
        let made = tenant.ns.run(|| tenant.interface().vxlan()).expect("read");
        made.expect("an endpoint").remote
    }

    /// Waits until both tenants of network 42 send to this gateway.
    fn hosts_send_to(&self, gateway: usize) {
        let to = self.gateways[gateway].address();
        let follow = || [1, 2].iter().all(|host| Self::remote(self.bed.at(*host)) == Some(to));
        assert!(wait_until(PATIENCE, follow), "{to}");
    }
}

/// So much longer than its lease a network may be without its gateway: etcd looks twice a second for leases that are over, map and agents
/// take 0.1 to 0.3 s, which is less than a second, and a machine that has other things to do takes the rest. One etcd elects no leader, which
/// would begin the lease anew. It is the bound of the fleet's faults, too.
const BEYOND: Duration = Duration::from_secs(3);
/// etcd's shortest lease, with its defaults: one and a half election time-outs, in whole seconds.
const SHORTEST: Duration = Duration::from_secs(2);

/// Kills the owner of a network under traffic, so often, and returns how long its tenants were without answers each time.
/// A kill that takes `most` or longer is repeated if something disturbed the machine.
fn kill_owners(fleet: &mut Fleet, times: u64, most: Duration) -> Vec<Duration> {
    let questions = Questions::new(&fleet.bed);
    let stream = fleet.connect();
    chat(&stream).expect("goes");
    let mut without = Vec::new();
    questions.during(|questions| {
        for number in 0..times {
            measured(|| {
                let owner = fleet.owner();
                fleet.hosts_send_to(owner);
                questions.goes();
                let daemon = fleet.gateways[owner].daemon.take().expect("it runs");
                let killed = Instant::now();
                let folder = daemon.kill();
                questions.goes();
                let time = killed.elapsed();
                without.push(time);
                // A connection under rules goes on: the new owner learns it from its packets.
                chat(&stream).unwrap_or_else(|error| panic!("kill {number}: {error}"));
                fleet.leaves(owner);
                fleet.gateways[owner].start(folder);
                fleet.settles();
                expect(time < most, format_args!("kill {number}: {time:?} without answers"))
            });
        }
    });
    without
}

#[test]
fn who_dies_is_replaced() {
    if !ringside_netlab::testing::is_root() {
        return;
    }
    let mut fleet = Fleet::new(
        "shards",
        How {
            lease: SHORTEST.as_secs(),
            hands_over: false,
            learns: true,
            outer: Family::V4,
        },
    );
    // Beside other tests, which take their time of this machine, twice as much.
    let without = kill_owners(&mut fleet, kills(3), SHORTEST + 2 * BEYOND);
    eprintln!("without answers for {without:?}");
    assert!(
        without.iter().all(|time| *time > Duration::from_millis(300)),
        "nobody was killed: {without:?}"
    );
}

#[test]
#[ignore = "takes minutes: make test-fleet"]
fn fifty_are_replaced() {
    if !ringside_netlab::testing::is_root() {
        return;
    }
    for lease in [2, 5] {
        let mut fleet = Fleet::new(
            "shards50",
            How {
                lease,
                hands_over: false,
                learns: true,
                outer: Family::V4,
            },
        );
        let times = 50;
        // The longest time is asserted below, of all kills.
        let mut without = kill_owners(&mut fleet, times, Duration::MAX);
        without.sort_unstable();
        let part = |percent: usize| without[((without.len() * percent).div_ceil(100)).max(1) - 1];
        let most = without[without.len() - 1];
        crate::tenants::fleet::tell(&format!(
            "fail_over: a lease of {lease} s, {times} owners killed under traffic: without answers for {:?} (p50), {:?} (p99), {most:?} at the most\n",
            part(50),
            part(99),
        ));
        assert!(most < Duration::from_secs(lease) + BEYOND, "{without:?}");
    }
}

#[test]
fn who_drains_loses_nothing() {
    if !ringside_netlab::testing::is_root() {
        return;
    }
    let fleet = Fleet::new(
        "shards-drain",
        How {
            // Longer than a busy machine stands still: none is to run out.
            lease: 10,
            hands_over: true,
            learns: false,
            outer: Family::V4,
        },
    );
    let questions = Questions::new(&fleet.bed);
    let stream = fleet.connect();
    chat(&stream).expect("goes");
    questions.during(|questions| {
        let owner = fleet.owner();
        fleet.hosts_send_to(owner);
        let said = fleet.gateways[owner].daemon().ok(&["drain"]);
        assert!(said.contains("drained"), "{said}");
        // Who is asked may hear of it a moment after who drains.
        fleet.leaves(owner);
        let other = fleet.owner();
        fleet.hosts_send_to(other);
        chat(&stream).expect("goes on");
        questions.goes();
        let log = fleet.gateways[owner].daemon().log();
        assert!(log.contains("connections were handed over"), "{log}");
        let health = fleet.gateways[owner].json(&["health"]);
        assert_eq!(health["status"], "draining");
        // What still comes to it is sent on, and counted: by the fast path.
        foreign::sends_on_and_counts(&fleet, owner);
        // And by workers.
        let foreign = || fleet.gateways[owner].json(&["fleet"])["foreign-packets"].as_u64();
        let (before, old, tenant) = (foreign(), fleet.gateways[owner].address(), fleet.bed.at(1));
        let to = SocketAddr::from((fleet.bed.at(2).address(Family::V4), 9));
        let is_counted = || {
            tenant.ns.run(|| {
                // The agent puts it back.
                tenant.interface().set_vxlan_remote(old).expect("set");
                let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
                _ = socket.send_to(b"to the old one", to);
            });
            foreign() > before
        };
        assert!(wait_until(PATIENCE, is_counted), "{before:?}");
        fleet.gateways[owner].daemon().ok(&["drain", "--off"]);
        fleet.hosts_send_to(owner);
        chat(&stream).expect("comes back");
        questions.goes();
    });
    questions.all_are_answered(&fleet.bed);
}

#[test]
fn who_is_cut_off_from_etcd_sends_on_and_says_so() {
    if !ringside_netlab::testing::is_root() {
        return;
    }
    let mut fleet = Fleet::new(
        "shards-cut",
        How {
            lease: 5,
            hands_over: false,
            learns: true,
            outer: Family::V6,
        },
    );
    let questions = Questions::new(&fleet.bed);
    let mut cut = 0;
    questions.during(|questions| {
        cut = fleet.owner();
        fleet.hosts_send_to(cut);
        fleet.gateways[cut].way.set_cut(true);
        let one = &fleet.gateways[cut];
        let says_so = || {
            let problems = one.problems();
            problems.contains("etcd cannot be reached") && problems.contains("the lease of this gateway has run out")
        };
        assert!(wait_until(PATIENCE, says_so), "{}", one.problems());
        let refused = one
            .daemon()
            .fails(&["put", "port", "1", "10.0.0.9", "--groups", "1", "--version", "1"]);
        assert!(refused.contains("etcd cannot be reached"), "{refused}");
        assert_eq!(one.json(&["fleet"])["membership"], "lapsed");
        // Hosts go to others, whatever it still says.
        fleet.settles();
        let other = fleet.owner();
        assert_ne!(other, cut);
        fleet.hosts_send_to(other);
        questions.goes();
    });
    // All the time there was somebody who sends on.
    questions.all_are_answered(&fleet.bed);
    // Hosts that were told nothing go on by it as well.
    fleet
        .agents
        .drain(..)
        .for_each(|agent| assert!(agent.interrupt().status.success()));
    let old = fleet.gateways[cut].address();
    for host in [1, 2] {
        let tenant = fleet.bed.at(host);
        tenant.ns.run(|| tenant.interface().set_vxlan_remote(old)).expect("set");
    }
    let stream = fleet.connect();
    chat(&stream).expect("goes");
    // Network 43 has no rules.
    answered(&fleet.bed.tenants[0][1], fleet.bed.tenants[1][1].address(Family::V4));
    fleet.gateways[cut].way.set_cut(false);
    fleet.settles();
    let one = &fleet.gateways[cut];
    assert!(
        wait_until(PATIENCE, || one.daemon().ctl(&["health"]).status.success()),
        "{}",
        one.problems()
    );
}
