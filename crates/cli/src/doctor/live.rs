//! The test on the interface itself, as it is done in a process of its own: see `watched`.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ringside_measure::probe::DEFAULT_PORT;
use ringside_nic::Interface;
use ringside_wire::flow::UdpFlow;
use ringside_wire::{EtherType, MacAddr, ethernet};
use ringside_xsk::{Filter, Path, Port};

use super::args::Args;
use super::tried::{Answers, Outcome, Try};
use super::{bind, echo, icmp};
use crate::args::{FlowArgs, Peer};
use crate::target;

/// Where answers are taken. All other packets go up the stack.
const PORT: u16 = DEFAULT_PORT + 1;
/// For an answer of a host on the same link.
const TIMEOUT: Duration = Duration::from_millis(200);
/// For experiments within a network; no host does anything about it.
/// <https://standards.ieee.org/products-programs/regauth/ethertype/>
const LOCAL_EXPERIMENTAL: EtherType = EtherType(0x88b5);

/// The flow of the probes to a peer.
///
/// # Errors
/// When it does not answer ARP or neighbour discovery.
pub(super) fn flow(interface: &Interface, peer: IpAddr, port: u16) -> Result<UdpFlow> {
    target::flow(
        interface,
        &FlowArgs {
            to: Some(Peer::Ip(peer)),
            to_mac: None,
            to_port: port,
            from: None,
            from_mac: None,
            from_port: PORT,
        },
    )
}

/// Binds each queue in each mode, and tells each result as soon as it is there.
pub(super) fn run(interface: &Interface, args: &Args, mut tell: impl FnMut(&Try) -> Result<()>) -> Result<()> {
    let flow = match args.peer {
        Some(peer) => Some(flow(interface, peer, args.peer_port)?),
        None => None,
    };
    let mac = MacAddr(interface.state()?.mac);
    let mut peer = flow.map(|flow| AtPeer::Unknown(echo::Asker::new(flow, TIMEOUT), flow));
    // Those that nobody else has.
    let mut free: Vec<u32> = (0..interface.rx_queues()?).collect();
    for path in Path::LADDER {
        let mut tries = Vec::new();
        let port = bind::open(interface, path, Filter::UdpPort(PORT), &mut free, &mut tries)?;
        tries.iter().try_for_each(&mut tell)?;
        let Some(mut port) = port else { continue };
        for queue in free.iter().copied() {
            let outcome = match &mut peer {
                None => to_itself(&mut port, queue, mac).map(|()| Outcome::Sent),
                Some(peer) => peer.ask(&mut port, queue, args.probes).map(Outcome::Asked),
            };
            let outcome = outcome.unwrap_or_else(|error| Outcome::Failed {
                reason: format!("{error:#}"),
            });
            tell(&Try::new(queue, path, outcome))?;
        }
    }
    Ok(())
}

/// Who answers at the peer.
enum AtPeer {
    /// Not known yet.
    Unknown(echo::Asker, UdpFlow),
    Echo(echo::Asker),
    Kernel(icmp::Asker),
}

impl AtPeer {
    fn ask(&mut self, port: &mut Port, queue: u32, probes: u64) -> Result<Answers> {
        match self {
            Self::Echo(asker) => asker.ask(port, queue, None, probes),
            Self::Kernel(asker) => asker.ask(port, queue, probes),
            Self::Unknown(asker, flow) => {
                let answers = asker.ask(port, queue, None, probes)?;
                if answers.answered > 0 {
                    let asker = std::mem::replace(asker, echo::Asker::new(*flow, TIMEOUT));
                    *self = Self::Echo(asker);
                    return Ok(answers);
                }
                let mut asker = icmp::Asker::new(*flow, TIMEOUT)?;
                let of_kernel = asker.ask(port, queue, probes)?;
                if of_kernel.answered == 0 {
                    return Ok(answers);
                }
                *self = Self::Kernel(asker);
                Ok(of_kernel)
            }
        }
    }
}

/// Sends a frame that means nothing to the interface's own address, and waits until the driver has let go of it.
fn to_itself(port: &mut Port, queue: u32, mac: MacAddr) -> Result<()> {
    let mut frame = vec![0; 60];
    let header = ethernet::Header {
        dst: mac,
        src: mac,
        ethertype: LOCAL_EXPERIMENTAL,
    };
    header.emit(&mut frame).context("writing a frame")?;
    echo::send(port, queue, &frame)?;
    let queue = port.queues_mut().find(|other| other.id() == queue);
    let queue = queue.context("a queue that was not opened")?;
    if !queue.drain(Duration::from_secs(1))? {
        anyhow::bail!("a frame was not sent within a second");
    }
    Ok(())
}
