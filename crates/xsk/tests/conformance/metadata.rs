//! What a driver tells about a received packet, put in front of it by our program for that device. The rows
//! about what a sender asks for are beside the rings: `src/queue/metadata_tests.rs`.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::Instant;

use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType};
use ringside_bpf::testing::{Task, TestProgram, direct, pass};
use ringside_netlab::Lab;
use ringside_nic::RxMetadata;
use ringside_xsk::hints::{HashType, Layouts, NicReader, RingsideNic, RxHash, RxStamp, VlanTag};
use ringside_xsk::{Port, Program, Queue, QueueOptions};

use crate::common::conformance::{Case, Outcome, lacks, passed, row, row_on, row_once, usual};
use crate::common::traffic::{PATIENCE, only, packets, same, send};
use crate::common::udp;

/// A port whose program asks the driver about each packet, or why that cannot be.
fn open(lab: &Lab, case: Case) -> Result<(Port, NicReader), Outcome> {
    let (layouts, reader) = Layouts::ringside_nic();
    let port = case.port(&lab.b, QueueOptions::new().hints(layouts), |port| port);
    let program = port.report().program.clone().expect("a program");
    match program.nic.expect("it was asked for").why_not {
        None => Ok((port, reader)),
        Some(why) => Err(lacks(why)),
    }
}

/// Whether the driver can tell this. A kernel before 6.7 does not say.
fn offers(port: &Port, what: RxMetadata) -> bool {
    let nic = port.report().program.as_ref().and_then(|program| program.nic.as_ref());
    nic.and_then(|nic| nic.offers)
        .is_none_or(|offers| offers.contains(what))
}

/// Receives so many packets, and what is told of each; each must be as `expected` says.
fn told(rx: &mut Queue, reader: NicReader, case: Case, expected: &[Vec<u8>]) -> Vec<RingsideNic> {
    let start = Instant::now();
    let mut hints = Vec::new();
    while hints.len() < expected.len() {
        assert!(
            start.elapsed() < PATIENCE,
            "{} of {} packets",
            hints.len(),
            expected.len()
        );
        for packet in &mut rx.recv(case.wait()).expect("recv") {
            same(hints.len(), &packet, &expected[hints.len()], 2048 - 256);
            hints.push(reader.packet(&packet).expect("hints of each"));
        }
    }
    hints
}

#[test]
fn rx_metadata_timestamp() {
    row_on("RX_METADATA_TIMESTAMP", usual("rxstamp"), |lab, case| {
        let (mut port, reader) = match open(lab, case) {
            Ok(opened) => opened,
            Err(outcome) => return outcome,
        };
        if !offers(&port, RxMetadata::TIMESTAMP) {
            return lacks("the driver has no receive stamps");
        }
        let mut tx = case.sender(&lab.a, QueueOptions::new());
        let all = packets(0..32, 64, &lab.a, &lab.b);
        send(&mut tx, &all);
        for hints in told(only(&mut port), reader, case, &all) {
            // Success and no stamp is what a veth answers (K17), and a NIC whose stamps are not switched on: then the XDP
            // program's counts.
            let stamp = hints.stamp();
            match hints.hardware_time() {
                Some(at) => assert!(stamp == RxStamp::Hardware(at) && at.as_nanos() != 0),
                None => assert_eq!(stamp, RxStamp::Xdp(hints.xdp_time())),
            }
            assert!(
                !(hints.zero_hardware_time() && hints.hardware_time().is_some()),
                "{hints:?}"
            );
            assert!(case.wired || hints.zero_hardware_time(), "{hints:?}");
        }
        passed()
    });
}

#[test]
fn rx_metadata_hash() {
    row_on("RX_METADATA_HASH", usual("rxhash"), |lab, case| {
        let (mut port, reader) = match open(lab, case) {
            Ok(opened) => opened,
            Err(outcome) => return outcome,
        };
        if !offers(&port, RxMetadata::HASH) {
            return lacks("the driver has no receive hash");
        }
        let mut tx = case.sender(&lab.a, QueueOptions::new());
        // Four flows, in turn.
        let all: Vec<Vec<u8>> = (0..32).map(|n| udp(&lab.a, &lab.b, 5000 + n % 4, &[0; 30])).collect();
        send(&mut tx, &all);
        let hints = told(only(&mut port), reader, case, &all);
        let hashes: Vec<RxHash> = hints.iter().map(|told| told.hash().expect("a hash of each")).collect();
        let none = HashType::default();
        for (n, hash) in hashes.iter().enumerate() {
            assert_ne!(hash.value, 0, "{hashes:?}");
            // A veth's is of no type, and says nothing about the flow.
            assert!(
                hash.kind == none || *hash == hashes[n % 4],
                "the same flow, the same hash: {hashes:?}"
            );
        }
        let flows: BTreeSet<u32> = hashes.iter().map(|hash| hash.value).collect();
        assert!(hashes[0].kind == none || flows.len() >= 3, "four flows: {hashes:?}");
        passed()
    });
}

/// A tag that the NIC took off, or on a veth the tag that lies beside the packet: from the kernel's own stack, since a packet
/// of an XDP socket has its tag inside.
#[test]
fn rx_metadata_vlan() {
    row("RX_METADATA_VLAN", |case| {
        let lab = case.lab("rxvlan");
        let (mut port, reader) = match open(&lab, case) {
            Ok(opened) => opened,
            Err(outcome) => return outcome,
        };
        let from = lab.a.run(|| UdpSocket::bind((lab.a.ipv4, 0))).expect("bound");
        let index = lab.a.interface.index();
        let queue = u16::try_from(case.from()).expect("small");
        for tci in [0, 0x2005, 0xefff] {
            let _directed = lab.a.run(|| direct(index, queue, tci)).expect("attached");
            from.send_to(&[7; 30], (lab.b.ipv4, 5000)).expect("sent");
            let start = Instant::now();
            let hints = loop {
                let mut burst = only(&mut port).recv(case.wait()).expect("recv");
                if let Some(packet) = burst.iter_mut().next() {
                    assert_eq!(packet.data()[12..14], [8, 0], "the tag is not in the packet");
                    assert_eq!(packet.data()[42..], [7; 30]);
                    break reader.packet(&packet).expect("hints of each");
                }
                assert!(start.elapsed() < PATIENCE, "nothing came");
            };
            let protocol = 0x8100;
            assert_eq!(
                hints.vlan(),
                (tci != 0).then_some(VlanTag { protocol, tci }),
                "{hints:?}"
            );
        }
        passed()
    });
}

/// The RX descriptor does not tell that there is something in front of a packet: with and without, it is the same.
#[test]
fn k17() {
    row_on("K17", usual("k17"), |lab, case| {
        let mut tx = case.sender(&lab.a, QueueOptions::new());
        let all = packets(0..8, 64, &lab.a, &lab.b);
        let mut look = |mut port: Port| {
            send(&mut tx, &all);
            let (start, mut seen) = (Instant::now(), Vec::new());
            while seen.len() < all.len() {
                assert!(start.elapsed() < PATIENCE, "{seen:?}");
                let mut burst = only(&mut port).recv(case.wait()).expect("recv");
                seen.extend(burst.iter_mut().map(|packet| (packet.headroom(), packet.len())));
            }
            seen
        };
        let TestProgram { program, xsks_map, .. } = TestProgram::load(Task::CountInFront, false).expect("loads");
        let program = Program::Custom { program, xsks_map };
        let with = look(case.port(&lab.b, QueueOptions::new(), |port| port.program(program)));
        let without = look(case.port(&lab.b, QueueOptions::new(), |port| port));
        assert_eq!(with, without);
    });
}

/// A program for one device is refused where programs for any are called from.
#[test]
fn device_bound_refused() {
    row_once("DEVICE_BOUND_REFUSED", || {
        let lab = Lab::veth(usual("devbound")).expect("test bed");
        let index = lab.b.interface.index();
        lab.b.run(|| {
            let put = |map: &MapHandle, program: &OwnedFd, value: fn(u32, u32) -> Vec<u8>| {
                let descriptor = u32::try_from(program.as_fd().as_raw_fd()).expect("a descriptor");
                map.update(&0_u32.to_ne_bytes(), &value(index, descriptor), MapFlags::ANY)
            };
            type Value = fn(u32, u32) -> Vec<u8>;
            let alone: Value = |_, program| program.to_ne_bytes().to_vec();
            let with_device: Value = |device, program| [device, program].map(u32::to_ne_bytes).concat();
            for (kind, value, for_devmap) in [(MapType::ProgArray, alone, false), (MapType::Devmap, with_device, true)]
            {
                let options = bpf_map_create_opts {
                    sz: size_of::<bpf_map_create_opts>() as u64,
                    ..Default::default()
                };
                let size = u32::try_from(value(0, 0).len()).expect("small");
                let map = MapHandle::create(kind, Some("refuses"), 4, size, 1, &options).expect("made");
                let bound = pass(Some(index), for_devmap).expect("loads");
                let refused = put(&map, &bound, value).expect_err("refused");
                assert!(format!("{refused:#}").contains("os error 22"), "{kind:?}: {refused:#}");
                // It is that, and not anything else about it.
                put(&map, &pass(None, for_devmap).expect("loads"), value).expect("taken");
            }
        });
    });
}
