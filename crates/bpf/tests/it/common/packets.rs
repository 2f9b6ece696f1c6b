//! Named packets, made byte by byte so that they can be wrong in every way.

/// What a fixture's UDP datagrams are sent to.
pub(crate) const PORT: u16 = 4242;
pub(crate) const ETH_IPV4: u16 = 0x0800;
pub(crate) const ETH_ARP: u16 = 0x0806;
pub(crate) const ETH_IPV6: u16 = 0x86dd;
/// For local experiments (IEEE 802).
pub(crate) const ETH_EXPERIMENT: u16 = 0x88b5;
pub(crate) const VLAN: u16 = 0x8100;
pub(crate) const SERVICE_VLAN: u16 = 0x88a8;
pub(crate) const UDP: u8 = 17;
pub(crate) const TCP: u8 = 6;
pub(crate) const ICMPV6: u8 = 58;

/// The hardware addresses of the test bed's ends.
pub(crate) const LEFT: [u8; 6] = [2, b'r', b's', 0, 0, 1];
pub(crate) const RIGHT: [u8; 6] = [2, b'r', b's', 0, 0, 2];

pub(crate) fn ethernet(tags: &[u16], kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [RIGHT, LEFT].concat();
    for tag in tags {
        frame.extend(tag.to_be_bytes());
        frame.extend([0, 7]);
    }
    frame.extend(kind.to_be_bytes());
    frame.extend(payload);
    frame
}

pub(crate) fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    ipv4_with(protocol, &[], 0, payload)
}

/// `fragment` as in the header: flags and offset.
pub(crate) fn ipv4_with(protocol: u8, options: &[u8], fragment: u16, payload: &[u8]) -> Vec<u8> {
    let header = 20 + options.len();
    let mut packet = vec![0x40 | u8::try_from(header / 4).unwrap(), 0];
    packet.extend(u16::try_from(header + payload.len()).unwrap().to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2]);
    packet.extend(options);
    let check = !sum(&packet);
    packet[10..12].copy_from_slice(&check.to_be_bytes());
    packet.extend(payload);
    packet
}

pub(crate) fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
    packet.extend([next, 255]);
    for host in [1, 2] {
        packet.extend([0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    }
    packet.extend(payload);
    packet
}

/// An extension header of eight bytes, with what it precedes.
pub(crate) fn extension(next: u8, payload: &[u8]) -> Vec<u8> {
    [&[next, 0, 1, 4, 0, 0, 0, 0], payload].concat()
}

/// A fragment header, with what it precedes; `offset` in units of eight bytes.
pub(crate) fn fragment6(next: u8, offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    let field = (offset << 3 | u16::from(more)).to_be_bytes();
    [&[next, 0, field[0], field[1], 0, 0, 0, 9], payload].concat()
}

/// From port 1000, without a checksum.
pub(crate) fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut datagram = [1000u16.to_be_bytes(), port.to_be_bytes()].concat();
    datagram.extend(u16::try_from(8 + payload.len()).unwrap().to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    datagram
}

/// A header without options, from port 1000, without a checksum.
pub(crate) fn tcp(port: u16) -> Vec<u8> {
    let ports = [1000u16.to_be_bytes(), port.to_be_bytes()].concat();
    [&ports[..], &[0; 8], &[5 << 4, 2, 255, 255, 0, 0, 0, 0]].concat()
}

/// About the hosts of [`ipv4`]'s network.
pub(crate) fn arp(operation: u8, sender: u8, target: u8) -> Vec<u8> {
    let head = [0, 1, 8, 0, 6, 4, 0, operation];
    let sender = [&LEFT[..], &[10, 77, 0, sender]].concat();
    [&head[..], &sender, &[0; 6], &[10, 77, 0, target]].concat()
}

/// Neighbour solicitation or advertisement to any address of [`ipv6`]'s network, or to a group.
pub(crate) fn neighbour(kind: u8, destination: [u8; 2], host: u8, target: u8) -> Vec<u8> {
    let mut message = icmpv6(kind);
    (message[8], message[9], message[23]) = (0xfd, 0x77, target);
    let mut packet = ipv6(ICMPV6, &message);
    (packet[24], packet[25], packet[39]) = (destination[0], destination[1], host);
    packet
}

pub(crate) fn icmpv6(kind: u8) -> Vec<u8> {
    let mut message = vec![0; 24];
    message[0] = kind;
    message
}

/// The ones' complement sum of big endian words (RFC 1071).
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| low.into()))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap()
}

/// The sum of an untagged UDP frame's pseudo-header, with the checksum's word left in or out.
pub(crate) fn pseudo_sum(frame: &[u8]) -> u16 {
    let (addresses, datagram) = udp_parts(frame);
    let length = u16::try_from(datagram.len()).unwrap().to_be_bytes();
    sum(&[addresses, &[0, UDP], &length].concat())
}

/// Whether an untagged UDP frame's checksum is right, over IPv4 or IPv6 without extensions.
pub(crate) fn checksum_is_right(frame: &[u8]) -> bool {
    let (_, datagram) = udp_parts(frame);
    sum(&[&pseudo_sum(frame).to_be_bytes(), datagram].concat()) == 0xffff
}

/// Writes the right checksum into an untagged UDP frame.
pub(crate) fn complete_checksum(frame: &mut [u8]) {
    let start = frame.len() - udp_parts(frame).1.len();
    frame[start + 6..start + 8].fill(0);
    let check = !sum(&[&pseudo_sum(frame).to_be_bytes()[..], &frame[start..]].concat());
    // 0 means that there is none (RFC 768).
    let check = if check == 0 { 0xffff } else { check };
    frame[start + 6..start + 8].copy_from_slice(&check.to_be_bytes());
}

fn udp_parts(frame: &[u8]) -> (&[u8], &[u8]) {
    match u16::from_be_bytes([frame[12], frame[13]]) {
        ETH_IPV4 => (&frame[26..34], &frame[34..]),
        ETH_IPV6 => (&frame[22..54], &frame[54..]),
        other => panic!("EtherType {other:#06x}"),
    }
}

/// Whether the IP header claims what cannot be, whatever the filter then looks at: read off the bytes, without the
/// program's parser.
pub(crate) fn contradicts_itself(packet: &[u8]) -> bool {
    let mut at = 12;
    while matches!(packet.get(at..at + 2), Some([0x81, 0x00] | [0x88, 0xa8])) && at < 20 {
        at += 4;
    }
    let (Some(kind), Some(ip)) = (packet.get(at..at + 2), packet.get(at + 2..)) else {
        return true;
    };
    let word = |i: usize| usize::from(u16::from_be_bytes([ip[i], ip[i + 1]]));
    match kind {
        [0x08, 0x00] => {
            ip.len() < 20
                || ip[0] >> 4 != 4
                || ip[0] & 15 < 5
                || word(2) < usize::from(ip[0] & 15) * 4
                || word(2) > ip.len()
        }
        [0x86, 0xdd] => ip.len() < 40 || ip[0] >> 4 != 6 || 40 + word(4) > ip.len(),
        _ => false,
    }
}
