//! ICMP echo requests by AF_XDP, whose answers the kernel gets: for hosts that run nothing of ours.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ringside_measure::latency::Latency;
use ringside_wire::checksum::{Sum, pseudo_v6};
use ringside_wire::flow::UdpFlow;
use ringside_wire::icmp::{Echo, EchoKind, v4, v6};
use ringside_wire::{EtherType, Protocol, ethernet, ipv4, ipv6};
use ringside_xsk::Port;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, ipproto, recv, socket_with, sockopt};

use super::echo::{Patience, send};
use super::tried::{Answerer, Answers};
use crate::clock::FastClock;

/// Type, code, checksum, identifier, sequence; then this.
const DATA: &[u8; 16] = b"ringside doctor ";

/// Asks, for the addresses of a UDP flow.
pub(super) struct Asker {
    flow: UdpFlow,
    socket: OwnedFd,
    identifier: u16,
    sequence: u16,
    clock: FastClock,
}

impl Asker {
    /// # Errors
    /// Without CAP_NET_RAW.
    pub(super) fn new(flow: UdpFlow) -> Result<Self> {
        let (family, protocol) = match flow.dst.ip() {
            IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
            IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
        };
        let socket = socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, Some(protocol))
            .context("a socket for ICMP (it needs CAP_NET_RAW)")?;
        let slice = Duration::from_millis(20);
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(slice)).context("its time-out")?;
        Ok(Self {
            flow,
            socket,
            identifier: u16::try_from(std::process::id() & 0xffff).expect("masked"),
            sequence: 0,
            clock: FastClock::new(),
        })
    }

    /// Sends so many requests from one queue, one at a time.
    pub(super) fn ask(&mut self, port: &mut Port, queue: u32, probes: u64, patience: Patience) -> Result<Answers> {
        let mut answers = Answers {
            by: Answerer::Icmp,
            ..Answers::default()
        };
        let mut rtt = Latency::new();
        let mut in_vain = 0;
        while answers.sent < probes && in_vain < patience.in_vain {
            self.sequence = self.sequence.wrapping_add(1);
            let frame = request(&self.flow, self.identifier, self.sequence)?;
            let sent_ns = self.clock.now_ns();
            send(port, queue, &frame)?;
            answers.sent += 1;
            in_vain += 1;
            let end = Instant::now() + patience.timeout;
            while Instant::now() < end {
                if self.came()? {
                    rtt.record(self.clock.now_ns().saturating_sub(sent_ns));
                    answers.answered += 1;
                    in_vain = 0;
                    break;
                }
            }
        }
        answers.median_rtt_ns = rtt.summary().and_then(|summary| summary.p50_ns);
        Ok(answers)
    }

    /// Whether the answer to the last request has come; waits a moment for it.
    fn came(&self) -> Result<bool> {
        let mut bytes = [0; 256];
        let length = match recv(&self.socket, &mut bytes, RecvFlags::empty()) {
            Ok((_, length)) => length.min(bytes.len()),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(false),
            Err(error) => return Err(error).context("receiving ICMP"),
        };
        let packet = &bytes[..length];
        let echo = match self.flow.dst.ip() {
            // Of IPv4 such a socket gives the IP header, too.
            IpAddr::V4(_) => ipv4::Packet::parse(packet).and_then(|packet| Echo::parse_v4(packet.payload())),
            IpAddr::V6(_) => Echo::parse_v6(packet),
        };
        Ok(echo.is_ok_and(|echo| {
            echo.kind == EchoKind::Reply
                && (echo.identifier, echo.sequence) == (self.identifier, self.sequence)
                && echo.data == DATA
        }))
    }
}

/// A frame with an echo request from the sender of the flow to its receiver.
fn request(flow: &UdpFlow, identifier: u16, sequence: u16) -> Result<Vec<u8>> {
    let mut message = vec![0; 8];
    message[4..6].copy_from_slice(&identifier.to_be_bytes());
    message[6..8].copy_from_slice(&sequence.to_be_bytes());
    message.extend(DATA);
    let length = message.len();
    let (ethertype, mut packet, checksum) = match (flow.src.ip(), flow.dst.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            message[0] = v4::ECHO_REQUEST;
            let mut packet = vec![0; ipv4::HEADER_LEN];
            let header = ipv4::Header {
                ttl: flow.ttl,
                payload_len: length,
                ..ipv4::Header::new(src, dst, Protocol::ICMP)
            };
            header.emit(&mut packet)?;
            (EtherType::IPV4, packet, Sum::of(&message).finish())
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            message[0] = v6::ECHO_REQUEST;
            let mut packet = vec![0; ipv6::HEADER_LEN];
            let header = ipv6::Header {
                hop_limit: flow.ttl,
                payload_len: length,
                ..ipv6::Header::new(src, dst, Protocol::ICMPV6)
            };
            header.emit(&mut packet)?;
            let pseudo = pseudo_v6(src, dst, Protocol::ICMPV6, u32::try_from(length)?);
            (EtherType::IPV6, packet, pseudo.bytes(&message).finish())
        }
        _ => anyhow::bail!("addresses of two families"),
    };
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(message);
    let mut frame = vec![0; ethernet::HEADER_LEN];
    let header = ethernet::Header {
        dst: flow.dst_mac,
        src: flow.src_mac,
        ethertype,
    };
    header.emit(&mut frame)?;
    frame.extend(packet);
    // Without FCS the smallest frame of Ethernet has 60 bytes.
    frame.resize(frame.len().max(60), 0);
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use ringside_wire::MacAddr;
    use ringside_wire::icmp::{verify_v4, verify_v6};
    use ringside_wire::reflect_icmp_echo;

    use super::*;

    fn flow(src: &str, dst: &str) -> UdpFlow {
        UdpFlow {
            src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
            dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            ttl: 64,
        }
    }

    #[test]
    fn requests_are_what_our_own_echo_answers() {
        let mut v4 = request(&flow("192.0.2.1:1", "192.0.2.2:2"), 7, 9).unwrap();
        let message = &v4[34..58];
        assert!(verify_v4(message));
        let echo = Echo::parse_v4(message).unwrap();
        assert_eq!((echo.kind, echo.identifier, echo.sequence), (EchoKind::Request, 7, 9));
        assert!(reflect_icmp_echo(&mut v4, |asked| asked.to_string() == "192.0.2.2"));

        let mut v6 = request(&flow("[2001:db8::1]:1", "[2001:db8::2]:2"), 7, 9).unwrap();
        let (src, dst) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        assert!(verify_v6(&v6[54..78], src, dst));
        assert!(reflect_icmp_echo(&mut v6, |asked| asked.to_string() == "2001:db8::2"));
        assert!(request(&flow("192.0.2.1:1", "[::1]:2"), 7, 9).is_err());
    }
}
