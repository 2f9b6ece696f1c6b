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
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(names.to_vec()).unwrap();
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
        let all: String = trusted.iter().map(|authority| &*authority.certificate).collect();
        std::fs::write(folder.join("ca.pem"), all).unwrap();
    }
}
