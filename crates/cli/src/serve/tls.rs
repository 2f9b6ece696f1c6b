//! TLS between two who know each other: a key that was made here, and its fingerprint over there. No authority takes part.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    ServerConnection, SignatureScheme, StreamOwned,
};

use super::pin::Pin;
use super::secret::write_private;
use super::wire::{EncryptedStream, Wire, poll_until};
use crate::output::note;

/// A key with its certificate, in a file that only its owner reads.
pub(super) struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// That of the file, or a new one that is put there, so that it is the same next time.
    pub(super) fn load_or_make(path: &Path) -> Result<Self> {
        if !path.exists() {
            let made = rcgen::generate_simple_self_signed(vec!["ringside".to_owned()]).context("making a TLS key")?;
            let text = made.cert.pem() + &made.signing_key.serialize_pem();
            match write_private(path, &text) {
                Ok(()) => note(format_args!("made a TLS key in {}", path.display())),
                // Another process was faster: then that is the key.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("writing the TLS key to {}", path.display()));
                }
            }
        }
        let text = fs::read(path).with_context(|| format!("reading the TLS key {}", path.display()))?;
        let wrong = || {
            format!(
                "reading the TLS key {}: it holds a certificate and its key, in PEM",
                path.display()
            )
        };
        Ok(Self {
            certificate: CertificateDer::from_pem_slice(&text).with_context(wrong)?,
            key: PrivateKeyDer::from_pem_slice(&text).with_context(wrong)?,
        })
    }

    pub(super) fn pin(&self) -> Pin {
        Pin::of(&self.certificate)
    }

    /// The server's set-up. `allowed` are the keys of clients; none: anybody's, and none at all.
    pub(super) fn server(self, allowed: &[Pin]) -> Result<Arc<ServerConfig>> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .context("setting TLS up")?;
        let builder = match allowed {
            [] => builder.with_no_client_auth(),
            [..] => builder.with_client_cert_verifier(Arc::new(Pinned::new(allowed.to_vec()))),
        };
        let config = builder.with_single_cert(vec![self.certificate], self.key);
        Ok(Arc::new(config.context("using the TLS key")?))
    }

    /// A client's connection to a server with this pin; without one to any, which then has to prove who it is by the token.
    fn client(self, pin: Option<Pin>) -> Result<ClientConnection> {
        let verifier = Pinned::new(pin.into_iter().collect());
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .context("setting TLS up")?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(vec![self.certificate], self.key)
            .context("using the TLS key")?;
        let name = ServerName::try_from("ringside").expect("a name");
        ClientConnection::new(Arc::new(config), name).context("beginning TLS")
    }
}

/// Connects as a client with the key in `key_file`, which is made if it is not there. Without a
/// `pin` any server is accepted, which then has to prove by the token who it is.
///
/// Returns the connection and the pin of this host's own key.
///
/// # Errors
/// When the key cannot be read or made, and when the handshake fails or lasts beyond `deadline`.
pub(super) fn connect(key_file: &Path, pin: Option<Pin>, stream: TcpStream, deadline: Instant) -> Result<(Wire, Pin)> {
    let identity = Identity::load_or_make(key_file)?;
    let own = identity.pin();
    let handshake = shake_hands(identity.client(pin)?, stream, deadline);
    let stream =
        handshake.map_err(|error| anyhow!("{} (the pin of this host's own key is {own})", explain(&error, None)))?;
    Ok((Wire::encrypted(Box::new(stream)), own))
}

/// Accepts a client's connection.
///
/// # Errors
/// In words, when the handshake fails or lasts beyond `deadline`.
pub(super) fn accept(config: &Arc<ServerConfig>, stream: TcpStream, deadline: Instant) -> Result<Wire> {
    let connection = ServerConnection::new(Arc::clone(config)).context("beginning TLS")?;
    let stream = shake_hands(connection, stream, deadline).map_err(|error| anyhow!("{}", explain_to_server(&error)))?;
    Ok(Wire::encrypted(Box::new(stream)))
}

/// Completes the TLS handshake on a socket that never blocks.
fn shake_hands<C, D>(connection: C, stream: TcpStream, deadline: Instant) -> io::Result<StreamOwned<C, TcpStream>>
where
    C: std::ops::DerefMut<Target = rustls::ConnectionCommon<D>>,
    D: rustls::SideData,
{
    super::wire::prepare(&stream)?;
    let mut stream = StreamOwned::new(connection, stream);
    while stream.conn.is_handshaking() {
        let done = stream.conn.complete_io(&mut stream.sock).map(drop);
        poll_until(done, &stream.sock, stream.conn.wants_write(), deadline)?;
    }
    Ok(stream)
}

impl EncryptedStream for StreamOwned<ClientConnection, TcpStream> {
    fn socket(&self) -> &TcpStream {
        &self.sock
    }

    fn certificate(&self) -> Option<&[u8]> {
        Some(self.conn.peer_certificates()?.first()?)
    }
}

impl EncryptedStream for StreamOwned<ServerConnection, TcpStream> {
    fn socket(&self) -> &TcpStream {
        &self.sock
    }

    /// Clients are checked by their pins alone, and nothing is bound to their certificates.
    fn certificate(&self) -> Option<&[u8]> {
        None
    }
}

/// What a failed handshake is about, in words.
fn explain(error: &std::io::Error, own: Option<Pin>) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)) => {
            "the server's TLS key is not the pinned one: compare --pin with what `ringside serve --tls` prints; if both are right, \
             somebody is in between"
                .to_owned()
        }
        Some(Error::InvalidMessage(_)) => {
            "the other side does not speak TLS: start `ringside serve` with --tls, or leave --pin and --tls out".to_owned()
        }
        Some(Error::AlertReceived(alert)) => format!(
            "the server refuses this host's TLS key ({alert:?}): give it its pin with `ringside serve --allow {}`",
            own.map_or_else(|| "PIN".to_owned(), |own| own.to_string())
        ),
        Some(other) => format!("TLS: {other}"),
        None if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
            "the other side broke off: most likely it does not speak TLS; start `ringside serve` with --tls, or leave --pin and --tls out"
                .to_owned()
        }
        None => error.to_string(),
    }
}

/// The same of a connection that was open.
pub(super) fn broken(error: &std::io::Error, own: Option<Pin>) -> String {
    match error.get_ref().is_some_and(|inner| inner.is::<Error>()) {
        true => explain(error, own),
        false => format!("the connection is broken: {error}"),
    }
}

/// The same at the server.
fn explain_to_server(error: &std::io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)) => {
            "its TLS key is none of those allowed (--allow)".to_owned()
        }
        Some(Error::NoCertificatesPresented) => "it has no TLS key, and only some are allowed (--allow)".to_owned(),
        Some(Error::InvalidMessage(_)) => "it does not speak TLS: a client needs --pin or --tls".to_owned(),
        Some(Error::AlertReceived(alert)) => {
            format!("it broke TLS off ({alert:?}): has it another pin of this server?")
        }
        Some(other) => format!("TLS: {other}"),
        None => format!("the TLS handshake: {error}"),
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Takes certificates by their fingerprint alone: names, dates and authorities mean nothing here. That the other side has the
/// key is checked as always.
#[derive(Debug)]
struct Pinned {
    /// None: any.
    pins: Vec<Pin>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Pinned {
    fn new(pins: Vec<Pin>) -> Self {
        Self {
            pins,
            algorithms: ring::default_provider().signature_verification_algorithms,
        }
    }

    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        // Fingerprints are no secret: comparing them may take as long as it takes.
        if self.pins.is_empty() || self.pins.contains(&Pin::of(certificate)) {
            return Ok(());
        }
        Err(Error::InvalidCertificate(
            CertificateError::ApplicationVerificationFailure,
        ))
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(certificate).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(certificate).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
