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
use super::echo::Patience;
use super::tried::{Answerer, Answers, Outcome, Try};
use super::{bind, echo, icmp};
use crate::args::{FlowArgs, Peer};
use crate::target;

/// Where answers are taken. All other packets go up the stack.
const PORT: u16 = DEFAULT_PORT + 1;
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
    let mut peer = flow.map(AtPeer::new).transpose()?;
    // Those that nobody else has.
    let mut free: Vec<u32> = (0..interface.rx_queues()?).collect();
    let mut patience = bind::THEIRS;
    for path in Path::LADDER {
        let mut tries = Vec::new();
        let port = bind::open(interface, path, Filter::UdpPort(PORT), patience, &mut free, &mut tries)?;
        tries.iter().try_for_each(&mut tell)?;
        let Some(mut port) = port else { continue };
        patience = bind::OURS;
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

/// Who is asked at the peer.
struct AtPeer {
    echo: echo::Asker,
    icmp: icmp::Asker,
    /// Who answered.
    known: Option<Answerer>,
    patience: Patience,
}

impl AtPeer {
    fn new(flow: UdpFlow) -> Result<Self> {
        Ok(Self {
            echo: echo::Asker::new(flow),
            icmp: icmp::Asker::new(flow)?,
            known: None,
            patience: Patience::USUAL,
        })
    }

    fn ask(&mut self, port: &mut Port, queue: u32, probes: u64) -> Result<Answers> {
        if self.known != Some(Answerer::Icmp) {
            let answers = self.echo.ask(port, queue, None, probes, self.patience)?;
            if answers.answered > 0 || self.known.is_some() {
                self.found(Answerer::Echo);
                return Ok(answers);
            }
        }
        let answers = self.icmp.ask(port, queue, probes, self.patience)?;
        if answers.answered > 0 {
            self.found(Answerer::Icmp);
        } else if self.known.is_none() {
            // There may be many queues to be asked from.
            self.patience = Patience::LITTLE;
        }
        Ok(answers)
    }

    fn found(&mut self, answerer: Answerer) {
        self.known = Some(answerer);
        self.patience = Patience::USUAL;
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
