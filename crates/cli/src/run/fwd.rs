//! `ringside fwd`: back out with MAC addresses swapped, or on to a second interface.

pub(super) mod ports;

use std::time::Duration;

use anyhow::Result;
use ringside_measure::counters::LossCause;
use ringside_measure::schema::Operation;
use ringside_wire::ethernet::swap_macs;
use ringside_xsk::{Burst, Error, Packet, Port, Queue, Wait};

use self::ports::Ports;
use super::{account, conclude, leave, missed, rates, receive_ledger};
use crate::args::FwdArgs;
use crate::live::{self, Offer, Teller};
use crate::session::{self, Watched, Worker};
use crate::stop::Stop;
use crate::{output, system};

/// What one worker forwards: received on the first, sent on the second, or on the same where there is none.
struct Lane<'a> {
    from: Vec<&'a mut Queue>,
    to: Option<&'a mut Queue>,
}

pub(crate) fn run(args: &FwdArgs) -> Result<()> {
    let stop = Stop::on_signals()?;
    let interface = session::interface(&args.port, &args.run.output)?;
    let web = live::listen(&args.run.prometheus)?;
    let Ports {
        mut port,
        mut out,
        copied,
    } = ports::open(args, &interface)?;
    output::opened(args.run.verbose, port.report());
    if let Some(out) = &out {
        output::opened(args.run.verbose, out.report());
        output::note(match &copied {
            None => "  packets are sent from the frames that they were received in: one UMEM for both".to_owned(),
            Some(why) => format!("  packets are copied from one UMEM to the other: {why}"),
        });
    }
    let link_in = session::link(&port)?;
    let before = session::link(out.as_ref().unwrap_or(&port))?;
    let wait = session::wait(&args.port);
    let ports: Vec<&Port> = std::iter::once(&port).chain(&out).collect();
    let offer = Offer::start("fwd", &ports, web)?;
    let watched = Watched::ports(ports);
    let lanes = lanes(&mut port, out.as_mut());
    let ran = session::run(lanes, watched, &args.port, &args.run, &stop, |lane, worker| {
        forward(lane, &worker, offer.teller(), wait, copied.is_some())
    })?;

    // Rates are those of the span; what is settled came after its last packet.
    let forwarded = port.stats()?;
    let redirected = session::settle(&mut port)?;
    let received = port.stats()?;
    out.iter_mut().for_each(session::take_back);
    let sent = out.as_ref().map_or(Ok(received), Port::stats)?;
    let mut queues = session::counters(&port)?;
    let mut ledger = receive_ledger(
        &queues,
        redirected,
        missed(&link_in, &session::link_after(&port, &link_in)),
    );
    if let Some(out) = &out {
        queues.extend(session::counters(out)?);
    }
    let after = session::link_after(out.as_ref().unwrap_or(&port), &before);
    let mut result = session::result(Operation::Fwd, &ran, queues);
    // The path ends at the link that the packets leave by.
    let too_long = sent.own.tx_too_long;
    let left = received.own.rx_packets.saturating_sub(sent.own.tx_packets + too_long);
    ledger.lose(LossCause::TooLong, too_long);
    ledger.lose(LossCause::NotForwarded, left);
    ledger.received = None;
    leave(
        &mut ledger,
        out.as_ref().unwrap_or(&port),
        sent.own.tx_packets,
        &before,
        &after,
    );
    result.packets = ledger;
    result.received = rates(forwarded.own.rx_packets, forwarded.own.rx_bytes, 0, ran.received);
    result.transmitted = rates(sent.own.tx_packets, sent.own.tx_bytes, 0, ran.sent);
    account(&mut result);
    let mut records = vec![system::interface(
        port.interface(),
        &session::link_after(&port, &link_in),
        Some(port.report()),
    )];
    if let Some(out) = &out {
        records.push(system::interface(out.interface(), &after, Some(out.report())));
    }
    drop((port, out));
    let forwarded = sent.own.tx_packets;
    output::finish(&args.run, records, result)?;
    conclude(
        ran,
        forwarded,
        &format!("fwd {}", args.port.interface),
        "no packet that the filter wants reached the interface: is the sender running?",
    )
}

/// A worker per pair of queues. With fewer queues on the way out a worker serves several on the way in.
fn lanes<'a>(port: &'a mut Port, out: Option<&'a mut Port>) -> Vec<Lane<'a>> {
    let Some(out) = out else {
        return port
            .queues_mut()
            .map(|queue| Lane {
                from: vec![queue],
                to: None,
            })
            .collect();
    };
    let mut lanes: Vec<Lane<'a>> = out
        .queues_mut()
        .map(|to| Lane {
            from: Vec::new(),
            to: Some(to),
        })
        .collect();
    let workers = lanes.len();
    for (number, queue) in port.queues_mut().enumerate() {
        lanes[number % workers].from.push(queue);
    }
    lanes
}

fn forward(mut lane: Lane<'_>, worker: &Worker<'_>, mut teller: Teller, wait: Wait, copies: bool) -> Result<()> {
    let several = lane.from.len() > 1;
    // Packets may come in longer than one may leave, from a larger MTU or put together by the kernel.
    let longest = lane
        .to
        .as_deref()
        .or(lane.from.first().map(|from| &**from))
        .map_or(0, Queue::packet_room);
    let mut is_down = false;
    while !worker.stop.is_set() {
        teller.tell(
            lane.from
                .iter_mut()
                .map(|from| &mut **from)
                .chain(lane.to.as_deref_mut()),
        );
        if is_down && let Some(to) = &mut lane.to {
            // What waits there leaves first. What comes in meanwhile waits in its ring.
            if worker.unless_down(to.flush())?.is_none() {
                continue;
            }
            is_down = false;
        }
        for from in &mut lane.from {
            let under_way = lane.to.as_deref().is_some_and(|to| to.in_flight() != 0);
            // A thread that serves several queues must not sleep on one of them for long, nor while frames come back.
            let wait = match wait {
                Wait::Poll(_) if several || under_way => Wait::Poll(Duration::from_millis(1)),
                wait => wait,
            };
            let before = lane.to.as_deref().unwrap_or(from).counters().tx_packets;
            let Some(burst) = worker.unless_down(from.recv(wait))? else {
                continue;
            };
            let packets = u32::try_from(burst.len()).unwrap_or(u32::MAX);
            if packets == 0 {
                drop(burst);
                // Those of a shared UMEM may be what the next packets need.
                if under_way && let Some(to) = &mut lane.to {
                    is_down |= worker.unless_down(to.drain(Duration::ZERO))?.is_none();
                }
                continue;
            }
            let (done, after) = match &mut lane.to {
                None => {
                    let done = send_back(burst, longest);
                    (done, from.counters().tx_packets)
                }
                Some(to) => {
                    let done = if copies {
                        copy_on(burst, to, worker)
                    } else {
                        send_on(burst, to, longest)
                    };
                    (done, to.counters().tx_packets)
                }
            };
            is_down |= worker.unless_down(done)?.is_none();
            worker.received(u64::from(packets));
            worker.sent(after - before);
            worker.took(packets);
        }
    }
    (lane.from.into_iter().chain(lane.to)).try_for_each(|queue| worker.drain(queue))
}

fn send_back(mut burst: Burst<'_>, longest: usize) -> Result<u32, Error> {
    for mut packet in &mut burst {
        if packet.len() > longest || swap_macs(packet.data_mut()).is_err() {
            packet.drop();
        }
    }
    burst.send_back()
}

fn send_on(mut burst: Burst<'_>, to: &mut Queue, longest: usize) -> Result<u32, Error> {
    // A packet in one frame came in on a frame of the same UMEM, and fits.
    if to.report().multi_buffer {
        for mut packet in &mut burst {
            if packet.len() > longest {
                packet.drop();
            }
        }
    }
    burst.send_on(to)
}

/// Sends copies on. Frames of the second UMEM come back as its kernel side completes them: they are waited for, packets
/// are not to be lost here.
fn copy_on(mut burst: Burst<'_>, to: &mut Queue, worker: &Worker<'_>) -> Result<u32, Error> {
    let mut left = u32::try_from(burst.len()).unwrap_or(u32::MAX);
    let mut incoming = burst.iter_mut();
    let mut sent = 0;
    while left != 0 && !worker.stop.is_set() {
        let mut taken = 0;
        let mtu = to.mtu();
        sent += to.send_with(left, |slot| {
            taken += 1;
            if !incoming
                .next()
                .is_some_and(|packet| packet.fits_mtu(mtu) && copy(&packet, slot))
            {
                slot.drop();
            }
        })?;
        left -= taken;
    }
    Ok(sent)
}

/// Copies a packet, whatever its frames and those that it gets; false when it is too long.
fn copy(packet: &Packet<'_>, slot: &mut Packet<'_>) -> bool {
    if packet.len() == packet.data().len() {
        return slot.write(packet.data());
    }
    if !slot.resize(packet.len()) {
        return false;
    }
    let mut from: &[u8] = &[];
    let mut parts = packet.parts();
    for mut to in slot.parts_mut() {
        while !to.is_empty() {
            if from.is_empty() {
                from = parts.next().expect("as many bytes as there is room for");
            }
            let (now, later) = from.split_at(from.len().min(to.len()));
            let (room, behind) = to.split_at_mut(now.len());
            room.copy_from_slice(now);
            (from, to) = (later, behind);
        }
    }
    true
}
