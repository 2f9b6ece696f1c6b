use super::*;

fn slot(version: u32) -> Slot {
    Slot {
        version: version.into(),
        network: 0.into(),
        address: [0, 0].map(AtomicU64::new),
        value: [0; 5].map(AtomicU64::new),
    }
}

const KEY: Key = Key {
    network: 7,
    address: [1, 2],
};

/// Who reads meanwhile would take it for a miss.
#[test]
fn what_is_the_same_was_not_changed() {
    let slot = slot(0);
    let version = || slot.version.load(Ordering::Relaxed);
    slot.put(KEY, [1, 2, 3, 4, 5]);
    assert_eq!((version(), slot.key(), slot.value()), (2, KEY, [1, 2, 3, 4, 5]));
    slot.put(KEY, [1, 2, 3, 4, 5]);
    assert_eq!(version(), 2);
    for (put, value) in [(4, [1, 2, 3, 4, 6]), (6, [0, 2, 3, 4, 6])] {
        slot.put(KEY, value);
        assert_eq!((version(), slot.value()), (put, value));
    }
    let other = Key { address: [1, 3], ..KEY };
    slot.put(other, [0, 2, 3, 4, 6]);
    assert_eq!((version(), slot.key()), (8, other));
    slot.clear();
    assert!(slot.is_free() && version() == 10);
}

/// Its writer was killed when all but the version was written.
#[test]
fn what_was_left_half_done_is_done() {
    let slot = slot(1);
    slot.clear();
    assert_eq!(slot.version.load(Ordering::Relaxed), 2);
}
