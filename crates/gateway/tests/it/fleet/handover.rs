//! A gateway with many connections is drained: how long the other takes to have them.

use std::io::Write as _;
use std::time::{Duration, Instant};

use ringside_gateway::proto::fleet_service_client::FleetServiceClient;
use ringside_gateway::proto::{TakeConnectionsRequest, TrackedConnection};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::Etcd;
use super::authority::Authority;
use super::common::Folder;
use super::common::daemon::{Daemon, free_port};
use super::common::etcd::{IMPATIENT, configure};
use super::common::metrics::scrape;
use super::members::shares;

struct One {
    daemon: Daemon,
    api: String,
    metrics: u16,
}

fn one(etcd: &Etcd, name: &str, authority: &Authority) -> One {
    let folder = Folder::new();
    authority.write(&["127.0.0.1".to_owned()], &folder, "gateway");
    Authority::write_trusted(&[authority], &folder);
    let (port, metrics) = (free_port(), free_port());
    let api = format!("https://127.0.0.1:{port}");
    let file = |name: &str| folder.join(name).display().to_string();
    let more = format!(
        "[fleet]\nname = \"{name}\"\naddresses = [\"192.0.2.1\"]\napi = \"{api}\"\nlease-seconds = 10\n\
         [api.tcp]\nlisten = \"127.0.0.1:{port}\"\ncertificate = {:?}\nkey = {:?}\nclient-ca = {:?}\n\
         [metrics]\nlisten = \"127.0.0.1:{metrics}\"\n[connections]\nlimit = 1000000\n",
        file("gateway.pem"),
        file("gateway.key"),
        file("ca.pem"),
    );
    configure(&folder, &etcd.endpoint(), IMPATIENT, &more);
    let daemon = Daemon::start_in(folder);
    One { daemon, api, metrics }
}

impl One {
    /// Established ones.
    fn connections(&self) -> usize {
        let shown = scrape(self.metrics);
        let line = shown
            .lines()
            .find(|line| line.starts_with("ringside_gateway_connections{state=\"established\"}"));
        let count = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
        count.map_or(0, |count| count as usize)
    }

    /// As another gateway would.
    async fn give(&self, count: usize) -> u64 {
        let read = |name: &str| std::fs::read(self.daemon.folder.join(name)).unwrap();
        let config = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(read("ca.pem")))
            .identity(Identity::from_pem(read("gateway.pem"), read("gateway.key")));
        let endpoint = Endpoint::from_shared(self.api.clone())
            .unwrap()
            .tls_config(config)
            .unwrap();
        let connection = |number: usize| {
            let number = u32::try_from(number).unwrap();
            TrackedConnection {
                vni: 1 + number % 1000,
                source: (0x0a00_0000 + number).to_be_bytes().to_vec(),
                destination: (0x0b00_0000 + number).to_be_bytes().to_vec(),
                protocol: 6,
                source_port: 40_000 + number % 20_000,
                destination_port: 443,
                state: "established".to_owned(),
                idle_milliseconds: 10,
            }
        };
        let all: Vec<TrackedConnection> = (0..count).map(connection).collect();
        let messages: Vec<_> = (all.chunks(1024))
            .map(|some| TakeConnectionsRequest {
                connections: some.to_vec(),
            })
            .collect();
        let mut client = FleetServiceClient::new(endpoint.connect().await.unwrap());
        let answer = client.take_connections(tokio_stream::iter(messages)).await.unwrap();
        answer.into_inner().taken
    }
}

/// Drains one of two gateways that know so many connections, of all networks: how many the other has then, and how long it took.
async fn drain(count: usize) -> (usize, Duration) {
    let (etcd, authority) = (Etcd::start(), Authority::new("fleet"));
    let mut first = one(&etcd, "first", &authority);
    let other = one(&etcd, "other", &authority);
    first.daemon.wait("a share for each", |first| {
        let shares = shares(first);
        shares.len() == 2 && shares.iter().all(|(_, shards)| *shards > 400)
    });
    assert_eq!(first.give(count).await, count as u64);
    assert_eq!((first.connections(), other.connections()), (count, 0));
    let began = Instant::now();
    let said: serde_json::Value = serde_json::from_str(&first.daemon.ok(&["drain", "--json"])).unwrap();
    assert_eq!(said, serde_json::json!({ "draining": true, "drained": true }));
    let took = began.elapsed();
    assert_eq!(
        shares(&first.daemon),
        [("first".to_owned(), 0), ("other".to_owned(), 1024)]
    );
    let shown = scrape(first.metrics);
    assert!(
        shown.contains("ringside_gateway_fleet_shard_moves_total{what=\"given-bare\"} 0"),
        "{shown}"
    );
    (other.connections(), took)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_drained_hands_over_all_connections_of_its_networks() {
    let (there, took) = drain(20_000).await;
    // It had about half of the networks.
    assert!((7000..13_000).contains(&there), "{there}");
    eprintln!("{there} connections were handed over in {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long: make test-fleet"]
async fn a_hundred_thousand_connections_are_handed_over() {
    for count in [20_000, 200_000, 600_000] {
        let (there, took) = drain(count).await;
        let line =
            format!("hand_over: {there} connections in 512 shards or so, from one gateway to another, in {took:?}\n");
        eprint!("{line}");
        if let Some(path) = std::env::var_os("RINGSIDE_FAULTS") {
            let file = std::fs::File::options().append(true).create(true).open(path);
            file.unwrap().write_all(line.as_bytes()).unwrap();
        }
        assert!(there > count / 3, "{there}");
    }
}
