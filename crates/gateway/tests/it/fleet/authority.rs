//! Who vouches for members and gateways.

use super::common::Folder;

/// An authority.
pub(crate) struct Authority {
    certificate: String,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, format!("authority {name}"));
        let certificate = params.self_signed(&key).unwrap().pem();
        let issuer = rcgen::Issuer::new(params, key);
        Self { certificate, issuer }
    }

    /// Writes a new certificate for these names or addresses, and its key: WHAT.pem, WHAT.key.
    pub(crate) fn write(&self, names: &[String], folder: &Folder, what: &str) {
        self.write_as(rcgen::CertificateParams::new(names.to_vec()).unwrap(), folder, what);
    }

    /// The same, of one that was good until 2021.
    pub(crate) fn write_expired(&self, names: &[String], folder: &Folder, what: &str) {
        let mut params = rcgen::CertificateParams::new(names.to_vec()).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        self.write_as(params, folder, what);
    }

    fn write_as(&self, params: rcgen::CertificateParams, folder: &Folder, what: &str) {
        let key = rcgen::KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap().pem();
        // At once: who reads them must not find one of each.
        for (ending, text) in [("key", key.serialize_pem()), ("pem", signed)] {
            let path = folder.join(&format!("{what}.{ending}"));
            let new = path.with_extension("new");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(&new, &path).unwrap();
        }
    }

    /// Writes whom to trust: ca.pem.
    pub(crate) fn write_trusted(trusted: &[&Self], folder: &Folder) {
        Self::write_trusted_as(trusted, folder, "ca.pem");
    }

    /// The same under another name.
    pub(crate) fn write_trusted_as(trusted: &[&Self], folder: &Folder, name: &str) {
        let all: String = trusted.iter().map(|authority| &*authority.certificate).collect();
        std::fs::write(folder.join(name), all).unwrap();
    }
}
