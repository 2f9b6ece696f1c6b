//! Where the API listens.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{Gid, Uid};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::service::Routes;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};

use super::Api;
use crate::proto::neighbor_service_server::NeighborServiceServer;
use crate::proto::operation_service_server::OperationServiceServer;
use crate::proto::port_service_server::PortServiceServer;
use crate::proto::security_group_service_server::SecurityGroupServiceServer;

/// The longest request: more than [`super::MOST_ADDRESSES`] neighbours take.
const LONGEST: usize = 16 << 20;
/// Bytes of a stream that may be on their way: a batch of a bulk load shall not stop in its middle.
const WINDOW: u32 = 4 << 20;

/// How long what was begun may take when the gateway is to end.
const GRACE: Duration = Duration::from_secs(2);

/// Why the API cannot be offered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The unix socket.
    #[error("api.socket {path}: {action}: {source}")]
    Unix {
        /// Its path.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What came of it.
        source: io::Error,
    },
    /// The TCP port.
    #[error("api.tcp.listen {address}: {source}")]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// What came of it.
        source: io::Error,
    },
    /// Keys and certificates.
    #[error("api.tcp: the key, the certificate or the authority of clients cannot be used: {0}")]
    Tls(String),
    /// While it was offered.
    #[error("serving the API: {0}")]
    Transport(#[from] tonic::transport::Error),
}

/// A unix socket, and who may use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnixSocket {
    /// Its path.
    pub path: PathBuf,
    /// Its owner; None: whom the process runs as.
    pub owner: Option<Uid>,
    /// Its group; None: that of the process.
    pub group: Option<Gid>,
    /// Its permissions.
    pub mode: u32,
}

/// A TCP port, which is only offered with TLS in both directions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpListener {
    /// Where.
    pub address: SocketAddr,
    /// Who is who.
    pub tls: Tls,
}

/// Keys and certificates, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Tls {
    /// The gateway's certificate, with those up to its authority.
    pub certificate: Vec<u8>,
    /// Its key.
    pub key: Vec<u8>,
    /// The authority of clients: who has a certificate of it may do anything.
    pub client_ca: Vec<u8>,
}

impl std::fmt::Debug for Tls {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// Open sockets.
#[derive(Debug)]
pub struct Listeners {
    unix: Option<tokio::net::UnixListener>,
    file: Option<SocketFile>,
    tcp: Option<(tokio::net::TcpListener, Box<ServerTlsConfig>)>,
}

/// The unix socket's file, which goes with it: the store's lock is held longer, so that it is nobody else's.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // It may have been removed by whoever stops the gateway.
        _ = std::fs::remove_file(&self.0);
    }
}

impl Listeners {
    /// Opens them. A file that is in the place of the unix socket is replaced: the store's lock says that there is no
    /// other gateway.
    ///
    /// # Errors
    /// Those of [`ServeError`].
    pub async fn open(unix: Option<&UnixSocket>, tcp: Option<&TcpListener>) -> Result<Self, ServeError> {
        let socket = unix.map(open_unix).transpose()?;
        let file = unix.map(|unix| SocketFile(unix.path.clone()));
        let tcp = match tcp {
            None => None,
            Some(tcp) => {
                let address = tcp.address;
                let tls = tls(&tcp.tls)?;
                let listener = tokio::net::TcpListener::bind(address).await;
                let listener = listener.map_err(|source| ServeError::Tcp { address, source })?;
                Some((listener, Box::new(tls)))
            }
        };
        Ok(Self {
            unix: socket,
            file,
            tcp,
        })
    }

    /// The address of the TCP port, if there is one.
    #[must_use]
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().and_then(|(listener, _)| listener.local_addr().ok())
    }

    /// Offers the API until `stop` is true, and until what was begun before is answered, two seconds at the most: a watch
    /// never ends by itself.
    ///
    /// # Errors
    /// Those of [`ServeError`].
    pub async fn serve(self, api: Api, stop: tokio::sync::watch::Receiver<bool>) -> Result<(), ServeError> {
        let routes = routes(api);
        let _file = self.file;
        let stopped = |mut stop: tokio::sync::watch::Receiver<bool>| async move {
            // An end of those who could say so is an end, too.
            _ = stop.wait_for(|stop| *stop).await;
        };
        let unix = async {
            let Some(listener) = self.unix else { return Ok(()) };
            server()
                .add_routes(routes.clone())
                .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stopped(stop.clone()))
                .await
        };
        let tcp = async {
            let Some((listener, tls)) = self.tcp else { return Ok(()) };
            server()
                .tls_config(*tls)?
                .add_routes(routes.clone())
                .serve_with_incoming_shutdown(TcpListenerStream::new(listener), stopped(stop.clone()))
                .await
        };
        let too_late = async {
            stopped(stop.clone()).await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            served = async { tokio::try_join!(unix, tcp) } => served.map(drop)?,
            () = too_late => {}
        }
        Ok(())
    }
}

fn server() -> Server {
    Server::builder()
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(2 * WINDOW)
        // Who is gone without a word holds a watcher.
        .http2_keepalive_interval(Some(Duration::from_secs(30)))
}

fn routes(api: Api) -> Routes {
    Routes::new(NeighborServiceServer::new(api.clone()).max_decoding_message_size(LONGEST))
        .add_service(PortServiceServer::new(api.clone()).max_decoding_message_size(LONGEST))
        .add_service(SecurityGroupServiceServer::new(api.clone()).max_decoding_message_size(LONGEST))
        .add_service(OperationServiceServer::new(api))
}

fn tls(tls: &Tls) -> Result<ServerTlsConfig, ServeError> {
    let config = ServerTlsConfig::new()
        .identity(Identity::from_pem(&tls.certificate, &tls.key))
        .client_ca_root(Certificate::from_pem(&tls.client_ca))
        .client_auth_optional(false);
    // To be told now, and not when the first client comes.
    match Server::builder().tls_config(config.clone()) {
        Ok(_) => Ok(config),
        Err(error) => Err(ServeError::Tls(with_sources(&error))),
    }
}

/// An error with all that led to it: what a library calls "transport error" says nothing.
pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

fn open_unix(socket: &UnixSocket) -> Result<tokio::net::UnixListener, ServeError> {
    let path = &socket.path;
    let failed = |action| {
        move |source| ServeError::Unix {
            path: path.clone(),
            action,
            source,
        }
    };
    // Made where nobody else can reach it, and moved when only those can use it who may.
    let parent = path.parent().unwrap_or(Path::new("/"));
    let hidden = parent.join(format!(".ringside-gateway-{}", std::process::id()));
    _ = std::fs::remove_dir_all(&hidden);
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&hidden)
        .map_err(failed("making a folder beside it"))?;
    let made = hidden.join("socket");
    let listener = (|| {
        let listener = tokio::net::UnixListener::bind(&made).map_err(failed("listening"))?;
        std::fs::set_permissions(&made, std::fs::Permissions::from_mode(socket.mode))
            .map_err(failed("setting its permissions"))?;
        nix::unistd::chown(&made, socket.owner, socket.group)
            .map_err(io::Error::from)
            .map_err(failed("giving it to api.owner"))?;
        std::fs::rename(&made, path).map_err(failed("moving it into place"))?;
        Ok(listener)
    })();
    _ = std::fs::remove_dir_all(&hidden);
    listener
}
