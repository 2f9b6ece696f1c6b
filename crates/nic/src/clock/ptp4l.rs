//! What ptp4l says of its offset from the master, asked by PTP's management messages over its local socket.
//!
//! A ptp4l answers at `/var/run/ptp4l`, newer ones (linuxptp 4) also at `/var/run/ptp4lro`, which everybody may ask. Nothing is changed:
//! the message is a GET. The layouts are those of IEEE 1588-2019, 13.3 (header), 15.4 (management), 15.5.3.4.2 (CURRENT_DATA_SET) and 15.5.3.7.1
//! (PORT_DATA_SET).
//!
//! ```text
//!   0 header, 34 bytes: type 0xD, version 2, length, domain, …
//!  34 target, 10 bytes of ones: all ports    44 hops, hops    46 action: 0 GET, 2 RESPONSE
//!  48 TLV: type 1, length    52 id 0x2001    54 steps removed (16 bits), offset and delay (64 bits each, 2^-16 ns)
//! ```

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Where it answers.
const PATHS: [&str; 2] = ["/var/run/ptp4l", "/var/run/ptp4lro"];
/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(1);

const HEADER: usize = 34;
const LENGTH: usize = 72;
const MANAGEMENT: u8 = 0xd;
const RESPONSE: u8 = 2;
const CURRENT_DATA_SET: u16 = 0x2001;
const PORT_DATA_SET: u16 = 0x2004;
/// Bytes of each, without its id.
const CURRENT_LENGTH: u16 = 18;
const PORT_LENGTH: u16 = 26;
const TLV_MANAGEMENT: u16 = 1;
/// A port's state: it gives the time. IEEE 1588-2019, table 20.
const MASTER: u8 = 6;

/// What a ptp4l tells of itself (CURRENT_DATA_SET).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ptp4l {
    /// Offset of the clock that it disciplines (the NIC's, or with software time stamps CLOCK_REALTIME) from its master, in nanoseconds.
    pub offset_ns: i64,
    /// Mean delay of the path to the master.
    pub path_delay_ns: i64,
    /// Steps from the grandmaster: 0 for one that is it, or has none.
    pub steps_removed: u16,
    /// It is the grandmaster: a port of it gives the time.
    pub is_master: bool,
}

impl Ptp4l {
    /// Whether its offset is one: it has a master and has measured the path to it, or others follow it. One that still waits for a master, or for the
    /// master's first answer, tells an offset of 0 as well.
    #[must_use]
    pub fn knows_its_offset(&self) -> bool {
        match self.steps_removed {
            0 => self.is_master,
            _ => self.path_delay_ns != 0,
        }
    }

    /// Asks the one of this machine; `None` where there is none.
    ///
    /// # Errors
    ///
    /// Where there is one that does not answer, or that may not be asked.
    #[doc(alias = "pmc")]
    pub fn ask() -> io::Result<Option<Self>> {
        let mut failed = None;
        for path in PATHS.map(Path::new) {
            match Self::ask_at(path, 0) {
                Ok(Some(told)) => return Ok(Some(told)),
                Ok(None) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(None), Err)
    }

    /// Asks the one at this socket, of this PTP domain.
    ///
    /// # Errors
    ///
    /// As [`ask`](Self::ask).
    pub fn ask_at(path: &Path, domain: u8) -> io::Result<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        let own = Own::bind()?;
        // The two profiles in use: IEEE 1588's own, and 802.1AS.
        let questions = [(1, 0), (2, 1)]
            .map(|(sequence, profile)| question(profile, domain, sequence, (CURRENT_DATA_SET, CURRENT_LENGTH)));
        let answer = own.ask(path, &questions, |bytes| Some((bytes.first()? >> 4, told(bytes)?)))?;
        let (profile, mut told) = match answer {
            Answer::Told(told) => told,
            Answer::Nobody => return Ok(None),
            Answer::Silence => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("{} does not answer for domain {domain}", path.display()),
                ));
            }
        };
        if told.steps_removed == 0 {
            let question = question(profile, domain, 3, (PORT_DATA_SET, PORT_LENGTH));
            // Every port answers for itself, and nobody says how many there are.
            let answer = own.ask(path, &[question], |bytes| {
                port_state(bytes).filter(|state| *state == MASTER)
            })?;
            told.is_master = matches!(answer, Answer::Told(_));
        }
        Ok(Some(told))
    }
}

/// What came of a question.
enum Answer<T> {
    Told(T),
    /// The socket was left by one that has ended.
    Nobody,
    /// No answer of that kind in time.
    Silence,
}

/// A socket with a name in the file system, which answers find also from another network namespace.
struct Own {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Own {
    fn bind() -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ringside-ptp-{}-{number}", std::process::id()));
        let socket = UnixDatagram::bind(&path)?;
        Ok(Self { socket, path })
    }

    /// The first answer to questions that is one.
    fn ask<T>(&self, path: &Path, questions: &[Vec<u8>], read: impl Fn(&[u8]) -> Option<T>) -> io::Result<Answer<T>> {
        let end = Instant::now() + PATIENCE;
        for question in questions {
            match self.socket.send_to(question, path) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(Answer::Nobody),
                Err(error) => return Err(error),
            }
        }
        let mut answer = [0; 1500];
        loop {
            // An answer may have come while this thread was away.
            let left = end.saturating_duration_since(Instant::now());
            self.socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            match self.socket.recv(&mut answer) {
                Ok(len) => {
                    if let Some(told) = read(answer.get(..len).unwrap_or_default()) {
                        return Ok(Answer::Told(told));
                    }
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if left.is_zero() {
                        return Ok(Answer::Silence);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.path);
    }
}

/// For a data set, named by its id and the bytes that it has.
fn question(profile: u8, domain: u8, sequence: u16, (id, length): (u16, u16)) -> Vec<u8> {
    let whole = 54 + length;
    let mut bytes = vec![0; whole.into()];
    bytes[0] = profile << 4 | MANAGEMENT;
    bytes[1] = 2;
    bytes[2..4].copy_from_slice(&whole.to_be_bytes());
    bytes[4] = domain;
    // Whoever asks is a port, too: any number does that is not the answerer's.
    bytes[28..30].copy_from_slice(&std::process::id().to_be_bytes()[2..]);
    bytes[30..32].copy_from_slice(&sequence.to_be_bytes());
    // Control field and interval of management messages.
    bytes[32] = 4;
    bytes[33] = 0x7f;
    bytes[HEADER..HEADER + 10].fill(0xff);
    bytes[48..50].copy_from_slice(&TLV_MANAGEMENT.to_be_bytes());
    bytes[50..52].copy_from_slice(&(length + 2).to_be_bytes());
    bytes[52..54].copy_from_slice(&id.to_be_bytes());
    bytes
}

/// Whether it is an answer that has this data set.
fn is_answer(bytes: &[u8], id: u16) -> bool {
    let u16_at = |at: usize| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    bytes.first().is_some_and(|first| first & 0xf == MANAGEMENT)
        && bytes.get(46).is_some_and(|action| action & 0xf == RESPONSE)
        && u16_at(48) == Some(TLV_MANAGEMENT)
        && u16_at(52) == Some(id)
}

/// What an answer tells of the clock, if it is one to that question.
fn told(bytes: &[u8]) -> Option<Ptp4l> {
    let bytes: &[u8; LENGTH] = bytes.first_chunk()?;
    let ns = |at: usize| {
        let scaled = i64::from_be_bytes(*bytes[at..].first_chunk()?);
        Some(scaled >> 16)
    };
    is_answer(bytes, CURRENT_DATA_SET).then_some(())?;
    Some(Ptp4l {
        steps_removed: u16::from_be_bytes([bytes[54], bytes[55]]),
        offset_ns: ns(56)?,
        path_delay_ns: ns(64)?,
        is_master: false,
    })
}

/// The state of a port, which stands behind its identity of 10 bytes.
fn port_state(bytes: &[u8]) -> Option<u8> {
    is_answer(bytes, PORT_DATA_SET).then(|| bytes.get(64).copied())?
}

#[cfg(test)]
#[path = "ptp4l_tests.rs"]
mod tests;
