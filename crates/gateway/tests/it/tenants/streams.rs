//! Much at once: iperf3, and connections that check every byte.

use std::ffi::OsStr;
use std::process::Command;

use ringside_netlab::testing::{expect, measured};
use ringside_netlab::{End, wait_until};
use serde_json::Value;

use crate::bed::{Bed, FAMILIES, Family, Kind, Place, Tunnel};
use crate::peers::{chat, connect, exchange, iperf, snmp, without_room};
use crate::process::PATIENCE;
use crate::tenants::on;
use crate::tenants::paths::chats_fast;

on! {
    kernel = crate::tenants::KERNEL => iperf_tcp_gets_through, iperf_udp_loses_nothing_uncounted, both_directions_at_once;
    fast = crate::tenants::FAST =>
        iperf_tcp_gets_through, iperf_udp_loses_nothing_uncounted, both_directions_at_once, over_ipv6, other_encapsulations;
    slow = crate::tenants::SLOW => iperf_udp_loses_nothing_uncounted, both_directions_at_once;
    workers = crate::tenants::WORKERS => iperf_tcp_gets_through, iperf_udp_loses_nothing_uncounted, over_ipv6;
    unsummed = crate::tenants::UNSUMMED => both_directions_at_once, other_encapsulations;
    generic = crate::tenants::GENERIC => iperf_tcp_gets_through, both_directions_at_once;
    two_queues = crate::tenants::TWO_QUEUES => both_directions_at_once;
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn iperf_tcp_gets_through(kind: Kind) {
    for outer in FAMILIES {
        let bed = Bed::new("iperf-tcp", kind, &[Place::vxlan(outer); 2]);
        let (from, to) = (bed.at(1), bed.at(2));
        for (inner, reverse) in [(Family::V4, ""), (Family::V6, "--reverse")] {
            let [client, server] = iperf(from, (to, to.address(inner)), &format!("--bytes 32M {reverse}"));
            let sent = number(&client["end"]["sum_sent"]["bytes"]);
            assert!(sent >= 32 << 20, "{client}");
            // iperf3 does not read to the end: what is in buffers then, some megabytes, it leaves there.
            let received = number(&client["end"]["sum_received"]["bytes"]);
            assert!((8 << 20..=sent).contains(&received), "{client}");
            if reverse.is_empty() {
                assert_eq!(number(&server["end"]["sum_received"]["bytes"]), received, "{server}");
            }
        }
    }
}

fn iperf_udp_loses_nothing_uncounted(kind: Kind) {
    for outer in FAMILIES {
        loses_nothing_uncounted(Bed::new("iperf-udp", kind, &[Place::vxlan(outer); 2]), kind);
    }
}

fn loses_nothing_uncounted(mut bed: Bed, kind: Kind) {
    // What the gateway's workers had no room for; the kernel's gateway has none.
    let worker_busy = |bed: &mut Bed| match kind {
        Kind::Ringside(_) => bed.ringside().dropped("worker-busy"),
        Kind::Kernel { .. } => 0,
    };
    for inner in FAMILIES {
        measured(|| {
            let words = "--udp --bitrate 20M --length 1200 --bytes 2400K";
            let busy = worker_busy(&mut bed);
            let (from, to) = (bed.at(1), bed.at(2));
            let [client, server] = iperf(from, (to, to.address(inner)), words);
            let (sent, received) = (&client["end"]["sum"], &server["end"]["sum"]);
            assert!(number(&sent["packets"]) >= 2048, "{client}");
            // A busy machine loses some, and the receiver's kernel, a link or the gateway says so.
            let lost = number(&received["lost_packets"]);
            let is_counted = || lost <= counted_losses(&bed) + worker_busy(&mut bed) - busy;
            assert!(wait_until(PATIENCE, is_counted), "{lost} lost: {client}\n{server}");
            expect(
                lost < number(&sent["packets"]) / 2,
                format_args!("{lost} lost: {client}\n{server}"),
            )
        });
    }
}

/// What sockets of the tenants and links of the bed have dropped since the beginning: where much is sent at once a queue of the kernel's may
/// be full.
pub(crate) fn counted_losses(bed: &Bed) -> u64 {
    let sockets = bed.tenants().map(|tenant| tenant.ns.run(socket_losses));
    let wires = bed.hosts.iter().map(|host| &host.wire).chain(&bed.uplinks);
    let links = wires.flat_map(|wire| wire.ends().map(|end| end.run(link_losses)));
    sockets.chain(links).sum()
}

/// The same, and what found no room in the queues of this machine's CPUs.
pub(crate) fn lost_by_kernel(bed: &Bed) -> u64 {
    without_room() + counted_losses(bed)
}

/// Datagrams that found no room in the buffer of their socket, in this namespace.
fn socket_losses() -> u64 {
    let of_v6 = std::fs::read_to_string("/proc/thread-self/net/snmp6").expect("counters");
    let v6 = of_v6
        .lines()
        .filter_map(|line| line.strip_prefix("Udp6RcvbufErrors")?.trim().parse::<u64>().ok());
    v6.sum::<u64>() + snmp("Udp", "RcvbufErrors")
}

/// What the links of this namespace have dropped, also of what XDP programs have sent (veth's counters, by its driver alone:
/// <https://elixir.bootlin.com/linux/v6.18/source/drivers/net/veth.c>, `veth_rq_stats_desc`).
fn link_losses() -> u64 {
    let links = std::fs::read_dir("/sys/class/net").expect("links");
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let of = |link: std::fs::DirEntry| -> u64 {
        let folder = link.path().join("statistics");
        let counters = ["rx_dropped", "tx_dropped"].map(|name| std::fs::read_to_string(folder.join(name)));
        let plain = counters.into_iter().filter_map(|text| number(&text.ok()?));
        plain.sum::<u64>() + lost_by_xdp(&link.file_name())
    };
    links.map(|link| of(link.expect("a link"))).sum()
}

/// What a link of this namespace has dropped of what XDP programs have sent.
fn lost_by_xdp(link: &OsStr) -> u64 {
    let asked = Command::new("ethtool").arg("-S").arg(link).output();
    let told = asked.expect("ethtool, which scripts/setup installs").stdout;
    let told = String::from_utf8_lossy(&told);
    let losses = told.lines().filter_map(|line| {
        let (name, count) = line.rsplit_once(':')?;
        let is_loss = ["_xdp_tx_errors", "_xdp_xmit_errors"]
            .iter()
            .any(|end| name.ends_with(end));
        count.trim().parse::<u64>().ok().filter(|_| is_loss)
    });
    losses.sum()
}

/// The same of an end of a wire.
pub(crate) fn xdp_losses(end: &End) -> u64 {
    end.run(|| lost_by_xdp(end.interface.name().as_ref()))
}

fn both_directions_at_once(kind: Kind) {
    let bed = Bed::new("at-once", kind, &[Place::new(Family::V4, Tunnel::Vxlan); 2]);
    let (from, to) = (bed.at(1), bed.at(2));
    let streams = connect(from, (to, to.address(Family::V4)), 7000);
    exchange(&streams, 64 << 20);
}

/// Hosts over IPv6, whose outer packets have checksums to be kept right; by one of the two ways alone.
fn over_ipv6(kind: Kind) {
    const BYTES: usize = 32 << 20;
    let path = kind.path();
    // Geneve by a program, which is slower.
    for (tunnel, bytes) in [(Tunnel::Vxlan, BYTES), (Tunnel::Geneve, BYTES / 8)] {
        let mut bed = Bed::new("over-v6", kind, &[Place::new(Family::V6, tunnel); 2]);
        for inner in FAMILIES {
            let (from, to) = (bed.at(1), bed.at(2));
            let streams = connect(from, (to, to.address(inner)), 7000);
            chat(&streams).expect("goes");
            // As soon as both ends are known there.
            if path == "fast" {
                assert!(wait_until(PATIENCE, || chats_fast(&mut bed, &streams, 1)));
            }
            let before = bed.ringside().forwarded(path);
            exchange(&streams, bytes);
            // In packets of no more than 1430 bytes, each way.
            let least = 2 * bytes as u64 / 1430;
            bed.ringside()
                .wait_until(|gateway| gateway.forwarded(path) >= before + least * 9 / 10);
        }
    }
}

/// Packets get other outer headers on their way, and answers those that they came from.
fn other_encapsulations(kind: Kind) {
    let places = [
        Place::vxlan(Family::V4),
        Place::new(Family::V6, Tunnel::Geneve),
        Place::new(Family::V4, Tunnel::VxlanUnsummed),
    ];
    let bed = Bed::new("others", kind, &places);
    for (from, to, inner) in [(1, 2, Family::V4), (2, 3, Family::V6)] {
        let (from, to) = (bed.at(from), bed.at(to));
        let streams = connect(from, (to, to.address(inner)), 7000);
        exchange(&streams, 8 << 20);
    }
}
