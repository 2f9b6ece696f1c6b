//! TLS to a gateway, which says why where it cannot be had.
//!
//! In TLS 1.3 a client has done its part before the server has looked at its certificate, and hears of a refusal when it reads next. A
//! server of HTTP/2 says something at once: that is waited for, so that a refusal is one of the connection and not of the first question.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use anyhow::{Context as _, Result};
use hyper_util::rt::TokioIo;
use ringside_measure::{BadValue, bad_value};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, AlertDescription, CertificateError, ClientConfig, RootCertStore};
use tonic::codegen::{Service, http::Uri};

use super::At;

/// Makes connections over TLS, both sides of which show who they are. Cheap to clone.
#[derive(Clone)]
pub(super) struct Greeter {
    pub(super) config: Arc<ClientConfig>,
    /// What it was made of: authorities, certificate, key.
    files: Arc<[Vec<u8>; 3]>,
}

impl Greeter {
    /// With the keys and certificates of the command line.
    pub(super) fn new(at: &At) -> Result<Self> {
        Self::of(at, files(at)?)
    }

    /// One with what these files hold now; None: the same as this one, whose sessions with gateways may go on.
    pub(super) fn renewed(&self, at: &At) -> Result<Option<Self>> {
        let files = files(at)?;
        if files == *self.files {
            return Ok(None);
        }
        Self::of(at, files).map(Some)
    }

    fn of(at: &At, files: [Vec<u8>; 3]) -> Result<Self> {
        let [ca, certificate, key] = named(at)?;
        let mut authorities = RootCertStore::empty();
        for authority in certificates("ca", ca, &files[0])? {
            let added = authorities.add(authority);
            added.with_context(|| format!("--ca: {}", ca.display()))?;
        }
        let own = certificates("certificate", certificate, &files[1])?;
        let private = PrivateKeyDer::from_pem_slice(&files[2]);
        let wrong = |_| BadValue(format!("--key: there is no key in {}", key.display()));
        let private = private.map_err(wrong)?;
        let mut config = ClientConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(authorities)
            .with_client_auth_cert(own, private)
            .map_err(wrong_keys)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self {
            config: Arc::new(config),
            files: Arc::new(files),
        })
    }
}

fn wrong_keys(error: rustls::Error) -> BadValue {
    BadValue(match error {
        rustls::Error::InconsistentKeys(_) => "--key is not the key of --certificate".to_owned(),
        error => format!("--certificate and --key: {error}"),
    })
}

/// Of authorities, certificate and key.
fn named(at: &At) -> Result<[&Path; 3]> {
    let (Some(ca), Some(certificate), Some(key)) = (&at.ca, &at.certificate, &at.tls_key) else {
        bad_value!("https:// takes --ca, --certificate and --key: both sides show who they are");
    };
    Ok([ca, certificate, key])
}

fn files(at: &At) -> Result<[Vec<u8>; 3]> {
    let [ca, certificate, key] = named(at)?;
    Ok([read("ca", ca)?, read("certificate", certificate)?, read("key", key)?])
}

fn read(option: &str, path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("--{option}: reading {}", path.display()))
}

fn certificates(option: &str, path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => bad_value!("--{option}: there is no certificate in {}", path.display()),
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) struct Failed {
    why: String,
    /// One side does not take the other's certificate: the way there is good.
    pub(super) is_refusal: bool,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Failed {}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref());
        match of_tls.and_then(refusal) {
            Some(why) => Self { why, is_refusal: true },
            None => Self {
                why: error.to_string(),
                is_refusal: false,
            },
        }
    }
}

/// What is wrong with whose certificate.
fn refusal(error: &rustls::Error) -> Option<String> {
    Some(match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "the gateway's certificate is of no authority that --ca names".to_owned()
        }
        rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "the gateway's certificate has expired".to_owned()
        }
        rustls::Error::InvalidCertificate(why) => format!("the gateway's certificate: {why}"),
        rustls::Error::AlertReceived(AlertDescription::UnknownCA | AlertDescription::DecryptError) => {
            "the gateway does not know the authority of --certificate (its api.tcp.host-ca for hosts, client-ca for operators)"
                .to_owned()
        }
        rustls::Error::AlertReceived(AlertDescription::CertificateExpired) => {
            "the gateway says that --certificate has expired".to_owned()
        }
        rustls::Error::AlertReceived(alert) => format!("the gateway does not take --certificate: {alert:?}"),
        _ => return None,
    })
}

type Connected = TokioIo<BufReader<TlsStream<TcpStream>>>;

async fn connect(config: Arc<ClientConfig>, uri: Uri) -> Result<Connected, Failed> {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(443))).await?;
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(TlsConnector::from(config).connect(name, stream).await?);
    if stream.fill_buf().await?.is_empty() {
        return Err(io::Error::other("the gateway has ended the connection").into());
    }
    Ok(TokioIo::new(stream))
}

impl Service<Uri> for Greeter {
    type Response = Connected;
    type Error = Failed;
    type Future = Pin<Box<dyn Future<Output = Result<Connected, Failed>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(connect(Arc::clone(&self.config), uri))
    }
}
