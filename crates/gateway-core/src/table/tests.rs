use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use ringside_wire::MacAddr;

use super::*;
use crate::{TenantAddress, Vni};

fn address(vni: u32, ip: u128) -> TenantAddress {
    let ip = match u32::try_from(ip) {
        Ok(ip) => IpAddr::V4(Ipv4Addr::from(ip)),
        Err(_) => IpAddr::V6(Ipv6Addr::from(ip)),
    };
    TenantAddress::new(Vni::new(vni).unwrap(), ip)
}

fn neighbor(version: u64) -> Neighbor {
    let [_, _, mac @ ..] = version.to_be_bytes();
    Neighbor {
        mac: MacAddr(mac),
        host: HostId(u32::try_from(version & 0xffff_ffff).unwrap()),
        policy: u32::try_from(version >> 3 & 0xffff).unwrap(),
        version,
    }
}

#[derive(Debug, Clone)]
enum Step {
    Put(TenantAddress, u64),
    Remove(TenantAddress, u64),
    Bind(TenantAddress, u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Few of them, so that steps meet; two networks with the same addresses, and addresses whose lower half is the same.
    let vni = prop_oneof![Just(0), Just(7), Just(Vni::MAX.number())];
    let ip = prop_oneof![
        0..40_u128,
        (1..20_u128).prop_map(|n| 1 << 64 | n),
        (1..6_u128).prop_map(|n| n << 64 | 5)
    ];
    let address = (vni, ip).prop_map(|(vni, ip)| address(vni, ip));
    let step = prop_oneof![
        6 => (address.clone(), 0..30_u64).prop_map(|(address, version)| Step::Put(address, version)),
        2 => (address.clone(), 0..30_u64).prop_map(|(address, version)| Step::Remove(address, version)),
        1 => (address, 0..9_u32).prop_map(|(address, policy)| Step::Bind(address, policy)),
    ];
    prop::collection::vec(step, 0..400)
}

proptest! {
    /// The table is what a plain map with the same rules is, after any steps, also when it was built anew many times.
    #[test]
    fn it_is_a_map_in_which_older_never_replaces_newer(steps in steps()) {
        let table = Neighbors::new();
        let mut model: HashMap<TenantAddress, Neighbor> = HashMap::new();
        let mut reader = table.reader();
        for step in steps {
            let mut writer = table.write();
            match step {
                Step::Put(address, version) => {
                    let expected = match model.get(&address) {
                        None => Put::New,
                        Some(&before) if before.version > version => Put::Older(before),
                        Some(before) if before.version == version => Put::Known,
                        Some(&before) => Put::Replaced(before),
                    };
                    if matches!(expected, Put::New | Put::Replaced(_)) {
                        model.insert(address, neighbor(version));
                    }
                    prop_assert_eq!(writer.put(address, neighbor(version)), expected);
                }
                Step::Remove(address, version) => {
                    let expected = match model.get(&address) {
                        None => Removed::Unknown,
                        Some(&before) if before.version > version => Removed::Older(before),
                        Some(&before) => Removed::Gone(before),
                    };
                    if matches!(expected, Removed::Gone(_)) {
                        model.remove(&address);
                    }
                    prop_assert_eq!(writer.remove(address, version), expected);
                }
                Step::Bind(address, policy) => {
                    let known = model.get_mut(&address).map(|neighbor| neighbor.policy = policy);
                    prop_assert_eq!(writer.set_policy(address, policy), known.is_some());
                }
            }
        }
        prop_assert_eq!(table.len(), model.len());
        let mut all = HashMap::new();
        table.for_each(|address, neighbor| assert_eq!(all.insert(address, neighbor), None, "once each"));
        prop_assert_eq!(&all, &model);
        // Whoever is there, between others that are not.
        let asked: Vec<_> = model.keys().copied().chain((0..70).map(|n| address(3, n))).collect();
        let mut found = vec![None; asked.len()];
        reader.look_up(&asked, &mut found);
        for (address, found) in asked.iter().zip(found) {
            prop_assert_eq!(found, model.get(address).copied());
        }
    }
}

/// While a writer changes, removes and adds, a reader finds every address that is always there, and never half of a
/// change: MAC address, host and rules of what it finds all say the same version.
#[test]
fn readers_see_whole_values_while_all_changes() {
    const ADDRESSES: u32 = 2_000;
    let table = Neighbors::new();
    let ours = |n: u32| [address(1, u128::from(n)), address(1, u128::from(n) + (7 << 64))];
    for address in (0..ADDRESSES).flat_map(ours) {
        table.write().put(address, neighbor(1));
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut reader = table.reader();
            let (mut newest, mut rounds) = (1, 0_u64);
            let addresses: Vec<_> = (0..ADDRESSES).flat_map(ours).collect();
            let mut found = vec![None; addresses.len()];
            while !done.load(Ordering::Relaxed) {
                reader.look_up(&addresses, &mut found);
                for (address, found) in addresses.iter().zip(&found) {
                    let found = found.unwrap_or_else(|| panic!("{address} is always there"));
                    assert_eq!(found, neighbor(found.version), "of one version");
                    newest = newest.max(found.version);
                }
                rounds += 1;
            }
            (newest, rounds)
        });
        for version in 2..60 {
            for n in 0..ADDRESSES {
                for address in ours(n) {
                    table.write().put(address, neighbor(version << 16 | u64::from(n)));
                }
                // Others come and go, so that shards are built anew all the time.
                let other = address(2, u128::from(n) * version as u128);
                table.write().put(other, neighbor(version));
                if n % 3 == 0 {
                    table.write().remove(other, u64::MAX);
                }
            }
        }
        done.store(true, Ordering::Relaxed);
        let (newest, rounds) = reading.join().expect("no panic");
        assert!(rounds > 0 && newest > 1, "{rounds} rounds up to {newest}");
    });
    assert!(table.write().put(address(1, 0), neighbor(1)) != Put::New);
}

/// Whichever number of them there is: of 200 bytes for a neighbour the fast path's cache has the larger part.
#[test]
fn slots_are_few() {
    let table = Neighbors::new();
    let mut writer = table.write();
    let mut worst = [0_usize; 2];
    for n in 0..200_000_u32 {
        writer.put(address(n % 100, u128::from(n)), neighbor(1));
        if n > 50_000 && n % 1000 == 0 {
            drop(writer);
            worst[0] = worst[0].max(table.family_memory()[0] / (n as usize + 1));
            writer = table.write();
        }
    }
    for n in 0..200_000_u32 {
        writer.put(address(n % 100, u128::from(n) + (1 << 64)), neighbor(1));
        if n > 50_000 && n % 1000 == 0 {
            drop(writer);
            worst[1] = worst[1].max(table.family_memory()[1] / (n as usize + 1));
            writer = table.write();
        }
    }
    assert!(worst[0] <= 66 && worst[1] <= 82, "{worst:?} bytes a neighbour");
}

#[test]
fn hosts_are_numbered_once() {
    let hosts = Hosts::new();
    let mut reader = hosts.reader();
    assert_eq!(reader.find(HostId(0)), None);
    let host = |n: u32| Host {
        ip: if n.is_multiple_of(2) {
            IpAddr::V4(Ipv4Addr::from(n + 1))
        } else {
            IpAddr::V6(Ipv6Addr::from(u128::from(n) << 90))
        },
        mac: (!n.is_multiple_of(3)).then_some(MacAddr([2, 0, 0, 0, n.to_be_bytes()[2], n.to_be_bytes()[3]])),
        port: Some(n.to_be_bytes()[3] & 3).filter(|&port| port != 3),
        encapsulation: [None, Some(Encapsulation::Vxlan), Some(Encapsulation::Geneve)][n as usize % 3],
    };
    let ids: Vec<_> = (0..3000).map(|n| hosts.intern(host(n))).collect();
    assert_eq!(hosts.len(), 3000);
    for (n, &id) in (0..3000).zip(&ids) {
        assert_eq!((hosts.intern(host(n)), reader.find(id)), (id, Some(host(n))));
    }
    assert_eq!(reader.find(HostId(3000)), None);

    let found = (MacAddr([2, 9, 9, 9, 9, 9]), 9);
    assert!(!hosts.resolve(HostId(40_000), Some(found)));
    // Neither port nor MAC address were given, both, only the port, only the MAC address.
    for (n, id) in [(3, ids[3]), (4, ids[4]), (6, ids[6]), (7, ids[7])] {
        assert!(hosts.resolve(id, Some(found)));
        let now = Host {
            mac: host(n).mac.or(Some(found.0)),
            port: host(n).port.or(Some(found.1)),
            ..host(n)
        };
        assert_eq!((reader.find(id), reader.given(id)), (Some(now), Some(host(n))));
        assert_eq!(hosts.intern(host(n)), id, "still itself");
        assert!(hosts.resolve(id, None));
        assert_eq!(reader.find(id), Some(host(n)), "{n}: what was given stays");
    }
}
