//! A gateway that follows an etcd which exists in memory alone, whose answers are late, fail and break off.

pub(crate) mod etcd;
mod world;

use proptest::prelude::*;

use super::*;
use etcd::NAME;
use world::{Fault, Step, World};

use crate::fleet::FleetName;

fn milliseconds(number: u64) -> Duration {
    Duration::from_millis(number)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => proptest::collection::vec((0..12_u8, proptest::option::weighted(0.7, 0..200_u64)), 1..4).prop_map(Step::Write),
        2 => (1..5_u64).prop_map(Step::Foreign),
        1 => Just(Step::Compact),
        2 => Just(Step::Break),
        1 => Just(Step::Stall),
        1 => Just(Step::StayBehind),
        2 => (1..3000_u64).prop_map(|time| Step::Late(milliseconds(time))),
        1 => Just(Step::FailList),
        1 => (1..12_000_u64).prop_map(|time| Step::CutOff(milliseconds(time))),
        6 => (1..3000_u64).prop_map(|time| Step::Wait(milliseconds(time))),
        1 => Just(Step::Restart),
    ]
}

/// More where there is time: `PROPTEST_CASES`.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").map_or(300, |cases| cases.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// Whatever fails: at each revision that the tables are told of they hold what etcd held then, in the end all of it, and no
    /// comparison finds anything.
    #[test]
    fn tables_hold_what_etcd_held(steps in proptest::collection::vec(step(), 1..60), seed: u64, ahead: bool) {
        let mut world = World::new(seed);
        world.etcd.progress_is_ahead = ahead;
        for step in steps {
            world.step(step);
        }
        world.calm();
        world.run(Duration::from_secs(40));
        prop_assert_eq!(world.sync.state(world.now), State::Following);
        world.assert_complete();
        prop_assert_eq!(world.divergence, 0);
        prop_assert!(world.sync.counts().compared > 0);
        prop_assert!(world.sync.lag(world.now) < Duration::from_secs(4), "{:?}", world.sync.lag(world.now));
    }
}

/// With writes on the way, for as long as it takes.
fn busy(world: &mut World, times: u8) {
    for round in 0..times {
        world.step(Step::Write(vec![(round % 12, Some(u64::from(round)))]));
        world.step(Step::Wait(milliseconds(100)));
    }
}

#[test]
fn an_event_that_never_comes_is_found_and_put_right() {
    let mut world = World::new(1);
    busy(&mut world, 20);
    world.etcd.fault = Some(Fault::LoseNextEvent);
    busy(&mut world, 1);
    assert!(!world.is_complete(), "it is lost");
    busy(&mut world, 250);
    assert!(
        world.divergence > 0 || world.is_complete(),
        "another write of the key has put it right"
    );
    world.step(Step::Write(vec![(3, Some(1))]));
    world.run(Duration::from_secs(1));
    world.etcd.fault = Some(Fault::LoseNextEvent);
    world.step(Step::Write(vec![(3, None)]));
    let before = world.divergence;
    world.run(Duration::from_secs(30));
    assert_eq!(world.divergence, before + 1);
    assert!(world.is_complete());
}

#[test]
fn a_revision_that_goes_back_is_not_believed() {
    let mut world = World::new(2);
    busy(&mut world, 20);
    world.run(Duration::from_secs(2));
    let tables = world.tables.clone();
    world.etcd.restore(5);
    busy(&mut world, 3);
    world.run(Duration::from_secs(2));
    let State::Rejected(why) = world.sync.state(world.now) else {
        panic!("{:?}", world.sync.state(world.now))
    };
    assert!(why.contains("went back"), "{why}");
    // Not when it has as many revisions again either.
    busy(&mut world, 100);
    assert!(matches!(world.sync.state(world.now), State::Rejected(_)));
    assert_eq!(world.tables, tables, "the last good state holds");
}

#[test]
fn what_was_restored_while_a_gateway_was_away_is_found_by_the_next_comparison() {
    let mut world = World::new(3);
    busy(&mut world, 30);
    world.run(Duration::from_secs(2));
    world.etcd.restore(10);
    for round in 0..60 {
        world.etcd.write(&[(round % 5, Some(u64::from(round)))]);
    }
    world.step(Step::Restart);
    world.lenient = true;
    world.run(Duration::from_secs(25));
    assert!(world.divergence > 0);
    assert!(world.is_complete());
}

#[test]
fn state_that_is_removed_is_not_believed_to_be_gone() {
    for other in [None, Some(b"another".to_vec())] {
        let mut world = World::new(4);
        busy(&mut world, 20);
        world.run(Duration::from_secs(2));
        let tables = world.tables.clone();
        world.etcd.replace_fleet(other);
        world.run(Duration::from_secs(10));
        let State::Rejected(why) = world.sync.state(world.now) else {
            panic!("{:?}", world.sync.state(world.now))
        };
        assert!(why.contains("v1/fleet"), "{why}");
        assert_eq!(world.tables, tables);
    }
}

/// Somebody puts the name with white space at its ends; a gateway's copy may have it so, too.
#[test]
fn white_space_at_the_ends_of_the_name_changes_nothing() {
    let padded = [b"\n ", NAME, b"\r\n"].concat();
    for is_new in [true, false] {
        let mut world = World::new(4);
        if is_new {
            world.etcd.set_fleet(Some(padded.clone()));
        }
        busy(&mut world, 20);
        for fleet in [NAME, &padded, NAME] {
            world.etcd.set_fleet(Some(fleet.to_vec()));
            busy(&mut world, 5);
            world.run(Duration::from_secs(2));
            assert_eq!(world.sync.state(world.now), State::Following);
            world.assert_complete();
        }
        world.etcd.set_fleet(Some(padded.clone()));
        world.step(Step::Restart);
        world.run(Duration::from_secs(2));
        assert_eq!(world.sync.state(world.now), State::Following);
    }
}

/// A gateway without a copy cannot know the name: it takes none that no gateway would have written.
#[test]
fn a_gateway_without_a_copy_waits_for_a_name_of_its_own_schema() {
    let name = String::from_utf8(NAME.to_vec()).unwrap();
    let newer = name.replace("schema 1", "schema 2");
    for wrong in ["garbage", &newer, &name[..name.len() - 1]] {
        let mut world = World::new(4);
        world.etcd.set_fleet(Some(wrong.as_bytes().to_vec()));
        busy(&mut world, 20);
        world.run(Duration::from_secs(20));
        let State::CutOff(why) = world.sync.state(world.now) else {
            panic!("{wrong}: {:?}", world.sync.state(world.now))
        };
        assert!(why.contains(&format!("holds \"{wrong}\"")), "{why}");
        assert_eq!((world.sync.mark(), world.tables.len()), (None, 0));
        world.etcd.set_fleet(Some(NAME.to_vec()));
        world.run(Duration::from_secs(5));
        assert_eq!(world.sync.state(world.now), State::Following);
        world.assert_complete();
    }
}

/// A copy of an older version may have a name that is none: it is not to be put into etcd.
#[test]
fn a_wrong_name_in_a_copy_is_not_advised() {
    let mut world = World::new(4);
    busy(&mut world, 20);
    world.run(Duration::from_secs(2));
    let mark = world.sync.mark().unwrap().clone();
    let fleet = FleetName::read(b"gar\nbage");
    world.sync = Sync::new(Timing::default(), 4, Some(Mark { fleet, ..mark }), world.now);
    world.run(Duration::from_secs(2));
    let State::Rejected(why) = world.sync.state(world.now) else {
        panic!("{:?}", world.sync.state(world.now))
    };
    assert!(why.contains("copy has \"gar\\nbage\""), "{why}");
    assert!(why.contains("remove the file") && !why.contains("put"), "{why}");
}

/// The watch may see that the key is gone before a question of an older revision is answered.
#[test]
fn an_answer_from_before_the_name_was_removed_is_not_believed() {
    let mut late = 0;
    for seed in 0..40 {
        let mut world = World::new(seed);
        busy(&mut world, 20);
        world.run(Duration::from_secs(2));
        while world.pulse.is_none() {
            world.run(milliseconds(10));
        }
        world.etcd.set_fleet(None);
        let mut rejected = false;
        for _ in 0..200 {
            let was_asked = world.pulse.is_some();
            world.run(milliseconds(10));
            let is_rejected = matches!(world.sync.state(world.now), State::Rejected(_));
            assert!(is_rejected || !rejected, "{seed}: believed again");
            late += u32::from(is_rejected && !rejected && was_asked && world.pulse.is_some());
            rejected = is_rejected;
        }
        assert!(rejected);
    }
    assert!(late > 0, "no answer was under way");
}

/// Somebody removes the key that says whose state it is, or writes another value, and puts it back.
#[test]
fn a_state_whose_name_is_put_back_is_followed_again() {
    for other in [None, Some(b"another".to_vec())] {
        let mut world = World::new(4);
        busy(&mut world, 20);
        world.run(Duration::from_secs(2));
        let fleet = world.etcd.fleet.clone();
        for (round, pause) in [(1, 10), (2, 0)] {
            world.etcd.set_fleet(other.clone());
            world.run(Duration::from_secs(pause));
            if pause > 0 {
                // Another value is noticed, too.
                if other.is_some() {
                    world.etcd.set_fleet(None);
                    world.run(Duration::from_secs(2));
                    world.etcd.set_fleet(other.clone());
                    world.run(Duration::from_secs(2));
                }
                let State::Rejected(why) = world.sync.state(world.now) else {
                    panic!("{:?}", world.sync.state(world.now))
                };
                let found = if other.is_some() {
                    "holds \"another\""
                } else {
                    "is gone"
                };
                assert!(why.contains(found), "{why}");
                let name = format!("\"{}\"", FleetName::read(NAME));
                assert!(why.contains("put it back") && why.contains(&name), "{why}");
            }
            world.etcd.write(&[(3, None), (4, Some(100 + round))]);
            world.etcd.set_fleet(fleet.clone());
            world.run(Duration::from_secs(10));
            assert_eq!(world.sync.state(world.now), State::Following);
            world.assert_complete();
        }
        busy(&mut world, 20);
        world.run(Duration::from_secs(2));
        world.assert_complete();
        assert_eq!(world.divergence, 0);
    }
}

#[test]
fn state_that_is_removed_stays_known_when_its_name_is_put_back() {
    for is_compacted in [false, true] {
        let mut world = World::new(4);
        busy(&mut world, 20);
        world.run(Duration::from_secs(2));
        let (tables, fleet) = (world.tables.clone(), world.etcd.fleet.clone());
        world.etcd.replace_fleet(None);
        world.run(Duration::from_secs(2));
        world.etcd.set_fleet(fleet);
        if is_compacted {
            world.step(Step::Compact);
        }
        world.run(Duration::from_secs(30));
        let state = world.sync.state(world.now);
        assert!(matches!(state, State::Rejected(_)), "{state:?}");
        assert_eq!(world.tables, tables);
    }
}

#[test]
fn another_cluster_is_not_believed() {
    let mut world = World::new(5);
    busy(&mut world, 5);
    world.run(Duration::from_secs(2));
    world.etcd.cluster += 1;
    world.run(Duration::from_secs(2));
    let State::Rejected(why) = world.sync.state(world.now) else {
        panic!("{:?}", world.sync.state(world.now))
    };
    assert!(why.contains("another cluster"), "{why}");
}

#[test]
fn a_member_without_quorum_is_noticed_although_its_watch_lives() {
    let mut world = World::new(6);
    busy(&mut world, 5);
    world.run(Duration::from_secs(2));
    world.step(Step::CutOff(Duration::from_secs(20)));
    world.run(Duration::from_secs(7));
    let State::CutOff(why) = world.sync.state(world.now) else {
        panic!("{:?}", world.sync.state(world.now))
    };
    assert!(why.contains("no quorum"), "{why}");
    assert!(world.sync.lag(world.now) > Duration::from_secs(6));
    world.run(Duration::from_secs(20));
    assert_eq!(world.sync.state(world.now), State::Following);
    world.assert_complete();
}

#[test]
fn compaction_behind_its_back_has_everything_listed_anew() {
    let mut world = World::new(7);
    busy(&mut world, 20);
    world.step(Step::Stall);
    for round in 0..50 {
        world
            .etcd
            .write(&[(round % 12, (round % 3 > 0).then_some(u64::from(round)))]);
    }
    world.step(Step::Compact);
    world.run(Duration::from_secs(20));
    assert_eq!(world.sync.counts().relisted, 1);
    world.assert_complete();
    assert_eq!(world.divergence, 0);
}

/// A list that takes longer than history is kept is in vain, and the next one; they leave room between them, and the first that can be is the last.
#[test]
fn lists_in_vain_leave_room_for_others() {
    let mut world = World::new(10);
    busy(&mut world, 20);
    world.step(Step::Restart);
    world.step(Step::Stall);
    let listed = |world: &World| world.sync.counts().relisted;
    for number in 0..1000_u64 {
        world.etcd.write(&[(u8::try_from(number % 12).unwrap(), Some(number))]);
        world.step(Step::Compact);
        world.run(milliseconds(20));
    }
    assert!((10..200).contains(&listed(&world)), "{}", listed(&world));
    assert_eq!(world.sync.complete(), None);
    world.run(Duration::from_secs(10));
    assert_eq!(world.sync.state(world.now), State::Following);
    world.assert_complete();
    assert_eq!(world.divergence, 0);
}

/// Who starts with a copy follows at once, but knows everything only when the watch has caught up with what etcd had then.
#[test]
fn a_copy_is_not_complete_before_the_watch_has_caught_up() {
    let mut world = World::new(9);
    busy(&mut world, 5);
    world.run(Duration::from_secs(3));
    assert!(world.sync.complete().is_some());
    // What is written while it is away, and told late.
    world.step(Step::Late(Duration::from_secs(3)));
    for number in 0..20 {
        world.etcd.write(&[(number % 12, Some(u64::from(number)))]);
    }
    let then = world.etcd.revision;
    world.step(Step::Restart);
    assert!(
        world.sync.told() > 0 && world.sync.told() < then,
        "there is an old copy"
    );
    world.run(Duration::from_secs(2));
    assert_eq!(
        (world.sync.state(world.now), world.sync.complete()),
        (State::Following, None)
    );
    world.run(Duration::from_secs(20));
    assert!(world.sync.complete().is_some_and(|revision| revision >= then));
}

#[test]
fn it_does_not_ask_without_pause() {
    let mut world = World::new(8);
    world.step(Step::CutOff(Duration::from_secs(100)));
    let before = world.asked;
    world.run(Duration::from_secs(60));
    assert!(world.asked - before < 150, "{}", world.asked - before);
}

/// Who starts with a large copy compares it for the first time as late as it would later on; and as many that start at a time not all
/// at once.
#[test]
fn the_first_comparison_is_as_much_later_as_there_is_more() {
    let mark = || {
        Some(Mark {
            cluster: 1,
            fleet: FleetName::read(b"one"),
            revision: Some(7),
            has_unread: false,
        })
    };
    let timing = Timing::default();
    let first = |pages: u32| {
        let at = |seed| {
            let sync = Sync::new(timing, seed, mark(), Duration::ZERO).with_pages(pages);
            sync.compare_at.as_secs_f64() / timing.compare.as_secs_f64()
        };
        let mut all: Vec<f64> = (0..1000).map(at).collect();
        all.sort_by(f64::total_cmp);
        [all[100], all[500], all[999]]
    };
    for (pages, times) in [(0, 1.0), (16, 1.0), (31, 1.0), (32, 2.0), (763, 47.0)] {
        let [tenth, half, last] = first(pages);
        assert!((0.05..0.15).contains(&(tenth / times)), "{pages} pages: {tenth}");
        assert!((0.4..0.6).contains(&(half / times)), "{pages} pages: {half}");
        assert!((0.9..=1.0).contains(&(last / times)), "{pages} pages: {last}");
    }
}

/// Where a comparison's list is compacted etcd has too much to do: the next one comes no sooner because of that.
#[test]
fn a_comparison_that_is_compacted_is_as_much_later_as_others() {
    const PAGES: u32 = 763;
    let fleet = FleetName::read(b"one");
    let mark = Mark {
        cluster: 1,
        fleet: fleet.clone(),
        revision: Some(7),
        has_unread: false,
    };
    let timing = Timing::default();
    for seed in 0..20 {
        let mut sync = Sync::new(timing, seed, Some(mark.clone()), Duration::ZERO).with_pages(PAGES);
        let (mut now, mut asked) = (Duration::ZERO, Vec::new());
        while asked.len() < 3 {
            while let Some(action) = sync.poll(now) {
                let input = match action {
                    Action::Pulse => Input::Pulse(Ok(Pulse {
                        revision: 7,
                        cluster: 1,
                        fleet: Some(fleet.clone()),
                    })),
                    Action::Progress => Input::Progress(7),
                    Action::List(_) => {
                        asked.push(now);
                        Input::Listed(Err(Failed::Compacted))
                    }
                    _ => continue,
                };
                sync.handle(now, input);
            }
            now = sync.wake().max(now + milliseconds(1));
        }
        let between = timing.compare * (PAGES / super::PAGES);
        for pair in asked.windows(2) {
            let passed = pair[1] - pair[0];
            assert!(
                passed >= between / 4 * 3 && passed <= between / 4 * 5 + timing.pulse,
                "{passed:?}"
            );
        }
    }
}
