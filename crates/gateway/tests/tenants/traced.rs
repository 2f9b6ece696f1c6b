//! What `trace` shows of packets that wait for their host: also how that ends.

use std::io::BufReader;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ringside_netlab::wait_until;
use serde_json::Value;

use crate::bed::{Bed, Family, Kind, Place, Tenant};
use crate::common::daemon::binary;
use crate::on;
use crate::process::PATIENCE;
use crate::ringside::Ringside;

on! {
    fast = crate::FAST => a_wait_in_vain_is_shown, what_has_waited_is_shown_as_sent;
    two_ports = crate::TWO_PORTS => what_has_waited_is_shown_as_sent;
}

/// `trace --json` of network 42, as it comes.
struct Trace {
    child: Child,
    shown: Receiver<Value>,
}

impl Trace {
    /// Waits until packets of the first tenant are shown.
    fn start(bed: &mut Bed) -> Self {
        let mut command = binary();
        let socket = bed.ringside().daemon().folder.join("api.sock");
        command.arg("ctl").arg("--socket").arg(socket);
        command.args(["trace", "--vni", "42", "--json"]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
        let out = child.stdout.take().expect("piped");
        let (tell, shown) = channel();
        std::thread::spawn(move || lines(out).try_for_each(|line| tell.send(line)));
        let trace = Self { child, shown };
        // Nobody has it, and this needs no host.
        let (from, nobody) = (bed.at(1), Ipv4Addr::new(10, 0, 0, 99).into());
        from.device().add_neighbour(nobody, [2; 6]).expect("a neighbour");
        let shows = || {
            let own = send(from, nobody, 1);
            let begin = Instant::now();
            let mut shown = std::iter::from_fn(|| trace.next(own, begin, Duration::from_millis(200)));
            shown.any(|decision| decision == "dropped: no-neighbor")
        };
        assert!(wait_until(PATIENCE, shows), "nothing is shown");
        trace
    }

    /// What a worker has decided about the next datagram of a source port.
    fn next(&self, from: u16, begin: Instant, patience: Duration) -> Option<String> {
        loop {
            let shown = self.shown.recv_timeout(patience.saturating_sub(begin.elapsed())).ok()?;
            let said = |name: &str| shown[name].as_str().expect("text").to_owned();
            if said("stage") == "slow" && said("packet").contains(&format!(":{from} ")) {
                return Some(said("decision"));
            }
        }
    }

    /// All decisions about those of a source port, until it is enough.
    fn until(&self, from: u16, enough: impl Fn(&[String]) -> bool) -> Vec<String> {
        let (begin, mut decisions) = (Instant::now(), Vec::new());
        while !enough(&decisions) {
            match self.next(from, begin, PATIENCE) {
                Some(decision) => decisions.push(decision),
                None => panic!("no more than {decisions:#?}"),
            }
        }
        decisions
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn lines(out: ChildStdout) -> impl Iterator<Item = Value> {
    serde_json::Deserializer::from_reader(BufReader::new(out))
        .into_iter()
        .map_while(Result::ok)
}

/// Datagrams to an address, from a port of their own, which comes back.
fn send(from: &Tenant, to: IpAddr, count: usize) -> u16 {
    let socket = from.ns.run(|| UdpSocket::bind((from.card.v4, 0))).expect("UDP socket");
    for _ in 0..count {
        socket.send_to(b"are you there?", (to, 9)).expect("sent");
    }
    socket.local_addr().expect("an address").port()
}

const WAITS: &str = "waits for the MAC address of its host";

/// Nobody answers for the host. What there is no room for is not kept at all.
fn a_wait_in_vain_is_shown(kind: Kind) {
    const PACKETS: usize = 20;
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let kind = Kind::Ringside(Ringside { patience: 700, ..how });
    let mut bed = Bed::new("vain", kind, &[Place::vxlan(Family::V4); 2]);
    let mut card = bed.at(2).card;
    card.host = "10.77.0.99".parse().expect("an address");
    bed.ringside().learn(&[card]);
    let to = card.v4.into();
    let device = bed.at(1).device();
    device.add_neighbour(to, card.mac).expect("a neighbour");
    let trace = Trace::start(&mut bed);
    let own = send(bed.at(1), to, PACKETS);
    let count = |decisions: &[String], what: &str| decisions.iter().filter(|decision| *decision == what).count();
    let decisions = trace.until(own, |decisions| {
        let [waited, full, late] =
            [WAITS, "dropped: host-queue-full", "dropped: host-unresolved"].map(|what| count(decisions, what));
        waited + full == PACKETS && late == waited
    });
    // Every one of them is told of in full, and nothing else is.
    assert_eq!(decisions.len(), PACKETS + count(&decisions, WAITS), "{decisions:#?}");
    assert!(count(&decisions, WAITS) >= 16, "{decisions:#?}");
}

/// A host that says nothing about itself at first.
fn what_has_waited_is_shown_as_sent(kind: Kind) {
    let bed = Bed::without_gateway("waited", kind, &[Place::vxlan(Family::V4); 2]);
    bed.hosts[1].set_silent(true);
    let cards: Vec<_> = bed.tenants().map(|tenant| tenant.card).collect();
    let mut bed = bed.with(kind, &cards);
    let card = bed.at(2).card;
    let device = bed.at(1).device();
    device.add_neighbour(card.v4.into(), card.mac).expect("a neighbour");
    let trace = Trace::start(&mut bed);
    let own = send(bed.at(1), card.v4.into(), 1);
    trace.until(own, |decisions| decisions == [WAITS]);
    bed.hosts[1].set_silent(false);
    let decisions = trace.until(own, |decisions| !decisions.is_empty());
    assert!(
        decisions[0].starts_with(&format!("sent on to {}", card.host)),
        "{decisions:?}"
    );
}
