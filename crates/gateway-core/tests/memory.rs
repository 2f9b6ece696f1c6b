//! What the table of connections takes of the memory, with the gateway's allocator.

use std::fs;
use std::net::Ipv4Addr;

use ringside_gateway_core::Vni;
use ringside_gateway_core::conntrack::{Connection, ConnectionId, Conntrack, Limits, State};
use ringside_netlab::testing::skip_unsupported;
use ringside_nic::HugePages;
use ringside_wire::Protocol;

#[global_allocator]
static MEMORY: HugePages = HugePages;

const MIB: usize = 1 << 20;

/// Returns the bytes of anonymous memory that this process has.
fn anonymous() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<usize>().unwrap() * 1024
}

/// They are in all stripes, each of which is less than a huge page. Without huge pages they take
/// little with any allocator.
#[test]
fn few_connections_of_a_large_table_take_little_memory() {
    let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    if !enabled.is_ok_and(|modes| modes.contains("[always]") || modes.contains("[madvise]")) {
        return skip_unsupported("transparent huge pages");
    }
    let table = Conntrack::new(Limits {
        connections: 1_000_000,
        ..Limits::default()
    });
    let before = anonymous();
    for port in 0..4096 {
        let connection = Connection {
            vni: Vni::new(5).unwrap(),
            source: Ipv4Addr::new(10, 0, 0, 1).into(),
            destination: Ipv4Addr::new(10, 0, 0, 2).into(),
            protocol: Protocol::UDP,
            ports: [port, 53],
            state: State::UdpReplied,
            seen: 1,
            profiles: [None, None],
            generation: 0,
            handed_over: false,
            id: ConnectionId::from_bits(0),
        };
        assert!(table.restore(1, &connection));
    }
    let taken = anonymous().saturating_sub(before);
    assert!(taken < 16 * MIB, "{} MiB", taken / MIB);
}
