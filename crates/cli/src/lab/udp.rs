//! Our own packets of UDP beside the probes, at a rate.
//!
//! In a namespace their other end is a thread of this process. In a guest and on another machine it is `ringside lab sink`: it is asked for a port over TCP, counts
//! what comes there, and says it in the end.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::bed::Course;
use super::tcp::{self, is_time};
use super::threads::Threads;
use crate::peer::Peer as _;
use crate::peer::udp::{Sending, Udp, Waiting};
use crate::run::ping::flood;

/// Port of the first load's packets between namespaces; the next one has the next port.
const PORT: u16 = 29_700;
/// A sink looks behind so many packets whether there are any more to come, or when none has come for so long.
const SOME: u32 = 64;
const LOOK: Duration = Duration::from_millis(50);
/// Packets that are late are waited for as long as there are some, and no longer than this.
const LATE: Duration = Duration::from_millis(500);

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packets {
    /// A second.
    pub(super) rate: u64,
    /// Bytes of UDP payload.
    pub(super) payload: u16,
}

/// Packets that are on; off when it is dropped.
pub(super) struct Stream {
    threads: Threads,
    sent: Arc<AtomicU64>,
    /// What came, where that is counted here.
    received: Arc<AtomicU64>,
    /// Who counts it elsewhere.
    sink: Option<TcpStream>,
}

/// What became of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    pub(super) sent: u64,
    /// `None` where the sink did not say in time.
    pub(super) received: Option<u64>,
}

impl Stream {
    /// Starts the packets of a load, by its number.
    pub(super) fn start(packets: Packets, number: u16, course: &Course<'_>, cpus: &[u32]) -> Result<Self> {
        let mut stream = Self {
            threads: Threads::default(),
            sent: Arc::default(),
            received: Arc::default(),
            sink: None,
        };
        let open = |[own, other]: [SocketAddr; 2], waiting| {
            Udp::open(own, other, waiting, Sending::Single, packets.payload.into())
        };
        let ends = match course.to {
            Some(to) => {
                let ends = [course.own.unwrap_or(Ipv4Addr::UNSPECIFIED), to.ipv4];
                let [source, target] = ends.map(|address| SocketAddr::from((address, PORT + number)));
                // The receiver first, and both in `stream` once they run: what follows may fail.
                let receiver = to.ns.try_run(|| open([target, source], Waiting::Blocking))??;
                stream.receive(receiver, cpus)?;
                [source, target]
            }
            None => {
                let at = SocketAddr::new(IpAddr::V4(course.at), tcp::port(number, true));
                let asked = tcp::packets(course.from, at).with_context(|| {
                    format!("asking {at}, where `ringside lab sink` is to run if that is another machine")
                });
                let (sink, port) = asked?;
                stream.sink = Some(sink);
                [
                    SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
                    SocketAddr::from((course.at, port)),
                ]
            }
        };
        let sender = course.from.try_run(|| open(ends, Waiting::Spinning))??;
        let sent = Arc::clone(&stream.sent);
        let send = move |end: &AtomicBool| flood(sender, Some(packets.rate), end, &sent);
        stream.threads.start("load sent", cpus, send)?;
        Ok(stream)
    }

    fn receive(&mut self, mut receiver: Udp, cpus: &[u32]) -> Result<()> {
        let received = Arc::clone(&self.received);
        let receive = move |end: &AtomicBool| {
            while !end.load(Ordering::Relaxed) {
                received.fetch_add(receiver.receive()?, Ordering::Relaxed);
            }
            Ok(())
        };
        self.threads.start("load received", cpus, receive)
    }

    /// Whether it goes on.
    pub(super) fn check(&mut self) -> Result<()> {
        self.threads.check()
    }

    /// Ends it, and asks what came.
    pub(super) fn end(mut self) -> Result<Done> {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counted = [read(&self.sent), read(&self.received)];
        self.threads.end()?;
        Ok(match self.sink.take() {
            None => Done {
                sent: counted[0],
                received: Some(counted[1]),
            },
            Some(sink) => Done {
                sent: read(&self.sent),
                received: tcp::came(sink)?,
            },
        })
    }
}

/// A sink's part: a port of its own for one sender, until that has no more.
pub(super) fn take(mut connection: TcpStream, has_to_end: impl Fn() -> bool) -> Result<()> {
    let socket = UdpSocket::bind((connection.local_addr()?.ip(), 0)).context("a port for packets")?;
    socket.set_read_timeout(Some(LOOK))?;
    let port = socket.local_addr()?.port();
    connection.write_all(&port.to_be_bytes())?;
    let sender = connection.peer_addr()?.ip();
    connection.set_nonblocking(true)?;
    let (mut buffer, mut came, mut behind) = (vec![0; 1 << 16], 0_u64, 0);
    let mut over: Option<Instant> = None;
    while !has_to_end() {
        match socket.recv_from(&mut buffer) {
            Ok((_, from)) => {
                came += u64::from(from.ip() == sender);
                behind += 1;
            }
            Err(error) if is_time(&error) => {
                if over.is_some() {
                    break;
                }
                behind = SOME;
            }
            Err(error) => return Err(error).context("taking packets"),
        }
        if over.is_some_and(|over| Instant::now() >= over) {
            break;
        }
        if behind >= SOME && over.is_none() {
            behind = 0;
            if is_over(&mut connection)? {
                over = Some(Instant::now() + LATE);
            }
        }
    }
    connection.set_nonblocking(false)?;
    connection.write_all(&came.to_be_bytes())?;
    Ok(())
}

/// Whether the other side has said its last word.
fn is_over(connection: &mut TcpStream) -> io::Result<bool> {
    match connection.read(&mut [0; 16]) {
        Ok(read) => Ok(read == 0),
        Err(error) if is_time(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "udp_tests.rs"]
mod tests;
