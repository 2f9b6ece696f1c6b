//! Probes and load.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ringside_bpf::RingSeen;
use ringside_netlab::End;

use crate::Outcome;
use crate::far::{ECHO_PORT, SINK_PORT};
use crate::options::Options;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a stream writes at once.
const PIECE: usize = 64 << 10;

#[derive(Default)]
pub(crate) struct Round {
    /// Round trips, in microseconds, sorted.
    pub(crate) times: Vec<f64>,
    pub(crate) sent: u32,
    /// What the guest's device had no room for, and what went through it.
    pub(crate) dropped: u64,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) load_mbit: f64,
    /// What packets found waiting in the ring of the guest's device, where that can be seen.
    pub(crate) ring: Option<RingSeen>,
    pub(crate) seconds: f64,
}

fn guest(end: &End) -> Ipv4Addr {
    let [a, b, c, _] = end.ipv4.octets();
    Ipv4Addr::new(a, b, c, 2)
}

/// Sends on schedule, whatever has come back.
pub(crate) fn round(end: &End, options: &Options) -> Outcome<Round> {
    let socket = end.run(|| -> std::io::Result<_> {
        let socket = UdpSocket::bind((end.ipv4, 0))?;
        socket.connect((guest(end), ECHO_PORT))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(socket)
    })?;
    let receiver = socket.try_clone()?;
    let begin = Instant::now();
    let probes = options.probes;
    let receiving = thread::spawn(move || {
        let mut times = Vec::new();
        let mut data = [0; 64];
        while times.len() < probes as usize {
            match receiver.recv(&mut data) {
                Ok(_) => {
                    let sent = u64::from_ne_bytes(data[..8].try_into().unwrap_or_default());
                    let now = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    times.push(now.saturating_sub(sent) as f64 / 1000.0);
                }
                // Refused by the other end, which may come up.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
                Err(_) => break,
            }
        }
        times
    });
    for number in 0..probes {
        let due = begin + Duration::from_micros(options.interval_us) * number;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let mut data = [0; 64];
        let now = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        data[..8].copy_from_slice(&now.to_ne_bytes());
        // A full queue here, or nobody there: it counts as lost.
        let _ = socket.send(&data);
    }
    let mut times = receiving.join().map_err(|_| "the receiver has ended")?;
    times.sort_by(f64::total_cmp);
    Ok(Round {
        times,
        sent: probes,
        ..Round::default()
    })
}

/// TCP streams, as much as goes through.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
    begin: Instant,
    streams: Vec<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start(end: &End, options: &Options) -> Outcome<Self> {
        let streams = options.load;
        let mut load = Self {
            stop: Arc::default(),
            bytes: Arc::default(),
            begin: Instant::now(),
            streams: Vec::new(),
        };
        for _ in 0..streams {
            let mut stream = end.run(|| TcpStream::connect((guest(end), SINK_PORT)))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            let pause = options.pace_mbit.map(|mbit| {
                let per_second = mbit as f64 * 125_000.0 / f64::from(streams);
                Duration::from_secs_f64(PIECE as f64 / per_second)
            });
            let (stop, bytes) = (Arc::clone(&load.stop), Arc::clone(&load.bytes));
            load.streams.push(thread::spawn(move || {
                let data = vec![7; PIECE];
                let mut due = Instant::now();
                while !stop.load(Ordering::Relaxed) {
                    if let Some(pause) = pause {
                        thread::sleep(due.saturating_duration_since(Instant::now()));
                        // What could not be sent in time is not made up for.
                        due = (due + pause).max(Instant::now());
                    }
                    // A time-out is looked at as an end of a piece: it goes on.
                    let written = stream.write(&data).unwrap_or(0);
                    bytes.fetch_add(written as u64, Ordering::Relaxed);
                }
            }));
        }
        if streams != 0 {
            // Until the queues are as full as they get.
            thread::sleep(Duration::from_millis(700));
        }
        load.bytes.store(0, Ordering::Relaxed);
        load.begin = Instant::now();
        Ok(load)
    }

    /// Ends it, and says how many Mbit/s it was.
    pub(crate) fn stop(self) -> f64 {
        let bytes = self.bytes.load(Ordering::Relaxed) as f64;
        let seconds = self.begin.elapsed().as_secs_f64();
        self.stop.store(true, Ordering::Relaxed);
        for stream in self.streams {
            let _ = stream.join();
        }
        bytes * 8.0 / seconds / 1e6
    }
}
