//! What the caches take, as the kernel counts it.

use std::net::{IpAddr, Ipv6Addr};

use ringside_bpf::gateway::{CachedConnection, ConnectionKey, GatewayProgram, Sizes};
use ringside_gateway_core::table::{HostId, Neighbor};
use ringside_gateway_core::{Neighbors, TenantAddress, Vni};
use ringside_wire::MacAddr;

use crate::common::privileged;
use crate::gateway::bed::SIZES;

/// Bytes of each neighbour of so many in the table of user space, of one family.
fn of_table(count: u32, v6: bool) -> u64 {
    let table = Neighbors::new();
    let mut writer = table.write();
    for number in 0..count {
        let ip: IpAddr = match v6 {
            false => number.to_be_bytes().into(),
            true => Ipv6Addr::from(0xfd << 120 | u128::from(number)).into(),
        };
        let neighbor = Neighbor {
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            host: HostId(1),
            policy: 0,
            version: 1,
        };
        writer.put(TenantAddress::new(Vni::new(number % 100).unwrap(), ip), neighbor);
    }
    drop(writer);
    (table.memory() as u64).div_ceil(count.into())
}

/// Returns this many connections of one network.
fn connections(count: u32) -> Vec<(ConnectionKey, CachedConnection)> {
    let connection = |number: u32| {
        let source = (number.to_be_bytes().into(), 1);
        let (key, from_higher) = ConnectionKey::new(1, 6, source, ([10, 0, 0, 1].into(), 2));
        let value = CachedConnection {
            generation: 1,
            seen: 0,
            idle_ms: 1000,
            from_higher,
            one_way: false,
            name: number.into(),
            numbers: None,
        };
        (key, value)
    };
    (0..count).map(connection).collect()
}

/// A neighbour takes no more than 200 bytes of table and cache, and they are what there is of each: hosts are shared. The rest of the
/// program (SQLite's cache, rows under way) does not grow with them.
#[test]
fn entries_take_what_is_told_of_them() {
    /// As `cached-neighbors` is counted by, and docs/gateway.md has it.
    const NEIGHBOR: u64 = 90;
    /// The kernel's hash has as many buckets as the next power of two of entries.
    const BUCKETS: std::ops::RangeInclusive<u64> = 16..=32;
    /// All that a connection takes while it is there.
    const CONNECTION: std::ops::RangeInclusive<u64> = 200..=216;
    /// Of the table, in a build with as much room as it may have.
    const WORST: [u64; 2] = [75, 105];
    if !privileged() {
        return;
    }
    let sizes = Sizes {
        neighbors: 1_000_003,
        connections: 70_001,
        ..SIZES
    };
    let program = GatewayProgram::load(sizes).unwrap();
    let bytes_of = |map: &str, entries: u32| {
        let all = program.memory().unwrap();
        let (_, bytes) = all.iter().find(|(name, _)| *name == map).unwrap();
        bytes.div_ceil(entries.into())
    };
    let each = bytes_of("neighbors", sizes.neighbors);
    assert_eq!(each, NEIGHBOR);
    let of_connections = || bytes_of("connections", sizes.connections);
    let empty = of_connections();
    assert!(BUCKETS.contains(&empty), "{empty}");
    assert_eq!(
        program.connections().put(&connections(sizes.connections)).unwrap(),
        70_001
    );
    let each_connection = of_connections();
    assert!(CONNECTION.contains(&each_connection), "{each_connection}");
    for (v6, worst) in [false, true].into_iter().zip(WORST) {
        let table = of_table(100_000, v6);
        assert!(table <= worst && worst + each <= 200, "{table} and {each}");
    }
    println!("{each} bytes a neighbour, {each_connection} a connection");
    drop(program);
}
