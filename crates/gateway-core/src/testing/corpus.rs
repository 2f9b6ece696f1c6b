//! Well-formed, odd and damaged frames, by which two parsers can be compared: the same ones each time.
//!
//! They are from host 1 to the gateway, and carry what tenant 1 sends to others of its network; see the functions for
//! who that is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ringside_wire::checksum::Sum;
use ringside_wire::{EtherType, MacAddr, Protocol, ethernet, ipv4, ipv6, tcp, udp};

use super::{Sent, emit_ip, frame, pseudo, tagged, tenant_arp, tenant_solicitation, tenant_udp};
use crate::table::Encapsulation;

/// The network of all tenants here.
pub const VNI: u32 = 0x01_02_03;
/// Of tenants who leave their network.
pub const ROUTER: MacAddr = MacAddr([2, 0xff, 0, 0, 0, 0xff]);
/// An option that may be critical, because it is known.
pub const KNOWN_OPTION: (u16, u8) = (0x0103, 0x81);
/// Of the random changes in the corpus, where nobody wants others.
pub const SEED: u64 = 6;
/// Last bytes of the tenants that frames go to, besides 99, whom nobody should know.
pub const RECEIVERS: [u8; 5] = [2, 3, 4, 5, 6];

/// The gateway's address.
#[must_use]
pub fn gateway(v6: bool) -> IpAddr {
    host(254, v6)
}

/// A host's address.
#[must_use]
pub fn host(last: u8, v6: bool) -> IpAddr {
    if v6 {
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()).into()
    } else {
        Ipv4Addr::new(192, 0, 2, last).into()
    }
}

/// A tenant's address.
#[must_use]
pub fn tenant(last: u8, v6: bool) -> IpAddr {
    if v6 {
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()).into()
    } else {
        Ipv4Addr::new(10, 0, 0, last).into()
    }
}

/// A tenant's MAC address.
#[must_use]
pub fn mac(last: u8) -> MacAddr {
    MacAddr([2, 0xaa, 0, 0, 0, last])
}

fn pair(to: u8, v6: bool) -> [IpAddr; 2] {
    [tenant(1, v6), tenant(to, v6)]
}

/// A tenant's IP packet of any kind; `ip` lets its header be edited, before IPv4's checksum is made.
fn packet(to: u8, v6: bool, protocol: Protocol, payload: &[u8], ip: impl FnOnce(&mut [u8])) -> Vec<u8> {
    packet_of([mac(1), mac(to)], pair(to, v6), protocol, payload, ip)
}

/// The same, between any two.
pub(super) fn packet_of(
    macs: [MacAddr; 2],
    ips: [IpAddr; 2],
    protocol: Protocol,
    payload: &[u8],
    ip: impl FnOnce(&mut [u8]),
) -> Vec<u8> {
    let v6 = ips[0].is_ipv6();
    let (ethertype, len) = if v6 {
        (EtherType::IPV6, ipv6::HEADER_LEN)
    } else {
        (EtherType::IPV4, ipv4::HEADER_LEN)
    };
    let mut bytes = frame(macs, ethertype, len + payload.len());
    let network = &mut bytes[ethernet::HEADER_LEN..];
    emit_ip(network, ips, protocol, 64, payload.len());
    network[len..].copy_from_slice(payload);
    ip(network);
    if !v6 {
        network[10..12].fill(0);
        let checksum = Sum::of(&network[..usize::from(network[0] & 15) * 4]).finish();
        network[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    bytes
}

fn segment(flags: tcp::Flags) -> Vec<u8> {
    let mut bytes = [0; tcp::Header::MOST];
    let len = tcp::Header::new(40_000, 443, flags).emit(&mut bytes).expect("room");
    let mut bytes = bytes[..len].to_vec();
    bytes.extend(b"data of the segment");
    // Anything but the sum of the pseudo header.
    bytes[16..18].copy_from_slice(&[0x12, 0x34]);
    bytes
}

/// With the pseudo header's sum alone, as a NIC gets it.
fn partial(v6: bool, protocol: Protocol, mut upper: Vec<u8>) -> Vec<u8> {
    let at = if protocol == Protocol::TCP { 16 } else { 6 };
    let sum = pseudo(pair(2, v6), protocol, upper.len());
    upper[at..at + 2].copy_from_slice(&sum.fold().to_be_bytes());
    upper
}

fn datagram(payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; udp::HEADER_LEN];
    let header = udp::Header {
        src_port: 1000,
        dst_port: 53,
        payload_len: payload.len(),
    };
    header.emit(&mut bytes).expect("room");
    bytes.extend(payload);
    bytes
}

type Named = (String, Vec<u8>);

/// What tenants send.
#[must_use]
pub fn tenants_frames() -> Vec<Named> {
    let mut frames = Vec::new();
    for v6 in [false, true] {
        let mut add = |name: &str, bytes: Vec<u8>| frames.push((format!("{name} v{}", if v6 { 6 } else { 4 }), bytes));
        let udp = |macs, to| tenant_udp(macs, pair(to, v6), [1000, 53], 64, b"some data");
        for to in RECEIVERS {
            add(&format!("udp to {to}"), udp([mac(1), mac(to)], to));
            add(&format!("udp routed to {to}"), udp([mac(1), ROUTER], to));
        }
        add("udp to nobody", udp([mac(1), mac(99)], 99));
        add("udp to oneself", udp([mac(1), mac(1)], 1));
        add(
            "udp from nobody",
            tenant_udp([mac(9), mac(2)], [tenant(9, v6), tenant(2, v6)], [1, 2], 64, b"x"),
        );
        add("udp to all", udp([mac(1), MacAddr::BROADCAST], 2));
        add("udp of nothing", packet(2, v6, Protocol::UDP, &datagram(b""), |_| {}));
        add("udp cut short", packet(2, v6, Protocol::UDP, &[0; 7], |_| {}));
        add(
            "udp that lies",
            packet(2, v6, Protocol::UDP, &[0, 1, 0, 2, 0, 99, 0, 0, 0], |_| {}),
        );
        for ttl in [0, 1, 2] {
            for to in [mac(2), ROUTER] {
                let bytes = tenant_udp([mac(1), to], pair(2, v6), [1000, 53], ttl, b"some data");
                add(&format!("udp to {to} with ttl {ttl}"), bytes);
            }
        }
        for flags in [
            tcp::Flags::SYN,
            tcp::Flags::ACK,
            tcp::Flags::ACK | tcp::Flags::FIN,
            tcp::Flags::RST,
        ] {
            add(
                &format!("tcp {flags:?}"),
                packet(2, v6, Protocol::TCP, &segment(flags), |_| {}),
            );
        }
        add(
            "tcp cut short",
            packet(2, v6, Protocol::TCP, &segment(tcp::Flags::ACK)[..19], |_| {}),
        );
        for (name, protocol, upper) in [
            ("partial udp", Protocol::UDP, datagram(b"some data")),
            ("partial tcp", Protocol::TCP, segment(tcp::Flags::ACK)),
        ] {
            add(name, packet(2, v6, protocol, &partial(v6, protocol, upper), |_| {}));
        }
        add(
            "echo",
            packet(
                2,
                v6,
                if v6 { Protocol::ICMPV6 } else { Protocol::ICMP },
                &[if v6 { 128 } else { 8 }, 0, 1, 2, 3, 4, 5, 6],
                |_| {},
            ),
        );
        add("other protocol", packet(2, v6, Protocol(132), &[9; 20], |_| {}));
        add("nothing at all", packet(2, v6, Protocol(59), &[], |_| {}));
        add(
            "wrong version",
            packet(2, v6, Protocol::UDP, &datagram(b"x"), |ip| ip[0] ^= 0x70),
        );
        let mut behind = udp([mac(1), mac(2)], 2);
        behind.extend([0xee; 13]);
        add("udp with padding", behind);
    }
    frames.extend(of_v4());
    frames.extend(of_v6());
    frames.extend(questions());
    frames.push((
        "neither".to_owned(),
        frame([mac(1), mac(2)], EtherType::LOCAL_EXPERIMENTAL, 40),
    ));
    frames.push(("an empty frame".to_owned(), frame([mac(1), mac(2)], EtherType::IPV4, 0)));
    frames
}

fn of_v4() -> Vec<Named> {
    let mut frames = Vec::new();
    let mut add = |name: &str, bytes| frames.push((name.to_owned(), bytes));
    for (name, fragment) in [
        ("first", 0x2000u16),
        ("later", 0x0010),
        ("middle", 0x2010),
        ("reserved bit", 0x8000),
    ] {
        let bytes = packet(
            2,
            false,
            Protocol::UDP,
            &partial(false, Protocol::UDP, datagram(b"of many")),
            |ip| {
                ip[6..8].copy_from_slice(&fragment.to_be_bytes());
            },
        );
        add(&format!("v4 fragment: {name}"), bytes);
    }
    // Words of the header, whatever they then cut off.
    for words in [0u8, 4, 6, 7, 15] {
        let upper = [&[1; 40][..], &datagram(b"behind options")].concat();
        let bytes = packet(2, false, Protocol::UDP, &upper, |ip| ip[0] = 0x40 | words.max(5));
        let mut bytes = bytes;
        bytes[ethernet::HEADER_LEN] = 0x40 | words;
        add(&format!("v4 header of {words} words"), bytes);
    }
    for total in [0u16, 19, 20, 27, 28, 200] {
        let bytes = packet(2, false, Protocol::UDP, &datagram(b"some data"), |ip| {
            ip[2..4].copy_from_slice(&total.to_be_bytes());
        });
        add(&format!("v4 of {total} bytes"), bytes);
    }
    for (name, to) in [
        ("multicast", [239, 1, 2, 3]),
        ("broadcast", [255; 4]),
        ("reserved", [240, 0, 0, 1]),
    ] {
        let bytes = packet(2, false, Protocol::UDP, &datagram(b"x"), |ip| {
            ip[16..20].copy_from_slice(&to)
        });
        add(&format!("v4 {name}"), bytes);
    }
    frames
}

fn of_v6() -> Vec<Named> {
    let mut frames = Vec::new();
    let mut add = |name: &str, bytes| frames.push((name.to_owned(), bytes));
    let whole = datagram(b"some data");
    let next = |protocol: u8, field: u16| {
        let [high, low] = field.to_be_bytes();
        [
            &[protocol, 0, high, low, 0, 0, 0, 7][..],
            &partial(true, Protocol::UDP, whole.clone()),
        ]
        .concat()
    };
    for (name, header, upper) in [
        ("hop by hop", 0, next(17, 0x0104)),
        ("destination options", 60, next(17, 0x0104)),
        ("routing", 43, next(17, 1)),
        ("first fragment", 44, next(17, 1)),
        ("later fragment", 44, next(17, 0x0100)),
        ("atomic fragment", 44, next(17, 0)),
        ("fragment cut short", 44, vec![17, 0, 0]),
        ("hop by hop cut short", 0, vec![17, 0, 0]),
        ("ipsec", 51, next(17, 0)),
    ] {
        add(&format!("v6 {name}"), packet(2, true, Protocol(header), &upper, |_| {}));
    }
    for len in [0u16, 7, 8, 17, 18, 500] {
        let bytes = packet(2, true, Protocol::UDP, &whole, |ip| {
            ip[4..6].copy_from_slice(&len.to_be_bytes())
        });
        add(&format!("v6 of {len} bytes"), bytes);
    }
    let bytes = packet(2, true, Protocol::UDP, &whole, |ip| ip[24] = 0xff);
    add("v6 multicast", bytes);
    let mapped = Ipv4Addr::new(10, 0, 0, 2).to_ipv6_mapped().octets();
    let bytes = packet(2, true, Protocol::UDP, &whole, |ip| ip[24..40].copy_from_slice(&mapped));
    add("v6 that is written with v4", bytes);
    frames
}

fn v4(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, last)
}

fn v6(last: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into())
}

/// A solicitation with its checksum made anew after an edit; the message begins at 54.
fn edited(mut bytes: Vec<u8>, edit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    edit(&mut bytes);
    let len = bytes.len() - 54;
    bytes[18..20].copy_from_slice(&u16::try_from(len).expect("short").to_be_bytes());
    bytes[56..58].fill(0);
    let sum = Sum::of(&bytes[22..54])
        .word(58)
        .word(u16::try_from(len).expect("short"));
    let checksum = sum.bytes(&bytes[54..]).finish();
    bytes[56..58].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

fn questions() -> Vec<Named> {
    let mut frames = Vec::new();
    let mut add = |name: &str, bytes| frames.push((name.to_owned(), bytes));
    let arp = |sender, target| tenant_arp(mac(1), v4(sender), v4(target));
    let altered = |at: usize, value: u8| {
        let mut bytes = arp(1, 2);
        bytes[ethernet::HEADER_LEN + at] = value;
        bytes
    };
    add("arp for 2", arp(1, 2));
    add("arp for 4", arp(1, 4));
    add("arp for oneself", arp(9, 1));
    add("arp for nobody", arp(1, 99));
    add("arp announcement", arp(1, 1));
    add("arp reply", altered(7, 2));
    add("arp of another kind", altered(7, 9));
    add("arp of other hardware", altered(1, 6));
    add("arp of other addresses", altered(4, 8));
    add("arp by nobody", tenant_arp(mac(1), Ipv4Addr::UNSPECIFIED, v4(2)));
    let mut padded = arp(1, 2);
    padded.resize(60, 0);
    add("arp with padding", padded);
    let mut odd = arp(1, 2);
    odd.extend([7; 5]);
    add("arp with odd padding", odd);

    let ask = |target| tenant_solicitation(mac(1), v6(1), v6(target));
    add("solicitation of 2", ask(2));
    add("solicitation of 4", ask(4));
    add("solicitation of oneself", ask(1));
    add("solicitation of nobody", ask(99));
    add(
        "duplicate address detection",
        tenant_solicitation(mac(1), Ipv6Addr::UNSPECIFIED, v6(2)),
    );
    let detection = tenant_solicitation(mac(1), Ipv6Addr::UNSPECIFIED, v6(2));
    let to_one = edited(detection, |bytes| bytes[38..54].copy_from_slice(&v6(2).octets()));
    add("duplicate address detection of one", to_one);
    let from_nobody = edited(ask(2), |bytes| bytes[22..38].fill(0));
    add("solicitation from nobody with its address", from_nobody);
    let mut padded = ask(2);
    padded.extend([7; 5]);
    add("solicitation with padding", padded);
    let mut wrong = ask(2);
    wrong[56] ^= 1;
    add("solicitation with a wrong checksum", wrong);
    add("solicitation from afar", edited(ask(2), |bytes| bytes[21] = 254));
    for (name, at, value) in [
        ("with a code", 55, 1),
        ("of a group", 62, 0xff),
        ("with another option", 78, 14),
        ("with an option of nothing", 79, 0),
        ("with an option that is cut short", 79, 2),
        ("that is an advertisement", 54, 136),
        ("that is a redirect", 54, 137),
        ("that is a router's", 54, 133),
        ("that is an echo", 54, 128),
    ] {
        add(
            &format!("solicitation {name}"),
            edited(ask(2), |bytes| bytes[at] = value),
        );
    }
    for more in [&[14, 1, 9, 9, 9, 9, 9, 9][..], &[14], &[14, 3, 0, 0, 0, 0, 0, 0]] {
        let bytes = edited(ask(2), |bytes| bytes.extend(more));
        add(&format!("solicitation with {} bytes more", more.len()), bytes);
    }
    let to_one = edited(ask(2), |bytes| bytes[38..54].copy_from_slice(&v6(2).octets()));
    add("solicitation of one", to_one);
    let advertised = edited(ask(2), |bytes| {
        bytes[54] = 136;
        bytes[..6].copy_from_slice(&mac(2).0);
        bytes[38..54].copy_from_slice(&v6(2).octets());
    });
    add("advertisement to one", advertised);
    frames
}

fn ways() -> Vec<(&'static str, Encapsulation, Vec<u8>)> {
    let (class, kind) = KNOWN_OPTION;
    let [high, low] = class.to_be_bytes();
    vec![
        ("vxlan", Encapsulation::Vxlan, vec![]),
        ("geneve", Encapsulation::Geneve, vec![]),
        (
            "geneve with options",
            Encapsulation::Geneve,
            vec![1, 2, 3, 2, 9, 9, 9, 9, 8, 8, 8, 8, 1, 2, 4, 0],
        ),
        (
            "geneve with a critical option",
            Encapsulation::Geneve,
            vec![high, low, kind, 1, 1, 2, 3, 4],
        ),
    ]
}

/// Damage to outer headers, tunnel headers and the frame's end. `udp` is where the UDP header begins.
fn outer_oddities(name: &str, frame: &[u8], udp: usize) -> Vec<Named> {
    let mut frames = Vec::new();
    let mut add = |what: &str, edit: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = frame.to_vec();
        edit(&mut bytes);
        frames.push((format!("{name}, {what}"), bytes));
    };
    let tunnel = udp + 8;
    for ttl in [0, 1, 2] {
        add(&format!("outer ttl {ttl}"), &|bytes| {
            bytes[if udp == 34 { 22 } else { 21 }] = ttl
        });
    }
    for more in [18, 600, 6000] {
        add(&format!("{more} bytes of padding"), &|bytes| {
            bytes.resize(bytes.len() + more, 0xcc)
        });
    }
    for more in [18, 600] {
        add(&format!("{more} bytes behind the datagram"), &|bytes| {
            bytes.resize(bytes.len() + more, 0xcc);
            let at = if udp == 34 { 16 } else { 18 };
            let len = u16::from_be_bytes([bytes[at], bytes[at + 1]]) + u16::try_from(more).expect("few");
            bytes[at..at + 2].copy_from_slice(&len.to_be_bytes());
        });
    }
    add("another port", &|bytes| bytes[udp + 3] ^= 1);
    add("another address", &|bytes| bytes[udp - 1] ^= 1);
    add("a udp length of 7", &|bytes| {
        bytes[udp + 4..udp + 6].copy_from_slice(&[0, 7])
    });
    add("a udp length that is too long", &|bytes| {
        bytes[udp + 4..udp + 6].copy_from_slice(&[9, 9])
    });
    add("a shorter udp length", &|bytes| bytes[udp + 5] -= 3);
    add("all flags", &|bytes| bytes[tunnel] |= 0x3f);
    add("no flags", &|bytes| bytes[tunnel] = 0);
    add("version 1", &|bytes| bytes[tunnel] |= 0x40);
    add("control", &|bytes| bytes[tunnel + 1] |= 0x80);
    add("another protocol", &|bytes| bytes[tunnel + 3] ^= 1);
    add("one option more", &|bytes| bytes[tunnel] = (bytes[tunnel] + 1) & 0x3f);
    add("an unknown critical option", &|bytes| bytes[tunnel + 10] |= 0x80);
    add("an option that is a word longer", &|bytes| {
        bytes[tunnel + 11] = bytes[tunnel + 11].wrapping_add(1)
    });
    add("a much longer option", &|bytes| bytes[tunnel + 11] |= 0x1f);
    add("a tos", &|bytes| bytes[15] |= 0xb0);
    if udp == 34 {
        add("a first fragment", &|bytes| bytes[20] |= 0x20);
        add("a later fragment", &|bytes| bytes[21] |= 0x20);
        add("tcp", &|bytes| bytes[23] = 6);
        add("options", &|bytes| {
            bytes.splice(34..34, [1, 1, 1, 0]);
            bytes[14] = 0x46;
            let len = u16::from_be_bytes([bytes[16], bytes[17]]) + 4;
            bytes[16..18].copy_from_slice(&len.to_be_bytes());
        });
    } else {
        add("a flow label", &|bytes| bytes[17] = 0x77);
        add("an extension header", &|bytes| bytes[20] = 0);
    }
    // As Linux leaves the outer checksum to a NIC.
    let len = u16::from_be_bytes([frame[udp + 4], frame[udp + 5]]);
    let addresses = if udp == 34 { 26..34 } else { 22..54 };
    let partial = Sum::of(&frame[addresses]).word(17).word(len).fold().to_be_bytes();
    add("a partial outer checksum", &|bytes| {
        bytes[udp + 6..udp + 8].copy_from_slice(&partial)
    });
    frames
}

/// Frames as they come to the gateway, each in its best shape: all kinds of content in all kinds of headers.
#[must_use]
pub fn fixtures() -> Vec<Named> {
    let mut frames = Vec::new();
    let contents = tenants_frames();
    for v6 in [false, true] {
        for (way, encapsulation, options) in ways() {
            for (content, tenants) in &contents {
                for tags in 0..4 {
                    // Tags matter to all in the same way: all of them once is enough.
                    if tags > 0 && way != "vxlan" {
                        continue;
                    }
                    let frame = (0..tags).fold(tenants.clone(), |frame, tag| tagged(&frame, tag));
                    let mut sent = Sent::new([host(1, v6), gateway(v6)], encapsulation, VNI, frame);
                    sent.options.clone_from(&options);
                    sent.checksum ^= tags == 1;
                    let name = format!("{content}, {way} over v{}, {tags} tags", if v6 { 6 } else { 4 });
                    frames.push((name, sent.bytes()));
                }
            }
        }
    }
    frames
}

/// Cuts a frame and makes its outer lengths say so, as far as they are there.
fn cut(frame: &[u8], len: usize) -> Vec<u8> {
    let mut bytes = frame[..len].to_vec();
    let udp = if frame[12] == 8 { 34 } else { 54 };
    let mut set = |at: usize, value: usize| {
        if let (Some(place), Ok(value)) = (bytes.get_mut(at..at + 2), u16::try_from(value)) {
            place.copy_from_slice(&value.to_be_bytes());
        }
    };
    match udp {
        34 => set(16, len.saturating_sub(14)),
        _ => set(18, len.saturating_sub(54)),
    }
    set(udp + 4, len.saturating_sub(udp));
    bytes
}

/// [`fixtures`], with their headers damaged in named ways, cut at every length (with and without lengths that say so), and
/// with single bytes changed at random. Some seventy thousand.
#[must_use]
pub fn corpus(seed: u64) -> Vec<Named> {
    let fixtures = fixtures();
    let mut all = Vec::new();
    let mut random = Random(seed);
    for (place, (name, frame)) in fixtures.iter().enumerate() {
        let udp = if frame[12] == 8 { 34 } else { 54 };
        // What does not depend on the content is done with a few of each kind.
        if place % 7 == 0 {
            all.extend(outer_oddities(name, frame, udp));
        }
        if place % 11 == 0 {
            for len in 14..frame.len() {
                all.push((format!("{name}, {len} bytes of it"), frame[..len].to_vec()));
                all.push((format!("{name}, cut to {len} bytes"), cut(frame, len)));
            }
        }
        for _ in 0..8 {
            let mut bytes = frame.clone();
            let at = random.below(bytes.len());
            let change = u8::try_from(1 + random.below(255)).expect("a byte");
            bytes[at] ^= change;
            all.push((format!("{name}, {change:#04x} in byte {at}"), bytes));
        }
    }
    all.extend(fixtures);
    all
}

/// Splitmix64: frames have to be the same everywhere and always.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).expect("a byte")
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(end.max(1)).unwrap_or(1)).unwrap_or(0)
    }
}
