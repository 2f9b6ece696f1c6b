//! The host keeps its network while a program that only sends has the NIC, with zero-copy.

use ringside_measure::schema::Mode;
use ringside_netlab::guest::Model;

use super::{Hosts, RINGSIDE, end};

/// As many pings as reach the other side. Packets of the usual MTU, which do not fit half a page.
const PINGS: &str = "ping -c10 -i 0.3 -W 5 -s 1400";

/// A sender in a zero-copy mode of its own choice, long enough for both ways.
fn keeps_its_network(model: Model) {
    let hosts = Hosts::boot(model, None);
    let mut tx = hosts.start(&format!("{RINGSIDE} tx eth0 --to 10.9.0.2 --rate 300 -t 30 --json"));
    tx.wait_for("10.9.0.2", super::PATIENCE).expect("it sends");
    let pings = [
        format!("{PINGS} 10.9.0.2"),
        format!("ip netns exec far {PINGS} 10.9.0.1"),
    ];
    let replies = pings.map(|line| hosts.run(&line).out);
    let done = end("tx", tx).good();
    for reply in &replies {
        assert!(reply.contains(" 10 received"), "{reply}\n{done:#?}");
    }
    let interfaces = done.document().interfaces;
    for queue in interfaces.iter().flat_map(|interface| &interface.queues) {
        assert_eq!(queue.mode, Mode::ZeroCopy, "{interfaces:#?}");
    }
    let result = done.result();
    let (sent, kicks): (u64, u64) = (result.queues.iter())
        .map(|queue| (queue.sent_packets, queue.kicks))
        .fold((0, 0), |sum, queue| (sum.0 + queue.0, sum.1 + queue.1));
    assert!(sent > 1000, "{result:#?}");
    // One a packet, and some while the NIC is busy.
    assert!(kicks < 20 * sent, "{kicks} calls to send {sent} packets");
    let empty = |queue: &ringside_measure::schema::QueueCounters| {
        queue.xdp_statistics.map_or(0, |kernel| kernel.rx_fill_ring_empty_descs)
    };
    assert_eq!(result.queues.iter().map(empty).sum::<u64>(), 0, "{result:#?}");
}

#[test]
#[ignore = "make test-guests runs it"]
fn a_sender_with_zero_copy_leaves_virtio_nets_host_its_network() {
    if ringside_netlab::testing::is_root() {
        keeps_its_network(Model::VirtioNet);
    }
}

#[test]
#[ignore = "make test-guests runs it"]
fn a_sender_with_zero_copy_leaves_igbs_host_its_network() {
    if ringside_netlab::testing::is_root() {
        keeps_its_network(Model::Igb);
    }
}
