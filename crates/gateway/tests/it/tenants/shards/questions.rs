//! A tenant that asks another one all the time, and how long it has no answers.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ringside_netlab::testing::bound;
use ringside_netlab::wait_until;

use crate::bed::{Bed, Family, Tenant};
use crate::peers::AtEnd;
use crate::process::PATIENCE;
use crate::tenants::streams::lost_by_kernel;

/// A tenant that asks another one every few milliseconds.
pub(super) struct Questions {
    asks: UdpSocket,
    echoes: UdpSocket,
    to: SocketAddr,
    began: Instant,
    asked: AtomicU64,
    /// Packets that the kernel's queues had lost before.
    lost_before: u64,
    /// When what was answered had been asked, and when the answer came.
    answers: Mutex<Vec<(Duration, Duration)>>,
}

const EVERY: Duration = Duration::from_millis(2);
/// Bytes of a socket's receive buffer, for a thread that does not run for seconds.
const BUFFER: usize = 16 << 20;

impl Questions {
    pub(super) fn new(bed: &Bed) -> Self {
        let (from, to) = (bed.at(1), bed.at(2));
        let place = SocketAddr::from((to.address(Family::V4), 9000));
        let bind = |tenant: &Tenant, place: SocketAddr| {
            let socket = tenant.ns.run(|| bound(|| UdpSocket::bind(place)));
            socket.set_read_timeout(Some(Duration::from_millis(50))).expect("set");
            rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER).expect("set");
            socket
        };
        Self {
            asks: bind(from, SocketAddr::from((from.address(Family::V4), 9001))),
            echoes: bind(to, place),
            to: place,
            began: Instant::now(),
            asked: AtomicU64::new(0),
            lost_before: lost_by_kernel(bed),
            answers: Mutex::default(),
        }
    }

    /// Asks while something else is done; then those on their way come.
    pub(super) fn during(&self, work: impl FnOnce(&Self)) {
        let (over, closed) = (AtomicBool::new(false), AtomicBool::new(false));
        let asks = || !over.load(Ordering::Relaxed);
        let hears = || !closed.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            let (ends, closes) = (AtEnd(&over), AtEnd(&closed));
            scope.spawn(|| {
                let mut packet = [0; 16];
                while hears() {
                    if let Ok((length, from)) = self.echoes.recv_from(&mut packet) {
                        _ = self.echoes.send_to(&packet[..length], from);
                    }
                }
            });
            scope.spawn(|| {
                let mut packet = [0; 8];
                while hears() {
                    if let Ok(8) = self.asks.recv(&mut packet) {
                        let asked = Duration::from_nanos(u64::from_le_bytes(packet));
                        self.answers
                            .lock()
                            .expect("no panic")
                            .push((asked, self.began.elapsed()));
                    }
                }
            });
            scope.spawn(|| {
                while asks() {
                    let now = u64::try_from(self.began.elapsed().as_nanos())
                        .expect("a test")
                        .to_le_bytes();
                    // While its host knows no gateway's MAC address it may be refused.
                    if self.asks.send_to(&now, self.to).is_ok() {
                        self.asked.fetch_add(1, Ordering::Relaxed);
                    }
                    std::thread::sleep(EVERY);
                }
            });
            self.goes();
            work(self);
            drop(ends);
            _ = wait_until(Duration::from_secs(2), || self.lost() == 0);
            drop(closes);
        });
    }

    /// Waits until what is asked from now on is answered, and says when the first answer came.
    pub(super) fn goes(&self) -> Duration {
        let since = self.began.elapsed();
        let first = || {
            let answers = self.answers.lock().expect("no panic");
            let new = answers.iter().rev().take_while(|(_, came)| *came >= since);
            new.filter(|(asked, _)| *asked >= since).map(|(_, came)| *came).min()
        };
        assert!(wait_until(PATIENCE, || first().is_some()), "no answer");
        first().expect("there is one") - since
    }

    /// Asserts that every question is answered, but for those that the kernel's queues have lost.
    pub(super) fn all_are_answered(&self, bed: &Bed) {
        let (lost, by_kernel) = (self.lost(), lost_by_kernel(bed) - self.lost_before);
        assert!(lost <= by_kernel, "{lost} lost, {by_kernel} by the kernel's queues");
    }

    fn lost(&self) -> u64 {
        let answered = self.answers.lock().expect("no panic").len() as u64;
        self.asked.load(Ordering::Relaxed).saturating_sub(answered)
    }
}
