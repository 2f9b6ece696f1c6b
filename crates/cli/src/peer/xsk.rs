//! AF_XDP through the library: all queues of an interface, served by one thread.

use std::time::Duration;

use anyhow::{Result, ensure};
use ringside_wire::ethernet::swap_macs;
use ringside_wire::flow::UdpFlow;
use ringside_wire::vlan::TAG_LEN;
use ringside_xsk::{BusyPolling, Direction, Filter, Mode, Path, Port, Queue, QueueOptions, Wait};

use crate::args::PortArgs;
use crate::napi::NapiArgs;
use crate::session;

use super::probes::{answer_in_place, payload, write_tagged};
use super::{BATCH, LONGEST_SLEEP, Peer};

/// Frames forwarded at a time: with a transmit budget as large, which the library sets, one system call sends them all.
const FORWARD_BATCH: u32 = 256;

/// Ports of this process at a time: both ends of a path may be here.
const ENDS: u32 = 2;

/// How the sockets are set up.
pub(crate) struct SetUp {
    mode: Mode,
    options: QueueOptions,
    wait: Wait,
    /// Packets sent at a time.
    batch: u32,
    /// Which packets it takes, if not all.
    filter: Option<Filter>,
    napi: Option<NapiArgs>,
}

impl SetUp {
    /// As is best for most: the defaults, spinning.
    pub(crate) fn usual(path: Path, direction: Direction) -> Self {
        let options = QueueOptions::new().direction(direction).memory_shares(ENDS);
        Self {
            mode: Mode::Require(path),
            options: match direction {
                Direction::Both => options.batch(FORWARD_BATCH),
                Direction::Receive | Direction::Transmit => options,
            },
            wait: Wait::Spin,
            batch: u32::try_from(BATCH).unwrap_or(u32::MAX),
            filter: None,
            napi: None,
        }
    }

    /// As options of the command line say.
    pub(crate) fn tuned(args: &PortArgs, direction: Direction) -> Self {
        Self {
            mode: args.mode,
            options: args.options(direction).memory_shares(ENDS),
            wait: session::wait(args),
            batch: args.batch,
            filter: None,
            napi: Some(args.napi.clone()),
        }
    }

    /// Has it sleep in `poll()` until the kernel wakes it, where it would spin.
    pub(crate) fn sleeping(self, sleeps: bool) -> Self {
        match sleeps {
            true => Self {
                wait: Wait::Poll(LONGEST_SLEEP),
                ..self
            },
            false => self,
        }
    }

    /// Takes only these packets; none are named where it only sends.
    pub(crate) fn filter(self, filter: Option<Filter>) -> Self {
        Self { filter, ..self }
    }

    /// Opens the port in the calling thread's namespace.
    pub(crate) fn open(&self, interface: &ringside_xsk::Interface) -> Result<Port> {
        session::patiently(interface, |timeout: Duration| {
            let builder = Port::builder(interface.clone())
                .mode(self.mode)
                .options(self.options.clone().busy_timeout(timeout));
            let builder = match self.filter {
                Some(filter) => builder.filter(filter),
                None => builder,
            };
            let builder = match &self.napi {
                Some(napi) => napi.apply(builder),
                None => builder,
            };
            Ok(builder.open()?)
        })
    }
}

/// Busy-polling was asked for, and polls nothing.
#[derive(Debug)]
pub(crate) struct NoBusyPolling;

impl std::error::Error for NoBusyPolling {}

impl std::fmt::Display for NoBusyPolling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(BusyPolling::NoNapi.warning().unwrap_or_default())
    }
}

/// An interface's AF_XDP sockets.
pub(crate) struct Xsk {
    port: Port,
    wait: Wait,
    batch: u32,
    flow: UdpFlow,
    frame: Vec<u8>,
    /// VLAN priority of the probes that it sends, for which the frame has room.
    pcp: Option<u8>,
}

impl Xsk {
    /// Opens the port in the calling thread's namespace. `frame` is what it sends, with the headers of `flow`; with a priority it asks with a
    /// VLAN tag besides.
    pub(crate) fn open(
        interface: &ringside_xsk::Interface,
        set_up: SetUp,
        flow: UdpFlow,
        mut frame: Vec<u8>,
        pcp: Option<u8>,
    ) -> Result<Self> {
        if pcp.is_some() {
            frame.extend([0; TAG_LEN]);
        }
        let port = set_up.open(interface)?;
        let room = port.queues().iter().map(Queue::packet_room).min().unwrap_or(0);
        ensure!(
            frame.len() <= room,
            "a packet of {} bytes does not fit a frame with room for {room}",
            frame.len()
        );
        Ok(Self {
            port,
            wait: set_up.wait,
            batch: set_up.batch,
            flow,
            frame,
            pcp,
        })
    }

    /// How to wait for packets of one queue: for those of several it is waited for here, all together.
    fn wait(&mut self) -> Result<Wait> {
        match self.wait {
            Wait::Poll(timeout) if self.port.queues().len() > 1 => {
                session::poll_any(self.port.queues(), timeout)?;
                Ok(Wait::Spin)
            }
            wait => Ok(wait),
        }
    }
}

impl Peer for Xsk {
    fn receive(&mut self) -> Result<u64> {
        let (mut count, wait) = (0, self.wait()?);
        for queue in self.port.queues_mut() {
            let mut burst = queue.recv(wait)?;
            for packet in &mut burst {
                std::hint::black_box(packet.data().first());
            }
            count += burst.len() as u64;
        }
        Ok(count)
    }

    fn transmit(&mut self) -> Result<u64> {
        let frame = &self.frame;
        let mut count = 0;
        for queue in self.port.queues_mut() {
            count += u64::from(queue.send_with(self.batch, |packet| {
                assert!(packet.write(frame), "there is room for it: see open()");
            })?);
        }
        Ok(count)
    }

    fn send_back(&mut self) -> Result<u64> {
        let (mut count, wait) = (0, self.wait()?);
        for queue in self.port.queues_mut() {
            let mut burst = queue.recv(wait)?;
            if burst.is_empty() {
                continue;
            }
            for mut packet in &mut burst {
                // A frame shorter than a header cannot have come from an interface.
                _ = swap_macs(packet.data_mut());
            }
            count += u64::from(burst.send_back()?);
        }
        Ok(count)
    }

    fn ask(&mut self, probe: &[u8]) -> Result<()> {
        write_tagged(&self.flow, &mut self.frame, probe, self.pcp)?;
        let frame = &self.frame;
        if let Some(queue) = self.port.queues_mut().next() {
            queue.send_with(1, |packet| {
                assert!(packet.write(frame), "there is room for it: see open()");
            })?;
        }
        Ok(())
    }

    fn answer(&mut self) -> Result<()> {
        let wait = self.wait()?;
        for queue in self.port.queues_mut() {
            let mut burst = queue.recv(wait)?;
            if burst.is_empty() {
                continue;
            }
            for mut packet in &mut burst {
                if answer_in_place(packet.data_mut()) {
                    packet.send();
                }
            }
            burst.finish()?;
        }
        Ok(())
    }

    fn hear(&mut self, take: &mut dyn FnMut(&[u8])) -> Result<()> {
        let wait = self.wait()?;
        for queue in self.port.queues_mut() {
            for packet in &mut queue.recv(wait)? {
                if let Some(payload) = payload(packet.data()) {
                    take(payload);
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        for queue in self.port.queues_mut() {
            queue.flush()?;
        }
        // A figure of busy-polling that polls nothing would be one of spinning.
        let mut states = self.port.queues().iter().map(Queue::busy_polling);
        match states.find(|state| *state == BusyPolling::NoNapi) {
            Some(_) => Err(NoBusyPolling.into()),
            None => Ok(()),
        }
    }
}
