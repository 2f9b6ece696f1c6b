//! Validity of the gateway's own certificates.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::prelude::{ASN1Time, FromDer as _, X509Certificate};

use crate::config::Config;
use crate::fleet::EtcdOptions;

impl Config {
    /// Returns which of the gateway's own certificates are not valid now, and why.
    #[must_use]
    pub fn invalid_certificates(&self) -> Vec<String> {
        let etcd = self.etcd.as_ref().and_then(EtcdOptions::invalid_certificate);
        let tcp = self.tcp.as_ref().and_then(|tcp| {
            let why = invalidity(&tcp.tls.certificate)?;
            Some(format!("api.tcp.certificate {why}"))
        });
        etcd.into_iter().chain(tcp).collect()
    }
}

/// Returns why the first certificate of a file (PEM) cannot be used now; `None` if it can, or if
/// it cannot be read.
pub(crate) fn invalidity(pem: &[u8]) -> Option<String> {
    let certificate = CertificateDer::from_pem_slice(pem).ok()?;
    let (_, certificate) = X509Certificate::from_der(&certificate).ok()?;
    let (validity, now) = (certificate.validity(), ASN1Time::now());
    if now > validity.not_after {
        Some(format!("expired on {}: renew it", validity.not_after))
    } else if now < validity.not_before {
        let begin = validity.not_before;
        Some(format!("is not valid before {begin}: check this host's clock"))
    } else {
        None
    }
}
