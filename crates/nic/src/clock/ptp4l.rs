//! What ptp4l says of its offset from the master, asked by PTP's management messages over its local socket.
//!
//! A ptp4l answers at `/var/run/ptp4l`, newer ones (linuxptp 4) also at `/var/run/ptp4lro`, which everybody may ask. Nothing is changed:
//! the message is a GET. The layouts are those of IEEE 1588-2019, 13.3 (header), 15.4 (management) and 15.5.3.4.2 (CURRENT_DATA_SET).
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
const PATIENCE: Duration = Duration::from_millis(300);

const HEADER: usize = 34;
const LENGTH: usize = 72;
const MANAGEMENT: u8 = 0xd;
const RESPONSE: u8 = 2;
const CURRENT_DATA_SET: u16 = 0x2001;
const TLV_MANAGEMENT: u16 = 1;

/// What a ptp4l tells of itself (CURRENT_DATA_SET).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ptp4l {
    /// Offset of the clock that it disciplines (the NIC's, or with software time stamps CLOCK_REALTIME) from its master, in nanoseconds.
    pub offset_ns: i64,
    /// Mean delay of the path to the master.
    pub path_delay_ns: i64,
    /// Steps from the grandmaster: 0 for one that is it, or has none.
    pub steps_removed: u16,
}

impl Ptp4l {
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
        let end = Instant::now() + PATIENCE;
        // The two profiles in use: IEEE 1588's own, and 802.1AS.
        for (sequence, profile) in [(1, 0_u8), (2, 1)] {
            match own.socket.send_to(&question(profile, domain, sequence), path) {
                Ok(_) => {}
                // Left by one that has ended.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        let mut answer = [0; 1500];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("{} does not answer for domain {domain}", path.display()),
                ));
            }
            own.socket.set_read_timeout(Some(left))?;
            match own.socket.recv(&mut answer) {
                Ok(len) => {
                    if let Some(told) = told(answer.get(..len).unwrap_or_default()) {
                        return Ok(Some(told));
                    }
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                Err(error) => return Err(error),
            }
        }
    }
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
}

impl Drop for Own {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.path);
    }
}

fn question(profile: u8, domain: u8, sequence: u16) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[0] = profile << 4 | MANAGEMENT;
    bytes[1] = 2;
    bytes[3] = 72;
    bytes[4] = domain;
    // Whoever asks is a port, too: any number does that is not the answerer's.
    bytes[28..30].copy_from_slice(&std::process::id().to_be_bytes()[2..]);
    bytes[30..32].copy_from_slice(&sequence.to_be_bytes());
    // Control field and interval of management messages.
    bytes[32] = 4;
    bytes[33] = 0x7f;
    bytes[HEADER..HEADER + 10].fill(0xff);
    bytes[48..50].copy_from_slice(&TLV_MANAGEMENT.to_be_bytes());
    bytes[50..52].copy_from_slice(&20_u16.to_be_bytes());
    bytes[52..54].copy_from_slice(&CURRENT_DATA_SET.to_be_bytes());
    bytes
}

/// An answer, if it is one to that question.
fn told(bytes: &[u8]) -> Option<Ptp4l> {
    let bytes: &[u8; LENGTH] = bytes.first_chunk()?;
    let u16_at = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let ns = |at: usize| {
        let scaled = i64::from_be_bytes(*bytes[at..].first_chunk()?);
        Some(scaled >> 16)
    };
    let is_answer = bytes[0] & 0xf == MANAGEMENT
        && bytes[46] & 0xf == RESPONSE
        && u16_at(48) == TLV_MANAGEMENT
        && u16_at(52) == CURRENT_DATA_SET;
    is_answer.then_some(())?;
    Some(Ptp4l {
        steps_removed: u16_at(54),
        offset_ns: ns(56)?,
        path_delay_ns: ns(64)?,
    })
}

#[cfg(test)]
#[path = "ptp4l_tests.rs"]
mod tests;
