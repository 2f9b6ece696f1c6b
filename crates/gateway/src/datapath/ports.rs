//! The gateway's interfaces, and the numbers that they go by.

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{Result, bail};
use ringside_bpf::gateway::GatewayPort;
use ringside_gateway_core::decide::PortSettings;
use ringside_nic::Interface;
use ringside_wire::MacAddr;

/// As many as the XDP program knows.
const MOST: usize = 16;

/// The interfaces that packets come by and leave by, in the order of the configuration: that is their number.
#[derive(Debug, Clone)]
pub(super) struct Ports(Arc<[(Option<Interface>, Arc<str>)]>);

/// What they have at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    pub(super) ports: Vec<PortSettings>,
    /// All addresses that hosts may send to.
    pub(super) addresses: Vec<IpAddr>,
}

/// What an interface has that is not there: no host is reached by it.
const AWAY: PortSettings = PortSettings {
    mac: MacAddr([0; 6]),
    v4: None,
    v6: None,
    mtu: 0,
};

/// Hosts can reach the gateway.
pub(super) fn has_address(port: &PortSettings) -> bool {
    port.v4.is_some() || port.v6.is_some()
}

pub(super) fn no_address(name: &str) -> String {
    format!(
        "the interface {name} has no address that hosts could send to; give it one: ip address add ADDRESS/LENGTH dev {name}"
    )
}

/// What is wrong where none of the gateway's interfaces has some of these addresses.
pub(super) fn lacks_addresses(wanted: &[IpAddr], has: &[IpAddr]) -> Option<String> {
    let lacks: Vec<String> = (wanted.iter().filter(|ip| !has.contains(ip)))
        .map(ToString::to_string)
        .collect();
    (!lacks.is_empty()).then(|| {
        format!(
            "no interface of this gateway (path.interface) has {} of fleet.addresses, where hosts \
             send packets of its networks: all of these \
             are lost, unless something in between translates the address; give the address to an \
             interface (ip address add \
             ADDRESS/LENGTH dev NAME), or correct fleet.addresses",
            lacks.join(", ")
        )
    })
}

impl Ports {
    /// Looks interfaces up. One that is not there is waited for, if another one is there.
    pub(super) fn by_name(names: &[String]) -> Result<Self> {
        if names.len() > MOST {
            bail!("{} interfaces: {MOST} are the most", names.len());
        }
        let mut missing = Vec::new();
        let mut ports = Vec::new();
        for name in names {
            let interface = match Interface::by_name(name) {
                Ok(interface) => Some(interface),
                Err(error @ ringside_nic::Error::UnknownInterface { .. }) => {
                    missing.push(error);
                    None
                }
                Err(error) => return Err(error.into()),
            };
            ports.push((interface, Arc::from(name.as_str())));
        }
        let is_none_there = missing.len() == ports.len();
        let mut missing = missing.into_iter();
        if is_none_there && let Some(error) = missing.next() {
            return Err(error.into());
        }
        for error in missing {
            tracing::error!(%error, "an interface is missing, and is waited for");
        }
        Ok(Self(ports.into()))
    }

    /// Those that are there now, None for the others.
    pub(super) fn with(&self, interfaces: Vec<Option<Interface>>) -> Self {
        let named = interfaces.into_iter().zip(self.0.iter());
        Self(
            named
                .map(|(interface, (_, name))| (interface, Arc::clone(name)))
                .collect(),
        )
    }

    /// The numbers and names of all, whether they are there or not.
    pub(super) fn all(&self) -> impl Iterator<Item = (u8, &str, Option<&Interface>)> {
        (0..)
            .zip(self.0.iter())
            .map(|(number, (interface, name))| (number, &**name, interface.as_ref()))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Those that are there, by their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u8, &Interface)> {
        self.all()
            .filter_map(|(number, _, interface)| Some((number, interface?)))
    }

    /// Those of them that are up.
    pub(super) fn up(&self) -> Result<Self> {
        let up = |interface: &Option<Interface>| -> Result<Option<Interface>> {
            let Some(interface) = interface else { return Ok(None) };
            Ok(interface.state()?.admin_up.then(|| interface.clone()))
        };
        let interfaces = self.0.iter().map(|(interface, _)| up(interface));
        Ok(self.with(interfaces.collect::<Result<_>>()?))
    }

    /// The number of an interface.
    pub(super) fn number(&self, index: u32) -> Option<u8> {
        let found = self.iter().find(|(_, interface)| interface.index() == index);
        found.map(|(number, _)| number)
    }

    pub(super) fn get(&self, number: u8) -> Option<&Interface> {
        self.0.get(usize::from(number))?.0.as_ref()
    }

    /// The name of an interface, for others to keep. Empty if there is none of this number.
    pub(super) fn name(&self, number: u8) -> Arc<str> {
        (self.0.get(usize::from(number))).map_or_else(Arc::default, |(_, name)| Arc::clone(name))
    }

    /// All their names, for people.
    pub(super) fn names(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(|(_, name)| &**name).collect();
        names.join(", ")
    }

    /// What they have now.
    pub(super) fn look(&self) -> Result<State> {
        let mut state = State {
            ports: Vec::new(),
            addresses: Vec::new(),
        };
        for (_, _, interface) in self.all() {
            let (port, addresses) = interface.map_or_else(|| Ok((AWAY, Vec::new())), look)?;
            state.ports.push(port);
            state.addresses.extend(addresses);
        }
        Ok(state)
    }

    /// The same, as the XDP program has to know it.
    pub(super) fn for_program(&self, ports: &[PortSettings]) -> Vec<Option<GatewayPort>> {
        let port = |((_, _, interface), port): ((u8, &str, Option<&Interface>), &PortSettings)| {
            Some(GatewayPort {
                ifindex: interface?.index(),
                mac: port.mac.0,
                v4: port.v4,
                v6: port.v6,
                mtu: port.mtu,
            })
        };
        self.all().zip(ports).map(port).collect()
    }
}

fn look(interface: &Interface) -> Result<(PortSettings, Vec<IpAddr>)> {
    let state = interface.state()?;
    let addresses: Vec<IpAddr> = interface.addresses()?.iter().map(|own| own.address).collect();
    let v4 = addresses.iter().find_map(|ip| match ip {
        IpAddr::V4(ip) => Some(*ip),
        IpAddr::V6(_) => None,
    });
    // Hosts that are not on this link do not know addresses that are this link's alone.
    let v6 = addresses.iter().find_map(|ip| match ip {
        IpAddr::V6(ip) if !ip.is_unicast_link_local() => Some(*ip),
        _ => None,
    });
    let port = PortSettings {
        mac: MacAddr(state.mac),
        v4,
        v6,
        mtu: u16::try_from(state.mtu).unwrap_or(u16::MAX),
    };
    Ok((port, addresses))
}
