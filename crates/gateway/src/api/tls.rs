//! TLS in both directions, with keys and certificates that can be replaced while there are connections.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use ringside_wire::flow::canonical;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;

use super::serve::{ServeError, with_sources};

/// Who has not said who he is by then is gone.
const GREETING: Duration = Duration::from_secs(10);
/// So many may be about to say it: more wait.
const GREETINGS: usize = 64;

/// Keys and certificates, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Tls {
    /// The gateway's certificate, with those up to its authority.
    pub certificate: Vec<u8>,
    /// Its key.
    pub key: Vec<u8>,
    /// The authority of clients: who has a certificate of it may do anything.
    pub client_ca: Vec<u8>,
    /// The authority of compute hosts, another one: who has a certificate of it may ask which gateway serves which network, and
    /// nothing else.
    pub host_ca: Option<Vec<u8>>,
}

/// What those who connect are greeted with.
#[derive(Debug)]
struct Greeting {
    config: Arc<ServerConfig>,
    /// Tells who may do anything from hosts, if there may be any.
    operators: Option<Arc<dyn ClientCertVerifier>>,
}

impl Greeting {
    fn is_operator(&self, stream: &TlsStream<TcpStream>) -> bool {
        let Some(operators) = &self.operators else { return true };
        match stream.get_ref().1.peer_certificates() {
            Some([own, others @ ..]) => operators.verify_client_cert(own, others, UnixTime::now()).is_ok(),
            _ => false,
        }
    }
}

impl fmt::Debug for Tls {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Tls {
    /// Whether they can be used, and belong together; otherwise what is wrong.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.greeting().map(drop)
    }

    fn greeting(&self) -> Result<Greeting, String> {
        let failed = |what: &str, error: &dyn std::error::Error| format!("{what}: {}", with_sources(error));
        let certificates = |what: &'static str, pem: &[u8]| {
            let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
            match read {
                Ok(read) if read.is_empty() => Err(format!("{what}: there is no certificate in it")),
                Ok(read) => Ok(read),
                Err(error) => Err(failed(what, &error)),
            }
        };
        let own = certificates("certificate", &self.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| failed("key", &error))?;
        let provider: Arc<CryptoProvider> = ring::default_provider().into();
        let trust = |name: &str, authorities: &[CertificateDer<'static>]| {
            let mut roots = RootCertStore::empty();
            for authority in authorities {
                roots.add(authority.clone()).map_err(|error| failed(name, &error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider)).build();
            verifier.map_err(|error| failed(name, &error))
        };
        let of_operators = certificates("client-ca", &self.client_ca)?;
        let mut clients = trust("client-ca", &of_operators)?;
        let mut operators = None;
        if let Some(host_ca) = &self.host_ca {
            let of_hosts = certificates("host-ca", host_ca)?;
            if of_hosts.iter().any(|authority| of_operators.contains(authority)) {
                return Err("host-ca: an authority of client-ca is in it, too: hosts could do anything".to_owned());
            }
            operators = Some(clients);
            clients = trust("client-ca and host-ca", &[of_operators, of_hosts].concat())?;
        }
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| failed("protocols", &error))?
            .with_client_cert_verifier(clients)
            .with_single_cert(own, key)
            .map_err(|error| failed("certificate and key", &error))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Greeting {
            config: config.into(),
            operators,
        })
    }
}

/// What those who connect are greeted with. Cheap to clone; all clones are the same.
#[derive(Debug, Clone)]
pub struct Keys(Arc<ArcSwap<Greeting>>);

impl Keys {
    /// What is in the files now.
    ///
    /// # Errors
    /// [`ServeError::Tls`].
    pub fn read(tls: &Tls) -> Result<Self, ServeError> {
        let greeting = tls.greeting().map_err(ServeError::Tls)?;
        Ok(Self(Arc::new(ArcSwap::from_pointee(greeting))))
    }

    /// What others are, for whoever connects from now on; connections that are there stay.
    pub fn replace(&self, by: &Self) {
        self.0.store(by.0.load_full());
    }
}

type Clients = ReceiverStream<io::Result<TlsStream<TcpStream>>>;

/// Connections of those who have said who they are.
pub(super) struct Accepted {
    /// Who may do anything.
    pub(super) operators: Clients,
    pub(super) hosts: Clients,
}

/// Greets whoever connects, until nobody takes connections of operators any more.
pub(super) fn accept(listener: tokio::net::TcpListener, keys: Keys) -> Accepted {
    let (to, operators) = mpsc::channel(GREETINGS);
    let (to_hosts, hosts) = mpsc::channel(GREETINGS);
    tokio::spawn(async move {
        let greetings = Arc::new(Semaphore::new(GREETINGS));
        loop {
            let permit = Arc::clone(&greetings).acquire_owned().await.expect("never closed");
            let stream = tokio::select! {
                accepted = listener.accept() => accepted,
                () = to.closed() => return,
            };
            let Ok((stream, peer)) = stream else {
                // Out of files: those who are there go some time.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let peer = canonical(peer);
            _ = stream.set_nodelay(true);
            let keys = keys.0.load_full();
            let greeting = TlsAcceptor::from(Arc::clone(&keys.config)).accept(stream);
            let (to, to_hosts) = (to.clone(), to_hosts.clone());
            tokio::spawn(async move {
                match tokio::time::timeout(GREETING, greeting).await {
                    Ok(Ok(stream)) => {
                        let to = if keys.is_operator(&stream) { to } else { to_hosts };
                        _ = to.send(Ok(stream)).await;
                    }
                    Ok(Err(error)) => tracing::info!(%peer, %error, "a client was refused"),
                    Err(_) => tracing::info!(%peer, "a client did not say who it is"),
                }
                drop(permit);
            });
        }
    });
    Accepted {
        operators: ReceiverStream::new(operators),
        hosts: ReceiverStream::new(hosts),
    }
}
