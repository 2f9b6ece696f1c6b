//! Objects from messages of the API, and back.
//!
//! What comes from outside is checked here, once: whoever has an object may rely on it.

use std::net::{IpAddr, Ipv4Addr};

use ringside_gateway_core::policy::{Direction, Family, GroupId, Remote, Rule, RuleId, Service};
use ringside_gateway_core::table::{Encapsulation, Host};
use ringside_gateway_core::{TenantAddress, Vni};
use ringside_wire::{MacAddr, Protocol};

use super::{Group, GroupKey, MAX_GROUPS, MAX_NAME, MAX_RULES, MAX_VERSION, Neighbor, Object, Port};
use crate::proto;

/// An object that has a message.
pub trait Wire: Object {
    /// Its message.
    type Message: Send + 'static;

    /// The most of them that fit into a message of a few megabytes.
    const AT_ONCE: u32;

    /// Reads a message.
    ///
    /// # Errors
    /// A text that says which field is wrong, and what was expected.
    fn from_wire(message: Self::Message) -> Result<Self, String>;

    /// Checks what has to hold for an object that is put, and may not hold for one that was put by
    /// an older version.
    ///
    /// # Errors
    /// As those of [`Wire::from_wire`].
    fn check_put(&self) -> Result<(), String> {
        Ok(())
    }

    /// Its message.
    fn to_wire(&self) -> Self::Message;

    /// What names it, as the token of a page.
    fn to_token(key: Self::Key) -> Vec<u8>;

    /// What a token names; None if it is none.
    fn from_token(token: &[u8]) -> Option<Self::Key>;
}

/// Checks a version.
///
/// # Errors
/// It is above [`MAX_VERSION`].
pub fn version(version: u64) -> Result<u64, String> {
    if version <= MAX_VERSION {
        Ok(version)
    } else {
        Err(format!("version: {version} is above {MAX_VERSION}"))
    }
}

/// Checks the version of a delete, which may not count.
///
/// # Errors
/// It is too high.
#[cfg(feature = "daemon")]
pub(crate) fn delete_version(version: u64, any_version: bool) -> Result<u64, String> {
    match any_version {
        true => Ok(super::OPEN_VERSION),
        false => self::version(version),
    }
}

/// Checks an address of one host or tenant.
///
/// # Errors
/// It is that of many, of none, or IPv4 inside of IPv6.
pub fn unicast(ip: IpAddr) -> Result<IpAddr, String> {
    let mapped = matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some());
    if ip.is_unspecified() || ip.is_multicast() {
        return Err(format!("{ip} is not the address of one host"));
    }
    if mapped {
        return Err(format!("{ip} is an IPv4 address; write it as {}", ip.to_canonical()));
    }
    Ok(ip)
}

/// Checks an address that others send packets to: that of a host or of a gateway.
///
/// # Errors
/// It is none of one host, or is within the host itself. Linux routes all of 240.0.0.0/4 (reserved
/// in RFC 1112) but 255.255.255.255 as unicast addresses.
pub fn host_address(ip: IpAddr) -> Result<IpAddr, String> {
    if ip.is_loopback() || ip == Ipv4Addr::BROADCAST {
        return Err(format!("{ip} is not the address of one host"));
    }
    unicast(ip)
}

fn ip(bytes: &[u8]) -> Result<IpAddr, String> {
    let ip = if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        IpAddr::from(v4)
    } else if let Ok(v6) = <[u8; 16]>::try_from(bytes) {
        IpAddr::from(v6)
    } else {
        return Err(format!("{} bytes are no IP address, 4 or 16 are", bytes.len()));
    };
    unicast(ip)
}

pub(crate) fn ip_bytes(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// Checks a MAC address of one interface.
///
/// # Errors
/// It is that of many, or of none.
pub fn one_mac(mac: MacAddr) -> Result<MacAddr, String> {
    if mac.is_multicast() || mac == MacAddr::ZERO {
        return Err(format!("{mac} is not the address of one interface"));
    }
    Ok(mac)
}

pub(crate) fn mac(bytes: &[u8]) -> Result<MacAddr, String> {
    let bytes = <[u8; 6]>::try_from(bytes).map_err(|_| format!("{} bytes are no MAC address, 6 are", bytes.len()))?;
    one_mac(MacAddr(bytes))
}

/// Adds the name of a field.
fn at<T>(field: &'static str, result: Result<T, String>) -> Result<T, String> {
    result.map_err(|error| format!("{field}: {error}"))
}

/// Reads the number of a network.
///
/// # Errors
/// It is above 16777215.
pub fn vni(number: u32) -> Result<Vni, String> {
    Vni::new(number).ok_or_else(|| format!("vni: {number} is above {}", Vni::MAX))
}

/// Reads an address.
///
/// # Errors
/// A text that says which field is wrong.
pub fn address(message: Option<&proto::TenantAddress>) -> Result<TenantAddress, String> {
    let message = message.ok_or("address: is missing")?;
    Ok(TenantAddress::new(vni(message.vni)?, at("ip", ip(&message.ip))?))
}

/// Writes an address.
#[must_use]
pub fn address_message(address: TenantAddress) -> proto::TenantAddress {
    proto::TenantAddress {
        vni: address.vni.number(),
        ip: ip_bytes(address.ip),
    }
}

/// Reads the address of a host; None if there are no bytes.
///
/// # Errors
/// A text that says what is wrong.
pub fn host_ip(bytes: &[u8]) -> Result<Option<IpAddr>, String> {
    optional_ip("host_ip", bytes)
}

/// Reads an address of a field that may be empty.
///
/// # Errors
/// Which field, and what is wrong.
pub fn optional_ip(field: &'static str, bytes: &[u8]) -> Result<Option<IpAddr>, String> {
    if bytes.is_empty() {
        return Ok(None);
    }
    at(field, ip(bytes).map(Some))
}

/// Writes an address of a host.
#[must_use]
pub fn host_ip_bytes(ip: Option<IpAddr>) -> Vec<u8> {
    ip.map(ip_bytes).unwrap_or_default()
}

fn address_token(address: TenantAddress) -> Vec<u8> {
    let mut token = address.vni.to_bytes().to_vec();
    token.extend(ip_bytes(address.ip));
    token
}

fn token_address(token: &[u8]) -> Option<TenantAddress> {
    let (vni, bytes) = token.split_first_chunk()?;
    Some(TenantAddress::new(Vni::from_bytes(*vni), ip(bytes).ok()?))
}

/// Of an interface of the gateway.
pub(super) fn interface(number: u32) -> Result<u8, String> {
    let number = u8::try_from(number).ok().filter(|&known| known != u8::MAX);
    number.ok_or_else(|| "254 is the highest number of an interface".to_owned())
}

pub(crate) fn host(message: Option<&proto::Host>) -> Result<Host, String> {
    let message = message.ok_or("host: is missing")?;
    let encapsulation = match message.encapsulation() {
        proto::Encapsulation::Vxlan => Some(Encapsulation::Vxlan),
        proto::Encapsulation::Geneve => Some(Encapsulation::Geneve),
        proto::Encapsulation::Unspecified if message.encapsulation == 0 => None,
        proto::Encapsulation::Unspecified => {
            return Err(format!("host.encapsulation: {} is not known", message.encapsulation));
        }
    };
    Ok(Host {
        ip: at("host.ip", ip(&message.ip))?,
        mac: match &*message.mac {
            [] => None,
            bytes => Some(at("host.mac", mac(bytes))?),
        },
        port: message.port.map(|port| at("host.port", interface(port))).transpose()?,
        encapsulation,
    })
}

pub(crate) fn encapsulation_message(encapsulation: Option<Encapsulation>) -> proto::Encapsulation {
    match encapsulation {
        None => proto::Encapsulation::Unspecified,
        Some(Encapsulation::Vxlan) => proto::Encapsulation::Vxlan,
        Some(Encapsulation::Geneve) => proto::Encapsulation::Geneve,
    }
}

pub(crate) fn host_message(host: &Host) -> proto::Host {
    proto::Host {
        ip: ip_bytes(host.ip),
        mac: host.mac.map(|mac| mac.0.to_vec()).unwrap_or_default(),
        port: host.port.map(u32::from),
        encapsulation: encapsulation_message(host.encapsulation).into(),
    }
}

impl Wire for Neighbor {
    type Message = proto::Neighbor;

    const AT_ONCE: u32 = 10_000;

    fn from_wire(message: proto::Neighbor) -> Result<Self, String> {
        Ok(Self {
            address: address(message.address.as_ref())?,
            mac: at("mac", mac(&message.mac))?,
            host: host(message.host.as_ref())?,
            version: version(message.version)?,
        })
    }

    fn check_put(&self) -> Result<(), String> {
        at("host.ip", host_address(self.host.ip)).map(drop)
    }

    fn to_wire(&self) -> proto::Neighbor {
        proto::Neighbor {
            address: Some(address_message(self.address)),
            mac: self.mac.0.to_vec(),
            host: Some(host_message(&self.host)),
            version: self.version,
        }
    }

    fn to_token(address: TenantAddress) -> Vec<u8> {
        address_token(address)
    }

    fn from_token(token: &[u8]) -> Option<TenantAddress> {
        token_address(token)
    }
}

/// Puts groups in order, each once.
///
/// # Errors
/// They are more than [`MAX_GROUPS`].
pub fn groups(numbers: impl IntoIterator<Item = u32>) -> Result<Vec<GroupId>, String> {
    let mut groups: Vec<GroupId> = numbers.into_iter().map(GroupId).collect();
    groups.sort_unstable();
    groups.dedup();
    if groups.len() > MAX_GROUPS {
        return Err(format!("groups: {} are more than {MAX_GROUPS}", groups.len()));
    }
    Ok(groups)
}

impl Wire for Port {
    type Message = proto::Port;

    const AT_ONCE: u32 = 10_000;

    fn from_wire(message: proto::Port) -> Result<Self, String> {
        Ok(Self {
            address: address(message.address.as_ref())?,
            groups: groups(message.groups)?,
            version: version(message.version)?,
        })
    }

    fn to_wire(&self) -> proto::Port {
        proto::Port {
            address: Some(address_message(self.address)),
            groups: self.groups.iter().map(|group| group.0).collect(),
            version: self.version,
        }
    }

    fn to_token(address: TenantAddress) -> Vec<u8> {
        address_token(address)
    }

    fn from_token(token: &[u8]) -> Option<TenantAddress> {
        token_address(token)
    }
}

impl Wire for Group {
    type Message = proto::SecurityGroup;

    /// With all the rules that they may have.
    const AT_ONCE: u32 = 32;

    fn from_wire(message: proto::SecurityGroup) -> Result<Self, String> {
        let rules = message.rules.into_iter().enumerate();
        let rules = rules.map(|(at, message)| rule(&message).map_err(|error| format!("rules[{at}].{error}")));
        Self {
            id: GroupId(message.id),
            name: message.name,
            rules: rules.collect::<Result<_, _>>()?,
            version: version(message.version)?,
        }
        .checked()
    }

    fn to_wire(&self) -> proto::SecurityGroup {
        proto::SecurityGroup {
            id: self.id.0,
            name: self.name.clone(),
            rules: self.rules.iter().map(rule_message).collect(),
            version: self.version,
        }
    }

    fn to_token(key: GroupKey) -> Vec<u8> {
        key.0.0.to_be_bytes().to_vec()
    }

    fn from_token(token: &[u8]) -> Option<GroupKey> {
        token.try_into().ok().map(u32::from_be_bytes).map(group_key)
    }
}

impl Group {
    /// Checks what no type says.
    ///
    /// # Errors
    /// A text that says what is wrong.
    pub fn checked(self) -> Result<Self, String> {
        if self.name.len() > MAX_NAME {
            return Err(format!("name: {} bytes are more than {MAX_NAME}", self.name.len()));
        }
        if self.rules.len() > MAX_RULES {
            return Err(format!("rules: {} are more than {MAX_RULES}", self.rules.len()));
        }
        match self.rules.iter().try_for_each(Rule::check) {
            Ok(()) => Ok(self),
            Err(error) => Err(format!("rules: {error}")),
        }
    }
}

/// What a group is named by, in a message.
#[must_use]
pub const fn group_key(number: u32) -> GroupKey {
    GroupKey(GroupId(number))
}

fn byte(field: &'static str, number: u32) -> Result<u8, String> {
    u8::try_from(number).map_err(|_| format!("{field}: {number} is above 255"))
}

fn port_number(field: &'static str, number: u32) -> Result<u16, String> {
    u16::try_from(number).map_err(|_| format!("{field}: {number} is above 65535"))
}

fn rule(message: &proto::Rule) -> Result<Rule, String> {
    let direction = match message.direction() {
        proto::Direction::Ingress => Direction::Ingress,
        proto::Direction::Egress => Direction::Egress,
        proto::Direction::Unspecified => return Err("direction: is neither ingress nor egress".into()),
    };
    let family = match message.ether_type() {
        proto::EtherType::Ipv4 => Some(Family::V4),
        proto::EtherType::Ipv6 => Some(Family::V6),
        proto::EtherType::Unspecified if message.ether_type == 0 => None,
        proto::EtherType::Unspecified => return Err(format!("ether_type: {} is not known", message.ether_type)),
    };
    let service = match (message.protocol, message.ports, &message.icmp) {
        (None, None, None) => Service::Any,
        (Some(protocol), None, None) => Service::Protocol(Protocol(byte("protocol", protocol)?)),
        (Some(protocol), Some(ports), None) => Service::Ports(
            Protocol(byte("protocol", protocol)?),
            port_number("ports.first", ports.first)?..=port_number("ports.last", ports.last)?,
        ),
        (None, None, Some(icmp)) => Service::Icmp(match (icmp.r#type, icmp.code) {
            (None, None) => None,
            (None, Some(_)) => return Err("icmp.code: takes a type, too".into()),
            (Some(kind), code) => Some((
                byte("icmp.type", kind)?,
                code.map(|code| byte("icmp.code", code)).transpose()?,
            )),
        }),
        (None, Some(_), None) => return Err("ports: take a protocol, such as 6 (TCP)".into()),
        (_, _, Some(_)) => return Err("icmp: goes with neither protocol nor ports".into()),
    };
    let remote = match &message.remote {
        None => Remote::Any,
        Some(proto::rule::Remote::RemotePrefix(prefix)) => Remote::Prefix(self::prefix(prefix)?),
        Some(proto::rule::Remote::RemoteGroup(group)) => Remote::Group(GroupId(*group)),
    };
    Ok(Rule {
        id: RuleId(message.id),
        direction,
        family,
        service,
        remote,
    })
}

/// Reads a prefix. A single address stands for itself.
///
/// # Errors
/// A text that says what is wrong.
pub fn prefix(text: &str) -> Result<ipnet::IpNet, String> {
    let alone = || text.parse::<IpAddr>().ok().map(ipnet::IpNet::from);
    let prefix = text.parse().ok().or_else(alone);
    prefix.ok_or_else(|| format!("prefix: {text:?} is none; write 192.0.2.0/24 or 2001:db8::/32"))
}

fn rule_message(rule: &Rule) -> proto::Rule {
    let direction = match rule.direction {
        Direction::Ingress => proto::Direction::Ingress,
        Direction::Egress => proto::Direction::Egress,
    };
    let ether_type = match rule.family {
        None => proto::EtherType::Unspecified,
        Some(Family::V4) => proto::EtherType::Ipv4,
        Some(Family::V6) => proto::EtherType::Ipv6,
    };
    let mut message = proto::Rule {
        id: rule.id.0,
        direction: direction.into(),
        ether_type: ether_type.into(),
        remote: match rule.remote {
            Remote::Any => None,
            Remote::Prefix(prefix) => Some(proto::rule::Remote::RemotePrefix(prefix.to_string())),
            Remote::Group(group) => Some(proto::rule::Remote::RemoteGroup(group.0)),
        },
        ..proto::Rule::default()
    };
    match &rule.service {
        Service::Any => {}
        Service::Protocol(protocol) => message.protocol = Some(protocol.0.into()),
        Service::Ports(protocol, ports) => {
            message.protocol = Some(protocol.0.into());
            message.ports = Some(proto::PortRange {
                first: (*ports.start()).into(),
                last: (*ports.end()).into(),
            });
        }
        Service::Icmp(which) => {
            message.icmp = Some(proto::Icmp {
                r#type: which.map(|(kind, _)| kind.into()),
                code: which.and_then(|(_, code)| code).map(u32::from),
            });
        }
    }
    message
}

#[cfg(test)]
mod tests;
