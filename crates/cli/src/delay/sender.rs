//! The test bed's sender: packets at uneven times, from NAPI's CPU.
//!
//! On a veth the packet's NAPI runs in the software interrupt at the end of the sender's system call, on its CPU. So the
//! sender plays the part that the NIC's interrupt has elsewhere: it sleeps, is woken by a timer, and comes before the
//! application by its real-time priority, as an interrupt does.
//!
//! Where the two share the CPU, all that the sender does after its packet is part of the delay. Setting a timer is the dearest
//! of that (on a virtual machine it leaves the guest), so the timer of the next packet is set before this one is sent.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ringside_measure::pace::UnevenPace;
use ringside_measure::probe::{Clock, HEADER_LEN, Kind, Probe};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::turn::{Ends, Shared, Turn};
use crate::clock::now_ns;
use crate::pin;
use crate::session::{POLL, nanos};
use crate::stop::Stop;

/// How long the last packet may take: others may have the application's CPU.
const DRAIN: Duration = Duration::from_secs(1);

/// Sends UDP from the other end.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) socket: UdpSocket,
    pub(super) to: SocketAddr,
    pub(super) interval: Duration,
}

/// What a turn of it was.
pub(super) struct Sent {
    pub(super) packets: u64,
    /// Why it has no real-time priority.
    pub(super) unprivileged: Option<String>,
}

impl Sender {
    /// Sends until the application has what it wants, the turn's time is over, or far more were sent than are needed.
    pub(super) fn run(&self, turn: &Turn, shared: &Shared, stop: &Stop) -> Result<Sent> {
        let _ends = Ends(&shared.end);
        pin::to_cpu(turn.place.napi)?;
        let privileged = pin::real_time(turn.priority.unwrap_or(0) + 1);
        while !shared.ready.load(Ordering::Acquire) {
            if shared.end.load(Ordering::Acquire) {
                return Ok(Sent {
                    packets: 0,
                    unprivileged: None,
                });
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let over = Instant::now() + turn.longest;
        let needed = turn.want + turn.warm_up;
        let most = needed + needed / 2 + 20;
        let mut pace = UnevenPace::new(nanos(self.interval), now_ns(), u64::from(turn.number))?;
        let mut timer = Timer::new(pace.next(now_ns()))?;
        let mut packets = 0;
        while packets < most && shared.good.load(Ordering::Relaxed) < turn.want {
            let is_due = timer.sleep()?;
            if stop.is_set() || shared.end.load(Ordering::Relaxed) || Instant::now() >= over {
                break;
            }
            if !is_due {
                continue;
            }
            timer.set(pace.next(now_ns()))?;
            self.send(turn.number, packets)?;
            packets += 1;
        }
        let drained = Instant::now() + DRAIN;
        while shared.seen.load(Ordering::Relaxed) < packets
            && !shared.end.load(Ordering::Relaxed)
            && Instant::now() < drained
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(Sent {
            packets,
            unprivileged: privileged.err().map(|error| format!("{error:#}")),
        })
    }

    fn send(&self, session: u32, sequence: u64) -> Result<()> {
        let sent_ns = now_ns();
        let probe = Probe {
            kind: Kind::Request,
            clock: Clock::Monotonic,
            session,
            sequence,
            intended_ns: sent_ns,
            sent_ns,
        };
        let mut payload = [0; HEADER_LEN];
        probe.encode(&mut payload)?;
        self.socket
            .send_to(&payload, self.to)
            .context("sending on the test bed")?;
        Ok(())
    }
}

/// Wakes at a time of CLOCK_MONOTONIC, in pieces short enough to see the end of a turn.
struct Timer {
    fd: OwnedFd,
    due_ns: u64,
}

impl Timer {
    fn new(due_ns: u64) -> Result<Self> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).context("making a timer")?;
        let mut timer = Self { fd, due_ns };
        timer.set(due_ns)?;
        Ok(timer)
    }

    fn set(&mut self, due_ns: u64) -> Result<()> {
        self.due_ns = due_ns;
        let piece = Duration::from_nanos(due_ns.min(now_ns() + nanos(POLL)));
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(piece).context("a time that a timer takes")?,
        };
        timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &once).context("setting a timer")?;
        Ok(())
    }

    /// Sleeps until the end of a piece; whether it was the last one.
    fn sleep(&mut self) -> Result<bool> {
        match rustix::io::read(&self.fd, &mut [0; 8]) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("sleeping until a packet is due"),
        }
        if now_ns() >= self.due_ns {
            return Ok(true);
        }
        self.set(self.due_ns)?;
        Ok(false)
    }
}
