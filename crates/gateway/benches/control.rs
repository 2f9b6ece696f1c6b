//! How long neighbours take from the API to disk, tables and the XDP program's map, and how long a start takes with them.
//!
//! `cargo bench -p ringside-gateway --bench control [-- ROUNDS]`, as root. The program runs as a child, with an interface in a
//! namespace; times are a client's, from the first byte of the request to the last byte of the answer. A start ends when the
//! API answers, which it does after the first packets were forwarded. Beside them what one flush to the same disk takes.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use ringside_gateway::proto::neighbor_service_client::NeighborServiceClient;
use ringside_gateway::proto::operation_service_client::OperationServiceClient;
use ringside_gateway::proto::{GetStatisticsRequest, Host, LoadNeighborsRequest, Neighbor, TenantAddress};
use ringside_netlab::{Lab, VethConfig};
use tokio_stream::StreamExt as _;
use tonic::transport::{Channel, Endpoint};

const SIZES: [u32; 7] = [1, 5, 100, 1000, 10_000, 100_000, 1_000_000];
const BATCH: u32 = 8192;
/// Of the fast path's cache.
const ROOM: u32 = 1 << 20;

/// Spread over 1000 networks, in an order that is nobody's.
fn neighbor(number: u32, version: u64) -> Neighbor {
    let mixed = number.wrapping_mul(0x9e37_79b1);
    let [_, b, c, d] = number.to_be_bytes();
    Neighbor {
        address: Some(TenantAddress {
            vni: mixed % 1000,
            ip: vec![10, b, c, d],
        }),
        mac: vec![2, 0, 0, b, c, d],
        host: Some(Host {
            ip: vec![192, 0, 2, 1 + d % 250],
            mac: vec![2, 1, 0, 0, 0, d % 250],
            port: None,
            encapsulation: 0,
        }),
        version,
    }
}

struct Gateway {
    child: Child,
    folder: PathBuf,
}

impl Gateway {
    async fn start(folder: &Path, lab: &Lab) -> (Self, Channel, Duration) {
        let socket = folder.join("api.sock");
        let config = folder.join("gateway.toml");
        let text = format!(
            "[store]\npath = \"{}\"\n[api]\nsocket = \"{}\"\n[metrics]\nenabled = false\n[connections]\nlimit = 1000\n\
             [path]\ninterface = \"{}\"\ncached-neighbors = {ROOM}\n",
            folder.join("store.db").display(),
            socket.display(),
            lab.b.interface.name(),
        );
        std::fs::write(&config, text).expect("a configuration");
        _ = std::fs::remove_file(&socket);
        let log = File::create(folder.join("log")).expect("a log");
        let began = Instant::now();
        let mut command = lab.b.ns.command(env!("CARGO_BIN_EXE_ringside-gateway"));
        let child = command
            .arg("--config")
            .arg(config)
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .expect("the gateway");
        while !socket.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let took = began.elapsed();
        let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).expect("a path");
        let endpoint = endpoint
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(8 << 20);
        let channel = endpoint.connect().await.expect("a connection");
        let gateway = Self {
            child,
            folder: folder.to_owned(),
        };
        (gateway, channel, took)
    }

    /// Kilobytes of memory that it has just now.
    fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        number.unwrap_or(0)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        for name in ["api.sock", "gateway.toml"] {
            _ = std::fs::remove_file(self.folder.join(name));
        }
    }
}

async fn load(channel: &Channel, size: u32, version: u64) -> Duration {
    let batches: Vec<LoadNeighborsRequest> = (0..size.div_ceil(BATCH))
        .map(|batch| LoadNeighborsRequest {
            neighbors: (batch * BATCH..size.min((batch + 1) * BATCH))
                .map(|number| neighbor(number, version))
                .collect(),
        })
        .collect();
    let mut client = NeighborServiceClient::new(channel.clone());
    let began = Instant::now();
    let mut answers = client
        .load_neighbors(tokio_stream::iter(batches))
        .await
        .expect("a load")
        .into_inner();
    let mut changed = 0;
    while let Some(answer) = answers.next().await {
        changed = answer.expect("an answer").changed;
    }
    let took = began.elapsed();
    assert_eq!(changed, u64::from(size), "all of them are new");
    took
}

/// What a write of a page with its flush takes here.
fn flush(folder: &Path) -> Duration {
    let mut file = File::create(folder.join("flush")).expect("a file");
    let mut took: Vec<Duration> = (0..20)
        .map(|_| {
            let began = Instant::now();
            file.write_all(&[1; 4096])
                .and_then(|()| file.sync_data())
                .expect("a flush");
            began.elapsed()
        })
        .collect();
    took.sort();
    took[took.len() / 2]
}

fn milliseconds(mut times: Vec<Duration>) -> String {
    times.sort();
    let show = |time: &Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
    format!(
        "{:>10} {:>10} {:>10}",
        show(&times[times.len() / 2]),
        show(&times[0]),
        show(&times[times.len() - 1])
    )
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let rounds = std::env::args()
        .skip(1)
        .find_map(|word| word.parse().ok())
        .unwrap_or(5_usize);
    let lab = Lab::veth(VethConfig::tagged("gwc")).expect("a namespace, which takes root");
    let root = std::env::temp_dir().join(format!("ringside-control-{}", std::process::id()));
    std::fs::create_dir(&root).expect("a folder");
    println!(
        "a write of 4 KiB with its flush: {:.2} ms",
        flush(&root).as_secs_f64() * 1e3
    );
    println!(
        "{rounds} rounds, milliseconds{:>24} {:>10} {:>10}",
        "median", "least", "most"
    );
    let (mut starts, mut memory) = (Vec::new(), Vec::new());
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); SIZES.len()];
    for round in 0..rounds {
        let folder = root.join(round.to_string());
        std::fs::create_dir(&folder).expect("a folder");
        for (size, times) in SIZES.into_iter().zip(&mut times) {
            // A store of its own for each, as a load is when it is needed.
            _ = std::fs::remove_file(folder.join("store.db"));
            for suffix in ["-wal", "-shm"] {
                _ = std::fs::remove_file(folder.join(format!("store.db{suffix}")));
            }
            let (gateway, channel, _) = Gateway::start(&folder, &lab).await;
            times.push(load(&channel, size, 1).await);
            if size == SIZES[SIZES.len() - 1] {
                memory.push(gateway.memory());
            }
        }
        let (_gateway, channel, took) = Gateway::start(&folder, &lab).await;
        let request = GetStatisticsRequest {};
        let statistics = OperationServiceClient::new(channel)
            .get_statistics(request)
            .await
            .expect("statistics");
        let statistics = statistics.into_inner();
        let all = u64::from(SIZES[SIZES.len() - 1]);
        assert_eq!((statistics.neighbors, statistics.cache_entries), (all, all));
        starts.push(took);
        _ = std::fs::remove_dir_all(&folder);
    }
    for (size, times) in SIZES.into_iter().zip(times) {
        println!("{size:>9} from API to disk and map    {}", milliseconds(times));
    }
    println!("  start after kill -9, until it answers {}", milliseconds(starts));
    memory.sort_unstable();
    println!("memory with a million: {} MB", memory[memory.len() / 2] / 1000);
    _ = std::fs::remove_dir_all(&root);
}
