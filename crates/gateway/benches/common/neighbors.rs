//! The program as a child, and neighbours for it.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use ringside_gateway::proto::neighbor_service_client::NeighborServiceClient;
use ringside_gateway::proto::operation_service_client::OperationServiceClient;
use ringside_gateway::proto::{
    GetStatisticsRequest, GetStatisticsResponse, Host, LoadNeighborsRequest, Neighbor, PutNeighborsRequest,
    TenantAddress,
};
use ringside_netlab::Lab;
use tokio_stream::StreamExt as _;
use tonic::transport::{Channel, Endpoint};

/// Neighbours of a message.
const BATCH: u32 = 8192;
/// Of the fast path's cache.
pub(crate) const ROOM: u32 = 1 << 20;

/// In which order neighbours come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// In each network one after the other, as who gives out addresses does.
    Rising,
    /// A thousand in each network, beside each other.
    Dense,
    /// In none.
    Scattered,
    /// The same over IPv6, inside and out.
    Six,
}

/// One of up to 16 million, spread over 1000 networks.
pub(crate) fn neighbor(number: u32, order: Order, version: u64) -> Neighbor {
    let mixed = number.wrapping_mul(0x9e37_79b1);
    let (vni, address) = match order {
        Order::Rising => (mixed % 1000, number),
        Order::Dense => (number / 1000, number % 1000),
        // An odd factor: each of 24 bits comes once.
        Order::Scattered | Order::Six => (mixed % 1000, mixed & 0xff_ffff),
    };
    let [_, b, c, d] = address.to_be_bytes();
    let six = |high: u8, low: [u8; 3]| [&[0xfd, high, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &low].concat();
    let (ip, host) = match order {
        Order::Six => (six(0, [b, c, d]), six(1, [0, 0, 1 + d % 250])),
        Order::Rising | Order::Dense | Order::Scattered => (vec![10, b, c, d], vec![192, 0, 2, 1 + d % 250]),
    };
    Neighbor {
        address: Some(TenantAddress { vni, ip }),
        mac: vec![2, 0, 0, b, c, d],
        host: Some(Host {
            ip: host,
            mac: vec![2, 1, 0, 0, 0, d % 250],
            port: None,
            encapsulation: 0,
        }),
        version,
    }
}

/// The first so many, as messages of a load.
pub(crate) fn batches(size: u32, order: Order, version: u64) -> impl Iterator<Item = LoadNeighborsRequest> {
    (0..size.div_ceil(BATCH)).map(move |batch| {
        let numbers = batch * BATCH..size.min((batch + 1) * BATCH);
        LoadNeighborsRequest {
            neighbors: numbers.map(|number| neighbor(number, order, version)).collect(),
            next_version: false,
        }
    })
}

/// The program, killed when it is dropped.
pub(crate) struct Gateway {
    pub(crate) child: Child,
    pub(crate) channel: Channel,
    /// When it was started.
    pub(crate) began: Instant,
    /// From then until it answered, which it does after the first packets could be forwarded.
    pub(crate) took: Duration,
    socket: PathBuf,
}

impl Gateway {
    /// With the store in a folder, on the second end of a wire.
    pub(crate) async fn start(folder: &Path, lab: &Lab) -> Self {
        let path = format!(
            "[path]\ninterface = \"{}\"\ncached-neighbors = {ROOM}\n",
            lab.b.interface.name()
        );
        Self::start_as(folder, lab, "", &path).await
    }

    /// The same with caches and room for connections as they are by default.
    pub(crate) async fn start_with_defaults(folder: &Path, lab: &Lab) -> Self {
        let path = format!("[path]\ninterface = \"{}\"\n", lab.b.interface.name());
        Self::start_on(folder, lab, "", &path).await
    }

    /// With more about the store, another data path, and room for a thousand connections.
    pub(crate) async fn start_as(folder: &Path, lab: &Lab, store: &str, path: &str) -> Self {
        let path = format!("[connections]\nlimit = 1000\n{path}");
        Self::start_on(folder, lab, store, &path).await
    }

    async fn start_on(folder: &Path, lab: &Lab, store: &str, path: &str) -> Self {
        let socket = folder.join("api.sock");
        let config = folder.join("gateway.toml");
        let text = format!(
            "[store]\npath = \"{}\"\n{store}[api]\nsocket = \"{}\"\n[metrics]\nenabled = false\n{path}",
            folder.join("store.db").display(),
            socket.display(),
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
        Self {
            child,
            channel,
            began,
            took,
            socket,
        }
    }

    /// Loads neighbours that are new, and tells how long it took from the first byte to each answer.
    pub(crate) async fn load(
        &self,
        batches: impl Iterator<Item = LoadNeighborsRequest> + Send + 'static,
        mut each: impl FnMut(u64, Duration),
    ) {
        let mut client = NeighborServiceClient::new(self.channel.clone());
        let began = Instant::now();
        let answers = client.load_neighbors(tokio_stream::iter(batches)).await;
        let mut answers = answers.expect("a load").into_inner();
        while let Some(answer) = answers.next().await {
            let answer = answer.expect("an answer");
            assert_eq!(
                (answer.unchanged, answer.older, answer.conflicts),
                (0, 0, 0),
                "all of them are new"
            );
            each(answer.changed, began.elapsed());
        }
    }

    /// How long one change takes.
    pub(crate) async fn put(&self, neighbor: Neighbor) -> Duration {
        let mut client = NeighborServiceClient::new(self.channel.clone());
        let request = PutNeighborsRequest {
            neighbors: vec![neighbor],
        };
        let began = Instant::now();
        client.put_neighbors(request).await.expect("a change");
        began.elapsed()
    }

    pub(crate) async fn statistics(&self) -> GetStatisticsResponse {
        let mut client = OperationServiceClient::new(self.channel.clone());
        let answer = client.get_statistics(GetStatisticsRequest {}).await;
        answer.expect("statistics").into_inner()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        _ = std::fs::remove_file(&self.socket);
    }
}

/// What a write of a page with its flush takes in a folder.
pub(crate) fn flush(folder: &Path) -> Duration {
    let mut file = File::create(folder.join("flush")).expect("a file");
    let times = (0..20).map(|_| {
        let began = Instant::now();
        file.write_all(&[1; 4096])
            .and_then(|()| file.sync_data())
            .expect("a flush");
        began.elapsed()
    });
    let mut times: Vec<Duration> = times.collect();
    times.sort();
    times[times.len() / 2]
}

/// Median, least and most, in milliseconds.
pub(crate) fn milliseconds(mut times: Vec<Duration>) -> String {
    times.sort();
    let show = |time: &Duration| {
        let time = time.as_secs_f64() * 1e3;
        if time < 10.0 {
            format!("{time:.2}")
        } else {
            format!("{time:.0}")
        }
    };
    let [least, median, most] = [0, times.len() / 2, times.len() - 1].map(|at| show(&times[at]));
    format!("{median:>7} ({least} to {most})")
}
