use proptest::prelude::*;
use ringside_gateway_core::conntrack::Limits;
use ringside_gateway_core::policy::GroupId;
use ringside_gateway_core::table::Host;
use ringside_gateway_core::{TenantAddress, Vni};
use ringside_wire::MacAddr;

use super::*;
use crate::model::{NoDataPath, Tables, Unstored};

fn address(low: u8) -> TenantAddress {
    TenantAddress::new(Vni::new(7).unwrap(), [10, 0, 0, low].into())
}

/// Few objects, few versions, few contents: they meet.
fn change() -> impl Strategy<Value = Change> {
    (0..3_u8, 0..3_u8, 0..5_u64, 0..4_u8).prop_map(|(kind, low, version, content)| match (kind, content) {
        (0, 3) => Change::Neighbor(Statement::Delete(address(low), version)),
        (0, content) => Change::Neighbor(Statement::Put(Neighbor {
            address: address(low),
            mac: MacAddr([2, 0, 0, 0, 0, content]),
            host: Host::at([192, 0, 2, 1].into()),
            version,
        })),
        (1, 3) => Change::Port(Statement::Delete(address(low), version)),
        (1, content) => Change::Port(Statement::Put(Port {
            address: address(low),
            groups: vec![GroupId(content.into())],
            version,
        })),
        (_, 3) => Change::Group(Box::new(Statement::Delete(
            crate::object::GroupKey(GroupId(low.into())),
            version,
        ))),
        (_, content) => Change::Group(Box::new(Statement::Put(Group {
            id: GroupId(low.into()),
            name: content.to_string(),
            rules: Vec::new(),
            version,
        }))),
    })
}

proptest! {
    /// However statements are spread over requests, a key's value and the tables say the same of each.
    #[test]
    fn values_and_tables_go_by_the_same_rule(changes in proptest::collection::vec((change(), any::<bool>()), 1..60)) {
        let tables = std::sync::Arc::new(Tables::new(Limits { connections: 10, ..Limits::default() }));
        let mut unstored = Unstored::new(tables, std::sync::Arc::new(NoDataPath));
        let mut values = std::collections::HashMap::<Key, Vec<u8>>::new();
        let mut waiting: Vec<&Change> = Vec::new();
        for (at, (change, cut)) in changes.iter().enumerate() {
            waiting.push(change);
            if !cut && at + 1 < changes.len() {
                continue;
            }
            // One request of one kind, as the API has them: tables take policy before neighbours.
            for key in waiting.iter().map(|change| key_of(change)).collect::<std::collections::BTreeSet<_>>() {
                let said: Vec<&Change> = waiting.iter().copied().filter(|change| key_of(change) == key).collect();
                let merged = merge(key, values.get(&key).map(Vec::as_slice), &said, 5).unwrap();
                let owned: Vec<Change> = said.into_iter().cloned().collect();
                prop_assert_eq!(unstored.apply(&owned), merged.outcomes);
                match merged.write {
                    Write::Keep => {}
                    Write::Put(value) => _ = values.insert(key, value),
                    Write::Delete => _ = values.remove(&key),
                }
            }
            waiting.clear();
        }
    }
}

#[test]
fn what_was_deleted_long_ago_is_forgotten_and_an_empty_key_goes() {
    let key = key_of(&Change::Neighbor(Statement::Delete(address(1), 1)));
    let delete = |low, version| Change::Neighbor(Statement::Delete(address(low), version));
    let first = merge(key, None, &[&delete(1, 3)], 100).unwrap();
    assert_eq!(first.outcomes, [Outcome::NotFound]);
    let Write::Put(value) = first.write else {
        panic!("{first:?}")
    };
    let second = merge(key, Some(&value), &[&delete(2, 3)], 200).unwrap();
    let Write::Put(value) = second.write else {
        panic!("{second:?}")
    };
    assert_eq!(forget(key, Some(&value), 100), Ok(Write::Keep), "not before its time");
    let Ok(Write::Put(value)) = forget(key, Some(&value), 101) else {
        panic!("one is left")
    };
    assert_eq!(forget(key, Some(&value), 201), Ok(Write::Delete));
    assert_eq!(forget(key, None, 201), Ok(Write::Keep));
}

#[test]
fn the_same_once_more_changes_nothing() {
    let delete = Change::Neighbor(Statement::Delete(address(1), 3));
    let key = key_of(&delete);
    let Write::Put(value) = merge(key, None, &[&delete], 100).unwrap().write else {
        panic!("it is new")
    };
    let again = merge(key, Some(&value), &[&delete], 200).unwrap();
    assert_eq!(
        again,
        Merged {
            write: Write::Keep,
            outcomes: vec![Outcome::Unchanged],
            filled: vec![None]
        }
    );
}

/// A transaction is made, its answer is lost, and somebody puts the object again before it is
/// repeated: what was put then stays.
#[test]
fn an_open_version_is_decided_once() {
    let neighbor = |version| {
        Change::Neighbor(Statement::Put(Neighbor {
            address: address(1),
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            host: Host::at([192, 0, 2, 1].into()),
            version,
        }))
    };
    let open = Change::Neighbor(Statement::Delete(address(1), OPEN_VERSION));
    let key = key_of(&open);
    let value_of = |merged: Merged| match merged.write {
        Write::Put(value) => value,
        other => panic!("{other:?}"),
    };
    let put = merge(key, None, &[&neighbor(3)], 100).unwrap();
    let deleted = merge(key, Some(&value_of(put)), &[&open], 100).unwrap();
    let [Some(again)] = &*deleted.filled else {
        panic!("{deleted:?}");
    };
    let again = again.clone();
    assert_eq!(again, Change::Neighbor(Statement::Delete(address(1), 3)));
    let newer = merge(key, Some(&value_of(deleted)), &[&neighbor(4)], 100).unwrap();
    let repeated = merge(key, Some(&value_of(newer)), &[&again], 200).unwrap();
    assert_eq!((repeated.write, repeated.outcomes), (Write::Keep, vec![Outcome::Older]));
}

#[test]
fn damage_is_told() {
    let delete = Change::Neighbor(Statement::Delete(address(1), 3));
    assert!(merge(key_of(&delete), Some(b"nonsense"), &[&delete], 100).is_err());
}
