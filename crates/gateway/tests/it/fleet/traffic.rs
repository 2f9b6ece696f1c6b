//! What tenants send each other while something happens: numbered datagrams in both directions of each network, and a connection.
//!
//! A number that does not arrive is a packet that was lost, and the time for which nothing arrived is that between those before and after
//! it, as they were sent: a machine that lets the test wait loses none by that. What arrives says from whom and to whom it is.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringside_netlab::wait_until;

use super::cluster::PATIENCE;
use super::hosts::{Hosts, Network, TCP};
use super::peers::{connect, snmp, without_room};
use super::tenant::{Card, Family, Tenant};

/// Between two datagrams of a stream.
const EVERY: Duration = Duration::from_millis(5);
/// Between an answer and the next word on a connection.
const PAUSE: Duration = Duration::from_millis(10);
/// How soon it is noticed that it is over.
const LOOK: Duration = Duration::from_millis(50);
/// How long the last ones may be on their way.
const LATE: Duration = Duration::from_secs(1);
const UDP: u16 = 9000;
/// Of a receiver that is not run for a second or more.
const BUFFER: usize = 16 << 20;
/// What all datagrams of a stream begin with: network, from, to.
const HEAD: usize = 12;

/// What may be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packets {
    /// Nothing: it is etcd that fails, or the way there.
    All,
    /// What goes through this gateway, for so long at a time: it dies, or hosts do not reach it.
    Of(&'static str, Duration),
    /// What goes through any of them, for so long at a time.
    Any(Duration),
}

impl Packets {
    /// What may be lost if etcd has elected a leader meanwhile, which begins leases anew.
    pub(crate) fn after_an_election(self, lease: Duration) -> Self {
        match self {
            Self::All => self,
            Self::Of(owner, most) => Self::Of(owner, most + lease),
            Self::Any(most) => Self::Any(most + lease),
        }
    }
}

/// A stream, as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Passed {
    owner: &'static str,
    name: String,
    sent: usize,
    lost: usize,
    /// The longest time for which nothing arrived.
    gap: Duration,
}

/// A connection, as it was: the longest time until a word was answered, or why it ended.
type Talked = Result<Duration, String>;

/// All of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Carried {
    streams: Vec<Passed>,
    connections: Vec<(&'static str, Talked)>,
    /// What came to somebody else.
    foreign: Vec<String>,
    /// What found no room in the buffer of a socket.
    unread: u64,
    /// Nor in the kernel's queues, which this machine's other tests fill as well.
    without_room: u64,
}

impl Carried {
    /// What must not be.
    pub(crate) fn violations(&self, packets: Packets) -> Vec<String> {
        let mut found: Vec<String> = self.foreign.clone();
        let mut lost: Vec<_> = self.streams.iter().filter(|stream| stream.lost > 0).collect();
        lost.retain(|stream| {
            let most = match packets {
                Packets::Of(owner, most) if owner == stream.owner => most,
                Packets::Any(most) => most,
                Packets::All | Packets::Of(..) => Duration::ZERO,
            };
            stream.gap > most
        });
        if lost.iter().map(|stream| stream.lost as u64).sum::<u64>() > self.without_room {
            found.extend(lost.iter().map(|stream| format!("{stream:?}, {} unread", self.unread)));
        }
        if let Packets::Of(owner, _) = packets
            && !self
                .streams
                .iter()
                .any(|stream| stream.owner == owner && stream.lost > 0)
        {
            found.push(format!("nothing has happened to {owner}"));
        }
        let ended =
            |(owner, talked): &(&str, Talked)| Some(format!("a connection of {owner}: {}", talked.as_ref().err()?));
        found.extend(self.connections.iter().filter_map(ended));
        found
    }
}

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |of: &dyn Fn(&Passed) -> usize| self.streams.iter().map(of).sum::<usize>();
        let (sent, lost) = (sum(&|stream| stream.sent), sum(&|stream| stream.lost));
        write!(f, "tenants: {lost} of {sent} packets lost")?;
        let mut owners: Vec<_> = self.streams.iter().map(|stream| stream.owner).collect();
        owners.dedup();
        for owner in owners {
            let of = |stream: &&Passed| stream.owner == owner && stream.lost > 0;
            if let Some(gap) = self.streams.iter().filter(of).map(|stream| stream.gap).max() {
                write!(f, ", {owner}'s for {:.1} s at a time", gap.as_secs_f64())?;
            }
        }
        let waits = self.connections.iter().filter_map(|(_, talked)| talked.as_ref().ok());
        let most = waits.max().copied().unwrap_or_default();
        write!(f, ", TCP answered within {:.1} s", most.as_secs_f64())
    }
}

/// What a receiver knows of its stream.
#[derive(Default)]
struct Heard {
    numbers: BTreeSet<u64>,
    foreign: Vec<String>,
}

struct Stream {
    owner: &'static str,
    name: String,
    /// The number after the last one that came.
    next: Arc<AtomicU64>,
    receiver: JoinHandle<Heard>,
}

/// Traffic between all tenants, until it is [ended](Traffic::end).
pub(crate) struct Traffic {
    /// Nothing more is sent.
    over: Arc<AtomicBool>,
    /// Nothing more is received.
    silent: Arc<AtomicBool>,
    /// How many of each stream were sent; from which one on they count.
    sent: Arc<AtomicU64>,
    since: u64,
    /// What the kernel had no room for before.
    without_room: u64,
    /// When.
    sender: Option<JoinHandle<Vec<Instant>>>,
    streams: Vec<Stream>,
    connections: Vec<(&'static str, [JoinHandle<Talked>; 2])>,
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.silent.store(true, Ordering::Relaxed);
    }
}

fn head(from: &Card, to: &Card) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..4].copy_from_slice(&from.vni.to_be_bytes());
    head[4..8].copy_from_slice(&from.v4.octets());
    head[8..].copy_from_slice(&to.v4.octets());
    head
}

fn socket(tenant: &Tenant) -> UdpSocket {
    let at = SocketAddr::from((tenant.address(Family::V4), UDP));
    let socket = tenant.ns.run(|| UdpSocket::bind(at)).expect("a socket");
    socket.set_read_timeout(Some(LOOK)).expect("set");
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER).expect("set");
    socket
}

impl Traffic {
    /// Begins, and counts from when all of it arrives.
    pub(crate) fn start(hosts: &Hosts) -> Self {
        let (over, silent, sent) = (Arc::default(), Arc::default(), Arc::default());
        let (mut streams, mut sends) = (Vec::new(), Vec::new());
        for network in &hosts.networks {
            let sockets = [0, 1].map(|at: usize| Arc::new(socket(&network.tenants[at])));
            let cards = [0, 1].map(|at: usize| network.tenants[at].card);
            for (from, to) in [(0, 1), (1, 0)] {
                let begins = head(&cards[from], &cards[to]);
                sends.push((
                    Arc::clone(&sockets[from]),
                    SocketAddr::from((cards[to].v4, UDP)),
                    begins,
                ));
                let (next, silent, socket) = (Arc::default(), Arc::clone(&silent), Arc::clone(&sockets[to]));
                let last = Arc::clone(&next);
                streams.push(Stream {
                    owner: network.owner,
                    name: format!("network {} to {}", network.vni, cards[to].v4),
                    next,
                    receiver: std::thread::spawn(move || listen(&socket, begins, (&last, &silent))),
                });
            }
        }
        let (stop, count) = (Arc::clone(&over), Arc::clone(&sent));
        let sender = std::thread::spawn(move || send(&sends, (&count, &stop)));
        let mut traffic = Self {
            over: Arc::clone(&over),
            silent,
            sent,
            since: 0,
            without_room: without_room(),
            sender: Some(sender),
            streams,
            connections: Vec::new(),
        };
        traffic.goes();
        traffic.connections = hosts.networks.iter().map(|network| converse(network, &over)).collect();
        traffic.since = traffic.sent.load(Ordering::Relaxed);
        traffic
    }

    /// Waits until something of each stream arrives that is sent from now on.
    fn goes(&self) {
        let now = self.sent.load(Ordering::Relaxed);
        for stream in &self.streams {
            let arrives = || stream.next.load(Ordering::Relaxed) > now;
            assert!(wait_until(PATIENCE, arrives), "nothing arrives: {}", stream.name);
        }
    }

    /// Waits until all of it arrives again, and ends it.
    pub(crate) fn end(mut self, hosts: &Hosts) -> Carried {
        self.goes();
        self.over.store(true, Ordering::Relaxed);
        let times = self.sender.take().expect("once").join().expect("sends");
        let has_last = |stream: &Stream| stream.next.load(Ordering::Relaxed) == times.len() as u64;
        _ = wait_until(LATE, || self.streams.iter().all(has_last));
        self.silent.store(true, Ordering::Relaxed);
        let mut carried = Carried {
            without_room: without_room() - self.without_room,
            ..Carried::default()
        };
        for stream in self.streams.drain(..) {
            let heard = stream.receiver.join().expect("receives");
            carried.foreign.extend(heard.foreign);
            let (lost, gap) = missing(&heard.numbers, &times, self.since);
            carried.streams.push(Passed {
                owner: stream.owner,
                name: stream.name,
                sent: times.len() - usize::try_from(self.since).expect("few"),
                lost,
                gap,
            });
        }
        for (owner, ends) in self.connections.drain(..) {
            let [client, server] = ends.map(|end| end.join().expect("no panic"));
            carried.connections.push((owner, server.and(client)));
        }
        for tenant in hosts.networks.iter().flat_map(|network| &network.tenants) {
            let [foreign, unread] = tenant
                .ns
                .run(|| [snmp("Ip", "InAddrErrors"), snmp("Udp", "RcvbufErrors")]);
            if foreign > 0 {
                carried
                    .foreign
                    .push(format!("{:?} got {foreign} packets of others", tenant.card));
            }
            carried.unread += unread;
        }
        carried
    }
}

/// How many numbers from one on did not arrive, and the longest time between those before and after them.
fn missing(numbers: &BTreeSet<u64>, times: &[Instant], since: u64) -> (usize, Duration) {
    let (mut lost, mut gap, mut last) = (0, Duration::ZERO, since);
    let at = |number: u64| times[usize::try_from(number).expect("few").min(times.len() - 1)];
    for number in numbers.range(since..).copied().chain([times.len() as u64]) {
        if number > last {
            lost += usize::try_from(number - last).expect("few");
            gap = gap.max(at(number) - at(last.saturating_sub(1).max(since)));
        }
        last = number + 1;
    }
    (lost, gap)
}

fn send(
    streams: &[(Arc<UdpSocket>, SocketAddr, [u8; HEAD])],
    (count, over): (&AtomicU64, &AtomicBool),
) -> Vec<Instant> {
    let mut times = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let number = times.len() as u64;
        times.push(Instant::now());
        for (socket, to, begins) in streams {
            // What its host refuses is lost as well.
            _ = socket.send_to(&[&begins[..], &number.to_be_bytes()].concat(), to);
        }
        count.store(number + 1, Ordering::Relaxed);
        std::thread::sleep(EVERY);
    }
    times
}

fn listen(socket: &UdpSocket, begins: [u8; HEAD], (next, silent): (&AtomicU64, &AtomicBool)) -> Heard {
    let (mut heard, mut packet) = (Heard::default(), [0; 64]);
    while !silent.load(Ordering::Relaxed) {
        let Ok((length, from)) = socket.recv_from(&mut packet) else {
            continue;
        };
        match packet[..length].strip_prefix(&begins).map(<[u8; 8]>::try_from) {
            Some(Ok(number)) => {
                let number = u64::from_be_bytes(number);
                heard.numbers.insert(number);
                next.fetch_max(number + 1, Ordering::Relaxed);
            }
            _ => heard.foreign.push(format!(
                "{:?} from {from} where {begins:?} is to come",
                &packet[..length]
            )),
        }
    }
    heard
}

/// A connection of a network, on which words are said and answered until it is over.
fn converse(network: &Network, over: &Arc<AtomicBool>) -> (&'static str, [JoinHandle<Talked>; 2]) {
    let [from, to] = &network.tenants;
    let [client, server] = connect(from, (to, to.address(Family::V4)), TCP);
    for end in [&client, &server] {
        end.set_read_timeout(Some(2 * PATIENCE)).expect("set");
    }
    let (over, vni) = (Arc::clone(over), u64::from(network.vni));
    let asks = std::thread::spawn(move || ask(&client, vni, &over).map_err(|error| format!("asked: {error}")));
    let answers = std::thread::spawn(move || answer(&server).map_err(|error| format!("answered: {error}")));
    (network.owner, [asks, answers])
}

fn ask(mut stream: &TcpStream, vni: u64, over: &AtomicBool) -> std::io::Result<Duration> {
    let mut longest = Duration::ZERO;
    for number in 0.. {
        let (asked, word, mut echo) = (Instant::now(), (vni << 32 | number).to_be_bytes(), [0; 8]);
        stream.write_all(&word)?;
        stream.read_exact(&mut echo)?;
        if echo != word {
            return Err(std::io::Error::other(format!("{echo:?} answers {word:?}")));
        }
        longest = longest.max(asked.elapsed());
        if over.load(Ordering::Relaxed) {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    stream.shutdown(Shutdown::Write)?;
    Ok(longest)
}

fn answer(mut stream: &TcpStream) -> std::io::Result<Duration> {
    let mut word = [0; 8];
    loop {
        match stream.read_exact(&mut word) {
            Ok(()) => stream.write_all(&word)?,
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(Duration::ZERO),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn numbers_that_did_not_arrive_are_counted_with_their_time() {
        let begin = Instant::now();
        let times: Vec<Instant> = (0..10).map(|number| begin + number * SECOND).collect();
        let without = |lost: &[u64]| missing(&(0..10).filter(|number| !lost.contains(number)).collect(), &times, 2);
        assert_eq!(without(&[]), (0, Duration::ZERO));
        assert_eq!(without(&[0, 1]), (0, Duration::ZERO), "before it counts");
        assert_eq!(without(&[5]), (1, 2 * SECOND));
        assert_eq!(without(&[2, 5, 6, 7]), (4, 4 * SECOND));
        assert_eq!(without(&[8, 9]), (2, 2 * SECOND), "none after them");
        assert_eq!(missing(&BTreeSet::new(), &times, 2), (8, 7 * SECOND));
    }

    #[test]
    fn what_must_not_be_is_found() {
        let passed = |owner, lost: usize, gap| Passed {
            owner,
            name: "one".to_owned(),
            sent: 100,
            lost,
            gap,
        };
        let well = Carried {
            streams: vec![passed("a", 0, Duration::ZERO), passed("b", 0, Duration::ZERO)],
            connections: vec![("a", Ok(SECOND))],
            ..Carried::default()
        };
        assert!(well.violations(Packets::All).is_empty());
        assert_eq!(
            well.violations(Packets::Of("a", SECOND)).len(),
            1,
            "nothing has happened"
        );
        let mut lost = well.clone();
        lost.streams[0] = passed("a", 3, SECOND);
        assert_eq!(lost.violations(Packets::All).len(), 1);
        lost.without_room = 2;
        assert_eq!(lost.violations(Packets::All).len(), 1, "one of three");
        lost.without_room = 3;
        assert!(lost.violations(Packets::All).is_empty(), "others' doing");
        lost.without_room = 0;
        assert!(lost.violations(Packets::Of("a", SECOND)).is_empty());
        assert_eq!(lost.violations(Packets::Of("a", SECOND / 2)).len(), 1, "for too long");
        assert_eq!(lost.violations(Packets::Of("b", SECOND)).len(), 2, "and nothing of b's");
        assert!(lost.violations(Packets::Any(SECOND)).is_empty());
        let mut dead = well.clone();
        dead.connections[0].1 = Err("reset".to_owned());
        assert_eq!(dead.violations(Packets::Any(SECOND)), ["a connection of a: reset"]);
        let mut foreign = well;
        foreign.foreign.push("43's".to_owned());
        assert_eq!(foreign.violations(Packets::Any(SECOND)), ["43's"]);
    }
}
