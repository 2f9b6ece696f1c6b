//! Which of etcd's members a gateway turns to, one after the other; and back to the first, so that one that comes back has its load again.

use std::time::Duration;

use super::chance::mixed;

/// An order of a gateway's own: where all turned from a member to the next of the list, that one would have the load of both.
#[derive(Debug, Clone, Copy)]
pub struct Order(u64);

impl Order {
    /// One that follows from this number.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Which of so many members is asked after so many turns; 0 if there are none.
    #[must_use]
    pub fn place(self, turns: u64, members: usize) -> usize {
        let mut places: Vec<usize> = (0..members).collect();
        places.sort_by_key(|place| mixed(self.0 ^ mixed(*place as u64 + 1)));
        let turn = usize::try_from(turns % (members as u64).max(1)).unwrap_or(0);
        places.get(turn).copied().unwrap_or(0)
    }

    /// The next turn in which the first member is asked; none if it is asked now, and has been for `since`, or another one for less than `most`
    /// and up to a quarter more: those that lost a member at the same time do not come back at the same time.
    #[must_use]
    pub fn back(self, turns: u64, members: usize, since: Duration, most: Duration) -> Option<u64> {
        let members = (members as u64).max(1);
        let later = most / 1024 * u32::from(mixed(self.0).to_be_bytes()[0]);
        let back = turns.next_multiple_of(members);
        (back != turns && since >= most + later).then_some(back)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn all_are_asked_in_turns() {
        for seed in 0..20 {
            let order = Order::new(seed);
            let mut first: Vec<usize> = (0..5).map(|turn| order.place(turn, 5)).collect();
            let then: Vec<usize> = (5..10).map(|turn| order.place(turn, 5)).collect();
            assert_eq!(first, then);
            first.sort_unstable();
            assert_eq!(first, [0, 1, 2, 3, 4]);
        }
        assert_eq!(Order::new(1).place(7, 1), 0);
        assert_eq!(Order::new(1).place(u64::MAX, 0), 0);
    }

    #[test]
    fn the_first_is_asked_again_after_a_while() {
        const MOST: Duration = Duration::from_secs(300);
        for seed in 0..100 {
            let order = Order::new(seed);
            let back = |turns, seconds| order.back(turns, 3, Duration::from_secs(seconds), MOST);
            assert_eq!([back(0, 10_000), back(3, 10_000)], [None, None]);
            assert_eq!([back(1, 299), back(2, 299)], [None, None]);
            assert_eq!([back(1, 375), back(2, 375), back(4, 375)], [Some(3), Some(3), Some(6)]);
            assert_eq!(order.back(7, 1, 2 * MOST, MOST), None, "there is no other");
        }
        let early = (0..100).filter(|seed| Order::new(*seed).back(1, 3, Duration::from_secs(337), MOST).is_some());
        assert!((30..70).contains(&early.count()), "not all at once");
    }

    /// Each of the six orders of three members is about as frequent.
    #[test]
    fn the_load_of_a_member_is_shared_by_the_others() {
        let mut orders = BTreeMap::new();
        for seed in 0..6000 {
            let order = Order::new(mixed(seed));
            *orders.entry([order.place(0, 3), order.place(1, 3)]).or_insert(0) += 1;
        }
        assert_eq!(orders.len(), 6);
        assert!(orders.values().all(|count| (900..1100).contains(count)), "{orders:?}");
    }
}
