//! What finding neighbours costs, by how many there are: one at a time and in bursts, beside a hash map behind a lock.
//!
//! `cargo run --release -p ringside-gateway-core --example table [NEIGHBOURS …]`

mod common;

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::RwLock;
use std::time::Instant;

use common::{ROUNDS, timed};
use foldhash::fast::RandomState;
use ringside_gateway_core::table::{HostId, Neighbor};
use ringside_gateway_core::{Neighbors, TenantAddress, Vni};
use ringside_wire::MacAddr;

const BURST: usize = 64;
const LOOK_UPS: usize = 3_200_000;

/// The `n`-th address: 1000 networks, IPv4 or IPv6.
fn address(n: u64, v6: bool) -> TenantAddress {
    #[allow(clippy::cast_possible_truncation, reason = "below 2^32 by the division")]
    let (vni, host) = ((n % 1000) as u32, (n / 1000) as u32);
    let ip = if v6 {
        IpAddr::V6(Ipv6Addr::from(0xfd00_u128 << 112 | u128::from(host)))
    } else {
        IpAddr::V4(Ipv4Addr::from(0x0a00_0000 | host))
    };
    TenantAddress::new(Vni::new(vni).expect("below 1000"), ip)
}

fn neighbor(n: u64) -> Neighbor {
    let [_, _, mac @ ..] = n.to_be_bytes();
    Neighbor {
        mac: MacAddr(mac),
        host: HostId(7),
        policy: 0,
        version: 1,
    }
}

fn main() {
    let mut sizes: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = vec![1_000, 10_000, 100_000, 1_000_000, 10_000_000];
    }
    println!("nanoseconds a look-up of a random known address, least and median of {ROUNDS} rounds of {LOOK_UPS}");
    println!("neighbours  family  burst of {BURST}     one at a time    hash map in a lock  bytes each  put, ns");
    let random = RandomState::default();
    for size in sizes {
        for v6 in [false, true] {
            let table = Neighbors::new();
            let begin = Instant::now();
            let mut writer = table.write();
            for n in 0..size {
                writer.put(address(n, v6), neighbor(n));
            }
            drop(writer);
            let put = begin.elapsed().as_secs_f64() * 1e9 / size as f64;
            let asked: Vec<_> = (0..LOOK_UPS as u64)
                .map(|n| address(random.hash_one(n) % size, v6))
                .collect();

            let mut reader = table.reader();
            let mut found = [None; BURST];
            let burst = timed(LOOK_UPS, || {
                for asked in asked.chunks(BURST) {
                    reader.look_up(asked, &mut found);
                    assert!(black_box(&found).iter().all(Option::is_some));
                }
            });
            let single = timed(LOOK_UPS, || {
                for &asked in &asked {
                    assert!(black_box(reader.find(asked)).is_some());
                }
            });
            let map: HashMap<_, _, RandomState> = (0..size).map(|n| (address(n, v6), neighbor(n))).collect();
            let map = RwLock::new(map);
            let peer = timed(LOOK_UPS, || {
                for asked in asked.chunks(BURST) {
                    let map = map.read().expect("nobody panics");
                    for asked in asked {
                        assert!(black_box(map.get(asked)).is_some());
                    }
                }
            });
            let family = if v6 { "IPv6" } else { "IPv4" };
            println!(
                "{size:>10}  {family}  {:>6.1} {:>6.1}    {:>6.1} {:>6.1}    {:>6.1} {:>6.1}       {:>6.1}      {put:>6.1}",
                burst.0,
                burst.1,
                single.0,
                single.1,
                peer.0,
                peer.1,
                table.memory() as f64 / size as f64,
            );
        }
    }
}
