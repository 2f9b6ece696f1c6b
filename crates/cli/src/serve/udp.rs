//! The far end where XDP sockets cannot be had or are not wanted: a UDP socket of the kernel's, for one session.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ringside_measure::probe::{FarStamps, Probe, make_reply_in_place};

use super::board::{Board, View};
use super::stamp::stamp;
use crate::clock::now_ns;
use crate::output;
use crate::run::echo::Reply;

/// How long it may take to notice the end.
const LOOK: Duration = Duration::from_millis(100);

/// Answers until it is dropped.
pub(super) struct Responder {
    pub(super) port: u16,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    /// On a port that the kernel chooses. `thread` is its number on the board.
    pub(super) fn open(own: IpAddr, board: &Arc<Board>, thread: usize) -> Result<Self> {
        let socket = UdpSocket::bind((own, 0)).with_context(|| format!("binding a UDP socket to {own}"))?;
        socket
            .set_read_timeout(Some(LOOK))
            .context("setting how a UDP socket waits")?;
        let port = socket.local_addr().context("asking for its port")?.port();
        let over = Arc::new(AtomicBool::new(false));
        let (view, until) = (View::new(board, thread), Arc::clone(&over));
        let answerer = std::thread::Builder::new().name(format!("udp {port}"));
        let answerer = answerer
            .spawn(move || answer_all(&socket, view, &until))
            .context("starting a thread")?;
        Ok(Self {
            port,
            over,
            thread: Some(answerer),
        })
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

fn answer_all(socket: &UdpSocket, mut view: View, over: &AtomicBool) {
    let mut buffer = vec![0; 1 << 16];
    while !over.load(Ordering::Relaxed) {
        let (length, from) = match socket.recv_from(&mut buffer) {
            Ok(came) => came,
            // An answer that was refused by its receiver comes back as an error of the next call.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted | ErrorKind::ConnectionRefused
                ) =>
            {
                continue;
            }
            Err(error) => {
                output::note(format_args!("a UDP socket failed: {error}"));
                return;
            }
        };
        let came_ns = now_ns();
        view.refresh();
        let payload = &mut buffer[..length];
        let Ok(probe) = Probe::decode(payload) else { continue };
        let ip_bytes = length as u64 + if from.is_ipv4() { 28 } else { 48 };
        let taken = view.take(&probe, plain(from), ip_bytes, came_ns);
        view.publish();
        let stamps = || FarStamps {
            came_ns,
            left_ns: now_ns(),
        };
        if taken && !matches!(stamp(&probe, payload, stamps), Reply::None) && make_reply_in_place(payload).is_ok() {
            // A link that is down loses it, as any other packet.
            _ = socket.send_to(payload, from);
        }
    }
}

/// Without what only the kernel of this end knows of an address.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}
