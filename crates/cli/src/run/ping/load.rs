//! What loads a path while probes are on it: packets of the probes' own flow, another socket's, another program's.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use ringside_measure::pace::Pacer;
use ringside_measure::probe::{Clock, Kind, Probe};
use ringside_wire::flow::UdpFlow;
use ringside_xsk::Queue;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::clock::now_ns;
use crate::peer::Peer as _;
use crate::peer::udp::{Sending, Udp, Waiting};
use crate::session::Worker;

/// Load in the probes' own flow: requests of another session, which the other end answers as it does the probes.
pub(super) struct SelfLoad {
    flow: UdpFlow,
    template: Vec<u8>,
    session: u32,
    rate: Option<u64>,
    batch: u32,
    /// Frames that it may have under way: the probes want some, too.
    room: u32,
    next: u64,
    received: u64,
    /// While it is on.
    pacer: Option<Pacer>,
}

impl SelfLoad {
    /// Copies of the template, which has room for a probe behind the headers of the flow.
    pub(super) fn new(
        flow: UdpFlow,
        template: Vec<u8>,
        session: u32,
        rate: Option<u64>,
        queue: &Queue,
        batch: u32,
    ) -> Self {
        Self {
            flow,
            template,
            session,
            rate,
            batch,
            room: (queue.report().frames / 8).max(1),
            next: 0,
            received: 0,
            pacer: None,
        }
    }

    pub(super) fn start(&mut self, now_ns: u64) -> Result<()> {
        self.pacer = Some(match self.rate {
            Some(rate) => Pacer::per_second(rate, now_ns)?,
            None => Pacer::unlimited(now_ns),
        });
        Ok(())
    }

    pub(super) fn stop(&mut self) {
        self.pacer = None;
    }

    /// Packets sent, and those that came back.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.next, self.received)
    }

    pub(super) fn is_own(&self, probe: &Probe) -> bool {
        probe.session == self.session
    }

    pub(super) fn came_back(&mut self) {
        self.received += 1;
    }

    /// Sends what is due and has room; true while the next packet is due at once.
    pub(super) fn send(&mut self, queue: &mut Queue, worker: &Worker<'_>, now: u64) -> Result<bool> {
        let Some(pacer) = &mut self.pacer else { return Ok(false) };
        let due = pacer.backlog(now);
        let room = self.room.saturating_sub(queue.in_flight()).min(self.batch);
        let wanted = u32::try_from(due).unwrap_or(u32::MAX).min(room);
        if wanted == 0 {
            worker.unless_down(queue.flush())?;
            return Ok(due != 0);
        }
        let before = queue.counters().tx_packets;
        let (headers, length) = (self.flow.header_len(), self.template.len() - self.flow.header_len());
        let mut sequence = self.next;
        let sent = queue.send_with(wanted, |slot| {
            let probe = Probe {
                kind: Kind::Request,
                clock: Clock::Monotonic,
                session: self.session,
                sequence,
                intended_ns: now,
                sent_ns: now,
            };
            sequence += 1;
            let written = probe.encode(&mut self.template[headers..]).is_ok()
                && self.flow.write(&mut self.template, length).is_ok();
            debug_assert!(written, "the template has room for a probe");
            let fits = slot.write(&self.template);
            debug_assert!(fits, "the size was checked against the room");
        });
        worker.unless_down(sent)?;
        // Also a link that is down has a TX ring with some room.
        let sent = queue.counters().tx_packets - before;
        self.next += sent;
        pacer.take(now, sent);
        Ok(self.rate.is_none() || due > sent)
    }
}

/// Load that is none of the probes' flow.
pub(super) enum Foreign {
    /// UDP of the kernel's sockets, from and to these addresses, in payloads of so many bytes, so many a second.
    Udp {
        from: IpAddr,
        to: SocketAddr,
        payload: usize,
        rate: Option<u64>,
    },
    /// A command for the shell.
    Command(String),
}

/// Foreign load that is on; off when it is dropped.
pub(super) enum Running {
    Udp {
        end: Arc<AtomicBool>,
        sent: Arc<AtomicU64>,
        sender: Option<JoinHandle<Result<()>>>,
    },
    Command {
        command: String,
        child: Child,
    },
}

impl Foreign {
    pub(super) fn start(&self) -> Result<Running> {
        match self {
            &Self::Udp {
                from,
                to,
                payload,
                rate,
            } => {
                let sending = match rate {
                    Some(_) => Sending::Single,
                    None => Sending::Many,
                };
                let socket = Udp::open(SocketAddr::new(from, 0), to, Waiting::Spinning, sending, payload)
                    .context("--under-load=foreign: opening its socket")?;
                let end = Arc::new(AtomicBool::new(false));
                let sent = Arc::new(AtomicU64::new(0));
                let (seen, counter) = (Arc::clone(&end), Arc::clone(&sent));
                let sender = std::thread::Builder::new()
                    .name("foreign load".into())
                    .spawn(move || flood(socket, rate, &seen, &counter).context("--under-load=foreign"))
                    .context("starting the thread of the foreign load")?;
                Ok(Running::Udp {
                    end,
                    sent,
                    sender: Some(sender),
                })
            }
            Self::Command(command) => {
                let child = Command::new("/bin/sh")
                    .args(["-c", WATCHED, "sh", command])
                    .process_group(0)
                    .stdin(Stdio::piped())
                    .stdout(Stdio::null())
                    .spawn()
                    .with_context(|| format!("--load-command: starting /bin/sh -c {command:?}"))?;
                Ok(Running::Command {
                    command: command.clone(),
                    child,
                })
            }
        }
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Self::Udp { to, payload, rate, .. } => {
                format!(
                    "UDP of {payload} bytes to {to} by a socket of the kernel, {}",
                    pace(*rate)
                )
            }
            Self::Command(command) => command.clone(),
        }
    }
}

/// Runs a command in a shell, and kills its process group when standard input is closed, which
/// happens however this process ends. The watching process is no job of the command's shell, whose
/// `wait` does not wait for it.
const WATCHED: &str = r#"exec 3<&0 </dev/null; { read -r _ <&3; kill -KILL 0; } & exec 3<&-; exec /bin/sh -c "$1""#;

/// `as fast as it can`, `1000 packets/s`
pub(super) fn pace(rate: Option<u64>) -> String {
    rate.map_or_else(|| "as fast as it can".into(), |rate| format!("{rate} packets/s"))
}

/// Sends at a rate, or as fast as it goes, until told to end.
pub(crate) fn flood(mut socket: Udp, rate: Option<u64>, end: &AtomicBool, sent: &AtomicU64) -> Result<()> {
    let mut pacer = match rate {
        Some(rate) => Pacer::per_second(rate, now_ns())?,
        None => Pacer::unlimited(now_ns()),
    };
    while !end.load(Ordering::Relaxed) {
        let now = now_ns();
        if !pacer.is_due(now) {
            std::thread::sleep(Duration::from_nanos(pacer.next_due_ns() - now).min(Duration::from_millis(10)));
            continue;
        }
        match socket.transmit() {
            // Nobody listens on that port, and the other host says so instead of taking the next packet.
            Ok(0) => {}
            Ok(count) => {
                sent.fetch_add(count, Ordering::Relaxed);
                pacer.take(now, count);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Running {
    /// How many packets it has sent, where that is known.
    pub(super) fn sent(&self) -> Option<u64> {
        match self {
            Self::Udp { sent, .. } => Some(sent.load(Ordering::Relaxed)),
            Self::Command { .. } => None,
        }
    }

    /// Ends it.
    pub(super) fn end(mut self) -> Result<()> {
        match &mut self {
            Self::Udp { end, sender, .. } => {
                end.store(true, Ordering::Relaxed);
                match sender.take().map(JoinHandle::join) {
                    Some(Ok(done)) => done,
                    Some(Err(panic)) => std::panic::resume_unwind(panic),
                    None => Ok(()),
                }
            }
            Self::Command { command, child } => {
                if let Some(status) = child.try_wait().context("looking after the load's command")? {
                    match (status.code(), status.signal()) {
                        (Some(0), _) => bail!(
                            "--load-command {command:?} ended before its turn was over: have it run for longer, it is ended \
                             with the turn"
                        ),
                        (code, signal) => bail!(
                            "--load-command {command:?} failed: {}",
                            code.map_or_else(
                                || format!("signal {}", signal.unwrap_or(0)),
                                |code| format!("exit status {code}")
                            )
                        ),
                    }
                }
                Ok(())
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        match self {
            Self::Udp { end, .. } => end.store(true, Ordering::Relaxed),
            Self::Command { child, .. } => {
                // Some of its group may run on when the shell has ended.
                if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                    _ = kill_process_group(group, Signal::KILL);
                }
                _ = child.wait();
            }
        }
    }
}
