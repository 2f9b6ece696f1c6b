//! Where the API listens.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{Gid, Uid};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::service::Routes;
use tonic::transport::Server;

use super::tls::{self, Keys, Tls};
use super::{Api, hosts};
use crate::ending;
use crate::proto::fleet_service_server::FleetServiceServer;
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
        r#source: io::Error,
    },
    /// Something else than a socket is there.
    #[error("api.socket: {0}")]
    NotASocket(String),
    /// Its folder has what no gateway has put there.
    #[error(
        "api.socket {path}: the socket is made in the folder {folder}, where something else is \
         ({source}): \
             give it another name, or remove that"
    )]
    Folder {
        /// The socket's path.
        path: PathBuf,
        /// The folder.
        folder: PathBuf,
        /// Why it cannot be removed.
        r#source: io::Error,
    },
    /// Somebody else answers there.
    #[error("api.socket {path} is in use by another process: stop that one, or give this one another `api.socket`")]
    InUse {
        /// Its path.
        path: PathBuf,
    },
    /// The TCP port.
    #[error("api.tcp.listen {address}: {source}")]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// What came of it.
        r#source: io::Error,
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

/// Open sockets.
#[derive(Debug)]
pub struct Listeners {
    unix: Option<Hidden>,
    tcp: Option<(tokio::net::TcpListener, Keys)>,
}

/// A unix socket that nobody can reach yet.
#[derive(Debug)]
struct Hidden {
    listener: tokio::net::UnixListener,
    folder: Folder,
    path: PathBuf,
}

/// The folder that a unix socket is made in, removed with the socket.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }

    /// Removes a folder that a gateway has made. One that holds anything but its socket stays as it
    /// is.
    fn remove(&self) -> io::Result<()> {
        match self.0.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Ok(found) if !found.is_dir() => return Err(io::ErrorKind::NotADirectory.into()),
            _ => {}
        }
        let socket = self.socket();
        for entry in std::fs::read_dir(&self.0)? {
            let path = entry?.path();
            if path != socket || !is_socket(&path) {
                return Err(io::ErrorKind::DirectoryNotEmpty.into());
            }
        }
        if is_socket(&socket) {
            std::fs::remove_file(socket)?;
        }
        std::fs::remove_dir(&self.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = self.remove();
    }
}

/// The unix socket's file, which goes with it: the store's lock is held longer, so that it is nobody else's.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    id: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // It may have been removed by whoever stops the gateway, and something else put there.
        let found = self.path.symlink_metadata();
        if found.is_ok_and(|found| (found.dev(), found.ino()) == self.id) {
            _ = std::fs::remove_file(&self.path);
        }
    }
}

fn is_socket(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket())
}

impl UnixSocket {
    /// Returns the folder that a socket at `path` is made in.
    pub(crate) fn folder(path: &Path) -> PathBuf {
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        path.with_file_name(name)
    }

    /// Checks that nothing but a socket is at `path`, which is replaced.
    ///
    /// # Errors
    /// What is there, and what to do.
    pub(crate) fn check(path: &Path) -> Result<(), String> {
        let Ok(found) = path.symlink_metadata() else {
            return Ok(());
        };
        let kind = found.file_type();
        let kind = match () {
            () if kind.is_socket() => return Ok(()),
            () if kind.is_dir() => "a folder",
            () if kind.is_symlink() => "a symbolic link",
            () if kind.is_file() => "a file",
            () => "a device or a FIFO",
        };
        let path = path.display();
        Err(format!(
            "{path} is {kind}, no socket, and is not replaced: name another path, or remove it"
        ))
    }
}

impl Listeners {
    /// Opens them; nobody is let in before [`Listeners::serve`]. A unix socket that nobody listens on any more is replaced.
    ///
    /// # Errors
    /// Those of [`ServeError`].
    pub async fn open(unix: Option<&UnixSocket>, tcp: Option<&TcpListener>) -> Result<Self, ServeError> {
        let unix = unix.map(hide).transpose()?;
        let tcp = match tcp {
            None => None,
            Some(tcp) => {
                let address = tcp.address;
                let keys = Keys::read(&tcp.tls)?;
                let listener = tokio::net::TcpListener::bind(address).await;
                let listener = listener.map_err(|source| ServeError::Tcp { address, source })?;
                Some((listener, keys))
            }
        };
        Ok(Self { unix, tcp })
    }

    /// By which those are greeted who connect to the TCP port, if there is one.
    #[must_use]
    pub fn keys(&self) -> Option<Keys> {
        self.tcp.as_ref().map(|(_, keys)| keys.clone())
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
        let (routes, of_hosts) = (routes(api.clone()), hosts::routes(api));
        let shown = self.unix.map(Hidden::show).transpose()?;
        // Its name goes last.
        let (listener, _file) = shown.unzip();
        let stopped = |mut stop: tokio::sync::watch::Receiver<bool>| async move {
            // An end of those who could say so is an end, too.
            _ = stop.wait_for(|stop| *stop).await;
        };
        let unix = async {
            let Some(listener) = listener else { return Ok(()) };
            server()
                .add_routes(routes.clone())
                .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stopped(stop.clone()))
                .await
        };
        let tcp = async {
            let Some((listener, keys)) = self.tcp else {
                return Ok(());
            };
            let accepted = tls::accept(listener, keys);
            let operators = server()
                .add_routes(routes.clone())
                .serve_with_incoming_shutdown(accepted.operators, stopped(stop.clone()));
            let hosts = server()
                .add_routes(of_hosts)
                .serve_with_incoming_shutdown(accepted.hosts, stopped(stop.clone()));
            tokio::try_join!(operators, hosts).map(drop)
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
        .add_service(FleetServiceServer::new(api.clone()))
        .add_service(OperationServiceServer::new(api))
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

/// Made where nobody else can reach it; moved when it is served, and only those can use it who may.
fn hide(socket: &UnixSocket) -> Result<Hidden, ServeError> {
    let path = &socket.path;
    if !ending::until(|| std::os::unix::net::UnixStream::connect(path).is_err()) {
        return Err(ServeError::InUse { path: path.clone() });
    }
    UnixSocket::check(path).map_err(ServeError::NotASocket)?;
    let failed = |action| move |source| unix_error(path, action, source);
    // A gateway that was killed has left its own behind.
    let folder = Folder(UnixSocket::folder(path));
    folder.remove().map_err(|source| ServeError::Folder {
        path: path.clone(),
        folder: folder.0.clone(),
        source,
    })?;
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&folder.0)
        .map_err(failed("making a folder beside it"))?;
    let made = folder.socket();
    let listener = tokio::net::UnixListener::bind(&made).map_err(failed("listening"))?;
    let hidden = Hidden {
        listener,
        folder,
        path: path.clone(),
    };
    std::fs::set_permissions(&made, std::fs::Permissions::from_mode(socket.mode))
        .map_err(failed("setting its permissions"))?;
    nix::unistd::chown(&made, socket.owner, socket.group)
        .map_err(io::Error::from)
        .map_err(failed("giving it to api.owner"))?;
    Ok(hidden)
}

fn unix_error(path: &Path, action: &'static str, source: io::Error) -> ServeError {
    ServeError::Unix {
        path: path.to_owned(),
        action,
        source,
    }
}

impl Hidden {
    /// Under its name from now on.
    fn show(self) -> Result<(tokio::net::UnixListener, SocketFile), ServeError> {
        let Self { listener, folder, path } = self;
        let failed = |source| unix_error(&path, "moving it into place", source);
        let made = folder.socket();
        let found = made.symlink_metadata().map_err(failed)?;
        // It may have come since the start began.
        UnixSocket::check(&path).map_err(ServeError::NotASocket)?;
        std::fs::rename(made, &path).map_err(failed)?;
        let id = (found.dev(), found.ino());
        Ok((listener, SocketFile { path, id }))
    }
}
