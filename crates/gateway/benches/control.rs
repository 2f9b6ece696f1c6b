//! How long neighbours take until the XDP program knows them: from when they are known to a process, from the API with the
//! store's commit, and from the start of the program.
//!
//! `cargo bench -p ringside-gateway --bench control [-- ROUNDS]`, as root, with an interface in a namespace. The first of the
//! three begins with messages as they come in and ends with tables and map; there is no store and no connection. For the second
//! the program runs as a child, and times are a client's, from the first byte of the request to the last byte of the answer.
//! The third ends with the first packet that is forwarded, to a tenant in the middle of what the store knows; it is measured with
//! the caches of the first two, and as everything is by default. Beside them what one flush to the same disk takes.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::neighbors::{Gateway, Order, ROOM, batches, flush, milliseconds, neighbor};
use common::wire::{First, Wire};
use prost::Message as _;
use ringside_gateway::datapath::{PathOptions, XdpPath};
use ringside_gateway::model::{DataPath, Outcome, Tables, Unstored};
use ringside_gateway::object::wire::Wire as _;
use ringside_gateway::object::{Change, Neighbor, Object as _, Statement};
use ringside_gateway::proto::LoadNeighborsRequest;
use ringside_gateway_core::conntrack::Limits;
use ringside_gateway_core::testing::tenant_udp;
use ringside_netlab::Lab;
use ringside_wire::{MacAddr, vxlan};

const SIZES: [u32; 7] = [1, 5, 100, 1000, 10_000, 100_000, LARGEST];
const LARGEST: u32 = 1_000_000;

/// From messages to the map, without a store.
fn apply(lab: &Lab, size: u32) -> Duration {
    let limits = Limits {
        connections: 1000,
        ..Limits::default()
    };
    let tables = Arc::new(Tables::new(limits));
    let options = PathOptions {
        interfaces: vec![lab.b.interface.name().to_owned()],
        cached_neighbors: ROOM..=ROOM,
        ..PathOptions::default()
    };
    let path = lab.b.run(|| XdpPath::start(&options, &tables)).expect("a data path");
    let path: Arc<dyn DataPath> = Arc::new(path);
    let mut unstored = Unstored::new(tables, Arc::clone(&path));
    let messages: Vec<Vec<u8>> = batches(size, Order::Rising, 1)
        .map(|batch| batch.encode_to_vec())
        .collect();
    let began = Instant::now();
    for message in &messages {
        let batch = LoadNeighborsRequest::decode(&**message).expect("a message");
        let read = |neighbor| {
            let neighbor = Neighbor::from_wire(neighbor).expect("a neighbour");
            Neighbor::into_change(Statement::Put(neighbor))
        };
        let changes: Vec<Change> = batch.neighbors.into_iter().map(read).collect();
        let outcomes = unstored.apply(&changes);
        assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Created));
    }
    let took = began.elapsed();
    assert_eq!(
        path.counters().cache_entries,
        u64::from(size),
        "all of them are in the map"
    );
    took
}

/// From the API to disk and map.
async fn load(gateway: &Gateway, size: u32) -> Duration {
    // Made before: that is not the gateway's time.
    let batches: Vec<_> = batches(size, Order::Rising, 1).collect();
    let mut last = (0, Duration::ZERO);
    gateway
        .load(batches.into_iter(), |changed, took| last = (changed, took))
        .await;
    assert_eq!(last.0, u64::from(size), "all of them are there");
    last.1
}

/// What a host sends to one of the tenants in a tunnel.
fn tunnelled() -> Vec<u8> {
    let to = neighbor(LARGEST / 2, Order::Rising, 1);
    let address = to.address.expect("it has one");
    let ip: [u8; 4] = address.ip.try_into().expect("IPv4");
    let macs = [
        MacAddr([2, 0, 0, 0, 0, 1]),
        MacAddr(to.mac.try_into().expect("a MAC address")),
    ];
    let frame = tenant_udp(macs, [[10, 255, 0, 1].into(), ip.into()], [1000, 2000], 64, &[0; 18]);
    let mut payload = vec![0; vxlan::HEADER_LEN];
    vxlan::Header { vni: address.vni }.emit(&mut payload).expect("room");
    payload.extend(frame);
    payload
}

/// A start with all that the store knows: until the first packet was forwarded, and until the API answered.
async fn start(folder: &Path, wire: &Wire, by_default: bool) -> [Duration; 2] {
    let first = First::new(wire).expect("a socket");
    let payload = tunnelled();
    let waits = std::thread::scope(|scope| {
        let first = scope.spawn(|| first.wait(&payload, PATIENCE).map_err(|error| error.to_string()));
        // The future is driven here: nothing else is under way.
        let gateway = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                match by_default {
                    true => Gateway::start_with_defaults(folder, &wire.lab).await,
                    false => Gateway::start(folder, &wire.lab).await,
                }
            })
        });
        (gateway, first.join().expect("no panic"))
    });
    let (gateway, first) = waits;
    let statistics = gateway.statistics().await;
    let all = u64::from(LARGEST);
    assert_eq!((statistics.neighbors, statistics.cache_entries), (all, all));
    let first = first.expect("a packet");
    [first.duration_since(gateway.began), gateway.took]
}

/// For the first packet.
const PATIENCE: Duration = Duration::from_secs(60);

fn remove_store(folder: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        _ = std::fs::remove_file(folder.join(format!("store.db{suffix}")));
    }
}

#[tokio::main(worker_threads = 1)]
async fn main() {
    let rounds = common::numbers().next().unwrap_or(5);
    let wire = Wire::new("gwc", 1, 0).expect("a namespace, which takes root");
    let lab = &wire.lab;
    let folder = std::env::temp_dir().join(format!("ringside-control-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    let flush = flush(&folder).as_secs_f64() * 1e3;
    println!("{rounds} rounds; milliseconds: median (least to most); a write of 4 KiB with its flush: {flush:.2}");
    let (mut starts, mut memory) = ([[(); 2]; 2].map(|times| times.map(|()| Vec::new())), Vec::new());
    let mut applied: Vec<Vec<Duration>> = vec![Vec::new(); SIZES.len()];
    let mut loaded = applied.clone();
    for _ in 0..rounds {
        for (at, size) in SIZES.into_iter().enumerate() {
            applied[at].push(apply(lab, size));
            // A store of its own for each, as a load is when it is needed.
            remove_store(&folder);
            let gateway = Gateway::start(&folder, lab).await;
            loaded[at].push(load(&gateway, size).await);
            if size == LARGEST {
                memory.push(common::memory_of(&gateway.child));
            }
        }
        for (by_default, starts) in [false, true].into_iter().zip(&mut starts) {
            let times = start(&folder, &wire, by_default).await;
            for (time, times) in times.into_iter().zip(starts) {
                times.push(time);
            }
        }
    }
    println!(
        "\n{:>10}   {:<28}  with API and store's commit",
        "neighbours", "known to map"
    );
    for ((size, applied), loaded) in SIZES.into_iter().zip(applied).zip(loaded) {
        println!("{size:>10}   {:<28}  {}", milliseconds(applied), milliseconds(loaded));
    }
    for (how, [first, answers]) in ["", ", all as by default"].into_iter().zip(starts) {
        println!(
            "start after kill -9 with a million{how}, until the first packet is forwarded: {}",
            milliseconds(first)
        );
        println!("  until it answers: {}", milliseconds(answers));
    }
    memory.sort_unstable();
    println!("memory with a million: {} MB", memory[memory.len() / 2] / 1_000_000);
    _ = std::fs::remove_dir_all(&folder);
}
