//! The corpus where rules are bound: what the program sends on of an open connection, or between ends without rules, is what
//! gateway-core sends on, and what it leaves to a worker it has to leave.

use std::net::IpAddr;

use ringside_bpf::gateway::{CachedConnection, ConnectionKey, Outcome, SlowCause};
use ringside_gateway_core::conntrack::{Connection, ConnectionId, State};
use ringside_gateway_core::decide::{Cacheable, Decision};
use ringside_gateway_core::flow::{Flow, Upper};
use ringside_gateway_core::policy::{Direction, GroupId, Policy, ProfileId, Remote, Rule, RuleId, Service};
use ringside_gateway_core::testing::corpus::{RECEIVERS, corpus, tenant};
use ringside_gateway_core::{Content, DropReason, Packet};
use ringside_wire::Protocol;
use ringside_wire::tcp::Flags;
use rustix::time::{ClockId, clock_gettime};

use crate::common::privileged;
use crate::gateway::bed::{Bed, Core, Wanted, in_namespace, vni};
use crate::gateway::corpus::compare;

/// In which what is bound is as it is.
pub(crate) const GENERATION: u64 = 5;
/// For user space.
pub(crate) const NOW: u64 = 1_000_000_000;
/// What the corpus has: ports of UDP, and of TCP.
const CONVERSATIONS: [(Protocol, [u16; 2]); 2] = [(Protocol::UDP, [1000, 53]), (Protocol::TCP, [40_000, 443])];

/// What allows everything.
pub(crate) fn everything(policy: &Policy) -> ProfileId {
    let rule = |direction| Rule {
        id: RuleId(1),
        direction,
        family: None,
        service: Service::Any,
        remote: Remote::Any,
    };
    let mut writer = policy.write();
    let rules = vec![rule(Direction::Egress), rule(Direction::Ingress)];
    writer.put_group(GroupId(1), rules).unwrap();
    let profile = writer.profile(&[GroupId(1)]);
    writer.publish();
    profile
}

fn key_of(vni: u32, protocol: Protocol, ips: [IpAddr; 2], ports: [u16; 2]) -> (ConnectionKey, bool) {
    ConnectionKey::new(vni, protocol.0, (ips[0], ports[0]), (ips[1], ports[1]))
}

impl Bed {
    pub(crate) fn has_rules(&self) -> bool {
        !self.wanted.bound.is_empty()
    }

    /// Conversations of tenant 1 with each of the others are open, and the program has them.
    pub(crate) fn hand_over_all(&mut self) {
        let conversations = CONVERSATIONS
            .iter()
            .flat_map(|conversation| [(conversation, false), (conversation, true)]);
        let mut open = Vec::new();
        for (&(protocol, ports), v6) in conversations {
            open.extend(RECEIVERS.map(|last| Connection {
                vni: vni(),
                source: tenant(1, v6),
                destination: tenant(last, v6),
                protocol,
                ports,
                state: if protocol == Protocol::TCP {
                    State::Established
                } else {
                    State::UdpReplied
                },
                seen: NOW,
                profiles: [None; 2],
                generation: 0,
                handed_over: false,
                id: ConnectionId::from_bits(0),
            }));
        }
        for connection in &open {
            assert!(self.core.conntrack.restore(NOW, connection));
        }
        let mut all = Vec::new();
        self.core.conntrack.for_each(|connection| all.push(connection.id));
        assert_eq!(all.len(), open.len());
        all.into_iter().for_each(|id| self.hand_over(id));
    }

    /// As the daemon's keeper does it.
    fn hand_over(&mut self, id: ConnectionId) {
        let Some(connection) = self.core.conntrack.hand_over(id) else {
            return;
        };
        if !matches!(connection.protocol, Protocol::TCP | Protocol::UDP) {
            return;
        }
        let now = clock_gettime(ClockId::Monotonic);
        let ips = [connection.source, connection.destination];
        let (key, from_higher) = key_of(connection.vni.number(), connection.protocol, ips, connection.ports);
        let value = CachedConnection {
            generation: GENERATION,
            seen: u64::try_from(now.tv_sec).unwrap() * 1_000_000_000,
            idle_ms: u32::MAX,
            from_higher,
            one_way: false,
            numbers: None,
            name: id.to_bits(),
        };
        assert_eq!(self.program.connections().put(&[(key, value)]).unwrap(), 1);
        self.handed.insert(key);
    }

    /// What follows from a decision: connections that are open now go to the program; and after one has ended all is made anew, so
    /// that packets which follow meet one that is open.
    pub(crate) fn follow(&mut self, decision: Decision) {
        if !matches!(decision, Decision::Send { .. }) {
            return;
        }
        match self.core.decider.cacheable() {
            Cacheable::Connection { connection, .. } => self.hand_over(connection),
            Cacheable::Ended(_) => {
                let gone: Vec<_> = self.handed.drain().collect();
                self.program.connections().remove(&gone).unwrap();
                self.core = Core::new(&self.config, self.wanted);
                self.hand_over_all();
            }
            Cacheable::Nothing | Cacheable::Neighbor(_) => {}
        }
    }

    fn is_bound(&self, ip: IpAddr) -> bool {
        let both = |last: &u8| [tenant(*last, false), tenant(*last, true)].contains(&ip);
        self.wanted.bound.iter().any(both)
    }

    /// Rules have to say whether it may be sent on: it is no plain data of a connection that the program has.
    pub(crate) fn is_for_rules(&self, frame: &[u8], packet: &Packet) -> bool {
        let Content::Ip { src, dst } = packet.content else {
            return false;
        };
        let bytes = &frame[usize::from(packet.network)..usize::from(packet.end)];
        (self.is_bound(src) || self.is_bound(dst)) && !Flow::parse(bytes).is_ok_and(|flow| self.is_plain_data(&flow))
    }

    fn is_plain_data(&self, flow: &Flow) -> bool {
        let of_state = Flags::SYN | Flags::FIN | Flags::RST | Flags::URG;
        let ports = match &flow.upper {
            Upper::Tcp(segment) if segment.flags.has(Flags::ACK) && segment.flags.0 & of_state.0 == 0 => segment.ports,
            Upper::Ports(ports) => *ports,
            _ => return false,
        };
        let (key, _) = key_of(vni().number(), flow.protocol, [flow.source, flow.destination], ports);
        flow.fragment.is_none() && self.handed.contains(&key)
    }
}

/// Rules, or what is known of connections, are why it goes no farther: that is a worker's to say.
pub(crate) fn is_judged(reason: DropReason) -> bool {
    use DropReason::{
        BadFlags, EgressDenied, IngressDenied, InnerDamaged, InnerMalformed, NoConnection, NoLongerAllowed, OutOfState,
        OutOfWindow, SameEnds, UnknownFragment, UnknownSender, Unrelated,
    };
    [
        BadFlags,
        EgressDenied,
        IngressDenied,
        InnerDamaged,
        InnerMalformed,
        NoConnection,
        NoLongerAllowed,
        OutOfState,
        OutOfWindow,
        SameEnds,
        UnknownFragment,
        UnknownSender,
        Unrelated,
    ]
    .contains(&reason)
}

#[test]
fn both_say_the_same_where_rules_are_bound() {
    if !privileged() {
        return;
    }
    in_namespace(|second| {
        // To some receivers, and to who sends to all of them.
        for (v6, bound) in [(false, &[2, 3, 5][..]), (true, &[1])] {
            let wanted = Wanted {
                v6,
                bound,
                ..Wanted::default()
            };
            let seen = compare(Bed::new(second, wanted), &corpus(8));
            let of = |outcome| seen.get(&outcome).copied().unwrap_or(0);
            // From who is not known; to who is bound; and what is plain data, of hosts by either port.
            for (outcome, least) in [
                (Outcome::Slow(SlowCause::Sender), 10),
                (Outcome::Slow(SlowCause::Policed), 1000),
                (Outcome::Forwarded, 1000),
                (Outcome::Redirected, 10),
            ] {
                assert!(of(outcome) >= least, "{wanted:?}: {outcome:?} of {seen:?}");
            }
        }
    });
}
