//! Objects through messages and through text come back as they were; what makes no sense does not come through.

use proptest::prelude::*;

use super::super::text::{NeighborForm, Text as _};
use super::*;

fn any_ip() -> impl Strategy<Value = IpAddr> {
    let any = prop_oneof![
        any::<u32>().prop_map(|ip| IpAddr::V4(ip.into())),
        any::<u128>().prop_map(|ip| IpAddr::V6(ip.into()))
    ];
    any.prop_filter("an address of one host", |ip| unicast(*ip).is_ok())
}

fn any_host_ip() -> impl Strategy<Value = IpAddr> {
    any_ip().prop_filter("an address of a host", |ip| host_address(*ip).is_ok())
}

fn any_mac() -> impl Strategy<Value = MacAddr> {
    any::<[u8; 6]>().prop_map(|[first, rest @ ..]| {
        let [b, c, d, e, f] = rest;
        MacAddr([first & 0xfe | 2, b, c, d, e, f])
    })
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let service = prop_oneof![
        Just(Service::Any),
        any::<u8>().prop_map(|number| Service::Protocol(Protocol(number))),
        (any::<u16>(), any::<u16>()).prop_map(|(a, b)| Service::Ports(Protocol::TCP, a.min(b)..=a.max(b))),
        any::<Option<(u8, Option<u8>)>>().prop_map(Service::Icmp),
    ];
    let remote = prop_oneof![
        Just(Remote::Any),
        (any::<u32>(), 0..=32_u8).prop_map(|(ip, len)| Remote::Prefix(
            ipnet::Ipv4Net::new(ip.into(), len)
                .map(Into::into)
                .expect("a length up to 32")
        )),
        any::<u32>().prop_map(|group| Remote::Group(GroupId(group))),
    ];
    let direction = prop_oneof![Just(Direction::Ingress), Just(Direction::Egress)];
    let family = prop_oneof![Just(None), Just(Some(Family::V4))];
    (any::<u64>(), direction, family, service, remote).prop_map(|(id, direction, family, service, remote)| Rule {
        id: RuleId(id),
        direction,
        family,
        service,
        remote,
    })
}

fn any_vni() -> impl Strategy<Value = Vni> {
    (0..=Vni::MAX.number()).prop_map(|number| Vni::new(number).expect("not above the highest"))
}

proptest! {
    #[test]
    fn a_neighbor_survives_both_ways(
        vni in any_vni(), tenant in any_ip(), mac in any_mac(), ip in any_host_ip(), host_mac in proptest::option::of(any_mac()),
        port in proptest::option::of(0..=254_u8), encapsulation in 0..3_u8, version in 0..=MAX_VERSION,
    ) {
        let encapsulation = [None, Some(Encapsulation::Vxlan), Some(Encapsulation::Geneve)][usize::from(encapsulation)];
        let host = Host { ip, mac: host_mac, port, encapsulation };
        let neighbor = Neighbor { address: TenantAddress::new(vni, tenant), mac, host, version };
        prop_assert_eq!(Neighbor::from_wire(neighbor.to_wire()), Ok(neighbor));
        let json = serde_json::to_string(&neighbor.to_text())?;
        prop_assert_eq!(Neighbor::from_text(&serde_json::from_str(&json)?, 0), Ok(neighbor));
    }

    #[test]
    fn a_group_survives_both_ways(id in any::<u32>(), name in "[a-z ü]{0,20}", rules in proptest::collection::vec(any_rule(), 0..8), version in 0..=MAX_VERSION) {
        let group = Group { id: GroupId(id), name, rules, version };
        prop_assert_eq!(Group::from_wire(group.to_wire()), Ok(group.clone()));
        let json = serde_json::to_string(&group.to_text())?;
        let text = Group::from_text(&serde_json::from_str(&json)?, 0);
        prop_assert_eq!(text, Ok(group));
    }

    #[test]
    fn no_message_makes_it_panic(vni in any::<u32>(), ip in proptest::collection::vec(any::<u8>(), 0..18), port in proptest::option::of(any::<u32>()), kind in any::<i32>()) {
        let host = proto::Host { ip: ip.clone(), mac: ip.clone(), port, encapsulation: kind };
        let message = proto::Neighbor {
            address: Some(proto::TenantAddress { vni, ip: ip.clone() }),
            mac: ip,
            host: Some(host),
            version: u64::from(vni),
        };
        if let Ok(neighbor) = Neighbor::from_wire(message.clone()) {
            prop_assert_eq!(neighbor.to_wire(), message);
        }
    }
}

#[test]
fn what_makes_no_sense_is_told_by_field() {
    let good = proto::Neighbor {
        address: Some(proto::TenantAddress {
            vni: 7,
            ip: vec![10, 0, 0, 1],
        }),
        mac: vec![2, 0, 0, 0, 0, 1],
        host: Some(proto::Host {
            ip: vec![192, 0, 2, 1],
            ..proto::Host::default()
        }),
        version: 1,
    };
    assert!(Neighbor::from_wire(good.clone()).is_ok());
    let host = |host: proto::Host| proto::Neighbor {
        host: Some(host),
        ..good.clone()
    };
    let address = |vni, ip: &[u8]| proto::Neighbor {
        address: Some(proto::TenantAddress { vni, ip: ip.to_vec() }),
        ..good.clone()
    };
    for (message, part) in [
        (address(1 << 24, &[10, 0, 0, 1]), "vni: 16777216"),
        (address(7, &[10, 0, 0]), "ip: 3 bytes"),
        (address(7, &[224, 0, 0, 1]), "ip: 224.0.0.1"),
        (
            proto::Neighbor {
                address: None,
                ..good.clone()
            },
            "address: is missing",
        ),
        (
            proto::Neighbor {
                mac: vec![1, 0, 0, 0, 0, 1],
                ..good.clone()
            },
            "mac: 01:00:00:00:00:01",
        ),
        (
            proto::Neighbor {
                host: None,
                ..good.clone()
            },
            "host: is missing",
        ),
        (host(proto::Host::default()), "host.ip: 0 bytes"),
        (
            host(proto::Host {
                ip: vec![192, 0, 2, 1],
                port: Some(255),
                ..proto::Host::default()
            }),
            "host.port: 254",
        ),
        (
            host(proto::Host {
                ip: vec![192, 0, 2, 1],
                encapsulation: 9,
                ..proto::Host::default()
            }),
            "host.encapsulation: 9",
        ),
        (
            proto::Neighbor {
                version: u64::MAX,
                ..good.clone()
            },
            "version: 18446744073709551615",
        ),
    ] {
        let error = Neighbor::from_wire(message).unwrap_err();
        assert!(error.starts_with(part), "{error:?} does not begin with {part:?}");
    }
    for ip in [
        "127.0.0.1",
        "127.255.255.255",
        "255.255.255.255",
        "::1",
        "::",
        "224.0.0.1",
    ] {
        let ip: IpAddr = ip.parse().unwrap();
        let message = host(proto::Host {
            ip: ip_bytes(ip),
            ..proto::Host::default()
        });
        let put = Neighbor::from_wire(message).and_then(|neighbor| neighbor.check_put());
        assert_eq!(put, Err(format!("host.ip: {ip} is not the address of one host")));
        let mut form = Neighbor::from_wire(good.clone()).unwrap().to_text();
        form.host.ip = ip;
        let text = Neighbor::from_text(&form, 1);
        assert_eq!(text, Err(format!("{ip} is not the address of one host")));
    }
    // Linux routes these as any others.
    for ip in ["240.0.0.1", "255.255.255.254"].map(|ip| ip.parse().unwrap()) {
        assert_eq!(host_address(ip), Ok(ip));
    }
    let mapped = host_address("::ffff:192.0.2.1".parse().unwrap()).unwrap_err();
    assert!(
        mapped.ends_with("is an IPv4 address; write it as 192.0.2.1"),
        "{mapped}"
    );
    // One that an older version took is shown, and can be deleted.
    let old = host(proto::Host {
        ip: vec![127, 0, 0, 1],
        ..proto::Host::default()
    });
    assert!(Neighbor::from_wire(old).is_ok());
    let text = r#"{"vni": 7, "ip": "10.0.0.1", "mac": "02:00:00:00:00:01", "host": {"ip": "192.0.2.1", "porf": 1}}"#;
    let error = serde_json::from_str::<NeighborForm>(text).unwrap_err().to_string();
    assert!(error.contains("unknown field `porf`"), "{error}");
}
