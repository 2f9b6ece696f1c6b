//! Which priority the tags of a VLAN device have, by the priority of what is sent (`egress-qos-map`).

use std::collections::BTreeMap;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoData, InfoKind, InfoVlan, LinkAttribute, LinkInfo, LinkMessage, VlanQosMapping};

use crate::{Error, Interface, Result};

impl Interface {
    /// The priority code point in the tag for each priority of a packet (`SO_PRIORITY`), without those that have 0, which is every
    /// priority's in the beginning; `None` if this is no VLAN device.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the interface was removed.
    #[doc(alias = "egress-qos-map")]
    #[doc(alias = "IFLA_VLAN_EGRESS_QOS")]
    pub fn egress_qos_map(&self) -> Result<Option<BTreeMap<u32, u8>>> {
        let mut message = LinkMessage::default();
        message.header.index = self.index();
        let answers = self.request("read how the link was made", RouteNetlinkMessage::GetLink(message), 0)?;
        let attributes = answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => Some(link.attributes),
            _ => None,
        });
        Ok(attributes.as_deref().and_then(told))
    }

    /// One entry as a setting's value.
    pub(crate) fn egress_of(&self, priority: u32) -> Result<String> {
        let map = self.egress_qos_map()?;
        let map = map.ok_or_else(|| {
            let source = std::io::Error::from_raw_os_error(libc::EOPNOTSUPP);
            Error::kernel("read the priorities of tags", self.name(), source)
        })?;
        Ok(map.get(&priority).copied().unwrap_or(0).to_string())
    }

    /// Sets one entry. An entry cannot be removed; 0 is what those have that are not there.
    pub(crate) fn set_egress(&self, priority: u32, value: &str) -> Result<()> {
        const OPERATION: &str = "set the priority of tags";
        let pcp: u32 = value
            .parse()
            .ok()
            .filter(|pcp| *pcp <= 7)
            .ok_or_else(|| Error::malformed(OPERATION, self.name(), format!("the value '{value}'")))?;
        let mapping = VlanQosMapping::Mapping(priority, pcp);
        let mut message = LinkMessage::default();
        message.header.index = self.index();
        message.attributes = vec![LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Vlan),
            LinkInfo::Data(InfoData::Vlan(vec![InfoVlan::EgressQos(vec![mapping])])),
        ])];
        // Of an interface that is there, this changes what it was made with; RTM_SETLINK would not.
        self.request(OPERATION, RouteNetlinkMessage::NewLink(message), 0)
            .map(drop)
    }
}

fn told(attributes: &[LinkAttribute]) -> Option<BTreeMap<u32, u8>> {
    let infos = attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => Some(infos),
        _ => None,
    })?;
    let settings = infos.iter().find_map(|info| match info {
        LinkInfo::Data(InfoData::Vlan(settings)) => Some(settings),
        _ => None,
    })?;
    let mappings = settings.iter().filter_map(|setting| match setting {
        InfoVlan::EgressQos(mappings) => Some(mappings),
        _ => None,
    });
    let entries = mappings.flatten().filter_map(|mapping| match mapping {
        VlanQosMapping::Mapping(from, to) => Some((*from, u8::try_from(*to).ok()?)),
        _ => None,
    });
    Some(entries.collect())
}
