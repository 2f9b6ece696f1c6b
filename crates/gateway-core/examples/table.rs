//! What finding neighbours costs, by how many there are: one at a time and in bursts, beside a hash map behind a lock; and both
//! while a second thread changes what is found.
//!
//! `cargo run --release -p ringside-gateway-core --example table [NEIGHBOURS …]`

mod common;

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

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

/// How often a second thread puts something meanwhile.
#[derive(Clone, Copy)]
enum Puts {
    None,
    /// So many times a second.
    Some(u32),
    /// As fast as it can.
    All,
}

const PUTS: [Puts; 3] = [Puts::None, Puts::Some(100_000), Puts::All];
/// Paced ones come in so many parts a second.
const PARTS: u32 = 1000;

/// Measures while a second thread puts. What was measured, and how many were put a second.
fn beside<T>(puts: Puts, mut put: impl FnMut(u64) + Send, measure: impl FnOnce() -> T) -> (T, f64) {
    let (over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let begin = Instant::now();
            let each = match puts {
                Puts::None => return,
                Puts::Some(rate) => u64::from(rate / PARTS),
                Puts::All => 1000,
            };
            for part in 1.. {
                let begun = done.load(Ordering::Relaxed);
                (begun..begun + each).for_each(&mut put);
                done.store(begun + each, Ordering::Relaxed);
                if over.load(Ordering::Relaxed) {
                    return;
                }
                if let Puts::Some(_) = puts {
                    let due = begin + Duration::from_secs(1) * part / PARTS;
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                }
            }
        });
        let begin = Instant::now();
        let before = done.load(Ordering::Relaxed);
        let measured = measure();
        let rate = (done.load(Ordering::Relaxed) - before) as f64 / begin.elapsed().as_secs_f64();
        over.store(true, Ordering::Relaxed);
        (measured, rate)
    })
}

/// Each figure's least and median, and millions put a second by who puts as fast as it can.
fn row(of_each: &[((f64, f64), f64)]) -> String {
    let figures: Vec<String> = of_each
        .iter()
        .map(|((least, median), _)| format!("{least:>6.1} {median:>6.1}"))
        .collect();
    let most = of_each.last().map_or(0.0, |(_, rate)| rate / 1e6);
    format!("{}  {most:>5.2}", figures.join("   "))
}

fn main() {
    let sizes: Vec<u64> = common::sizes([1_000, 10_000, 100_000, 1_000_000, 10_000_000]);
    println!(
        "nanoseconds a look-up of a random known address, least and median of {ROUNDS} rounds of {LOOK_UPS}: one at a time, and in bursts of {BURST}"
    );
    println!(
        "beside nothing, and beside a second thread that puts 100,000 a second, or as many as it can (M/s: millions a second) in place of"
    );
    println!("what is there: in the table, and then in a hash map in a lock");
    println!(
        "{:>10}  family  {:>13}   {:>13}   {:>13}   {:>13}  {:>5}   {:>13}   {:>13}   {:>13}  {:>5}  {:>6}  {:>7}",
        "neighbours",
        "one at a time",
        "alone",
        "100,000/s",
        "all",
        "M/s",
        "map alone",
        "100,000/s",
        "all",
        "M/s",
        "bytes",
        "put, ns"
    );
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
            let bytes = table.memory() as f64 / size as f64;
            let asked: Vec<_> = (0..LOOK_UPS as u64)
                .map(|n| address(random.hash_one(n) % size, v6))
                .collect();

            let mut reader = table.reader();
            let mut found = [None; BURST];
            let single = timed(LOOK_UPS, || {
                for &asked in &asked {
                    assert!(black_box(reader.find(asked)).is_some());
                }
            });
            // Of the second thread: another one each time, and newer than before.
            let changed = |n: u64| (address(random.hash_one(!n) % size, v6), neighbor(n));
            let mut version = 1;
            let ours = PUTS.map(|puts| {
                let put = |n| {
                    let (address, neighbor) = changed(n);
                    version += 1;
                    table.write().put(address, Neighbor { version, ..neighbor });
                };
                beside(puts, put, || {
                    timed(LOOK_UPS, || {
                        for asked in asked.chunks(BURST) {
                            reader.look_up(asked, &mut found);
                            assert!(black_box(&found).iter().all(Option::is_some));
                        }
                    })
                })
            });
            let map: HashMap<_, _, RandomState> = (0..size).map(|n| (address(n, v6), neighbor(n))).collect();
            let map = RwLock::new(map);
            let peer = PUTS.map(|puts| {
                let put = |n| {
                    let (address, neighbor) = changed(n);
                    map.write().expect("nobody panics").insert(address, neighbor);
                };
                beside(puts, put, || {
                    timed(LOOK_UPS, || {
                        for asked in asked.chunks(BURST) {
                            let map = map.read().expect("nobody panics");
                            for asked in asked {
                                assert!(black_box(map.get(asked)).is_some());
                            }
                        }
                    })
                })
            });
            let family = if v6 { "IPv6" } else { "IPv4" };
            println!(
                "{size:>10}  {family:<6}  {:>6.1} {:>6.1}   {}   {}  {bytes:>6.1}  {put:>7.1}",
                single.0,
                single.1,
                row(&ours),
                row(&peer),
            );
        }
    }
}
