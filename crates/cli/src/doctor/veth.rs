//! The test on a veth pair of its own: does AF_XDP work on this machine at all?

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use ringside_measure::probe::DEFAULT_PORT;
use ringside_netlab::{End, Lab, VethConfig};
use ringside_wire::MacAddr;
use ringside_wire::flow::{UdpFlow, parse_udp};
use ringside_xsk::{Filter, Path, Port, Wait};

use super::bind;
use super::echo::{Asker, Patience};
use super::tried::{Outcome, Seen, Test, Try};
use crate::run::echo::Own;

/// More than one: what holds for queue 0 need not hold for the others.
const QUEUES: u32 = 2;
/// Where the asking side takes answers.
const NEAR_PORT: u16 = DEFAULT_PORT + 1;
/// Flows of the kernel's sockets, to see which queue each comes out at: by their ports from here on.
const FLOWS: u16 = 8;
const FLOW_PORT: u16 = 40_000;

/// Builds the pair, tries each queue in each mode, and takes it down. What went wrong is in the result.
pub(super) fn test(probes: u64) -> Test {
    let mut test = Test {
        bed: format!("two namespaces, veth pair, {QUEUES} queues"),
        ..Test::default()
    };
    if let Err(error) = run(&mut test, probes) {
        test.failure = Some(format!("{error:#}"));
    }
    test
}

fn run(test: &mut Test, probes: u64) -> Result<()> {
    let lab = Lab::veth(VethConfig {
        queues: QUEUES,
        // Nothing but the packets of the test.
        ipv6: false,
        // Without it a veth takes frames from other drivers only while it has an XDP program.
        gro: true,
        ..VethConfig::tagged("doctor")
    })
    // It says itself what was tried, and why it failed.
    .map_err(|error| anyhow!("{error}"))?;
    let mut asker = Asker::new(UdpFlow {
        src_mac: MacAddr(lab.a.mac),
        dst_mac: MacAddr(lab.b.mac),
        src: SocketAddr::from((lab.a.ipv4, NEAR_PORT)),
        dst: SocketAddr::from((lab.b.ipv4, DEFAULT_PORT)),
        ttl: 64,
    });
    let own = Own {
        mac: MacAddr(lab.b.mac),
        ips: vec![lab.b.ipv4.into()],
    };
    for path in Path::LADDER {
        let mut queues: Vec<u32> = (0..QUEUES).collect();
        let Some(mut far) = open(&lab.b, path, DEFAULT_PORT, &mut queues, &mut test.tries)? else {
            continue;
        };
        let Some(mut near) = open(&lab.a, path, NEAR_PORT, &mut queues, &mut test.tries)? else {
            continue;
        };
        for queue in queues {
            let asked = asker.ask(&mut near, queue, Some((&mut far, &own)), probes, Patience::USUAL);
            let outcome = asked.map_or_else(
                |error| Outcome::Failed {
                    reason: format!("{error:#}"),
                },
                Outcome::Asked,
            );
            test.tries.push(Try::new(queue, path, outcome));
        }
        // Packets of the kernel's sockets, natively if that can be had.
        if test.flows.is_empty() {
            drop(near);
            test.flows = flows(&lab, &mut far)?;
        }
    }
    Ok(())
}

fn open(end: &End, path: Path, port: u16, queues: &mut Vec<u32>, tries: &mut Vec<Try>) -> Result<Option<Port>> {
    end.run(|| bind::open(&end.interface, path, Filter::UdpPort(port), bind::OURS, queues, tries))
}

/// Sends from sockets of the kernel's, and looks where it comes out.
fn flows(lab: &Lab, far: &mut Port) -> Result<Vec<Seen>> {
    let to = SocketAddr::from((lab.b.ipv4, DEFAULT_PORT));
    let ports = FLOW_PORT..FLOW_PORT + FLOWS;
    lab.a
        .run(|| {
            ports.clone().try_for_each(|port| {
                UdpSocket::bind((lab.a.ipv4, port))?
                    .send_to(b"which queue?", to)
                    .map(drop)
            })
        })
        .context("sending from sockets on the veth pair")?;
    let mut seen: Vec<Option<u32>> = vec![None; FLOWS.into()];
    let end = Instant::now() + Patience::USUAL.timeout;
    while seen.contains(&None) && Instant::now() < end {
        for queue in far.queues_mut() {
            let id = queue.id();
            let mut burst = queue.recv(Wait::Spin)?;
            for packet in &mut burst {
                let from = parse_udp(packet.data()).map(|udp| udp.src.port());
                let flow = from.ok().and_then(|port| port.checked_sub(FLOW_PORT));
                if let Some(seen) = flow.and_then(|flow| seen.get_mut(usize::from(flow))) {
                    *seen = Some(id);
                }
            }
        }
        std::thread::sleep(Duration::from_micros(1));
    }
    let flow = |port: u16| format!("udp:{}:{port}-{to}", lab.a.ipv4);
    Ok(ports
        .zip(seen)
        .map(|(port, queue)| Seen {
            flow: flow(port),
            queue,
        })
        .collect())
}
