//! Generic netlink: families that are found by name, and messages whose attributes are read by number.
//!
//! <https://docs.kernel.org/userspace-api/netlink/intro.html#generic-netlink>

use std::convert::Infallible;

use netlink_packet_core::{NetlinkDeserializable, NetlinkHeader, NetlinkSerializable, NlasIterator};
use netlink_sys::protocols::NETLINK_GENERIC;

use super::{NetlinkError, Socket};

// The controller: https://elixir.bootlin.com/linux/v6.18/C/ident/GENL_ID_CTRL
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const CTRL_ATTR_MCAST_GROUPS: u16 = 7;
const CTRL_ATTR_MCAST_GRP_NAME: u16 = 1;
const CTRL_ATTR_MCAST_GRP_ID: u16 = 2;

/// `struct genlmsghdr`: command, version, two reserved bytes.
const HEADER_LEN: usize = 4;
const ATTRIBUTE_HEADER_LEN: usize = 4;
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/NLA_F_NESTED>
const NLA_F_NESTED: u16 = 1 << 15;

/// A message of a family: a command and its attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    family: u16,
    pub(crate) command: u8,
    attributes: Vec<u8>,
}

impl Message {
    pub(crate) fn new(family: u16, command: u8) -> Self {
        Self {
            family,
            command,
            attributes: Vec::new(),
        }
    }

    #[must_use]
    pub(crate) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(ATTRIBUTE_HEADER_LEN + value.len()).unwrap_or(u16::MAX);
        self.attributes.extend(length.to_ne_bytes());
        self.attributes.extend(kind.to_ne_bytes());
        self.attributes.extend(value);
        self.attributes.resize(self.attributes.len().next_multiple_of(4), 0);
        self
    }

    #[must_use]
    pub(crate) fn with_u32(self, kind: u16, value: u32) -> Self {
        self.with(kind, &value.to_ne_bytes())
    }

    #[must_use]
    pub(crate) fn with_u64(self, kind: u16, value: u64) -> Self {
        self.with(kind, &value.to_ne_bytes())
    }

    #[must_use]
    pub(crate) fn with_nested(self, kind: u16, inside: &Self) -> Self {
        self.with(kind | NLA_F_NESTED, &inside.attributes)
    }

    pub(crate) fn attributes(&self) -> Attributes<'_> {
        Attributes(&self.attributes)
    }
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        self.family
    }

    fn buffer_len(&self) -> usize {
        HEADER_LEN + self.attributes.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        // Version 1 is the only one that the families asked here ever had.
        buffer[..HEADER_LEN].copy_from_slice(&[self.command, 1, 0, 0]);
        buffer[HEADER_LEN..].copy_from_slice(&self.attributes);
    }
}

impl NetlinkDeserializable for Message {
    type Error = Infallible;

    /// A message too short for its header becomes one without attributes: nothing is found in it.
    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Infallible> {
        Ok(Self {
            family: header.message_type,
            command: payload.first().copied().unwrap_or_default(),
            attributes: payload.get(HEADER_LEN..).unwrap_or_default().to_vec(),
        })
    }
}

/// The attributes of a message, or those inside one of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Attributes<'a> {
    /// All, in the kernel's order; what is malformed ends the list.
    pub(crate) fn all(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        NlasIterator::new(self.0).map_while(Result::ok).map(|attribute| {
            let (kind, length) = (attribute.kind(), usize::from(attribute.length()));
            let value = attribute.into_inner().get(ATTRIBUTE_HEADER_LEN..length);
            (kind, value.unwrap_or_default())
        })
    }

    pub(crate) fn find(self, kind: u16) -> Option<&'a [u8]> {
        self.all().find(|(found, _)| *found == kind).map(|(_, value)| value)
    }

    /// A number. The netlink type "uint" has four or eight bytes, whichever the value needs.
    pub(crate) fn number(self, kind: u16) -> Option<u64> {
        let value = self.find(kind)?;
        match *value {
            [_, _] => value.try_into().ok().map(|bytes| u16::from_ne_bytes(bytes).into()),
            [_, _, _, _] => value.try_into().ok().map(|bytes| u32::from_ne_bytes(bytes).into()),
            _ => value.try_into().ok().map(u64::from_ne_bytes),
        }
    }

    /// A number that fits into 32 bits; any other is as good as absent.
    pub(crate) fn u32(self, kind: u16) -> Option<u32> {
        self.number(kind)?.try_into().ok()
    }

    fn text(self, kind: u16) -> Option<&'a str> {
        std::str::from_utf8(self.find(kind)?)
            .ok()
            .map(|text| text.trim_end_matches('\0'))
    }
}

/// What the kernel calls a family by until it restarts, or its module is loaded anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Family {
    pub(crate) id: u16,
    groups: Vec<(String, u32)>,
}

impl Family {
    /// The number of a multicast group.
    pub(crate) fn group(&self, name: &str) -> Option<u32> {
        self.groups
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, number)| *number)
    }

    fn from_attributes(attributes: Attributes<'_>) -> Option<Self> {
        let groups = Attributes(attributes.find(CTRL_ATTR_MCAST_GROUPS).unwrap_or_default());
        Some(Self {
            id: attributes.number(CTRL_ATTR_FAMILY_ID)?.try_into().ok()?,
            groups: groups
                .all()
                .filter_map(|(_, group)| {
                    let group = Attributes(group);
                    let name = group.text(CTRL_ATTR_MCAST_GRP_NAME)?;
                    Some((name.to_owned(), group.u32(CTRL_ATTR_MCAST_GRP_ID)?))
                })
                .collect(),
        })
    }
}

impl Socket<Message> {
    /// Opens a `NETLINK_GENERIC` socket.
    pub(crate) fn generic() -> std::io::Result<Self> {
        Self::open(NETLINK_GENERIC)
    }

    /// Asks for a family; `None` if this kernel does not have it.
    pub(crate) fn family(&mut self, name: &str) -> Result<Option<Family>, NetlinkError> {
        let name = [name.as_bytes(), b"\0"].concat();
        let question = Message::new(GENL_ID_CTRL, CTRL_CMD_GETFAMILY).with(CTRL_ATTR_FAMILY_NAME, &name);
        let answers = match self.request(question, 0) {
            Err(NetlinkError::Refused { source, .. }) if source.raw_os_error() == Some(libc::ENOENT) => {
                return Ok(None);
            }
            other => other?,
        };
        answers
            .iter()
            .find_map(|answer| Family::from_attributes(answer.attributes()))
            .map(Some)
            .ok_or_else(|| NetlinkError::Malformed("a family without a number".to_owned()))
    }
}

#[cfg(test)]
#[path = "generic_tests.rs"]
mod tests;
