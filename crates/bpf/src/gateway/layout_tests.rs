//! What is written is read back, and what the C calls by a number has that number here.

use std::collections::HashMap;

use super::*;
use crate::gateway::{GatewayConfig, Outcome, SlowCause};

const HEADER: &str = include_str!("../bpf/include/gateway.h");

/// Names and numbers of the C's enums and macros.
fn numbers() -> HashMap<&'static str, u32> {
    HEADER
        .lines()
        .filter_map(|line| {
            let line = line.trim();
            let (name, value) = match line.strip_prefix("#define ") {
                Some(rest) => rest.split_once(' ')?,
                None => line.split_once(" = ")?,
            };
            let digits = value.split(|c: char| !c.is_ascii_digit()).next()?;
            Some((name, digits.parse().ok()?))
        })
        .collect()
}

fn entries<T: Entry + Copy + PartialEq + std::fmt::Debug>(all: &[T]) {
    for entry in all {
        let mut bytes = Vec::new();
        entry.write(&mut bytes);
        assert_eq!(bytes.len(), T::LEN);
        assert_eq!(T::read(&bytes), Some(*entry));
    }
}

#[test]
fn what_is_written_is_read_back() {
    let ips: [IpAddr; 2] = ["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
    for ip in ips {
        entries(&[NeighborKey { vni: 0x00ab_cdef, ip }]);
        let neighbor = CachedNeighbor {
            host: ip,
            host_mac: [1, 2, 3, 4, 5, 6],
            mac: [7, 8, 9, 10, 11, 12],
            port: 3,
            tunnel: Some(Tunnel::Geneve),
            policed: true,
            foreign: false,
            guarded: true,
            mtu: NonZeroU16::new(1400),
            mtu_until: NonZeroU32::new(u32::MAX),
            used: false,
        };
        let other = CachedNeighbor {
            tunnel: None,
            policed: false,
            foreign: true,
            guarded: false,
            mtu: None,
            mtu_until: None,
            used: true,
            ..neighbor
        };
        entries(&[neighbor, other]);
        for ports in [[1, 0xfffe], [0xfffe, 1]] {
            let (key, from_higher) = ConnectionKey::new(1, 17, (ip, ports[0]), (ip, ports[1]));
            assert_eq!(
                (key.ends(), from_higher),
                ([(ip, 1), (ip, 0xfffe)], ports[0] > ports[1])
            );
            entries(&[key]);
        }
    }
    entries(&[CachedConnection {
        generation: 1,
        seen: 2,
        name: u64::MAX,
        idle_ms: u32::MAX,
        from_higher: true,
        one_way: false,
        numbers: None,
    }]);
    let side = |number| TcpSide {
        end: number,
        limit: !number,
        window: u16::MAX,
        scale: 14,
    };
    entries(&[CachedConnection {
        generation: 1,
        seen: 2,
        name: 3,
        idle_ms: 4,
        from_higher: false,
        one_way: false,
        numbers: Some(TcpNumbers {
            since: u64::MAX,
            settled: false,
            sides: [side(1), side(u32::MAX)],
        }),
    }]);
    entries(&[PolicySlot::of(0), PolicySlot::of(u32::MAX)]);
    entries(&[PolicySince::first(1).then(u64::MAX)]);
    entries(&[Lease { until: 1, longest: 2 }]);
}

#[test]
fn networks_share_a_slot_only_when_they_are_far_apart() {
    assert_ne!(PolicySlot::of(5), PolicySlot::of(6));
    assert_eq!(PolicySlot::of(5), PolicySlot::of(5 + PolicySlot::COUNT));
}

/// An IPv4 address is not the IPv6 address that is written with it.
#[test]
fn families_are_apart() {
    let v4: IpAddr = "192.0.2.1".parse().unwrap();
    let mapped: IpAddr = "::ffff:192.0.2.1".parse().unwrap();
    let bytes = |ip| {
        let mut bytes = Vec::new();
        NeighborKey { vni: 1, ip }.write(&mut bytes);
        bytes
    };
    assert_ne!(bytes(v4), bytes(mapped));
}

#[test]
fn numbers_are_those_of_the_program() {
    let numbers = numbers();
    for (name, ours) in [
        ("GATEWAY_LAYOUT", LAYOUT),
        ("MOST_PORTS", u32::try_from(MOST_PORTS).unwrap()),
        ("MOST_ADDRESSES", u32::try_from(MOST_ADDRESSES).unwrap()),
        ("MOST_OPTIONS", u32::try_from(MOST_OPTIONS).unwrap()),
        ("CONFIG_SLOTS", CONFIG_SLOTS),
        ("POLICY_SLOTS", POLICY_SLOTS),
        ("ANY_DROP", super::super::config::ANY_DROP.into()),
        ("PASSED", Outcome::Passed.number()),
        ("FORWARDED", Outcome::Forwarded.number()),
        ("REDIRECTED", Outcome::Redirected.number()),
        ("ANSWERED", Outcome::Answered.number()),
        ("DROP_TRANSMIT_LOST", super::super::outcome::TRANSMIT_LOST.into()),
        ("SAMPLES_LOST", super::super::outcome::SAMPLES_LOST),
        ("FOREIGN_PACKETS", super::super::outcome::FOREIGN_PACKETS),
        ("POLICED", POLICED.into()),
        ("HOST_IS_V6", HOST_IS_V6.into()),
        ("FOREIGN", FOREIGN.into()),
        ("GUARDED", GUARDED.into()),
    ] {
        assert_eq!(numbers[name], ours, "{name}");
    }
    for &cause in SlowCause::ALL {
        let name = format!("SLOW_{}", cause.name().to_uppercase().replace('-', "_"));
        assert_eq!(numbers[&*name], cause as u32, "{name}");
    }
    let slow = numbers.keys().filter(|name| name.starts_with("SLOW_")).count();
    assert_eq!(slow, SlowCause::ALL.len() + 2, "besides the first and the last");
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    let ip: IpAddr = "192.0.2.1".parse().unwrap();
    let fine = GatewayConfig {
        addresses: vec![ip; 16],
        ..GatewayConfig::default()
    };
    assert_eq!(fine.check(), Ok(()));
    let more = GatewayConfig {
        addresses: vec![ip; 17],
        ..GatewayConfig::default()
    };
    assert_eq!(more.check().unwrap_err(), "17 own IPv4 addresses: 16 are the most");
}

#[test]
fn the_lane_is_told_whether_it_may_be_taken() {
    let port = crate::gateway::GatewayPort {
        ifindex: 1,
        mac: [0; 6],
        v4: None,
        v6: None,
        mtu: 1500,
    };
    let plain = GatewayConfig {
        vxlan_port: 4789,
        addresses: vec!["192.0.2.1".parse().unwrap()],
        ports: vec![None, None, Some(port)],
        ..GatewayConfig::default()
    };
    let witness = |config: &GatewayConfig| word(&config.bytes(4, 0), 36).unwrap();
    assert_eq!(witness(&plain), 8, "the third port's first queue");
    assert_eq!(word(&plain.bytes(4, 0), 40), Some((4789 << 16) - 20));
    let checks = GatewayConfig {
        check_windows: true,
        ..plain.clone()
    };
    assert_eq!(witness(&checks), 8, "no rules are bound to what goes straight");
    let edits: [fn(&mut GatewayConfig); 7] = [
        |config| config.marking = true,
        |config| config.stale = true,
        |config| config.source_check = true,
        |config| config.derive_source_port = true,
        |config| config.sampling = Some(crate::gateway::Sampling::default()),
        |config| config.addresses = vec!["2001:db8::1".parse().unwrap()],
        |config| config.ports.clear(),
    ];
    for edit in edits {
        let mut config = plain.clone();
        edit(&mut config);
        assert_eq!(witness(&config), crate::gateway::config::NO_WITNESS, "{config:?}");
    }
}
