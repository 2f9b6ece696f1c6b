use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::shard::plan;

/// What happens to one of a few members.
#[derive(Debug, Clone)]
enum Step {
    Put(u64, u32, bool, bool),
    Remove(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..8_u64, 0..4_u32, any::<bool>(), any::<bool>())
            .prop_map(|(id, weight, is_synced, is_draining)| Step::Put(id, weight, is_synced, is_draining)),
        1 => (0..8_u64).prop_map(Step::Remove),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever members went through, it says what the plan says.
    #[test]
    fn it_says_what_the_plan_says(steps in proptest::collection::vec(step(), 1..24)) {
        let mut planner = Planner::new();
        let mut owners: BTreeMap<Shard, MemberId> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put(id, weight, is_synced, is_draining) => planner.put(Member {
                    id: MemberId(id),
                    weight,
                    is_synced,
                    is_draining,
                }),
                Step::Remove(id) => planner.remove(MemberId(id)),
            }
            let members: Vec<Member> = planner.members().copied().collect();
            let planned = plan(&owners, &members, usize::MAX);
            let targets: Vec<Move> = Shard::all()
                .filter_map(|shard| planner.target(shard, owners.get(&shard).copied()))
                .collect();
            prop_assert_eq!(&planned, &targets);
            // Half of them are made.
            for one in planned.iter().filter(|one| one.shard.number() % 2 == 0) {
                owners.insert(one.shard, one.to);
            }
        }
    }
}
