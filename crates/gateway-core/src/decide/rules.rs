//! Which rules a packet meets: for whoever watches.

use super::{Burst, Decider, flow_of};
use crate::policy::{Denied, RuleId};
use crate::{Content, Packet, TenantAddress};

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

impl Decider {
    fn rules(&mut self, frame: &[u8], packet: &Packet) -> Judged {
        let (Content::Ip { src, dst }, Some(flow)) = (packet.content, flow_of(frame, packet)) else {
            return [None; 2];
        };
        let [source, destination] = [src, dst].map(|ip| self.bindings.profile(TenantAddress::new(packet.vni, ip)));
        self.firewall.rules(&flow, source, destination)
    }
}
