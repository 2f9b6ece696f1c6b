//! What the NIC's driver tells: our own program's variant for one device, on a veth, and the one for any where that cannot be.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use crate::common::traffic::{only, send};
use crate::common::{MODES, lab, open, packet_of, roomy, sender, udp};
use ringside_bpf::testing::direct;
use ringside_bpf::{Generator, GeneratorOptions};
use ringside_netlab::testing::is_root;
use ringside_nic::clock::{Monotonic, Timestamp};
use ringside_xsk::hints::{
    HashType, HintCounters, Layouts, NicReader, RingsideNic, RxStamp, StampCounters, StampSource,
};
use ringside_xsk::testing::Harness;
use ringside_xsk::{Interface, Mode, NicReport, Path, Port, Queue, QueueOptions, Wait};

fn options() -> (QueueOptions, NicReader) {
    let (layouts, reader) = Layouts::ringside_nic();
    (roomy().hints(layouts), reader)
}

fn nic(port: &Port) -> NicReport {
    let program = port.report().program.clone().expect("a program");
    program.nic.expect("it was asked for")
}

/// What is told about so many packets; those without are `None`.
fn told(rx: &mut Queue, reader: NicReader, count: usize) -> Vec<Option<RingsideNic>> {
    let start = Instant::now();
    let mut all = Vec::new();
    while all.len() < count {
        assert!(start.elapsed() < Duration::from_secs(10), "{} of {count}", all.len());
        let mut burst = rx.recv(Wait::Poll(Duration::from_millis(100))).unwrap();
        all.extend(burst.iter_mut().map(|packet| reader.packet(&packet)));
    }
    all
}

/// From a socket buffer a veth has a hash, no tag, and of K17's kind a stamp: success, and 0.
#[test]
fn a_veth_tells_about_packets_of_the_stack() {
    if !is_root() {
        return;
    }
    for multi_buffer in [false, true] {
        let lab = lab("nicstack", 1);
        let (options, reader) = options();
        let options = options.multi_buffer(multi_buffer);
        let mut port = open(&lab.b, Path::NativeCopy, |port| {
            port.mark(0xa5).options(options.clone())
        });
        let report = nic(&port);
        assert!(report.device_bound && report.why_not.is_none(), "{report:?}");
        let text = port.report().to_string();
        assert!(
            text.contains("for this device alone: asks its driver for timestamp hash vlan-tag"),
            "{text}"
        );
        assert!(text.contains("ringside_xsk_n"), "{text}");
        let mut from = sender(&lab.a);
        // Four flows, in turn.
        let all: Vec<Vec<u8>> = (0..40).map(|n| udp(&lab.a, &lab.b, 5000 + n % 4, &[0; 30])).collect();
        let before = Timestamp::<Monotonic>::now();
        send(from.queues_mut().next().unwrap(), &all);
        let mut counters = StampCounters::default();
        let all = told(only(&mut port), reader, all.len());
        let mut hashes = [None; 4];
        for (n, told) in all.iter().enumerate() {
            counters.note(told.as_ref());
            let stamp = RxStamp::of(told.as_ref());
            assert_eq!(stamp.source(), StampSource::Xdp);
            assert!(stamp.to_string().ends_with(" ns of CLOCK_MONOTONIC (XDP)"), "{stamp}");
            assert!((before..=Timestamp::now()).contains(&stamp.monotonic().unwrap()));
            let told = told.unwrap();
            assert_eq!((told.packet, told.rx_queue, told.mark), (n as u64, 0, 0xa5));
            assert!(told.zero_hardware_time() && told.hardware_time().is_none(), "{told:?}");
            assert_eq!(told.vlan(), None);
            // A packet's that nobody needed one of is 0, and of no kind; also where the same flow's next one has one.
            let hash = told.hash().expect("of each packet");
            if hash.kind != HashType::default() {
                let first = hashes[n % 4].get_or_insert(hash);
                assert_eq!(hash, *first, "the same flow, the same hash: {told:?}");
            }
        }
        assert_eq!((counters.xdp, counters.zero_hardware, counters.packets()), (40, 40, 40));
        assert_eq!(only(&mut port).hint_counters(), HintCounters::default());
    }
}

/// A packet that another XDP program redirected has no socket buffer: the driver knows nothing about it, and says so.
#[test]
fn a_veth_knows_nothing_about_redirected_frames() {
    if !is_root() {
        return;
    }
    let lab = lab("nicframe", 1);
    let (options, reader) = options();
    let mut port = open(&lab.b, Path::NativeCopy, |port| port.options(options.clone()));
    assert!(nic(&port).device_bound);
    let frame = packet_of(0, 100, lab.a.mac, lab.b.mac);
    let sent = lab.a.run(|| {
        let mut generator = Generator::new(lab.a.interface.index(), &frame, GeneratorOptions::default()).unwrap();
        generator.run(64).unwrap()
    });
    assert_eq!(sent.transmitted, 64, "{sent:?}");
    for told in told(only(&mut port), reader, 64) {
        let told = told.expect("the program itself tells all the same");
        let nothing = (told.hardware_time(), told.hash(), told.vlan());
        assert_eq!(nothing, (None, None, None), "{told:?}");
        assert!(!told.zero_hardware_time(), "no data is not a stamp of 0");
        assert_eq!(told.stamp().source(), StampSource::Xdp);
    }
}

/// A tag beside the packet, as a NIC that takes tags off leaves it.
#[test]
fn a_tag_beside_the_packet_is_told() {
    if !is_root() {
        return;
    }
    let lab = lab("nicvlan", 1);
    let (options, reader) = options();
    let mut port = open(&lab.b, Path::NativeCopy, |port| port.options(options.clone()));
    let from = lab.a.run(|| UdpSocket::bind((lab.a.ipv4, 0))).unwrap();
    let index = lab.a.interface.index();
    for (tci, expected) in [
        (0, None),
        (0x2005, Some("802.1Q id 5 priority 1")),
        (0xffff, Some("802.1Q id 4095 priority 7 drop eligible")),
    ] {
        let _directed = lab.a.run(|| direct(index, 0, tci)).unwrap();
        from.send_to(&[7; 30], (lab.b.ipv4, 5000)).unwrap();
        let told = told(only(&mut port), reader, 1)[0].expect("each has some");
        assert_eq!(told.vlan().map(|tag| tag.to_string()).as_deref(), expected, "{told:?}");
    }
}

/// Generic XDP: asked for, or what is left when the driver refuses. The program for any device then, with the same hints but
/// the NIC's, and the report says why.
#[test]
fn generic_programs_do_without() {
    if !is_root() {
        return;
    }
    for refused_natively in [false, true] {
        let lab = lab("nicgen", 1);
        let (options, reader) = options();
        let mut port = if refused_natively {
            // More than a veth takes into a page, so that native XDP is refused at the other end.
            lab.a.run(|| lab.a.interface.set_mtu(9000)).unwrap();
            let builder = Port::builder(lab.b.interface.clone()).mode(Mode::Auto).options(options);
            lab.b.run(|| builder.open()).unwrap()
        } else {
            open(&lab.b, Path::Generic, |port| port.options(options.clone()))
        };
        assert_eq!(port.queues()[0].report().path, Path::Generic);
        let report = nic(&port);
        let why = report.why_not.as_deref().unwrap();
        assert!(
            !report.device_bound && why.starts_with("generic XDP runs behind"),
            "{why}"
        );
        let text = port.report().to_string();
        assert!(
            text.contains("ringside_xsk ") && !text.contains("ringside_xsk_n "),
            "{text}"
        );
        assert!(text.contains("without what the NIC knows: generic"), "{text}");
        let mut from = sender(&lab.a);
        let all: Vec<_> = (0..20).map(|n| packet_of(n, 100, lab.a.mac, lab.b.mac)).collect();
        send(from.queues_mut().next().unwrap(), &all);
        for told in told(only(&mut port), reader, all.len()) {
            let told = told.expect("each has some");
            assert_eq!((told.hash(), told.stamp().source()), (None, StampSource::Xdp));
        }
        let counted: u64 = port
            .program_counters()
            .unwrap()
            .iter()
            .map(|queue| queue.redirected)
            .sum();
        assert_eq!(counted, 20, "the counters are those of the program that is attached");
    }
}

/// A driver that tells nothing is not asked; the loopback interface has none at all.
#[test]
fn a_driver_that_tells_nothing_is_not_asked() {
    if !is_root() {
        return;
    }
    let lab = lab("niclo", 1);
    let (options, _) = options();
    let port = lab.a.run(|| {
        let lo = Interface::by_name("lo").unwrap();
        lo.set_up(true).unwrap();
        // Its MTU is 65536.
        Port::builder(lo).options(options.multi_buffer(true)).open().unwrap()
    });
    let report = nic(&port);
    assert!(report.offers.is_none_or(|offers| offers.is_empty()), "{report:?}");
    let why = report.why_not.unwrap();
    assert!(
        !report.device_bound && why.contains("the driver tells nothing"),
        "{why}"
    );
}

/// Nobody asked: the program is the usual one, and the report has no word about the NIC.
#[test]
fn without_being_asked_nothing_is_different() {
    if !is_root() {
        return;
    }
    for path in MODES {
        let lab = lab("nicnone", 1);
        for hints in [None, Some(Layouts::ringside().0)] {
            let options = hints.into_iter().fold(roomy(), QueueOptions::hints);
            let port = open(&lab.b, path, |port| port.options(options.clone()));
            let program = port.report().program.as_ref().unwrap();
            assert!(
                program.nic.is_none() && program.name.starts_with("ringside_xsk"),
                "{program:?}"
            );
        }
    }
}

/// All three sources in turn, from bytes as the program writes them: no driver here stamps packets.
#[test]
fn each_packet_has_the_best_stamp_there_is() {
    let (options, reader) = options();
    let layouts = Layouts::ringside_nic().0;
    let id = |name| layouts.layout(name).unwrap().id().to_ne_bytes();
    let nic = |told: u32, hw_time: u64| {
        let words = [
            1000_u64,
            0,
            0xdead_beef | 0x29 << 32,
            0x8100 | 0x2005 << 16 | u64::from(told) << 32,
            0,
        ];
        let words = words.map(u64::to_ne_bytes).concat();
        [&hw_time.to_ne_bytes()[..], &words, &[0; 4], &id("ringside_nic")].concat()
    };
    let rx = [&1000_u64.to_ne_bytes()[..], &[0; 20], &id("ringside_rx")].concat();
    let (mut queue, mut kernel) = Harness::new(options).open().unwrap();
    let mut counters = StampCounters::default();
    for (front, source, ns) in [
        (nic(7, 5), StampSource::Hardware, Some(5)),
        (nic(8, 0), StampSource::Xdp, Some(1000)),
        (rx, StampSource::Xdp, Some(1000)),
        (Vec::new(), StampSource::Application, None),
    ] {
        assert!(kernel.deliver_behind(&front, &[9; 64]));
        let mut burst = queue.recv(Wait::Spin).unwrap();
        let packet = burst.iter_mut().next().unwrap();
        let told = reader.packet(&packet);
        counters.note(told.as_ref());
        let stamp = RxStamp::of(told.as_ref());
        assert_eq!(stamp.source(), source);
        let got = match stamp {
            RxStamp::Hardware(at) => Some(at.as_nanos()),
            RxStamp::Xdp(at) => Some(at.as_nanos()),
            RxStamp::Application(_) => None,
        };
        assert_eq!(got, ns);
        let whole = source == StampSource::Hardware;
        let (hash, tag) = (told.and_then(|told| told.hash()), told.and_then(|told| told.vlan()));
        assert_eq!(
            hash.map(|hash| (hash.value, hash.kind.to_string())),
            whole.then(|| (0xdead_beef, "L4 IPv4 UDP".into()))
        );
        assert_eq!(tag.map(|tag| (tag.id(), tag.priority())), whole.then_some((5, 1)));
        let kept = packet.keep();
        assert_eq!(reader.frame(&kept), told);
    }
    assert_eq!((counters.hardware, counters.xdp), (1, 2));
    assert_eq!((counters.application, counters.zero_hardware), (1, 1));
    assert_eq!(queue.hint_counters().absent, 4, "packet and frame, each by two types");
}
