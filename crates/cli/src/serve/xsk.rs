//! The far end's XDP sockets: one thread a queue, which answers and counts what the sessions on the board say.

use std::sync::Arc;

use anyhow::Result;
use ringside_measure::probe::Probe;
use ringside_wire::flow::UdpPacket;
use ringside_xsk::{Queue, Wait};

use super::board::{Board, View};
use super::stamp::{by_monotonic, stamp};
use crate::clock::FastClock;
use crate::live::Teller;
use crate::run::echo::{Own, Reply, answer};
use crate::run::whole::Whole;
use crate::session::{POLL, Worker};

/// What one queue's thread does until the server ends.
pub(super) fn answer_all(
    queue: &mut Queue,
    worker: &Worker<'_>,
    mut teller: Teller,
    wait: Wait,
    own: &Own,
    board: &Arc<Board>,
) -> Result<()> {
    let mut whole = Whole::new(queue.report().multi_buffer);
    let mut view = View::new(board, worker.number);
    let mut clock = FastClock::new();
    // What has grown longer on the way, where the kernel has put packets together, cannot go back.
    let longest = queue.packet_room();
    while !worker.stop.is_set() {
        teller.tell([&mut *queue]);
        let before = queue.counters().tx_packets;
        // No core at 100 % while nobody is there.
        let wait = if view.refresh() { wait } else { Wait::Poll(POLL) };
        let Some(mut burst) = worker.unless_down(queue.recv(wait))? else {
            continue;
        };
        if burst.is_empty() {
            continue;
        }
        // Whoever has come with the first packet is known by now.
        view.refresh();
        let came_ns = clock.now_in_order_ns();
        let packets = burst.len() as u64;
        for mut packet in &mut burst {
            let longer = packet.len() > longest;
            let ip_bytes = (packet.len() as u64).saturating_sub(14);
            let answered = |frame: &mut [u8]| {
                answer(frame, own, |udp, payload| {
                    admit(&mut view, udp, payload, ip_bytes, came_ns, &mut clock)
                })
            };
            if longer || !whole.edit(&mut packet, answered) {
                packet.drop();
            }
        }
        view.publish();
        let done = burst.send_back();
        worker.unless_down(done)?;
        worker.received(packets);
        worker.sent(queue.counters().tx_packets - before);
    }
    worker.drain(queue)
}

#[inline]
fn admit(
    view: &mut View,
    udp: &UdpPacket,
    payload: &mut [u8],
    ip_bytes: u64,
    came_ns: u64,
    clock: &mut FastClock,
) -> Reply {
    let Ok(probe) = Probe::decode(payload) else {
        return Reply::None;
    };
    if !view.take(&probe, udp.src, ip_bytes, came_ns) {
        return Reply::None;
    }
    stamp(&probe, payload, || by_monotonic(came_ns, clock))
}
