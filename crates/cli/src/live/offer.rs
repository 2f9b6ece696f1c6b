//! From the command line to a thread that answers.

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context as _, Result};
use ringside_measure::latency::LiveLatency;
use ringside_xsk::Port;

use super::args::PrometheusArgs;
use super::board::{Board, Teller};
use super::directory::Socket;
use super::server::Server;
use super::source::Source;
use crate::output;

/// Listens where the command line wants it: before anything is opened, so that what cannot be is told first.
pub(crate) fn listen(args: &PrometheusArgs) -> Result<Option<TcpListener>> {
    let Some(address) = args.prometheus else {
        return Ok(None);
    };
    let advice = |error: &io::Error| match error.kind() {
        io::ErrorKind::AddrInUse => ": another program listens there, choose another port",
        io::ErrorKind::AddrNotAvailable => {
            ": no interface of this network namespace that is up has that address; 127.0.0.1 takes `lo` to be up"
        }
        io::ErrorKind::PermissionDenied => ": ports below 1024 take CAP_NET_BIND_SERVICE (root)",
        _ => "",
    };
    let listener = TcpListener::bind(address)
        .map_err(|error| anyhow::anyhow!("--prometheus: listening at {address}: {error}{}", advice(&error)))?;
    // Who connects and is gone before that is looked at shall not keep the others waiting.
    listener
        .set_nonblocking(true)
        .context("--prometheus: setting up the listener")?;
    let bound = listener.local_addr().unwrap_or(address);
    output::note(format_args!("metrics for Prometheus at http://{bound}/metrics"));
    Ok(Some(listener))
}

/// The statistics of a run, offered until it is dropped.
#[derive(Debug)]
pub(crate) struct Offer {
    board: Arc<Board>,
    /// The thread ends when this is closed.
    over: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Offer {
    /// Offers the queues of these ports. Where the state directory cannot be had nothing is offered there, which is no reason
    /// not to run.
    pub(crate) fn start(command: &'static str, ports: &[&Port], web: Option<TcpListener>) -> Result<Self> {
        let source = Source::new(command, ports)?;
        let board = source.board();
        let local = Socket::make().ok();
        if let Some(socket) = &local {
            socket
                .listener
                .set_nonblocking(true)
                .context("setting up a socket for statistics")?;
        }
        if local.is_none() && web.is_none() {
            return Ok(Self {
                board,
                over: None,
                thread: None,
            });
        }
        let (over, wakes) = UnixStream::pair().context("setting up the thread for statistics")?;
        let server = Server {
            source,
            local,
            web,
            over: wakes,
        };
        let thread = std::thread::Builder::new().name("statistics".into());
        Ok(Self {
            board,
            over: Some(over),
            thread: Some(thread.spawn(move || server.run())?),
        })
    }

    /// The pen of a thread that has queues.
    pub(crate) fn teller(&self) -> Teller {
        Teller::new(Arc::clone(&self.board))
    }

    /// Offers these times too; to be called before the first one.
    pub(crate) fn times(&self, times: &Arc<LiveLatency>) {
        // One run has one prober.
        _ = self.board.times.set(Arc::clone(times));
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.over = None;
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}
