//! Sends probes one after the other from a queue, and waits for each to come back.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ringside_measure::latency::Latency;
use ringside_measure::probe::{Clock, HEADER_LEN, Kind, Probe};
use ringside_wire::flow::{UdpFlow, parse_udp};
use ringside_wire::udp::ChecksumState;
use ringside_xsk::{Port, Wait};

use super::tried::Answers;
use crate::clock::FastClock;
use crate::run::echo::{Own, Reply, answer};

/// Number of polls before the thread sleeps between them. Another thread may need this CPU to
/// deliver the packet.
const SPINS: u32 = 1000;

/// When to give up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For an answer.
    pub(super) timeout: Duration,
    /// As many in a row without one, and nobody will answer the others.
    pub(super) in_vain: u64,
}

impl Patience {
    /// A machine that is busy with other things is late, and not broken.
    pub(super) const USUAL: Self = Self {
        timeout: Duration::from_secs(1),
        in_vain: 3,
    };
    /// With who has not answered before.
    pub(super) const LITTLE: Self = Self {
        timeout: Duration::from_millis(200),
        in_vain: 1,
    };
}

/// Asks.
pub(super) struct Asker {
    flow: UdpFlow,
    frame: Vec<u8>,
    session: u32,
    sequence: u64,
    clock: FastClock,
}

impl Asker {
    pub(super) fn new(flow: UdpFlow) -> Self {
        let mut clock = FastClock::new();
        // What comes of an earlier run is none of this one's.
        let session = u32::try_from(clock.now_ns() & 0xffff_ffff).expect("masked") ^ std::process::id().rotate_left(16);
        Self {
            frame: vec![0; flow.header_len() + HEADER_LEN],
            flow,
            session,
            sequence: 0,
            clock,
        }
    }

    /// Sends so many probes from one queue of `near`, one at a time, and counts the answers on all of its queues. `far`
    /// answers meanwhile, if it is in this process.
    pub(super) fn ask(
        &mut self,
        near: &mut Port,
        queue: u32,
        mut far: Option<(&mut Port, &Own)>,
        probes: u64,
        patience: Patience,
    ) -> Result<Answers> {
        let mut answers = Answers::default();
        let mut rtt = Latency::new();
        let mut in_vain = 0;
        while answers.sent < probes && in_vain < patience.in_vain {
            self.sequence += 1;
            let sent_ns = self.send(near, queue)?;
            answers.sent += 1;
            let end = Instant::now() + patience.timeout;
            in_vain += 1;
            let mut looks = 0;
            loop {
                if let Some((far, own)) = &mut far {
                    reflect(far, own)?;
                }
                if let Some((came_to, at)) = self.look(near)? {
                    in_vain = 0;
                    answers.count(came_to);
                    rtt.record(at.saturating_sub(sent_ns));
                    break;
                }
                if Instant::now() > end {
                    break;
                }
                looks += 1;
                if looks > SPINS {
                    thread::sleep(Duration::from_micros(1));
                }
            }
        }
        answers.came_to.sort_by_key(|came| came.queue);
        answers.median_rtt_ns = rtt.summary().and_then(|summary| summary.p50_ns);
        Ok(answers)
    }

    /// Sends one probe, and tells when.
    fn send(&mut self, near: &mut Port, queue: u32) -> Result<u64> {
        let sent_ns = self.clock.now_ns();
        let probe = Probe {
            kind: Kind::Request,
            clock: Clock::Monotonic,
            session: self.session,
            sequence: self.sequence,
            intended_ns: sent_ns,
            sent_ns,
        };
        let headers = self.flow.header_len();
        probe.encode(&mut self.frame[headers..]).context("writing a probe")?;
        self.flow
            .write(&mut self.frame, HEADER_LEN)
            .context("writing a probe")?;
        send(near, queue, &self.frame)?;
        Ok(sent_ns)
    }

    /// The answer to the last probe, if it has come: to which queue, and when.
    fn look(&mut self, near: &mut Port) -> Result<Option<(u32, u64)>> {
        let mut found = None;
        for queue in near.queues_mut() {
            let id = queue.id();
            let mut burst = queue.recv(Wait::Spin)?;
            if burst.is_empty() {
                continue;
            }
            let now = self.clock.now_in_order_ns();
            for packet in &mut burst {
                let frame = packet.data();
                let Ok(udp) = parse_udp(frame) else { continue };
                let probe = Probe::decode(&frame[udp.payload.clone()]);
                let ours = probe.is_ok_and(|probe| {
                    probe.kind == Kind::Reply && probe.session == self.session && probe.sequence == self.sequence
                });
                if ours && udp.checksum_state(frame) != ChecksumState::Invalid {
                    found = Some((id, now));
                }
            }
        }
        Ok(found)
    }
}

/// Sends a frame from a queue, and waits until the kernel has it.
pub(super) fn send(port: &mut Port, queue: u32, frame: &[u8]) -> Result<()> {
    let queue = port
        .queues_mut()
        .find(|other| other.id() == queue)
        .context("a queue that was not opened")?;
    let end = Instant::now() + Duration::from_secs(1);
    while queue.send_with(1, |packet| {
        let fits = packet.write(frame);
        debug_assert!(fits, "a probe is shorter than any frame");
    })? == 0
    {
        if Instant::now() > end {
            anyhow::bail!("no frame came back in a second: the driver sends nothing");
        }
    }
    Ok(queue.flush()?)
}

/// Answers what has come.
fn reflect(far: &mut Port, own: &Own) -> Result<()> {
    for queue in far.queues_mut() {
        let mut burst = queue.recv(Wait::Spin)?;
        for mut packet in &mut burst {
            if !answer(packet.data_mut(), own, |_, _| Reply::AsItIs) {
                packet.drop();
            }
        }
        burst.send_back()?;
    }
    Ok(())
}
