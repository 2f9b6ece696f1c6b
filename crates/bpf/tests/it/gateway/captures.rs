//! Packets of real networks, and those that made other parsers fail: the capture files of tcpdump's own tests, through both
//! parsers. `scripts/setup` fetches them.

use std::net::IpAddr;
use std::path::PathBuf;
use std::{env, fs};

use pcap_file::DataLink;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use ringside_gateway_core::table::Encapsulation;
use ringside_gateway_core::testing::Sent;
use ringside_gateway_core::testing::corpus::{VNI, gateway, host};
use ringside_netlab::guest::Cache;

use crate::common::privileged;
use crate::gateway::bed::{Bed, Wanted, in_namespace};
use crate::gateway::corpus::compare;

/// Returns the folder that `RINGSIDE_CAPTURES` names, else that of the cache, whose digests are verified.
fn folder() -> PathBuf {
    let in_cache = || Cache::usual().and_then(|cache| cache.entry("captures"));
    env::var_os("RINGSIDE_CAPTURES").map_or_else(
        || in_cache().unwrap_or_else(|error| panic!("no capture files: {error}")),
        PathBuf::from,
    )
}

/// The Ethernet frames of a capture file, with their comments; none of what is neither of the two formats.
pub(crate) fn frames(file: &[u8]) -> Vec<(Option<String>, Vec<u8>)> {
    match file.first_chunk() {
        Some([0x0a, 0x0d, 0x0d, 0x0a]) => of_pcapng(file),
        _ => of_pcap(file).into_iter().map(|frame| (None, frame.to_vec())).collect(),
    }
}

/// Up to where it can be read.
fn of_pcapng(file: &[u8]) -> Vec<(Option<String>, Vec<u8>)> {
    let Ok(mut reader) = PcapNgReader::new(file) else {
        return Vec::new();
    };
    let (mut frames, mut is_ethernet) = (Vec::new(), Vec::new());
    while let Some(Ok(block)) = reader.next_block() {
        match block {
            Block::SectionHeader(_) => is_ethernet.clear(),
            Block::InterfaceDescription(interface) => is_ethernet.push(interface.linktype == DataLink::ETHERNET),
            Block::EnhancedPacket(packet) if is_ethernet.get(packet.interface_id as usize) == Some(&true) => {
                let comment = packet.options.iter().find_map(|option| match option {
                    EnhancedPacketOption::Comment(text) => Some(text.to_string()),
                    _ => None,
                });
                frames.push((comment, packet.data.to_vec()));
            }
            _ => {}
        }
    }
    frames
}

/// The format that libpcap has had since 1998.
fn of_pcap(file: &[u8]) -> Vec<&[u8]> {
    const ETHERNET: u32 = 1;
    let little = match file.first_chunk() {
        Some([0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1]) => true,
        Some([0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d]) => false,
        _ => return Vec::new(),
    };
    let word = |at: usize| {
        let bytes = *file.get(at..)?.first_chunk()?;
        Some(if little {
            u32::from_le_bytes(bytes)
        } else {
            u32::from_be_bytes(bytes)
        })
    };
    if word(20) != Some(ETHERNET) {
        return Vec::new();
    }
    let mut at = 24;
    let next = || {
        let len = word(at + 8)? as usize;
        let frame = file.get(at + 16..)?.get(..len)?;
        at += 16 + len;
        Some(frame)
    };
    std::iter::from_fn(next).collect()
}

/// A frame by itself, with the gateway as its receiver, and as what a tenant sends.
fn ways(frame: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![frame.to_vec()];
    if let (Some([8, 0]), IpAddr::V4(own)) = (frame.get(12..14), gateway(false)) {
        let mut ours = frame.to_vec();
        if let Some(place) = ours.get_mut(30..34) {
            place.copy_from_slice(&own.octets());
            all.push(ours);
        }
    }
    // As long as an IP packet can carry it.
    if frame.len() < 9000 {
        for (v6, encapsulation) in [(false, Encapsulation::Vxlan), (true, Encapsulation::Geneve)] {
            let hosts = [host(1, v6), gateway(v6)];
            all.push(Sent::new(hosts, encapsulation, VNI, frame.to_vec()).bytes());
        }
    }
    // The kernel runs no program on less than an Ethernet header.
    all.retain(|frame| (14..9200).contains(&frame.len()));
    all
}

#[test]
fn captures_of_others() {
    if !privileged() {
        return;
    }
    let folder = folder();
    let mut all = Vec::new();
    for file in fs::read_dir(&folder).unwrap() {
        let path = file.unwrap().path();
        if path.is_dir() {
            continue;
        }
        for (number, (_, frame)) in frames(&fs::read(&path).unwrap()).into_iter().enumerate() {
            let name = format!("frame {number} of {}", path.display());
            all.extend(ways(&frame).into_iter().map(|frame| (name.clone(), frame)));
        }
    }
    assert!(!all.is_empty(), "no capture of Ethernet in {}", folder.display());
    in_namespace(|second| {
        for v6 in [false, true] {
            let wanted = Wanted {
                v6,
                ..Wanted::default()
            };
            let seen = compare(Bed::new(second, wanted), &all);
            println!("{} frames: {seen:?}", all.len());
        }
    });
}
