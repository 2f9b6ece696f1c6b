//! What rules and connections say of a packet; and which rules it meets, for whoever watches.

use super::cacheable::may_be_taken;
use ringside_wire::Protocol;

use super::{Burst, Cacheable, Decider, Ends, flow_of, tenants_packet};
use crate::conntrack::Received;
use crate::flow::Flow;
use crate::policy::{Denied, ProfileId, RuleId};
use crate::{Content, DropReason, Packet, TenantAddress};

/// The egress rule of the sender and the ingress rule of the receiver that allow a packet as the first of a connection, or that none
/// does; None where nothing is bound.
pub type Judged = [Option<Result<RuleId, Denied>>; 2];

impl Burst<'_> {
    /// Of the next packet, before [`Burst::next`]. `frame` is what was read. Later packets of a connection, and replies, pass
    /// without being allowed here.
    #[must_use]
    pub fn rules(&mut self, frame: &[u8]) -> Judged {
        let packet = self.peek(frame);
        packet.map_or([None; 2], |packet| self.decider.rules(frame, &packet))
    }
}

/// True for whole TCP segments behind extension headers of IPv6: the fast path does not follow
/// their numbers. Of fragments connection tracking knows it.
fn is_unfollowed(frame: &[u8], packet: &Packet, flow: &Flow) -> bool {
    let next_header = frame.get(usize::from(packet.network) + 6);
    let is_whole_v6 = flow.source.is_ipv6() && flow.fragment.is_none();
    is_whole_v6 && flow.protocol == Protocol::TCP && next_header != Some(&Protocol::TCP.0)
}

impl Decider {
    /// Whether a packet passes, and what the fast path may take over then.
    ///
    /// What is bound to its ends was looked up when the burst began. Once other rules have come they are looked up again: those may be
    /// there because they are bound to neither of the two any more, and would let it be judged by what never held for it.
    pub(super) fn judge(
        &mut self,
        now: u64,
        frame: &[u8],
        packet: &Packet,
        mut flow: Option<Flow>,
        (mut receiver, mut sender): Ends,
    ) -> Result<Cacheable, DropReason> {
        let Content::Ip { src, dst } = packet.content else {
            return Ok(Cacheable::Nothing);
        };
        let [from, to] = [src, dst].map(|ip| TenantAddress::new(packet.vni, ip));
        let mut generation = self.generation;
        loop {
            let of_receiver = ProfileId::new(receiver.policy);
            let of_sender = match sender {
                Some(sender) => ProfileId::new(sender.policy),
                None if self.may_have_rules(packet.vni) || of_receiver.is_some() => self.profile_of_stranger(packet)?,
                None => None,
            };
            if (of_sender, of_receiver) == (None, None) {
                return Ok(Cacheable::Neighbor(to));
            }
            // Rules may be bound since the burst began.
            let known = flow
                .take()
                .or_else(|| flow_of(frame, packet))
                .ok_or(DropReason::InnerMalformed)?;
            let received = Received {
                now,
                vni: packet.vni,
                flow: &known,
                bytes: tenants_packet(frame, packet),
            };
            let judged = (self.firewall).judge_in(generation, &received, [of_sender, of_receiver]);
            let Some(judged) = judged else {
                flow = Some(known);
                generation = self.firewall.generation();
                receiver = self.neighbors.find(to).ok_or(DropReason::NoNeighbor)?;
                sender = self.neighbors.find(from);
                continue;
            };
            let passed = judged?;
            return Ok(match passed.connection {
                Some(connection) if passed.let_go || is_unfollowed(frame, packet, &known) => {
                    Cacheable::Ended(connection)
                }
                Some(connection) if passed.established && may_be_taken(&known, sender) => Cacheable::Connection {
                    connection,
                    generation: passed.generation,
                },
                _ => Cacheable::Nothing,
            });
        }
    }

    /// What is bound to a sender that is no neighbour, or was not looked up.
    ///
    /// Where rules are bound to any address nobody else may send: he could have taken the address to be bound by none.
    fn profile_of_stranger(&mut self, packet: &Packet) -> Result<Option<ProfileId>, DropReason> {
        let Content::Ip { src, .. } = packet.content else {
            return Ok(None);
        };
        let sender = TenantAddress::new(packet.vni, src);
        let profile = self.bindings.profile(sender);
        // It may have become a neighbour since the burst began.
        if profile.is_none() && self.bindings.is_policed(packet.vni) && self.neighbors.find(sender).is_none() {
            return Err(DropReason::UnknownSender);
        }
        Ok(profile)
    }

    fn rules(&mut self, frame: &[u8], packet: &Packet) -> Judged {
        let (Content::Ip { src, dst }, Some(flow)) = (packet.content, flow_of(frame, packet)) else {
            return [None; 2];
        };
        let [source, destination] = [src, dst].map(|ip| self.bindings.profile(TenantAddress::new(packet.vni, ip)));
        self.firewall.rules(&flow, source, destination)
    }
}
