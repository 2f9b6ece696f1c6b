use proptest::prelude::*;

use super::*;
use crate::probe::{Clock, Kind, Probe};

const CYCLE: u64 = 1_000_000;

fn class(text: &str) -> Class {
    text.parse().unwrap()
}

fn schedule(classes: &[&str]) -> Result<Schedule, Error> {
    Schedule::new(CYCLE, classes.iter().map(|text| class(text)).collect())
}

fn three() -> Schedule {
    schedule(&["3:500us:200us:1000", "5:0us:100us:200:2", "1:800us:200us"]).unwrap()
}

#[test]
fn classes_are_read() {
    let all = class("7:1.5ms:250ns:1518:12");
    assert_eq!(
        all,
        Class {
            pcp: 7,
            offset_ns: 1_500_000,
            window_ns: 250,
            frame_bytes: 1518,
            packets_per_cycle: 12
        }
    );
    let short = class("0:0us:1s");
    assert_eq!((short.frame_bytes, short.packets_per_cycle), (128, 1));
    for (text, words) in [
        ("5", "no class"),
        ("5:0us", "no class"),
        ("5:0us:1us:1:1:1", "no class"),
        ("8:0us:1us", "0 to 7"),
        ("x:0us:1us", "0 to 7"),
        ("-1:0us:1us", "0 to 7"),
        ("5:0:1us", "with a unit"),
        ("5:0us:1", "with a unit"),
        ("5:-1us:1us", "with a unit"),
        ("5:0us:1us:x", "number of bytes"),
        ("5:0us:1us:100:-2", "number of packets"),
    ] {
        let error = text.parse::<Class>().unwrap_err();
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn nonsense_is_named() {
    for (classes, words) in [
        (vec![], "no class"),
        (vec!["5:0us:2ms"], "does not lie in the cycle of 1000 µs"),
        (vec!["5:900us:200us"], "class 5: its window of 200 µs from 900 µs on"),
        (vec!["5:0us:0us"], "does not lie"),
        (vec!["5:0us:10us:20"], "frames of 20 bytes"),
        (vec!["5:0us:10us:9999"], "frames of 9999 bytes"),
        (vec!["5:0us:10us:100:0"], "0 packets a cycle"),
        (vec!["5:0us:10us:100:1001"], "1001 packets"),
        (vec!["5:0us:10ns:100:11"], "11 packets in a window"),
        (
            vec!["5:0us:100us", "3:99us:10us"],
            "class 5 (until 100 µs) and class 3 (from 99 µs) overlap by 1 µs",
        ),
        (vec!["3:50us:10us", "5:0us:60us"], "overlap by 10 µs"),
        (vec!["5:0us:100us", "5:200us:10us"], "class 5 is there twice"),
    ] {
        let error = schedule(&classes).unwrap_err().to_string();
        assert!(error.contains(words), "{classes:?}: {error}");
    }
    for cycle in [0, 9_999, 60_000_000_001] {
        let error = Schedule::new(cycle, vec![class("5:0us:1us")]).unwrap_err().to_string();
        assert!(error.contains("10 µs to 60 s"), "{error}");
    }
    assert!(
        schedule(&["5:0us:100us", "3:100us:900us"]).is_ok(),
        "side by side, to the end"
    );
}

#[test]
fn what_the_link_cannot_carry_is_named() {
    // 1000 + 24 bytes are 8192 ns at 1 Gbit/s.
    assert_eq!(class("3:0us:1us:1000").wire_ns(1_000_000_000), 8_192);
    // The smallest frame takes as much as a padded one.
    assert_eq!(class("3:0us:1us:60:2").wire_ns(1_000_000_000), 2 * 84 * 8);
    let tight = schedule(&["3:0us:8192ns:1000"]).unwrap();
    assert!(tight.check_rate(1_000_000_000).is_ok());
    let error = tight.check_rate(999_000_000).unwrap_err().to_string();
    assert!(
        error.contains("class 3") && error.contains("999 Mbit/s") && error.contains("8.192 µs"),
        "{error}"
    );
}

#[test]
fn slots_lie_evenly_in_their_windows() {
    let due: Vec<_> = three()
        .slots()
        .iter()
        .map(|slot| (slot.offset_ns, slot.class, slot.number, slot.over_ns))
        .collect();
    assert_eq!(
        due,
        [
            (0, 0, 0, 100_000),
            (50_000, 0, 1, 100_000),
            (500_000, 1, 0, 700_000),
            (800_000, 2, 0, 1_000_000)
        ]
    );
    assert_eq!(three().packets_per_cycle(), 4);
}

#[test]
fn a_class_that_is_sent_later_may_be_sent_after_others() {
    let later = |by: u64| three().departures(move |class| if class.pcp == 5 { by } else { 0 });
    let order = |by| -> Vec<usize> { later(by).unwrap().iter().map(|(slot, _)| slot.class).collect() };
    assert_eq!(order(0), [0, 0, 1, 2]);
    assert_eq!(order(480_000), [0, 1, 0, 2]);
    let all = later(480_000).unwrap();
    assert_eq!(
        (all[2].0.offset_ns, all[2].1.offset_ns, all[2].1.span_ns),
        (50_000, 530_000, 50_000)
    );
    let error = later(950_000).unwrap_err().to_string();
    assert!(error.contains("class 5") && error.contains("next cycle"), "{error}");
}

/// A packet of a class, due as its number says, that comes so much later.
fn packet(pcp: u8, sequence: u64, after_ns: i64) -> Received {
    let schedule = three();
    let index = schedule.class_of(pcp).unwrap();
    let class = schedule.classes()[index];
    let per = u64::from(class.packets_per_cycle);
    let slots = schedule.slots();
    let slot = slots
        .iter()
        .filter(|slot| slot.class == index)
        .nth(usize::try_from(sequence % per).unwrap())
        .unwrap();
    let intended_ns = (1_000 + sequence / per) * CYCLE + slot.offset_ns;
    Received {
        probe: Probe {
            kind: Kind::Request,
            clock: Clock::Tai,
            session: 7,
            sequence,
            intended_ns,
            sent_ns: intended_ns + 100,
        },
        part: StreamPart {
            pcp,
            number: u16::try_from(slot.number).unwrap(),
            skipped: 0,
        },
        pcp: Some(pcp),
        at_ns: intended_ns.saturating_add_signed(after_ns),
    }
}

#[test]
fn each_class_has_its_own_figures() {
    let mut listener = Listener::new(three(), 0, None);
    for sequence in 0..100 {
        assert_eq!(listener.record(&packet(5, sequence, 2_000)), Verdict::InWindow);
    }
    // Late by 10 us: its window has 200 us.
    for sequence in 0..50 {
        assert_eq!(listener.record(&packet(3, sequence, 210_000)), Verdict::Late);
    }
    let [five, three, one] = listener.streams() else {
        panic!()
    };
    assert_eq!(
        (five.received(), five.lost(), five.late.packets, five.early.packets),
        (100, 0, 0, 0)
    );
    let latency = five.latency.summary().unwrap();
    assert_eq!((latency.min_ns, latency.max_ns, latency.samples), (2_000, 2_000, 100));
    assert_eq!(five.path.summary().unwrap().max_ns, 1_900);
    // Two a cycle, 50 us apart, and then 950.
    let gap = five.gap.summary().unwrap();
    assert_eq!((gap.min_ns, gap.max_ns, gap.samples), (50_000, 950_000, 99));
    assert_eq!(five.jitter().unwrap().mean_abs_consecutive_difference_ns, 0.0);
    assert_eq!(
        (three.received(), three.late.packets, three.late.most_ns),
        (50, 50, 10_000)
    );
    assert_eq!(three.late.mean_ns(), Some(10_000.0));
    assert_eq!((one.received(), one.expected()), (0, 0));
}

#[test]
fn the_window_has_both_ends_and_is_moved_by_the_path() {
    let verdict = |path_ns, after_ns| Listener::new(three(), path_ns, None).record(&packet(3, 0, after_ns));
    assert_eq!(verdict(0, 0), Verdict::InWindow);
    assert_eq!(verdict(0, 200_000), Verdict::InWindow);
    assert_eq!(verdict(0, 200_001), Verdict::Late);
    assert_eq!(verdict(0, -1), Verdict::Early);
    assert_eq!(verdict(5_000, 4_999), Verdict::Early);
    assert_eq!(verdict(5_000, 205_000), Verdict::InWindow);
    // The second packet of a class is measured by the class's window, not by its own time.
    let second = |after_ns| Listener::new(three(), 0, None).record(&packet(5, 1, after_ns));
    assert_eq!(second(-50_000), Verdict::InWindow);
    assert_eq!(second(50_000), Verdict::InWindow);
    assert_eq!(second(50_001), Verdict::Late);
    let mut listener = Listener::new(three(), 0, None);
    listener.record(&packet(3, 0, -30));
    let stream = &listener.streams()[1];
    assert_eq!(
        (stream.early.packets, stream.early.most_ns, stream.impossible),
        (1, 30, 1)
    );
    assert!(stream.latency.summary().is_none());
}

#[test]
fn packets_that_the_talker_skipped_are_not_lost() {
    let mut listener = Listener::new(three(), 0, None);
    // It had skipped three before it listened; then number 12 is lost, and 13 and 14 are skipped.
    // 16 comes before 15, and of the two it knows more: 17 is skipped, too.
    for (sequence, skipped) in [(10, 3_u32), (11, 3), (18, 6), (16, 5), (15, 5)] {
        let mut one = packet(3, sequence, 1_000);
        // The count wraps.
        one.part.skipped = skipped.wrapping_sub(5);
        listener.record(&one);
    }
    let stream = &listener.streams()[1];
    assert_eq!((stream.received(), stream.expected()), (5, 9));
    assert_eq!((stream.skipped(), stream.lost()), (3, 1));
}

#[test]
fn lost_double_and_reordered_packets_are_told_apart() {
    let mut listener = Listener::new(three(), 0, None);
    // It begins to listen in the middle.
    for sequence in [10, 12, 11, 11, 15, 9] {
        listener.record(&packet(3, sequence, 1_000));
    }
    let stream = &listener.streams()[1];
    assert_eq!((stream.received(), stream.expected(), stream.lost()), (4, 6, 2));
    assert_eq!(
        (stream.duplicated, stream.reordered, stream.longest_reordering),
        (1, 1, 1)
    );
    assert_eq!(stream.too_old, 1, "sent before it listened");
}

#[test]
fn numbers_that_are_far_behind_are_too_old_to_tell() {
    let mut listener = Listener::new(three(), 0, None);
    assert_eq!(listener.record(&packet(3, 0, 1_000)), Verdict::InWindow);
    assert_eq!(listener.record(&packet(3, 1_000, 1_000)), Verdict::InWindow);
    assert_eq!(listener.record(&packet(3, 1, 1_000)), Verdict::InWindow);
    assert_eq!(listener.record(&packet(3, 66_000, 1_000)), Verdict::InWindow);
    assert_eq!(listener.record(&packet(3, 400, 1_000)), Verdict::Again);
    let stream = &listener.streams()[1];
    assert_eq!((stream.received(), stream.reordered, stream.too_old), (4, 1, 1));
    assert_eq!(stream.longest_reordering, 999);
}

#[test]
fn no_misses_have_no_mean() {
    assert_eq!(WindowMisses::default().mean_ns(), None);
}

#[test]
fn others_packets_are_left_out_and_counted() {
    let mut listener = Listener::new(three(), 0, None);
    listener.record(&packet(3, 0, 1_000));
    let mut other = packet(3, 1, 1_000);
    other.probe.session = 8;
    assert_eq!(listener.record(&other), Verdict::OtherSession);
    assert_eq!(listener.record(&other), Verdict::OtherSession);
    let mut unknown = packet(3, 1, 1_000);
    unknown.part.pcp = 6;
    assert_eq!(listener.record(&unknown), Verdict::OtherSchedule);
    let mut elsewhere = packet(3, 1, 1_000);
    elsewhere.probe.intended_ns += 250_000;
    assert_eq!(listener.record(&elsewhere), Verdict::OtherSchedule);
    // Its window is over at this time.
    let mut at_the_end = packet(3, 1, 1_000);
    at_the_end.probe.intended_ns += 200_000;
    assert_eq!(listener.record(&at_the_end), Verdict::OtherSchedule);
    assert_eq!(
        (listener.other_session(), listener.other_schedule(), listener.session()),
        (2, 3, Some(7))
    );
    assert_eq!(listener.streams()[1].received(), 1);
    assert_eq!(
        Listener::new(three(), 0, Some(9)).record(&packet(3, 0, 0)),
        Verdict::OtherSession
    );
}

#[test]
fn a_changed_priority_is_seen() {
    let mut listener = Listener::new(three(), 0, None);
    for (sequence, pcp) in [(0, Some(3)), (1, Some(0)), (2, None), (3, Some(3))] {
        listener.record(&Received {
            pcp,
            ..packet(3, sequence, 0)
        });
    }
    let stream = &listener.streams()[1];
    assert_eq!((stream.changed_pcp, stream.untold_pcp, stream.received()), (1, 1, 4));
}

#[test]
fn the_part_comes_back_and_others_are_none() {
    let mut payload = [0xff; STREAM_LEN];
    assert_eq!(StreamPart::decode(&payload), None);
    let part = StreamPart {
        pcp: 6,
        number: 999,
        skipped: 0x0102_0304,
    };
    part.encode(&mut payload).unwrap();
    assert_eq!(StreamPart::decode(&payload), Some(part));
    let received = Received {
        part,
        ..packet(5, 7, 0)
    };
    let again = Received::of_row(&received.row()).unwrap();
    assert_eq!((again.part, again.probe), (part, received.probe));
    payload[41] = 8;
    assert_eq!(StreamPart::decode(&payload), None);
    assert!(part.encode(&mut [0; STREAM_LEN - 1]).is_err());
    assert_eq!(StreamPart::decode(&[0; 10]), None);
}

proptest! {
    /// Whatever the classes are: a schedule that is accepted has all slots in windows that do not overlap.
    #[test]
    fn accepted_schedules_hold(classes in prop::collection::vec((0u8..8, 0u64..1_000_000, 0u64..400_000, 1u32..20), 1..5)) {
        let classes = classes.into_iter().map(|(pcp, offset_ns, window_ns, packets_per_cycle)| Class {
            pcp, offset_ns, window_ns, frame_bytes: 128, packets_per_cycle,
        }).collect();
        if let Ok(schedule) = Schedule::new(CYCLE, classes) {
            let mut over = 0;
            for class in schedule.classes() {
                prop_assert!(class.offset_ns >= over && class.window_ns > 0);
                over = class.offset_ns + class.window_ns;
            }
            prop_assert!(over <= CYCLE);
            let slots = schedule.slots();
            prop_assert_eq!(slots.len() as u64, schedule.packets_per_cycle());
            prop_assert!(slots.is_sorted_by_key(|slot| slot.offset_ns));
            for slot in &slots {
                let class = schedule.classes()[slot.class];
                prop_assert!(slot.offset_ns >= class.offset_ns && slot.offset_ns < slot.over_ns);
            }
        }
    }
}

#[test]
fn a_packet_that_is_kept_is_the_same_when_it_is_judged() {
    for pcp in [Some(5), None] {
        let kept = Received {
            pcp,
            ..packet(5, 3, 777)
        };
        let again = Received::of_row(&kept.row()).unwrap();
        assert_eq!(
            (again.probe, again.part, again.pcp, again.at_ns),
            (kept.probe, kept.part, kept.pcp, kept.at_ns)
        );
    }
    for (at, number) in [(0, 1 << 32), (4, 1 << 56), (5, 9)] {
        let mut row = packet(5, 3, 777).row();
        row[at] = number;
        assert!(Received::of_row(&row).is_none(), "{row:?}");
    }
}

/// The listener's clock is a second behind, and nobody knows it.
#[test]
fn by_the_fastest_packet_one_clock_is_enough() {
    const BEHIND: i64 = -1_000_000_000;
    // A window of 100 us, the second packet due in its middle: one of them comes behind it.
    let came: Vec<Received> = [(0, 30_000), (1, 20_000), (2, 50_000), (3, 80_000)]
        .map(|(sequence, late)| packet(5, sequence, BEHIND + late))
        .to_vec();
    let fastest = fastest_ns(&came).unwrap();
    assert_eq!(fastest, BEHIND + 20_000);
    assert_eq!(fastest_ns([]), None);
    let mut listener = Listener::new(three(), 0, None);
    for packet in &came {
        let at_ns = packet.at_ns.saturating_add_signed(-fastest);
        listener.record(&Received { at_ns, ..*packet });
    }
    let stream = &listener.streams()[0];
    assert_eq!((stream.early.packets, stream.late.packets), (0, 1));
    assert_eq!(stream.late.most_ns, 10_000);
    assert_eq!(
        (stream.received(), stream.impossible),
        (4, 1),
        "sent 100 ns after it was due"
    );
}

#[test]
fn times_have_micro_as_a_letter_or_a_sign() {
    for text in ["2.5us", "2.5\u{b5}s", "2.5\u{3bc}s"] {
        assert_eq!(nanos(text), Ok(2_500), "{text}");
    }
    assert!(nanos("2.5µ").is_err());
}
