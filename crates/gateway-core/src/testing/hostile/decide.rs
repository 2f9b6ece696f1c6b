//! Whole decisions: bursts of packets, with tables and rules that change between them.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use ringside_wire::Protocol;
use ringside_wire::icmp::v6;
use ringside_wire::tcp::Flags;

use super::world::{OPEN_PORT, Rules, World, a_frame};
use super::{Choices, sent};
use crate::decide::{Cacheable, Decision};
use crate::flow::{Ends, Query, Upper, is_intact};
use crate::{Buffer, Class, Content, DropReason, Flow, Packet, Roomy, TenantAddress, Vni};

const SECOND: u64 = 1_000_000_000;

/// Decides about packets, which the input says, with tables that it says. Whatever they are:
/// - in a burst, and by the lane where no rules are bound, becomes of each what becomes of it alone on the long way, to the byte;
/// - what goes on is the same packet for the tenant, goes where its receiver lives, and is allowed by a rule or belongs to what was;
/// - checksums that were right are right, those that were left are complete, and those that were wrong stay wrong;
/// - answers and errors go to who asked for them, and say what is so;
/// - what is not sent is for a reason that is true.
///
/// # Panics
/// When one of these does not hold.
pub fn decide(input: &[u8]) {
    let mut choices = Choices(input);
    let mut world = World::new(&mut choices);
    let (mut together, mut alone) = (world.decider(), world.decider());
    let (front, back) = choices.of(&[(128, 256), (128, 256), (0, 0), (20, 10)]);
    let mut history = History::default();
    let mut now = SECOND;
    // ICMP errors to each network, in the last second.
    let mut errors: HashMap<Vni, u32> = HashMap::new();
    while !choices.is_over() {
        let wait = choices.of(&[0, 1, 31 * SECOND, 200 * SECOND]);
        now += wait;
        if wait > 1 {
            errors.clear();
        }
        if choices.one_in(3) {
            world.change(&mut choices);
        }
        let frames: Vec<_> = (0..=choices.below(4)).map(|_| a_frame(&mut choices)).collect();
        together.begin(world.has_policy);
        frames.iter().for_each(|frame| together.read(frame));
        let mut burst = together.look_up();
        let decided: Vec<_> = frames
            .iter()
            .map(|frame| {
                let mut buffer = Roomy::new(frame, front, back);
                let decision = burst.next(now, 0, &mut buffer);
                (decision, burst.cacheable(), buffer.bytes().to_vec())
            })
            .collect();
        for (frame, (decision, cacheable, after)) in frames.iter().zip(&decided) {
            let mut buffer = Roomy::new(frame, front, back);
            let again = alone.decide(now, 0, true, &mut buffer);
            let together = (*decision, *cacheable, &after[..]);
            assert_eq!((again, alone.cacheable(), buffer.bytes()), together, "together, alone");
            if let (Decision::Complain(_), Class::Tenant(packet)) =
                (decision, Packet::classify(frame, &world.settings.underlay))
            {
                *errors.entry(packet.vni).or_default() += 1;
            }
            history.check(&world, frame, (*decision, *cacheable), after);
        }
        let most = world.settings.errors_per_second.saturating_add(1);
        assert!(errors.values().all(|&count| count <= most), "{errors:?}");
    }
}

/// Who said what to whom, as far as it matters to rules.
type Said = (Vni, IpAddr, IpAddr, Protocol, [u16; 2]);

/// What was allowed when it was said: each may have begun a conversation.
#[derive(Default)]
struct History {
    said: HashSet<Said>,
    /// First fragments: by what they are tied to the others.
    first: HashSet<(Vni, IpAddr, IpAddr, Protocol, u32)>,
}

/// The numbers of a conversation, of who began it; None where that cannot be told.
fn numbers(ends: Ends) -> [u16; 2] {
    match ends {
        Ends::Ports(ports) => ports,
        Ends::Query(Query { identifier, .. }) => [identifier, 0],
        Ends::None => [0, 0],
    }
}

impl History {
    fn check(&mut self, world: &World, frame: &[u8], (decision, cacheable): (Decision, Cacheable), after: &[u8]) {
        let class = Packet::classify(frame, &world.settings.underlay);
        let packet = match class {
            Class::NotOurs => return assert_eq!((decision, after), (Decision::Kernel, frame)),
            Class::Drop(reason) => return assert_eq!((decision, after), (Decision::Drop(reason), frame)),
            Class::Tenant(packet) => packet,
        };
        let (Content::Ip { dst: receiver, .. } | Content::WhoHas { target: receiver, .. }) = packet.content;
        let Some(receiver) = world.known.get(&TenantAddress::new(packet.vni, receiver)) else {
            return assert_eq!(decision, Decision::Drop(DropReason::NoNeighbor), "{packet:?}");
        };
        let host = world.host(receiver.host);
        let port = world.settings.port_to(&host);
        let port = port.and_then(|port| world.settings.ports.get(usize::from(port)));
        let has_address = port.is_some_and(|port| match host.ip {
            IpAddr::V4(_) => port.v4.is_some(),
            IpAddr::V6(_) => port.v6.is_some(),
        });
        let lacks_address = port.is_some() && !has_address;
        let is_resolved = host.mac.is_some() && has_address;
        let is_allowed = self.is_allowed(world, frame, &packet);
        let case = sent::Case {
            before: frame,
            after,
            packet: &packet,
            settings: &world.settings,
        };
        let comes_from_its_host = is_from_its_host(world, frame, &packet);
        match decision {
            Decision::Kernel => panic!("the gateway's: {packet:?}"),
            Decision::Wait(id) => {
                assert_eq!((after, id), (frame, receiver.host), "{packet:?}");
                let may_wait = !is_resolved && !lacks_address;
                assert!(may_wait && is_allowed && comes_from_its_host, "{packet:?} {host:?}");
            }
            Decision::NoAddress(id) => {
                assert_eq!((after, id), (frame, receiver.host), "{packet:?}");
                assert!(
                    lacks_address && is_allowed && comes_from_its_host,
                    "{packet:?} {host:?}"
                );
            }
            Decision::Answer => {
                assert!(matches!(packet.content, Content::WhoHas { .. }), "{packet:?}");
                case.is_answer(receiver.mac);
            }
            Decision::Send { port } => {
                assert!(is_resolved && is_allowed && comes_from_its_host, "{packet:?} {host:?}");
                case.is_sent_on(port, &host, receiver.mac);
                let bound = self.ends_bound(world, &packet);
                assert!(
                    bound == [None; 2] || !matches!(cacheable, Cacheable::Neighbor(_)),
                    "{cacheable:?}"
                );
            }
            Decision::Complain(reason) => {
                assert!(is_resolved && is_allowed && comes_from_its_host, "{packet:?} {host:?}");
                case.is_complaint(reason, &host);
            }
            Decision::Drop(reason) => assert!(
                match reason {
                    DropReason::WrongSource => !comes_from_its_host,
                    DropReason::HostUnresolved | DropReason::InnerMalformed | DropReason::NoRoom => true,
                    DropReason::OuterTtl => case.outer_ttl(frame) <= 1,
                    DropReason::OuterDamaged => case.is_made_right(&host),
                    DropReason::InnerTtl => case.inner_ttl() <= 1,
                    DropReason::TooBig => case.is_too_big(&host),
                    DropReason::ArpNotAsked | DropReason::DiscoveryNotAsked => {
                        packet.inner_source(frame) == receiver.mac
                    }
                    DropReason::EgressDenied | DropReason::IngressDenied => !self.may_begin(world, frame, &packet),
                    DropReason::UnknownSender => !is_allowed,
                    // What is bound to one of the two, or was: connections decide.
                    DropReason::InnerDamaged => {
                        let bytes = &frame[usize::from(packet.network)..usize::from(packet.end)];
                        !is_intact(bytes) && self.ends_bound(world, &packet) != [None; 2]
                    }
                    DropReason::NoLongerAllowed
                    | DropReason::NoConnection
                    | DropReason::BadFlags
                    | DropReason::OutOfWindow
                    | DropReason::OutOfState
                    | DropReason::Unrelated
                    | DropReason::UnknownFragment
                    | DropReason::SameEnds
                    | DropReason::TenantConnections
                    | DropReason::TotalConnections => self.ends_bound(world, &packet) != [None; 2],
                    _ => false,
                },
                "{reason} of {packet:?} to {host:?}"
            ),
        }
    }

    fn ends_bound(&self, world: &World, packet: &Packet) -> [Option<Rules>; 2] {
        let Content::Ip { src, dst } = packet.content else {
            return [None; 2];
        };
        [src, dst].map(|ip| world.bound.get(&TenantAddress::new(packet.vni, ip)).copied())
    }

    /// Rules allow it as the first of its conversation.
    fn may_begin(&self, world: &World, frame: &[u8], packet: &Packet) -> bool {
        let bytes = &frame[usize::from(packet.network)..usize::from(packet.end)];
        let bound = self.ends_bound(world, packet);
        Flow::parse(bytes).is_ok_and(|flow| allows(bound, flow.protocol, flow.service().unwrap_or(0)))
    }

    /// True if it may pass: by a rule, or because it belongs to what a rule allowed, and would still. Remembers it.
    fn is_allowed(&mut self, world: &World, frame: &[u8], packet: &Packet) -> bool {
        let Content::Ip { src, .. } = packet.content else {
            return true;
        };
        let sender = TenantAddress::new(packet.vni, src);
        let bound = self.ends_bound(world, packet);
        if bound[0].is_none() && world.is_policed(packet.vni) && !world.known.contains_key(&sender) {
            return false;
        }
        let Ok(flow) = Flow::parse(&frame[usize::from(packet.network)..usize::from(packet.end)]) else {
            return bound == [None; 2];
        };
        let (vni, protocol) = (packet.vni, flow.protocol);
        let passes = match (flow.ends(), flow.upper) {
            _ if bound == [None; 2] => true,
            (Some(ends), _) => self.belongs(bound, vni, &flow, ends),
            (None, Upper::Later) => {
                let identification = flow.fragment.map_or(0, |piece| piece.identification);
                let key = (vni, flow.source, flow.destination, protocol, identification);
                return self.first.contains(&key);
            }
            (None, Upper::Error(about)) => about.packet.is_some_and(|quoted| {
                let pair = [quoted.source, quoted.destination];
                let ways = [pair, [pair[1], pair[0]]];
                ways.iter().any(|[a, b]| {
                    self.said
                        .iter()
                        .any(|said| (said.0, said.1, said.2, said.3) == (vni, *a, *b, quoted.protocol))
                })
            }),
            (None, Upper::Icmp { message_type, .. })
                if protocol == Protocol::ICMPV6
                    && flow.hops == u8::MAX
                    && matches!(message_type, v6::NEIGHBOR_SOLICITATION | v6::NEIGHBOR_ADVERTISEMENT) =>
            {
                true
            }
            (None, _) => allows(bound, protocol, flow.service().unwrap_or(0)),
        };
        if let Some(piece) = flow.fragment.filter(|_| passes) {
            let key = (vni, flow.source, flow.destination, protocol, piece.identification);
            self.first.insert(key);
        }
        let by_itself = allows(bound, protocol, flow.service().unwrap_or(0));
        if let Some([first, second]) = flow.ends().map(numbers) {
            if by_itself {
                self.said
                    .insert((vni, flow.source, flow.destination, protocol, [first, second]));
            } else if passes && is_of_the_middle(&flow) {
                // The other side has begun it.
                self.said
                    .insert((vni, flow.destination, flow.source, protocol, [second, first]));
            }
        }
        passes
    }

    fn belongs(&self, [source, destination]: [Option<Rules>; 2], vni: Vni, flow: &Flow, ends: Ends) -> bool {
        let [first, second] = numbers(ends);
        let protocol = flow.protocol;
        // A query and its answer have the same number; which of the two began it is told by the rules about queries.
        let is_query = matches!(ends, Ends::Query(_));
        let (back, service) = if is_query {
            ([first, second], 0)
        } else {
            ([second, first], first)
        };
        let begun = (vni, flow.destination, flow.source, protocol, back);
        allows([source, destination], protocol, flow.service().unwrap_or(0))
            || (self.said.contains(&begun) || is_of_the_middle(flow))
                && allows([destination, source], protocol, service)
    }
}

/// A segment by which a connection is picked up that is not known, or no longer: from either side.
fn is_of_the_middle(flow: &Flow) -> bool {
    match flow.upper {
        Upper::Tcp(segment) => [Flags::ACK, Flags::FIN | Flags::ACK].contains(&segment.flags.of_state()),
        _ => false,
    }
}

/// As the rules of [`World`] say.
fn allows([source, destination]: [Option<Rules>; 2], protocol: Protocol, service: u16) -> bool {
    source != Some(Rules::Nothing)
        && match destination {
            None | Some(Rules::All) => true,
            Some(Rules::Nothing) => false,
            Some(Rules::Open) => (protocol, service) == (Protocol::UDP, OPEN_PORT),
        }
}

fn is_from_its_host(world: &World, frame: &[u8], packet: &Packet) -> bool {
    let Content::Ip { src, .. } = packet.content else {
        return true;
    };
    let sender = world.known.get(&TenantAddress::new(packet.vni, src));
    !world.settings.source_check
        || sender
            .is_some_and(|sender| world.host(sender.host).ip == packet.from && packet.inner_source(frame) == sender.mac)
}
