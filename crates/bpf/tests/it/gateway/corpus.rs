//! The same frames through both parsers: what the program decides by itself is what gateway-core decides, to the byte; what
//! it leaves to a worker it may leave.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use ringside_bpf::Verdict;
use ringside_bpf::gateway::{Outcome, SlowCause, Tunnel};
use ringside_gateway_core::decide::Decision;
use ringside_gateway_core::table::Encapsulation;
use ringside_gateway_core::testing::pcapng::pcapng;
use ringside_gateway_core::testing::{corpus, hostile};
use ringside_gateway_core::{Class, Content, DropReason, Packet};
use ringside_wire::udp::{ChecksumState, checksum_state};
use ringside_wire::{Protocol, flow, ipv4, ipv6, vlan};

use crate::common::privileged;
use crate::gateway::bed::{Bed, Ran, Wanted, in_namespace};
use crate::gateway::captures::frames;
use crate::gateway::rules::is_judged;

#[test]
fn both_parsers_say_the_same() {
    if !privileged() {
        return;
    }
    let corpus = written_and_read(&corpus::corpus(corpus::SEED));
    in_namespace(|second| {
        for v6 in [false, true] {
            for (source_check, derive_source_port, limited) in
                [(false, false, false), (true, false, true), (false, true, false)]
            {
                let wanted = Wanted {
                    v6,
                    source_check,
                    derive_source_port,
                    limited,
                    ..Wanted::default()
                };
                let seen = compare(Bed::new(second, wanted), &corpus);
                has_met_everything(&seen, wanted);
            }
        }
    });
}

/// As the example `corpus` writes them, for tcpdump and Wireshark: both parsers are tried with what the file has.
fn written_and_read(named: &[(String, Vec<u8>)]) -> Vec<(String, Vec<u8>)> {
    let read = frames(&pcapng(named)).into_iter();
    let read: Vec<_> = read.map(|(name, frame)| (name.expect("a comment"), frame)).collect();
    assert!(read == named, "{} of {} frames, or others", read.len(), named.len());
    read
}

/// What fuzzers have kept, and variations of it: single frames as they are, and those that the target of decisions makes.
#[test]
fn both_parsers_say_the_same_of_what_was_kept() {
    const ROUNDS: u64 = 4000;
    if !privileged() {
        return;
    }
    let rounds = std::env::var("RINGSIDE_FUZZ_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let (plain, made) = (kept("classify"), kept("decide"));
    let mut frames: Vec<(String, Vec<u8>)> = Vec::new();
    frames.extend(plain.iter().map(|frame| ("kept".to_owned(), frame.clone())));
    frames.extend((0..rounds).map(|seed| (format!("variation {seed}"), hostile::variation(seed, &plain))));
    for seed in 0..rounds / 8 {
        let made = hostile::frames(&hostile::variation(seed, &made));
        frames.extend(
            made.into_iter()
                .map(|frame| (format!("made of variation {seed}"), frame)),
        );
    }
    // The kernel runs no program on less than an Ethernet header.
    frames.retain(|(_, frame)| (14..9200).contains(&frame.len()));
    in_namespace(|second| {
        for (v6, source_check, derive_source_port) in [(false, false, false), (true, true, true)] {
            let wanted = Wanted {
                v6,
                source_check,
                derive_source_port,
                ..Wanted::default()
            };
            let seen = compare(Bed::new(second, wanted), &frames);
            println!("{} frames: {seen:?}", frames.len());
            for outcome in [Outcome::Passed, Outcome::Forwarded, Outcome::Answered] {
                assert!(seen.contains_key(&outcome), "{wanted:?}: no frame is {outcome:?}");
            }
        }
    });
}

fn kept(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../xsk/fuzz/corpus")
        .join(target);
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    // The same order everywhere, so that a failure comes again.
    paths.sort();
    paths.into_iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Runs them all, and says what they were.
pub(crate) fn compare(mut bed: Bed, frames: &[(String, Vec<u8>)]) -> HashMap<Outcome, u64> {
    let underlay = bed.underlay();
    let mut seen: HashMap<Outcome, u64> = HashMap::new();
    let mut wrong = Vec::new();
    for (name, frame) in frames {
        let ran = bed.run(frame);
        let class = Packet::classify(frame, &underlay);
        let (decision, decided) = bed.decide(frame);
        *seen.entry(ran.outcome).or_default() += 1;
        if let Err(why) = judge(&bed, frame, class, &ran, decision, &decided) {
            wrong.push(format!(
                "{name}: {why}\n  {frame:02x?}\n  {class:?}\n  {decision:?} {:?}",
                ran.outcome
            ));
        }
        bed.follow(decision);
    }
    let few: Vec<&String> = wrong.iter().take(12).collect();
    let (count, config) = (frames.len(), &bed.config);
    assert!(
        wrong.is_empty(),
        "{config:?}: {} of {count} frames differ: {few:#?}",
        wrong.len()
    );

    // Each is counted once, as what it was.
    for outcome in Outcome::all() {
        let counted = bed.program.count(outcome).unwrap().packets;
        assert_eq!(counted, seen.get(&outcome).copied().unwrap_or(0), "{outcome:?}");
    }
    assert_eq!(bed.program.samples_lost().unwrap(), 0);
    seen
}

/// A corpus that misses a branch would let it be wrong.
fn has_met_everything(seen: &HashMap<Outcome, u64>, wanted: Wanted) {
    let parsed = 1..=DropReason::DiscoveryNotAsked.number();
    let reasons = parsed.filter(|&reason| reason != DropReason::OuterTtl.number());
    let mut all: Vec<Outcome> = reasons.map(Outcome::Dropped).collect();
    all.extend([Outcome::Passed, Outcome::Answered]);
    let slow = [
        SlowCause::Miss,
        SlowCause::Question,
        SlowCause::Encapsulation,
        SlowCause::TooLong,
        SlowCause::Ttl,
        SlowCause::Checksum,
        SlowCause::Headers,
    ];
    all.extend(slow.map(Outcome::Slow));
    all.extend([Outcome::Forwarded, Outcome::Redirected]);
    if wanted.source_check {
        all.push(Outcome::Slow(SlowCause::Sender));
    }
    for outcome in all {
        assert!(seen.contains_key(&outcome), "{wanted:?}: no frame is {outcome:?}");
    }
}

fn judge(
    bed: &Bed,
    frame: &[u8],
    class: Class,
    ran: &Ran,
    decision: Decision,
    decided: &[u8],
) -> Result<(), &'static str> {
    let verdict = match ran.outcome {
        Outcome::Passed => Verdict::Pass,
        Outcome::Dropped(_) => Verdict::Drop,
        Outcome::Forwarded | Outcome::Answered => Verdict::Tx,
        Outcome::Redirected | Outcome::Slow(_) => Verdict::Redirect,
    };
    check(ran.verdict == verdict, "the verdict is not that of the outcome")?;
    let is_edited = matches!(
        ran.outcome,
        Outcome::Forwarded | Outcome::Redirected | Outcome::Answered
    );
    check(is_edited || ran.bytes == frame, "edited, though it is not sent")?;
    match (ran.outcome, class) {
        (Outcome::Passed, _) => check(class == Class::NotOurs, "to the kernel")?,
        (_, Class::NotOurs) => check(false, "not to the kernel")?,
        (Outcome::Dropped(number), Class::Drop(reason)) => check(number == reason.number(), "another reason")?,
        (Outcome::Dropped(number), Class::Tenant(_)) => {
            // The look-up's: who asks has the address.
            let reason = match decision {
                Decision::Drop(reason @ (DropReason::ArpNotAsked | DropReason::DiscoveryNotAsked)) => reason,
                _ => return Err("dropped, and should not be"),
            };
            check(number == reason.number(), "another reason")?;
        }
        (Outcome::Slow(SlowCause::Question), Class::Drop(reason)) => {
            check(
                reason == DropReason::DiscoveryMalformed && !is_usual_solicitation(frame),
                "not dropped",
            )?;
        }
        (_, Class::Drop(_)) => check(false, "not dropped")?,
        (Outcome::Forwarded | Outcome::Redirected, Class::Tenant(packet)) => {
            let port = u8::from(ran.outcome == Outcome::Redirected);
            let is_sent = matches!(decision, Decision::Send { port: to, .. } if to == port);
            check(is_sent, "sent, and should not be")?;
            check(ran.bytes == decided, "other bytes sent on")?;
            check(
                !bed.is_for_rules(frame, &packet),
                "sent on, though rules have to be asked",
            )?;
        }
        (Outcome::Answered, Class::Tenant(_)) => {
            check(decision == Decision::Answer, "answered, and should not be")?;
            check(ran.bytes == decided, "another answer")?;
        }
        (Outcome::Slow(cause), Class::Tenant(packet)) => {
            check(
                may_be_left(bed, cause, frame, &packet, decision),
                "left to a worker without need",
            )?;
        }
    }
    Ok(())
}

fn check(is_right: bool, why: &'static str) -> Result<(), &'static str> {
    is_right.then_some(()).ok_or(why)
}

/// Is that why?
fn may_be_left(bed: &Bed, cause: SlowCause, frame: &[u8], packet: &Packet, decision: Decision) -> bool {
    use DropReason::{InnerTtl, NoNeighbor, OuterTtl, TooBig, WrongSource};
    let refused = match decision {
        Decision::Drop(reason) | Decision::Complain(reason) => Some(reason),
        _ => None,
    };
    match cause {
        // Before anything else is looked at.
        SlowCause::Sender | SlowCause::TooLong | SlowCause::Ttl
            if bed.has_rules() && refused.is_some_and(is_judged) =>
        {
            true
        }
        SlowCause::Policed => bed.is_for_rules(frame, packet),
        SlowCause::Miss => refused == Some(NoNeighbor),
        SlowCause::Sender => refused == Some(WrongSource),
        // A short one is sent on whatever the way takes: by a worker, which knows how short.
        SlowCause::TooLong => {
            refused == Some(TooBig) || bed.wanted.limited && matches!(refused, None | Some(OuterTtl | InnerTtl))
        }
        SlowCause::Ttl => matches!(refused, Some(OuterTtl | InnerTtl)),
        SlowCause::Encapsulation => is_another_way(bed, packet),
        SlowCause::Checksum => is_partial(frame, packet),
        SlowCause::Headers => has_other_headers(frame, packet),
        SlowCause::Question => {
            let headers = if packet.from.is_ipv4() { 50 } else { 70 };
            let odd = usize::from(packet.inner) != headers
                || frame.len() != usize::from(packet.end)
                || (packet.content_is_v6() && !is_usual_solicitation(frame));
            packet.asks() && odd
        }
        _ => false,
    }
}

trait Asks {
    fn asks(&self) -> bool;
    fn content_is_v6(&self) -> bool;
}

impl Asks for Packet {
    fn asks(&self) -> bool {
        matches!(self.content, Content::WhoHas { .. })
    }

    fn content_is_v6(&self) -> bool {
        match self.content {
            Content::Ip { dst, .. } => dst.is_ipv6(),
            Content::WhoHas { target, .. } => target.is_ipv6(),
        }
    }
}

/// Its host speaks something else.
fn is_another_way(bed: &Bed, packet: &Packet) -> bool {
    let Content::Ip { dst, .. } = packet.content else {
        return false;
    };
    let came = match packet.encapsulation {
        Encapsulation::Vxlan => Tunnel::Vxlan,
        Encapsulation::Geneve => Tunnel::Geneve,
    };
    let (v6, tunnel) = bed.ways[&dst];
    v6 != packet.from.is_ipv6() || tunnel.is_some_and(|tunnel| tunnel != came)
}

fn is_partial(frame: &[u8], packet: &Packet) -> bool {
    let end = usize::from(packet.end);
    let mut inner = frame[usize::from(packet.inner)..end].to_vec();
    let outer = checksum_state(&frame[usize::from(packet.udp)..end], packet.from, packet.to);
    outer == ChecksumState::PseudoHeaderOnly || flow::complete_checksum(&mut inner) == Ok(true)
}

/// Extension headers, or TCP and UDP that are cut short.
fn has_other_headers(frame: &[u8], packet: &Packet) -> bool {
    let bytes = &frame[usize::from(packet.network)..usize::from(packet.end)];
    let (protocol, upper) = if packet.content_is_v6() {
        let ip = ipv6::Packet::parse(bytes).unwrap();
        (ip.next_header(), ip.payload())
    } else {
        let ip = ipv4::Packet::parse(bytes).unwrap();
        (ip.protocol(), ip.payload())
    };
    match protocol {
        Protocol::TCP => upper.len() < 20,
        Protocol::UDP => upper.len() < 8,
        protocol => packet.content_is_v6() && [0, 43, 44, 60].contains(&protocol.0),
    }
}

/// One with 32 bytes, to the end of the frame. The inner frame is what has solicitations, wherever it begins.
fn is_usual_solicitation(frame: &[u8]) -> bool {
    (14..frame.len()).any(|at| {
        let Ok(network) = vlan::Network::parse(&frame[at..]) else {
            return false;
        };
        let bytes = frame.get(at + network.offset..).unwrap_or_default();
        let Ok(ip) = ipv6::Packet::parse(bytes) else {
            return false;
        };
        ip.next_header() == Protocol::ICMPV6
            && ip.payload().first() == Some(&135)
            && ip.payload().len() == 32
            && !ip.src().is_unspecified()
            && ip.total_len() == bytes.len()
    })
}
