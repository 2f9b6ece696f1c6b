//! `ringside echo`: answers probes of `ringside ping`, and ICMP echo requests to the interface's addresses.

use std::net::IpAddr;

use anyhow::Result;
use ringside_measure::probe;
use ringside_measure::schema::Operation;
use ringside_wire::MacAddr;
use ringside_wire::flow::{UdpPacket, parse_udp, reflect_icmp_echo};
use ringside_wire::udp::ChecksumState;
use ringside_xsk::{Direction, Filter, Queue, Wait};

use super::whole::Whole;
use super::{account, conclude, missed, rates, receive_ledger};
use crate::args::EchoArgs;
use crate::live::{self, Offer, Teller};
use crate::session::{self, Watched, Worker};
use crate::stop::Stop;
use crate::{output, system};

pub(crate) fn run(args: &EchoArgs) -> Result<()> {
    let stop = Stop::on_signals()?;
    let filter = Filter::Echo(args.udp_port);
    let interface = session::interface(&args.port, &args.run.output)?;
    let web = live::listen(&args.run.prometheus)?;
    let ips: Vec<IpAddr> = interface.addresses()?.iter().map(|own| own.address).collect();
    let mut port = session::open(interface.clone(), &args.port, Direction::Both, filter, None)?;
    output::opened(args.run.verbose, port.report());
    output::note(format_args!(
        "  answers probes on UDP port {}, and ICMP echo requests to {}",
        args.udp_port,
        named(&ips)
    ));
    let before = session::link(&port)?;
    let own = Own {
        mac: MacAddr(before.mac),
        ips,
    };
    let wait = session::wait(&args.port);
    let offer = Offer::start("echo", &[&port], web)?;
    let watched = Watched::ports([&port]);
    let lanes: Vec<&mut Queue> = port.queues_mut().collect();
    let ran = session::run(lanes, watched, &args.port, &args.run, &stop, |queue, worker| {
        answer_all(queue, &worker, offer.teller(), wait, &own)
    })?;
    let stats = port.stats()?;
    let redirected = session::settle(&mut port)?;
    let mut result = session::result(Operation::Echo, &ran, session::counters(&port)?);
    result.packets = receive_ledger(
        &result.queues,
        redirected,
        missed(&before, &session::link_after(&port, &before)),
    );
    result.received = rates(stats.own.rx_packets, stats.own.rx_bytes, 0, ran.received);
    result.transmitted = rates(stats.own.tx_packets, stats.own.tx_bytes, 0, ran.sent);
    account(&mut result);
    let record = system::interface(
        port.interface(),
        &session::link_after(&port, &before),
        Some(port.report()),
    );
    drop(port);
    let (answered, came) = (stats.own.tx_packets, result.packets.delivered());
    output::finish(&args.run, vec![record], result)?;
    conclude(
        ran,
        answered,
        &format!("echo {}", args.port.interface),
        &match came {
            0 => "nobody asked: start `ringside ping` on the other host, with the same UDP port".to_owned(),
            _ => format!(
                "{came} packet(s) came, but no whole probe to {}, nor an ICMP echo request to an address of the interface",
                own.mac
            ),
        },
    )
}

/// The addresses of the interface.
pub(crate) struct Own {
    pub(crate) mac: MacAddr,
    pub(crate) ips: Vec<IpAddr>,
}

/// What becomes of a probe.
pub(crate) enum Reply {
    /// Nothing.
    None,
    /// It is sent back.
    AsItIs,
    /// Its payload was changed, and it is sent back.
    Changed,
}

/// Addresses for people.
pub(crate) fn named(ips: &[IpAddr]) -> String {
    match ips {
        [] => "no address: the interface has none".to_owned(),
        [..] if ips.len() > 8 => format!("its {} addresses", ips.len()),
        [..] => ips.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", "),
    }
}

fn answer_all(queue: &mut Queue, worker: &Worker<'_>, mut teller: Teller, wait: Wait, own: &Own) -> Result<()> {
    let mut whole = Whole::new(queue.report().multi_buffer);
    // What has grown longer on the way, where the kernel has put packets together, cannot go back.
    let longest = queue.packet_room();
    while !worker.stop.is_set() {
        teller.tell([&mut *queue]);
        let before = queue.counters().tx_packets;
        let Some(mut burst) = worker.unless_down(queue.recv(wait))? else {
            continue;
        };
        let packets = u32::try_from(burst.len()).unwrap_or(u32::MAX);
        if packets == 0 {
            continue;
        }
        for mut packet in &mut burst {
            let answered = |frame: &mut [u8]| answer(frame, own, |_, _| Reply::AsItIs);
            if packet.len() > longest || !whole.edit(&mut packet, answered) {
                packet.drop();
            }
        }
        let done = burst.send_back();
        worker.unless_down(done)?;
        let sent = queue.counters().tx_packets - before;
        worker.received(u64::from(packets));
        worker.sent(sent);
        worker.took(u32::try_from(sent).unwrap_or(packets));
    }
    worker.drain(queue)
}

/// Turns a request into its answer, in place; false when it is no request to this interface. `admit` is shown the UDP payload
/// of each packet that may be a probe, and says what becomes of it.
///
/// Of probes the IP address does not matter: where there are none, `ping` makes some up.
pub(crate) fn answer(frame: &mut [u8], own: &Own, admit: impl FnOnce(&UdpPacket, &mut [u8]) -> Reply) -> bool {
    if frame.get(..6) != Some(&own.mac.0) {
        return false;
    }
    let Ok(udp) = parse_udp(frame) else {
        return reflect_icmp_echo(frame, |asked| own.ips.contains(&asked));
    };
    let mut whole = match udp.checksum_state(frame) {
        ChecksumState::Valid | ChecksumState::Absent => true,
        // A neighbour on the same machine has left the checksum to a NIC that is none.
        ChecksumState::PseudoHeaderOnly => false,
        ChecksumState::Invalid => return false,
    };
    match admit(&udp, &mut frame[udp.payload.clone()]) {
        Reply::None => return false,
        Reply::AsItIs => {}
        Reply::Changed => whole = false,
    }
    let Ok(change) = probe::make_reply_in_place(&mut frame[udp.payload.clone()]) else {
        return false;
    };
    let checksum = if whole {
        udp.patch_checksum(frame, change.old, change.new)
    } else {
        udp.fill_checksum(frame)
    };
    checksum.is_ok() && udp.reflect(frame).is_ok()
}
