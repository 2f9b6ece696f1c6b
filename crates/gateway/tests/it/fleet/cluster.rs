//! Three members of etcd and three gateways, each a host of its own at a switch, so that any wire can be cut, in one direction as well.
//!
//! ```text
//!   etcd 10.77.0.1   etcd 10.77.0.2   etcd 10.77.0.3        gateways 10.77.0.11 to .13     hosts with tenants, if wanted
//!        └────────────────┴──────── switch ──────────────────────┴─────────────────────────────────┘
//! ```
//! etcd is asked over TLS with certificates on both sides, as on any wire that leaves a host, and so its members talk to each other. A direction is cut by a MAC address
//! that nobody has: what is sent goes, and arrives nowhere, with no answer to the sender.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringside_netlab::{Device, Lab, Namespace, VethConfig, wait_until};
use serde_json::Value;

use super::authority::Authority;
use super::common::Folder;
use super::common::daemon::{Daemon, put_neighbor};
use super::common::disk::{SlowDisk, compile, write_at_once};
use super::common::etcd::configure;
use super::hindered::WrongClock;
use super::hosts::{Authorities, Hosts};
use super::movers::Movers;
use super::node::Gateway;
use super::tenant::wake_for_what_is_sent_back;

/// How long anything may take on a machine that has other things to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// See [`How::silence`]; most faults are tried with this.
pub(crate) const SILENCE: Duration = Duration::from_millis(1500);
/// A follower of etcd that hears nothing for so long wants to lead.
pub(crate) const ELECTION: Duration = Duration::from_millis(500);
/// Nobody has it.
const NOWHERE: &str = "02:00:00:00:fe:fe";
/// Where a gateway offers metrics, on the loopback of its host.
pub(crate) const METRICS: u16 = 9465;
/// Names of gateways.
pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];

/// A host at the switch.
pub(crate) struct Host {
    pub(crate) ns: Arc<Namespace>,
    wire: Lab,
    number: u8,
}

impl Host {
    fn new(tag: &str, switch: &Device, number: u8) -> Self {
        let ns = Namespace::create(&format!("{tag}-{number}")).unwrap();
        let config = VethConfig {
            hosts: [number, 0],
            ipv6: false,
            static_neighbours: false,
            ..VethConfig::named("eth0", format!("host{number}"))
        };
        let wire = Lab::join(&ns, &switch.ns, config).unwrap();
        switch.attach(&wire.b.interface).unwrap();
        Self { ns, wire, number }
    }

    pub(crate) fn ip(&self) -> Ipv4Addr {
        self.wire.a.ipv4
    }

    /// A program on it.
    pub(crate) fn command(&self, program: &str) -> Command {
        self.ns.command(program)
    }

    /// What it sends to another arrives no more, or does again.
    pub(crate) fn cut(&self, to: &Self, is_cut: bool) {
        let to = to.ip().to_string();
        let words: &[&str] = if is_cut {
            &[
                "neigh",
                "replace",
                &to,
                "lladdr",
                NOWHERE,
                "nud",
                "permanent",
                "dev",
                "eth0",
            ]
        } else {
            &["neigh", "del", &to, "dev", "eth0"]
        };
        let output = self.ns.command("ip").args(words).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Nothing arrives in either direction, or does again.
    pub(crate) fn part(&self, other: &Self, is_cut: bool) {
        self.cut(other, is_cut);
        other.cut(self, is_cut);
    }

    /// Pulls its cable, or puts it back.
    pub(crate) fn unplug(&self, is_out: bool) {
        self.wire.b.set_up(!is_out).unwrap();
    }
}

/// A server of etcd.
pub(crate) struct Member {
    pub(crate) host: Host,
    pub(crate) folder: Folder,
    child: Option<Child>,
    /// How often it said that it is ready, before it was started last.
    ready: usize,
    peers: String,
    /// What makes its disk slow, and its wall clock wrong.
    slow: Option<PathBuf>,
    wrong: Option<PathBuf>,
}

impl Member {
    /// What it is called among the members.
    pub(crate) fn name(&self) -> String {
        format!("m{}", self.host.number)
    }

    /// All of them, and where they reach each other.
    pub(crate) fn peers(&self) -> &str {
        &self.peers
    }

    /// Where the others reach it.
    pub(crate) fn peer_url(&self) -> String {
        format!("https://{}:2380", self.host.ip())
    }

    /// Where gateways reach it.
    pub(crate) fn url(&self) -> String {
        format!("https://{}:2379", self.host.ip())
    }

    fn readies(&self) -> usize {
        self.log().matches("serving client traffic").count()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Starts it; it is ready when there is a quorum.
    pub(crate) fn start(&mut self) {
        assert!(self.child.is_none(), "it runs");
        self.ready = self.readies();
        let log = File::options().append(true).create(true).open(self.folder.join("log"));
        let path = |name: &str| self.folder.join(name).display().to_string();
        let (client, peer) = (self.url(), self.peer_url());
        let dies = ["setpriv", "--pdeathsig", "KILL"].map(PathBuf::from);
        let mut words = dies.to_vec();
        if let Some(slow) = &self.slow {
            words.extend([slow.clone(), self.folder.join("delay")]);
            words.extend(dies);
        }
        if let Some(wrong) = &self.wrong {
            words.extend([wrong.clone(), self.folder.join("wrong")]);
        }
        let mut command = self.host.ns.command(&words[0]);
        command
            .args(&words[1..])
            .args(["etcd", "--logger", "zap"])
            .args(["--name", &self.name(), "--data-dir", &path("data")])
            .args(["--heartbeat-interval", "50"])
            .args(["--election-timeout", &ELECTION.as_millis().to_string()])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &self.peers])
            .args(["--cert-file", &path("server.pem"), "--key-file", &path("server.key")])
            .args(["--client-cert-auth", "--trusted-ca-file", &path("ca.pem")])
            .args([
                "--peer-cert-file",
                &path("server.pem"),
                "--peer-key-file",
                &path("server.key"),
            ])
            .args(["--peer-client-cert-auth", "--peer-trusted-ca-file", &path("ca.pem")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.unwrap());
        let child = command.spawn();
        self.child = Some(child.expect("etcd and setpriv are installed: scripts/setup does that"));
    }

    pub(crate) fn wait(&mut self) {
        let begin = Instant::now();
        while self.readies() <= self.ready {
            let ended = self.child.as_mut().unwrap().try_wait().unwrap();
            assert_eq!(ended, None, "etcd has ended: {}", self.log());
            assert!(begin.elapsed() < PATIENCE, "etcd is not ready: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Asks it to end, and waits for that.
    pub(crate) fn stop(&mut self) {
        self.signal("TERM");
        let mut child = self.child.take().unwrap();
        let has_ended = wait_until(PATIENCE, || child.try_wait().unwrap().is_some());
        if !has_ended {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(has_ended, "etcd does not end: {}", self.log());
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.as_ref().expect("it runs"), name);
    }

    /// From now on its disk takes so much longer, if it was started on one that can be slow.
    pub(crate) fn set_delay(&self, delay: Duration) {
        assert!(self.slow.is_some(), "its disk is as fast as it is");
        write_at_once(
            &self.folder.join("delay"),
            &u32::try_from(delay.as_millis()).unwrap().to_le_bytes(),
        );
    }

    /// From now on its wall clock is wrong by so many seconds, if it was started with one that can be.
    pub(crate) fn set_clock(&self, seconds: i64) {
        assert!(self.wrong.is_some(), "its clock is right");
        write_at_once(&self.folder.join("wrong"), &seconds.to_le_bytes());
    }

    /// `etcdctl …` on its host, asking it alone. None if it fails.
    pub(crate) fn ctl(&self, words: &[&str]) -> Option<String> {
        let output = self.command(words).output().unwrap();
        let answer = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(answer)
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.host.ns.command("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.url()]);
        for (option, name) in [
            ("--cacert", "ca.pem"),
            ("--cert", "server.pem"),
            ("--key", "server.key"),
        ] {
            command.arg(option).arg(self.folder.join(name));
        }
        command.args(words);
        command
    }

    pub(crate) fn status(&self) -> Option<Value> {
        let words = ["--command-timeout", "1s", "endpoint", "status", "--write-out", "json"];
        let all: Value = serde_json::from_str(&self.ctl(&words)?).ok()?;
        Some(all.get(0)?.get("Status")?.clone())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill")
        .args(["-s", name, &child.id().to_string()])
        .status();
    assert!(status.unwrap().success());
}

/// How a cluster is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct How {
    /// There are hosts with tenants, and gateways have a data path.
    pub(crate) tenants: bool,
    /// Members' disks can be made slow.
    pub(crate) slow_disks: bool,
    /// Members' wall clocks can be made wrong.
    pub(crate) wrong_members: bool,
    /// Gateways' wall clocks can be made wrong.
    pub(crate) wrong_clocks: bool,
    /// Gateways' leases.
    pub(crate) lease: Duration,
    /// What is said after an etcd that is silent for so long; faults that are to be noticed have to take longer.
    pub(crate) silence: Duration,
    /// The first gateway's disk can be made slow.
    pub(crate) slow_gateway: bool,
    /// Gateways log all that they may.
    pub(crate) talks: bool,
    /// More of `[store]`, or of its `etcd`.
    pub(crate) more: &'static str,
}

/// See the module.
pub(crate) struct Cluster {
    // In the order in which it is taken down.
    hosts: Option<Hosts>,
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) members: Vec<Member>,
    pub(crate) authority: Authority,
    authorities: Option<Authorities>,
    _switch: Device,
    _folder: Folder,
}

impl Cluster {
    pub(crate) fn start(tag: &str, how: How) -> Self {
        let folder = Folder::new();
        let switch = Namespace::create(&format!("{tag}-sw")).unwrap();
        let switch = Device::bridge(&switch, "bridge").unwrap();
        let authority = Authority::new("one");
        let slow = how
            .slow_disks
            .then(|| compile("common/slow.c", folder.join("slow"), &[]));
        let wrong = how
            .wrong_members
            .then(|| compile("fleet/wrong.c", folder.join("wrong"), &[]));
        let hosts: Vec<Host> = (1..=3).map(|number| Host::new(tag, &switch, number)).collect();
        let peer = |host: &Host| format!("m{}=https://{}:2380", host.number, host.ip());
        let peers = hosts.iter().map(peer).collect::<Vec<_>>().join(",");
        let mut members: Vec<Member> = hosts
            .into_iter()
            .map(|host| Member {
                host,
                folder: Folder::new(),
                child: None,
                ready: 0,
                peers: peers.clone(),
                slow: slow.clone(),
                wrong: wrong.clone(),
            })
            .collect();
        for member in &mut members {
            write_at_once(&member.folder.join("delay"), &[0; 4]);
            write_at_once(&member.folder.join("wrong"), &[0; 8]);
            let names = [member.host.ip().to_string()];
            authority.write(&names, &member.folder, "server");
            Authority::write_trusted(&[&authority], &member.folder);
            member.start();
        }
        members.iter_mut().for_each(Member::wait);
        let authorities = how.tenants.then(Authorities::new);
        let mut cluster = Self {
            hosts: None,
            gateways: Vec::new(),
            members,
            authority,
            authorities: None,
            _switch: switch,
            _folder: folder,
        };
        for (number, name) in (11..).zip(NAMES) {
            let folder = Folder::new();
            let host = Host::new(tag, &cluster._switch, number);
            cluster.configure(&folder, name, &host, (how, authorities.as_ref()));
            let wake = how.tenants.then(|| wake_for_what_is_sent_back(&host.wire.b, 1));
            let mut gateway = Gateway {
                name,
                host,
                daemon: None,
                socket: folder.join("api.sock"),
                clock: how.wrong_clocks.then(WrongClock::new),
                disk: (how.slow_gateway && number == 11).then(SlowDisk::new),
                restarts: Vec::new(),
                _wake: wake,
            };
            gateway.start(folder);
            cluster.gateways.push(gateway);
        }
        if let Some(authorities) = &authorities {
            cluster.hosts = Some(Hosts::new(tag, &cluster._switch, &mut cluster.gateways, authorities));
        }
        cluster.authorities = authorities;
        cluster
    }

    fn configure(&self, folder: &Folder, name: &str, host: &Host, (how, authorities): (How, Option<&Authorities>)) {
        self.authority.write(&["gateway".to_owned()], folder, "client");
        Authority::write_trusted(&[&self.authority], folder);
        let urls: Vec<String> = self.members.iter().map(Member::url).collect();
        let path = |name: &str| folder.join(name).display().to_string();
        let milliseconds = how.silence.as_millis();
        let of_etcd = format!(
            "request-ms = {milliseconds}\nsilence-ms = {milliseconds}\ncompare-seconds = 10\n\
             ca = \"{}\"\ncertificate = \"{}\"\nkey = \"{}\"",
            path("ca.pem"),
            path("client.pem"),
            path("client.key")
        );
        let fleet = format!(
            "[fleet]\nname = \"{name}\"\naddresses = [\"{}\"]\nlease-seconds = {}\n{}",
            host.ip(),
            how.lease.as_secs(),
            how.more
        );
        let path = authorities.map(|authorities| authorities.configure(folder, &host.ip().to_string()));
        let metrics = format!("\n[metrics]\nlisten = \"127.0.0.1:{METRICS}\"\n");
        let level = if how.talks { "[log]\nlevel = \"trace\"\n" } else { "" };
        let fleet = fleet + &path.unwrap_or_default() + &metrics + level;
        configure(folder, &urls.join("\", \""), &of_etcd, &fleet);
    }

    /// Hosts with tenants, when all of them send to the gateways that own their networks.
    pub(crate) fn hosts(&self) -> &Hosts {
        let hosts = self.hosts.as_ref().expect("with tenants");
        hosts.follow(&self.gateways);
        hosts
    }

    /// Others vouch for gateways' API and for hosts from now on.
    pub(crate) fn rotate(&mut self) {
        let hosts = self.hosts.as_ref().expect("with tenants");
        let authorities = self.authorities.as_mut().expect("with tenants");
        authorities.rotate(&mut self.gateways, hosts);
    }

    /// Tenants whose addresses change.
    pub(crate) fn movers(&self) -> &Arc<Movers> {
        &self.hosts.as_ref().expect("with tenants").movers
    }

    /// Gateways' names, and where their APIs are.
    pub(crate) fn sockets(&self) -> Vec<(&'static str, PathBuf)> {
        let socket = |gateway: &Gateway| (gateway.name, gateway.socket.clone());
        self.gateways.iter().map(socket).collect()
    }

    /// Which member leads, as soon as one does and most of those that run say so.
    pub(crate) fn leader(&self) -> usize {
        let begin = Instant::now();
        loop {
            for (at, member) in self.members.iter().enumerate() {
                let status = member.child.as_ref().and_then(|_| member.status());
                if let Some(status) = status
                    && status["leader"].as_u64().is_some_and(|leader| leader != 0)
                    && status["leader"] == status["header"]["member_id"]
                {
                    return at;
                }
            }
            assert!(begin.elapsed() < PATIENCE, "nobody leads: {}", self.members[0].log());
        }
    }

    /// Which election etcd's leader is of: the highest term that any member knows.
    pub(crate) fn term(&self) -> u64 {
        let told = self.members.iter().filter_map(|member| member.status());
        told.filter_map(|status| status["raftTerm"].as_u64()).max().unwrap_or(0)
    }

    /// Forgets all revisions but the last.
    pub(crate) fn compact(&self) {
        let begin = Instant::now();
        // A newer one may be there when it is asked for; a member may have no leader for a moment.
        while begin.elapsed() < PATIENCE {
            let revision = self.members[0]
                .status()
                .and_then(|status| status["header"]["revision"].as_i64());
            let words = ["compact", &revision.unwrap_or(0).to_string()];
            if revision.is_some() && self.members[0].ctl(&words).is_some() {
                return;
            }
        }
        panic!("it is not compacted: {}", self.members[0].log());
    }

    /// Gives all members certificates of an authority, and has them trust these; who connects from then on is greeted with that.
    pub(crate) fn trust(&self, authority: &Authority, trusted: &[&Authority]) {
        for member in &self.members {
            authority.write(&[member.host.ip().to_string()], &member.folder, "server");
            Authority::write_trusted(trusted, &member.folder);
        }
    }

    /// Gives all gateways certificates of an authority, has them trust these, and tells them so.
    pub(crate) fn renew_gateways(gateways: &mut [Gateway], authority: &Authority, trusted: &[&Authority]) {
        for gateway in gateways {
            let said = "credentials of store.etcd were read again";
            let daemon = gateway.daemon();
            let before = daemon.log().matches(said).count();
            authority.write(&["gateway".to_owned()], &daemon.folder, "client");
            Authority::write_trusted(trusted, &daemon.folder);
            daemon.signal("HUP");
            daemon.wait(said, |daemon| daemon.log().matches(said).count() > before);
        }
    }

    /// Waits until all gateways are well, and have found nothing in etcd that they did not know.
    pub(crate) fn wait_well(&mut self) {
        for gateway in &mut self.gateways {
            gateway.daemon().wait("health", |daemon| {
                let output = daemon.ctl(&["health"]);
                let said = String::from_utf8_lossy(&output.stdout).into_owned();
                assert!(!said.contains("were other than etcd has them"), "{said}");
                output.status.success()
            });
        }
    }

    /// How often each gateway has compared its tables with etcd since it was started. None has found anything otherwise.
    pub(crate) fn comparisons(&self) -> Vec<u64> {
        self.gateways.iter().map(Gateway::comparisons).collect()
    }

    /// Waits until each gateway, none of which was started anew, has done so again.
    pub(crate) fn wait_compared(&mut self, before: &[u64]) {
        let begin = Instant::now();
        for (gateway, before) in self.gateways.iter_mut().zip(before) {
            while gateway.comparisons() <= *before {
                assert!(begin.elapsed() < PATIENCE, "{}: still {before}", gateway.name);
                std::thread::sleep(Duration::from_millis(200));
            }
            // It is counted when all is listed: the tables have taken that before they take this.
            let put = put_neighbor(["7", "10.1.0.1", "02:00:00:00:00:01", "192.0.2.1"], None);
            let written = |daemon: &mut Daemon| daemon.ctl(&put).status.success();
            gateway.daemon().wait("a write", written);
        }
        self.comparisons();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for gateway in &mut self.gateways {
                let log = gateway.daemon.as_ref().map(Daemon::log).unwrap_or_default();
                eprintln!("gateway {}:\n{log}", gateway.name);
            }
            for member in &self.members {
                let of_leases = |line: &&str| ["leader", "revoke", "lease"].iter().any(|word| line.contains(word));
                let log = member.log();
                let lines: Vec<&str> = log.lines().filter(of_leases).collect();
                eprintln!("{} of leaders and leases:\n{}", member.name(), lines.join("\n"));
            }
            if let Some(hosts) = &self.hosts {
                eprintln!("agents:\n{}", hosts.told());
            }
        }
    }
}
