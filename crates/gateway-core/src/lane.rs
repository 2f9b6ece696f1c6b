//! The straight lane: an IPv4 packet of a tenant in plain VXLAN over plain IPv4, to a receiver without rules that leaves as it
//! came. Most packets are like that, and everything has its fixed place in them: one look at the length, and nothing that
//! depends on what came before. Whatever is not exactly so goes the long way, which decides the same and more; what is done here
//! is what it would do. The XDP program has the same lane (`gateway_lane.h`).

use std::net::IpAddr;

use ringside_wire::MacAddr;
use ringside_wire::checksum::Sum;

use crate::decide::{PortSettings, Settings};
use crate::table::PlainHost;

/// Where headers begin in such a packet.
const IP: usize = 14;
const UDP: usize = IP + 20;
const TUNNEL: usize = UDP + 8;
const INNER: usize = TUNNEL + 8;
const INNER_IP: usize = INNER + 14;
const UPPER: usize = INNER_IP + 20;

type Headers = [u8; UPPER];

const IPV4: [u8; 2] = [0x08, 0x00];
/// Version 4, five words.
const PLAIN: u8 = 0x45;
const TCP: u8 = 6;
const OVER_UDP: u8 = 17;
/// The network's number is valid (RFC 7348 §5).
const VALID: u8 = 0x08;
/// More fragments, and the offset of this one.
const FRAGMENT: u16 = 0x3fff;

/// What packets of the lane have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lane {
    gateway: [u8; 4],
    port: [u8; 2],
}

fn word(headers: &Headers, at: usize) -> u16 {
    u16::from_be_bytes([headers[at], headers[at + 1]])
}

fn long(headers: &Headers, at: usize) -> u32 {
    u32::from_be_bytes([headers[at], headers[at + 1], headers[at + 2], headers[at + 3]])
}

/// One header without options, of a packet that is whole.
fn is_plain(headers: &Headers, ip: usize) -> bool {
    headers[ip] == PLAIN && word(headers, ip + 6) & FRAGMENT == 0
}

/// The pseudo header's sum alone, which is there if the rest was left to a NIC?
fn is_left(check: u16, headers: &Headers, ip: usize, length: u16) -> bool {
    let protocol = u16::from(headers[ip + 9]);
    check != 0 && check == Sum::of(&headers[ip + 12..ip + 20]).word(protocol).word(length).fold()
}

impl Lane {
    /// None: what is configured takes more than a look at the packet.
    pub(crate) fn of(settings: &Settings) -> Option<Self> {
        let own = settings.underlay.addresses.iter().find_map(|ip| match ip {
            IpAddr::V4(ip) => Some(ip.octets()),
            IpAddr::V6(_) => None,
        });
        let is_simple = !settings.source_check && !settings.derive_source_port;
        Some(Self {
            gateway: own.filter(|_| is_simple)?,
            port: settings.underlay.vxlan_port.to_be_bytes(),
        })
    }

    /// Network and receiver of a packet of the lane, as [`NeighborReader::look_up_v4`](crate::table::NeighborReader) takes them.
    #[inline]
    pub(crate) fn read(self, frame: &[u8]) -> Option<u64> {
        let (headers, upper) = frame.split_first_chunk::<UPPER>()?;
        let (total, inner_total) = (word(headers, IP + 2), word(headers, INNER_IP + 2));
        let datagram = total.wrapping_sub(20);
        let is_tunnel = headers[12..14] == IPV4
            && is_plain(headers, IP)
            && headers[IP + 9] == OVER_UDP
            && headers[IP + 8] > 1
            && headers[IP + 16..IP + 20] == self.gateway
            && headers[UDP + 2..UDP + 4] == self.port
            && word(headers, UDP + 4) == datagram
            // What is behind it has to be taken off.
            && usize::from(total) == frame.len() - IP
            && headers[TUNNEL] & VALID != 0
            && !is_left(word(headers, UDP + 6), headers, IP, datagram);
        // As long as what it is in: what is padded goes the long way.
        let is_tenants = headers[INNER + 12..INNER + 14] == IPV4
            && headers[INNER] & 1 == 0
            && is_plain(headers, INNER_IP)
            && inner_total >= 20
            && usize::from(inner_total) + INNER_IP - IP == usize::from(total);
        let receiver = long(headers, INNER_IP + 16);
        let is_one = receiver >> 28 != 0xe && receiver != u32::MAX;
        let is_one_of_ours = is_tunnel && is_tenants && is_one;
        if !is_one_of_ours || !is_upper_plain(headers, upper, inner_total - 20) {
            return None;
        }
        let vni = long(headers, TUNNEL + 4) >> 8;
        Some(u64::from(vni) << 32 | u64::from(receiver))
    }
}

/// Whole, as long as the packet, and with no checksum that is left to a NIC?
#[inline]
fn is_upper_plain(headers: &Headers, upper: &[u8], length: u16) -> bool {
    let left = |check: [u8; 2]| is_left(u16::from_be_bytes(check), headers, INNER_IP, length);
    match headers[INNER_IP + 9] {
        TCP => match upper.first_chunk::<20>() {
            Some(tcp) => length >= 20 && !left([tcp[16], tcp[17]]),
            None => false,
        },
        OVER_UDP => match upper.first_chunk::<8>() {
            Some(udp) => length >= 8 && u16::from_be_bytes([udp[4], udp[5]]) == length && !left([udp[6], udp[7]]),
            None => false,
        },
        _ => true,
    }
}

/// Sends a packet of the lane on. False: nothing is done, and it goes the long way.
#[inline]
pub(crate) fn send(frame: &mut [u8], receiver: MacAddr, host: &PlainHost, port: &PortSettings) -> bool {
    let (Some(headers), Some(own)) = (frame.first_chunk_mut::<UPPER>(), port.v4) else {
        return false;
    };
    let own = own.octets();
    let routed = headers[INNER..INNER + 6] != receiver.0;
    if word(headers, IP + 2) > port.mtu.min(host.mtu) || (routed && headers[INNER_IP + 8] <= 1) {
        return false;
    }
    // What the outer UDP checksum covers, before and after.
    let mut old = Sum::of(&headers[IP + 12..IP + 20]);
    let mut new = Sum::of(&own).bytes(&host.ip);
    headers[..6].copy_from_slice(&host.mac.0);
    headers[6..12].copy_from_slice(&port.mac.0);
    headers[IP + 12..IP + 16].copy_from_slice(&own);
    headers[IP + 16..IP + 20].copy_from_slice(&host.ip);
    one_less(headers, IP, old, new);
    if routed {
        // The tenant's IP header sums up to the same afterwards.
        old = old.bytes(&headers[INNER..INNER + 6]);
        new = new.bytes(&receiver.0);
        headers[INNER..INNER + 6].copy_from_slice(&receiver.0);
        one_less(headers, INNER_IP, Sum::ZERO, Sum::ZERO);
    }
    let check = word(headers, UDP + 6);
    if check != 0 {
        let check = match replaced(check, old, new) {
            0 => 0xffff,
            check => check,
        };
        headers[UDP + 6..UDP + 8].copy_from_slice(&check.to_be_bytes());
    }
    true
}

/// Takes one from a header's time to live; the checksum follows this, and what else was replaced.
#[inline]
fn one_less(headers: &mut Headers, ip: usize, old: Sum, new: Sum) {
    let before = word(headers, ip + 8);
    let after = before - 0x0100;
    let check = replaced(word(headers, ip + 10), old.word(before), new.word(after));
    headers[ip + 8] = after.to_be_bytes()[0];
    headers[ip + 10..ip + 12].copy_from_slice(&check.to_be_bytes());
}

/// The checksum after words that sum up to `old` were replaced: RFC 1624, equation 3.
#[inline]
fn replaced(check: u16, old: Sum, new: Sum) -> u16 {
    new.word(!check).word(!old.fold()).finish()
}
