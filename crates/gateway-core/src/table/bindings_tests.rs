use super::*;
use crate::policy::Policy;

fn address(vni: u32, ip: &str) -> TenantAddress {
    TenantAddress::new(Vni::new(vni).unwrap(), ip.parse().unwrap())
}

#[test]
fn profiles_come_change_and_go_by_address() {
    let policy = Policy::new();
    let mut writer = policy.write();
    let [one, other] = [1, 2].map(|id| Some(writer.profile(&[crate::policy::GroupId(id)])));
    let bindings = Bindings::new();
    let mut reader = bindings.reader();
    for ip in ["10.0.0.1", "fd00::1"] {
        let bound = address(7, ip);
        let elsewhere = address(8, ip);
        assert_eq!(reader.profile(bound), None);
        for profile in [one, one, other, None, None, one] {
            bindings.set(bound, profile);
            assert_eq!(reader.profile(bound), profile, "{bound}");
            assert_eq!(bindings.is_empty(), profile.is_none());
            assert_eq!(reader.profile(elsewhere), None);
        }
        bindings.set(bound, None);
    }
}

#[test]
fn a_network_is_policed_as_long_as_something_is_bound_there() {
    let profile = Some(Policy::new().write().profile(&[]));
    let bindings = Bindings::new();
    let reader = bindings.reader();
    // The first, the last, and two in one word.
    for vni in [0, 62, 63, 64, Vni::MAX.number()] {
        let [first, second] = ["10.0.0.1", "10.0.0.2"].map(|ip| address(vni, ip));
        let is_policed = || reader.is_policed(first.vni) && bindings.is_policed(first.vni);
        bindings.set(first, profile);
        bindings.set(first, profile);
        bindings.set(second, profile);
        assert!(is_policed(), "{vni}");
        assert_eq!(bindings.networks(), [first.vni]);
        let others = (0..=200).filter(|other| *other != vni).filter_map(Vni::new);
        assert_eq!(others.filter(|other| reader.is_policed(*other)).count(), 0);
        bindings.set(first, None);
        bindings.set(first, None);
        assert!(is_policed(), "{vni}");
        bindings.set(second, None);
        assert!(!is_policed(), "{vni}");
    }
    assert!(bindings.is_empty() && bindings.networks().is_empty());
}

#[test]
fn a_network_that_is_held_is_policed_without_anything_bound() {
    let profile = Some(Policy::new().write().profile(&[]));
    let bindings = Bindings::new();
    let address = address(7, "10.0.0.1");
    bindings.hold(address.vni);
    bindings.set(address, profile);
    bindings.set(address, None);
    assert!(bindings.is_policed(address.vni) && bindings.networks() == [address.vni]);
    bindings.set(address, profile);
    bindings.release(address.vni);
    assert!(bindings.is_policed(address.vni));
    bindings.set(address, None);
    assert!(!bindings.is_policed(address.vni) && bindings.networks().is_empty());
}
