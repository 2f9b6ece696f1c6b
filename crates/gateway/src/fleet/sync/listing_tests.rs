use std::collections::BTreeSet;
use std::ops::Bound;

use proptest::prelude::*;
use ringside_gateway_core::policy::GroupId;
use ringside_gateway_core::{TenantAddress, Vni};

use super::*;
use crate::fleet::key::Block;
use crate::fleet::sync::Pair;
use crate::fleet::testing::address;

/// What came of a list: keys, questions, and keys that etcd had to look at.
struct Listed {
    keys: HashSet<Key>,
    asked: usize,
    walked: usize,
}

/// Lists what there is, so many keys a page.
fn list(keys: &BTreeSet<Vec<u8>>, size: usize) -> Listed {
    let mut listing = Listing::new(0);
    let (mut asked, mut walked) = (0, 0);
    loop {
        let Some(Pages {
            kind, after, before, ..
        }) = listing.ask(Duration::ZERO, 0)
        else {
            panic!("it does not go on: {listing:?}")
        };
        asked += 1;
        let first = after.map_or(Bound::Included(kind.as_bytes().to_vec()), Bound::Excluded);
        let end = before.unwrap_or_else(|| format!("{}0", kind.trim_end_matches('/')).into_bytes());
        let range: Vec<_> = keys.range((first, Bound::Excluded(end))).collect();
        walked += range.len();
        let pair = |key: &&Vec<u8>| Pair {
            key: (*key).clone(),
            value: None,
            revision: 1,
        };
        let page = Page {
            revision: 7,
            pairs: range.iter().take(size).map(pair).collect(),
            more: range.len() > size,
        };
        if let Some((revision, keys)) = listing.take(Duration::ZERO, &page) {
            assert_eq!(revision, 7);
            return Listed { keys, asked, walked };
        }
    }
}

fn key() -> impl Strategy<Value = Key> {
    prop_oneof![
        any::<u32>().prop_map(|id| Key::Group(GroupId(id))),
        address().prop_map(|address| Key::Ports(Block::of(address).0)),
        address().prop_map(|address| Key::Neighbors(Block::of(address).0)),
        // Beside each other.
        (0..3000_u32, any::<u8>()).prop_map(|(vni, low)| {
            let address = TenantAddress::new(Vni::new(vni).unwrap(), [10, 0, low, 0].into());
            Key::Neighbors(Block::of(address).0)
        }),
    ]
}

proptest! {
    #[test]
    fn every_key_is_listed(keys in proptest::collection::hash_set(key(), 0..300), size in 1..20_usize) {
        let names = keys.iter().map(|key| key.to_string().into_bytes()).collect();
        prop_assert_eq!(list(&names, size).keys, keys);
    }
}

/// Networks of 4 keys each: pages of all that there is would have etcd look at 10 million.
#[test]
fn a_page_is_not_asked_for_among_all() {
    let block = |vni: u32, low: u8| {
        let address = TenantAddress::new(Vni::new(vni).unwrap(), [10, 0, low, 0].into());
        Key::Neighbors(Block::of(address).0).to_string().into_bytes()
    };
    let keys: BTreeSet<_> = (0..10_000)
        .flat_map(|vni| (0..4).map(move |low| block(vni, low)))
        .collect();
    let listed = list(&keys, 80);
    assert_eq!(listed.keys.len(), 40_000);
    assert!(listed.asked < 600, "{} questions for 500 pages", listed.asked);
    assert!(listed.walked < 4 * keys.len(), "{} keys looked at", listed.walked);
}

#[test]
fn what_is_late_is_asked_for_in_smaller_pages() {
    let mut listing = Listing::new(0);
    let mut smaller = || {
        let Some(Pages { smaller, .. }) = listing.ask(Duration::ZERO, 0) else {
            panic!("nothing is asked")
        };
        listing.retry(Duration::ZERO);
        smaller
    };
    let asked: Vec<u32> = (0..8).map(|_| smaller()).collect();
    assert_eq!(asked, [0, 1, 2, 3, 4, 5, 5, 5]);
    let empty = Page {
        revision: 7,
        pairs: Vec::new(),
        more: false,
    };
    assert_eq!(listing.take(Duration::ZERO, &empty), None);
    assert!(matches!(listing.ask(Duration::ZERO, 0), Some(Pages { smaller: 4, .. })));
}

/// A list that was in vain is followed by another one within twice, four times, then always eight times what it took; one after something else at once.
#[test]
fn lists_in_vain_are_put_off() {
    let took = Duration::from_secs(10);
    let mut chance = Chance::new(1);
    let mut vain = Vain::default();
    assert_eq!(vain.wait(None, &mut chance), Duration::ZERO);
    let mut longest = [Duration::ZERO; 5];
    for _ in 0..1000 {
        vain = Vain::default();
        for longest in &mut longest {
            *longest = vain.wait(Some(took), &mut chance).max(*longest);
        }
    }
    for (longest, times) in longest.iter().zip([2, 4, 8, 8, 8]) {
        assert!((took * times / 10 * 9..took * times).contains(longest), "{longest:?}");
    }
    assert_eq!(vain.wait(None, &mut chance), Duration::ZERO);
}
