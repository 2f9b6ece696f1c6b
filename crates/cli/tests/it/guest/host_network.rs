//! The host keeps its network while a program that only sends has the NIC, with zero-copy.

use std::time::Duration;

use ringside_measure::schema::{Mode, QueueCounters};
use ringside_netlab::guest::Model;

use super::{Done, Hosts, RINGSIDE, end};

/// Packets of the usual MTU, which do not fit half a page.
const PING: &str = "ping -n -i 0.3 -W 5 -s 1400";

/// The longest time without an answer where a NIC is set up or left, and its link comes up again.
const MAX_OUTAGE: Duration = Duration::from_secs(6);

/// Returns the longest time between two answers, or one and the end.
fn longest_outage(ping: &Done) -> Duration {
    let number = |line: &str, before: &str| -> Option<u32> {
        let (_, rest) = line.split_once(before)?;
        rest.split(' ').next()?.parse().ok()
    };
    let lines = || ping.out.lines();
    let answers = lines().filter_map(|line| number(line, "icmp_seq="));
    let summary = lines().find(|line| line.contains(" packets transmitted"));
    let sent: u32 = summary
        .and_then(|line| line.split(' ').next()?.parse().ok())
        .expect("a summary");
    let (mut last, mut longest) = (0, 0);
    for answer in answers.chain([sent]) {
        longest = longest.max(answer.saturating_sub(last));
        last = answer;
    }
    Duration::from_millis(300) * longest
}

/// Runs a command that chooses zero-copy on eth0. The host's pings begin before it starts and end
/// after it.
fn keeps_its_network(hosts: &Hosts, line: &str, started: &str) {
    let across = format!("{PING} -w 45 10.9.0.2");
    let across_all = hosts.start(&across);
    std::thread::sleep(Duration::from_secs(2));
    let mut command = hosts.start(&format!("{RINGSIDE} {line} -t 20 --json"));
    command.wait_for(started, super::PATIENCE).expect("it sends");
    let pings = [
        format!("{PING} -c10 10.9.0.2"),
        format!("ip netns exec far {PING} -c10 10.9.0.1"),
    ];
    let replies = pings.map(|line| hosts.run(&line).out);
    let done = end(line, command).good();
    for reply in &replies {
        assert!(reply.contains(" 10 received"), "{reply}\n{done:#?}");
    }
    let across_all = end(&across, across_all).good();
    let outage = longest_outage(&across_all);
    eprintln!("{line}: at most {outage:?} without an answer");
    assert!(outage < MAX_OUTAGE, "{line}: {outage:?}: {across_all:#?}");

    let interfaces = done.document().interfaces;
    let eth0 = interfaces
        .iter()
        .find(|interface| interface.name == "eth0")
        .expect("eth0");
    for queue in &eth0.queues {
        assert_eq!(queue.mode, Mode::ZeroCopy, "{interfaces:#?}");
    }
    let result = done.result();
    let queues = || result.queues.iter().filter(|queue| queue.interface == "eth0");
    let (sent, kicks): (u64, u64) = queues()
        .map(|queue| (queue.sent_packets, queue.kicks))
        .fold((0, 0), |sum, queue| (sum.0 + queue.0, sum.1 + queue.1));
    assert!(sent > 1000, "{result:#?}");
    // One a packet, and some while the NIC is busy.
    assert!(kicks < 20 * sent, "{kicks} calls to send {sent} packets");
    let empty = |queue: &QueueCounters| {
        let kernel = queue.xdp_statistics;
        kernel.map_or(0, |kernel| kernel.rx_fill_ring_empty_descs)
    };
    assert_eq!(queues().map(empty).sum::<u64>(), 0, "{result:#?}");
}

/// `tx`, and `fwd` to a second interface. Only that one has zero-copy, for which it needs a UMEM of
/// its own.
fn senders_keep_the_hosts_network(model: Model) {
    let hosts = Hosts::boot(model, None);
    keeps_its_network(&hosts, "tx eth0 --to 10.9.0.2 --rate 300", "10.9.0.2");
    hosts.run("sh -c ip link add v0 type veth peer name v1; ip link set v0 up; ip link set v1 up");
    let line = format!("{RINGSIDE} tx v1 --to-mac 02:00:00:00:00:02 --rate 300 -t 180");
    let mut sender = hosts.start(&line);
    sender.wait_for("02:00:00:00:00:02", super::PATIENCE).expect("it sends");
    keeps_its_network(&hosts, "fwd v0 --out eth0 --copy-between", "eth0: ");
    drop(sender);
}

#[test]
#[ignore = "make test-guests runs it"]
fn a_sender_with_zero_copy_leaves_virtio_nets_host_its_network() {
    if ringside_netlab::testing::is_root() {
        senders_keep_the_hosts_network(Model::VirtioNet);
    }
}

#[test]
#[ignore = "make test-guests runs it"]
fn a_sender_with_zero_copy_leaves_igbs_host_its_network() {
    if ringside_netlab::testing::is_root() {
        senders_keep_the_hosts_network(Model::Igb);
    }
}
