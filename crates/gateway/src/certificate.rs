//! Validity of the gateway's own certificates.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::prelude::{ASN1Time, FromDer as _, X509Certificate};

use crate::config::Config;
use crate::fleet::EtcdOptions;

impl Config {
    /// Returns which of the gateway's own certificates are not valid now, and why.
    pub(crate) fn invalid_certificates(&self) -> Vec<String> {
        let etcd = self.etcd.as_ref().and_then(EtcdOptions::invalid_certificate);
        let tcp = self.tcp.as_ref().and_then(|tcp| {
            let why = invalidity(&tcp.tls.certificate)?;
            Some(format!("api.tcp.certificate {why}"))
        });
        etcd.into_iter().chain(tcp).collect()
    }
}

/// Returns why a certificate, or one of those up to its authority, all PEM, is not valid now.
/// Returns `None` if all are valid, or cannot be read.
pub(crate) fn invalidity(pem: &[u8]) -> Option<String> {
    CertificateDer::pem_slice_iter(pem).flatten().find_map(|certificate| {
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
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(years: [i32; 2]) -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["host".to_owned()]).unwrap();
        let [begin, end] = years.map(|year| rcgen::date_time_ymd(year, 1, 1));
        (params.not_before, params.not_after) = (begin, end);
        params.self_signed(&key).unwrap().pem()
    }

    #[test]
    fn tells_from_when_and_until_when_a_certificate_is_valid() {
        let valid = certificate([2020, 4000]);
        let [expired, future] = [[2020, 2021], [3999, 4000]].map(certificate);
        assert_eq!(invalidity(valid.as_bytes()), None);
        let why = "expired on Jan  1 00:00:00 2021 +00:00: renew it";
        assert_eq!(invalidity(expired.as_bytes()).as_deref(), Some(why));
        let why = invalidity(future.as_bytes()).unwrap();
        assert!(why.starts_with("is not valid before Jan  1 00:00:00 3999 "), "{why}");
        // Its authority's, behind it.
        assert!(invalidity((valid + &expired).as_bytes()).is_some());
        assert_eq!(invalidity(b"no certificate"), None);
    }
}
