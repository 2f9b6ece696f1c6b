//! Which packets pass: rules and connections together.

use std::sync::Arc;

use ringside_wire::Protocol;
use ringside_wire::icmp::v6;

use crate::Vni;
use crate::conntrack::{Conntrack, Passed, Received, Refused};
use crate::flow::{Flow, Upper};
use crate::policy::{Denied, Direction, Policy, PolicyReader, ProfileId, RuleId, Snapshot, Subject};

/// Judges packets, for one thread.
///
/// ```
/// use std::sync::Arc;
///
/// use ringside_gateway_core::conntrack::{Conntrack, Limits, Refused};
/// use ringside_gateway_core::flow::Flow;
/// use ringside_gateway_core::policy::{Denied, Direction, GroupId, Policy, Remote, Rule, RuleId, Service};
/// use ringside_gateway_core::{Firewall, Vni};
/// use ringside_wire::{Protocol, ipv4, udp};
///
/// # fn packet(src: &str, dst: &str, src_port: u16, dst_port: u16) -> Flow {
/// #     let mut bytes = [0; 28];
/// #     let ip = ipv4::Header::new(src.parse().unwrap(), dst.parse().unwrap(), Protocol::UDP);
/// #     ipv4::Header { payload_len: 8, ..ip }.emit(&mut bytes).unwrap();
/// #     udp::Header { src_port, dst_port, payload_len: 0 }.emit(&mut bytes[20..]).unwrap();
/// #     Flow::parse(&bytes).unwrap()
/// # }
/// let policy = Policy::new();
/// let mut writer = policy.write();
/// let dns = Service::Ports(Protocol::UDP, 53..=53);
/// let allow = |direction| Rule { id: RuleId(1), direction, family: None, service: dns.clone(), remote: Remote::Any };
/// writer.put_group(GroupId(1), vec![allow(Direction::Egress)])?;
/// let client = Some(writer.profile(&[GroupId(1)]));
/// writer.publish();
///
/// let connections = Arc::new(Conntrack::new(Limits { connections: 1000, ..Limits::default() }));
/// let mut firewall = Firewall::new(&policy, connections);
/// let vni = Vni::new(7).unwrap();
/// let question = packet("10.0.0.1", "10.0.0.2", 5000, 53);
/// let answer = packet("10.0.0.2", "10.0.0.1", 53, 5000);
/// // Nothing may come in, unless it answers.
/// assert_eq!(firewall.judge(0, vni, &answer, None, client), Err(Refused::Denied(Denied::Ingress)));
/// assert!(firewall.judge(0, vni, &question, client, None).is_ok());
/// assert!(firewall.judge(1, vni, &answer, None, client).is_ok_and(|passed| passed.established));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Firewall {
    policy: PolicyReader,
    conntrack: Arc<Conntrack>,
}

impl Firewall {
    /// By these rules and connections, which all threads share.
    #[must_use]
    pub fn new(policy: &Policy, conntrack: Arc<Conntrack>) -> Self {
        Self {
            policy: policy.reader(),
            conntrack,
        }
    }

    /// The connections.
    #[must_use]
    pub fn conntrack(&self) -> &Conntrack {
        &self.conntrack
    }

    /// The egress rule of the source and the ingress rule of the destination that allow this as the first packet of a connection, or
    /// that none does; None where there is no profile.
    pub(crate) fn rules(
        &mut self,
        flow: &Flow,
        source: Option<ProfileId>,
        destination: Option<ProfileId>,
    ) -> [Option<Result<RuleId, Denied>>; 2] {
        let policy = self.policy.load();
        let subject = Subject {
            source: flow.source,
            destination: flow.destination,
            protocol: flow.protocol,
            service: flow.service().unwrap_or(0),
        };
        [
            source.map(|own| policy.allows(own, Direction::Egress, &subject, destination)),
            destination.map(|own| policy.allows(own, Direction::Ingress, &subject, source)),
        ]
    }

    /// Judges a packet of a network at a time, in nanoseconds of any clock that does not run backwards and is the same for
    /// all threads.
    ///
    /// `source` and `destination` are the profiles of its two addresses (`Neighbor::policy`), looked up before this call.
    /// If neither has one, it passes and nothing is remembered; it is established from its first packet on then, and what
    /// is put into the fast path has to be let go when one of the two gets a profile.
    ///
    /// Its checksums count as right: a [`Decider`](crate::decide::Decider) verifies them.
    ///
    /// # Errors
    /// [`Refused`]: why it is to be dropped.
    pub fn judge(
        &mut self,
        now: u64,
        vni: Vni,
        flow: &Flow,
        source: Option<ProfileId>,
        destination: Option<ProfileId>,
    ) -> Result<Passed, Refused> {
        let packet = Received {
            now,
            vni,
            flow,
            bytes: None,
        };
        judge(self.policy.load(), &self.conntrack, &packet, [source, destination])
    }

    /// As [`Firewall::judge`], by the rules of a generation. None: there are others by now.
    pub(crate) fn judge_in(
        &mut self,
        generation: u64,
        packet: &Received<'_>,
        profiles: [Option<ProfileId>; 2],
    ) -> Option<Result<Passed, Refused>> {
        let policy = self.policy.load();
        (policy.generation() == generation).then(|| judge(policy, &self.conntrack, packet, profiles))
    }

    /// That of the rules that there are.
    pub(crate) fn generation(&mut self) -> u64 {
        self.policy.load().generation()
    }
}

/// See [`Firewall::judge`].
fn judge(
    policy: &Snapshot,
    conntrack: &Conntrack,
    packet: &Received<'_>,
    profiles: [Option<ProfileId>; 2],
) -> Result<Passed, Refused> {
    let &Received { now, vni, flow, .. } = packet;
    let once = Passed::once(policy);
    let [source, destination] = profiles;
    if (source, destination) == (None, None) {
        return Ok(Passed {
            established: flow.ends().is_some() && flow.fragment.is_none(),
            ..once
        });
    }
    let passed = match &flow.upper {
        Upper::Later => return conntrack.later_fragment(packet, policy, profiles),
        // Without it no IPv6 address would be found; 255 hops show that it comes from no farther than the network.
        Upper::Icmp {
            message_type: v6::NEIGHBOR_SOLICITATION | v6::NEIGHBOR_ADVERTISEMENT,
            ..
        } if flow.protocol == Protocol::ICMPV6 && flow.hops == u8::MAX => Ok(once),
        Upper::Error(about) => conntrack.related(packet, about, policy, profiles),
        _ => match flow.ends() {
            Some(ends) => conntrack.track(packet, ends, policy, profiles),
            None => {
                let subject = Subject {
                    source: flow.source,
                    destination: flow.destination,
                    protocol: flow.protocol,
                    service: flow.service().unwrap_or(0),
                };
                let judged = policy.judge(&subject, source, destination);
                judged.map(|()| once).map_err(Refused::Denied)
            }
        },
    }?;
    if flow.fragment.is_some() {
        conntrack.allow_fragments(now, vni, flow, passed.generation, profiles);
        return Ok(Passed {
            established: false,
            ..passed
        });
    }
    Ok(passed)
}

#[cfg(test)]
mod tests;
