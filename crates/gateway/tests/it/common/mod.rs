//! A gateway in this process, and objects for it.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod bulk;
pub(crate) mod daemon;
pub(crate) mod disk;
pub(crate) mod etcd;
pub(crate) mod metrics;
pub(crate) mod systemd;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ringside_gateway::api::{Api, Listeners, TcpListener, UnixSocket};
use ringside_gateway::model::{DataPath, Model, ModelOptions, NoDataPath};
use ringside_gateway::proto::neighbor_service_client::NeighborServiceClient;
use ringside_gateway::proto::{Host, ListNeighborsRequest, Neighbor, PageRequest, TenantAddress};
use ringside_gateway::store::{Store, StoreError};
use ringside_gateway_core::conntrack::Limits;
use tonic::transport::{Channel, Endpoint};

/// A folder that goes with the test.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ringside-gateway-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// None, in the place of one that was given away.
    pub(crate) fn none() -> Self {
        Self(PathBuf::new())
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// Overwrites the page of a store's file that a table begins with, as a bad disk would.
pub(crate) fn overwrite(path: &Path, table: &str) {
    use std::os::unix::fs::FileExt as _;
    let file = rusqlite::Connection::open(path).unwrap();
    // What is in the log would be read in its place.
    file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    let page: u32 = match table {
        "sqlite_schema" => 1,
        _ => {
            let query = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
            file.query_row(query, [table], |row| row.get(0)).unwrap()
        }
    };
    drop(file);
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(&[0xa5; 4096], u64::from(page - 1) * 4096).unwrap();
}

/// A gateway without data path, on threads of its own.
pub(crate) struct Gateway {
    stop: tokio::sync::watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    pub(crate) tcp: Option<std::net::SocketAddr>,
    folder: Folder,
}

impl Gateway {
    pub(crate) fn start() -> Self {
        Self::with_tcp(None)
    }

    pub(crate) fn with_tcp(tcp: Option<TcpListener>) -> Self {
        let folder = Folder::new();
        let unix = UnixSocket {
            path: folder.join("api.sock"),
            owner: None,
            group: None,
            mode: 0o600,
        };
        let store = folder.join("store.db");
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let store = Store::open(&store).unwrap();
            let limits = Limits {
                connections: 100,
                ..Limits::default()
            };
            let path = |_: &_| Ok::<_, StoreError>(Arc::new(NoDataPath) as Arc<dyn DataPath>);
            let (model, writer) = Model::start(store, limits, ModelOptions::default(), path).unwrap();
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listeners = Listeners::open(Some(&unix), tcp.as_ref()).await.unwrap();
                ready.send(listeners.tcp_address()).unwrap();
                listeners.serve(Api::new(model), stopped).await.unwrap();
            });
            drop(runtime);
            writer.join().unwrap();
        });
        let tcp = is_ready.recv().expect("the gateway starts");
        let socket = folder.join("api.sock");
        assert!(ringside_netlab::wait_until(Duration::from_secs(60), || socket.exists()));
        Self {
            stop,
            thread: Some(thread),
            tcp,
            folder,
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("api.sock")
    }

    pub(crate) async fn channel(&self) -> Channel {
        connect(&self.socket()).await
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

pub(crate) async fn connect(socket: &Path) -> Channel {
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap();
    endpoint.connect().await.unwrap()
}

/// All neighbours that there are, in pages of this size.
pub(crate) async fn list_all(client: &mut NeighborServiceClient<Channel>, size: u32) -> Vec<Neighbor> {
    let (mut all, mut token) = (Vec::new(), Vec::new());
    loop {
        let request = ListNeighborsRequest {
            page: Some(PageRequest { size, token }),
            ..Default::default()
        };
        let part = client.list_neighbors(request).await.unwrap().into_inner();
        all.extend(part.neighbors);
        token = part.next_page_token;
        if token.is_empty() {
            return all;
        }
    }
}

/// One of up to 16 million neighbours, in ten networks.
pub(crate) fn neighbor(number: u32, version: u64) -> Neighbor {
    let [_, b, c, d] = number.to_be_bytes();
    Neighbor {
        address: Some(TenantAddress {
            vni: number % 10,
            ip: vec![10, b, c, d],
        }),
        mac: vec![2, 0, 0, b, c, d],
        host: Some(Host {
            ip: vec![192, 0, 2, d.max(1)],
            mac: vec![2, 1, 0, 0, 0, d.max(1)],
            port: None,
            encapsulation: 0,
        }),
        version,
    }
}

/// An authority, and a certificate of it with its key, all in PEM.
pub(crate) fn certificate(name: &str) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    certificate_until(name, 4096)
}

/// As [`certificate`], valid until this year begins.
pub(crate) fn certificate_until(name: &str, year: i32) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, format!("authority of {name}"));
    let ca = params.self_signed(&key).unwrap().pem();
    let issuer = rcgen::Issuer::new(params, key);
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(year, 1, 1);
    let signed = params.signed_by(&key, &issuer).unwrap().pem();
    (ca.into_bytes(), signed.into_bytes(), key.serialize_pem().into_bytes())
}
