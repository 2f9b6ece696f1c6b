//! Which queue a flow comes to, by the table of the NIC.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::Result;
use ringside_nic::{Flow, Interface, Rss};

use super::facts::FlowQueue;

/// Examples are told, where nobody asked for a flow: UDP from this port on, of a host for benchmarks (RFC 2544, C.2.2).
const FROM: (IpAddr, u16) = (IpAddr::V4(Ipv4Addr::new(198, 18, 0, 2)), 40_000);
const TO: (IpAddr, u16) = (IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1)), 4789);
const EXAMPLES: u16 = 4;

/// The queues of the flows that were asked for, or of some made up; nothing where the NIC has no table and nobody asked.
pub(super) fn told(interface: &Interface, rss: Option<&Rss>, asked: &[Flow]) -> Result<Vec<FlowQueue>> {
    if !asked.is_empty() {
        return Ok(asked.iter().map(|flow| queue(rss, flow, true)).collect());
    }
    if rss.is_none() {
        return Ok(Vec::new());
    }
    let own = interface.addresses()?.into_iter().map(|own| own.address);
    let to = own.into_iter().find(IpAddr::is_ipv4).unwrap_or(TO.0);
    let example = |number| Flow {
        src: SocketAddr::new(FROM.0, FROM.1 + number),
        dst: SocketAddr::new(to, TO.1),
        tcp: false,
    };
    Ok((0..EXAMPLES)
        .map(|number| queue(rss, &example(number), false))
        .collect())
}

fn queue(rss: Option<&Rss>, flow: &Flow, asked: bool) -> FlowQueue {
    let queue = match rss {
        Some(rss) => rss.queue(flow),
        None => Err("the driver has no table of queues to tell"),
    };
    FlowQueue {
        flow: text(flow),
        asked,
        queue: queue.ok(),
        reason: queue.err().map(str::to_owned),
    }
}

fn text(flow: &Flow) -> String {
    let protocol = if flow.tcp { "tcp" } else { "udp" };
    format!("{protocol}:{}-{}", flow.src, flow.dst)
}
