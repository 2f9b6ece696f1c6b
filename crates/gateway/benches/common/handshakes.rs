//! Both ends of TCP connections through a gateway, in one thread: what one end sends and the gateway sends on is answered by the
//! other end, until both have what they need. What the gateway loses is sent again.

use std::time::{Duration, Instant};

use ringside_netlab::Lab;
use ringside_wire::checksum::update;
use ringside_wire::tcp::Flags;
use ringside_xsk::{Filter, Mode, Path, Port, Queue, Wait};

use super::wire::{PORT, Result, pin};

/// Connections that are opened at a time: fewer packets than a veth has room for.
const WINDOW: u32 = 192;
/// What has not come by then was lost.
const PATIENCE: Duration = Duration::from_millis(100);
/// Client's ports from here on, and servers'.
const PORTS: [u16; 2] = [1024, 1000];
/// Client's ports.
const CLIENTS: u32 = 1 << 15;

/// How connections were opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opened {
    /// All of them.
    pub(crate) seconds: f64,
    /// The last tenth.
    pub(crate) last_seconds: f64,
    /// Times that a packet of one did not come, and it was begun again.
    pub(crate) lost: u64,
}

/// The hosts' end of a wire, behind which both tenants are.
pub(crate) struct Hosts {
    port: Port,
    /// SYN, SYN and ACK, ACK, all of one length, in tunnels to the gateway.
    packets: [Vec<u8>; 3],
    /// Where in them the ports are.
    ports_at: usize,
}

impl Hosts {
    pub(crate) fn new(lab: &Lab, packets: [Vec<u8>; 3], ports_at: usize) -> Result<Self> {
        let open = || {
            Port::builder(lab.a.interface.clone())
                .filter(Filter::UdpPort(PORT))
                .mode(Mode::Require(Path::NativeCopy))
                .open()
        };
        let port = lab.a.run(open)?;
        Ok(Self {
            port,
            packets,
            ports_at,
        })
    }

    /// Opens so many connections on the first CPU.
    pub(crate) fn open(&mut self, flows: u32) -> Result<Opened> {
        on_first_cpu(|| {
            let begun = Instant::now();
            let (mut is_open, mut opened, mut lost) = (vec![false; flows as usize], 0, 0);
            let mut tenth = begun;
            // The first time all of them, then those that were lost.
            while opened < flows {
                let mut next = (0..flows)
                    .filter(|flow| !is_open[*flow as usize])
                    .collect::<Vec<_>>()
                    .into_iter();
                let (mut under_way, mut seen) = (0_u32, Instant::now());
                loop {
                    let mut new = 0;
                    self.answer(|flow, is_last| {
                        let Some(is_open) = is_open.get_mut(flow as usize) else {
                            return false;
                        };
                        let was_open = *is_open;
                        *is_open |= is_last;
                        new += u32::from(*is_open && !was_open);
                        // Who has an open connection does not begin it again for a SYN that was under way for long.
                        !was_open
                    })?;
                    if new != 0 {
                        seen = Instant::now();
                        if opened < flows / 10 * 9 {
                            tenth = seen;
                        }
                    } else if under_way != 0 && seen.elapsed() > PATIENCE {
                        (lost, under_way, seen) = (lost + u64::from(under_way), 0, Instant::now());
                    }
                    opened += new;
                    under_way = under_way.saturating_sub(new);
                    let more = (WINDOW - under_way).min(u32::try_from(next.len()).unwrap_or(u32::MAX));
                    if more == 0 && under_way == 0 {
                        break;
                    }
                    under_way += self.send(0, more, || next.next().unwrap_or_default())?;
                }
            }
            Ok(Opened {
                seconds: begun.elapsed().as_secs_f64(),
                last_seconds: tenth.elapsed().as_secs_f64(),
                lost,
            })
        })
    }

    /// Has clients send on connections that are open, in an irregular order, for a while; packets that came a second.
    pub(crate) fn talk(&mut self, flows: u32, time: Duration) -> Result<f64> {
        on_first_cpu(|| {
            let begun = Instant::now();
            let (mut came, mut under_way, mut number, mut seen) = (0_u64, 0_u32, 0_u32, begun);
            while begun.elapsed() < time {
                let mut new = 0;
                self.answer(|_, is_last| {
                    new += u32::from(is_last);
                    !is_last
                })?;
                came += u64::from(new);
                under_way = under_way.saturating_sub(new);
                if new != 0 {
                    seen = Instant::now();
                } else if seen.elapsed() > PATIENCE {
                    (under_way, seen) = (0, Instant::now());
                }
                under_way += self.send(2, WINDOW - under_way, || {
                    number = number.wrapping_add(0x9e37_79b1);
                    let of_all = (u64::from(number) * u64::from(flows)) >> 32;
                    u32::try_from(of_all).unwrap_or_default()
                })?;
            }
            Ok(came as f64 / begun.elapsed().as_secs_f64())
        })
    }

    /// Answers what has come, if it is to be: is asked with the flow, and whether it was its last packet, which has no answer.
    fn answer(&mut self, mut is_wanted: impl FnMut(u32, bool) -> bool) -> Result<()> {
        let (packets, ports_at) = (&self.packets, self.ports_at);
        let mut burst = queue(&mut self.port).recv(Wait::Spin)?;
        for mut packet in &mut burst {
            let data = packet.data_mut();
            if data.len() < packets[0].len() {
                packet.drop();
                continue;
            }
            let ports: [u8; 4] = data[ports_at..ports_at + 4].try_into()?;
            let [a, b, c, d] = ports;
            let [sender, receiver] = [[a, b], [c, d]].map(u16::from_be_bytes);
            let (flow, answer) = match Flags(data[ports_at + 13]) {
                Flags::SYN => (flow([sender, receiver]), Some(&packets[1])),
                flags if flags.has(Flags::SYN) => (flow([receiver, sender]), Some(&packets[2])),
                _ => (flow([sender, receiver]), None),
            };
            let is_wanted = is_wanted(flow, answer.is_none());
            let Some(answer) = answer.filter(|_| is_wanted) else {
                packet.drop();
                continue;
            };
            data[..answer.len()].copy_from_slice(answer);
            put_ports(data, ports_at, [[c, d], [a, b]]);
            packet.send();
        }
        burst.finish()?;
        Ok(())
    }

    /// Sends one of the packets for so many flows, or fewer; tells how many.
    fn send(&mut self, which: usize, most: u32, mut flow: impl FnMut() -> u32) -> Result<u32> {
        if most == 0 {
            return Ok(0);
        }
        let (packet, at) = (&self.packets[which], self.ports_at);
        let sent = queue(&mut self.port).send_with(most, |slot| {
            assert!(slot.write(packet), "room for a packet");
            let [client, server] = ports(flow());
            put_ports(slot.data_mut(), at, [client, server].map(u16::to_be_bytes));
        })?;
        Ok(sent)
    }
}

/// Writes a segment's ports, which its checksum follows.
fn put_ports(data: &mut [u8], at: usize, ports: [[u8; 2]; 2]) {
    let check = at + 16;
    let word = |data: &[u8], at: usize| u16::from_be_bytes([data[at], data[at + 1]]);
    for (place, port) in [at, at + 2].into_iter().zip(ports) {
        let changed = update(word(data, check), word(data, place), u16::from_be_bytes(port));
        data[check..check + 2].copy_from_slice(&changed.to_be_bytes());
        data[place..place + 2].copy_from_slice(&port);
    }
}

fn queue(port: &mut Port) -> &mut Queue {
    port.queues_mut().next().expect("an interface has a queue")
}

fn on_first_cpu<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let run = || {
        pin(0);
        work().map_err(|error| error.to_string())
    };
    let done = std::thread::scope(|scope| scope.spawn(run).join().expect("no panic"));
    Ok(done?)
}

/// Of client and server.
fn ports(flow: u32) -> [u16; 2] {
    let [client, server] = [flow % CLIENTS, flow / CLIENTS].map(|number| u16::try_from(number).expect("15 bits"));
    [PORTS[0] + client, PORTS[1] + server]
}

/// Which flow's ports these are, in a packet from the client.
fn flow([client, server]: [u16; 2]) -> u32 {
    u32::from(client.wrapping_sub(PORTS[0])) + u32::from(server.wrapping_sub(PORTS[1])) * CLIENTS
}
