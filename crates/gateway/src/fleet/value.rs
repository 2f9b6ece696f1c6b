//! What a key holds: the objects of a block, or a group, packed.
//!
//! ```text
//! format 1 byte ▏ entries ▏ CRC-32 of the key behind the prefix and of all before, 4 bytes, little-endian
//!
//! entry   low 1 (which address of the block) ▏ flags 1 ▏ version varint ▏
//!   deleted    seconds since 1970, varint
//!   neighbour  MAC 6 ▏ host's address 4 or 16 ▏ host's MAC 6 if flagged ▏ interface varint if flagged
//!   port       count varint ▏ groups varint each
//!   group      name's length varint ▏ name ▏ rules' length varint ▏ rules as JSON, as in the store
//! flags   1 deleted ▏ 2 host over IPv6 ▏ 4 host's MAC ▏ 8 interface ▏ 16 VXLAN, 32 Geneve
//! ```
//! Entries are in the order of their addresses. Deleted objects leave their version behind until that is forgotten. A value has
//! one way to be written: who puts the same puts the same bytes.

use std::net::IpAddr;

use ringside_gateway_core::TenantAddress;
use ringside_gateway_core::policy::GroupId;
use ringside_gateway_core::table::{Encapsulation, Host};
use ringside_wire::MacAddr;

use super::key::{ADDRESSES, Block, Key};
use crate::object::text::{GroupForm, RuleForm, Text as _};
use crate::object::{Group, GroupKey, MAX_GROUPS, Neighbor, Object, Port, Statement};

/// The one there is.
const FORMAT: u8 = 1;
/// Bytes of the checksum.
const SUM: usize = 4;

const DELETED: u8 = 1;
const HOST_V6: u8 = 2;
const HOST_MAC: u8 = 4;
const INTERFACE: u8 = 8;
const VXLAN: u8 = 16;
const GENEVE: u8 = 32;

/// What is known of an object, or that it is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<O: Object> {
    /// What was last said about it.
    pub statement: Statement<O>,
    /// When it was deleted, in seconds since 1970; 0 for what is there.
    pub deleted: i64,
}

/// Kinds of objects that can be packed.
pub(crate) trait Packed: Object {
    /// Its bytes, and what the flags say of them.
    fn pack(&self, into: &mut Vec<u8>) -> u8;

    /// Reads its bytes.
    fn unpack(bytes: &mut Bytes<'_>, flags: u8, key: Self::Key, version: u64) -> Result<Self, String>;

    /// The key of the value that has it, and its place there.
    fn place(key: Self::Key) -> (Key, u8);

    /// The object of a place; None if there can be none.
    fn at(key: Key, low: u8) -> Option<Self::Key>;
}

/// Bytes that are read.
#[derive(Debug)]
pub(crate) struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("it ends too early")?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (taken, rest) = self.0.split_first_chunk().ok_or("it ends too early")?;
        self.0 = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8, String> {
        self.array().map(|[byte]| byte)
    }

    /// Seven bits a byte, the lowest first; one way to write each number.
    fn number(&mut self) -> Result<u64, String> {
        let (mut number, mut shift) = (0_u64, 0);
        loop {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift > 63 || (bits << shift) >> shift != bits || (byte == 0 && shift > 0) {
                return Err("a number is written wrongly".to_owned());
            }
            number |= bits << shift;
            shift += 7;
            if byte < 0x80 {
                return Ok(number);
            }
        }
    }

    fn small<T: TryFrom<u64>>(&mut self) -> Result<T, String> {
        let number = self.number()?;
        T::try_from(number).map_err(|_| format!("{number} is too large"))
    }

    fn text(&mut self) -> Result<&'a str, String> {
        let length = self.small()?;
        std::str::from_utf8(self.take(length)?).map_err(|error| error.to_string())
    }
}

fn number(mut number: u64, into: &mut Vec<u8>) {
    while number >= 0x80 {
        let [low, ..] = number.to_le_bytes();
        into.push(low | 0x80);
        number >>= 7;
    }
    let [low, ..] = number.to_le_bytes();
    into.push(low);
}

fn text(text: &str, into: &mut Vec<u8>) {
    number(text.len() as u64, into);
    into.extend_from_slice(text.as_bytes());
}

fn checksum(key: Key, bytes: &[u8]) -> [u8; SUM] {
    let mut sum = crc32fast::Hasher::new();
    sum.update(key.to_string().as_bytes());
    sum.update(bytes);
    sum.finalize().to_le_bytes()
}

/// What a key is to hold; None: nothing, and the key can go. Entries are in the order of their addresses.
pub(crate) fn pack<O: Packed>(key: Key, entries: &[Entry<O>]) -> Option<Vec<u8>> {
    if entries.is_empty() {
        return None;
    }
    let mut bytes = Vec::with_capacity(1 + 28 * entries.len() + SUM);
    bytes.push(FORMAT);
    for Entry { statement, deleted } in entries {
        let (_, low) = O::place(statement.key());
        bytes.extend_from_slice(&[low, 0]);
        let flags = bytes.len() - 1;
        number(statement.version(), &mut bytes);
        let set = match statement {
            Statement::Put(object) => object.pack(&mut bytes),
            Statement::Delete(..) => {
                number((*deleted).max(0).cast_unsigned(), &mut bytes);
                DELETED
            }
        };
        if let Some(flags) = bytes.get_mut(flags) {
            *flags = set;
        }
    }
    let sum = checksum(key, &bytes);
    bytes.extend_from_slice(&sum);
    Some(bytes)
}

/// Whether it is whole, and in a format that only a newer program knows.
pub(crate) fn is_newer(key: Key, value: &[u8]) -> bool {
    let parts = value.split_last_chunk::<SUM>();
    parts.is_some_and(|(bytes, noted)| bytes.first() > Some(&FORMAT) && checksum(key, bytes) == *noted)
}

/// Reads what a key holds.
///
/// # Errors
/// A text that says what is wrong with it.
pub(crate) fn unpack<O: Packed>(key: Key, value: &[u8]) -> Result<Vec<Entry<O>>, String> {
    let (bytes, noted) = value.split_last_chunk::<SUM>().ok_or("it is too short")?;
    let found = checksum(key, bytes);
    if found != *noted {
        return Err(format!("its checksum is {found:02x?}, not {noted:02x?}"));
    }
    let mut bytes = Bytes(bytes);
    match bytes.byte()? {
        FORMAT => {}
        other => return Err(format!("format {other} is not known: a newer program has written it")),
    }
    let mut entries = Vec::new();
    let mut next = 0;
    while !bytes.0.is_empty() {
        let [low, flags] = bytes.array()?;
        let object = O::at(key, low).filter(|_| low >= next);
        let object = object.ok_or_else(|| format!("{low} is no place in it"))?;
        next = low + 1;
        let version = bytes.number()?;
        if version > crate::object::MAX_VERSION {
            return Err(format!("{version} is no version"));
        }
        entries.push(if flags == DELETED {
            let deleted = i64::try_from(bytes.number()?).map_err(|error| error.to_string())?;
            Entry {
                statement: Statement::Delete(object, version),
                deleted,
            }
        } else {
            Entry {
                statement: Statement::Put(O::unpack(&mut bytes, flags, object, version)?),
                deleted: 0,
            }
        });
    }
    Ok(entries)
}

fn block_of(key: Key, low: u8, is_kind: impl FnOnce(Key) -> Option<Block>) -> Option<TenantAddress> {
    (low < ADDRESSES)
        .then(|| is_kind(key))
        .flatten()
        .map(|block| block.address(low))
}

impl Packed for Neighbor {
    fn pack(&self, into: &mut Vec<u8>) -> u8 {
        let mut flags = 0;
        into.extend_from_slice(&self.mac.0);
        match self.host.ip {
            IpAddr::V4(ip) => into.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => {
                flags |= HOST_V6;
                into.extend_from_slice(&ip.octets());
            }
        }
        if let Some(mac) = self.host.mac {
            flags |= HOST_MAC;
            into.extend_from_slice(&mac.0);
        }
        if let Some(port) = self.host.port {
            flags |= INTERFACE;
            into.push(port);
        }
        flags
            | match self.host.encapsulation {
                None => 0,
                Some(Encapsulation::Vxlan) => VXLAN,
                Some(Encapsulation::Geneve) => GENEVE,
            }
    }

    fn unpack(bytes: &mut Bytes<'_>, flags: u8, address: TenantAddress, version: u64) -> Result<Self, String> {
        let mac = MacAddr(bytes.array()?);
        let ip = if flags & HOST_V6 == 0 {
            IpAddr::from(bytes.array::<4>()?)
        } else {
            IpAddr::from(bytes.array::<16>()?)
        };
        let host = Host {
            ip,
            mac: (flags & HOST_MAC != 0)
                .then(|| bytes.array().map(MacAddr))
                .transpose()?,
            port: (flags & INTERFACE != 0).then(|| bytes.byte()).transpose()?,
            encapsulation: match flags & !(HOST_V6 | HOST_MAC | INTERFACE) {
                0 => None,
                VXLAN => Some(Encapsulation::Vxlan),
                GENEVE => Some(Encapsulation::Geneve),
                _ => return Err(format!("flags {flags:#x} are not known")),
            },
        };
        Ok(Self {
            address,
            mac,
            host,
            version,
        })
    }

    fn place(address: TenantAddress) -> (Key, u8) {
        let (block, low) = Block::of(address);
        (Key::Neighbors(block), low)
    }

    fn at(key: Key, low: u8) -> Option<TenantAddress> {
        block_of(key, low, |key| match key {
            Key::Neighbors(block) => Some(block),
            _ => None,
        })
    }
}

impl Packed for Port {
    fn pack(&self, into: &mut Vec<u8>) -> u8 {
        number(self.groups.len() as u64, into);
        self.groups.iter().for_each(|group| number(group.0.into(), into));
        0
    }

    fn unpack(bytes: &mut Bytes<'_>, flags: u8, address: TenantAddress, version: u64) -> Result<Self, String> {
        no_flags(flags)?;
        let count: usize = bytes.small()?;
        if count > MAX_GROUPS {
            return Err(format!("{count} groups are too many"));
        }
        let groups = (0..count).map(|_| bytes.small().map(GroupId));
        Ok(Self {
            address,
            groups: groups.collect::<Result<_, _>>()?,
            version,
        })
    }

    fn place(address: TenantAddress) -> (Key, u8) {
        let (block, low) = Block::of(address);
        (Key::Ports(block), low)
    }

    fn at(key: Key, low: u8) -> Option<TenantAddress> {
        block_of(key, low, |key| match key {
            Key::Ports(block) => Some(block),
            _ => None,
        })
    }
}

impl Packed for Group {
    fn pack(&self, into: &mut Vec<u8>) -> u8 {
        text(&self.name, into);
        let rules: Vec<RuleForm> = self.rules.iter().map(RuleForm::from).collect();
        let json = serde_json::to_string(&rules).expect("rules have no keys that are not text");
        text(&json, into);
        0
    }

    fn unpack(bytes: &mut Bytes<'_>, flags: u8, key: GroupKey, version: u64) -> Result<Self, String> {
        no_flags(flags)?;
        let form = GroupForm {
            id: key.0.0,
            name: bytes.text()?.to_owned(),
            rules: serde_json::from_str(bytes.text()?).map_err(|error| error.to_string())?,
            version: Some(version),
        };
        Self::from_text(&form, version)
    }

    fn place(key: GroupKey) -> (Key, u8) {
        (Key::Group(key.0), 0)
    }

    fn at(key: Key, low: u8) -> Option<GroupKey> {
        match key {
            Key::Group(id) if low == 0 => Some(GroupKey(id)),
            _ => None,
        }
    }
}

fn no_flags(flags: u8) -> Result<(), String> {
    match flags {
        0 => Ok(()),
        _ => Err(format!("flags {flags:#x} are not known")),
    }
}

#[cfg(test)]
#[path = "value_tests.rs"]
mod tests;
