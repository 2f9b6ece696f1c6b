//! Objects by chance, for tests.

use std::net::IpAddr;

use proptest::prelude::*;
use ringside_gateway_core::policy::GroupId;
use ringside_gateway_core::table::{Encapsulation, Host};
use ringside_gateway_core::{TenantAddress, Vni};
use ringside_wire::MacAddr;

use crate::object::{MAX_VERSION, Neighbor, Port};

pub(crate) fn ip() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from)
    ]
}

pub(crate) fn address() -> impl Strategy<Value = TenantAddress> {
    (0..=0xff_ffff_u32, ip()).prop_map(|(vni, ip)| TenantAddress::new(Vni::new(vni).unwrap(), ip))
}

pub(crate) fn neighbor(address: TenantAddress) -> impl Strategy<Value = Neighbor> {
    let encapsulation = prop_oneof![
        Just(None),
        Just(Some(Encapsulation::Vxlan)),
        Just(Some(Encapsulation::Geneve))
    ];
    let host = (
        ip(),
        proptest::option::of(any::<[u8; 6]>().prop_map(MacAddr)),
        proptest::option::of(0..=254_u8),
        encapsulation,
    );
    (any::<[u8; 6]>(), host, 0..=MAX_VERSION).prop_map(move |(mac, (ip, host_mac, port, encapsulation), version)| {
        Neighbor {
            address,
            mac: MacAddr(mac),
            host: Host {
                ip,
                mac: host_mac,
                port,
                encapsulation,
            },
            version,
        }
    })
}

pub(crate) fn port(address: TenantAddress) -> impl Strategy<Value = Port> {
    (proptest::collection::vec(any::<u32>(), 0..20), 0..=MAX_VERSION).prop_map(move |(groups, version)| Port {
        address,
        groups: groups.into_iter().map(GroupId).collect(),
        version,
    })
}
