//! What is measured on: a test bed with a sender of its own, or an interface that others send to.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context as _, Result};
use ringside_measure::probe::DEFAULT_PORT;
use ringside_measure::schema;
use ringside_netlab::{Lab, VethConfig};
use ringside_nic::changes::{Changes, Undo};
use ringside_nic::{Interface, Irq, Knob, QueueKind};
use ringside_xsk::hints::{Layouts, Reader, RingsideRx};
use ringside_xsk::{self as xsk, Deferral, Direction, Filter, Port, Queue, QueueOptions};

use super::args::Args;
use super::heard::Heard;
use super::plan::Machine;
use super::sender::Sender;
use super::turn::{Reading, Turn};
use crate::stop::Stop;
use crate::{session, system};

/// A queue that packets come to. It is closed before the test bed goes.
pub(super) struct Bed {
    port: Port,
    reader: Reader<RingsideRx>,
    sender: Option<Sender>,
    interface: Interface,
    /// The CPU that runs NAPI: of the test bed where the sender is put, of an interface as it was seen.
    pub(super) napi_cpu: u32,
    /// Time between two packets of others.
    pub(super) observed: Option<Duration>,
    pub(super) notes: Vec<String>,
    lab: Option<Lab>,
}

impl Bed {
    pub(super) fn open(args: &Args, machine: &Machine, stop: &Stop) -> Result<Self> {
        match args.interface() {
            None => Self::veth(args, machine.lab_cpu(args)?),
            Some(name) => Self::existing(args, name, stop),
        }
    }

    fn veth(args: &Args, napi_cpu: u32) -> Result<Self> {
        let lab = Lab::veth(VethConfig {
            // Nothing but the packets that are measured.
            ipv6: false,
            gro: true,
            ..VethConfig::tagged("delay")
        })
        .context("building the test bed")?;
        let (port, reader) = lab
            .b
            .run(|| open(&lab.b.interface, args, Filter::UdpPort(DEFAULT_PORT), None))?;
        let socket = lab
            .a
            .run(|| UdpSocket::bind((lab.a.ipv4, 0)))
            .context("a socket on the test bed")?;
        Ok(Self {
            reader,
            sender: Some(Sender {
                socket,
                to: SocketAddr::from((lab.b.ipv4, DEFAULT_PORT)),
                interval: args.interval(),
            }),
            interface: lab.b.interface.clone(),
            napi_cpu,
            observed: None,
            notes: Vec::new(),
            port,
            lab: Some(lab),
        })
    }

    fn existing(args: &Args, name: &str, stop: &Stop) -> Result<Self> {
        let interface = Interface::by_name(name)?;
        if !interface.state()?.admin_up {
            return Err(xsk::Error::InterfaceDown { interface: name.into() }.into());
        }
        session::refuse_own_connection(&interface, args.filter())?;
        let (mut port, mut reader) = open(&interface, args, args.filter(), args.queue)?;
        let heard = Heard::listen(&mut port, reader, args, stop)?;
        let (queue, napi_cpu) = heard.most();
        if port.queues().len() > 1 {
            // A socket that nobody reads would keep its queue's packets from the stack.
            drop(port);
            (port, reader) = open(&interface, args, args.filter(), Some(queue))?;
        }
        let mut bed = Self {
            port,
            reader,
            sender: None,
            napi_cpu,
            observed: heard.interval(),
            notes: Vec::new(),
            interface,
            lab: None,
        };
        bed.notes = bed.told(queue, &heard);
        Ok(bed)
    }

    /// Where packets come, and what keeps them there.
    fn told(&self, queue: u32, heard: &Heard) -> Vec<String> {
        let mut note = format!(
            "packets come to queue {queue}, whose NAPI runs on CPU {}",
            self.napi_cpu
        );
        if let Some(irq) = self.irq(queue) {
            let cpus = ringside_nic::host::knob(&Knob::IrqCpus { irq: irq.number });
            let cpus = cpus.unwrap_or_else(|_| "unknown".into());
            note.push_str(&format!(" (IRQ {} {}, may go to CPUs {cpus})", irq.number, irq.name));
        }
        let mut notes = vec![note];
        let cpus = heard.cpus_of(queue);
        if cpus.len() > 1 {
            notes.push(format!(
                "NAPI of queue {queue} was seen on CPUs {}: packets that come elsewhere than on CPU {} are left out; its \
                 interrupt can be kept there by ringside tune {} --irq-cpus {}",
                Knob::cpu_list(&cpus),
                self.napi_cpu,
                self.interface,
                self.napi_cpu
            ));
        }
        notes
    }

    /// The interrupt of a receive queue, where driver and kernel tell (Linux 6.8), or of an interface that has one.
    fn irq(&self, queue: u32) -> Option<Irq> {
        let mut irqs = self.interface.irqs().ok()?;
        let napi = || {
            let details = self.interface.queue_details().ok()?;
            let rx = details
                .into_iter()
                .find(|detail| detail.kind == QueueKind::Rx && detail.id == queue)?;
            let napis = self.interface.napis().ok()?;
            napis.into_iter().find(|napi| Some(napi.id) == rx.napi)?.irq
        };
        match napi() {
            Some(number) => irqs.into_iter().find(|irq| irq.number == number),
            None if irqs.len() == 1 => irqs.pop(),
            None => None,
        }
    }

    /// The path in words.
    pub(super) fn description(&self) -> String {
        let path = self.port.queues().first().map(|queue| queue.report().path);
        let mode = path.map_or("no mode", |path| crate::output::mode_name(system::mode(path)));
        match &self.sender {
            Some(sender) => format!(
                "test bed: two namespaces, veth pair, {mode}; a packet every {:?}, give or take half",
                sender.interval
            ),
            None => format!("{} queue {}, {mode}", self.interface, self.queue_id()),
        }
    }

    pub(super) fn is_lab(&self) -> bool {
        self.lab.is_some()
    }

    fn queue_id(&self) -> u32 {
        self.port.queues().first().map_or(0, Queue::id)
    }

    /// Time between two packets.
    pub(super) fn interval(&self) -> Duration {
        let own = self.sender.as_ref().map(|sender| sender.interval);
        own.or(self.observed).unwrap_or(Duration::from_millis(1))
    }

    /// One turn of a cell, on the open queue.
    pub(super) fn turn(&mut self, turn: &Turn, busy: Option<Busy>, stop: &Stop) -> Result<Reading> {
        // Held until the turn is over.
        let _deferred = match busy.and_then(|busy| busy.deferral) {
            Some(deferral) => Some(self.defer(deferral)?),
            None => None,
        };
        let queue = self.port.queues_mut().next().context("the port has a queue")?;
        queue.set_busy_poll(busy.map(|busy| busy.options))?;
        turn.run(queue, self.reader, self.sender.as_ref(), stop)
    }

    fn defer(&self, deferral: Deferral) -> Result<Undo> {
        let (interface, queues) = (&self.interface, [self.queue_id()]);
        let set = || Changes::new().set_deferral(interface, &queues, deferral);
        let (_, undo) = match &self.lab {
            Some(lab) => lab.b.run(set)?,
            None => set()?,
        };
        Ok(undo)
    }

    /// The interface for the result.
    pub(super) fn record(&self) -> Vec<schema::Interface> {
        let (interface, report) = (&self.interface, self.port.report());
        let record = || {
            let state = interface.state().ok()?;
            Some(system::interface(interface, &state, Some(report)))
        };
        let record = match &self.lab {
            Some(lab) => lab.b.run(record),
            None => record(),
        };
        record.into_iter().collect()
    }
}

/// How busy-polling is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Busy {
    pub(super) options: xsk::BusyPoll,
    pub(super) deferral: Option<Deferral>,
}

/// The port, with hints on.
fn open(interface: &Interface, args: &Args, filter: Filter, queue: Option<u32>) -> Result<(Port, Reader<RingsideRx>)> {
    let (layouts, reader) = Layouts::ringside();
    let layouts = std::sync::Arc::new(layouts);
    let port = session::patiently(interface, |timeout| {
        let options = QueueOptions::new()
            .direction(Direction::Receive)
            .hints(std::sync::Arc::clone(&layouts))
            .busy_timeout(timeout);
        let mut builder = Port::builder(interface.clone())
            .mode(args.mode)
            .filter(filter)
            .options(options);
        if let Some(queue) = queue {
            builder = builder.queues([queue]);
        }
        Ok(builder.open()?)
    })?;
    Ok((port, reader))
}
