//! Where a host is: its address, the interface that the route to it leaves by, and who is next on the way.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

use anyhow::{Context as _, Result, anyhow};
use ringside_nic::{Interface, Route};
use ringside_wire::MacAddr;
use ringside_wire::flow::canonical;

use super::RemoteArgs;
use super::args::host_and_port;
use crate::args::{FlowArgs, Peer, PortArgs, bad_value};
use crate::output::note;
use crate::target::ANSWER;

/// What `ringside ping HOST` means: `HOST` is no interface, so it is where `ringside serve` runs; the interface, where packets
/// go to and who is next on the way follow from the route. What is given by itself stays.
pub(crate) fn find(port: &mut PortArgs, flow: &mut FlowArgs, remote: &mut RemoteArgs) -> Result<()> {
    let named = std::mem::take(&mut port.interface);
    // Beside a receiver a name is more likely an interface's; an address never is.
    let alone = flow.to.is_none() && flow.to_mac.is_none();
    if remote.server.is_none() && !named.is_empty() && (alone || named.contains(['.', ':'])) {
        if let Err(unknown) = Interface::by_name(&named) {
            // A name that nobody has is more likely an interface's that was mistyped than a host's.
            address(&named).with_context(|| format!("{unknown}; as a host"))?;
            remote.server = Some(named);
        } else {
            port.interface = named;
        }
    } else {
        port.interface = named;
    }
    let Some(server) = &remote.server else { return Ok(()) };
    let server = address(server)?;
    let to = match flow.to {
        Some(Peer::Ip(ip)) => ip,
        Some(Peer::Mac(_)) => bad_value!(
            "--server and --to MAC: packets to a server have its IP address; leave --to out, or give an IP address"
        ),
        None => server.ip(),
    };
    flow.to = Some(Peer::Ip(to));
    let route = Route::to(to)?;
    refuse_own(&route, to)?;
    if port.interface.is_empty() {
        route.interface.name().clone_into(&mut port.interface);
    }
    if let (Some(gateway), None) = (route.gateway, flow.to_mac) {
        let interface = Interface::by_name(&port.interface)?;
        let mac = interface.resolve(gateway, ANSWER)?;
        let mac = mac.with_context(|| format!("{gateway}, the router on the way to {to}, does not answer ARP or neighbour discovery on {interface} (3 s)"))?;
        note(format_args!("{to} is behind the router {gateway}"));
        flow.to_mac = Some(MacAddr(mac));
    }
    if flow.from.is_none() && route.interface.name() == port.interface {
        flow.from = route.source;
    }
    Ok(())
}

/// How packets get to a server.
pub(crate) struct Way {
    pub(crate) interface: Interface,
    pub(crate) from: Option<IpAddr>,
    pub(crate) to: IpAddr,
    /// Of the server, or of the router on the way to it.
    pub(crate) mac: MacAddr,
}

impl RemoteArgs {
    /// The router on the way to the server, if there is one.
    pub(crate) fn router(&self) -> Result<Option<IpAddr>> {
        let Some(server) = &self.server else { return Ok(None) };
        let to = address(server)?.ip();
        Ok(Route::to(to)?.gateway)
    }

    /// The way to the server, if there is one.
    pub(crate) fn way(&self) -> Result<Option<Way>> {
        let Some(server) = &self.server else { return Ok(None) };
        let to = address(server)?.ip();
        let route = Route::to(to)?;
        refuse_own(&route, to)?;
        let next = route.gateway.unwrap_or(to);
        let mac = route.interface.resolve(next, ANSWER)?;
        let mac = mac.with_context(|| {
            format!(
                "{next} does not answer ARP or neighbour discovery on {} (3 s)",
                route.interface
            )
        })?;
        Ok(Some(Way {
            interface: route.interface,
            from: route.source,
            to,
            mac: MacAddr(mac),
        }))
    }
}

fn refuse_own(route: &Route, to: IpAddr) -> Result<()> {
    if route.is_local {
        bad_value!(
            "{to} is an address of this host: packets to it never leave. The server has to be another host, or in another network \
             namespace"
        );
    }
    Ok(())
}

/// The address of a host's server, as the resolver of this host knows it.
pub(super) fn address(server: &str) -> Result<SocketAddr> {
    let (host, port) = host_and_port(server);
    if let Ok(ip) = host.parse::<IpAddr>() {
        if matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local()) {
            bad_value!("{ip} is an address of one link: say which, as in {ip}%eth0");
        }
        return Ok(canonical(SocketAddr::new(ip, port)));
    }
    let mut found = (host, port)
        .to_socket_addrs()
        .map_err(|error| anyhow!("{host:?} is neither an IP address nor a host that can be found: {error}"))?;
    found
        .next()
        .map(canonical)
        .with_context(|| format!("the host {host:?} has no address"))
}
