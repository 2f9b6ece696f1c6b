//! To the gateway, and what it says when it refuses.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status};

use super::At;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a stream that may be on their way.
const WINDOW: u32 = 4 << 20;

pub(super) async fn connect(at: &At) -> Result<Channel> {
    let (endpoint, name) = match &at.address {
        None => (over_unix(&at.socket)?, at.socket.display().to_string()),
        Some(address) => (over_tls(at, address)?, address.clone()),
    };
    let endpoint = endpoint
        .connect_timeout(TIMEOUT)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(2 * WINDOW);
    let connected = endpoint.connect().await;
    connected.map_err(|error| {
        let advice = match at.address {
            None => {
                "does ringside-gateway run here (systemctl status ringside-gateway), may you use its socket \
                     (`api.owner` in its configuration), and is it this one (--socket)?"
            }
            Some(_) => "does it listen there (`api.tcp`), and do the certificates belong together?",
        };
        anyhow!("connecting to the gateway at {name}: {}; {advice}", causes(&error))
    })
}

/// An error with what led to it, without saying anything twice.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}

/// `https://HOST:PORT` or `unix:/PATH`.
pub(super) fn endpoint(at: &At, text: &str) -> Result<Endpoint> {
    match text.strip_prefix("unix:") {
        Some(path) => over_unix(Path::new(path)),
        None => over_tls(at, text),
    }
}

fn over_unix(path: &Path) -> Result<Endpoint> {
    let path = path.display();
    Endpoint::from_shared(format!("unix:{path}")).with_context(|| format!("--socket {path} is no path of a socket"))
}

fn over_tls(at: &At, address: &str) -> Result<Endpoint> {
    if !address.starts_with("https://") {
        bail!("--address {address:?}: only https://HOST:PORT, the gateway speaks nothing else over TCP");
    }
    let (Some(ca), Some(certificate), Some(key)) = (&at.ca, &at.certificate, &at.tls_key) else {
        bail!("--address takes --ca, --certificate and --key, too: both sides show who they are");
    };
    let read = |option: &str, path: &Path| {
        std::fs::read(path).with_context(|| format!("--{option}: reading {}", path.display()))
    };
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read("ca", ca)?))
        .identity(Identity::from_pem(read("certificate", certificate)?, read("key", key)?));
    let endpoint = Endpoint::from_shared(address.to_owned())
        .with_context(|| format!("--address {address:?} is no https://HOST:PORT"))?;
    endpoint
        .tls_config(tls)
        .map_err(|error| anyhow!("--ca, --certificate, --key: {}", causes(&error)))
}

/// What the gateway says, for people.
pub(super) fn refused(status: &Status) -> anyhow::Error {
    match status.code() {
        Code::Unimplemented => anyhow!("the gateway does not know this: it is older than this program"),
        // The connection broke: tonic's own words.
        Code::Unknown | Code::Cancelled => anyhow!("the gateway is gone: {}", status.message()),
        _ => anyhow!("the gateway says: {}", status.message()),
    }
}
