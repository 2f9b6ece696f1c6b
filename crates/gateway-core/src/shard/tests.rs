use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn member(id: u64, weight: u32) -> Member {
    Member {
        id: MemberId(id),
        weight,
        is_synced: true,
        is_draining: false,
    }
}

fn members() -> impl Strategy<Value = Vec<Member>> {
    let one = (
        any::<u64>(),
        0..5_u32,
        prop::bool::weighted(0.8),
        prop::bool::weighted(0.2),
    );
    proptest::collection::btree_map(any::<u64>(), one, 1..12).prop_map(|members| {
        let of = |(id, (_, weight, is_synced, is_draining))| Member {
            id: MemberId(id),
            weight,
            is_synced,
            is_draining,
        };
        members.into_iter().map(of).collect()
    })
}

fn all(members: &[Member]) -> HashMap<Shard, MemberId> {
    Shard::all()
        .map(|shard| (shard, preferred(shard, members).unwrap().id))
        .collect()
}

fn make(owners: &mut BTreeMap<Shard, MemberId>, moves: &[Move]) {
    for one in moves {
        assert_eq!(owners.get(&one.shard).copied(), one.from);
        owners.insert(one.shard, one.to);
    }
}

/// Until there is nothing more to move.
fn settle(owners: &mut BTreeMap<Shard, MemberId>, members: &[Member], most: usize) -> usize {
    for rounds in 0.. {
        let moves = plan(owners, members, most);
        assert!(moves.iter().filter(|one| !one.is_urgent).count() <= most);
        if moves.is_empty() {
            return rounds;
        }
        make(owners, &moves);
        assert!(rounds < 2000, "it does not end");
    }
    unreachable!()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn who_goes_moves_its_own_shards_alone(members in members(), gone in any::<prop::sample::Index>()) {
        prop_assume!(members.len() > 1);
        let before = all(&members);
        let gone = members[gone.index(members.len())].id;
        let rest: Vec<Member> = members.into_iter().filter(|member| member.id != gone).collect();
        for (shard, owner) in all(&rest) {
            prop_assert!(before[&shard] == owner || before[&shard] == gone);
        }
    }

    #[test]
    fn the_order_does_not_matter(members in members(), turn in 0..12_usize) {
        let mut other = members.clone();
        other.rotate_left(turn % members.len());
        prop_assert_eq!(all(&members), all(&other));
    }

    /// From any state: nobody who lives and serves loses a shard to one who is not synced, all that can be served are in the end,
    /// and it comes to rest.
    #[test]
    fn plans_end_and_take_nothing_too_early(
        members in members(), owned in proptest::collection::vec(proptest::option::of(0..14_usize), SHARDS as usize), most in 64..512_usize,
    ) {
        let mut owners = BTreeMap::new();
        for (shard, owner) in Shard::all().zip(owned) {
            // Some are gone.
            let id = owner.map(|owner| members.get(owner).map_or(MemberId(u64::MAX), |member| member.id));
            owners.extend(id.map(|id| (shard, id)));
        }
        let of = |id: MemberId| members.iter().find(|member| member.id == id);
        for one in plan(&owners, &members, most) {
            let to = of(one.to).unwrap();
            match one.from.and_then(of) {
                Some(_) => prop_assert!(to.is_synced && !to.is_draining && !one.is_urgent),
                None => {
                    prop_assert!(one.is_urgent);
                    let better = members.iter().any(|member| member.is_synced && !member.is_draining);
                    prop_assert!(!better || (to.is_synced && !to.is_draining));
                }
            }
        }
        settle(&mut owners, &members, most);
        prop_assert_eq!(owners.len(), SHARDS as usize, "each has an owner");
        for (shard, owner) in owners {
            let owner = of(owner).expect("who lives");
            let can = members.iter().any(|member| member.is_synced && !member.is_draining);
            prop_assert!(!owner.is_draining || !can, "{shard:?} is at {owner:?}");
        }
    }
}

#[test]
fn shares_follow_weights() {
    let members: Vec<Member> = (0..10)
        .map(|id| member(id * 7 + 1, if id < 5 { 1 } else { 3 }))
        .collect();
    let mut counts = HashMap::new();
    all(&members)
        .into_values()
        .for_each(|owner| *counts.entry(owner).or_insert(0_u32) += 1);
    for member in &members {
        let expected = SHARDS * member.weight / 20;
        let found = counts[&member.id];
        // Four standard deviations.
        assert!(
            found.abs_diff(expected) < 4 * expected.isqrt(),
            "{member:?}: {found}, not {expected}"
        );
    }
    assert!(
        !all(&[member(1, 0), member(2, 1)])
            .values()
            .any(|owner| *owner == MemberId(1)),
        "weight 0 gets nothing"
    );
}

#[test]
fn networks_are_spread() {
    let mut counts = vec![0_u32; SHARDS as usize];
    for number in 0..102_400 {
        counts[Shard::of(Vni::new(number).unwrap()).number() as usize] += 1;
    }
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(*least > 50 && *most < 160, "{least} to {most}, for 100 each");
}

/// Another version of the program, or another machine, has to come to the same.
#[test]
fn what_was_decided_stays() {
    let members: Vec<Member> = (1..=5).map(|id| member(id, 1)).collect();
    let owners: Vec<u64> = Shard::all()
        .take(16)
        .map(|shard| preferred(shard, &members).unwrap().id.0)
        .collect();
    assert_eq!(owners, GOLDEN);
    let shards: Vec<u32> = [1, 42, 100, 0xff_ffff]
        .map(|vni| Shard::of(Vni::new(vni).unwrap()).number())
        .to_vec();
    assert_eq!(shards, GOLDEN_SHARDS);
}

const GOLDEN: [u64; 16] = [4, 4, 3, 2, 4, 4, 5, 2, 4, 2, 5, 5, 5, 3, 5, 3];
const GOLDEN_SHARDS: [u32; 4] = [466, 729, 768, 740];

#[test]
fn the_logarithm_is_one() {
    for random in [1_u64, 3, 1 << 20, u64::MAX / 3, u64::MAX / 2, u64::MAX - 5] {
        let exact = -((random | 1) as f64 / 2_f64.powi(64)).log2();
        let found = minus_log2(random) as f64 / 2_f64.powi(32);
        assert!((exact - found).abs() < 1e-8, "{random}: {found}, not {exact}");
    }
}

proptest! {
    /// Without logarithms as with them, also where they are nearly the same.
    #[test]
    fn what_beats_what_is_so_without_logarithms(
        random: u64, by in -5_i64..5, bits in 0..64_u32, weights in (0..3_u32, 0..3_u32), ids in (0..2_u64, 0..2_u64),
    ) {
        let near = random.saturating_add_signed(by.wrapping_mul(1_i64.wrapping_shl(bits)));
        let one = Score { id: MemberId(ids.0), weight: weights.0, random };
        let other = Score { id: MemberId(ids.1), weight: weights.1, random: near };
        prop_assert_eq!(one.beats(other), one.beats_exactly(other));
        prop_assert_eq!(other.beats(one), other.beats_exactly(one));
        let next = Score { random: random.saturating_add((random >> 30) + 2), ..other };
        prop_assert_eq!(one.beats(next), one.beats_exactly(next));
    }
}

#[test]
fn who_drains_keeps_what_nobody_can_take() {
    let mut one = member(1, 1);
    let mut owners: BTreeMap<Shard, MemberId> = Shard::all().map(|shard| (shard, one.id)).collect();
    one.is_draining = true;
    let mut two = member(2, 1);
    two.is_synced = false;
    assert_eq!(plan(&owners, &[one, two], 5000), []);
    two.is_synced = true;
    assert_eq!(settle(&mut owners, &[one, two], 100), 11, "100 at a time");
    assert!(owners.values().all(|owner| *owner == two.id));
}

#[test]
fn who_comes_takes_its_share_when_it_is_synced() {
    let one = member(1, 1);
    let mut owners: BTreeMap<Shard, MemberId> = Shard::all().map(|shard| (shard, one.id)).collect();
    let mut two = member(2, 1);
    two.is_synced = false;
    assert_eq!(plan(&owners, &[one, two], 5000), []);
    two.is_synced = true;
    settle(&mut owners, &[one, two], 5000);
    let share = owners.values().filter(|owner| **owner == two.id).count();
    assert!((400..624).contains(&share), "{share}");
    // Without it all goes back at once.
    let moves = plan(&owners, &[one], 0);
    assert_eq!(moves.len(), share);
    assert!(moves.iter().all(|one| one.is_urgent));
}
