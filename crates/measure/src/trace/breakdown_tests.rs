use super::super::{Id, Stamp};
use super::*;

fn packet(stamps: &[(Point, u64)]) -> Packet {
    Packet {
        id: Id {
            session: 1,
            sequence: 1,
        },
        stamps: stamps
            .iter()
            .map(|(point, ns)| Stamp {
                ns: *ns,
                point: *point,
                place: Place::default(),
            })
            .collect(),
        disorder_ns: 0,
        measured_ns: None,
    }
}

/// Stage, packets, longest.
fn told(breakdown: &Breakdown) -> Vec<(u32, Stage, u64, u64)> {
    let stages = breakdown.stages();
    let of = |stage: &StageTimes| {
        let times = stage.latency.summary();
        let max = times.map_or(0, |times| times.max_ns);
        (stage.hop, stage.stage, stage.latency.samples(), max)
    };
    stages.iter().map(of).collect()
}

fn sum(breakdown: &Breakdown) -> f64 {
    let stages = breakdown.stages();
    let sums = stages.iter().filter_map(|stage| stage.latency.summary());
    sums.map(|times| times.mean_ns * times.samples as f64).sum()
}

use Point::{Application, Call, Copy, Intended, Queue, Raised, Ready, Running, SoftIrq, Stack, Transmit, Waking};
use Stage::{From, Relay, Remainder};

#[test]
fn stages_go_from_point_to_point_and_add_up() {
    let mut breakdown = Breakdown::new();
    breakdown.record(&packet(&[(Intended, 0), (Call, 5), (Queue, 25), (Application, 100)]));
    breakdown.record(&packet(&[(Intended, 0), (Call, 7), (Queue, 27), (Application, 200)]));
    let expected = [
        (0, From(Intended), 2, 7),
        (0, From(Call), 2, 20),
        (0, From(Queue), 2, 173),
        (0, Remainder, 0, 0),
    ];
    assert_eq!(told(&breakdown), expected);
    assert_eq!((sum(&breakdown), breakdown.incomplete()), (300.0, 0));
    assert_eq!(breakdown.whole().summary().unwrap().max_ns, 200);
    assert_eq!(breakdown.end(), Some(Application));
}

/// A reader that is awake is not woken up: its packets are on the same way, in one stage less.
#[test]
fn points_that_depend_on_what_else_goes_on_may_be_missing() {
    let mut breakdown = Breakdown::new();
    for _ in 0..2 {
        breakdown.record(&packet(&[
            (Call, 0),
            (Ready, 10),
            (Waking, 12),
            (Running, 50),
            (Application, 60),
        ]));
    }
    breakdown.record(&packet(&[(Call, 0), (Ready, 10), (Application, 30)]));
    let expected = [
        (0, From(Call), 3, 10),
        (0, From(Ready), 3, 20),
        (0, From(Waking), 2, 38),
        (0, From(Running), 2, 10),
        (0, Remainder, 0, 0),
    ];
    assert_eq!((told(&breakdown), sum(&breakdown)), (expected.to_vec(), 150.0));
}

#[test]
fn stages_that_only_few_packets_have_stand_where_they_belong() {
    let mut breakdown = Breakdown::new();
    for _ in 0..2 {
        breakdown.record(&packet(&[(Call, 0), (Stack, 10), (Ready, 20), (Application, 30)]));
    }
    breakdown.record(&packet(&[
        (Call, 0),
        (Stack, 10),
        (Ready, 20),
        (Waking, 25),
        (Application, 30),
    ]));
    let stages: Vec<Stage> = told(&breakdown).iter().map(|(_, stage, ..)| *stage).collect();
    assert_eq!(stages, [From(Call), From(Stack), From(Ready), From(Waking), Remainder]);
}

/// What one cannot name is told as such, and not as the stage before.
#[test]
fn time_around_a_missing_point_is_the_remainder() {
    let mut breakdown = Breakdown::new();
    for _ in 0..2 {
        breakdown.record(&packet(&[
            (Call, 0),
            (Queue, 10),
            (Transmit, 20),
            (Stack, 40),
            (Application, 50),
        ]));
    }
    breakdown.record(&packet(&[(Call, 0), (Queue, 10), (Application, 90)]));
    let expected = [
        (0, From(Call), 3, 10),
        (0, From(Queue), 2, 10),
        (0, From(Transmit), 2, 20),
        (0, From(Stack), 2, 10),
        (0, Remainder, 1, 80),
    ];
    assert_eq!((told(&breakdown), sum(&breakdown)), (expected.to_vec(), 190.0));
}

#[test]
fn packets_that_end_elsewhere_are_in_no_figure_and_counted() {
    let mut breakdown = Breakdown::new();
    for _ in 0..3 {
        breakdown.record(&packet(&[(Call, 0), (Queue, 10), (Application, 50)]));
    }
    breakdown.record(&packet(&[(Call, 0), (Queue, 10)]));
    breakdown.record(&packet(&[(Queue, 10), (Application, 20)]));
    breakdown.record(&packet(&[(Queue, 10)]));
    breakdown.record(&packet(&[]));
    assert_eq!((breakdown.whole().samples(), breakdown.incomplete()), (3, 4));
    assert_eq!(sum(&breakdown), 150.0);
}

#[test]
fn what_is_sent_again_has_another_hop_and_the_relay_is_a_stage() {
    let hops = [
        (Call, 0),
        (Transmit, 10),
        (Stack, 20),
        (Copy, 30),
        (Queue, 530),
        (Transmit, 540),
        (Stack, 550),
        (Application, 560),
    ];
    let mut breakdown = Breakdown::new();
    breakdown.record(&packet(&hops));
    let expected = [
        (0, From(Call), 1, 10),
        (0, From(Transmit), 1, 10),
        (0, From(Stack), 1, 10),
        (0, Relay, 1, 500),
        (1, From(Queue), 1, 10),
        (1, From(Transmit), 1, 10),
        (1, From(Stack), 1, 10),
        (1, Remainder, 0, 0),
    ];
    assert_eq!((told(&breakdown), sum(&breakdown)), (expected.to_vec(), 560.0));
}

#[test]
fn what_comes_again_was_sent_in_between() {
    let stamps = [
        (Call, 0),
        (Transmit, 10),
        (Ready, 20),
        (Raised, 820),
        (SoftIrq, 830),
        (Stack, 840),
        (Application, 850),
    ];
    let mut breakdown = Breakdown::new();
    breakdown.record(&packet(&stamps));
    let relay = told(&breakdown).into_iter().find(|(_, stage, ..)| *stage == Relay);
    assert_eq!(relay, Some((0, Relay, 1, 800)));
    // From one CPU to another (RPS) is no relay.
    let mut steered = Breakdown::new();
    steered.record(&packet(&[
        (Transmit, 10),
        (Point::Driver, 20),
        (Raised, 30),
        (SoftIrq, 40),
        (Stack, 50),
        (Application, 60),
    ]));
    assert!(
        told(&steered)
            .iter()
            .all(|(hop, stage, ..)| *hop == 0 && *stage != Relay)
    );
}

#[test]
fn a_point_that_is_passed_twice_is_one_stage() {
    let mut breakdown = Breakdown::new();
    breakdown.record(&packet(&[
        (Queue, 0),
        (Transmit, 10),
        (Queue, 15),
        (Transmit, 30),
        (Stack, 50),
        (Stack, 60),
        (Application, 90),
    ]));
    let expected = [
        (0, From(Queue), 1, 25),
        (0, From(Transmit), 1, 25),
        (0, From(Stack), 1, 40),
        (0, Remainder, 0, 0),
    ];
    assert_eq!(told(&breakdown), expected);
}

/// Packets of all ways that there are by six points, so many of each.
fn of_all_ways(each: usize) -> Breakdown {
    let mut breakdown = Breakdown::new();
    let points = [Point::Xdp, Point::Driver, Stack, Point::Socket, Ready, Waking];
    for bits in 0..64u32 {
        let mut stamps = vec![(Call, 0)];
        let chosen = points.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
        stamps.extend(chosen.map(|(bit, point)| (*point, 1 + bit as u64)));
        stamps.push((Application, 100));
        (0..each).for_each(|_| _ = breakdown.record(&packet(&stamps)));
    }
    breakdown
}

#[test]
fn ways_without_end_do_not_take_memory_without_end() {
    let each = FEW * 2;
    let breakdown = of_all_ways(each);
    let many = breakdown.ways.iter().filter(|way| matches!(way.times, Times::Many(..)));
    assert!((MOST_WAYS..=MOST_WAYS + MORE_WAYS).contains(&many.count()));
    assert!(
        breakdown
            .ways
            .iter()
            .all(|way| !matches!(&way.times, Times::Few(few) if few.len() > FEW))
    );
    assert_eq!(breakdown.whole().samples() + breakdown.incomplete(), 64 * each as u64);
    let mean = breakdown.whole().summary().unwrap().mean_ns;
    let all = mean * breakdown.whole().samples() as f64;
    assert!((sum(&breakdown) - all).abs() < 1e-3 * all, "{} {all}", sum(&breakdown));
}

/// As under load, where points that depend on what else goes on are there or not, each by itself.
#[test]
fn many_ways_of_few_packets_are_all_told() {
    let breakdown = of_all_ways(3);
    assert_eq!((breakdown.whole().samples(), breakdown.incomplete()), (64 * 3, 0));
    assert_eq!(sum(&breakdown), 100.0 * 64.0 * 3.0);
}

#[test]
fn what_is_in_no_figure_is_known() {
    let mut breakdown = Breakdown::new();
    let [whole, lost] = [
        vec![(Call, 0), (Queue, 10), (Application, 50)],
        vec![(Call, 0), (Queue, 90)],
    ];
    assert!((0..3).all(|_| breakdown.record(&packet(&whole))));
    assert!(breakdown.record(&packet(&lost)));
    assert!(breakdown.is_complete(&packet(&whole)) && !breakdown.is_complete(&packet(&lost)));
}

#[test]
fn disorder_is_the_clock_error() {
    let mut breakdown = Breakdown::new();
    for disorder_ns in [0, 30, 10] {
        let stamps = [(Call, 0), (Application, 50)];
        breakdown.record(&Packet {
            disorder_ns,
            ..packet(&stamps)
        });
    }
    assert_eq!(breakdown.disorder(), (2, 30));
}

/// Of more ways than are told apart each packet that is in no figure is known.
#[test]
fn packets_that_there_is_no_room_for_are_told() {
    let points = [Point::Xdp, Point::Driver, Point::Backlog, Stack, Point::Socket, Copy];
    let mut breakdown = Breakdown::new();
    let mut told = Vec::new();
    let mut all = 0;
    for number in 0..6_usize.pow(5) {
        let digits = (0..5).map(|digit| points[number / 6_usize.pow(digit) % 6]);
        let mut stamps = vec![(Call, 0)];
        stamps.extend(digits.zip(1..));
        stamps.push((Application, 100));
        let packet = packet(&stamps);
        all += 1;
        if breakdown.record(&packet) {
            told.push(packet);
        }
    }
    let complete = told.iter().filter(|packet| breakdown.is_complete(packet)).count();
    assert!(told.len() < all, "there are ways enough");
    assert_eq!(breakdown.whole().samples(), complete as u64);
    assert_eq!(breakdown.whole().samples() + breakdown.incomplete(), all as u64);
}
