//! To the gateway, and what it says when it refuses.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, anyhow};
use ringside_measure::{BadValue, bad_value};
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Status};

use super::At;
use super::tls::{Failed, Greeter};

const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a stream that may be on their way.
const WINDOW: u32 = 4 << 20;

pub(super) async fn connect(at: &At) -> Result<Channel> {
    let (way, name) = match &at.address {
        None => (over_unix(&at.socket)?, at.socket.display().to_string()),
        Some(address) => (over_tls(at, address)?, address.clone()),
    };
    let way = way.with(|endpoint| {
        endpoint
            .connect_timeout(TIMEOUT)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(2 * WINDOW)
    });
    let connected = way.connect().await;
    connected.map_err(|error| {
        let advice = match at.address {
            None => {
                "; does ringside-gateway run here (systemctl status ringside-gateway), may you use its socket \
                     (`api.owner` in its configuration), and is it this one (--socket)?"
            }
            Some(_) if is_refusal(&error) => "",
            Some(_) => "; does it listen there (`api.tcp`)?",
        };
        anyhow!("connecting to the gateway at {name}: {}{advice}", causes(&error))
    })
}

/// How a gateway is reached.
pub(super) struct Way {
    endpoint: Endpoint,
    /// Over TLS.
    greeter: Option<Greeter>,
}

impl Way {
    /// The same with other options.
    pub(super) fn with(self, edit: impl FnOnce(Endpoint) -> Endpoint) -> Self {
        Self {
            endpoint: edit(self.endpoint),
            ..self
        }
    }

    /// What gateways are shown over TLS; None over a unix socket.
    pub(super) fn greeter(&self) -> Option<&Greeter> {
        self.greeter.as_ref()
    }

    /// Shows gateways something else from now on, if it is over TLS.
    pub(super) fn greet_with(&mut self, greeter: &Greeter) {
        if let Some(before) = &mut self.greeter {
            before.clone_from(greeter);
        }
    }

    pub(super) async fn connect(&self) -> Result<Channel, tonic::transport::Error> {
        match &self.greeter {
            None => self.endpoint.connect().await,
            Some(greeter) => self.endpoint.connect_with_connector(greeter.clone()).await,
        }
    }
}

/// What led to an error, that itself last.
fn sources<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

/// One side does not take the other's certificate.
fn is_refusal(error: &tonic::transport::Error) -> bool {
    sources(error).any(|error| error.downcast_ref::<Failed>().is_some_and(|failed| failed.is_refusal))
}

/// An error with what led to it, without saying anything twice, nor that it is one of the transport.
pub(super) fn causes(error: &tonic::transport::Error) -> String {
    let mut text = String::new();
    for more in sources(error).skip(usize::from(std::error::Error::source(error).is_some())) {
        let more = more.to_string();
        if text.is_empty() {
            text = more;
        } else if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
    }
    text
}

/// `https://HOST:PORT` or `unix:/PATH`.
pub(super) fn way(at: &At, text: &str) -> Result<Way> {
    match text.strip_prefix("unix:") {
        Some(path) => over_unix(Path::new(path)),
        None => over_tls(at, text),
    }
}

fn over_unix(path: &Path) -> Result<Way> {
    let path = path.display();
    let endpoint = Endpoint::from_shared(format!("unix:{path}"));
    let wrong = |error| BadValue(format!("{path:?} is no path of a socket: {error}"));
    Ok(Way {
        endpoint: endpoint.map_err(wrong)?,
        greeter: None,
    })
}

fn over_tls(at: &At, address: &str) -> Result<Way> {
    let Some(place) = address.strip_prefix("https://") else {
        bad_value!("{address:?}: only https://HOST:PORT, the gateway speaks nothing else over TCP");
    };
    let wrong = |error: String| BadValue(format!("{address:?} is no https://HOST:PORT: {error}"));
    let origin = address.parse::<Uri>().map_err(|error| wrong(error.to_string()))?;
    // What is made for it is TLS already.
    let endpoint = Endpoint::from_shared(format!("http://{place}"));
    let endpoint = endpoint.map_err(|error| wrong(causes(&error)))?;
    Ok(Way {
        endpoint: endpoint.origin(origin),
        greeter: Some(Greeter::new(at)?),
    })
}

/// What the gateway says, for people.
pub(super) fn refused(status: &Status) -> anyhow::Error {
    match status.code() {
        Code::Unimplemented => anyhow!("the gateway does not know this: it is older than this program"),
        // The connection broke: tonic's own words.
        Code::Unknown | Code::Cancelled => anyhow!("the gateway is gone: {}", status.message()),
        Code::InvalidArgument => BadValue(format!("the gateway says: {}", status.message())).into(),
        _ => anyhow!("the gateway says: {}", status.message()),
    }
}
