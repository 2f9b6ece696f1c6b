//! TLS between two who know each other: a key that was made here, and its fingerprint over there. No authority takes part.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use ringside_measure::control::fingerprint;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    ServerConnection, SignatureScheme,
};

use super::secret::{hex, write_private};
use crate::output::note;

/// The fingerprint of somebody's certificate: `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pin([u8; 32]);

impl Pin {
    pub(super) fn of(certificate: &[u8]) -> Self {
        Self(fingerprint(certificate))
    }

    pub(super) fn bytes(self) -> [u8; 32] {
        self.0
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex(&self.0))
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Pin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("{text:?} is no pin: it is what `ringside serve --tls` prints, sha256: and 64 hexadecimal digits")
        };
        let digits = text
            .strip_prefix("sha256:")
            .filter(|digits| digits.len() == 64 && digits.is_ascii());
        let digits = digits.ok_or_else(wrong)?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

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
    pub(super) fn client(self, pin: Option<Pin>) -> Result<ClientConnection> {
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

/// A server's side of a connection.
pub(super) fn accept(config: &Arc<ServerConfig>) -> Result<ServerConnection> {
    ServerConnection::new(Arc::clone(config)).context("beginning TLS")
}

/// What a failed handshake is about, in words.
pub(super) fn explain(error: &std::io::Error, own: Option<Pin>) -> String {
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
pub(super) fn explain_to_server(error: &std::io::Error) -> String {
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

/// A server beyond this host, without anything that says who may use it.
pub(super) fn refuse_open(who: &str) -> Result<()> {
    bail!(
        "{who}: anybody who reaches it could have this host send and receive packets. Give a token (--token-file FILE, made if it is \
         not there, or RINGSIDE_TOKEN) or the keys of clients (--tls --allow PIN), listen on this host only (--listen 127.0.0.1), \
         or say --insecure"
    )
}
