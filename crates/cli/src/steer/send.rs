//! Sends packets of each class, through packet sockets: past no queueing discipline, and by the transmit queue that XPS says.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use ringside_measure::probe::DEFAULT_PORT;
use ringside_nic::NtupleFlow;
use ringside_wire::MacAddr;
use ringside_wire::flow::UdpFlow;

use super::side::{Addresses, Side};
use super::values::ClassArg;
use crate::peer::packet::Timed;
use crate::pin;
use crate::stop::Stop;

/// UDP source port of all that is sent here, by which it is dropped when it is counted.
pub(super) const OWN_PORT: u16 = 29_690;
/// Addresses where there are none: set aside for benchmarks (RFC 2544, C.2.2).
const BENCHMARK: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)];
/// Bytes behind the UDP header.
const PAYLOAD: usize = 50;
/// Ethernet's addresses, in front of a tag.
const ADDRESSES: usize = 12;

/// A class, ready to be sent.
struct Stream {
    socket: Timed,
    frame: Vec<u8>,
}

/// How it is sent.
pub(super) struct Pace<'a> {
    pub(super) rate: u64,
    pub(super) time: Duration,
    pub(super) cpu: Option<u32>,
    pub(super) stop: &'a Stop,
}

/// Sends all classes side by side, and says how many packets of each.
pub(super) fn send(from: &Side, to: Addresses, classes: &[ClassArg], pace: &Pace<'_>) -> Result<Vec<u64>> {
    let own = from.addresses()?;
    let streams = from.run(|| {
        let map = from.interface.egress_qos_map()?;
        let open = |class: &ClassArg| {
            let pcp = match class.flow {
                NtupleFlow::VlanPriority(pcp) => Some(pcp),
                _ => None,
            };
            // A VLAN device makes the tag itself, by the priority of the packet.
            let priority = match (pcp, &map) {
                (Some(pcp), Some(map)) => {
                    let found = map.iter().find(|(_, tag)| **tag == pcp).map(|(priority, _)| *priority);
                    found.and_then(|priority| u8::try_from(priority).ok()).unwrap_or(pcp)
                }
                (pcp, _) => pcp.unwrap_or(0),
            };
            Ok(Stream {
                socket: Timed::open(from.interface.index(), false, Some(priority))?,
                frame: frame(class.flow, own, to, pcp.filter(|_| map.is_none()))?,
            })
        };
        classes.iter().map(open).collect::<Result<Vec<_>>>()
    })?;
    thread::scope(|scope| {
        let threads: Vec<_> = streams
            .into_iter()
            .map(|stream| scope.spawn(move || stream.run(pace)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked")).flatten())
            .collect()
    })
}

impl Stream {
    fn run(self, pace: &Pace<'_>) -> Result<u64> {
        if let Some(cpu) = pace.cpu {
            pin::to_cpu(cpu)?;
        }
        let begin = Instant::now();
        let gap = Duration::from_nanos(1_000_000_000 / pace.rate.max(1));
        let (mut sent, mut due) = (0, begin);
        while due < begin + pace.time && !pace.stop.is_set() {
            if let Some(left) = due.checked_duration_since(Instant::now()) {
                thread::sleep(left);
            }
            match self.socket.send_at(&self.frame, None) {
                Ok(true) => sent += 1,
                // No room: it is not sent, and not counted as such.
                Ok(false) => {}
                Err(error) => return Err(error).context("sending through a packet socket"),
            }
            due += gap;
        }
        Ok(sent)
    }
}

fn frame(flow: NtupleFlow, own: Addresses, to: Addresses, pcp: Option<u8>) -> Result<Vec<u8>> {
    let port = match flow {
        NtupleFlow::UdpPort(port) => port,
        _ => DEFAULT_PORT,
    };
    let (src, dst) = match (own.ipv4, to.ipv4) {
        (Some(src), Some(dst)) => (src, dst),
        _ => (BENCHMARK[0], BENCHMARK[1]),
    };
    let flow = UdpFlow {
        src_mac: MacAddr(own.mac),
        dst_mac: MacAddr(to.mac),
        src: SocketAddr::from((src, OWN_PORT)),
        dst: SocketAddr::from((dst, port)),
        ttl: 64,
    };
    let mut frame = vec![0; flow.header_len() + PAYLOAD];
    flow.write(&mut frame, PAYLOAD).context("writing a frame")?;
    if let Some(pcp) = pcp {
        let tag = [0x81, 0x00, pcp << 5, 0];
        frame.splice(ADDRESSES..ADDRESSES, tag);
    }
    Ok(frame)
}

#[cfg(test)]
#[path = "send_tests.rs"]
mod tests;
