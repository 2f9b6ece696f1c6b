use super::super::{Breakdown, Id, Place, Scheduled, Stage};
use super::*;
use Point::{
    Application, Awake, Call, Copy, Driver, Entered, Intended, Kick, Queue, Raised, Ready, Running, SoftIrq, Stack,
    Transmit, Waking,
};

fn packet(stamps: &[(Point, u64)]) -> Packet {
    let stamp = |(point, ns): &(Point, u64)| Stamp {
        ns: *ns,
        point: *point,
        place: Place::default(),
    };
    Packet {
        id: Id {
            session: 3,
            sequence: 1,
        },
        stamps: stamps.iter().map(stamp).collect(),
        disorder_ns: 0,
        measured_ns: None,
    }
}

/// The guest's clock is 50 000 ahead.
fn across(at: u64, into: u64, out: u64) -> Across {
    let guest = at + 50_000;
    let came = 2_000 + into;
    Across {
        there: packet(&[
            (Intended, at),
            (Call, at + 100),
            (Queue, at + 300),
            (Transmit, at + 400),
            (Stack, at + 700),
            (Queue, at + 900),
            (Transmit, at + 1_000),
            (Copy, at + 2_000),
        ]),
        came: packet(&[
            (Raised, guest + came),
            (SoftIrq, guest + came + 100),
            (Driver, guest + came + 300),
            (Stack, guest + came + 400),
            (Ready, guest + came + 600),
            (Waking, guest + came + 650),
            (Running, guest + came + 900),
            (Copy, guest + came + 1_000),
        ]),
        left: packet(&[(Queue, guest + came + 1_300), (Transmit, guest + came + 1_500)]),
        back: packet(&[
            (Intended, at),
            (Call, at + 100),
            (Stack, at + came + 1_500 + out),
            (Queue, at + came + 1_600 + out),
            (Transmit, at + came + 1_700 + out),
            (Stack, at + came + 1_900 + out),
            (Application, at + came + 2_500 + out),
        ]),
    }
}

fn many() -> (Vec<Across>, Bounds) {
    let mut bounds = Bounds::new();
    let all: Vec<Across> = (0..100)
        .map(|n| across(n * 100_000, 500 + n * 7 % 90, 800 + n * 13 % 70))
        .collect();
    all.iter().for_each(|packet| packet.bound(&mut bounds));
    (all, bounds)
}

#[test]
fn both_kernels_stages_are_on_one_axis_and_the_boundaries_have_names() {
    let (all, bounds) = many();
    let mapping = bounds.fit().expect("bounds of both kinds");
    assert_eq!(bounds.len(), 200);
    assert!(mapping.uncertainty_ns() < 1_100, "{mapping:?}");
    let mut breakdown = Breakdown::new();
    for packet in &all {
        let joined = packet.join(&mapping, &Vcpus::new()).expect("all parts");
        assert_eq!(
            (joined.stamps.first().unwrap().point, joined.disorder_ns),
            (Intended, 0)
        );
        breakdown.record(&joined);
    }
    assert_eq!((breakdown.whole().samples(), breakdown.incomplete()), (100, 0));
    let stages = breakdown.stages();
    let told: Vec<(u32, Stage)> = stages
        .iter()
        .filter(|stage| stage.latency.samples() > 0)
        .map(|stage| (stage.hop, stage.stage))
        .collect();
    use Stage::{From, IntoGuest, OutOfGuest, Relay};
    let expected = [
        (0, From(Intended)),
        (0, From(Call)),
        (0, From(Queue)),
        (0, From(Transmit)),
        (0, Relay),
        (1, From(Queue)),
        (1, From(Transmit)),
        (1, IntoGuest),
        (2, From(Raised)),
        (2, From(SoftIrq)),
        (2, From(Driver)),
        (2, From(Stack)),
        (2, From(Ready)),
        (2, From(Waking)),
        (2, From(Running)),
        (2, Relay),
        (3, From(Queue)),
        (3, OutOfGuest),
        (4, Relay),
        (5, From(Queue)),
        (5, From(Transmit)),
        (5, From(Stack)),
    ];
    assert_eq!(told, expected);
    let find = |wanted: Stage| stages.iter().find(|stage| stage.stage == wanted).unwrap();
    let mean = find(IntoGuest).latency.summary().unwrap().mean_ns;
    // What it really was, within what is told.
    assert!((mean - 545.0).abs() <= mapping.uncertainty_ns() as f64, "{mean}");
    assert!(find(IntoGuest).place.namespace == 0 && find(From(Driver)).place.is_guest);
    let parts: f64 = stages
        .iter()
        .filter_map(|stage| stage.latency.summary())
        .map(|times| times.mean_ns * times.samples as f64)
        .sum();
    let whole = breakdown.whole().summary().unwrap().mean_ns * 100.0;
    assert!((parts - whole).abs() < 1.0, "{parts} {whole}");
}

/// One packet in three finds the virtual CPU awake, of the others it sleeps, and one in three has to wait for the CPU that it was to run on already.
#[test]
fn what_the_virtual_cpu_does_parts_the_way_into_the_guest() {
    let (all, bounds) = many();
    let mapping = bounds.fit().expect("bounds of both kinds");
    let mut vcpus = Vcpus::new();
    vcpus.watch(0);
    for n in 0..100 {
        // The host's last point is at 2000, the guest's first at 2500 and more.
        let at = n * 100_000;
        use Scheduled::{Off, On, Woken};
        let changes: &[(u64, Scheduled)] = match n % 3 {
            0 => &[(2_100, Woken), (2_200, On)],
            1 => &[(2_300, On)],
            _ => &[],
        };
        let before = if n % 3 == 2 { On } else { Off };
        vcpus.changed(0, at, before, 1);
        changes
            .iter()
            .for_each(|(ns, what)| vcpus.changed(0, at + ns, *what, 1));
    }
    let (mut with, mut without) = (Breakdown::new(), Breakdown::new());
    for packet in &all {
        let joined = packet.join(&mapping, &vcpus).expect("all parts");
        assert_eq!(joined.disorder_ns, 0);
        with.record(&joined);
        without.record(&packet.join(&mapping, &Vcpus::new()).expect("all parts"));
    }
    assert_eq!((with.whole().samples(), with.incomplete()), (100, 0));
    let stages = with.stages();
    let of = |hop: u32, wanted: Stage| {
        let found = stages
            .iter()
            .position(|stage| (stage.hop, stage.stage) == (hop, wanted));
        let at = found.unwrap_or_else(|| panic!("{wanted:?}: {stages:?}"));
        let times = stages[at].latency.summary().expect("packets");
        (at, times.samples, times.mean_ns)
    };
    let (qemu, awake) = (of(1, Stage::IntoGuest), of(1, Stage::From(Awake)));
    let (kick, entered) = (of(1, Stage::From(Kick)), of(1, Stage::From(Entered)));
    assert_eq!([qemu.1, awake.1, kick.1, entered.1], [67, 33, 34, 67]);
    // From the host's last point to the kick, or to where it runs; from the kick to where it runs.
    let mean = f64::from(34 * 100 + 33 * 300) / 67.0;
    assert!(
        (qemu.2 - mean).abs() < 1e-6 && (kick.2 - 100.0).abs() < 1e-6,
        "{qemu:?} {kick:?}"
    );
    assert!(qemu.0 < kick.0 && kick.0 < entered.0 && entered.0 < of(2, Stage::From(Raised)).0);
    assert_eq!(
        (stages.last().unwrap().stage, stages.last().unwrap().latency.samples()),
        (Stage::Remainder, 0)
    );
    // It is the same time, told in more stages, and the rest is as it was.
    let sum = |breakdown: &Breakdown| -> f64 {
        let stages = breakdown.stages();
        let times = stages.iter().filter_map(|stage| stage.latency.summary());
        times.map(|times| times.mean_ns * times.samples as f64).sum()
    };
    assert!((sum(&with) - sum(&without)).abs() < 1.0);
    assert_eq!(with.stages().len(), without.stages().len() + 3);
}

/// XDP sockets that send, and programs that redirect: nobody on the host sees the packet between its sending and the guest.
#[test]
fn what_the_host_does_not_see_is_bounded_by_the_sending() {
    let mut bounds = Bounds::new();
    let blind = |n: u64| Across {
        there: packet(&[]),
        ..across(n * 100_000, 500 + n * 7 % 90, 800 + n * 13 % 70)
    };
    let all: Vec<Across> = (0..100).map(blind).collect();
    all.iter().for_each(|packet| packet.bound(&mut bounds));
    let mapping = bounds.fit().expect("bounds of both kinds");
    assert_eq!((bounds.len(), mapping.contradiction_ns()), (200, 0));
    // Known by half of what is not seen: from the sending to the guest, and out of it.
    assert!((1_000..2_500).contains(&mapping.uncertainty_ns()), "{mapping:?}");
    let joined = all[0].join(&mapping, &Vcpus::new()).expect("all parts");
    let begin: Vec<Point> = joined.stamps.iter().map(|stamp| stamp.point).take(4).collect();
    assert_eq!(begin, [Intended, Call, Raised, SoftIrq]);
}

/// XDP sockets in the guest: what they send lies in their own memory, where no hook looks.
#[test]
fn an_answer_that_the_guest_does_not_see_is_out_after_the_request_was_in_the_ring() {
    let mut bounds = Bounds::new();
    let blind = |n: u64| {
        let mut blind = Across {
            left: packet(&[]),
            ..across(n * 100_000, 500 + n * 7 % 90, 800 + n * 13 % 70)
        };
        // An XDP socket is not read by a call.
        blind.came.stamps.pop();
        blind
    };
    let all: Vec<Across> = (0..100).map(blind).collect();
    all.iter().for_each(|packet| packet.bound(&mut bounds));
    let mapping = bounds.fit().expect("bounds of both kinds");
    assert_eq!((bounds.len(), mapping.contradiction_ns()), (200, 0));
    let mut breakdown = Breakdown::new();
    for packet in &all {
        breakdown.record(&packet.join(&mapping, &Vcpus::new()).expect("what there is"));
    }
    let stages = breakdown.stages();
    let told = |wanted| {
        stages
            .iter()
            .any(|stage| stage.stage == wanted && stage.latency.samples() == 100)
    };
    assert!(told(Stage::OutOfGuest) && told(Stage::From(Waking)), "{stages:?}");
    // One whose reader had answered before it was told, on a CPU that then stood still.
    let mut late = blind(7);
    for stamp in late.came.stamps.iter_mut().rev().take(3) {
        stamp.ns += 12_000_000;
    }
    late.bound(&mut bounds);
    let mapping = bounds.fit().expect("bounds of both kinds");
    assert_eq!(mapping.contradiction_ns(), 0, "{mapping:?}");
    let joined = late.join(&mapping, &Vcpus::new()).expect("what there is");
    assert!(joined.disorder_ns <= mapping.uncertainty_ns(), "{joined:?}");
    assert!(
        !joined
            .stamps
            .iter()
            .any(|stamp| stamp.place.is_guest && stamp.point.is_of_reader()),
        "{joined:?}"
    );
    let blind = Across {
        came: packet(&[]),
        ..all[0].clone()
    };
    assert_eq!(blind.join(&mapping, &Vcpus::new()), None);
}

/// A soft interrupt that was asked for before the packet was there is not the packet's, and is no bound of the clock.
#[test]
fn what_was_asked_for_before_is_left_out() {
    let mut packet = across(1_000_000, 500, 800);
    packet.came.stamps[0].ns -= 3_000;
    let mut bounds = Bounds::new();
    let (good, mut other) = (across(2_000_000, 510, 790), Bounds::new());
    packet.bound(&mut bounds);
    good.bound(&mut bounds);
    good.bound(&mut other);
    let mapping = bounds.fit().expect("bounds");
    assert_eq!(mapping.contradiction_ns(), 0, "{mapping:?}");
    let joined = packet.join(&mapping, &Vcpus::new()).expect("all parts");
    assert!(joined.stamps.iter().all(|stamp| stamp.point != Raised));
    assert!(joined.stamps.iter().any(|stamp| stamp.point == SoftIrq));
    assert!(joined.disorder_ns <= mapping.uncertainty_ns());
    packet.came.stamps.clear();
    assert_eq!(packet.join(&mapping, &Vcpus::new()), None);
}

/// Whatever makes a stamp another packet's: what it contradicts by the same clock stays, with all the rest of the packet.
#[test]
fn a_stamp_behind_the_answer_is_left_out_and_not_the_packet() {
    let (all, mut bounds) = many();
    let mapping = bounds.fit().expect("bounds of both kinds");
    let whole = all[50].join(&mapping, &Vcpus::new()).expect("all parts");
    let copies = |packet: &Packet| packet.stamps.iter().filter(|stamp| stamp.point == Copy).count();
    assert_eq!(copies(&whole), 2);
    // Read when the next one was, in the guest and by the host.
    let mut late = all[50].clone();
    for stamps in [&mut late.came.stamps, &mut late.there.stamps] {
        let last = stamps.last_mut().expect("a copy");
        assert_eq!(last.point, Copy);
        last.ns += 100_000;
    }
    let joined = late.join(&mapping, &Vcpus::new()).expect("all others");
    assert_eq!((copies(&joined), joined.whole_ns()), (0, whole.whole_ns()));
    assert_eq!(joined.stamps.len(), whole.stamps.len() - 2);
    late.bound(&mut bounds);
    let mapping = bounds.fit().expect("bounds of both kinds");
    assert_eq!(mapping.contradiction_ns(), 0, "{mapping:?}");
}
