//! Objects as people write and read them: YAML files, JSON, the lines of CSV.
//!
//! ```yaml
//! neighbors:
//!   - {vni: 42, ip: 10.0.0.7, mac: "02:00:00:00:00:07", host: {ip: 192.0.2.1}}
//! ports:
//!   - {vni: 42, ip: 10.0.0.7, groups: [1]}
//! groups:
//!   - id: 1
//!     name: web
//!     rules:
//!       - {id: 1, direction: ingress, protocol: tcp, ports: 80-443}
//!       - {id: 2, direction: egress, ether-type: ipv6, remote-prefix: "2001:db8::/32"}
//!       - {id: 3, direction: ingress, protocol: icmp, remote-group: 1}
//! ```

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use ringside_gateway_core::TenantAddress;
use ringside_gateway_core::policy::{Direction, Family, GroupId, Remote, Rule, RuleId, Service};
use ringside_gateway_core::table::{Encapsulation, Host};
use ringside_wire::{MacAddr, Protocol};
use serde::{Deserialize, Serialize};

use super::{Group, Neighbor, Object, Port, wire};

/// An object that people can write.
pub trait Text: Object {
    /// How it is written.
    type Form: Serialize + for<'de> Deserialize<'de>;

    /// As it is written.
    fn to_text(&self) -> Self::Form;

    /// From what was written; `version` if none was.
    ///
    /// # Errors
    /// A text that says what is wrong.
    fn from_text(form: &Self::Form, version: u64) -> Result<Self, String>;
}

/// A [`Neighbor`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NeighborForm {
    /// The network.
    pub vni: u32,
    /// The address.
    pub ip: IpAddr,
    /// Its MAC address.
    pub mac: String,
    /// Where it lives.
    pub host: HostForm,
    /// See [`Object::version`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

/// A [`Host`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HostForm {
    /// Its address.
    pub ip: IpAddr,
    /// Its MAC address, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// The number of the gateway's interface on the way to it; without it as the kernel routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u8>,
    /// `vxlan` or `geneve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encapsulation: Option<EncapsulationForm>,
}

/// An [`Encapsulation`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EncapsulationForm {
    /// RFC 7348.
    Vxlan,
    /// RFC 8926.
    Geneve,
}

impl From<EncapsulationForm> for Encapsulation {
    fn from(form: EncapsulationForm) -> Self {
        match form {
            EncapsulationForm::Vxlan => Self::Vxlan,
            EncapsulationForm::Geneve => Self::Geneve,
        }
    }
}

impl From<Encapsulation> for EncapsulationForm {
    fn from(encapsulation: Encapsulation) -> Self {
        match encapsulation {
            Encapsulation::Vxlan => Self::Vxlan,
            Encapsulation::Geneve => Self::Geneve,
        }
    }
}

fn mac(text: &str) -> Result<MacAddr, String> {
    let mac = text.parse::<MacAddr>().map_err(|error| format!("{text:?}: {error}"))?;
    wire::one_mac(mac)
}

/// An address of a tenant from its two parts.
///
/// # Errors
/// A text that says what is wrong.
pub fn address(vni: u32, ip: IpAddr) -> Result<TenantAddress, String> {
    Ok(TenantAddress::new(wire::vni(vni)?, wire::unicast(ip)?))
}

impl Text for Neighbor {
    type Form = NeighborForm;

    fn to_text(&self) -> NeighborForm {
        NeighborForm {
            vni: self.address.vni.number(),
            ip: self.address.ip,
            mac: self.mac.to_string(),
            host: HostForm {
                ip: self.host.ip,
                mac: self.host.mac.map(|mac| mac.to_string()),
                port: self.host.port,
                encapsulation: self.host.encapsulation.map(Into::into),
            },
            version: Some(self.version),
        }
    }

    fn from_text(form: &NeighborForm, version: u64) -> Result<Self, String> {
        Ok(Self {
            address: address(form.vni, form.ip)?,
            mac: mac(&form.mac)?,
            host: Host {
                ip: wire::host_address(form.host.ip)?,
                mac: form.host.mac.as_deref().map(mac).transpose()?,
                port: form.host.port.map(|port| wire::interface(port.into())).transpose()?,
                encapsulation: form.host.encapsulation.map(Into::into),
            },
            version: wire::version(form.version.unwrap_or(version))?,
        })
    }
}

/// A [`Port`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PortForm {
    /// The network.
    pub vni: u32,
    /// The address.
    pub ip: IpAddr,
    /// Numbers of its groups.
    pub groups: Vec<u32>,
    /// See [`Object::version`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

impl Text for Port {
    type Form = PortForm;

    fn to_text(&self) -> PortForm {
        PortForm {
            vni: self.address.vni.number(),
            ip: self.address.ip,
            groups: self.groups.iter().map(|group| group.0).collect(),
            version: Some(self.version),
        }
    }

    fn from_text(form: &PortForm, version: u64) -> Result<Self, String> {
        Ok(Self {
            address: address(form.vni, form.ip)?,
            groups: wire::groups(form.groups.iter().copied())?,
            version: wire::version(form.version.unwrap_or(version))?,
        })
    }
}

/// A [`Group`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GroupForm {
    /// Its number.
    pub id: u32,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What it allows.
    pub rules: Vec<RuleForm>,
    /// See [`Object::version`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

impl Text for Group {
    type Form = GroupForm;

    fn to_text(&self) -> GroupForm {
        GroupForm {
            id: self.id.0,
            name: self.name.clone(),
            rules: self.rules.iter().map(RuleForm::from).collect(),
            version: Some(self.version),
        }
    }

    fn from_text(form: &GroupForm, version: u64) -> Result<Self, String> {
        Self {
            id: GroupId(form.id),
            name: form.name.clone(),
            rules: form.rules.iter().map(RuleForm::rule).collect::<Result<_, _>>()?,
            version: wire::version(form.version.unwrap_or(version))?,
        }
        .checked()
    }
}

/// A [`Direction`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirectionForm {
    /// To the address.
    Ingress,
    /// From it.
    Egress,
}

/// A [`Family`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EtherType {
    /// 0x0800.
    Ipv4,
    /// 0x86dd.
    Ipv6,
}

/// A number, or a name for it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum NumberOrName {
    /// A number.
    Number(u16),
    /// A name, or a range.
    Name(String),
}

/// A [`Rule`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RuleForm {
    /// By which it is named in a trace.
    #[serde(default)]
    pub id: u64,
    /// `ingress` or `egress`.
    pub direction: DirectionForm,
    /// `ipv4` or `ipv6`; both if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ether_type: Option<EtherType>,
    /// `tcp`, `udp`, `sctp`, `dccp`, `udp-lite`, `icmp` (of both versions of IP), or a number. All if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<NumberOrName>,
    /// One port, or the first and the last: `80-443`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<NumberOrName>,
    /// Of ICMP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<u8>,
    /// Of ICMP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_code: Option<u8>,
    /// Addresses on the other side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_prefix: Option<String>,
    /// The group of addresses on the other side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_group: Option<u32>,
}

const PROTOCOLS: [(&str, Protocol); 5] = [
    ("tcp", Protocol::TCP),
    ("udp", Protocol::UDP),
    ("sctp", Protocol::SCTP),
    ("dccp", Protocol::DCCP),
    ("udp-lite", Protocol::UDP_LITE),
];
const ICMP: &str = "icmp";

fn protocol(form: &NumberOrName) -> Result<Protocol, String> {
    let number = match form {
        NumberOrName::Number(number) => u8::try_from(*number).ok().map(Protocol),
        NumberOrName::Name(name) => PROTOCOLS
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, known)| *known),
    };
    number.ok_or_else(|| format!("protocol: {form} is none; write tcp, udp, icmp, sctp, dccp, udp-lite or 0 to 255"))
}

fn ports(form: &NumberOrName) -> Result<RangeInclusive<u16>, String> {
    let range = match form {
        NumberOrName::Number(port) => Some(*port..=*port),
        NumberOrName::Name(text) => {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let (first, last) = (first.trim().parse().ok(), last.trim().parse().ok());
            first.zip(last).map(|(first, last)| first..=last)
        }
    };
    range.ok_or_else(|| format!("ports: {form} are none; write 80 or 80-443"))
}

impl fmt::Display for NumberOrName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

impl RuleForm {
    fn rule(&self) -> Result<Rule, String> {
        self.parse().map_err(|error| format!("rule {}: {error}", self.id))
    }

    fn parse(&self) -> Result<Rule, String> {
        let icmp = matches!(&self.protocol, Some(NumberOrName::Name(name)) if name == ICMP);
        let service = match (&self.protocol, &self.ports, self.icmp_type, self.icmp_code) {
            (_, None, None, None) if icmp => Service::Icmp(None),
            (_, None, Some(kind), code) if icmp => Service::Icmp(Some((kind, code))),
            (_, None, None, Some(_)) => return Err("icmp-code: takes an icmp-type, too".into()),
            (_, None, Some(_), _) => return Err("icmp-type: takes `protocol: icmp`".into()),
            (None, None, None, None) => Service::Any,
            (Some(form), None, None, None) => Service::Protocol(protocol(form)?),
            (Some(form), Some(range), None, None) if !icmp => Service::Ports(protocol(form)?, ports(range)?),
            _ => return Err("ports: take a protocol that has some, such as tcp".into()),
        };
        Ok(Rule {
            id: RuleId(self.id),
            direction: match self.direction {
                DirectionForm::Ingress => Direction::Ingress,
                DirectionForm::Egress => Direction::Egress,
            },
            family: self.ether_type.map(|kind| match kind {
                EtherType::Ipv4 => Family::V4,
                EtherType::Ipv6 => Family::V6,
            }),
            service,
            remote: match (&self.remote_prefix, self.remote_group) {
                (None, None) => Remote::Any,
                (Some(prefix), None) => Remote::Prefix(wire::prefix(prefix)?),
                (None, Some(group)) => Remote::Group(GroupId(group)),
                (Some(_), Some(_)) => return Err("remote-prefix and remote-group: only one of them can be".into()),
            },
        })
    }
}

impl From<&Rule> for RuleForm {
    fn from(rule: &Rule) -> Self {
        let named = |protocol: &Protocol| match PROTOCOLS.iter().find(|(_, known)| known == protocol) {
            Some((name, _)) => NumberOrName::Name((*name).to_owned()),
            None => NumberOrName::Number(protocol.0.into()),
        };
        let mut form = Self {
            id: rule.id.0,
            direction: match rule.direction {
                Direction::Ingress => DirectionForm::Ingress,
                Direction::Egress => DirectionForm::Egress,
            },
            ether_type: rule.family.map(|family| match family {
                Family::V4 => EtherType::Ipv4,
                Family::V6 => EtherType::Ipv6,
            }),
            protocol: None,
            ports: None,
            icmp_type: None,
            icmp_code: None,
            remote_prefix: None,
            remote_group: None,
        };
        match &rule.service {
            Service::Any => {}
            Service::Protocol(protocol) => form.protocol = Some(named(protocol)),
            Service::Ports(protocol, ports) => {
                form.protocol = Some(named(protocol));
                form.ports = Some(match (*ports.start(), *ports.end()) {
                    (first, last) if first == last => NumberOrName::Number(first),
                    (first, last) => NumberOrName::Name(format!("{first}-{last}")),
                });
            }
            Service::Icmp(which) => {
                form.protocol = Some(NumberOrName::Name(ICMP.to_owned()));
                form.icmp_type = which.map(|(kind, _)| kind);
                form.icmp_code = which.and_then(|(_, code)| code);
            }
        }
        match rule.remote {
            Remote::Any => {}
            Remote::Prefix(prefix) => form.remote_prefix = Some(prefix.to_string()),
            Remote::Group(group) => form.remote_group = Some(group.0),
        }
        form
    }
}
