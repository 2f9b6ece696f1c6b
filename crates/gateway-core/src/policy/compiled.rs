//! The rules of a profile, made ready for packets.

use std::net::IpAddr;

use ringside_wire::Protocol;

use super::rows::{Rows, set, words_for};
use super::rule::{Direction, Family, GroupId, Remote, Rule, RuleId, Service};

/// What rules are asked about: the first packet of a connection, or one that belongs to none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject {
    /// Where it comes from.
    pub source: IpAddr,
    /// Where it goes. Of the same family.
    pub destination: IpAddr,
    /// What it carries.
    pub protocol: Protocol,
    /// The destination's port, or type and code of ICMP in one number; 0 for what has neither.
    pub service: u16,
}

/// Why rules do not allow something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Denied {
    /// No egress rule of its sender.
    Egress,
    /// No ingress rule of its receiver.
    Ingress,
    /// A profile that is not known (any more), which allows nothing.
    UnknownProfile,
}

/// The rules of a profile.
#[derive(Debug)]
pub(super) struct Compiled {
    /// The profile's groups, in order.
    pub(super) groups: Box<[GroupId]>,
    /// By direction, then by family.
    tables: [[Table; 2]; 2],
}

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
const DIRECTIONS: [Direction; 2] = [Direction::Ingress, Direction::Egress];

impl Compiled {
    /// Of the rules of its groups.
    pub(super) fn new<'a>(groups: &[GroupId], rules: impl Iterator<Item = &'a Rule> + Clone) -> Self {
        let table = |direction, family| {
            let rules: Vec<&Rule> = rules.clone().filter(|rule| rule.is_for(direction, family)).collect();
            Table::new(&rules, family)
        };
        Self {
            groups: groups.into(),
            tables: DIRECTIONS.map(|direction| FAMILIES.map(|family| table(direction, family))),
        }
    }

    /// The rule that allows it, if any does. `remote` are the groups of the other side.
    pub(super) fn allows(&self, direction: Direction, subject: &Subject, remote: &[GroupId]) -> Option<RuleId> {
        let (tables, other) = match direction {
            Direction::Ingress => (&self.tables[0], subject.source),
            Direction::Egress => (&self.tables[1], subject.destination),
        };
        let (table, other) = match other {
            IpAddr::V4(ip) => (&tables[0], u128::from(u32::from(ip))),
            IpAddr::V6(ip) => (&tables[1], u128::from(ip)),
        };
        table.allows(subject.protocol, subject.service, other, remote)
    }

    /// Bytes that it takes.
    pub(super) fn memory(&self) -> usize {
        let tables = self.tables.iter().flatten().map(Table::memory).sum::<usize>();
        size_of::<Self>() + size_of_val(&*self.groups) + tables
    }
}

/// The rules of a profile for one direction and family.
#[derive(Debug)]
struct Table {
    /// By the number of their bit.
    rules: Box<[RuleId]>,
    /// For protocols that rules name, in order: the bits of the rules that a port or an ICMP type meets.
    services: Box<[(Protocol, Rows<u16>)]>,
    /// For all other protocols.
    other_services: Box<[u64]>,
    /// The bits of the rules that a remote address meets.
    addresses: Rows<u128>,
    /// The bits of the rules that name a group, in the groups' order.
    groups: Box<[(GroupId, Box<[u64]>)]>,
}

/// The protocol and the numbers that a rule is for. No protocol: any.
fn service(rule: &Rule, family: Family) -> (Option<Protocol>, u16, u16) {
    let of_type = |message_type: u8, code: u8| u16::from_be_bytes([message_type, code]);
    match &rule.service {
        Service::Any => (None, 0, u16::MAX),
        Service::Protocol(protocol) => (Some(*protocol), 0, u16::MAX),
        Service::Ports(protocol, ports) => (Some(*protocol), *ports.start(), *ports.end()),
        Service::Icmp(None) => (Some(family.icmp()), 0, u16::MAX),
        Service::Icmp(Some((message_type, None))) => {
            let of_type = |code| of_type(*message_type, code);
            (Some(family.icmp()), of_type(0), of_type(u8::MAX))
        }
        Service::Icmp(Some((message_type, Some(code)))) => {
            let only = of_type(*message_type, *code);
            (Some(family.icmp()), only, only)
        }
    }
}

/// The addresses that a rule names; none if it names a group.
fn addresses(rule: &Rule) -> Option<(u128, u128)> {
    let number = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => u128::from(u32::from(ip)),
        IpAddr::V6(ip) => u128::from(ip),
    };
    match rule.remote {
        Remote::Any => Some((0, u128::MAX)),
        Remote::Prefix(prefix) => Some((number(prefix.network()), number(prefix.broadcast()))),
        Remote::Group(_) => None,
    }
}

impl Table {
    fn new(rules: &[&Rule], family: Family) -> Self {
        let services: Vec<_> = rules.iter().map(|rule| service(rule, family)).collect();
        let mut protocols: Vec<Protocol> = services.iter().filter_map(|(protocol, ..)| *protocol).collect();
        protocols.sort_unstable();
        protocols.dedup();
        let rows_of = |protocol: Protocol| {
            let meets = |own: Option<Protocol>| own.is_none_or(|own| own == protocol);
            let numbered = services.iter().enumerate();
            let ranges: Vec<_> = numbered
                .filter(|(_, (own, ..))| meets(*own))
                .map(|(rule, (_, first, last))| (rule, *first, *last))
                .collect();
            (protocol, Rows::of(rules.len(), &ranges, |port| port.checked_add(1)))
        };
        let mut other_services = vec![0; words_for(rules.len())];
        let mut groups: Vec<(GroupId, Box<[u64]>)> = Vec::new();
        let mut ranges = Vec::new();
        for (at, rule) in rules.iter().enumerate() {
            if services[at].0.is_none() {
                set(&mut other_services, at);
            }
            if let Remote::Group(group) = rule.remote {
                let place = groups
                    .binary_search_by_key(&group, |(group, _)| *group)
                    .unwrap_or_else(|place| {
                        groups.insert(place, (group, vec![0; words_for(rules.len())].into()));
                        place
                    });
                set(&mut groups[place].1, at);
            }
            ranges.extend(addresses(rule).map(|(first, last)| (at, first, last)));
        }
        Self {
            rules: rules.iter().map(|rule| rule.id).collect(),
            services: protocols.into_iter().map(rows_of).collect(),
            other_services: other_services.into(),
            addresses: Rows::of(rules.len(), &ranges, |ip| ip.checked_add(1)),
            groups: groups.into(),
        }
    }

    fn allows(&self, protocol: Protocol, service: u16, other: u128, remote: &[GroupId]) -> Option<RuleId> {
        if self.rules.is_empty() {
            return None;
        }
        let services = match self.services.binary_search_by_key(&protocol, |(protocol, _)| *protocol) {
            Ok(at) => self.services[at].1.find(service),
            Err(_) => &self.other_services,
        };
        let addresses = self.addresses.find(other);
        let first = |row: &[u64]| {
            services.iter().zip(row).enumerate().find_map(|(word, (a, b))| {
                let both = a & b;
                (both != 0).then(|| word * 64 + both.trailing_zeros() as usize)
            })
        };
        let by_group = || {
            let of = |group: &GroupId| self.groups.binary_search_by_key(group, |(group, _)| *group).ok();
            remote.iter().filter_map(of).find_map(|at| first(&self.groups[at].1))
        };
        first(addresses).or_else(by_group).map(|rule| self.rules[rule])
    }

    fn memory(&self) -> usize {
        let services: usize = self
            .services
            .iter()
            .map(|(_, rows)| rows.memory() + size_of_val(rows))
            .sum();
        let groups: usize = self
            .groups
            .iter()
            .map(|entry| size_of_val(&*entry.1) + size_of_val(entry))
            .sum();
        size_of_val(&*self.rules) + services + size_of_val(&*self.other_services) + self.addresses.memory() + groups
    }
}
