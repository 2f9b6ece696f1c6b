//! A daemon that is killed again and again, while tenants send and neighbours are loaded: what was acknowledged stays, what is open
//! goes on, what is denied never goes, and nobody gets what is another's.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringside_netlab::testing::{Off, bound, expect, measured};
use tokio::runtime::Runtime;

use crate::bed::{Bed, Family, Kind, Place, Tenant, Tunnel};
use crate::common::bulk::{Bulk, kills, list};
use crate::common::connect as api;
use crate::peers::{AtEnd, answered, chat, connect, exchange_during, snmp, uninterrupted};
use crate::ringside::Ringside;
use crate::tenants::fleet::tell;
use crate::tenants::on;
use crate::tenants::streams::lost_by_kernel;
use crate::vtep::Received;

on! {
    fast = crate::tenants::FAST => kill_9_under_load;
}

const RULES: &str = "\
groups:
  - {id: 1, rules: [{id: 1, direction: ingress, protocol: tcp, ports: 7000-7999}, {id: 2, direction: ingress, protocol: udp, ports: 9000}]}
  - {id: 2, rules: [{id: 1, direction: egress}]}
ports:
  - {vni: 42, ip: 10.0.0.1, groups: [2]}
  - {vni: 42, ip: 10.0.0.2, groups: [1]}
  - {vni: 42, ip: 10.0.0.3, groups: [1]}
";
/// Of tenants of network 42 at the third host, the one that rules allow and the one that they deny. In network 43 there are none.
const ALLOWED: u16 = 9000;
const DENIED: u16 = 9001;

/// Three times; see [`kills`].
fn kill_9_under_load(kind: Kind) {
    measured(|| kill_under_load(kind));
}

fn kill_under_load(kind: Kind) -> Result<(), Off> {
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let kind = Kind::Ringside(Ringside {
        pinned: true,
        // With room for what is loaded.
        cache: Some(1 << 16),
        ..how
    });
    let places = [
        Place::vxlan(Family::V4),
        Place::vxlan(Family::V4),
        // It knows what came.
        Place::new(Family::V4, Tunnel::UserVxlan),
    ];
    let mut bed = Bed::new("kills", kind, &places);
    bed.ringside().apply(RULES);
    let flows: Vec<Flow> = [(0, ALLOWED), (0, DENIED), (1, ALLOWED), (1, DENIED)]
        .into_iter()
        .map(|(network, port)| Flow::new(&bed.tenants[0][network], &bed.tenants[2][network], port))
        .collect();
    // The kernel drops packets that wait long for a MAC address. In network 42 the connection below
    // resolves it.
    answered(&bed.tenants[0][1], bed.tenants[2][1].address(Family::V4));
    let to = bed.at(2).address(Family::V4);
    let busy = connect(bed.at(1), (bed.at(2), to), 7000);
    let over = AtomicBool::new(false);
    let (mut without, before) = (Vec::new(), lost_by_kernel(&bed));
    let talks: Vec<Talk> = std::thread::scope(|scope| {
        let at_end = AtEnd(&over);
        let threads: Vec<_> = flows.iter().map(|flow| scope.spawn(|| flow.run(&over))).collect();
        exchange_during(&busy, || kill(&mut bed, &mut without));
        drop(at_end);
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    let without_room = lost_by_kernel(&bed) - before;
    let kills = u64::try_from(without.len()).expect("few");
    let mut few = Ok(());
    for (flow, talk) in flows.iter().zip(&talks) {
        let Talk {
            sent,
            answered,
            longest,
            ..
        } = talk;
        eprintln!(
            "{}: {answered} of {sent} answered, {} lost; without an answer for {longest:?} at the longest",
            flow.word,
            sent - answered
        );
        let is_denied = flow.word == word(42, DENIED);
        assert_eq!(*answered == 0, is_denied, "{talk:?}");
        // What a worker was just looking at is lost with it, at most one of a flow, which waits for answers.
        assert!(
            is_denied || sent - answered <= without_room + kills,
            "{}: {talk:?}, {without_room} by the kernel's queues, of this test's bulk and of others",
            flow.word
        );
        few = few.and(expect(
            is_denied || sent - answered <= sent / 1000 + kills,
            format_args!("{}: more than 0.1 % is lost: {talk:?}", flow.word),
        ));
    }
    without.sort_unstable();
    tell(&format!(
        "kill_9_under_load: {} kills: until a new connection goes {} ms usually, {} ms at the longest\n",
        without.len(),
        without[without.len() / 2].as_millis(),
        without[without.len() - 1].as_millis()
    ));
    // What came to the wrong one its kernel says.
    for tenant in bed.tenants() {
        assert_eq!(tenant.ns.run(|| snmp("Ip", "InAddrErrors")), 0, "{:?}", tenant.card);
    }
    bed.ringside()
        .wait_until(|gateway| gateway.dropped("ingress-denied") > 0);
    few
}

fn kill(bed: &mut Bed, without: &mut Vec<Duration>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime: Runtime = runtime.expect("a runtime");
    let to = bed.at(2).address(Family::V4);
    let mut total = 0;
    for version in 1..=kills(3) {
        let socket = bed.ringside().daemon().folder.join("api.sock");
        let bulk = runtime.block_on(async { Bulk::begin(api(&socket).await, version).await });
        let folder = bed.ringside().end(false);
        let killed = Instant::now();
        let acknowledged = runtime.block_on(bulk.end());
        bed.ringside().start_in(folder);
        // There is who decides about new ones again.
        let port = 7001 + u16::try_from(version % 900).expect("few");
        let new = connect(bed.at(1), (bed.at(2), to), port);
        without.push(killed.elapsed());
        chat(&new).expect("goes");
        let there = runtime.block_on(async { list(api(&socket).await).await });
        total = acknowledged.check(&there, total);
        bed.ringside().daemon().ok(&["health"]);
        for received in bed.hosts[2].vtep().take_received() {
            check(&received);
        }
    }
}

/// What came to the third host is one of its tenants', and not what is denied.
fn check(received: &Received) {
    let Received { vni, frame, .. } = received;
    assert_eq!(frame[..6], [2, 0, 0, 0, vni.to_le_bytes()[0], 3], "{received:?}");
    // IPv4 without options, UDP.
    let port = frame
        .get(36..38)
        .filter(|_| received.ethertype() == 0x0800 && frame[23] == 17);
    assert!(*vni == 43 || port != Some(&DENIED.to_be_bytes()), "{received:?}");
}

fn word(network: u32, port: u16) -> String {
    format!("network {network} port {port}")
}

/// Datagrams from a tenant to another, which sends each of them back.
pub(crate) struct Flow {
    word: String,
    asks: UdpSocket,
    echoes: UdpSocket,
}

#[derive(Debug)]
pub(crate) struct Talk {
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    /// Without an answer.
    pub(crate) longest: Duration,
    /// Those that were never answered, by number.
    pub(crate) lost: BTreeSet<u64>,
}

impl Talk {
    fn hears(&mut self, said: &[u8]) {
        self.answered += 1;
        let number = std::str::from_utf8(said)
            .ok()
            .and_then(|said| said.rsplit(' ').next()?.parse().ok());
        self.lost.remove(&number.expect("a number"));
    }
}

impl Flow {
    pub(crate) fn new(from: &Tenant, to: &Tenant, port: u16) -> Self {
        let address = SocketAddr::from((to.address(Family::V4), port));
        let asks = from.ns.run(|| UdpSocket::bind("0.0.0.0:0")).expect("UDP socket");
        asks.connect(address).expect("connects");
        let echoes = to.ns.run(|| bound(|| UdpSocket::bind(address)));
        asks.set_read_timeout(Some(Duration::from_millis(4))).expect("time-out");
        echoes
            .set_read_timeout(Some(Duration::from_millis(50)))
            .expect("time-out");
        Self {
            word: word(to.card.vni, port),
            asks,
            echoes,
        }
    }

    /// About a thousand a second, until it is over and the last answers are there.
    pub(crate) fn run(&self, over: &AtomicBool) -> Talk {
        let is_answered = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let at_end = AtEnd(&is_answered);
            scope.spawn(|| self.echo(&is_answered));
            let talk = self.talk(over);
            drop(at_end);
            talk
        })
    }

    fn echo(&self, over: &AtomicBool) {
        let mut said = [0; 64];
        while !over.load(Ordering::Relaxed) {
            if let Ok((length, from)) = self.echoes.recv_from(&mut said) {
                assert!(
                    said[..length].starts_with(self.word.as_bytes()),
                    "it is another's: {said:?}"
                );
                _ = self.echoes.send_to(&said[..length], from);
            }
        }
    }

    fn talk(&self, over: &AtomicBool) -> Talk {
        let mut talk = Talk {
            sent: 0,
            answered: 0,
            longest: Duration::ZERO,
            lost: BTreeSet::new(),
        };
        let (mut last, mut heard) = (Instant::now(), [0; 64]);
        while !over.load(Ordering::Relaxed) {
            let said = format!("{} number {}", self.word, talk.sent);
            if self.asks.send(said.as_bytes()).is_ok() {
                talk.lost.insert(talk.sent);
                talk.sent += 1;
            }
            // What comes answers this one, or one before.
            while let Ok(length) = self.asks.recv(&mut heard) {
                assert!(
                    heard[..length].starts_with(self.word.as_bytes()),
                    "it is another's: {heard:?}"
                );
                talk.hears(&heard[..length]);
                talk.longest = talk.longest.max(last.elapsed());
                last = Instant::now();
                if heard[..length] == *said.as_bytes() {
                    break;
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // The very last ones have time on a busy machine, too.
        let patience = Some(Duration::from_secs(2));
        self.asks.set_read_timeout(patience).expect("time-out");
        while let false = talk.lost.is_empty()
            && let Ok(length) = uninterrupted(|| self.asks.recv(&mut heard))
        {
            talk.hears(&heard[..length]);
        }
        talk
    }
}
