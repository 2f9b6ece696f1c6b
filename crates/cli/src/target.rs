//! From `--to` and friends to the headers of a packet: who sends to whom.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Result, anyhow};
use ringside_nic::Interface;
use ringside_wire::flow::UdpFlow;
use ringside_wire::{MacAddr, ethernet};
use ringside_xsk::Port;

use crate::args::{FlowArgs, Peer, bad_value};
use crate::session;

/// How long a host has to tell its MAC address: the kernel asks three times, a second apart.
pub(crate) const ANSWER: Duration = Duration::from_secs(3);

/// Addresses for benchmarks (RFC 2544, RFC 5180), for when only a MAC address is known.
const BENCHMARK: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)];

/// The flow from `interface` to the receiver that the command line names.
pub(crate) fn flow(interface: &Interface, args: &FlowArgs) -> Result<UdpFlow> {
    let own_mac = MacAddr(interface.state()?.mac);
    let (to_ip, to_mac) = match (args.to, args.to_mac) {
        (Some(Peer::Ip(ip)), Some(mac)) => (Some(ip), mac),
        (Some(Peer::Ip(ip)), None) => (Some(ip), resolve(interface, ip)?),
        (Some(Peer::Mac(mac)), None) | (None, Some(mac)) => (None, mac),
        (Some(Peer::Mac(_)), Some(_)) => {
            bad_value!("--to already is a MAC address: leave --to-mac out, or give an IP address to --to")
        }
        (None, None) => bad_value!("no destination: use --to IP (resolved by ARP or neighbour discovery) or --to MAC"),
    };
    let from_ip = match (args.from, to_ip) {
        (Some(from), _) => from,
        (None, Some(to)) => own_address(interface, to)?,
        (None, None) => BENCHMARK[0].into(),
    };
    let to_ip = match (to_ip, from_ip) {
        (Some(ip), _) => ip,
        (None, IpAddr::V4(_)) => BENCHMARK[1].into(),
        // 2001:2::/48, RFC 5180.
        (None, IpAddr::V6(_)) => Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 2).into(),
    };
    if from_ip.is_ipv4() != to_ip.is_ipv4() {
        bad_value!("--from {from_ip} and --to {to_ip} are of different families");
    }
    Ok(UdpFlow {
        src_mac: args.from_mac.unwrap_or(own_mac),
        dst_mac: to_mac,
        src: SocketAddr::new(from_ip, args.from_port),
        dst: SocketAddr::new(to_ip, args.to_port),
        ttl: 64,
    })
}

fn resolve(interface: &Interface, ip: IpAddr) -> Result<MacAddr> {
    if interface.addresses()?.iter().any(|own| own.address == ip) {
        bad_value!("{ip} is {interface}'s own address: packets to it never leave the host");
    }
    session::wait_before_asking(interface);
    match interface.resolve(ip, ANSWER)? {
        Some(mac) => Ok(MacAddr(mac)),
        None => Err(anyhow!(
            "{ip} does not answer ARP or neighbour discovery on {interface} (3 s): is it on this link and up? \
             Give its MAC address with --to-mac, or the gateway's if it is behind one"
        )),
    }
}

fn own_address(interface: &Interface, to: IpAddr) -> Result<IpAddr> {
    let addresses = interface.addresses()?;
    let same_family = |own: &&ringside_nic::InterfaceAddress| own.address.is_ipv4() == to.is_ipv4();
    let in_network = |own: &&ringside_nic::InterfaceAddress| common_bits(own.address, to) >= u32::from(own.prefix_len);
    addresses
        .iter()
        .filter(same_family)
        .find(in_network)
        .or_else(|| addresses.iter().find(same_family))
        .map(|own| own.address)
        .ok_or_else(|| {
            let family = if to.is_ipv4() { "IPv4" } else { "IPv6" };
            anyhow!("{interface} has no {family} address to send from: give one with --from")
        })
}

fn common_bits(a: IpAddr, b: IpAddr) -> u32 {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => 0,
    }
}

/// One line about a flow.
pub(crate) fn describe(flow: &UdpFlow, size: u32) -> String {
    format!(
        "  {} -> {} ({} -> {}), {size} bytes",
        flow.src, flow.dst, flow.src_mac, flow.dst_mac
    )
}

/// Returns a packet of the size that an option gives, as `port` can send it, with a payload of
/// zeros, of `least` bytes at least.
pub(crate) fn packet(
    flow: &UdpFlow,
    (option, size): (&str, u32),
    least: usize,
    port: &Port,
    mtu: u32,
) -> Result<Vec<u8>> {
    let size = size as usize;
    let (in_mtu, in_frames) = (mtu as usize + ethernet::HEADER_LEN, port.queues()[0].packet_room());
    let room = in_mtu.min(in_frames);
    // Without FCS the smallest frame of Ethernet has 60 bytes.
    let smallest = (flow.header_len() + least).max(60);
    if size < smallest || size > room {
        let limit = if size < smallest {
            String::new()
        } else if size > in_mtu {
            format!("; the MTU of {} is {mtu}", port.interface())
        } else if port.queues()[0].report().multi_buffer {
            "; the kernel sends no more frames as one packet: take larger ones with --frame-size, or less --headroom"
                .into()
        } else {
            format!(
                "; that is what a frame of {} bytes holds: take larger ones with --frame-size, or let a packet be in several with \
                 --multi-buffer",
                port.queues()[0].report().frame_size
            )
        };
        bad_value!(
            "{option} {size}: a packet of this flow has {smallest} to {room} bytes, from the Ethernet \
             header on, without FCS{limit}"
        );
    }
    written(flow, size)
}

/// As [`packet`], for a socket without frames of its own.
pub(crate) fn frame(flow: &UdpFlow, size: u32, interface: &Interface, mtu: u32) -> Result<Vec<u8>> {
    let size = size as usize;
    let (smallest, room) = (flow.header_len().max(60), mtu as usize + ethernet::HEADER_LEN);
    if size < smallest || size > room {
        bad_value!(
            "--size {size}: a packet of this flow has {smallest} to {room} bytes, from the Ethernet \
             header on, without FCS; the MTU of {interface} is {mtu}"
        );
    }
    written(flow, size)
}

fn written(flow: &UdpFlow, size: usize) -> Result<Vec<u8>> {
    let mut packet = vec![0; size];
    let headers = flow.header_len();
    flow.write(&mut packet, size - headers)
        .map_err(|error| anyhow!("building a packet of {size} bytes: {error}"))?;
    Ok(packet)
}
