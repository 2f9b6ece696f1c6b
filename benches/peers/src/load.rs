//! The packets that a receiver gets, and the sink that a sender's go to.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ringside_bpf::{Generator, GeneratorOptions, Link, Neighbours, Sink, XdpMode};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::lab::{self, Lab};
use crate::operation::SENDER_CPU;

/// 64 bytes: UDP over IPv4 between two locally administered addresses, to port 9 (discard).
#[rustfmt::skip]
const PACKET: [u8; 64] = {
    let mut packet = [0; 64];
    let head = [
        0x02, 0, 0, 0, 0, 0x02,  0x02, 0, 0, 0, 0, 0x01,  0x08, 0x00,
        // 20 bytes of IPv4, 50 in all, time to live 64, protocol 17, header checksum 0xee93.
        0x45, 0, 0, 50,  0, 0, 0, 0,  64, 17, 0xee, 0x93,  198, 18, 0, 1,  198, 18, 0, 2,
        // 8 bytes of UDP, 30 in all, no checksum.
        0, 9, 0, 9,  0, 30, 0, 0,
    ];
    let mut index = 0;
    while index < head.len() {
        packet[index] = head[index];
        index += 1;
    }
    packet
};

/// Who makes the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Source {
    /// The kernel, without a socket: more than any receiver takes.
    #[default]
    Generator,
    /// A UDP socket, as most senders on the same machine: the sender is what limits.
    Socket,
}

/// Packets arriving at the near end until dropped.
#[derive(Debug)]
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    ready: Arc<AtomicBool>,
    worker: Option<JoinHandle<Result<()>>>,
}

impl Load {
    /// Starts making packets on the sender's CPU, for `duration` at the most.
    pub(crate) fn start(lab: &Lab, duration: Duration, source: Source) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let ready = Arc::new(AtomicBool::new(false));
        let (namespace, asked, tell) = (lab.far().to_owned(), Arc::clone(&stop), Arc::clone(&ready));
        let worker = std::thread::spawn(move || {
            let mut cpu = CpuSet::new();
            cpu.set(SENDER_CPU);
            sched_setaffinity(None, &cpu).context("staying on the sender's CPU")?;
            lab::enter(&namespace)?;
            if source == Source::Socket {
                return send(duration, &asked, &tell);
            }
            // What arrives in a socket was copied, so the frames need not be written anew.
            let options = GeneratorOptions {
                rewrite: 0,
                ..GeneratorOptions::default()
            };
            let mut generator = Generator::new(ifindex(lab::FAR)?, &PACKET, options)?;
            tell.store(true, Ordering::Release);
            generator.run_for(duration, &asked)?;
            Ok(())
        });
        Self {
            stop,
            ready,
            worker: Some(worker),
        }
    }

    /// Whether its programs are loaded and it makes packets. Loading waits for the kernel's grace
    /// periods, which takes a second or two on a busy machine.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Whether it makes no more packets: an error, or its time is over.
    pub(crate) fn has_ended(&self) -> bool {
        self.worker.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Release);
        let worker = self.worker.take().context("the load was finished before")?;
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

/// Sends datagrams of the generator's size until asked to stop, for `duration` at the most.
fn send(duration: Duration, stop: &AtomicBool, ready: &AtomicBool) -> Result<()> {
    const HEADERS: usize = 14 + 20 + 8;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("a socket to send from")?;
    socket
        .connect((lab::NEAR_ADDRESS, 9))
        .context("the near end's address")?;
    let end = Instant::now() + duration;
    ready.store(true, Ordering::Release);
    while !stop.load(Ordering::Relaxed) && Instant::now() < end {
        for _ in 0..64 {
            // Nobody listens there if the receiver has left the packet to the kernel: that is told by the next send.
            let _ = socket.send(&PACKET[HEADERS..]);
        }
    }
    Ok(())
}

/// Attaches a program to the far end that drops all that arrives.
pub(crate) fn attach_sink(lab: &Lab) -> Result<Link> {
    Lab::within(lab.far(), || {
        let sink = Sink::load(Neighbours::Drop)?;
        Ok(sink.attach(ifindex(lab::FAR)?, XdpMode::Native)?)
    })
}

/// The index of an interface in the calling thread's namespace.
fn ifindex(name: &str) -> Result<u32> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    rustix::net::netdevice::name_to_index(&socket, name).with_context(|| format!("looking up {name}"))
}
