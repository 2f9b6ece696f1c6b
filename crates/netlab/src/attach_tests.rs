use std::collections::BTreeSet;

use super::*;

#[test]
fn ways_are_known_by_their_names() {
    let names: BTreeSet<&str> = Way::ALL.iter().map(|way| way.name()).collect();
    assert_eq!(names.len(), Way::ALL.len());
    for way in Way::ALL {
        assert_eq!(way.to_string().parse(), Ok(way));
    }
    let error = "carrier-pigeon".parse::<Way>().expect_err("there is none").to_string();
    assert!(
        error.contains("'carrier-pigeon'") && error.contains("tap-bridge, vhost-net"),
        "{error}"
    );
}

#[test]
fn hardware_addresses_are_local_and_differ() {
    let macs: BTreeSet<[u8; 6]> = (0..100)
        .map(|number| AttachConfig::new(format!("g{number}")).mac)
        .collect();
    assert_eq!(macs.len(), 100);
    assert!(macs.iter().all(|mac| mac[0] & 3 == 2), "{macs:?}");
}
