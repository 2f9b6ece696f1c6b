//! What the caches take, as the kernel counts it.

use std::net::{IpAddr, Ipv6Addr};
use std::{fs, io};

use ringside_bpf::gateway::{GatewayProgram, Sizes};
use ringside_gateway_core::table::{HostId, Neighbor};
use ringside_gateway_core::{Neighbors, TenantAddress, Vni};
use ringside_wire::MacAddr;

use crate::common::privileged;
use crate::gateway::bed::SIZES;

/// What is told of one of this process's maps: <https://elixir.bootlin.com/linux/v6.18/C/ident/bpf_map_show_fdinfo>
struct Map {
    value_size: u64,
    entries: u64,
    bytes: u64,
}

fn maps() -> io::Result<Vec<Map>> {
    let mut maps = Vec::new();
    for file in fs::read_dir("/proc/self/fdinfo")? {
        // Other tests close theirs.
        let Ok(text) = fs::read_to_string(file?.path()) else {
            continue;
        };
        let field = |name: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            found.and_then(|value| value.trim().parse().ok())
        };
        maps.extend(field("value_size").zip(field("max_entries")).zip(field("memlock")).map(
            |((value_size, entries), bytes)| Map {
                value_size,
                entries,
                bytes,
            },
        ));
    }
    Ok(maps)
}

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

/// A neighbour takes no more than 200 bytes of table and cache, and they are what there is of each: hosts are shared. The rest of the
/// program (SQLite's cache, rows under way) does not grow with them.
#[test]
fn entries_take_what_is_told_of_them() {
    /// As `cached-neighbors` is counted by, and docs/gateway.md has it.
    const NEIGHBOR: u64 = 90;
    /// The kernel's hash has as many buckets as the next power of two of entries.
    const CONNECTION: std::ops::RangeInclusive<u64> = 176..=192;
    /// Of the table, in a build with as much room as it may have.
    const WORST: [u64; 2] = [75, 105];
    if !privileged() {
        return;
    }
    // Numbers that no other test has.
    let sizes = Sizes {
        neighbors: 1_000_003,
        connections: 70_001,
        ..SIZES
    };
    let program = GatewayProgram::load(sizes).unwrap();
    let maps = maps().unwrap();
    let neighbors = maps
        .iter()
        .filter(|map| map.value_size == 64 && map.entries != u64::from(sizes.connections))
        .map(|map| map.bytes)
        .max()
        .unwrap();
    let each = neighbors.div_ceil(sizes.neighbors.into());
    assert_eq!(each, NEIGHBOR);
    let connections = maps
        .iter()
        .find(|map| map.entries == u64::from(sizes.connections))
        .unwrap();
    let each_connection = connections.bytes.div_ceil(sizes.connections.into());
    assert!(CONNECTION.contains(&each_connection), "{each_connection}");
    for (v6, worst) in [false, true].into_iter().zip(WORST) {
        let table = of_table(100_000, v6);
        assert!(table <= worst && worst + each <= 200, "{table} and {each}");
    }
    println!("{each} bytes a neighbour, {each_connection} a connection");
    drop(program);
}
