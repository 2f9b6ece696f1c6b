use super::*;

fn vni(number: u32) -> Vni {
    Vni::new(number).unwrap()
}

#[test]
fn a_change_outdates_its_own_network_and_no_other() {
    let epochs = Epochs::new(1000);
    let [one, other] = [vni(1), vni(2)].map(slot_of);
    assert_eq!(epochs.latest(), 1000);
    assert!(
        epochs.holds(one, 1000) && !epochs.holds(one, 999),
        "nothing from before"
    );
    let second = epochs.begin([one]);
    assert_eq!(epochs.latest(), second);
    assert!(!epochs.holds(one, 1000) && epochs.holds(one, second));
    assert!(epochs.holds(other, 1000) && epochs.holds(other, second));
    let third = epochs.begin([other]);
    assert!(epochs.holds(one, second), "not touched by the third");
    assert!(!epochs.holds(other, second) && epochs.holds(other, third));
}

#[test]
fn a_slot_is_policed_as_long_as_one_of_its_networks_is() {
    let (first, second) = (vni(7), vni(7 + PolicySlot::COUNT));
    let slot = slot_of(first);
    assert_eq!(slot, slot_of(second));
    let mut policed = Policed::of([first]);
    assert!(policed.has(first) && !policed.has(second) && policed.has_slot(slot));
    let before = policed.changes();
    assert!(policed.set(second, true) && !policed.set(second, true));
    assert!(policed.set(first, false) && !policed.set(first, false));
    assert!(!policed.has(first) && policed.has_slot(slot));
    assert!(policed.set(second, false));
    assert!(!policed.has_slot(slot));
    assert_eq!(policed.changes(), before + 3);
}
