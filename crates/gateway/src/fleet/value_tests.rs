use proptest::prelude::*;

use super::*;
use crate::fleet::testing::{address, neighbor, port};
use crate::object::MAX_VERSION;

/// Some entries of a block, in order; some of them deleted.
fn entries<O: Packed<Key = TenantAddress>, S: Strategy<Value = O> + 'static>(
    object: impl Fn(TenantAddress) -> S + Clone + 'static,
) -> impl Strategy<Value = (Key, Vec<Entry<O>>)> {
    (address(), any::<u16>(), any::<u16>()).prop_flat_map(move |(address, present, deleted)| {
        let (block, _) = Block::of(address);
        let (key, _) = O::place(address);
        let lows = (0..ADDRESSES).filter(move |low| present & 1 << low != 0);
        let object = object.clone();
        let entry = move |low: u8| {
            let address = block.address(low);
            let is_deleted = deleted & 1 << low != 0;
            (object(address), 0..=MAX_VERSION, 0..i64::MAX).prop_map(move |(object, version, when)| Entry {
                statement: if is_deleted {
                    Statement::Delete(address, version)
                } else {
                    Statement::Put(object)
                },
                deleted: if is_deleted { when } else { 0 },
            })
        };
        let all: Vec<_> = lows.map(entry).collect();
        (Just(key), all)
    })
}

fn survives<O: Packed>(key: Key, entries: &[Entry<O>]) -> Result<(), TestCaseError> {
    match pack(key, entries) {
        None => prop_assert!(entries.is_empty()),
        Some(value) => {
            let read: Vec<Entry<O>> = unpack(key, &value).map_err(TestCaseError::fail)?;
            prop_assert_eq!(&*read, entries);
            prop_assert_eq!(pack(key, &read), Some(value));
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn neighbors_survive_both_ways((key, entries) in entries(neighbor)) {
        survives(key, &entries)?;
    }

    #[test]
    fn ports_survive_both_ways((key, entries) in entries(port)) {
        survives(key, &entries)?;
    }

    #[test]
    fn what_was_changed_on_the_way_is_found((key, entries) in entries(neighbor), at: prop::sample::Index, bit in 0..8_u32) {
        prop_assume!(!entries.is_empty());
        let mut value = pack(key, &entries).unwrap();
        let at = at.index(value.len());
        value[at] ^= 1_u8 << bit;
        prop_assert!(unpack::<Neighbor>(key, &value).is_err());
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), address in address()) {
        // With the checksum that they ought to have, too.
        for key in [Neighbor::place(address).0, Port::place(address).0, Key::Group(GroupId(1))] {
            let mut whole = vec![FORMAT];
            whole.extend_from_slice(&bytes);
            let sum = checksum(key, &whole);
            whole.extend_from_slice(&sum);
            for value in [&*bytes, &*whole] {
                // Whatever it reads, it writes the same.
                if let Ok(entries) = unpack::<Neighbor>(key, value) && !entries.is_empty() {
                    prop_assert_eq!(&*pack(key, &entries).unwrap(), value);
                }
                _ = unpack::<Port>(key, value);
                _ = unpack::<Group>(key, value);
            }
        }
    }
}

#[test]
fn a_value_at_another_key_is_found() {
    let at = |ip: &str| TenantAddress::new(ringside_gateway_core::Vni::new(1).unwrap(), ip.parse().unwrap());
    let entry = Entry::<Neighbor> {
        statement: Statement::Delete(at("10.0.0.1"), 1),
        deleted: 5,
    };
    let (key, _) = Neighbor::place(at("10.0.0.1"));
    let (other, _) = Neighbor::place(at("10.0.1.1"));
    let value = pack(key, &[entry]).unwrap();
    assert!(unpack::<Neighbor>(key, &value).is_ok());
    let complaint = unpack::<Neighbor>(other, &value).unwrap_err();
    assert!(complaint.contains("checksum"), "{complaint}");
}

#[test]
fn a_newer_format_is_told() {
    let key = Key::Group(GroupId(1));
    let mut value = vec![FORMAT + 1];
    let sum = checksum(key, &value);
    value.extend_from_slice(&sum);
    let complaint = unpack::<Group>(key, &value).unwrap_err();
    assert!(complaint.contains("newer program"), "{complaint}");
    assert!(is_newer(key, &value));
    value[0] += 1;
    assert!(!is_newer(key, &value) && !is_newer(key, &[]), "damaged");
    let group = Group {
        id: GroupId(1),
        name: String::new(),
        rules: Vec::new(),
        version: 1,
    };
    let own = Entry {
        statement: Statement::Put(group),
        deleted: 0,
    };
    assert!(!is_newer(key, &pack(key, &[own]).unwrap()));
}
