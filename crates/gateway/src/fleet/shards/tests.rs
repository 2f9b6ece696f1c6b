use std::cell::RefCell;

use proptest::prelude::*;
use ringside_gateway_core::shard::{Member, SHARDS, plan, preferred};

use super::*;

mod world;

use world::{World, milliseconds, record, timing};

const LONG: Duration = Duration::from_secs(60);

/// A fleet that has come to rest.
fn fleet(seed: u64, weights: &[u32]) -> World {
    let mut world = World::new(seed, weights);
    for node in 0..weights.len() {
        world.start(node);
        world.sync(node, true);
    }
    world.run_until(LONG, is_settled);
    world
}

/// Members that serve, as they are.
fn members(world: &World) -> Vec<Member> {
    let live = world.nodes.iter().filter(|node| node.shards.is_some());
    live.map(|node| node.shards.as_ref().unwrap().record().member())
        .collect()
}

/// Every shard has who is preferred for it, and everybody knows.
fn is_settled(world: &World) -> bool {
    thread_local! {
        /// What was found out last, for whom.
        static LAST: RefCell<(Vec<Member>, Vec<Option<MemberId>>)> = RefCell::default();
    }
    let map = world.etcd.map();
    let knows = |shards: &Shards| *shards.view().map() == map && shards.membership(world.now) == Membership::Member;
    if !world.nodes.iter().filter_map(|node| node.shards.as_ref()).all(knows) {
        return false;
    }
    let mut serving = members(world);
    serving.retain(|member| !member.is_draining);
    LAST.with_borrow_mut(|(known, owners)| {
        if *known != serving || owners.is_empty() {
            *owners = Shard::all()
                .map(|shard| preferred(shard, &serving).map(|member| member.id))
                .collect();
            *known = serving;
        }
        map.iter()
            .zip(owners)
            .all(|((_, owner), right)| right.is_none() || owner == *right)
    })
}

#[derive(Debug, Clone)]
enum Fault {
    Start,
    Kill,
    Restart,
    Pause(u64),
    Cut(bool),
    Drain(bool),
    Link(bool),
    Synced,
    HandOver(bool),
}

fn faults() -> impl Strategy<Value = Vec<(usize, Fault, u64)>> {
    let fault = prop_oneof![
        Just(Fault::Start),
        Just(Fault::Kill),
        Just(Fault::Restart),
        (0..6000_u64).prop_map(Fault::Pause),
        any::<bool>().prop_map(Fault::Cut),
        any::<bool>().prop_map(Fault::Drain),
        any::<bool>().prop_map(Fault::Link),
        Just(Fault::Synced),
        Just(Fault::Synced),
        any::<bool>().prop_map(Fault::HandOver),
    ];
    proptest::collection::vec((0..5_usize, fault, 0..3000_u64), 1..30)
}

fn cases(default: u32) -> u32 {
    std::env::var("PROPTEST_CASES").map_or(default, |cases| (cases.parse::<u32>().unwrap() / 50).max(default))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(12), max_shrink_iters: 200, ..ProptestConfig::default() })]

    /// The world finds fault with each map that must not be; in the end everything is where it belongs.
    #[test]
    fn whatever_happens_shards_go_where_they_belong(
        seed in any::<u64>(),
        weights in proptest::collection::vec(1..4_u32, 5),
        lossy in 0..20_u64,
        faults in faults(),
    ) {
        let mut world = World::new(seed, &weights);
        world.start(0);
        world.lossy = lossy;
        for (node, fault, time) in faults {
            let is_running = world.nodes[node].shards.is_some();
            match fault {
                Fault::Start if !is_running => world.start(node),
                Fault::Restart => world.start(node),
                Fault::Kill => world.kill(node),
                Fault::Pause(time) => world.pause(node, milliseconds(time)),
                Fault::Cut(cut) => world.nodes[node].is_cut = cut,
                Fault::Drain(drain) => world.drain(node, drain),
                Fault::Link(is_there) => world.link(node, is_there),
                Fault::Synced => world.sync(node, true),
                Fault::HandOver(fails) => world.fails_to_hand_over(node, fails),
                Fault::Start => {}
            }
            world.run(milliseconds(time));
        }
        world.lossy = 0;
        for node in 0..world.nodes.len() {
            world.nodes[node].is_cut = false;
            world.pause(node, Duration::ZERO);
            world.sync(node, true);
            world.link(node, true);
        }
        // What was lost until now may still cost somebody the lease, and a link has to be there for a while.
        world.run(timing().lease + milliseconds(1500));
        world.run_until(LONG, is_settled);
        // And there it stays.
        let moved = world.etcd.moved;
        world.run(milliseconds(7000));
        prop_assert_eq!(world.etcd.moved, moved);
    }

    #[test]
    fn shards_of_the_dead_move_within_the_lease_and_a_bounded_time(
        seed in any::<u64>(),
        weights in proptest::collection::vec(1..4_u32, 2..6),
        wait in 0..3000_u64,
        victim in any::<prop::sample::Index>(),
    ) {
        let mut world = fleet(seed, &weights);
        world.run(milliseconds(wait));
        let victim = victim.index(weights.len());
        world.kill(victim);
        let took = world.run_until(LONG, is_settled);
        // The lease, who is last to look, and answers.
        let most = timing().lease + timing().stagger + milliseconds(500);
        prop_assert!(took <= most, "{:?}", took);
        prop_assert!(world.etcd.slowest <= milliseconds(500), "{:?}", world.etcd.slowest);
    }

    #[test]
    fn a_map_comes_back_as_it_was(owners in proptest::collection::vec((0..SHARDS, any::<u64>()), 0..2000), generation in any::<u64>()) {
        let mut map = Map::default();
        map.generation = generation;
        for (shard, owner) in owners {
            map.set(Shard::new(shard).unwrap(), MemberId(owner));
        }
        let bytes = map.encode();
        prop_assert_eq!(Map::decode(&bytes), Ok(map));
        for place in [0, 5, bytes.len() / 2, bytes.len() - 1] {
            let mut damaged = bytes.clone();
            damaged[place] ^= 0x10;
            prop_assert!(Map::decode(&damaged).is_err());
        }
        prop_assert!(Map::decode(&bytes[..bytes.len() - 1]).is_err());
    }
}

#[test]
fn the_first_one_has_everything_and_gives_what_is_the_others() {
    let mut world = World::new(7, &[1, 1, 2]);
    world.start(0);
    world.run_until(LONG, |world| world.etcd.map().count(world.id(0)) == 1024);
    // One that does not know everything yet gets nothing from one that lives.
    world.start(1);
    world.run(milliseconds(3000));
    assert_eq!(world.etcd.map().count(world.id(0)), 1024);
    world.sync(0, true);
    world.sync(1, true);
    world.start(2);
    world.sync(2, true);
    world.run_until(LONG, is_settled);
    let share = |node| world.etcd.map().count(world.id(node));
    assert!((200..312).contains(&share(0)), "{}", share(0));
    assert!((440..590).contains(&share(2)), "{}", share(2));
}

#[test]
fn who_drains_ends_up_with_nothing_and_gets_it_back() {
    let mut world = fleet(3, &[1, 1, 1]);
    let before = world.etcd.map();
    world.drain(1, true);
    world.run_until(LONG, |world| world.nodes[1].shards.as_ref().unwrap().is_drained());
    assert_eq!(world.etcd.map().count(world.id(1)), 0);
    let counts = world.nodes[1].shards.as_ref().unwrap().counts();
    assert_eq!((counts.given, counts.given_bare), (before.count(world.id(1)) as u64, 0));
    world.drain(1, false);
    world.run_until(LONG, is_settled);
    assert!(world.etcd.map().iter().eq(before.iter()));
}

#[test]
fn who_comes_back_is_given_to_by_one_after_the_other() {
    let mut world = fleet(21, &[1; 8]);
    // Answers that are still to come.
    world.run(milliseconds(1000));
    let conflicts = |world: &World| -> u64 {
        let all = world.nodes.iter().map(|node| node.shards.as_ref().unwrap().counts());
        all.map(|counts| counts.conflicts).sum()
    };
    let (before, maps, shares) = (conflicts(&world), world.etcd.map().generation, world.etcd.map());
    world.drain(3, true);
    world.run_until(LONG, |world| world.nodes[3].shards.as_ref().unwrap().is_drained());
    // To seven others at once, as many shards as there are for a map.
    let most = shares.count(world.id(3)).div_ceil(timing().most) as u64;
    assert_eq!(world.etcd.map().generation - maps, most);
    world.run(milliseconds(1000));
    assert_eq!(conflicts(&world), before);
    let maps = world.etcd.map().generation;
    world.drain(3, false);
    world.run_until(LONG, is_settled);
    assert_eq!(
        world.etcd.map().generation - maps,
        7,
        "each of the others has something for it"
    );
    assert!(world.etcd.map().iter().eq(shares.iter()));
    // Who hears of a map late may still try in vain.
    assert!(conflicts(&world) - before <= 2, "{}", conflicts(&world) - before);
}

#[test]
fn one_that_cannot_be_handed_over_to_does_not_hold_up_the_others() {
    let mut shards = Shards::new(record(0, 1), timing(), 1);
    let ids: Vec<MemberId> = (0..3).map(|number| record(number, 1).id()).collect();
    let mut map = Map::default();
    Shard::all().for_each(|shard| map.set(shard, ids[0]));
    let entry = |number: usize| Entry {
        id: ids[number],
        value: Some(
            Record {
                synced: true,
                ..record(number, 1)
            }
            .encode(),
        ),
        revision: 1 + number as u64,
        lease: 7,
    };
    let mut act = |at: u64, input: Option<Input>| {
        input
            .into_iter()
            .for_each(|input| shards.handle(milliseconds(at), input));
        std::iter::from_fn(|| shards.poll(milliseconds(at))).collect::<Vec<_>>()
    };
    act(0, Some(Input::Synced(true)));
    act(0, Some(Input::Granted(Ok((7, Duration::from_secs(60))))));
    let listed = Listed {
        revision: 9,
        members: (0..3).map(entry).collect(),
        map: Some(MapEntry {
            value: Some(map.encode()),
            revision: 9,
        }),
    };
    let actions = act(0, Some(Input::Listed(Ok(listed))));
    let asked: Vec<MemberId> = (actions.iter())
        .filter_map(|action| match action {
            Action::HandOver { to, .. } => Some(*to),
            _ => None,
        })
        .collect();
    assert_eq!(asked.len(), 2, "both at once: {actions:?}");
    assert!(
        act(20, Some(Input::HandedOver(asked[0], Ok(true)))).is_empty(),
        "the other one may follow"
    );
    let proposed = act(1100, None);
    let proposal = proposed.iter().find_map(|action| match action {
        Action::Propose(proposal) => Some(proposal),
        _ => None,
    });
    let given = Map::decode(&proposal.expect("a map").map).unwrap();
    assert!(
        given.count(asked[0]) > 10 && given.count(asked[1]) == 0,
        "only to who has them"
    );
}

#[test]
fn who_has_no_link_gives_everything_away_and_gets_it_back() {
    let mut world = fleet(3, &[1, 1, 1]);
    let (before, moved) = (world.etcd.map(), world.etcd.moved);
    let count = |world: &World| world.etcd.map().count(world.id(1));
    // A short one is nothing.
    world.link(1, true);
    world.link(1, false);
    world.run(milliseconds(700));
    world.link(1, true);
    world.run(milliseconds(3000));
    assert_eq!(world.etcd.moved, moved);
    world.link(1, false);
    world.run_until(milliseconds(2500), |world| count(world) == 0);
    let shards = world.nodes[1].shards.as_ref().unwrap();
    assert!(shards.record().cut_off && !shards.is_drained(), "nobody asked for it");
    assert_eq!(shards.membership(world.now), Membership::Member);
    world.link(1, true);
    world.run(milliseconds(2500));
    assert_eq!(count(&world), 0, "it may go again");
    world.run_until(LONG, |world| count(world) > 0 && is_settled(world));
    assert!(world.etcd.map().iter().eq(before.iter()));
    // When it was asked to drain meanwhile it stays out of service.
    world.link(1, false);
    world.run_until(LONG, |world| count(world) == 0);
    world.drain(1, true);
    world.link(1, true);
    world.run(milliseconds(5000));
    assert_eq!(count(&world), 0);
}

#[test]
fn where_nobody_has_a_link_nothing_moves_to_and_fro() {
    let mut world = fleet(4, &[1, 1, 1]);
    for node in 0..3 {
        world.link(node, true);
        world.link(node, false);
    }
    world.run(milliseconds(5000));
    // Whoever lost it last was given to before it was known that it has none.
    let (map, moved) = (world.etcd.map(), world.etcd.moved);
    assert!(map.iter().all(|(_, owner)| owner.is_some()));
    world.run(milliseconds(10_000));
    assert_eq!(world.etcd.moved, moved);
    (0..3).for_each(|node| world.link(node, true));
    world.run(milliseconds(3500));
    world.run_until(LONG, is_settled);
}

#[test]
fn who_cannot_hand_over_gives_away_all_the_same_and_counts_it() {
    let mut world = fleet(3, &[1, 1, 1]);
    world.fails_to_hand_over(1, true);
    world.drain(1, true);
    world.run_until(LONG, |world| world.nodes[1].shards.as_ref().unwrap().is_drained());
    let counts = world.nodes[1].shards.as_ref().unwrap().counts();
    assert!(counts.given > 200 && counts.given == counts.given_bare, "{counts:?}");
}

#[test]
fn a_start_within_the_lease_moves_nothing() {
    let mut world = fleet(9, &[1, 1, 1]);
    let moved = world.etcd.moved;
    world.kill(2);
    world.run(milliseconds(300));
    world.start(2);
    world.run(milliseconds(5000));
    assert_eq!(world.etcd.moved, moved);
    // Not even while it does not know everything again.
    world.sync(2, true);
    world.run(milliseconds(5000));
    assert_eq!(world.etcd.moved, moved);
    assert!(is_settled(&world));
}

#[test]
fn without_etcd_nothing_moves_and_everybody_holds_what_was_his() {
    let mut world = fleet(5, &[1, 2, 3]);
    let (moved, map) = (world.etcd.moved, world.etcd.map());
    world.etcd.is_away = true;
    world.run(LONG);
    for node in &world.nodes {
        let shards = node.shards.as_ref().unwrap();
        assert!(matches!(shards.membership(world.now), Membership::Lapsed(_)));
        for (shard, owner) in map.iter() {
            let held = if owner == Some(shards.id()) {
                Tenure::Held
            } else {
                Tenure::Foreign
            };
            assert_eq!(shards.tenure(world.now, shard), held);
        }
    }
    world.etcd.is_away = false;
    world.run_until(LONG, is_settled);
    assert_eq!(world.etcd.moved, moved);
}

/// Whose leases are ended though they live are there again before anything moves.
#[test]
fn nothing_moves_when_all_leases_are_ended() {
    for seed in 0..20 {
        let mut world = fleet(seed, &[1, 1, 1]);
        let moved = world.etcd.moved;
        for _ in 0..3 {
            let now = world.now;
            world.etcd.end_all_leases(now);
            world.run(milliseconds(200 + 100 * seed));
        }
        world.run(LONG / 10);
        assert_eq!(world.etcd.moved, moved, "seed {seed}");
        assert!(is_settled(&world));
    }
}

/// Of those that are gone together each is waited for, but not for long.
#[test]
fn of_many_dead_shards_move_a_little_later() {
    for (seed, weights) in [(1, vec![1; 3]), (2, vec![1; 5])] {
        let mut world = fleet(seed, &weights);
        (1..weights.len()).for_each(|node| world.kill(node));
        world.run_until(LONG, is_settled);
        let most = timing().back() + milliseconds(500);
        assert!(
            world.etcd.slowest > timing().back() / 2 && world.etcd.slowest < most,
            "{:?}",
            world.etcd.slowest
        );
    }
}

#[test]
fn who_was_stopped_takes_nothing_back_by_itself() {
    let mut world = fleet(11, &[1, 1, 1]);
    // The world finds fault with any map of its that touches what others own now.
    world.pause(0, milliseconds(20_000));
    world.run(milliseconds(19_000));
    assert_eq!(world.etcd.map().count(world.id(0)), 0);
    world.run_until(LONG, is_settled);
    assert!(world.etcd.map().count(world.id(0)) > 200);
    assert!(world.nodes[0].shards.as_ref().unwrap().counts().lapses == 1);
}

#[test]
fn a_key_that_somebody_overwrites_is_written_again_or_its_shards_are_taken() {
    for is_killed in [false, true] {
        for is_record in [false, true] {
            let mut world = fleet(23, &[1, 1, 1]);
            let (id, moved) = (world.id(1), world.etcd.moved);
            let value = match is_record {
                true => world.etcd.record(id).unwrap().encode(),
                false => b"damaged".to_vec(),
            };
            if is_killed {
                world.kill(1);
            }
            world.etcd.overwrite(id, &value);
            world.run(milliseconds(500));
            world.run_until(LONG, is_settled);
            match is_killed {
                true => assert_eq!(world.etcd.map().count(id), 0),
                false => assert_eq!(
                    world.etcd.moved, moved,
                    "it was there again before anybody took its shards"
                ),
            }
        }
    }
}

#[test]
fn shards_that_nobody_takes_are_counted() {
    let mut shards = Shards::new(record(0, 1), timing(), 1);
    let me = shards.id();
    // One is another's, which is gone. What is proposed is never answered.
    let mut map = Map::default();
    Shard::all().for_each(|shard| map.set(shard, me));
    let one = Shard::all().next().unwrap();
    map.set(one, record(1, 1).id());
    let entry = |map: &Map, revision| MapEntry {
        value: Some(map.encode()),
        revision,
    };
    let own = Entry {
        id: me,
        value: Some(record(0, 1).encode()),
        revision: 1,
        lease: 7,
    };
    let listed = Listed {
        revision: 2,
        members: vec![own],
        map: Some(entry(&map, 2)),
    };
    let mut orphans = |at, input: Option<Input>| {
        input
            .into_iter()
            .for_each(|input| shards.handle(milliseconds(at), input));
        while shards.poll(milliseconds(at)).is_some() {}
        shards.orphans(milliseconds(at))
    };
    assert_eq!(orphans(0, Some(Input::Listed(Ok(listed)))), 0);
    assert_eq!(orphans(2900, None), 0, "not at once");
    assert_eq!(orphans(3000, None), 1);
    map.set(one, me);
    let changed = Changed::Map(entry(&map, 3));
    assert_eq!(orphans(3100, Some(Input::Changed(vec![changed]))), 0);
}

#[test]
fn three_members_of_etcd_may_be_asked_before_the_lease_is_over() {
    for seconds in [1, 2, 3, 5, 300] {
        let lease = Duration::from_secs(seconds);
        let list = 10 * lease;
        let timing = Timing {
            lease,
            list,
            ..timing()
        };
        let mut shards = Shards::new(record(0, 1), timing, 1);
        let begun = Duration::from_secs(10);
        // Its time, and what is said then.
        let asks = |shards: &mut Shards, now| std::iter::from_fn(|| shards.poll(now)).collect::<Vec<_>>();
        let said = asks(&mut shards, begun);
        assert!(said.contains(&Action::Grant(lease)), "{said:?}");
        shards.handle(begun, Input::Granted(Ok((1, lease))));
        shards.handle(begun, Input::Listed(Err("no answer".to_owned())));
        // Nobody answers: what is asked is given up after its time.
        let (mut now, mut tried, mut lists) = (begun, 0, 0);
        while now < begun + lease {
            now = shards.wake();
            for action in asks(&mut shards, now) {
                match action {
                    Action::Keep(1, within) => {
                        let answered = now + within;
                        tried += u32::from(answered < begun + lease);
                        shards.handle(answered, Input::Kept(Err("no answer".to_owned())));
                        now = answered;
                    }
                    Action::List => {
                        lists += 1;
                        let entries = Listed {
                            revision: 1,
                            members: Vec::new(),
                            map: None,
                        };
                        shards.handle(now, Input::Listed(Ok(entries)));
                    }
                    _ => {}
                }
            }
        }
        assert!(
            tried >= if seconds == 1 { 2 } else { 3 },
            "a lease of {seconds} s: {tried}"
        );
        // The first list, and one when etcd did not answer.
        assert_eq!(lists, 2, "a lease of {seconds} s");
    }
}

#[test]
fn of_two_under_one_name_the_later_one_stays() {
    let mut world = fleet(13, &[1, 1]);
    let mut twin = world::World::new(1, &[1]);
    twin.start(0);
    // The older one hears of the newer one's key.
    let shards = world.nodes[0].shards.as_mut().unwrap();
    let other = Record {
        run: 99,
        ..record(0, 1)
    };
    let entry = Entry {
        id: other.id(),
        value: Some(other.encode()),
        revision: u64::MAX,
        lease: 77,
    };
    shards.handle(world.now, Input::Changed(vec![Changed::Member(entry)]));
    let Membership::Replaced(why) = shards.membership(world.now) else {
        panic!("it goes on")
    };
    assert!(why.contains("gateway-0"), "{why}");
    while let Some(action) = shards.poll(world.now) {
        assert!(matches!(action, Action::List | Action::Unwatch), "{action:?}");
    }
}

#[test]
fn what_is_planned_is_what_gateway_core_plans() {
    let world = fleet(17, &[1, 2, 3]);
    let owners = world
        .etcd
        .map()
        .iter()
        .map(|(shard, owner)| (shard, owner.unwrap()))
        .collect();
    assert!(plan(&owners, &members(&world), usize::MAX).is_empty());
}
