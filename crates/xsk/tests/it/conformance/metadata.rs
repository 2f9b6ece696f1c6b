//! What a driver tells about a received packet, put in front of it by our program for that device; and what a sender asks of
//! it, and is told when the packet has left.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::Instant;

use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType};
use ringside_bpf::testing::{Task, TestProgram, direct, pass};
use ringside_netlab::Lab;
use ringside_nic::RxMetadata;
use ringside_nic::clock::{Monotonic, Tai, Timestamp};
use ringside_wire::Protocol;
use ringside_wire::checksum::pseudo_v4;
use ringside_wire::udp::fill_checksum;
use ringside_xsk::hints::{HashType, Layouts, NicReader, RingsideNic, RxHash, RxStamp, VlanTag};
use ringside_xsk::tx_metadata::{StampSampling, TxMeta, TxMetadata};
use ringside_xsk::{Direction, Error, Path, Port, Program, Queue, QueueOptions};

use crate::common::PATIENCE;
use crate::common::conformance::{Case, Outcome, lacks, passed, row, row_on, row_once, usual};
use crate::common::traffic::{expect, only, packets, same, send};
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

/// Sends one packet that asks for something, and waits until it is back.
fn send_asking(tx: &mut Queue, packet: &[u8], meta: TxMeta) {
    let sent = tx.send_asking_with(1, |to| {
        assert!(to.write(packet));
        meta
    });
    assert_eq!(sent.expect("sends"), 1);
    assert!(tx.drain(PATIENCE).expect("drains"));
}

/// A UDP checksum of which there is only the part that a checksum offload wants to be there, is whole when it arrives.
#[test]
fn tx_metadata_checksum() {
    row_on("TX_METADATA_CHECKSUM", usual("txcsum"), |lab, case| {
        let mut port = case.port(&lab.b, QueueOptions::new(), |port| port);
        // With zero-copy the device has to do it.
        let wanted = match case.path {
            Path::ZeroCopy => TxMetadata::new().checksum(),
            _ => TxMetadata::new().software_checksum(),
        };
        let mut remark = "";
        let mut tx = match sender(lab, case, wanted) {
            Ok(tx) => tx,
            Err(Outcome::Skipped { reason }) if reason.contains("IFF_TX_SKB_NO_LINEAR") => {
                remark = "not by TxMetadata::software_checksum, which the kernel has for no driver with IFF_TX_SKB_NO_LINEAR: bind() answers EOPNOTSUPP";
                sender(lab, case, TxMetadata::new().checksum()).expect("that is for all")
            }
            Err(outcome) => return outcome,
        };
        for len in [18_usize, 19, 400] {
            let mut whole = udp(&lab.a, &lab.b, 5000, &vec![0xa5; len]);
            let (from, to) = (lab.a.ipv4.into(), lab.b.ipv4.into());
            fill_checksum(&mut whole[34..], from, to).expect("a UDP datagram");
            let mut asked = whole.clone();
            let length = u16::try_from(8 + len).expect("short");
            let pseudo = pseudo_v4(lab.a.ipv4, lab.b.ipv4, Protocol::UDP, length);
            asked[40..42].copy_from_slice(&pseudo.fold().to_be_bytes());
            assert_ne!(asked, whole);
            send_asking(&mut tx, &asked, TxMeta::new().checksum(34, 6));
            expect(only(&mut port), case.wait(), &[whole]);
        }
        Outcome::Passed { remark: remark.into() }
    });
}

/// A stamp for each packet that asks, in order; and nothing is told where nothing was asked for.
#[test]
fn tx_metadata_timestamp() {
    row_on("TX_METADATA_TIMESTAMP", usual("txstamp"), |lab, case| {
        let _port = case.port(&lab.b, QueueOptions::new(), |port| port);
        let wanted = TxMetadata::new().timestamps(StampSampling::all());
        let mut tx = match sender(lab, case, wanted) {
            Ok(tx) => tx,
            Err(outcome) => return outcome,
        };
        let packet = udp(&lab.a, &lab.b, 5000, &[0; 18]);
        let mut last = 0;
        for number in 0..16 {
            send_asking(&mut tx, &packet, TxMeta::new().timestamp(number));
            let stamp = tx.tx_stamps().expect("sound").next().expect("it is back");
            assert_eq!(stamp.token, number);
            assert!(stamp.time.as_nanos() > last);
            last = stamp.time.as_nanos();
        }
        send_asking(&mut tx, &packet, TxMeta::new());
        assert_eq!(tx.tx_stamps().expect("sound").count(), 0);
        passed()
    });
}

/// On a copy path the stamp of a packet that has left is of CLOCK_TAI, and of no other clock.
pub(crate) fn stamps_are_of_tai(lab: &Lab, case: Case) -> Outcome {
    let _port = case.port(&lab.b, QueueOptions::new(), |port| port);
    let wanted = TxMetadata::new().timestamps(StampSampling::all());
    let mut tx = match sender(lab, case, wanted) {
        Ok(tx) => tx,
        Err(outcome) => return outcome,
    };
    let packet = udp(&lab.a, &lab.b, 5000, &[0; 18]);
    let before = Timestamp::<Tai>::now();
    send_asking(&mut tx, &packet, TxMeta::new().timestamp(1));
    let after = Timestamp::<Tai>::now();
    let stamp = tx.tx_stamps().expect("sound").next().expect("it is back");
    let left = stamp.time.software().expect("in software");
    assert!((before..=after).contains(&left), "{before:?} {left:?} {after:?}");
    let monotonic = Timestamp::<Monotonic>::now().as_nanos();
    assert!(
        left.as_nanos().abs_diff(monotonic) > 1_000_000_000,
        "that would be CLOCK_MONOTONIC"
    );
    passed()
}

/// A queue that may ask, or why there is none.
fn sender(lab: &Lab, case: Case, wanted: TxMetadata) -> Result<Queue, Outcome> {
    let options = QueueOptions::new().direction(Direction::Transmit).tx_metadata(wanted);
    let opened = case.try_queue_of(&lab.a, case.from(), options);
    opened.map_err(|error| match error {
        Error::Unsupported { .. } => lacks(error.to_string()),
        Error::Mode { reason, .. }
            if ["does not offer", "IFF_TX_SKB_NO_LINEAR"]
                .iter()
                .any(|why| reason.contains(why)) =>
        {
            lacks(reason)
        }
        error => panic!("{error}"),
    })
}
