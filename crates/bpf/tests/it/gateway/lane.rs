//! The straight lane: what it decides is what the long way decides, and it is taken by plain packets only.

use std::os::fd::AsFd;

use ringside_bpf::gateway::{
    CachedNeighbor, GatewayConfig, GatewayProgram, Lease, Outcome, PolicySince, PolicySlot, Sampling,
};
use ringside_bpf::{Verdict, dry_run};
use ringside_gateway_core::DropReason;
use ringside_gateway_core::table::Encapsulation;
use ringside_gateway_core::testing::corpus::{VNI, corpus, fixtures, gateway, host, mac, tenant};
use ringside_gateway_core::testing::{Sent, tenant_udp};
use rustix::net::{AddressFamily, SocketType, socket};

use crate::common::privileged;
use crate::gateway::bed::{Bed, LOOPBACK, SIZES, Wanted, in_namespace, key, neighbor};
use crate::gateway::fixtures::udp;

/// Of which parts are changed: one that takes the lane, and one with a TCP segment, which is all headers.
fn plain() -> Vec<Vec<u8>> {
    let [udp, mut tcp] = [2, 2].map(|to| udp(to, &[7; 40]).bytes());
    tcp[73] = 6;
    vec![udp, tcp]
}

/// Each bit of the headers of these turned, each two bytes set to what is looked for elsewhere, and other checksums.
fn changed(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for frame in frames {
        let headers = frame.len().min(106);
        for at in 0..headers {
            all.extend((0..8).map(|bit| {
                let mut frame = frame.clone();
                frame[at] ^= 1 << bit;
                frame
            }));
            for two in [[0, 0], [0, 1], [0, 2], [0xff, 0xff], [0x08, 0x06], [0x45, 0xff]] {
                let mut frame = frame.clone();
                if let Some(place) = frame.get_mut(at..at + 2) {
                    place.copy_from_slice(&two);
                }
                all.push(frame);
            }
        }
        // Checksums, and among them that of the pseudo header alone, and its neighbours.
        let upper = if frame[73] == 6 { 100 } else { 90 };
        for (ip, at) in [(14, 40), (64, upper)] {
            let left = pseudo_header(&frame[ip..]);
            for check in (0..=u16::MAX).step_by(97).chain([left - 1, left, left + 1]) {
                let mut frame = frame.clone();
                frame[at..at + 2].copy_from_slice(&check.to_be_bytes());
                all.push(frame);
            }
        }
    }
    all
}

/// The sum of addresses, protocol and length: what a sender leaves in a checksum that a NIC is to complete.
pub(super) fn pseudo_header(ip: &[u8]) -> u16 {
    let word = |at: usize| u32::from(u16::from_be_bytes([ip[at], ip[at + 1]]));
    let addresses: u32 = (12..20).step_by(2).map(word).sum();
    let sum = addresses + u32::from(ip[9]) + word(2) - 20;
    u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap()
}

/// Runs them all with and without samples, for which there is only the long way. How many were of each outcome, and their bytes.
fn compare(bed: &mut Bed, frames: &[Vec<u8>]) -> Vec<(Outcome, u64, u64)> {
    let counts = |bed: &Bed| -> Vec<_> {
        let count = |outcome| bed.program.count(outcome).unwrap();
        Outcome::all().map(|outcome| (outcome, count(outcome))).collect()
    };
    let run = |bed: &Bed| {
        let before = counts(bed);
        let ran: Vec<_> = frames
            .iter()
            .map(|frame| dry_run(&bed.program, frame).unwrap())
            .collect();
        let more = before.iter().zip(counts(bed)).map(|((outcome, before), (_, after))| {
            let bytes = after.bytes - before.bytes;
            (*outcome, after.packets - before.packets, bytes)
        });
        (ran, more.collect::<Vec<_>>())
    };
    // Of a network that no frame is of: the ring does not get full.
    let other = Sampling {
        vni: Some(VNI + 1),
        ..Sampling::default()
    };
    bed.configure(|config| config.sampling = Some(other));
    let (long, long_counts) = run(bed);
    bed.configure(|config| config.sampling = None);
    let (straight, counts) = run(bed);
    for ((frame, long), straight) in frames.iter().zip(long).zip(straight) {
        assert_eq!(straight, long, "{frame:02x?}");
    }
    assert_eq!(counts, long_counts);
    counts
}

#[test]
fn it_decides_as_the_long_way() {
    if !privileged() {
        return;
    }
    in_namespace(|second| {
        let mut bed = Bed::new(second, Wanted::default());
        let frames: Vec<_> = corpus(7).into_iter().map(|(_, frame)| frame).collect();
        compare(&mut bed, &frames);
        let counts = compare(&mut bed, &changed(&plain()));
        let of = |wanted| {
            counts
                .iter()
                .find(|(outcome, ..)| *outcome == wanted)
                .map(|(_, count, _)| *count)
        };
        assert!(of(Outcome::Forwarded).unwrap() > 2000, "{counts:?}");
        let checksums = of(Outcome::Slow(ringside_bpf::gateway::SlowCause::Checksum));
        assert!(checksums.is_some_and(|count| count >= 4), "{counts:?}");
        // Receivers and ports that it is not for.
        for edit in [
            |config: &mut GatewayConfig| config.ports[0].as_mut().unwrap().v4 = None,
            |config: &mut GatewayConfig| config.ports[0].as_mut().unwrap().mtu = 100,
            |config: &mut GatewayConfig| config.ports.swap(0, 1),
            |config: &mut GatewayConfig| config.addresses.retain(|ip| ip.is_ipv6()),
            |config: &mut GatewayConfig| config.vxlan_port = 4790,
        ] {
            let before = bed.config.clone();
            bed.configure(edit);
            let few: Vec<_> = fixtures().into_iter().map(|(_, frame)| frame).chain(plain()).collect();
            compare(&mut bed, &few);
            bed.configure(|config| *config = before);
        }
    });
}

/// Outer checksums are kept up, too, and those of who is routed.
#[test]
fn it_rewrites_as_the_long_way() {
    if !privileged() {
        return;
    }
    in_namespace(|second| {
        let mut bed = Bed::new(second, Wanted::default());
        let mut frames = Vec::new();
        for (to, ttl, check) in (0..2000u16).map(|number| (number % 7, number % 5, number.wrapping_mul(40503))) {
            let mut frame = udp(2, &[7; 40]).bytes();
            frame[50 + usize::from(to)] ^= 0x10;
            frame[72] = u8::try_from(ttl).unwrap();
            frame[40..42].copy_from_slice(&check.to_be_bytes());
            frame[24..26].copy_from_slice(&check.rotate_left(3).to_be_bytes());
            frame[74..76].copy_from_slice(&check.rotate_left(7).to_be_bytes());
            frames.push(frame);
        }
        compare(&mut bed, &frames);
    });
}

fn until(until: u64) -> Lease {
    Lease { until, longest: until }
}

/// What is known of tenant 2, which is reached by the second port.
fn receiver() -> CachedNeighbor {
    CachedNeighbor {
        port: 1,
        ..neighbor(2, false)
    }
}

/// A gateway whose packets come by a port that has no worker, while another port has: the long way sends nothing on without
/// one, the lane only asks whether the owner lives.
fn witnessed(second: u32, test: impl Fn(&GatewayProgram, &GatewayConfig)) {
    let bed = Bed::new(second, Wanted::default());
    let program = GatewayProgram::load(SIZES).unwrap();
    program.neighbors().put(&[(key(2, false), receiver())]);
    let mut config = bed.config.clone();
    config.sampling = None;
    config.ports.swap(0, 1);
    config.ports[1].as_mut().unwrap().ifindex = LOOPBACK;
    program.configure(&config).unwrap();
    program.lease(until(0)).unwrap();
    test(&program, &config);
}

#[test]
fn plain_packets_take_it() {
    if !privileged() {
        return;
    }
    in_namespace(|second| {
        witnessed(second, |program, config| {
            let verdict = |frame: &[u8]| dry_run(program, frame).unwrap().0;
            let frame = udp(2, &[7; 40]).bytes();
            let mut tcp = frame.clone();
            tcp[73] = 6;
            assert_eq!(verdict(&frame), Verdict::Drop, "nobody lives");
            let worker = socket(AddressFamily::XDP, SocketType::RAW, None).unwrap();
            program.set_worker(0, 0, worker.as_fd()).unwrap();
            for frame in [&frame, &tcp] {
                assert_eq!(verdict(frame), Verdict::Tx, "{frame:02x?}");
            }
            let ips = [tenant(1, false), tenant(2, false)];
            let inner = tenant_udp([mac(1), mac(2)], ips, [1000, 53], 64, &[7; 40]);
            let geneve = Sent::new([host(1, false), gateway(false)], Encapsulation::Geneve, VNI, inner);
            assert_eq!(verdict(&geneve.bytes()), Verdict::Drop, "the long way");

            // What it does not know of closes it.
            let edits: [fn(&mut GatewayConfig); 5] = [
                |config| config.marking = true,
                |config| config.stale = true,
                |config| config.source_check = true,
                |config| config.derive_source_port = true,
                |config| config.sampling = Some(Sampling::default()),
            ];
            for edit in edits {
                let mut other = config.clone();
                edit(&mut other);
                program.configure(&other).unwrap();
                assert_eq!(verdict(&frame), Verdict::Drop, "{other:?}");
            }
            program.configure(config).unwrap();
            assert_eq!(verdict(&frame), Verdict::Tx);

            // Rules elsewhere do not, those of its own network do.
            let since = |vni| {
                program
                    .policies()
                    .put(&[(PolicySlot::of(vni), PolicySince::first(1))])
                    .unwrap()
            };
            since(VNI + 1);
            assert_eq!(verdict(&frame), Verdict::Tx);
            let guard = |guarded| {
                let value = CachedNeighbor { guarded, ..receiver() };
                program.neighbors().put(&[(key(2, false), value)]);
            };
            guard(true);
            assert_eq!(verdict(&frame), Verdict::Drop, "the long way");
            guard(false);
            assert_eq!(verdict(&frame), Verdict::Tx);

            // Without a witness it is as without a lane: no worker, no lease.
            drop(worker);
            let gone = || verdict(&frame) == Verdict::Drop;
            let begin = std::time::Instant::now();
            while !gone() {
                assert!(
                    begin.elapsed().as_secs() < 5,
                    "the kernel takes sockets out that are closed"
                );
            }
            let reason = Outcome::Dropped(DropReason::NoWorker.number());
            assert!(program.count(reason).unwrap().packets >= 8);
            program.lease(until(u64::MAX)).unwrap();
            assert_eq!(verdict(&frame), Verdict::Tx, "a lease is enough");
            program.lease(until(0)).unwrap();
            // The first port is gone: the one that is there has the witness.
            let mut other = config.clone();
            other.ports[0] = None;
            program.configure(&other).unwrap();
            let worker = socket(AddressFamily::XDP, SocketType::RAW, None).unwrap();
            program.set_worker(1, 0, worker.as_fd()).unwrap();
            assert_eq!(verdict(&frame), Verdict::Tx);
        });
    });
}
