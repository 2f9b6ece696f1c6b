//! What etcd costs, for everything that a fleet's gateways ask of it: its CPU's time, the bytes that it sends, its memory and its
//! database. `examples/simulate/costs.rs` has been told these figures, and says which.
//!
//! `cargo run --release -p ringside-gateway --example etcd_costs [-- KEYS ...]`, with `etcd` and `setpriv`: one server with its own
//! defaults, on a free port, in a folder of its own below the temporary one. The time is that of etcd's own threads as the
//! kernel counts it, so that what else the machine does changes little.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use etcd_client::{Client, Compare, CompareOp, GetOptions, LeaseGrantOptions, Txn, TxnOp, WatchOptions};
use ringside_gateway::fleet::item::Item;
use ringside_gateway::fleet::key::{Block, Key};
use ringside_gateway::fleet::value::Entry;
use ringside_gateway::object::{Neighbor, Statement};
use ringside_gateway_core::table::Host;
use ringside_gateway_core::{TenantAddress, Vni};
use ringside_wire::MacAddr;
use tokio::task::JoinSet;

const PREFIX: &str = "/ringside/gateway/";
/// Keys of a network: 1024 neighbours.
const OF_NETWORK: u32 = 64;
/// Keys of a transaction, and of a page, as the gateway has them.
const OPERATIONS: u32 = 128;
const PAGE: i64 = 8192;
/// Watchers, each with a connection of its own, as gateways have.
const WATCHERS: u32 = 64;

struct Etcd {
    child: Child,
    folder: PathBuf,
    port: u16,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It is ours, and whether it has ended by itself does not matter.
        _ = self.child.kill();
        _ = self.child.wait();
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Etcd {
    fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("ringside-etcd-costs-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let [port, peer_port] = listeners.map(|listener| listener.local_addr().expect("an address").port());
        let (client, peer) = (
            format!("http://127.0.0.1:{port}"),
            format!("http://127.0.0.1:{peer_port}"),
        );
        let log = std::fs::File::create(folder.join("log")).expect("a log");
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "etcd", "--name", "one", "--logger", "zap"])
            .args(["--quota-backend-bytes", "8589934592", "--data-dir"])
            .arg(folder.join("data"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("one={peer}")])
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("etcd and setpriv are installed");
        Self { child, folder, port }
    }

    async fn client(&self) -> Client {
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        let began = Instant::now();
        loop {
            if let Ok(mut client) = Client::connect([&endpoint], None).await
                && client.status().await.is_ok()
            {
                return client;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "etcd does not answer");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Of all its threads, so far.
    fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("it runs");
        let (_, stat) = stat.rsplit_once(')').expect("a name");
        let ticks: u64 = (stat.split_whitespace().skip(11).take(2))
            .map(|field| field.parse::<u64>().expect("a number"))
            .sum();
        Duration::from_millis(ticks * 10)
    }

    fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes.expect("a number") * 1024
    }

    /// Bytes sent to clients, without TCP's and TLS's, so far.
    fn sent(&self) -> f64 {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        write!(stream, "GET /metrics HTTP/1.0\r\n\r\n").expect("a question");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let line = answer
            .lines()
            .find_map(|line| line.strip_prefix("etcd_network_client_grpc_sent_bytes_total "));
        line.expect("etcd tells it").trim().parse().expect("a number")
    }
}

/// What something has cost.
#[derive(Clone, Copy)]
struct Cost {
    cpu: Duration,
    sent: f64,
    took: Duration,
}

async fn cost_of<T>(etcd: &Etcd, what: impl Future<Output = T>) -> (T, Cost) {
    let (cpu, sent, began) = (etcd.cpu(), etcd.sent(), Instant::now());
    let done = what.await;
    let cost = Cost {
        took: began.elapsed(),
        cpu: etcd.cpu().saturating_sub(cpu),
        sent: etcd.sent() - sent,
    };
    (done, cost)
}

/// With 16 neighbours.
fn pair(number: u32, version: u64) -> (String, Vec<u8>) {
    let vni = Vni::new(number / OF_NETWORK).expect("24 bits");
    let first = 0x0a00_0000 + (number % OF_NETWORK) * 16;
    let entry = |low: u32| {
        let address = TenantAddress::new(vni, Ipv4Addr::from_bits(first + low).into());
        Entry {
            statement: Statement::Put(Neighbor {
                address,
                mac: MacAddr([2, 0, 0, 0, 0, 1]),
                host: Host::at(Ipv4Addr::from_bits(0xc000_0200 + number % 200).into()),
                version,
            }),
            deleted: 0,
        }
    };
    let (block, _) = Block::of(TenantAddress::new(vni, Ipv4Addr::from_bits(first).into()));
    let value = Item::Neighbors(block, (0..16).map(entry).collect()).write();
    let name = format!("{PREFIX}{}", Key::Neighbors(block));
    (name, value.expect("it has entries"))
}

/// As the gateway makes one: compared with what was read before.
async fn write(client: &Client, keys: std::ops::Range<u32>, version: u64, compare: bool) {
    let pairs: Vec<_> = keys.map(|number| pair(number, version)).collect();
    let mut kv = client.kv_client();
    let mut transaction = Txn::new();
    if compare {
        let get =
            |(name, _): &(String, Vec<u8>)| TxnOp::get(name.as_str(), Some(GetOptions::new().with_serializable()));
        let read = Txn::new().and_then(pairs.iter().map(get).collect::<Vec<_>>());
        kv.txn(read).await.expect("an answer");
        let same = |(name, _): &(String, Vec<u8>)| Compare::mod_revision(name.as_str(), CompareOp::Greater, 0);
        transaction = transaction.when(pairs.iter().map(same).collect::<Vec<_>>());
    }
    let put = |(name, value): (String, Vec<u8>)| TxnOp::put(name, value, None);
    let transaction = transaction.and_then(pairs.into_iter().map(put).collect::<Vec<_>>());
    assert!(kv.txn(transaction).await.expect("an answer").succeeded());
}

async fn write_all(client: &Client, keys: std::ops::Range<u32>, of_each: u32, version: u64, compare: bool) {
    let mut under_way = JoinSet::new();
    let mut first = keys.start;
    while first < keys.end {
        let some = first..(first + of_each).min(keys.end);
        first = some.end;
        let client = client.clone();
        under_way.spawn(async move { write(&client, some, version, compare).await });
        if under_way.len() >= 8 {
            under_way.join_next().await;
        }
    }
    under_way.join_all().await;
}

/// A page from a key on: of all to the end of its kind, as it was first asked for, or of no more than it brings.
async fn page(client: &Client, first: u32, last: Option<u32>) -> usize {
    let end = match last {
        Some(last) => pair(last, 1).0,
        None => format!("{PREFIX}v1/neighbors0"),
    };
    let options = GetOptions::new().with_range(end).with_limit(PAGE);
    let mut kv = client.kv_client().max_decoding_message_size(1 << 30);
    let answer = kv.get(pair(first, 1).0, Some(options)).await.expect("a page");
    answer.kvs().len()
}

fn row(out: &mut String, what: &str, cost: Cost, times: u32) {
    let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(times);
    _ = writeln!(
        out,
        "  {what:<64} {:>10.1} µs of CPU {:>10.1} µs {:>12.1} bytes sent",
        each(cost.cpu),
        each(cost.took),
        cost.sent / f64::from(times)
    );
}

async fn with_keys(etcd: &Etcd, client: &Client, from: u32, keys: u32) -> String {
    let mut out = format!("{keys} keys of 16 neighbours\n");
    let ((), load) = cost_of(etcd, write_all(client, from..keys, OPERATIONS, 1, false)).await;
    row(&mut out, "a key put, 128 in a transaction", load, keys - from);
    let status = client.maintenance_client().status().await.expect("a status");
    let (name, value) = pair(keys - 1, 1);
    _ = writeln!(
        out,
        "  a key has {} bytes and its value {}; the database {} and etcd's memory {} bytes a key",
        name.len(),
        value.len(),
        status.db_size() / i64::from(keys),
        etcd.memory() / u64::from(keys),
    );
    let times = 20;
    for (what, first, last) in [
        ("a page of 8192 keys, all keys behind it in the range", 0, None),
        (
            "a page of 8192 keys, nothing behind it in the range",
            0,
            Some(8192.min(keys - 1)),
        ),
        ("the last page, 128 keys", keys - 128, None),
    ] {
        let ask = async {
            for _ in 0..times {
                assert!(page(client, first, last).await > 0);
            }
        };
        let ((), cost) = cost_of(etcd, ask).await;
        row(&mut out, what, cost, times);
    }
    out
}

async fn requests(etcd: &Etcd, client: &mut Client, keys: u32) -> String {
    let mut out = String::from("requests\n");
    let times = 4000;
    let mut ask = JoinSet::new();
    let (_, cost) = cost_of(etcd, async {
        for _ in 0..16 {
            let mut kv = client.kv_client();
            ask.spawn(async move {
                for _ in 0..times / 16 {
                    kv.get(pair(1, 1).0, None).await.expect("an answer");
                }
            });
        }
        ask.join_all().await
    })
    .await;
    row(&mut out, "a linearizable read of a key, 16 at a time", cost, times);
    let lease = client
        .lease_grant(60, None::<LeaseGrantOptions>)
        .await
        .expect("a lease");
    let (mut keeper, mut kept) = client.lease_keep_alive(lease.id()).await.expect("it lives");
    let ((), cost) = cost_of(etcd, async {
        for _ in 0..times {
            keeper.keep_alive().await.expect("it lives");
            kept.message().await.expect("an answer");
        }
    })
    .await;
    row(&mut out, "a keep-alive", cost, times);
    for of_each in [1, 16, 128] {
        let changed = 8192.min(keys) / OPERATIONS * of_each;
        let ((), cost) = cost_of(etcd, write_all(client, 0..changed, of_each, 2, true)).await;
        let what = format!("read and compared transaction of {of_each}, each of its keys");
        row(&mut out, &what, cost, changed);
    }
    out
}

/// What watchers add to the same transactions.
async fn watchers(etcd: &Etcd, client: &Client, of_each: u32) -> String {
    let transactions = 64;
    let keys = transactions * of_each;
    let ((), alone) = cost_of(etcd, write_all(client, 0..keys, of_each, 3, true)).await;
    let mut streams = Vec::new();
    for _ in 0..WATCHERS {
        let mut watch = etcd.client().await.watch_client().max_decoding_message_size(1 << 30);
        let options = WatchOptions::new().with_prefix();
        let stream = watch
            .watch(format!("{PREFIX}v1/"), Some(options))
            .await
            .expect("a watch");
        streams.push((watch, stream.split()));
    }
    let before = etcd.memory();
    let (messages, cost) = cost_of(etcd, async {
        let mut hear = JoinSet::new();
        for (watch, (requests, mut stream)) in streams {
            hear.spawn(async move {
                let (mut heard, mut messages) = (0, 0_u32);
                while heard < keys as usize {
                    let answer = stream.message().await.expect("it goes on").expect("an answer");
                    heard += answer.events().len();
                    messages += u32::from(!answer.events().is_empty());
                }
                drop((watch, requests));
                messages
            });
        }
        write_all(client, 0..keys, of_each, 4, true).await;
        hear.join_all().await.into_iter().sum::<u32>()
    })
    .await;
    let told = keys * WATCHERS;
    let mut out = format!(
        "{WATCHERS} watchers, transactions of {of_each}: {messages} messages for {} revisions told; memory {} kB before, {} kB after\n",
        transactions * WATCHERS,
        before / 1024,
        etcd.memory() / 1024
    );
    let added = Cost {
        cpu: cost.cpu.saturating_sub(alone.cpu),
        sent: cost.sent - alone.sent,
        took: cost.took.saturating_sub(alone.took),
    };
    row(&mut out, "an event, for each watcher", added, told);
    out
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut sizes: Vec<u32> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = vec![16_384, 131_072, 524_288];
    }
    let etcd = Etcd::start();
    let mut client = etcd.client().await;
    let mut from = 0;
    for keys in sizes {
        print!("{}", with_keys(&etcd, &client, from, keys).await);
        from = keys;
    }
    print!("{}", requests(&etcd, &mut client, from).await);
    for of_each in [1, 16, 128] {
        print!("{}", watchers(&etcd, &client, of_each).await);
    }
}
