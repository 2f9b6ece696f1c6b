//! Our own TCP streams beside the probes: bulk at a rate, or requests and their answers.
//!
//! ```text
//!  bulk       header, bytes at their times …  end ──▶ sink ── how many came ──▶
//!  requests   header, request ──▶ sink ── answer ──▶ request ──▶ …
//!  packets    header ──▶ sink ── port ──▶ … UDP …  end ──▶ sink ── how many came ──▶      udp.rs
//! ```
//!
//! In a namespace the sink is threads of this process; in a guest and on another machine it is `ringside lab sink`.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ringside_netlab::Namespace;

use super::bed::Course;
use super::threads::Threads;
use super::udp;
use crate::output;
use crate::peer::{fix_receive_buffer, limit_unsent, limit_window};
use crate::stop::Stop;

/// Of the sink for the first load; in a guest and on another machine there is this one alone, for all of them.
const PORT: u16 = 29_800;
/// What a stream begins with: who it is, then bytes of a request and of its answer. Of bulk there is no request, and in place of an answer the window that
/// the sink is to have, or 0. Packets of UDP have a request that is too long for one.
const MAGIC: [u8; 8] = *b"ringload";
const HEADER: usize = 16;
const PACKETS: u32 = u32::MAX;
/// The most that is written at once, and how much of its time that is at a slow rate.
const PIECE: usize = 64 << 10;
const PIECE_TIME: f64 = 0.01;
/// How often one that waits looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// How long a sink may take until it is there, and until it has said what came.
const START: Duration = Duration::from_secs(5);
const END: Duration = Duration::from_secs(2);

/// What the streams of a load do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Stream {
    /// As much as goes through, or bits a second of each, and no more on its way than a window has bytes.
    Bulk {
        bits_per_s: Option<f64>,
        window: Option<u32>,
    },
    /// One request after the other, or so many a second.
    Requests {
        request: u32,
        answer: u32,
        per_s: Option<u64>,
    },
}

/// Streams that are on; off when it is dropped.
pub(super) struct Streams {
    threads: Threads,
    counts: Arc<Counts>,
    // Behind the streams, which ask it.
    _sink: Option<Sink>,
}

/// Of all streams of a load.
#[derive(Debug, Default)]
struct Counts {
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    answers: AtomicU64,
    /// Streams of which it is not known what came.
    silent: AtomicU64,
}

/// What they did.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) sent_bytes: u64,
    /// `None` where the sink did not say in time.
    pub(super) received_bytes: Option<u64>,
    pub(super) answers: u64,
}

/// Port of the sink for a load, by its number, or of one that was started elsewhere.
pub(super) fn port(number: u16, is_elsewhere: bool) -> u16 {
    if is_elsewhere { PORT } else { PORT + number }
}

impl Streams {
    /// Starts some to a sink, which is made if that is in a namespace of this machine; elsewhere it has been started.
    pub(super) fn start(stream: Stream, count: u32, course: &Course<'_>, at: SocketAddr, cpus: &[u32]) -> Result<Self> {
        let sink = course.to.map(|end| {
            let listener = end.run(|| TcpListener::bind(at));
            Sink::open(listener.with_context(|| format!("listening on {at}"))?, cpus)
        });
        let mut streams = Self {
            threads: Threads::default(),
            counts: Arc::default(),
            _sink: sink.transpose()?,
        };
        for _ in 0..count {
            let connection = connect(course.from, at).with_context(|| {
                format!("connecting to {at}, where `ringside lab sink` is to run if that is another machine")
            })?;
            let counts = Arc::clone(&streams.counts);
            streams.threads.start("load tcp", cpus, move |end| {
                run(connection, stream, end, &counts).with_context(|| format!("a stream to {at}"))
            })?;
        }
        Ok(streams)
    }

    /// Whether they all go on.
    pub(super) fn check(&mut self) -> Result<()> {
        self.threads.check()
    }

    /// Ends them, and asks the sink what came.
    pub(super) fn end(mut self) -> Result<Done> {
        self.threads.end()?;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Ok(Done {
            sent_bytes: read(&self.counts.sent_bytes),
            received_bytes: (read(&self.counts.silent) == 0).then(|| read(&self.counts.received_bytes)),
            answers: read(&self.counts.answers),
        })
    }
}

/// The one in a guest may not be there yet.
fn connect(from: &Namespace, at: SocketAddr) -> Result<TcpStream> {
    let over = Instant::now() + START;
    loop {
        match from.try_run(|| TcpStream::connect_timeout(&at, START))? {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && Instant::now() < over => thread::sleep(LOOK),
            done => return Ok(done?),
        }
    }
}

fn run(mut connection: TcpStream, stream: Stream, end: &AtomicBool, counts: &Counts) -> Result<()> {
    set_up(&connection)?;
    let (request, answer) = match stream {
        Stream::Bulk { window, .. } => (0, window.unwrap_or(0)),
        Stream::Requests { request, answer, .. } => (request, answer),
    };
    connection.write_all(&header(request, answer))?;
    match stream {
        Stream::Bulk { bits_per_s, window } => {
            if let Some(bytes) = window {
                // Unsent megabytes would take longer than END at a small window.
                limit_unsent(&connection, bytes)?;
            }
            bulk(connection, bits_per_s, end, counts)
        }
        Stream::Requests { per_s, .. } => {
            let sizes = [request, answer].map(|bytes| bytes as usize);
            requests(connection, sizes, per_s, end, counts)
        }
    }
}

fn header(request: u32, answer: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&request.to_be_bytes());
    header[12..].copy_from_slice(&answer.to_be_bytes());
    header
}

/// Asks a sink for a port to which packets are sent; behind them it says how many came.
pub(super) fn packets(from: &Namespace, at: SocketAddr) -> Result<(TcpStream, u16)> {
    let mut connection = connect(from, at)?;
    set_up(&connection)?;
    connection.write_all(&header(PACKETS, 0))?;
    let mut port = [0; 2];
    let over = Instant::now() + START;
    match read(&mut connection, &mut port, || Instant::now() >= over)? {
        Got::All => Ok((connection, u16::from_be_bytes(port))),
        Got::End | Got::ToldToEnd => bail!("the sink at {at} takes no packets of UDP: is it of another version?"),
    }
}

/// What a sink says to the end of a stream; `None` if it does not say it in time.
pub(super) fn came(mut connection: TcpStream) -> Result<Option<u64>> {
    connection.shutdown(Shutdown::Write)?;
    let mut came = [0; 8];
    let over = Instant::now() + END;
    Ok(match read(&mut connection, &mut came, || Instant::now() >= over)? {
        Got::All => Some(u64::from_be_bytes(came)),
        Got::End | Got::ToldToEnd => None,
    })
}

fn bulk(mut connection: TcpStream, bits_per_s: Option<f64>, end: &AtomicBool, counts: &Counts) -> Result<()> {
    let (piece, pause) = match bits_per_s {
        None => (PIECE, Duration::ZERO),
        Some(bits) => paced(bits),
    };
    let data = vec![7; piece];
    let mut due = Instant::now();
    'turn: while !end.load(Ordering::Relaxed) {
        let mut left = &data[..];
        while !left.is_empty() {
            if end.load(Ordering::Relaxed) {
                break 'turn;
            }
            match connection.write(left) {
                Ok(written) => {
                    counts.sent_bytes.fetch_add(written as u64, Ordering::Relaxed);
                    left = &left[written..];
                }
                Err(error) if is_time(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // What could not be sent in time is not made up for.
        due = (due + pause).max(Instant::now());
        sleep_until(due, end);
    }
    match came(connection)? {
        Some(bytes) => counts.received_bytes.fetch_add(bytes, Ordering::Relaxed),
        None => counts.silent.fetch_add(1, Ordering::Relaxed),
    };
    Ok(())
}

/// What is written at once at a rate, and in which time.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "of the range of PIECE"
)]
fn paced(bits_per_s: f64) -> (usize, Duration) {
    let bytes_per_s = bits_per_s / 8.0;
    let piece = (bytes_per_s * PIECE_TIME).clamp(1.0, PIECE as f64) as usize;
    (piece, Duration::from_secs_f64(piece as f64 / bytes_per_s))
}

fn requests(
    mut connection: TcpStream,
    [request, answer]: [usize; 2],
    per_s: Option<u64>,
    end: &AtomicBool,
    counts: &Counts,
) -> Result<()> {
    let (request, mut answer) = (vec![7; request], vec![0; answer]);
    let pause = per_s.map_or(Duration::ZERO, |rate| Duration::from_nanos(1_000_000_000 / rate.max(1)));
    let has_to_end = || end.load(Ordering::Relaxed);
    let mut due = Instant::now();
    while !has_to_end() {
        if !write(&mut connection, &request, has_to_end)? {
            break;
        }
        counts.sent_bytes.fetch_add(request.len() as u64, Ordering::Relaxed);
        match read(&mut connection, &mut answer, has_to_end)? {
            Got::All => {}
            Got::ToldToEnd => break,
            Got::End => bail!("the other end has closed it"),
        }
        // The sink has it whole, or there were no answer.
        counts.received_bytes.fetch_add(request.len() as u64, Ordering::Relaxed);
        counts.answers.fetch_add(1, Ordering::Relaxed);
        due = (due + pause).max(Instant::now());
        sleep_until(due, end);
    }
    Ok(())
}

fn sleep_until(due: Instant, end: &AtomicBool) {
    while !end.load(Ordering::Relaxed) {
        match due.saturating_duration_since(Instant::now()) {
            Duration::ZERO => return,
            left => thread::sleep(left.min(LOOK)),
        }
    }
}

/// Where streams end; gone with all its connections when it is dropped.
pub(super) struct Sink {
    threads: Threads,
}

impl Sink {
    /// Takes what connects, on some CPUs.
    fn open(listener: TcpListener, cpus: &[u32]) -> Result<Self> {
        let mut threads = Threads::default();
        threads.start("load sink", cpus, move |end| accept(&listener, end))?;
        Ok(Self { threads })
    }
}

impl Sink {
    fn is_open(&self) -> bool {
        self.threads.are_on()
    }

    /// Ends it; why it has ended before, if it has.
    fn close(mut self) -> Result<()> {
        self.threads.end()
    }
}

/// `ringside lab sink`: until it is ended, or goes with its guest.
pub(super) fn sink(listen: Ipv4Addr, stop: &Stop) -> Result<()> {
    let at = SocketAddr::from((listen, PORT));
    let listener = TcpListener::bind(at).with_context(|| format!("listening on {at}"))?;
    let sink = Sink::open(listener, &[])?;
    output::note(format_args!(
        "Taking streams of labs on {at}, TCP and UDP, of everybody; Ctrl-C ends it"
    ));
    while !stop.is_set() && sink.is_open() {
        thread::sleep(LOOK);
    }
    sink.close()
}

fn accept(listener: &TcpListener, end: &AtomicBool) -> Result<()> {
    listener.set_nonblocking(true)?;
    thread::scope(|scope| {
        while !end.load(Ordering::Relaxed) {
            match listener.accept() {
                // Its sender says what is wrong with it.
                Ok((connection, _)) => drop(scope.spawn(move || serve(connection, end))),
                Err(error) if is_time(&error) => thread::sleep(LOOK / 10),
                Err(error) => {
                    end.store(true, Ordering::Relaxed);
                    return Err(error).context("accepting a stream");
                }
            }
        }
        Ok(())
    })
}

fn serve(mut connection: TcpStream, end: &AtomicBool) -> Result<()> {
    // Some systems hand it on from the listener.
    connection.set_nonblocking(false)?;
    set_up(&connection)?;
    let has_to_end = || end.load(Ordering::Relaxed);
    let mut header = [0; HEADER];
    if read(&mut connection, &mut header, has_to_end)? != Got::All {
        return Ok(());
    }
    let (magic, sizes) = header.split_at(MAGIC.len());
    ensure!(magic == MAGIC, "no stream of ours");
    let [request, answer] = [&sizes[..4], &sizes[4..]].map(|bytes| bytes.try_into().map_or(0, u32::from_be_bytes));
    if request == PACKETS {
        return udp::take(connection, has_to_end);
    }
    let window = answer;
    let [request, answer] = [request, answer].map(|bytes| (bytes as usize).min(super::plan::MOST_REQUEST));
    if request == 0 {
        let came = drain(&mut connection, window, has_to_end)?;
        write(&mut connection, &came.to_be_bytes(), has_to_end)?;
        return Ok(());
    }
    let (mut asked, told) = (vec![0; request], vec![7; answer]);
    while read(&mut connection, &mut asked, has_to_end)? == Got::All {
        if !write(&mut connection, &told, has_to_end)? {
            break;
        }
    }
    Ok(())
}

/// Receives until the other end closes and returns the number of bytes. Limits the window unless
/// `window` is 0.
fn drain(connection: &mut TcpStream, window: u32, has_to_end: impl Fn() -> bool) -> io::Result<u64> {
    let (mut data, mut came) = (vec![0; 4 * PIECE], 0);
    if window != 0 {
        match fix_receive_buffer(connection, window) {
            // Without the capability the kernel may offer more while this thread waits for a CPU.
            Err(error) if error.kind() != ErrorKind::PermissionDenied => return Err(error),
            _ => {}
        }
    }
    while !has_to_end() {
        if window != 0 {
            limit_window(connection, window)?;
        }
        match connection.read(&mut data) {
            Ok(0) => break,
            Ok(read) => came += read as u64,
            Err(error) if is_time(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(came)
}

/// Nothing waits longer than until it looks again; requests are not held back.
fn set_up(connection: &TcpStream) -> io::Result<()> {
    connection.set_read_timeout(Some(LOOK))?;
    connection.set_write_timeout(Some(LOOK))?;
    connection.set_nodelay(true)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Got {
    All,
    End,
    ToldToEnd,
}

fn read(connection: &mut TcpStream, mut room: &mut [u8], has_to_end: impl Fn() -> bool) -> io::Result<Got> {
    while !room.is_empty() {
        if has_to_end() {
            return Ok(Got::ToldToEnd);
        }
        match connection.read(room) {
            Ok(0) => return Ok(Got::End),
            Ok(read) => room = &mut room[read..],
            Err(error) if is_time(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Got::All)
}

/// Whether all of it was written.
fn write(connection: &mut TcpStream, mut data: &[u8], has_to_end: impl Fn() -> bool) -> io::Result<bool> {
    while !data.is_empty() {
        if has_to_end() {
            return Ok(false);
        }
        match connection.write(data) {
            Ok(written) => data = &data[written..],
            Err(error) if is_time(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Nothing is wrong: it is time to look again.
pub(super) fn is_time(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

#[cfg(test)]
#[path = "tcp_tests.rs"]
mod tests;
