//! `ringside impair`: a wire between two interfaces that loses, doubles, damages, delays and reorders packets, on purpose,
//! by a seed, and counts what it does.

mod args;
mod relay;
mod select;
mod text;
mod values;

use std::cell::Cell;

use anyhow::{Context as _, Result};
use ringside_measure::counters::{Ledger, LossCause};
use ringside_measure::impair::Impairment;
use ringside_measure::schema::{self, ImpairResult, ImpairedDirection, Operation, QueueCounters};
use ringside_nic::{Interface, LinkState};
use ringside_xsk::{Direction, Filter, Port, Queue, SharedUmem};

pub(crate) use args::ImpairArgs;
use relay::{Ends, Relay, Way};
use text::InWords;
pub(crate) use text::{brief, text};

use super::{account, conclude, leave, missed, rates, receive_ledger};
use crate::args::{PortArgs, bad_value};
use crate::live::{self, Offer};
use crate::session::{self, Watched};
use crate::stop::Stop;
use crate::{output, system};

/// So that the two directions differ with one seed.
const BACK: u64 = 0x6261_636b;

pub(crate) fn run(args: &ImpairArgs) -> Result<()> {
    let stop = Stop::on_signals()?;
    let names = args.interfaces()?;
    if args.port.queues.is_some() {
        bad_value!("--queues: a wire takes all queues, else packets on the others would not come through");
    }
    let settings = args.settings();
    let hold = args.hold(&settings)?;
    let [there, back] = &settings;
    let paths = |hold: u32| {
        let (there, back) = (
            Impairment::new(there, args.seed, hold as usize),
            Impairment::new(back, args.seed ^ BACK, hold as usize),
        );
        anyhow::Ok([
            there.context("from the first interface to the second")?,
            back.context("from the second interface to the first")?,
        ])
    };
    // Before anything is opened.
    paths(hold[1])?;

    let args_of = |name: &str, port: &PortArgs| PortArgs {
        interface: name.to_owned(),
        ..port.clone()
    };
    let mut interfaces = Vec::new();
    for name in names {
        let interface = session::interface(&args_of(name, &args.port), &args.run.output)?;
        // Before the other one is opened.
        session::refuse_own_connection(&interface, Filter::Wire)?;
        interfaces.push(interface);
    }
    let web = live::listen(&args.run.prometheus)?;
    let (umem, port_args, hold) = umem(&args.port, &interfaces, hold)?;
    // A NIC takes packets for the hosts at the ends only when it is told.
    let _theirs = interfaces
        .iter()
        .map(Interface::promiscuous)
        .collect::<Result<Vec<_>, _>>()?;
    let mut ports = Vec::new();
    for interface in &interfaces {
        let args = args_of(interface.name(), &port_args);
        let umem = Some(&umem);
        let port = session::open(interface.clone(), &args, Direction::Both, Filter::Wire, umem);
        ports.push(port.context("both interfaces are on one UMEM: if only one has zero-copy, give --mode native")?);
    }
    for port in &ports {
        output::opened(args.run.verbose, port.report());
    }
    for (from, to, settings) in [(names[0], names[1], there), (names[1], names[0], back)] {
        output::note(format_args!("  {from} -> {to}: {}", InWords(settings)));
    }
    output::note(format_args!(
        "  all packets between the two are handed on, ARP and neighbour discovery too: this host itself is not reached through them"
    ));
    let before = [session::link(&ports[0])?, session::link(&ports[1])?];

    let room_of = |port: &Port| port.queues().iter().map(Queue::packet_room).min().unwrap_or(0);
    let [there, back] = paths(hold)?;
    let ways = [Way::new(there, room_of(&ports[1])), Way::new(back, room_of(&ports[0]))];
    let wait = session::wait(&args.port);
    let mut relay = Relay::new(args.matching, ways, wait, args.port.batch, args.port.multi_buffer);
    let offer = Offer::start("impair", &[&ports[0], &ports[1]], web)?;
    let watched = Watched::ports(&ports);
    let ran = {
        let mut ports = ports.iter_mut().map(|port| port.queues_mut().collect::<Vec<_>>());
        let ends: Ends<'_> = [(); 2].map(|()| ports.next().unwrap_or_default());
        let lanes = vec![(ends, &mut relay)];
        session::run(lanes, watched, &args.port, &args.run, &stop, |(ends, relay), worker| {
            relay.run(ends, &worker, offer.teller())
        })?
    };

    let mut books = Books::read(&mut ports, &before)?;
    let [there, back] = relay.ways();
    let directions = vec![
        there.result(names[0], names[1], InWords(&settings[0]).to_string()),
        back.result(names[1], names[0], InWords(&settings[1]).to_string()),
    ];
    books.decided(&directions, there.seen() + back.seen());
    let records = books.leave(&ports, &before)?;
    let mut result = session::result(Operation::Impair, &ran, books.queues);
    result.packets = books.ledger;
    let [received, sent] = [books.received, books.sent];
    result.received = rates(received.packets, received.bytes, 0, ran.received);
    result.transmitted = rates(sent.packets, sent.bytes, 0, ran.sent);
    result.impair = Some(ImpairResult {
        seed: args.seed,
        matching: args.matching.to_string(),
        directions,
    });
    account(&mut result);
    // What is still held goes before the memory that it is in.
    drop(relay);
    drop(ports);
    output::finish(&args.run, records, result)?;
    conclude(
        ran,
        sent.packets,
        &format!("impair {}", args.port.interface),
        "no packet came through: are the two hosts at the ends up, and is the traffic running?",
    )
}

/// Packets and their bytes.
#[derive(Clone, Copy, Default)]
struct Traffic {
    packets: u64,
    bytes: u64,
}

/// What both ports have counted, and where the packets went.
#[derive(Default)]
struct Books {
    ledger: Ledger,
    queues: Vec<QueueCounters>,
    received: Traffic,
    sent: Traffic,
}

impl Books {
    /// Reads the counters up to the sockets, after what they still hold has come out.
    fn read(ports: &mut [Port], before: &[LinkState]) -> Result<Self> {
        let mut books = Self::default();
        for (port, before) in ports.iter_mut().zip(before) {
            // Rates are those of the span; what is settled came after its last packet.
            let own = port.stats()?.own;
            books.received.packets += own.rx_packets;
            books.received.bytes += own.rx_bytes;
            let redirected = session::settle(port)?;
            let queues = session::counters(port)?;
            let of_one = receive_ledger(&queues, redirected, missed(before, &session::link_after(port, before)));
            books.queues.extend(queues);
            books.ledger.merge(of_one);
        }
        Ok(books)
    }

    /// What was decided about those that came out of the sockets, which were `seen`; copies count as sent.
    fn decided(&mut self, directions: &[ImpairedDirection], seen: u64) {
        let ledger = &mut self.ledger;
        let received = ledger.received.take().unwrap_or(0);
        ledger.lose(LossCause::RunEnded, received.saturating_sub(seen));
        for direction in directions {
            let counts = &direction.counts;
            ledger.sent += counts.duplicated;
            ledger.generated += counts.duplicated;
            ledger.lose(LossCause::Impairment, counts.dropped);
            ledger.lose(LossCause::RateQueueFull, counts.queue_dropped);
            ledger.lose(LossCause::HoldFull, counts.overflowed);
            ledger.lose(LossCause::TooLong, direction.too_long_packets);
            ledger.lose(LossCause::LinkDown, direction.link_down_packets);
            ledger.lose(LossCause::StillHeld, direction.left_packets);
        }
    }

    /// What left, and by which interfaces.
    fn leave(&mut self, ports: &[Port], before: &[LinkState]) -> Result<Vec<schema::Interface>> {
        let mut records = Vec::new();
        for (port, before) in ports.iter().zip(before) {
            let after = session::link_after(port, before);
            let own = port.stats()?.own;
            leave(&mut self.ledger, port, own.tx_packets, before, &after);
            records.push(system::interface(port.interface(), &after, Some(port.report())));
            self.sent.packets += own.tx_packets;
            self.sent.bytes += own.tx_bytes;
        }
        Ok(records)
    }
}

/// Makes a UMEM for both ports: what their queues need, and what is held. Returns also the options
/// of these, and how many packets are held in each direction: the second number of `hold` where
/// memory is short.
fn umem(args: &PortArgs, on: &[Interface], hold: [u32; 2]) -> Result<(SharedUmem, PortArgs, u32)> {
    let held = Cell::new(hold[0]);
    let frames = |args: &PortArgs, is_short: bool| {
        held.set(hold[usize::from(is_short)]);
        let mut frames = held.get().saturating_mul(2);
        for interface in on {
            let each = args.options(Direction::Both).frames_on(interface, args.mode);
            frames = frames.saturating_add(each.saturating_mul(interface.rx_queues()?));
        }
        Ok(frames)
    };
    let umem = session::shared_umem(args, on, frames);
    let held = held.get();
    let what = || format!("making room for packets, --hold {held} in each direction");
    let (umem, args) = umem.with_context(what)?;
    if held != hold[0] {
        output::note(format_args!(
            "room for {held} packets in each direction instead of {}",
            hold[0]
        ));
    }
    Ok((umem, args, held))
}
