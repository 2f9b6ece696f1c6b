//! Packets that wait in the ring of a TAP device for who reads it, which is QEMU where a guest has it: put there by the stack, and by XDP.

use std::fs;
use std::sync::mpsc;

use ringside_bpf::{
    Generator, GeneratorOptions, Redirected, Redirector, TraceEvent, TraceOptions, TraceReader, Tracer, XdpMode,
};
use ringside_netlab::{Tap, wait_until};
use ringside_wire::flow::parse_udp;

use super::*;

const SESSION: u32 = 61;
const WAIT: Duration = Duration::from_millis(10);
const FAR: [u8; 6] = [2, 0, 0, 0, 9, 9];

#[test]
fn a_wait_in_a_tap_devices_ring_is_seen_by_the_stack_and_by_xdp() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let Lab { a, b, .. } = &lab("tracetap", 1);
    let tap = Tap::create(&b.ns, "tracetap", FAR, 1500).expect("a TAP device");
    let index = tap.device.interface.index();
    for line in [
        "address add 10.99.7.1/24 dev tracetap",
        "neigh add 10.99.7.2 lladdr 02:00:00:00:09:0a dev tracetap",
    ] {
        let status = b.ns.command("ip").args(line.split_whitespace()).status();
        assert!(status.expect("ip").success(), "{line}");
    }
    let by_stack = b.run(|| UdpSocket::bind("10.99.7.1:0").expect("a socket"));
    by_stack.connect("10.99.7.2:7000").expect("connected");
    waits_and_wake_ups_are_told(&tap, index, &by_stack);

    let _redirected = b.run(|| {
        let redirector = Redirector::load(Redirected::All).expect("loaded");
        redirector.send_to(index).expect("a target");
        let link = redirector.attach(b.interface.index(), XdpMode::Native);
        (link.expect("attached"), redirector)
    });
    let by_xdp = socket(a, 0);
    by_xdp.connect((b.ipv4, 7000)).expect("connected");
    waits_and_wake_ups_are_told(&tap, index, &by_xdp);
    all_of_a_burst_are_told(a);
}

fn tracer() -> (Tracer, TraceReader) {
    let options = TraceOptions {
        session: Some(SESSION),
        one_of: 1,
        disturbers: false,
        tasks: true,
    };
    let mut tracer = Tracer::load(options).expect("loaded");
    let reader = tracer.reader().expect("read");
    tracer.attach().expect("attached");
    let missing = |hook: &ringside_bpf::MissingHook| hook.hook.contains("sys_enter");
    assert!(!tracer.missing().iter().any(missing), "{:?}", tracer.missing());
    (tracer, reader)
}

fn told(reader: &TraceReader) -> Vec<TraceEvent> {
    thread::sleep(Duration::from_millis(20));
    reader.read().expect("events").0
}

/// Reads until it has a probe.
fn take(tap: &Tap) -> u64 {
    let mut frame = [0; 2048];
    loop {
        let length = tap.receive(&mut frame, Duration::from_secs(2)).expect("reads");
        let frame = &frame[..length.expect("a probe comes")];
        let payload = parse_udp(frame).ok().and_then(|udp| frame.get(udp.payload));
        if let Some(probe) = payload.and_then(|payload| Probe::decode(payload).ok()) {
            return probe.sequence;
        }
    }
}

fn waits_and_wake_ups_are_told(tap: &Tap, index: u32, sender: &UdpSocket) {
    let send = |sequence| assert!(sender.send(&probe(SESSION, sequence)).is_ok(), "sent");
    // The neighbour is known, and what the kernel sends by itself is out, before it counts.
    send(1_000);
    assert_eq!(take(tap), 1_000);
    let (_tracer, reader) = tracer();
    (0..3).for_each(send);
    thread::sleep(WAIT);
    // First in, first out.
    (0..3).for_each(|sequence| assert_eq!(take(tap), sequence));
    let events = told(&reader);
    let at = |events: &[TraceEvent], point: Point, sequence: u64| {
        let is_it = |event: &&TraceEvent| (event.point, event.sequence) == (point as u8, sequence) && event.kind == 1;
        let found: Vec<TraceEvent> = events.iter().filter(is_it).copied().collect();
        let [event] = found[..] else {
            panic!("{point:?} of {sequence}: {events:#?}")
        };
        event
    };
    for sequence in 0..3 {
        let (put, taken) = (at(&events, Point::Ring, sequence), at(&events, Point::Copy, sequence));
        assert_eq!(put.interface, index, "{put:?}");
        assert!(
            taken.ns >= put.ns + u64::try_from(WAIT.as_nanos()).unwrap(),
            "{put:?} {taken:?}"
        );
    }
    // One that sleeps until something comes.
    let id = thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        scope.spawn(move || {
            sender
                .send(rustix::thread::gettid().as_raw_nonzero().get())
                .expect("heard");
            assert_eq!(take(tap), 3);
        });
        let id = receiver.recv().expect("a thread id");
        let stat = format!("/proc/self/task/{id}/stat");
        let is_asleep = || fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") S "));
        assert!(wait_until(common::PATIENCE, is_asleep), "it sleeps");
        send(3);
        id
    });
    let events = told(&reader);
    let way = [Point::Ring, Point::Waking, Point::Running, Point::Copy].map(|point| at(&events, point, 3));
    assert!(way.is_sorted_by_key(|event| event.ns), "{way:#?}");
    assert_eq!(
        way[1].extra[0],
        u64::try_from(id).unwrap(),
        "who reads is woken up: {way:#?}"
    );
}

/// XDP puts several in the ring before it tells once.
fn all_of_a_burst_are_told(a: &End) {
    let (_tracer, reader) = tracer();
    let payload = probe(SESSION, 9);
    let udp_len = u16::try_from(8 + payload.len()).unwrap();
    let mut frame = [&FAR[..], &[2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0]].concat();
    frame.extend((20 + udp_len).to_be_bytes());
    frame.extend([
        0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x1b, 0x58, 0x1b, 0x58,
    ]);
    frame.extend(udp_len.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    let ran = a.run(|| {
        let options = GeneratorOptions::default();
        let mut generator = Generator::new(a.interface.index(), &frame, options).expect("loaded");
        generator.run(40).expect("ran")
    });
    assert_eq!(ran.transmitted, 40, "{ran:?}");
    let events = told(&reader);
    let put = events.iter().filter(|event| event.point == Point::Ring as u8);
    assert_eq!(put.count(), 40, "{events:#?}");
}
