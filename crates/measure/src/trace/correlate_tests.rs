use super::*;

const PLACE: Place = Place {
    cpu: 0,
    interface: 2,
    namespace: 9,
    is_guest: false,
};

fn event(sequence: u64, point: Point, ns: u64) -> Event {
    Event {
        id: Id { session: 1, sequence },
        point,
        ns,
        place: PLACE,
        before: [None; 2],
        socket: None,
        task: None,
    }
}

fn unnamed(name: u64, point: Point, ns: u64) -> Event {
    Event {
        id: Id {
            session: 0,
            sequence: name,
        },
        ..event(0, point, ns)
    }
}

fn heard(call_ns: u64, heard_ns: u64) -> Heard {
    Heard {
        intended_ns: call_ns - 10,
        call_ns,
        heard_ns,
        cpu: 1,
        xdp: None,
    }
}

fn points(packet: &Packet) -> Vec<(Point, u64)> {
    packet.stamps.iter().map(|stamp| (stamp.point, stamp.ns)).collect()
}

fn id(sequence: u64) -> Id {
    Id { session: 1, sequence }
}

#[test]
fn what_belongs_to_a_packet_comes_together_in_any_order() {
    let mut correlator = Correlator::new();
    correlator.passed(&event(2, Point::Stack, 1_400));
    correlator.passed(&event(1, Point::Transmit, 1_100));
    correlator.passed(&Event {
        before: [Some(1_150), Some(1_160)],
        ..event(1, Point::Stack, 1_200)
    });
    correlator.passed(&event(1, Point::Queue, 1_050));
    let packet = correlator.heard(id(1), heard(1_000, 1_300));
    let expected = [
        (Point::Intended, 990),
        (Point::Call, 1_000),
        (Point::Queue, 1_050),
        (Point::Transmit, 1_100),
        (Point::Raised, 1_150),
        (Point::SoftIrq, 1_160),
        (Point::Stack, 1_200),
        (Point::Application, 1_300),
    ];
    assert_eq!(points(&packet), expected);
    assert_eq!((packet.whole_ns(), packet.disorder_ns), (310, 0));
    assert_eq!(packet.stamps[7].place.cpu, 1);
    // The other one was heard of by nobody.
    assert_eq!(correlator.settled(1_400), []);
    let lost = correlator.settled(1_401);
    assert_eq!(lost.len(), 1);
    assert_eq!((lost[0].id, points(&lost[0])), (id(2), vec![(Point::Stack, 1_400)]));
}

#[test]
fn the_sender_of_others_is_known_from_the_probe() {
    let mut correlator = Correlator::of_others();
    for point in [Point::Queue, Point::Transmit] {
        correlator.passed(&Event {
            before: [Some(900), Some(1_000)],
            ..event(1, point, 1_000 + point as u64)
        });
    }
    let packets = correlator.settled(u64::MAX);
    let expected = [
        (Point::Intended, 900),
        (Point::Call, 1_000),
        (Point::Queue, 1_002),
        (Point::Transmit, 1_003),
    ];
    assert_eq!(points(&packets[0]), expected);
}

#[test]
fn a_soft_interrupt_that_was_asked_for_before_is_not_the_packets() {
    let mut correlator = Correlator::new();
    correlator.passed(&event(1, Point::Transmit, 1_100));
    correlator.passed(&Event {
        before: [Some(1_020), Some(1_150)],
        ..event(1, Point::Stack, 1_200)
    });
    let packet = correlator.heard(id(1), heard(1_000, 1_300));
    assert!(!points(&packet).contains(&(Point::Raised, 1_020)), "{packet:?}");
    assert!(points(&packet).contains(&(Point::SoftIrq, 1_150)), "{packet:?}");
}

#[test]
fn clocks_that_contradict_each_other_are_told() {
    let mut correlator = Correlator::new();
    correlator.passed(&event(1, Point::Queue, 940));
    correlator.passed(&event(1, Point::Copy, 1_330));
    let packet = correlator.heard(id(1), heard(1_000, 1_300));
    let expected = [
        (Point::Intended, 940),
        (Point::Call, 940),
        (Point::Queue, 940),
        (Point::Copy, 1_330),
        (Point::Application, 1_330),
    ];
    assert_eq!((points(&packet), packet.disorder_ns), (expected.to_vec(), 60));
}

#[test]
fn who_looks_for_itself_may_have_a_packet_before_the_socket_tells() {
    let mut correlator = Correlator::new();
    correlator.passed(&event(1, Point::Stack, 1_100));
    correlator.passed(&event(1, Point::Ready, 1_310));
    let packet = correlator.heard(id(1), heard(1_000, 1_300));
    assert_eq!(packet.disorder_ns, 0);
    assert_eq!(points(&packet).last(), Some(&(Point::Application, 1_300)));
    assert_eq!(packet.stamps.len(), 4);
}

/// Packets for XDP sockets have no name in the kernel: each is the first one after its program ran on that CPU.
#[test]
fn a_packet_of_an_xdp_socket_is_found_by_its_programs_time() {
    let mut correlator = Correlator::new();
    for (name, cpu) in [(1_200, 0), (1_260, 0), (1_230, 1)] {
        let place = Place { cpu, ..PLACE };
        correlator.unnamed(&Event {
            place,
            before: [Some(name - 100), Some(name - 90)],
            ..unnamed(name, Point::Socket, name)
        });
        correlator.unnamed(&Event {
            place,
            ..unnamed(name, Point::Ready, name + 5)
        });
    }
    let at = |ns, cpu| Heard {
        xdp: Some((ns, cpu)),
        ..heard(1_000, 1_300)
    };
    let packet = correlator.heard(id(2), at(1_250, 0));
    let socket = |packet: &Packet| {
        points(packet)
            .iter()
            .find(|(point, _)| *point == Point::Socket)
            .copied()
    };
    assert_eq!(socket(&packet), Some((Point::Socket, 1_260)), "{packet:?}");
    assert!(points(&packet).contains(&(Point::Ready, 1_265)), "{packet:?}");
    assert_eq!(
        socket(&correlator.heard(id(1), at(1_190, 0))),
        Some((Point::Socket, 1_200))
    );
    assert_eq!(
        socket(&correlator.heard(id(3), at(1_229, 1))),
        Some((Point::Socket, 1_230))
    );
    // Each is one packet's only.
    assert_eq!(socket(&correlator.heard(id(4), at(1_190, 0))), None);
}

/// Where functions may be entered the kernel tells which packet it gives to an XDP socket. What others get on that CPU meanwhile is not taken for it.
#[test]
fn a_packet_of_an_xdp_socket_that_has_a_name_is_nobody_else() {
    let mut correlator = Correlator::new();
    correlator.passed(&Event {
        before: [Some(1_050), Some(1_060)],
        ..event(1, Point::Socket, 1_200)
    });
    correlator.passed(&event(1, Point::Ready, 1_210));
    correlator.unnamed(&unnamed(1_205, Point::Socket, 1_205));
    let packet = correlator.heard(
        id(1),
        Heard {
            xdp: Some((1_100, 0)),
            ..heard(1_000, 1_300)
        },
    );
    let expected = [
        (Point::Intended, 990),
        (Point::Call, 1_000),
        (Point::Raised, 1_050),
        (Point::SoftIrq, 1_060),
        (Point::Xdp, 1_100),
        (Point::Socket, 1_200),
        (Point::Ready, 1_210),
        (Point::Application, 1_300),
    ];
    assert_eq!(points(&packet), expected);
    let xdp = packet.stamps.iter().find(|stamp| stamp.point == Point::Xdp).unwrap();
    assert_eq!(xdp.place, PLACE, "where the socket's interface is");
}

#[test]
fn a_reader_took_what_the_application_has_next() {
    let mut correlator = Correlator::new();
    for sequence in [1, 2] {
        correlator.passed(&Event {
            socket: Some(77),
            ..event(sequence, Point::Ready, 1_100 + sequence)
        });
        correlator.taken(77, 1_200 * sequence, PLACE);
    }
    let first = correlator.heard(id(1), heard(1_000, 1_300));
    assert!(points(&first).contains(&(Point::Copy, 1_200)), "{first:?}");
    let second = correlator.heard(id(2), heard(1_000, 2_500));
    assert!(points(&second).contains(&(Point::Copy, 2_400)), "{second:?}");
}

#[test]
fn of_others_the_order_of_the_sockets_queue_tells() {
    let mut correlator = Correlator::of_others();
    let ready = |sequence| Event {
        socket: Some(77),
        ..event(sequence, Point::Ready, 1_100 + sequence)
    };
    // One that came before anybody looked.
    correlator.taken(77, 1_050, PLACE);
    correlator.passed(&ready(1));
    correlator.other(77, 1_101);
    correlator.passed(&ready(2));
    for ns in [1_200, 1_300, 1_400] {
        correlator.taken(77, ns, PLACE);
    }
    let packets = correlator.settled(u64::MAX);
    assert_eq!(points(&packets[0]), [(Point::Ready, 1_101), (Point::Copy, 1_200)]);
    assert_eq!(points(&packets[1]), [(Point::Ready, 1_102), (Point::Copy, 1_400)]);
}

/// Packets of others to one socket, each with its number, when the stack takes it, when the socket tells, and when its reader has it, as they are told.
#[derive(Clone, Copy)]
struct Read {
    stack: u64,
    ready: u64,
    copy: u64,
    is_woken: bool,
}

fn copies(reads: &[Read], lost: impl Fn(u64, Point) -> bool) -> Vec<Option<u64>> {
    let mut told: Vec<(u64, u64, Point)> = Vec::new();
    for (sequence, read) in (1..).zip(reads) {
        let woken = read.is_woken.then_some((read.ready + 1, sequence, Point::Waking));
        told.extend([
            (read.stack, sequence, Point::Stack),
            (read.ready, sequence, Point::Ready),
            (read.copy, sequence, Point::Copy),
        ]);
        told.extend(woken);
    }
    told.retain(|(_, sequence, point)| !lost(*sequence, *point));
    told.sort_unstable();
    let mut correlator = Correlator::of_others();
    for (ns, sequence, point) in told {
        match point {
            Point::Copy => correlator.taken(77, ns, PLACE),
            point => correlator.passed(&Event {
                socket: (point == Point::Ready).then_some(77),
                ..event(sequence, point, ns)
            }),
        }
    }
    let packets = correlator.settled(u64::MAX);
    let copy = |packet: &Packet| {
        let mut all = packet.stamps.iter();
        all.find(|stamp| stamp.point == Point::Copy).map(|stamp| stamp.ns)
    };
    packets.iter().map(copy).collect()
}

fn reads(is_early: impl Fn(u64) -> bool, is_woken: bool) -> Vec<Read> {
    let of = |number: u64| {
        let at = number * 1_000;
        Read {
            stack: at,
            ready: at + 200,
            copy: at + if is_early(number) { 190 } else { 500 },
            is_woken: is_woken && !is_early(number),
        }
    };
    (1..=8).map(of).collect()
}

fn all_of(reads: &[Read]) -> Vec<Option<u64>> {
    reads.iter().map(|read| Some(read.copy)).collect()
}

#[test]
fn a_reader_that_is_awake_takes_a_packet_before_its_socket_tells() {
    for is_early in [|number| number == 3, |number| number % 2 == 0, |_| true] {
        let reads = reads(is_early, false);
        assert_eq!(copies(&reads, |_, _| false), all_of(&reads));
    }
    // What the socket tells after that is no time in it.
    let mut correlator = Correlator::of_others();
    correlator.passed(&event(1, Point::Stack, 1_000));
    correlator.taken(77, 1_190, PLACE);
    for (point, ns) in [(Point::Ready, 1_200), (Point::Waking, 1_210)] {
        correlator.passed(&Event {
            socket: (point == Point::Ready).then_some(77),
            ..event(1, point, ns)
        });
    }
    correlator.passed(&event(1, Point::Queue, 1_195));
    let packets = correlator.settled(u64::MAX);
    let expected = [(Point::Stack, 1_000), (Point::Copy, 1_190), (Point::Queue, 1_195)];
    assert_eq!(points(&packets[0]), expected);
}

/// Events that are lost cost the stamps of single packets, and not of all that come later.
#[test]
fn what_was_not_told_is_not_counted_for_ever() {
    let is_lost = |wanted: Point| move |sequence: u64, point: Point| sequence == 3 && point == wanted;
    // Of a socket that did not tell nobody knows what was read; the next one is right again.
    let awake = reads(|_| false, false);
    let mut expected = all_of(&awake);
    expected[2] = None;
    assert_eq!(copies(&awake, is_lost(Point::Ready)), expected);
    // Who sleeps has read all: what was in front is over.
    let sleeper = reads(|_| false, true);
    assert_eq!(copies(&sleeper, is_lost(Point::Ready)), expected);
    assert_eq!(copies(&sleeper, is_lost(Point::Copy)), expected);
    // Two at once, of which one was not told of.
    let mut both = reads(|_| false, false);
    for read in &mut both[2..4] {
        (read.stack, read.ready) = (3_000, 3_200);
    }
    both[3].stack += 10;
    both[3].ready += 10;
    let told = copies(&both, is_lost(Point::Ready));
    assert_eq!(told[4..], all_of(&both)[4..], "{told:?}");
}

/// A forwarder that uses XDP sockets shows between the transmission of a packet and its next arrival.
#[test]
fn a_forwarders_socket_is_found_between_two_hops() {
    let mut correlator = Correlator::new();
    let sent = event(1, Point::Transmit, 1_100);
    correlator.passed(&sent);
    correlator.unnamed(&Event {
        before: [Some(1_110), Some(1_120)],
        ..unnamed(1_150, Point::Socket, 1_150)
    });
    correlator.passed(&Event {
        before: [Some(5_010), Some(5_020)],
        ..event(1, Point::Stack, 5_100)
    });
    let packet = correlator.heard(id(1), heard(1_000, 5_300));
    let found: Vec<Point> = packet.stamps.iter().map(|stamp| stamp.point).collect();
    use Point::{Application, Call, Intended, Raised, Socket, SoftIrq, Stack, Transmit};
    let expected = [
        Intended,
        Call,
        Transmit,
        Raised,
        SoftIrq,
        Socket,
        Raised,
        SoftIrq,
        Stack,
        Application,
    ];
    assert_eq!(found, expected);

    // In the same soft interrupt it was another packet.
    correlator.passed(&event(2, Point::Transmit, 6_100));
    correlator.unnamed(&Event {
        before: [Some(6_110), Some(6_120)],
        ..unnamed(6_150, Point::Socket, 6_150)
    });
    correlator.passed(&Event {
        before: [Some(6_110), Some(6_120)],
        ..event(2, Point::Stack, 6_200)
    });
    let packet = correlator.heard(id(2), heard(6_000, 6_300));
    assert!(packet.stamps.iter().all(|stamp| stamp.point != Socket), "{packet:?}");
}

/// The soft interrupt that takes a packet from a backlog is a part of the wait there, also one that another CPU had begun before.
#[test]
fn the_soft_interrupt_of_a_backlog_is_not_told_beside_it() {
    let mut correlator = Correlator::new();
    let at = |cpu, before: [u64; 2], point, ns| Event {
        before: before.map(Some),
        place: Place { cpu, ..PLACE },
        ..event(1, point, ns)
    };
    // By the NIC's interrupt on CPU 0, and by RPS to CPU 1, which has just begun, or begins later.
    let stack = [[1_015, 1_025], [1_095, 1_150]];
    for (sequence, before) in stack.into_iter().enumerate() {
        let sequence = u64::try_from(sequence).unwrap() + 1;
        let id = id(sequence);
        let of = |event: Event| Event { id, ..event };
        correlator.passed(&of(event(1, Point::Transmit, 1_010)));
        correlator.passed(&of(at(0, [1_020, 1_030], Point::Driver, 1_080)));
        correlator.passed(&of(at(0, [1_020, 1_030], Point::Backlog, 1_090)));
        correlator.passed(&of(at(1, before, Point::Stack, 1_200)));
        let packet = correlator.heard(id, heard(1_000, 1_300));
        let expected = [
            (Point::Intended, 990),
            (Point::Call, 1_000),
            (Point::Transmit, 1_010),
            (Point::Raised, 1_020),
            (Point::SoftIrq, 1_030),
            (Point::Driver, 1_080),
            (Point::Backlog, 1_090),
            (Point::Stack, 1_200),
            (Point::Application, 1_300),
        ];
        let mut found = points(&packet);
        found.dedup();
        assert_eq!(found, expected, "{before:?}");
    }
}

/// Two that wait at one socket are woken up one after the other, before either has taken its packet: the first packet is still there then.
#[test]
fn of_two_readers_the_second_one_is_woken_while_the_packet_of_the_first_one_waits() {
    let mut correlator = Correlator::of_others();
    for (sequence, task) in [(1, 31), (2, 32), (3, 31)] {
        let at = 1_000 + sequence * 10;
        correlator.passed(&Event {
            socket: Some(77),
            ..event(sequence, Point::Ready, at)
        });
        correlator.passed(&Event {
            task: Some(task),
            ..event(sequence, Point::Waking, at + 1)
        });
    }
    for ns in [1_200, 1_300, 1_400] {
        correlator.taken(77, ns, PLACE);
    }
    let packets = correlator.settled(u64::MAX);
    let copies = packets.iter().map(|packet| packet.stamps.last().map(|stamp| stamp.ns));
    assert_eq!(copies.collect::<Vec<_>>(), [Some(1_200), Some(1_300), Some(1_400)]);
}

/// Who reads a TAP device may take a packet before the device tells of it: then it did not wait. One that was read from a socket and sent on is in a ring after that.
#[test]
fn a_packet_is_in_a_ring_until_it_is_taken_from_there() {
    let of = |stamps: &[(Point, u64)]| {
        let mut correlator = Correlator::new();
        for (point, ns) in stamps {
            correlator.passed(&event(7, *point, *ns));
        }
        points(&correlator.over(id(7)))
    };
    use Point::{Copy, Queue, Ready, Ring, Running, Transmit, Waking};
    let waits = [(Transmit, 10), (Ring, 20), (Waking, 30), (Running, 40), (Copy, 50)];
    assert_eq!(of(&waits), waits);
    let is_awake = [(Transmit, 10), (Copy, 20), (Ring, 30), (Waking, 40)];
    assert_eq!(of(&is_awake), [(Transmit, 10), (Copy, 20)]);
    let sent_on = [
        (Ready, 5),
        (Copy, 10),
        (Queue, 20),
        (Transmit, 30),
        (Ring, 40),
        (Waking, 50),
        (Copy, 60),
    ];
    assert_eq!(of(&sent_on), sent_on);
}
