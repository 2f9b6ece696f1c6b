//! Ten million neighbours through the store: whether the tenth million takes longer than the first, what a neighbour takes on
//! the disk and in memory, how long a start takes with all of them, and one change.
//!
//! `cargo bench -p ringside-gateway --bench store [-- MILLIONS] [rising] [scattered] [six] [cached]`, as root: five minutes for ten million.
//! They come in two orders: in each network one after the other, and in none, which is the worst that a store of pages can meet; in
//! none also over IPv6: all three, or those that are named. The fast path caches a million of them, or with `cached` all.

mod common;

use std::time::Duration;

use common::neighbors::{Gateway, Order, ROOM, batches, flush, neighbor};
use ringside_netlab::{Lab, VethConfig};

const MILLION: u32 = 1_000_000;
/// Changes, one after the other.
const CHANGES: u32 = 200;

fn seconds(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64())
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    // What names them has 24 bits.
    let millions = common::numbers().next().unwrap_or(10).clamp(1, 16);
    let lab = Lab::veth(VethConfig::tagged("gws")).expect("a namespace, which takes root");
    let is_said = |name: &str| std::env::args().any(|word| word == name);
    let orders = [
        ("rising", Order::Rising),
        ("scattered", Order::Scattered),
        ("six", Order::Six),
    ];
    let all = !orders.iter().any(|(name, _)| is_said(name));
    let cached = if is_said("cached") { millions * MILLION } else { ROOM };
    for (_, order) in orders.into_iter().filter(|(name, _)| all || is_said(name)) {
        let folder = std::env::temp_dir().join(format!("ringside-store-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        println!(
            "{order:?}; a write of 4 KiB with its flush: {:.2} ms",
            flush(&folder).as_secs_f64() * 1e3
        );
        run(&lab, &folder, order, (millions, cached)).await;
        _ = std::fs::remove_dir_all(&folder);
    }
}

async fn run(lab: &Lab, folder: &std::path::Path, order: Order, (millions, cached): (u32, u32)) {
    let path = format!(
        "[path]\ninterface = \"{}\"\ncached-neighbors = {cached}\n",
        lab.b.interface.name()
    );
    let start = || Gateway::start_as(folder, lab, "", &path);
    let gateway = start().await;
    let all = millions * MILLION;
    // When each million was there.
    let mut marks = vec![Duration::ZERO];
    gateway
        .load(batches(all, order, 1), |changed, took| {
            if changed >= marks.len() as u64 * u64::from(MILLION) {
                marks.push(took);
            }
        })
        .await;
    let each: Vec<String> = marks.windows(2).map(|pair| seconds(pair[1] - pair[0])).collect();
    println!(
        "  load: {} s; of each million {}",
        seconds(marks[marks.len() - 1]),
        each.join(" ")
    );
    tell(&gateway, all, "loaded").await;
    changes(&gateway, all, order).await;
    drop(gateway);
    let gateway = start().await;
    println!("  start after kill -9, until it answers: {} s", seconds(gateway.took));
    tell(&gateway, all, "started").await;
    changes(&gateway, all, order).await;
}

#[allow(clippy::cast_precision_loss, reason = "bytes a neighbour")]
async fn tell(gateway: &Gateway, all: u32, when: &str) {
    let statistics = gateway.statistics().await;
    assert_eq!(statistics.neighbors, u64::from(all));
    let of_each = |bytes: u64| bytes as f64 / f64::from(all);
    println!(
        "  {when}: bytes of each neighbour: {:.0} of the process, {:.0} of which are the table's; {:.0} on the disk; {} are cached",
        of_each(common::memory_of(&gateway.child)),
        of_each(statistics.neighbor_memory_bytes),
        of_each(statistics.store_bytes),
        statistics.cache_entries,
    );
}

/// Changes of some that are there.
async fn changes(gateway: &Gateway, all: u32, order: Order) {
    static VERSION: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(2);
    let version = VERSION.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let mut times = Vec::new();
    for number in 0..CHANGES {
        let number = number.wrapping_mul(0x85eb_ca6b) % all;
        times.push(gateway.put(neighbor(number, order, version)).await);
    }
    times.sort();
    let show = |at: usize| format!("{:.2}", times[at].as_secs_f64() * 1e3);
    println!(
        "  one change, to disk and map: median {} ms, most {} ms",
        show(times.len() / 2),
        show(times.len() - 1)
    );
}
