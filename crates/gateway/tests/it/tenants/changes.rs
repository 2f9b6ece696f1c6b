//! Rules of a network change again and again while its tenants talk. What the rules before and after a change allow goes on without a loss,
//! what both deny never comes, and what is denied from now on ends with the answer to the change. Each packet is accounted for.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ringside_gateway::proto::operation_service_client::OperationServiceClient;
use ringside_gateway::proto::port_service_client::PortServiceClient;
use ringside_gateway::proto::rule::Remote;
use ringside_gateway::proto::security_group_service_client::SecurityGroupServiceClient;
use ringside_gateway::proto::{
    Count, Direction, GetStatisticsRequest, GetStatisticsResponse, Outcome, Port, PortRange, PutPortsRequest,
    PutSecurityGroupsRequest, Rule, SecurityGroup, TenantAddress,
};
use ringside_netlab::wait_until;
use tokio::runtime::Runtime;
use tonic::transport::Channel;

use crate::bed::{Bed, FAMILIES, Family, Kind, Place, ip};
use crate::common::connect as api;
use crate::peers::{AtEnd, answered, chat, connect, exchange_during, is_cut_off};
use crate::process::PATIENCE;
use crate::tenant::neighbors;
use crate::tenants::datagrams::Flow;
use crate::tenants::on;
use crate::tenants::streams::lost_by_kernel;

on! {
    fast = crate::tenants::FAST => datagrams_go_by_the_rules_of_the_moment, connections_go_by_the_rules_of_the_moment, a_file_leaves_no_gap;
    workers = crate::tenants::WORKERS => datagrams_go_by_the_rules_of_the_moment, connections_go_by_the_rules_of_the_moment, a_file_leaves_no_gap;
}

/// Of the ports from here on all rules allow the first, every second of them the second, and none the third.
const UDP: u16 = 9000;
const TCP: u16 = 7000;
const ALWAYS: u16 = 0;
const BY_TURNS: u16 = 1;
const NEVER: u16 = 2;
/// Why packets are dropped because of rules, and why the first is of a connection that they have ended.
const DENIED: [&str; 3] = ["ingress-denied", "egress-denied", ENDED[0]];
const ENDED: [&str; 1] = ["no-longer-allowed"];
/// Drop reason of packets for which workers had no room. Rules were not applied to these packets.
/// Workers publish the count once a second.
const BUSY: [&str; 1] = ["worker-busy"];
/// How often the rules change.
const CHANGES: usize = 300;
/// The same with connections, which have to send again what was denied.
const TURNS_OF_CONNECTIONS: usize = 40;

/// The rules, which change in a circle of six: those of a group that is bound, and which one is bound.
struct Rules {
    runtime: Runtime,
    channel: Channel,
    version: u64,
    changes: usize,
    addresses: [Vec<IpAddr>; 2],
}

impl Rules {
    fn new(bed: &mut Bed) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let socket = bed.ringside().daemon().folder.join("api.sock");
        let channel = runtime.block_on(api(&socket));
        let mut rules = Self {
            runtime,
            channel,
            version: 0,
            changes: 0,
            addresses: [1, 2].map(|host| FAMILIES.map(|family| bed.at(host).address(family)).to_vec()),
        };
        let anything = Rule {
            id: 1,
            direction: Direction::Egress.into(),
            ..Rule::default()
        };
        rules.put(2, vec![anything]);
        rules.put(4, allow([ALWAYS, ALWAYS], &members()));
        rules.bind(0, 2);
        rules.bind(1, 4);
        rules
    }

    /// Binds this group to the receiver in the place of another, which allows nothing from then on.
    fn exchange(&mut self, before: u32, after: u32, rules: Vec<Rule>) {
        self.put(after, rules);
        self.bind(1, after);
        self.put(before, Vec::new());
    }

    /// Other rules. Whether they allow what is allowed by turns, as every second does from the first on.
    fn change(&mut self) -> bool {
        match self.changes % 6 {
            0 => self.exchange(4, 1, allow([ALWAYS, BY_TURNS], &members())),
            1 => self.put(1, allow([ALWAYS, ALWAYS], &prefixes())),
            2 => {
                let both = [ALWAYS, BY_TURNS].map(|port| allow([port, port], &[None]));
                self.put(1, both.concat());
            }
            3 => self.exchange(1, 3, allow([ALWAYS, ALWAYS], &prefixes())),
            4 => self.put(3, allow([ALWAYS, BY_TURNS], &prefixes())),
            _ => self.exchange(3, 4, allow([ALWAYS, ALWAYS], &members())),
        }
        self.changes += 1;
        self.changes % 2 == 1
    }

    fn put(&mut self, id: u32, rules: Vec<Rule>) {
        self.version += 1;
        let group = SecurityGroup {
            id,
            rules,
            version: self.version,
            ..SecurityGroup::default()
        };
        let request = PutSecurityGroupsRequest { groups: vec![group] };
        let mut client = SecurityGroupServiceClient::new(self.channel.clone());
        let answer = self.runtime.block_on(client.put_security_groups(request));
        are_taken(answer.expect("an answer").get_ref().outcomes());
    }

    fn bind(&mut self, host: usize, group: u32) {
        self.version += 1;
        let port = |ip: &IpAddr| Port {
            address: Some(TenantAddress {
                vni: 42,
                ip: match ip {
                    IpAddr::V4(ip) => ip.octets().to_vec(),
                    IpAddr::V6(ip) => ip.octets().to_vec(),
                },
            }),
            groups: vec![group],
            version: self.version,
        };
        let ports = self.addresses[host].iter().map(port).collect();
        let mut client = PortServiceClient::new(self.channel.clone());
        let answer = self.runtime.block_on(client.put_ports(PutPortsRequest { ports }));
        are_taken(answer.expect("an answer").get_ref().outcomes());
    }

    fn statistics(&self) -> GetStatisticsResponse {
        let mut client = OperationServiceClient::new(self.channel.clone());
        let answer = self.runtime.block_on(client.get_statistics(GetStatisticsRequest {}));
        answer.expect("an answer").into_inner()
    }

    /// Packets that the fast path has handed to workers because rules are bound.
    fn handed_up(&self) -> u64 {
        count(&self.statistics().handed_up, &["policed"])
    }

    /// Packets that were dropped by workers for these reasons.
    fn dropped(&self, reasons: &[&str]) -> u64 {
        let paths = self.statistics().paths;
        let slow = paths.iter().find(|path| path.path == "slow").expect("workers");
        count(&slow.dropped_packets, reasons)
    }
}

fn count(counts: &[Count], names: &[&str]) -> u64 {
    let wanted = counts.iter().filter(|count| names.contains(&&*count.name));
    wanted.map(|count| count.value).sum()
}

fn are_taken(outcomes: impl Iterator<Item = Outcome>) {
    for outcome in outcomes {
        assert!(matches!(outcome, Outcome::Created | Outcome::Replaced), "{outcome:?}");
    }
}

/// Who may send: members of a group, or addresses.
fn members() -> Vec<Option<Remote>> {
    vec![Some(Remote::RemoteGroup(2))]
}

fn prefixes() -> Vec<Option<Remote>> {
    let all = ["10.0.0.0/24", "fd00::/64"];
    all.map(|prefix| Some(Remote::RemotePrefix(prefix.to_owned()))).to_vec()
}

/// Rules that let in what goes to these ports.
fn allow([first, last]: [u16; 2], remotes: &[Option<Remote>]) -> Vec<Rule> {
    let mut rules = Vec::new();
    for (protocol, port) in [(17, UDP), (6, TCP)] {
        for remote in remotes {
            rules.push(Rule {
                id: rules.len() as u64 + 1,
                direction: Direction::Ingress.into(),
                protocol: Some(protocol),
                ports: Some(PortRange {
                    first: (port + first).into(),
                    last: (port + last).into(),
                }),
                remote: remote.clone(),
                ..Rule::default()
            });
        }
    }
    rules
}

fn datagrams_go_by_the_rules_of_the_moment(kind: Kind) {
    let mut bed = Bed::new("changes-udp", kind, &[Place::vxlan(Family::V4); 2]);
    // Nothing has to wait for the hosts' MAC addresses.
    for [from, to] in [[1, 2], [2, 1]] {
        answered(bed.at(from), bed.at(to).address(Family::V6));
    }
    let mut rules = Rules::new(&mut bed);
    let [always, by_turns, never] =
        [ALWAYS, BY_TURNS, NEVER].map(|port| Flow::new((bed.at(1), bed.at(2)), Family::V6, UDP + port));
    let flows = [&always, &by_turns, &never];
    let (over, closed) = (AtomicBool::new(false), AtomicBool::new(false));
    let (dropped, busy, by_kernel) = (rules.dropped(&DENIED), rules.dropped(&BUSY), lost_by_kernel(&bed));
    // Numbers of what was sent after the answer to a change that denies, and before the next change was asked for.
    let mut denied = Vec::new();
    std::thread::scope(|scope| {
        let (over, closed) = (&over, &closed);
        let (ends, closes) = (AtEnd(over), AtEnd(closed));
        for flow in flows {
            scope.spawn(move || flow.run(over, closed));
        }
        for _ in 0..CHANGES {
            let is_allowed = rules.change();
            let from = by_turns.sent();
            if is_allowed {
                let comes = || by_turns.arrived().range(from..).nth(3).is_some();
                assert!(wait_until(PATIENCE, comes), "{}", bed.ringside().statistics());
                if kind.path() == "fast" {
                    assert!(wait_until(PATIENCE, || go_fast(&rules, &by_turns, &never)));
                }
            } else {
                assert!(wait_until(PATIENCE, || by_turns.sent() > from + 6));
                // The last one may have its number, and not be sent yet. No other is still under way when the next rules come.
                denied.push(from..by_turns.sent() - 1);
                let in_vain = by_turns.missing() + never.missing();
                let are_judged = || rules.dropped(&DENIED) - dropped + rules.dropped(&BUSY) - busy >= in_vain;
                assert!(wait_until(PATIENCE, are_judged), "{}", bed.ringside().statistics());
            }
        }
        drop(ends);
        let missing = || flows.iter().map(|flow| flow.missing()).sum::<u64>();
        wait_until(Duration::from_secs(5), || {
            rules.dropped(&DENIED) - dropped + rules.dropped(&BUSY) - busy == missing()
        });
        drop(closes);
    });
    // Packets lost before rules were applied: by the kernel's queues, or for want of room.
    let unjudged = lost_by_kernel(&bed) - by_kernel + rules.dropped(&BUSY) - busy;
    always.all_came_but(unjudged);
    assert_eq!(*never.arrived(), BTreeSet::new());
    for numbers in denied {
        let came: Vec<u64> = by_turns.arrived().range(numbers.clone()).copied().collect();
        assert!(came.is_empty(), "{came:?} of {numbers:?}");
    }
    // All that did not come was dropped because of rules, and what was dropped did not come.
    let missing: u64 = flows.iter().map(|flow| flow.missing()).sum();
    let dropped = rules.dropped(&DENIED) - dropped;
    assert!(
        dropped <= missing && missing - dropped <= unjudged,
        "{missing} missing, {dropped} dropped, {unjudged} for want of room"
    );
    // Each time it was a connection that lived.
    let ended = rules.dropped(&ENDED);
    assert!(ended + unjudged >= CHANGES as u64 / 2, "{ended}");
    if kind.path() == "slow" {
        assert_eq!(bed.ringside().forwarded("fast"), 0);
    }
}

/// Whether workers get no more than what none of the rules allows.
fn go_fast(rules: &Rules, by_turns: &Flow, never: &Flow) -> bool {
    const MOMENT: u64 = 12;
    let (others, before) = (never.sent(), rules.handed_up());
    let until = by_turns.sent() + MOMENT;
    assert!(wait_until(PATIENCE, || by_turns.sent() >= until));
    let handed_up = rules.handed_up() - before;
    handed_up <= never.sent() - others + MOMENT / 2
}

fn connections_go_by_the_rules_of_the_moment(kind: Kind) {
    const WORD: &[u8; 4] = b"late";
    let mut bed = Bed::new("changes-tcp", kind, &[Place::vxlan(Family::V4); 2]);
    // What was denied is sent again soon.
    for host in [1, 2] {
        let route =
            format!("route change 10.0.0.0/24 dev tenant0 proto kernel scope link src 10.0.0.{host} rto_min 10ms");
        ip(&bed.at(host).ns, &route);
    }
    let mut rules = Rules::new(&mut bed);
    let to = bed.at(2).address(Family::V4);
    let busy = connect(bed.at(1), (bed.at(2), to), TCP + ALWAYS);
    assert!(rules.change());
    let by_turns = connect(bed.at(1), (bed.at(2), to), TCP + BY_TURNS);
    let goes_fast = |rules: &Rules| {
        let before = rules.handed_up();
        chat(&by_turns).expect("goes");
        rules.handed_up() == before
    };
    exchange_during(&busy, || {
        for turn in 0..TURNS_OF_CONNECTIONS {
            chat(&by_turns).expect("goes");
            if kind.path() == "fast" {
                assert!(
                    wait_until(PATIENCE, || goes_fast(&rules)),
                    "{}",
                    bed.ringside().statistics()
                );
            }
            let before = rules.dropped(&ENDED);
            assert!(!rules.change());
            for mut end in &by_turns {
                end.write_all(WORD).expect("taken");
            }
            assert!(wait_until(PATIENCE, || rules.dropped(&ENDED) > before));
            if turn.is_multiple_of(10) {
                assert!(is_cut_off(bed.at(1), (bed.at(2), to), TCP + NEVER));
            }
            for end in &by_turns {
                nothing_came(end);
            }
            assert!(rules.change());
            for mut end in &by_turns {
                let mut word = [0; 4];
                end.read_exact(&mut word).expect("goes on");
                assert_eq!(&word, WORD);
            }
        }
    });
    if kind.path() == "slow" {
        assert_eq!(bed.ringside().forwarded("fast"), 0);
    }
}

fn nothing_came(mut end: &TcpStream) {
    end.set_nonblocking(true).expect("set");
    let heard = end.read(&mut [0; 4]);
    assert!(
        heard.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock),
        "{heard:?}"
    );
    end.set_nonblocking(false).expect("set");
}

/// Files that put one group in the place of another, which is to be absent from then on, and that remove addresses with their ports: what both
/// rules allow goes on, and who may get nothing never does.
fn a_file_leaves_no_gap(kind: Kind) {
    const FILES: u32 = 40;
    let mut bed = Bed::new("changes-file", kind, &[Place::vxlan(Family::V4); 2]);
    answered(bed.at(1), bed.at(2).address(Family::V4));
    let [sender, receiver] = [1, 2].map(|host| format!("vni: 42, ip: {}", bed.at(host).card.v4));
    let group = |id: u32| {
        let rules =
            format!("[{{id: 1, direction: egress}}, {{id: 2, direction: ingress, protocol: udp, ports: {UDP}}}]");
        let ports = [&sender, &receiver].map(|address| format!("  - {{{address}, groups: [{id}]}}\n"));
        format!("groups:\n  - {{id: {id}, rules: {rules}}}\nports:\n{}", ports.concat())
    };
    bed.ringside().apply(&group(1));
    let flow = Flow::new((bed.at(1), bed.at(2)), Family::V4, UDP);
    let (by_kernel, busy) = (lost_by_kernel(&bed), bed.ringside().dropped("worker-busy"));
    flow.run_during(|| {
        for [old, new] in [[1, 2], [2, 1]].repeat(FILES as usize / 2) {
            bed.ringside()
                .apply(&format!("{}absent: {{groups: [{old}]}}\n", group(new)));
        }
    });
    assert!(flow.sent() > u64::from(FILES), "{} in {FILES} files", flow.sent());
    let mut unjudged = || lost_by_kernel(&bed) - by_kernel + bed.ringside().dropped("worker-busy") - busy;
    // Workers count once a second.
    wait_until(Duration::from_secs(5), || flow.missing() <= unjudged());
    flow.all_came_but(unjudged());
    for reason in DENIED {
        assert_eq!(bed.ringside().dropped(reason), 0, "{reason}");
    }
    drop(flow);

    let closed = format!("groups:\n  - {{id: 3, rules: []}}\nports:\n  - {{{receiver}, groups: [3]}}\n");
    let there = closed.clone() + &neighbors(&[bed.at(2).card]);
    let gone = format!("absent:\n  ports: [{{{receiver}}}]\n  neighbors: [{{{receiver}}}]\n");
    bed.ringside().apply(&closed);
    let flow = Flow::new((bed.at(1), bed.at(2)), Family::V4, UDP);
    flow.run_during(|| {
        for _ in 0..FILES / 2 {
            bed.ringside().apply(&gone);
            bed.ringside().apply(&there);
        }
        assert_eq!(*flow.arrived(), BTreeSet::new());
        // Whoever has no port gets it.
        bed.ringside().apply(&format!("absent: {{ports: [{{{receiver}}}]}}\n"));
        assert!(wait_until(PATIENCE, || !flow.arrived().is_empty()));
    });
}
