//! A wire: at its one end the kernel's generator and an XDP program that counts what comes back, at the other who is measured.

use std::error::Error;
use std::net::UdpSocket;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ringside_bpf::{Generator, GeneratorOptions, Link, Sink, XdpMode};
use ringside_netlab::{Lab, VethConfig};
use ringside_nic::host::CpuTimes;
use ringside_wire::vxlan;

/// Of VXLAN.
pub(crate) const PORT: u16 = vxlan::PORT;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

pub(crate) struct Wire {
    pub(crate) lab: Lab,
    sink: Sink,
    _counting: Link,
}

/// What became of a while of sending.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// Packets that the generators offered.
    pub(crate) offered: u64,
    /// Packets that came back.
    pub(crate) returned: u64,
    pub(crate) seconds: f64,
    /// The part of the CPUs' time that the hypervisor took.
    pub(crate) steal: f64,
}

impl Wire {
    pub(crate) fn new(tag: &str, queues: u32, subnet: u8) -> Result<Self> {
        Self::of(tag, queues, subnet, PORT)
    }

    /// What comes back is counted by its UDP port; over IPv6 as well as IPv4.
    pub(crate) fn of(tag: &str, queues: u32, subnet: u8, port: u16) -> Result<Self> {
        let lab = Lab::veth(VethConfig {
            queues,
            subnet,
            // As behind a NIC.
            tx_checksum: false,
            ..VethConfig::tagged(tag)
        })?;
        let sink = Sink::load_for_udp(port)?;
        let index = lab.a.interface.index();
        let counting = lab.a.run(|| sink.attach(index, XdpMode::Native))?;
        Ok(Self {
            lab,
            sink,
            _counting: counting,
        })
    }

    /// Sends copies of a frame as fast as the kernel can, a generator on each of the first CPUs.
    pub(crate) fn send(
        &self,
        frame: &[u8],
        options: GeneratorOptions,
        generators: u32,
        time: Duration,
    ) -> Result<Sent> {
        let index = self.lab.a.interface.index();
        let (before, times) = (self.sink.traffic()?.packets, CpuTimes::read()?);
        let stop = AtomicBool::new(false);
        let generate = |cpu: usize| {
            pin(cpu);
            let mut generator = Generator::new(index, frame, options)?;
            generator.run_for(time, &stop)
        };
        let sent = self.lab.a.run(|| {
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..generators as usize)
                    .map(|cpu| scope.spawn(move || generate(cpu)))
                    .collect();
                threads
                    .into_iter()
                    .map(|thread| thread.join().expect("a generator does not panic"))
                    .collect::<std::result::Result<Vec<_>, _>>()
            })
        })?;
        let longest = sent.iter().map(|sent| sent.elapsed).max().unwrap_or_default();
        let sum = CpuTimes::read()?.since(&times).sum();
        Ok(Sent {
            offered: sent.iter().map(|sent| sent.offered).sum(),
            returned: self.sink.traffic()?.packets - before,
            seconds: longest.as_secs_f64(),
            steal: sum.steal as f64 / sum.total().max(1) as f64,
        })
    }
}

/// When packets begin to come back: a datagram to a gateway goes out every millisecond until one does.
pub(crate) struct First<'a> {
    wire: &'a Wire,
    socket: UdpSocket,
    before: u64,
}

impl<'a> First<'a> {
    pub(crate) fn new(wire: &'a Wire) -> Result<Self> {
        let address = (wire.lab.a.ipv4, 0);
        let socket = wire.lab.a.run(|| UdpSocket::bind(address))?;
        let before = wire.sink.traffic()?.packets;
        Ok(Self { wire, socket, before })
    }

    /// Sends this in datagrams until the first comes back; when that was.
    pub(crate) fn wait(&self, payload: &[u8], patience: Duration) -> Result<Instant> {
        let begun = Instant::now();
        while begun.elapsed() < patience {
            // Nobody may listen there yet.
            _ = self.socket.send_to(payload, (self.wire.lab.b.ipv4, PORT));
            std::thread::sleep(Duration::from_millis(1));
            if self.wire.sink.traffic()?.packets > self.before {
                return Ok(Instant::now());
            }
        }
        Err("no packet has come back".into())
    }
}

pub(crate) fn pin(cpu: usize) {
    let mut set = nix::sched::CpuSet::new();
    let pinned = set
        .set(cpu)
        .and_then(|()| nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set));
    pinned.expect("a CPU of this host");
}
