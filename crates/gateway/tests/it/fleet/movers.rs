//! Tenants of a network whose addresses move, come and go, and a host that has their packets sent through each gateway.
//!
//! ```text
//!   host 23, which encapsulates by itself          host 21            host 22
//!     ├── through gateway a ──┐                       └── 10.0.0.50      └── 10.0.0.50, and those that do not move
//!     ├── through gateway b ──┼──▶ where that one has the address
//!     └── through gateway c ──┘
//! ```
//! No agent has a say in it: what a gateway is sent, it sends on by what it knows, whoever owns the network.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringside_gateway::proto;
use ringside_netlab::{Device, Lab, Namespace};
use ringside_wire::flow::UdpFlow;
use ringside_wire::{MacAddr, vxlan};

use super::followed::What;
use super::objects::GROUPS;
use super::tenant::{Family, Place, Tenant, join};

/// Their network. Nobody else's: those of [`super::hosts`] are the first ones that each gateway owns.
pub(crate) const VNI: u32 = 4000;
/// The group whose rules change, beside those of the tenants that stay; and one that nobody knows, which allows nothing.
const RULED: u32 = GROUPS + 2;
const UNKNOWN: u32 = GROUPS + 3;
/// The last byte of the address that moves: the last one of all, in another key of etcd than the one that is deleted.
const MOVED: u8 = 50;
/// Of who sends: its host's number, and its address in the network.
const SENDER: (u8, u8) = (23, 40);
/// Between two rounds.
pub(crate) const EVERY: Duration = Duration::from_millis(20);
/// How soon it is noticed that it is over.
const LOOK: Duration = Duration::from_millis(50);
/// Of a receiver that is not run for a second or more.
const BUFFER: usize = 16 << 20;
/// What all their packets begin with.
const MAGIC: [u8; 6] = *b"moving";
const PAYLOAD: usize = MAGIC.len() + 2 + 8;
/// Where it is received; one more for what only the other rule allows.
const PORT: u16 = 9000;

fn ip(what: What) -> Ipv4Addr {
    let number = match what {
        What::Gone => 20,
        What::Odd | What::Even => 32,
        What::Bare => 33,
        What::Always => 34,
        What::Moved => MOVED,
    };
    Ipv4Addr::new(10, 0, 0, number)
}

fn port(what: What) -> u16 {
    PORT + u16::from(what == What::Even)
}

fn address(what: What) -> proto::TenantAddress {
    proto::TenantAddress {
        vni: VNI,
        ip: ip(what).octets().to_vec(),
    }
}

/// A statement about an object.
#[derive(Debug, Clone)]
pub(crate) enum Told {
    Neighbor(proto::Neighbor),
    NoNeighbor(proto::AddressVersion),
    Port(proto::Port),
    NoPort(proto::AddressVersion),
    Group(proto::SecurityGroup),
}

/// A packet that came: through which gateway, of which stream, its number, and at which of the hosts; or what else it is.
pub(crate) type Heard = Result<(usize, What, usize, usize), String>;

/// See the module.
pub(crate) struct Movers {
    // In the order in which they are taken down.
    tenants: [Tenant; 2],
    sender: Lab,
    gateways: Vec<Ipv4Addr>,
}

impl Movers {
    pub(crate) fn new(tag: &str, switch: &Device, hosts: &[Lab; 2], gateways: Vec<Ipv4Addr>) -> Self {
        let ns = Namespace::create(&format!("{tag}-{}", SENDER.0)).expect("namespace");
        let sender = join(switch, &ns, (&format!("host{}", SENDER.0), SENDER.0, 0), (true, 1));
        let place = Place::vxlan(Family::V4);
        let tenant = |at: usize| {
            let to = gateways[0].into();
            Tenant::new(&format!("{tag}-{at}"), (VNI, MOVED), place, &hosts[at], to)
        };
        let tenants = [0, 1].map(tenant);
        for what in [What::Odd, What::Gone, What::Bare, What::Always] {
            tenants[1]
                .device()
                .add_address(ip(what).into(), 24)
                .expect("an address");
        }
        Self {
            tenants,
            sender,
            gateways,
        }
    }

    fn neighbor(&self, what: What, at: usize, version: u64) -> proto::Neighbor {
        let card = self.tenants[at].card;
        let IpAddr::V4(host) = card.host else {
            panic!("{card:?}")
        };
        proto::Neighbor {
            address: Some(address(what)),
            mac: card.mac.to_vec(),
            host: Some(proto::Host {
                ip: host.octets().to_vec(),
                ..Default::default()
            }),
            version,
        }
    }

    /// What stays as it is, as `apply` reads it: lines of neighbours, and of ports.
    pub(crate) fn objects(&self) -> [String; 2] {
        let line = |ip: Ipv4Addr, mac: [u8; 6], host: IpAddr| {
            format!(
                "  - {{vni: {VNI}, ip: {ip}, mac: \"{}\", host: {{ip: {host}}}}}\n",
                MacAddr(mac)
            )
        };
        let card = self.tenants[1].card;
        let mut neighbors = line(self.sender_ip(), self.sender_mac(), self.sender.a.ipv4.into());
        for what in [What::Odd, What::Bare, What::Always] {
            neighbors += &line(ip(what), card.mac, card.host);
        }
        let ports = format!("  - {{vni: {VNI}, ip: {}, groups: [{RULED}]}}\n", ip(What::Odd));
        [neighbors, ports]
    }

    fn sender_ip(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, SENDER.1)
    }

    fn sender_mac(&self) -> [u8; 6] {
        [2, 0, 0, 0, 9, SENDER.1]
    }

    /// What is to be told of each object in a step, in the order of [`What::object`].
    pub(crate) fn told(&self, step: usize) -> [Told; super::followed::OBJECTS] {
        let version = step as u64;
        let gone = |what| proto::AddressVersion {
            address: Some(address(what)),
            version,
        };
        let allowed = match step.is_multiple_of(2) {
            true => What::Even,
            false => What::Odd,
        };
        let range = u32::from(port(allowed));
        let rule = proto::Rule {
            id: version,
            direction: proto::Direction::Ingress.into(),
            protocol: Some(17),
            ports: Some(proto::PortRange {
                first: range,
                last: range,
            }),
            ..Default::default()
        };
        let group = proto::SecurityGroup {
            id: RULED,
            name: format!("step {step}"),
            rules: vec![rule],
            version,
        };
        let moved = What::Moved.place(step).expect("it is always somewhere");
        [
            Told::Group(group),
            match What::Bare.place(step) {
                Some(_) => Told::NoPort(gone(What::Bare)),
                None => Told::Port(proto::Port {
                    address: Some(address(What::Bare)),
                    groups: vec![UNKNOWN],
                    version,
                }),
            },
            match What::Gone.place(step) {
                Some(at) => Told::Neighbor(self.neighbor(What::Gone, at, version)),
                None => Told::NoNeighbor(gone(What::Gone)),
            },
            Told::Neighbor(self.neighbor(What::Moved, moved, version)),
        ]
    }

    /// Keys of etcd that hold the address that moves, and the rules.
    pub(crate) fn keys() -> [String; 2] {
        [
            format!("v1/neighbors/{VNI:06x}/0a00003"),
            format!("v1/groups/{RULED:08x}"),
        ]
    }

    /// Sends one packet of each stream through each gateway every [`EVERY`], until it is over. When each number was.
    pub(crate) fn send(&self, began: Instant, sent: Arc<Sent>) -> JoinHandle<()> {
        let at = SocketAddr::from((self.sender.a.ipv4, 0));
        let socket = self.sender.a.ns.run(|| UdpSocket::bind(at)).expect("a socket");
        let mut header = [0; vxlan::HEADER_LEN];
        vxlan::Header { vni: VNI }.emit(&mut header).expect("room");
        let mac = self.tenants[1].card.mac;
        let flow = |gateway: usize, what: What| UdpFlow {
            src_mac: MacAddr(self.sender_mac()),
            dst_mac: MacAddr(mac),
            // Of each gateway and stream a flow of its own.
            src: SocketAddr::from((
                self.sender_ip(),
                5000 + 100 * u16::try_from(gateway).expect("few") + what as u16,
            )),
            dst: SocketAddr::from((ip(what), port(what))),
            ttl: 64,
        };
        let to: Vec<(SocketAddr, [UdpFlow; 6])> = (self.gateways.iter().enumerate())
            .map(|(at, gateway)| {
                let flows = What::ALL.map(|what| flow(at, what));
                (SocketAddr::from((*gateway, vxlan::PORT)), flows)
            })
            .collect();
        std::thread::spawn(move || {
            while !sent.over.load(Ordering::Relaxed) {
                let number = {
                    let mut times = sent.times.lock().expect("no panic");
                    times.push(began.elapsed());
                    times.len() as u64 - 1
                };
                for (gateway, (to, flows)) in (0..).zip(&to) {
                    for (flow, what) in flows.iter().zip(What::ALL) {
                        let from = header.len() + flow.header_len();
                        let mut packet = [&header[..], &vec![0; flow.header_len() + PAYLOAD]].concat();
                        let payload = [&MAGIC[..], &[gateway, what as u8], &number.to_be_bytes()].concat();
                        packet[from..].copy_from_slice(&payload);
                        flow.write(&mut packet[header.len()..], PAYLOAD).expect("room");
                        // What its host refuses is lost as well.
                        _ = socket.send_to(&packet, to);
                    }
                }
                std::thread::sleep(EVERY);
            }
        })
    }

    /// Tells what comes.
    pub(crate) fn listen(
        &self,
        silent: &Arc<AtomicBool>,
        heard: &Arc<dyn Fn(Heard) + Send + Sync>,
    ) -> Vec<JoinHandle<()>> {
        let places = [(0, PORT), (1, PORT), (1, PORT + 1)];
        let listen = |(place, port): (usize, u16)| {
            let at = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
            let socket = self.tenants[place].ns.run(|| UdpSocket::bind(at)).expect("a socket");
            socket.set_read_timeout(Some(LOOK)).expect("set");
            rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER).expect("set");
            let (silent, heard) = (Arc::clone(silent), Arc::clone(heard));
            std::thread::spawn(move || {
                let mut packet = [0; 64];
                while !silent.load(Ordering::Relaxed) {
                    if let Ok((length, from)) = socket.recv_from(&mut packet) {
                        let packet = &packet[..length];
                        let read = read(packet).map(|(gateway, what, number)| (gateway, what, number, place));
                        heard(read.ok_or_else(|| format!("{packet:?} from {from} at host {place}, port {port}")));
                    }
                }
            })
        };
        places.map(listen).into()
    }
}

fn read(packet: &[u8]) -> Option<(usize, What, usize)> {
    let [gateway, what, number @ ..] = packet.strip_prefix(&MAGIC)? else {
        return None;
    };
    let number = u64::from_be_bytes(number.try_into().ok()?);
    let what = *What::ALL.get(usize::from(*what))?;
    Some((usize::from(*gateway), what, usize::try_from(number).ok()?))
}

/// What has been sent.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    pub(crate) over: AtomicBool,
    /// When the packets of each number were.
    pub(crate) times: std::sync::Mutex<Vec<Duration>>,
}
