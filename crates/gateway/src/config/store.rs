//! `[store]`: where the truth is.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use tonic::transport::Uri;

use super::Check;
use crate::fleet::sync::Timing;
use crate::fleet::{EtcdOptions, EtcdTls, User};
use crate::model::ModelOptions;

/// The longest prefix, in bytes: it is in front of every key.
const LONGEST_PREFIX: usize = 128;

/// The longest that old state may be gone by, if there is a limit.
const MOST_STALE: Duration = Duration::from_secs(30 * 86_400);

/// What keeps the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// The file at `path`.
    #[default]
    Sqlite,
    /// etcd, for many gateways; the file at `path` is a copy.
    Etcd,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct StorePart {
    pub(super) kind: Kind,
    pub(super) path: PathBuf,
    pub(super) tombstone_seconds: u64,
    etcd: Option<EtcdPart>,
}

impl Default for StorePart {
    fn default() -> Self {
        Self {
            kind: Kind::Sqlite,
            path: "/var/lib/ringside-gateway/store.db".into(),
            tombstone_seconds: ModelOptions::default().tombstones.as_secs(),
            etcd: None,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct EtcdPart {
    endpoints: Vec<String>,
    prefix: String,
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    user: Option<String>,
    password_file: Option<PathBuf>,
    connect_ms: u64,
    request_ms: u64,
    silence_ms: u64,
    compare_seconds: u64,
    balance_seconds: u64,
    forward_stale_seconds: u64,
}

impl Default for EtcdPart {
    fn default() -> Self {
        let timing = Timing::default();
        Self {
            endpoints: Vec::new(),
            prefix: "/ringside/gateway/".to_owned(),
            ca: None,
            certificate: None,
            key: None,
            user: None,
            password_file: None,
            connect_ms: 2000,
            request_ms: 5000,
            silence_ms: u64::try_from(timing.silence.as_millis()).unwrap_or(u64::MAX),
            compare_seconds: timing.compare.as_secs(),
            balance_seconds: 300,
            forward_stale_seconds: 0,
        }
    }
}

impl StorePart {
    /// After how many milliseconds etcd counts as silent, if it is said where it is.
    pub(super) fn silence_ms(&self) -> Option<u64> {
        self.etcd.as_ref().map(|etcd| etcd.silence_ms)
    }

    /// Returns the files that are read, each with its key.
    pub(super) fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        self.etcd.iter().flat_map(|etcd| {
            let files = [
                ("store.etcd.ca", &etcd.ca),
                ("store.etcd.certificate", &etcd.certificate),
                ("store.etcd.key", &etcd.key),
                ("store.etcd.password-file", &etcd.password_file),
            ];
            files
                .into_iter()
                .filter_map(|(key, file)| Some((key, file.as_deref()?)))
        })
    }

    /// Where etcd is, if the truth is there. `migrates`: if it may come there.
    pub(super) fn etcd(&self, check: &mut Check<'_>, migrates: bool) -> Option<EtcdOptions> {
        let options = self.etcd.as_ref().and_then(|part| part.options(check));
        check.that(self.kind == Kind::Sqlite || self.etcd.is_some(), || {
            "store.etcd: endpoints are needed for store.kind = \"etcd\"".to_owned()
        });
        options.filter(|_| migrates || self.kind == Kind::Etcd)
    }
}

impl EtcdPart {
    fn options(&self, check: &mut Check<'_>) -> Option<EtcdOptions> {
        check.that(!self.endpoints.is_empty(), || {
            "store.etcd.endpoints: give at least one, such as \"https://192.0.2.10:2379\"".to_owned()
        });
        let mut endpoints: Vec<(Uri, &String)> = Vec::new();
        for text in &self.endpoints {
            if let Some(uri) = check.keep("store.etcd.endpoints", endpoint(text))
                && endpoints.iter().all(|(other, _)| *other != uri)
            {
                endpoints.push((uri, text));
            }
        }
        let mut schemes = endpoints.iter().filter_map(|(uri, _)| uri.scheme_str());
        let is_secure = schemes.clone().any(|scheme| scheme == "https");
        check.that(!is_secure || schemes.all(|scheme| scheme == "https"), || {
            "store.etcd.endpoints: all of them with https://, or none".to_owned()
        });
        check.keep("store.etcd.prefix", prefix(&self.prefix));
        let tls = self.tls(check, is_secure);
        let user = self.user(check);
        let mut time = |name: &str, milliseconds: u64, most: u64| {
            check.that((100..=most).contains(&milliseconds), || {
                format!("store.etcd.{name}: {milliseconds} is not within 100 to {most}")
            });
            Duration::from_millis(milliseconds)
        };
        let connect = time("connect-ms", self.connect_ms, 60_000);
        let request = time("request-ms", self.request_ms, 60_000);
        let silence = time("silence-ms", self.silence_ms, 60_000);
        let mut long = |name: &str, seconds: u64, least: u64| {
            check.that((least..=86_400).contains(&seconds), || {
                format!("store.etcd.{name}: {seconds} is not within {least} to 86400")
            });
            Duration::from_secs(seconds)
        };
        let compare = long("compare-seconds", self.compare_seconds, 10);
        let balance = long("balance-seconds", self.balance_seconds, 1);
        // A proof is a second old when all is well, and older where an answer is late.
        let stale = Duration::from_secs(self.forward_stale_seconds);
        check.that(stale.is_zero() || (silence..=MOST_STALE).contains(&stale), || {
            format!(
                "store.etcd.forward-stale-seconds: {} is neither 0, for no limit, nor from silence-ms to {}",
                self.forward_stale_seconds,
                MOST_STALE.as_secs()
            )
        });
        Some(EtcdOptions {
            endpoints: endpoints.into_iter().map(|(_, text)| text.clone()).collect(),
            prefix: self.prefix.clone(),
            tls,
            user,
            connect,
            request,
            balance,
            forward_stale: (!stale.is_zero()).then_some(stale),
            timing: Timing {
                // So that some answers may be late before that is taken for silence.
                pulse: (silence / 4).min(Timing::default().pulse),
                silence,
                compare,
                ..Timing::default()
            },
        })
    }

    fn tls(&self, check: &mut Check<'_>, is_secure: bool) -> Option<EtcdTls> {
        let given = self.ca.is_some() || self.certificate.is_some() || self.key.is_some();
        if !is_secure {
            check.that(!given, || {
                "store.etcd: ca, certificate and key are for endpoints with https://".to_owned()
            });
            return None;
        }
        check.that(self.ca.is_some(), || {
            "store.etcd.ca: the authority of etcd's servers is needed for https://".to_owned()
        });
        check.that(self.certificate.is_some() == self.key.is_some(), || {
            "store.etcd: certificate and key go together".to_owned()
        });
        let mut read = |name: &str, path: &Option<PathBuf>| {
            let path = path.as_ref()?;
            check.keep(&format!("store.etcd.{name}"), read(path))
        };
        let ca = read("ca", &self.ca);
        let identity = read("certificate", &self.certificate).zip(read("key", &self.key));
        let tls = EtcdTls { ca: ca?, identity };
        check.keep("store.etcd", usable(&tls))?;
        Some(tls)
    }

    fn user(&self, check: &mut Check<'_>) -> Option<User> {
        check.that(self.user.is_some() == self.password_file.is_some(), || {
            "store.etcd: user and password-file go together".to_owned()
        });
        let name = self.user.clone()?;
        let file = check.keep("store.etcd.password-file", read(self.password_file.as_ref()?))?;
        let password = String::from_utf8_lossy(&file).trim_end_matches(['\r', '\n']).to_owned();
        check.that(!password.is_empty() && !name.is_empty(), || {
            "store.etcd: user or password is empty".to_owned()
        });
        Some(User { name, password })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Parses an address of etcd, which is with TLS or on this host.
fn endpoint(text: &str) -> Result<Uri, String> {
    let wrong = |why: &str| format!("{text:?} {why}; write it as \"https://192.0.2.10:2379\"");
    let uri: Uri = text.parse().map_err(|error| wrong(&format!("is none ({error})")))?;
    let host = uri
        .host()
        .filter(|host| !host.is_empty())
        .ok_or_else(|| wrong("has no host"))?;
    match uri.port_u16() {
        None => return Err(wrong("has no port")),
        Some(0) => return Err(wrong("has port 0")),
        Some(_) => {}
    }
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() || text.contains('@') {
        return Err(wrong("has more than host and port"));
    }
    match uri.scheme_str() {
        Some("https") => Ok(uri),
        Some("http") => {
            let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
            match host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback()) {
                true => Ok(uri),
                false => Err(format!(
                    "{text:?} leaves this host without TLS, and whoever is in between could change where packets go; use https://"
                )),
            }
        }
        _ => Err(wrong("begins neither with https:// nor http://")),
    }
}

fn prefix(text: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_graphic();
    if !text.starts_with('/') || !text.ends_with('/') || text.contains("//") || !text.bytes().all(is_plain) {
        return Err(format!(
            "{text:?} does not begin and end with one /, or has other than visible ASCII"
        ));
    }
    if text.len() > LONGEST_PREFIX {
        return Err(format!("{text:?} is longer than {LONGEST_PREFIX} bytes"));
    }
    Ok(())
}

/// Whether they can be used, and belong together.
fn usable(tls: &EtcdTls) -> Result<(), String> {
    let certificates = |what: &str, pem: &[u8]| -> Result<Vec<_>, String> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        match read {
            Ok(read) if !read.is_empty() => Ok(read),
            Ok(_) => Err(format!("{what}: there is no certificate in it")),
            Err(error) => Err(format!("{what}: {error}")),
        }
    };
    let mut roots = RootCertStore::empty();
    for authority in certificates("ca", &tls.ca)? {
        roots.add(authority).map_err(|error| format!("ca: {error}"))?;
    }
    let provider = rustls::crypto::ring::default_provider();
    let config = ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("protocols: {error}"))?
        .with_root_certificates(roots);
    if let Some((certificate, key)) = &tls.identity {
        let certificates = certificates("certificate", certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("key: {error}"))?;
        let with = config.with_client_auth_cert(certificates, key);
        with.map_err(|error| format!("certificate and key: {error}"))?;
    }
    Ok(())
}
