//! AF_XDP through the library: all queues of an interface, served by one thread that spins.

use anyhow::{Result, ensure};
use ringside_wire::ethernet::swap_macs;
use ringside_wire::flow::UdpFlow;
use ringside_xsk::{Direction, Mode, Path, Port, Queue, QueueOptions, Wait};

use super::probes::{answer_in_place, payload, write_probe};
use super::{BATCH, Peer};

/// Frames forwarded at a time: with a transmit budget as large, which the library sets, one system call sends them all.
const FORWARD_BATCH: u32 = 256;

/// An interface's AF_XDP sockets.
pub(crate) struct Xsk {
    port: Port,
    flow: UdpFlow,
    frame: Vec<u8>,
}

impl Xsk {
    /// Opens the port in the calling thread's namespace. `frame` is what it sends, with the headers of `flow`.
    pub(crate) fn open(
        interface: &ringside_xsk::Interface,
        path: Path,
        direction: Direction,
        flow: UdpFlow,
        frame: Vec<u8>,
    ) -> Result<Self> {
        let options = QueueOptions::new().direction(direction);
        let options = match direction {
            Direction::Both => options.batch(FORWARD_BATCH),
            Direction::Receive | Direction::Transmit => options,
        };
        let port = Port::builder(interface.clone())
            .mode(Mode::Require(path))
            .options(options)
            .open()?;
        let room = port.queues().iter().map(Queue::packet_room).min().unwrap_or(0);
        ensure!(
            frame.len() <= room,
            "a packet of {} bytes does not fit a frame with room for {room}",
            frame.len()
        );
        Ok(Self { port, flow, frame })
    }
}

impl Peer for Xsk {
    fn receive(&mut self) -> Result<u64> {
        let mut count = 0;
        for queue in self.port.queues_mut() {
            let mut burst = queue.recv(Wait::Spin)?;
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
            let batch = u32::try_from(BATCH).unwrap_or(u32::MAX);
            count += u64::from(queue.send_with(batch, |packet| {
                assert!(packet.write(frame), "there is room for it: see open()");
            })?);
        }
        Ok(count)
    }

    fn send_back(&mut self) -> Result<u64> {
        let mut count = 0;
        for queue in self.port.queues_mut() {
            let mut burst = queue.recv(Wait::Spin)?;
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
        write_probe(&self.flow, &mut self.frame, probe)?;
        let frame = &self.frame;
        if let Some(queue) = self.port.queues_mut().next() {
            queue.send_with(1, |packet| {
                assert!(packet.write(frame), "there is room for it: see open()");
            })?;
        }
        Ok(())
    }

    fn answer(&mut self) -> Result<()> {
        for queue in self.port.queues_mut() {
            let mut burst = queue.recv(Wait::Spin)?;
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
        for queue in self.port.queues_mut() {
            for packet in &mut queue.recv(Wait::Spin)? {
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
        Ok(())
    }
}
