//! trace.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use ringside_measure::units::count;
use serde_json::json;
use tonic::transport::Channel;

use super::connect::refused;
use super::{show, vni};
use crate::object::wire;
use crate::proto;
use crate::proto::operation_service_client::OperationServiceClient;

/// `trace`
#[derive(Debug, Args)]
pub(super) struct TraceArgs {
    /// Only packets of this network
    #[arg(long, value_parser = vni)]
    vni: Option<u32>,
    /// Only those from or to this address of a tenant, and questions by or for it
    #[arg(long)]
    ip: Option<IpAddr>,
    /// Only those that are dropped, for any reason or for one, by its name as in `stats`
    #[arg(long, value_name = "REASON", num_args = 0..=1)]
    #[expect(clippy::option_option, reason = "given or not, with a reason or without")]
    drops: Option<Option<String>>,
    /// End after this number of packets, such as 100 or 10k
    #[arg(long, value_name = "N", value_parser = count)]
    count: Option<u64>,
    /// Write them to a file for Wireshark, with what was decided as comments
    #[arg(long, value_name = "FILE")]
    pcapng: Option<PathBuf>,
}

/// Bytes of a packet that are shown at the most.
const SNAPLEN: u32 = 256;

pub(super) async fn run(channel: Channel, args: &TraceArgs, json: bool) -> Result<()> {
    let request = proto::TraceRequest {
        vni: args.vni,
        ip: wire::host_ip_bytes(args.ip),
        drops: args.drops.is_some(),
        reason: args.drops.clone().flatten().unwrap_or_default(),
    };
    let mut file = args.pcapng.as_deref().map(Capture::create).transpose()?;
    let answer = OperationServiceClient::new(channel).trace(request).await;
    let mut packets = answer.map_err(|status| refused(&status))?.into_inner();
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0
        && let Some(packet) = packets.message().await.map_err(|status| refused(&status))?
    {
        left -= 1;
        match (&mut file, json) {
            (Some(file), _) => file.write(&packet)?,
            (None, true) => show::json(&as_json(&packet), true)?,
            (None, false) => {
                if packet.lost > 0 {
                    show::print(&format!("({} packets could not be shown)", packet.lost))?;
                }
                show::print(&line(&packet))?;
            }
        }
    }
    if left > 0 {
        bail!("the gateway has ended");
    }
    Ok(())
}

fn as_json(packet: &proto::TraceResponse) -> serde_json::Value {
    json!({
        "time-unix-nanos": packet.time_unix_nanos,
        "stage": packet.stage,
        "interface": packet.interface,
        "queue": packet.queue,
        "vni": packet.vni,
        "decision": packet.decision,
        "length": packet.length,
        "packet": summary(&packet.packet),
        "lost": packet.lost,
    })
}

fn line(packet: &proto::TraceResponse) -> String {
    let seconds = packet.time_unix_nanos.div_euclid(1_000_000_000);
    let micros = packet.time_unix_nanos.rem_euclid(1_000_000_000) / 1000;
    let of_day = seconds.rem_euclid(24 * 3600);
    let vni = packet.vni.map_or("vni ?".to_owned(), |vni| format!("vni {vni}"));
    format!(
        "{:02}:{:02}:{:02}.{micros:06} {} {} queue {}  {vni}  {}, {} bytes: {}",
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60,
        packet.stage,
        packet.interface,
        packet.queue,
        summary(&packet.packet),
        packet.length,
        packet.decision,
    )
}

/// The tenant's packet in a few words, or the whole if there is none to be found.
fn summary(frame: &[u8]) -> String {
    let Ok(outer) = LaxSlicedPacket::from_ethernet(frame) else {
        return "no packet".to_owned();
    };
    match tenants(&outer) {
        Some(inner) => words(&inner),
        None => words(&outer),
    }
}

/// What is in a tunnel. Both of them put Ethernet behind a header of eight bytes, Geneve behind options as well.
fn tenants<'a>(outer: &LaxSlicedPacket<'a>) -> Option<LaxSlicedPacket<'a>> {
    let Some(TransportSlice::Udp(udp)) = &outer.transport else {
        return None;
    };
    let payload = udp.payload();
    // The first bit of VXLAN's flags is never set, its fifth always; Geneve begins with its version, 0, and its length.
    let is_vxlan = payload.first()? & 0x08 != 0 && payload.get(1..4)? == [0; 3];
    let options = if is_vxlan {
        0
    } else {
        usize::from(payload[0] & 0x3f) * 4
    };
    LaxSlicedPacket::from_ethernet(payload.get(8 + options..)?).ok()
}

fn words(packet: &LaxSlicedPacket<'_>) -> String {
    let (source, destination, protocol) = match &packet.net {
        Some(LaxNetSlice::Ipv4(ip)) => (
            IpAddr::from(ip.header().source()),
            IpAddr::from(ip.header().destination()),
            ip.payload().ip_number,
        ),
        Some(LaxNetSlice::Ipv6(ip)) => (
            IpAddr::from(ip.header().source()),
            IpAddr::from(ip.header().destination()),
            ip.payload().ip_number,
        ),
        Some(LaxNetSlice::Arp(arp)) => {
            let address =
                |bytes: &[u8]| <[u8; 4]>::try_from(bytes).map_or("?".to_owned(), |ip| IpAddr::from(ip).to_string());
            let (asker, target) = (address(arp.sender_protocol_addr()), address(arp.target_protocol_addr()));
            return format!("ARP {asker} about {target}");
        }
        None => return "no IP".to_owned(),
    };
    match &packet.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            let flags = [
                (tcp.syn(), 'S'),
                (tcp.fin(), 'F'),
                (tcp.rst(), 'R'),
                (tcp.psh(), 'P'),
                (tcp.ack(), '.'),
            ];
            let flags: String = flags.iter().filter_map(|(set, name)| set.then_some(*name)).collect();
            format!(
                "TCP {} [{flags}]",
                ways((source, tcp.source_port()), (destination, tcp.destination_port()))
            )
        }
        Some(TransportSlice::Udp(udp)) => format!(
            "UDP {}",
            ways((source, udp.source_port()), (destination, udp.destination_port()))
        ),
        Some(TransportSlice::Icmpv4(icmp)) => format!("ICMP type {} {source} → {destination}", icmp.type_u8()),
        Some(TransportSlice::Icmpv6(icmp)) => format!("ICMPv6 type {} {source} → {destination}", icmp.type_u8()),
        Some(TransportSlice::Igmp(_)) | None => format!("protocol {} {source} → {destination}", protocol.0),
    }
}

fn ways(from: (IpAddr, u16), to: (IpAddr, u16)) -> String {
    use std::net::SocketAddr;
    format!("{} → {}", SocketAddr::from(from), SocketAddr::from(to))
}

/// A file for Wireshark.
struct Capture {
    writer: PcapNgWriter<BufWriter<File>>,
    /// In the order of their descriptions in the file.
    interfaces: Vec<String>,
}

impl Capture {
    fn create(path: &std::path::Path) -> Result<Self> {
        let failed = || format!("making {}", path.display());
        let file = File::create(path).with_context(failed)?;
        Ok(Self {
            writer: PcapNgWriter::new(BufWriter::new(file)).with_context(failed)?,
            interfaces: Vec::new(),
        })
    }

    fn write(&mut self, packet: &proto::TraceResponse) -> Result<()> {
        let known = self.interfaces.iter().position(|name| *name == packet.interface);
        let interface = match known {
            Some(known) => known,
            None => self.describe(&packet.interface)?,
        };
        let vni = packet.vni.map_or(String::new(), |vni| format!("vni {vni}, "));
        let comment = format!("{}, {vni}queue {}: {}", packet.stage, packet.queue, packet.decision);
        let mut options = vec![EnhancedPacketOption::Comment(comment.into())];
        if packet.lost > 0 {
            options.push(EnhancedPacketOption::DropCount(packet.lost));
        }
        self.writer.write_pcapng_block(EnhancedPacketBlock {
            interface_id: u32::try_from(interface).unwrap_or(0),
            timestamp: Duration::from_nanos(u64::try_from(packet.time_unix_nanos).unwrap_or(0)),
            original_len: packet.length,
            data: Cow::Borrowed(&packet.packet),
            options,
        })?;
        // Who ends this with Ctrl-C wants what was shown so far.
        Ok(self.writer.get_mut().flush()?)
    }

    fn describe(&mut self, name: &str) -> Result<usize> {
        self.writer.write_pcapng_block(InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: SNAPLEN,
            options: vec![
                InterfaceDescriptionOption::IfName(name.to_owned().into()),
                // Nanoseconds.
                InterfaceDescriptionOption::IfTsResol(9),
            ],
        })?;
        self.interfaces.push(name.to_owned());
        Ok(self.interfaces.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ethernet, IPv4, UDP, and what is in it.
    fn outer(payload: &[u8]) -> Vec<u8> {
        let builder = etherparse::PacketBuilder::ethernet2([2; 6], [3; 6])
            .ipv4([192, 0, 2, 2], [192, 0, 2, 1], 64)
            .udp(50_000, 4789);
        let mut frame = Vec::new();
        builder.write(&mut frame, payload).unwrap();
        frame
    }

    fn inner() -> Vec<u8> {
        let builder = etherparse::PacketBuilder::ethernet2([4; 6], [5; 6])
            .ipv6([1; 16], [2; 16], 64)
            .tcp(1000, 80, 1, 1000)
            .syn();
        let mut frame = Vec::new();
        builder.write(&mut frame, &[0; 100]).unwrap();
        frame
    }

    #[test]
    fn packets_in_tunnels_are_told_in_words() {
        let said = "TCP [101:101:101:101:101:101:101:101]:1000 → [202:202:202:202:202:202:202:202]:80 [S]";
        let vxlan = outer(&[&[8, 0, 0, 0, 0, 0, 7, 0][..], &inner()].concat());
        assert_eq!(summary(&vxlan), said);
        let geneve = outer(&[&[2, 0, 0x65, 0x58, 0, 0, 7, 0][..], &[0; 8], &inner()].concat());
        assert_eq!(summary(&geneve), said);
        assert_eq!(summary(&vxlan[..150]), said, "as far as it is shown");
        assert_eq!(summary(&outer(&[])), "UDP 192.0.2.2:50000 → 192.0.2.1:4789");
        assert_eq!(summary(&[]), "no packet");
    }

    #[test]
    fn a_line_says_when_where_what() {
        let packet = proto::TraceResponse {
            time_unix_nanos: (3 * 3600 + 4 * 60 + 5) * 1_000_000_000 + 6_000,
            stage: "fast".to_owned(),
            interface: "eth1".to_owned(),
            queue: 2,
            vni: Some(7),
            decision: "handed to a worker: miss".to_owned(),
            length: 42,
            packet: outer(&[]),
            lost: 0,
        };
        assert_eq!(
            line(&packet),
            "03:04:05.000006 fast eth1 queue 2  vni 7  UDP 192.0.2.2:50000 → 192.0.2.1:4789, 42 bytes: handed to a worker: miss"
        );
    }
}
