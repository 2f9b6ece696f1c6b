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

#[cfg(test)]
mod tests {
    use ringside_nic::{FlowKind, HashFunction, HashedFields};

    use super::*;

    /// The key that makers of NICs verify their hashes with, and one of the hashes: see the tests of `ringside_nic`.
    const KEY: [u8; 16] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    ];
    const HASH: u32 = 0x51cc_c178;

    #[test]
    fn a_flow_is_told_with_its_queue_or_why_not() {
        let mut both = HashedFields::default();
        (both.addresses, both.ports) = (true, true);
        let mut rss = Rss::default();
        (rss.function, rss.key) = (Some(HashFunction::Toeplitz), KEY.to_vec());
        rss.table = (0..128).collect();
        rss.fields.insert(FlowKind::Tcp4, both);
        let flow = |tcp| Flow {
            src: "66.9.149.187:2794".parse().unwrap(),
            dst: "161.142.100.80:1766".parse().unwrap(),
            tcp,
        };
        let known = queue(Some(&rss), &flow(true), true);
        assert_eq!(known.flow, "tcp:66.9.149.187:2794-161.142.100.80:1766");
        assert_eq!((known.queue, known.reason), (Some(HASH & 127), None));
        for (rss, tcp, why) in [(Some(&rss), false, "which fields"), (None, true, "no table")] {
            let unknown = queue(rss, &flow(tcp), true);
            assert_eq!(unknown.queue, None);
            assert!(unknown.reason.unwrap().contains(why), "{why}");
        }
    }

    #[test]
    fn examples_are_told_only_where_there_is_a_table() {
        let lo = Interface::by_name("lo").unwrap();
        assert!(told(&lo, None, &[]).unwrap().is_empty());
        let examples = told(&lo, Some(&Rss::default()), &[]).unwrap();
        assert_eq!(examples.len(), usize::from(EXAMPLES));
        assert!(examples.iter().all(|example| !example.asked));
    }
}
