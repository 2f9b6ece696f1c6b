//! What `trace` shows: of packets that are asked for and of no others, from both paths; of packets that wait for their host also how
//! that ends.

use std::fs::File;
use std::io::BufReader;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};

use pcap_file::pcapng::{Block, PcapNgReader, blocks::enhanced_packet::EnhancedPacketOption};
use ringside_netlab::wait_until;
use serde_json::Value;

use crate::bed::{Bed, FAMILIES, Family, Kind, Place, Tenant};
use crate::common::daemon::binary;
use crate::process::PATIENCE;
use crate::ringside::Ringside;
use crate::tenants::on;

on! {
    fast = crate::tenants::FAST => a_wait_in_vain_is_shown, what_has_waited_is_shown_as_sent, an_address_is_shown_and_no_other,
        a_file_has_what_is_shown, drops_alone_are_shown;
    two_ports = crate::tenants::TWO_PORTS => what_has_waited_is_shown_as_sent;
    workers = crate::tenants::WORKERS => no_fast_path_is_announced_where_there_is_none;
}

/// `trace --json` of network 42, as it comes.
struct Trace {
    child: Child,
    shown: Receiver<Value>,
}

impl Trace {
    /// Waits until packets of the first tenant are shown.
    fn start(bed: &mut Bed) -> Self {
        let trace = Self::of(bed, &["--vni", "42"]);
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

    /// What is asked for. From now on it is shown.
    fn of(bed: &mut Bed, words: &[&str]) -> Self {
        let mut child = begin(bed, &[words, &["--json"]].concat());
        let out = child.stdout.take().expect("piped");
        let (tell, shown) = channel();
        std::thread::spawn(move || lines(out).try_for_each(|line| tell.send(line)));
        Self { child, shown }
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

/// Starts the command. It is refused until the gateway has noticed that nobody listens any more to the one before.
fn begin(bed: &mut Bed, words: &[&str]) -> Child {
    let daemon = bed.ringside().daemon();
    let traced = || daemon.log().matches("packets are traced").count();
    let (before, begin) = (traced(), Instant::now());
    while begin.elapsed() < PATIENCE {
        let mut command = binary();
        command.arg("ctl").arg("--socket").arg(daemon.folder.join("api.sock"));
        command.arg("trace").args(words).stdout(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        let mut is_over = false;
        let is_decided = || {
            is_over = child.try_wait().expect("a child").is_some();
            is_over || traced() > before
        };
        assert!(wait_until(PATIENCE, is_decided), "no answer");
        if !is_over || traced() > before {
            return child;
        }
    }
    panic!("refused: {words:?}");
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
    let own = if to.is_ipv4() {
        from.address(Family::V4)
    } else {
        from.address(Family::V6)
    };
    let socket = from.ns.run(|| UdpSocket::bind((own, 0))).expect("UDP socket");
    for _ in 0..count {
        socket.send_to(b"are you there?", (to, 9)).expect("sent");
    }
    socket.local_addr().expect("an address").port()
}

const WAITS: &str = "waits for the MAC address of its host";

/// Nobody answers for the host. Sixteen packets may wait for it, and what there is no room for is not kept at all.
fn a_wait_in_vain_is_shown(kind: Kind) {
    const PACKETS: usize = 20;
    const ROOM: usize = 16;
    const REASONS: [&str; 2] = ["host-queue-full", "host-unresolved"];
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    // Longer than it takes to send them, so that the first still waits when the last comes.
    let kind = Kind::Ringside(Ringside { patience: 3000, ..how });
    let mut bed = Bed::new("vain", kind, &[Place::vxlan(Family::V4); 2]);
    let mut card = bed.at(2).card;
    card.host = "10.77.0.99".parse().expect("an address");
    bed.ringside().learn(&[card]);
    let to = card.v4.into();
    let device = bed.at(1).device();
    device.add_neighbour(to, card.mac).expect("a neighbour");
    let trace = Trace::start(&mut bed);
    let counted = |bed: &mut Bed| REASONS.map(|reason| bed.ringside().dropped_by("slow", reason));
    let before = counted(&mut bed);
    let own = send(bed.at(1), to, PACKETS);
    let count = |decisions: &[String], what: &str| decisions.iter().filter(|one| one.starts_with(what)).count();
    let decisions = trace.until(own, |decisions| {
        let [waited, full, late] = [
            WAITS,
            "dropped: host-queue-full",
            "dropped: host-unresolved; host 10.77.0.99",
        ]
        .map(|what| count(decisions, what));
        waited + full == PACKETS && late == waited
    });
    // Every one of them is told of in full, and nothing else is.
    assert_eq!(decisions.len(), PACKETS + count(&decisions, WAITS), "{decisions:#?}");
    assert_eq!(count(&decisions, WAITS), ROOM, "{decisions:#?}");
    // Statistics say the same.
    let [full, late] = [PACKETS - ROOM, ROOM].map(|packets| packets as u64);
    bed.ringside().wait_until(|gateway| {
        let now = REASONS.map(|reason| gateway.dropped_by("slow", reason));
        [now[0] - before[0], now[1] - before[1]] == [full, late]
    });
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

fn no_fast_path_is_announced_where_there_is_none(kind: Kind) {
    let mut bed = Bed::new("nofast", kind, &[Place::vxlan(Family::V4); 2]);
    let trace = Trace::start(&mut bed);
    let card = bed.at(2).card;
    let own = send(bed.at(1), card.v4.into(), 1);
    // It may have waited.
    let is_sent = |decisions: &[String]| decisions.last().is_some_and(|last| last.starts_with("sent on"));
    let decisions = trace.until(own, is_sent);
    assert_eq!(decisions.last(), Some(&format!("sent on to {}", card.host)));
}

/// Both networks have the same addresses. What others send comes first, so that it would be shown by then.
fn an_address_is_shown_and_no_other(kind: Kind) {
    let mut bed = Bed::new("shown", kind, &[Place::vxlan(Family::V4); 3]);
    for family in FAMILIES {
        let address = bed.at(2).address(family);
        let trace = Trace::of(&mut bed, &["--vni", "42", "--ip", &address.to_string()]);
        let [first, second, third] = [1, 2, 3].map(|number| bed.at(number));
        // From the address, to it, in both cases by the fast path in the end; and a question about it.
        let (mut from, mut to) = (false, false);
        let (other, begin) = (&bed.tenants[0][1], Instant::now());
        while !(from && to) {
            assert!(begin.elapsed() < PATIENCE, "from the address: {from}, to it: {to}");
            send(first, third.address(family), 1);
            send(other, address, 1);
            send(second, third.address(family), 1);
            send(first, address, 1);
            while let Ok(shown) = trace.shown.recv_timeout(Duration::from_millis(100)) {
                let packet = shown["packet"].as_str().expect("text");
                assert_eq!(shown["vni"], 42, "{shown}");
                let (before, after) = packet.split_once(" → ").unwrap_or((packet, ""));
                // Words end where addresses do: a port comes behind them, or nothing.
                let is = |text: &str| {
                    let words = text.split(' ').map(|word| match word.strip_prefix('[') {
                        Some(rest) => rest.split(']').next().unwrap_or(rest).to_owned(),
                        None if family == Family::V4 => word.split(':').next().unwrap_or(word).to_owned(),
                        None => word.to_owned(),
                    });
                    words.into_iter().any(|word| word == address.to_string())
                };
                // Discovery is shown by whom it is from and to; what is asked for is behind that.
                assert!(
                    is(before) || is(after) || packet.starts_with("ICMPv6 type 13"),
                    "{shown}"
                );
                let is_fast = shown["stage"] == "fast" && shown["decision"] == "sent on";
                if packet.starts_with("UDP") && is_fast {
                    from |= is(before);
                    to |= is(after);
                }
            }
        }
    }
}

/// Packets of both stages, as programs of others read them.
fn a_file_has_what_is_shown(kind: Kind) {
    const PACKETS: usize = 12;
    let mut bed = Bed::new("file", kind, &[Place::vxlan(Family::V4); 2]);
    let (address, nobody) = (bed.at(2).card.v4, Ipv4Addr::new(10, 0, 0, 99));
    (bed.at(1).device().add_neighbour(nobody.into(), [2; 6])).expect("a neighbour");
    // Somebody listens, so that nothing but these datagrams goes.
    let _listener = (bed.at(2).ns.run(|| UdpSocket::bind((address, 9)))).expect("UDP socket");
    let to_both = |bed: &Bed| [address, nobody].map(|to| send(bed.at(1), to.into(), 1));
    let goes_fast = || {
        let before = bed.ringside().forwarded("fast");
        to_both(&bed);
        bed.ringside().forwarded("fast") > before
    };
    assert!(wait_until(PATIENCE, goes_fast), "only by workers");
    let file = bed.ringside().daemon().folder.join("packets.pcapng");
    let (asks, count) = (bed.at(1).card.v4.to_string(), PACKETS.to_string());
    let name = file.to_str().expect("UTF-8");
    let words = ["--vni", "42", "--ip", &asks, "--count", &count, "--pcapng", name];
    let mut child = begin(&mut bed, &words);
    let ends = || {
        let dropped = bed.ringside().dropped_by("slow", "no-neighbor");
        to_both(&bed);
        // The worker is done with this turn before the next one.
        bed.ringside()
            .wait_until(|gateway| gateway.dropped_by("slow", "no-neighbor") > dropped);
        child.try_wait().expect("a child").is_some()
    };
    assert!(wait_until(PATIENCE, ends), "it does not end");
    assert!(child.wait().expect("a child").success());
    let comments = comments(&file);
    assert_eq!(comments.len(), PACKETS, "{comments:#?}");
    let seen = read_by_tcpdump(&file);
    assert_eq!(seen.len(), PACKETS, "{seen:#?}");
    for (comment, seen) in comments.iter().zip(&seen) {
        assert!(seen.contains("VXLAN") && seen.contains("vni 42"), "{seen}");
        let decisions: &[&str] = if seen.contains(&format!("> {address}.9: UDP, length 14")) {
            &["fast, vni 42, queue 0: sent on"]
        } else if seen.contains(&format!("> {nobody}.9: UDP, length 14")) {
            &[
                "fast, vni 42, queue 0: handed to a worker: miss",
                "slow, vni 42, queue 0: dropped: no-neighbor",
            ]
        } else {
            // The kernel asks whether its neighbours are still there.
            assert!(seen.contains("ARP"), "{seen}");
            continue;
        };
        assert!(decisions.contains(&comment.as_str()), "{comment}: {seen}");
    }
    for what in ["sent on", "handed to a worker: miss", "dropped: no-neighbor"] {
        assert!(comments.iter().any(|comment| comment.ends_with(what)), "{comments:#?}");
    }
}

/// What is sent on is not shown, and each path shows what it drops: damaged packets the fast one, what no rule allows workers.
fn drops_alone_are_shown(kind: Kind) {
    const REASONS: [[&str; 2]; 2] = [["fast", "dropped: vxlan-flags"], ["slow", "dropped: ingress-denied"]];
    let mut bed = Bed::new("drops", kind, &[Place::vxlan(Family::V4); 2]);
    let [from, to] = [1, 2].map(|number| bed.at(number).card.v4);
    let rule = "{id: 1, direction: ingress, protocol: udp, ports: 9}";
    let ports = format!("ports:\n  - {{vni: 42, ip: {to}, groups: [1]}}\n");
    (bed.ringside()).apply(&format!("groups:\n  - {{id: 1, rules: [{rule}]}}\n{ports}"));
    let ways = [("10.77.0.1", 0), ("10.77.0.254", 4789)];
    let sends = (bed.hosts[0].wire.a.ns).run(|| UdpSocket::bind(ways[0]).expect("UDP socket"));
    let denied = bed.at(1).ns.run(|| UdpSocket::bind((from, 0))).expect("UDP socket");
    let own = format!(":{} ", denied.local_addr().expect("an address").port());
    // What is allowed; what no rule is for; and what has no network.
    let all_kinds = |bed: &Bed| {
        send(bed.at(1), to.into(), 1);
        denied.send_to(b"may I?", (to, 10)).expect("sent");
        sends.send_to(&[0; 60], ways[1]).expect("sent");
    };
    for (words, expected) in [
        (&["--drops"][..], &REASONS[..]),
        (&["--drops", "vxlan-flags"], &REASONS[..1]),
        (&["--drops", "ingress-denied", "--vni", "42"], &REASONS[1..]),
    ] {
        let trace = Trace::of(&mut bed, words);
        let (begin, mut seen) = (Instant::now(), Vec::new());
        let forwarded = bed.ringside().sent_on();
        // All of it several times, so that what must not be shown would have been.
        while !expected
            .iter()
            .all(|one| seen.iter().filter(|other| *other == one).count() >= 3)
        {
            assert!(begin.elapsed() < PATIENCE, "{words:?}: no more than {seen:?}");
            all_kinds(&bed);
            while let Ok(shown) = trace.shown.recv_timeout(Duration::from_millis(100)) {
                let of = |name: &str| shown[name].as_str().expect("text").to_owned();
                let one = [of("stage"), of("decision")];
                // The kernels of hosts and tenants have things to say that are nobody's.
                let known = REASONS.into_iter().find(|known| *known == one);
                assert!(one[1].starts_with("dropped: "), "{words:?}: {shown}");
                assert!(
                    words.len() == 1 || known.is_some_and(|known| expected.contains(&known)),
                    "{words:?}: {shown}"
                );
                if one[1] == REASONS[1][1] {
                    assert!(of("packet").contains(&own), "{shown}");
                }
                seen.extend(known);
            }
        }
        bed.ringside().wait_until(|gateway| gateway.sent_on() >= forwarded + 3);
    }
    let said = bed.ringside().daemon().rejects(&["trace", "--drops", "nothing"]);
    assert!(said.contains("\"nothing\" is none of outer-fragment, "), "{said}");
}

/// Each packet's comment.
fn comments(file: &Path) -> Vec<String> {
    let mut reader = PcapNgReader::new(File::open(file).expect("a file")).expect("pcapng");
    let mut comments = Vec::new();
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(packet) = block.expect("a block") else {
            continue;
        };
        let since = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
        assert!(
            since.abs_diff(packet.timestamp) < 2 * PATIENCE,
            "{:?}",
            packet.timestamp
        );
        let said = packet.options.iter().find_map(|option| match option {
            EnhancedPacketOption::Comment(comment) => Some(comment.to_string()),
            _ => None,
        });
        comments.push(said.expect("a comment"));
    }
    comments
}

/// What tcpdump says of each packet, in one line: the tenant's packet is on a line of its own.
fn read_by_tcpdump(file: &Path) -> Vec<String> {
    let mut command = Command::new("tcpdump");
    let output = command.args(["-nn", "-t", "-r"]).arg(file).output().expect("tcpdump");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).expect("text");
    let mut packets: Vec<String> = Vec::new();
    for line in said.lines() {
        match packets.last_mut() {
            Some(last) if !line.contains("VXLAN") => *last = format!("{last} {line}"),
            _ => packets.push(line.to_owned()),
        }
    }
    packets
}
