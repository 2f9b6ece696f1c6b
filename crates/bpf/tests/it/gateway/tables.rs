//! The caches as their owner sees them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringside_bpf::gateway::{
    CachedConnection, CachedNeighbor, GatewayConfig, GatewayPort, GatewayProgram, NeighborKey, Outcome, Sizes,
    SlowCause, TableHand,
};
use ringside_bpf::{Error, Verdict, dry_run};

use ringside_gateway_core::table::Encapsulation;
use ringside_gateway_core::testing::corpus::{VNI, gateway, host, mac as mac_of, tenant};
use ringside_gateway_core::testing::{Sent, tenant_udp};
use ringside_wire::{MacAddr, Protocol};
use rustix::net::{AddressFamily, SocketType, socket};

use crate::common::privileged;
use crate::gateway::bed::{Bed, SIZES, Wanted, in_namespace, key, neighbor};
use crate::gateway::connections::{alive, connection};
use crate::gateway::fixtures::udp;

fn many(count: u32) -> Vec<(NeighborKey, CachedNeighbor)> {
    let ip = |number: u32| Ipv4Addr::from(0x0a00_0000 + number).into();
    let entry = |number| {
        let key = NeighborKey {
            vni: number % 7,
            ip: ip(number),
        };
        let [.., a, b] = number.to_be_bytes();
        let value = CachedNeighbor {
            mac: [2, 0, 0, 0, a, b],
            ..neighbor(2, false)
        };
        (key, value)
    };
    (0..count).map(entry).collect()
}

fn of(program: &GatewayProgram) -> HashMap<NeighborKey, CachedNeighbor> {
    let mut found = HashMap::new();
    let mut count = 0;
    program.neighbors().for_each(|key, value| {
        found.insert(key, value);
        count += 1;
    });
    assert_eq!(count, found.len(), "each once");
    found
}

/// More than one batch, in each direction.
#[test]
fn what_is_put_is_there_until_it_is_removed() {
    if !privileged() {
        return;
    }
    let sizes = Sizes {
        neighbors: 10_000,
        ..SIZES
    };
    let program = GatewayProgram::load(sizes).unwrap();
    assert_eq!(program.sizes(), sizes);
    let entries = many(5000);
    assert_eq!(program.neighbors().put(&entries), 5000);
    assert_eq!(of(&program), entries.iter().copied().collect());
    // Some of them twice, and some that are not there.
    let mut keys: Vec<_> = many(6000)[2000..].iter().map(|(key, _)| *key).collect();
    keys.push(keys[0]);
    program.neighbors().remove(&keys);
    assert_eq!(of(&program), entries[..2000].iter().copied().collect());
    // In place of what is there.
    let moved: Vec<_> = entries
        .iter()
        .map(|(key, value)| (*key, CachedNeighbor { port: 1, ..*value }))
        .collect();
    assert_eq!(program.neighbors().put(&moved[..3000]), 3000);
    assert_eq!(of(&program), moved[..3000].iter().copied().collect());
}

#[test]
fn what_is_read_in_parts_is_all_there_is() {
    if !privileged() {
        return;
    }
    let sizes = Sizes {
        neighbors: 10_000,
        ..SIZES
    };
    let program = GatewayProgram::load(sizes).unwrap();
    let entries = many(5000);
    assert_eq!(program.neighbors().put(&entries), 5000);
    let mut hand = TableHand::default();
    let mut found = HashMap::new();
    while found.len() < entries.len() {
        let mut part = Vec::new();
        program.neighbors().read_on(&mut hand, 500, |key, value| {
            // What went and came back may have another place.
            found.insert(key, value);
            part.push((key, value));
        });
        assert!(part.len() < 2000, "a part");
        assert!(found.len() == entries.len() || !hand.is_new(), "on its way");
        // What was read goes and comes back, as it does when others need its room.
        let keys: Vec<_> = part.iter().map(|(key, _)| *key).collect();
        program.neighbors().remove(&keys);
        assert_eq!(program.neighbors().put(&part), part.len());
    }
    assert_eq!(found, entries.iter().copied().collect());
    assert!(TableHand::default().is_new());
    // The end is seen at once or the next time, and behind it everything comes again.
    let mut again = 0;
    for _ in 0..2 {
        program.neighbors().read_on(&mut hand, 500, |_, _| again += 1);
    }
    assert!(again >= 500);
}

/// The owner reads on while a larger table takes the place of the one that it was in the midst of.
#[test]
fn a_hand_of_another_table_begins_with_the_first_entry() {
    if !privileged() {
        return;
    }
    let sizes = Sizes {
        neighbors: 1000,
        ..SIZES
    };
    let program = GatewayProgram::load(sizes).unwrap();
    let entries = many(100);
    assert_eq!(program.neighbors().put(&entries), entries.len());
    let larger = program.with_room(2000).unwrap();
    assert_eq!(larger.neighbors().put(&entries), entries.len());
    assert!(entries.iter().all(|(key, _)| larger.neighbors().contains(key)));
    let mut hand = TableHand::default();
    program.neighbors().read_on(&mut hand, 60, |_, _| ());
    let mut found = HashMap::new();
    larger
        .neighbors()
        .read_on(&mut hand, usize::MAX, |key, value| _ = found.insert(key, value));
    assert_eq!(found, entries.into_iter().collect());
    assert!(hand.is_new());
}

#[test]
fn a_full_cache_refuses_and_forgets_nothing() {
    if !privileged() {
        return;
    }
    let sizes = Sizes {
        neighbors: 1500,
        ..SIZES
    };
    let program = GatewayProgram::load(sizes).unwrap();
    let entries = many(3000);
    assert_eq!(program.neighbors().put(&entries[..1000]), 1000);
    let put = program.neighbors().put(&entries);
    let there = of(&program);
    assert_eq!(there.len(), 1500);
    assert_eq!(put, 1500);
    assert!(entries[..1000].iter().all(|(key, _)| there.contains_key(key)));
}

/// Those behind that are there already are replaced.
#[test]
fn a_full_cache_of_connections_names_what_it_refuses() {
    if !privileged() {
        return;
    }
    let sizes = Sizes {
        connections: 1500,
        ..SIZES
    };
    let program = GatewayProgram::load(sizes).unwrap();
    let named = |number: u16, name| {
        let key = connection(false, Protocol::TCP, [1 + number, 53]);
        (key, CachedConnection { name, ..alive() })
    };
    let before: Vec<_> = (2000..2100).map(|number| named(number, 1)).collect();
    assert_eq!(program.connections().put_once(&before).unwrap(), [0; 0]);
    let entries: Vec<_> = (0..3000).map(|number| named(number, 2)).collect();
    let refused = program.connections().put_once(&entries).unwrap();
    let expected: Vec<_> = (1400..2000).chain(2100..3000).collect();
    assert_eq!(refused, expected);
    let mut there = 0;
    let count = |_, value: CachedConnection| there += usize::from(value.name == 2);
    program.connections().for_each(count).unwrap();
    assert_eq!(there, 1500);
}

/// Full to the last place, as a hash alone would not be.
#[test]
fn a_table_takes_as_many_as_it_has_room_for() {
    if !privileged() {
        return;
    }
    let sizes = Sizes {
        neighbors: 50_000,
        ..SIZES
    };
    let program = GatewayProgram::load(sizes).unwrap();
    let entries = many(50_001);
    assert_eq!(program.neighbors().put(&entries[..50_000]), 50_000);
    assert_eq!(program.neighbors().len(), 50_000);
    assert_eq!(
        program.neighbors().put(&entries),
        50_000,
        "the others are there already"
    );
    program.neighbors().remove(&[entries[0].0]);
    assert_eq!(program.neighbors().put(&entries[50_000..]), 1, "in its place");
    assert_eq!(of(&program).len(), 50_000);
}

/// What is moved to make room for others meanwhile is not left out.
#[test]
fn nothing_that_stays_is_left_out_while_others_come_and_go() {
    if !privileged() {
        return;
    }
    let sizes = Sizes {
        neighbors: 4000,
        ..SIZES
    };
    let program = GatewayProgram::load(sizes).unwrap();
    let entries = many(40_000);
    let (stay, others) = entries.split_at(2000);
    let mut passing = others.chunks(50);
    assert_eq!(program.neighbors().put(stay), stay.len());
    let mut there: std::collections::VecDeque<_> = passing.by_ref().take(40).collect();
    for part in &there {
        assert_eq!(program.neighbors().put(part), part.len());
    }
    let (mut hand, mut found, mut rounds) = (TableHand::default(), HashMap::new(), 0);
    for next in passing {
        program
            .neighbors()
            .read_on(&mut hand, 100, |key, value| _ = found.insert(key, value));
        if hand.is_new() {
            assert!(stay.iter().all(|(key, value)| found.get(key) == Some(value)));
            found.clear();
            rounds += 1;
        }
        let gone: Vec<_> = there.pop_front().unwrap().iter().map(|(key, _)| *key).collect();
        program.neighbors().remove(&gone);
        assert_eq!(program.neighbors().put(next), next.len());
        there.push_back(next);
    }
    assert!(rounds > 10, "{rounds}");
}

/// A bed whose program knows these and shows nothing.
fn quiet(second: u32, entries: &[(NeighborKey, CachedNeighbor)]) -> (Bed, GatewayProgram, OwnedFd) {
    let bed = Bed::new(second, Wanted::default());
    let sizes = Sizes {
        neighbors: u32::try_from(entries.len()).unwrap(),
        ..SIZES
    };
    let program = GatewayProgram::load(sizes).unwrap();
    program
        .configure(&GatewayConfig {
            sampling: None,
            ..bed.config.clone()
        })
        .unwrap();
    let worker = socket(AddressFamily::XDP, SocketType::RAW, None).unwrap();
    program.set_worker(0, 0, worker.as_fd()).unwrap();
    assert_eq!(program.neighbors().put(entries), entries.len());
    (bed, program, worker)
}

/// A packet of 40 bytes, by the lane or (a TTL with room to go down, but fragmented) by the long way.
fn to(vni: u32, ip: IpAddr, mac: [u8; 6], plain: bool) -> Vec<u8> {
    let sender = if ip.is_ipv4() {
        tenant(1, false)
    } else {
        tenant(1, true)
    };
    let mut frame = tenant_udp([mac_of(1), MacAddr(mac)], [sender, ip], [1000, 53], 64, &[7; 40]);
    if !plain && ip.is_ipv4() {
        // More fragments: its checksum follows.
        frame[20] |= 0x20;
        let check = u16::from_be_bytes([frame[24], frame[25]]).wrapping_sub(0x2000);
        frame[24..26].copy_from_slice(&check.to_be_bytes());
    }
    Sent::new([host(1, false), gateway(false)], Encapsulation::Vxlan, vni, frame).bytes()
}

/// The program's hash is the owner's: each is found, wherever its place is, by the lane and by the long way.
#[test]
fn packets_find_every_entry() {
    if !privileged() {
        return;
    }
    in_namespace(|second| {
        let mut entries = many(3000);
        for (key, _) in entries.iter_mut().skip(1000).step_by(2) {
            if let IpAddr::V4(v4) = key.ip {
                key.ip = IpAddr::V6(v4.to_ipv6_compatible());
            }
        }
        let (_bed, program, _worker) = quiet(second, &entries);
        for (number, (key, value)) in entries.iter().enumerate() {
            let frame = to(key.vni, key.ip, value.mac, number % 4 != 0);
            let (verdict, bytes) = dry_run(&program, &frame).unwrap();
            assert_eq!(verdict, Verdict::Tx, "{key:?}");
            assert_eq!(bytes[..6], value.host_mac, "{key:?}");
        }
        assert_eq!(program.count(Outcome::Forwarded).unwrap().packets, 3000);
        for (key, value) in &many(4000)[3000..] {
            let frame = to(key.vni, key.ip, value.mac, true);
            assert_ne!(dry_run(&program, &frame).unwrap().0, Verdict::Tx, "{key:?}");
        }
        assert_eq!(program.count(Outcome::Slow(SlowCause::Miss)).unwrap().packets, 1000);
    });
}

/// Sets the flag when dropped, also while a failed test unwinds.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// An entry that is changed while packets look at it is the one or the other, or a miss, and never a part of each.
#[test]
fn no_packet_sees_half_a_change() {
    if !privileged() {
        return;
    }
    in_namespace(|second| {
        let key = key(2, false);
        let one = neighbor(2, false);
        let other = CachedNeighbor {
            host: host(5, false),
            host_mac: [0xaa; 6],
            mac: [0xa2, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb],
            ..one
        };
        let (_bed, program, _worker) = quiet(second, &[(key, one)]);
        let begin = Instant::now();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _at_end = AtEnd(&over);
            let (program, writer, over) = (&program, &program, &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    for value in [one, other].repeat(200) {
                        writer.neighbors().put(&[(key, value)]);
                    }
                    writer.neighbors().remove(&[key]);
                }
            });
            let frames = [true, false].map(|plain| to(VNI, key.ip, [2, 9, 9, 9, 9, 9], plain));
            let mut seen = [0; 3];
            // At least 600 ms. On a busy machine, longer: until each value was seen.
            while begin.elapsed() < Duration::from_millis(600)
                || seen.contains(&0) && begin.elapsed() < Duration::from_secs(20)
            {
                for frame in &frames {
                    let (verdict, bytes) = dry_run(program, frame).unwrap();
                    let is = |value: &CachedNeighbor| {
                        let IpAddr::V4(host) = value.host else { return false };
                        bytes[..6] == value.host_mac && bytes[30..34] == host.octets() && bytes[50..56] == value.mac
                    };
                    let which = if verdict != Verdict::Tx {
                        2
                    } else if is(&one) {
                        0
                    } else {
                        assert!(is(&other), "{:02x?}", &bytes[..56]);
                        1
                    };
                    seen[which] += 1;
                }
            }
            assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
        });
    });
}

#[test]
fn hits_leave_a_mark() {
    if !privileged() {
        return;
    }
    in_namespace(|second| {
        let bed = Bed::new(second, Wanted::default());
        let used = |bed: &Bed| {
            let mut used = Vec::new();
            bed.program.neighbors().for_each(|key, value| {
                if value.used {
                    used.push(key);
                }
            });
            used
        };
        assert_eq!(used(&bed), []);
        bed.run(&udp(4, b"").bytes());
        assert_eq!(used(&bed), [key(4, false)]);
        bed.program.neighbors().put(&[(key(4, false), neighbor(4, false))]);
        assert_eq!(used(&bed), [], "it is the owner's to clear");
    });
}

#[test]
fn nonsense_is_refused() {
    if !privileged() {
        return;
    }
    for sizes in [
        Sizes { neighbors: 0, ..SIZES },
        Sizes {
            connections: 0,
            ..SIZES
        },
        Sizes { queues: 0, ..SIZES },
        Sizes {
            queues: u32::MAX,
            ..SIZES
        },
    ] {
        assert!(
            matches!(GatewayProgram::load(sizes), Err(Error::Invalid { .. })),
            "{sizes:?}"
        );
    }
    in_namespace(|second| {
        let bed = Bed::new(second, Wanted::default());
        let port = bed.config.ports[0].unwrap();
        let nowhere = GatewayPort { ifindex: 4711, ..port };
        for config in [
            GatewayConfig {
                ports: vec![Some(port); 17],
                ..bed.config.clone()
            },
            GatewayConfig {
                ports: vec![Some(nowhere)],
                ..bed.config.clone()
            },
            GatewayConfig {
                known_options: vec![(1, 1); 17],
                ..bed.config.clone()
            },
        ] {
            assert!(bed.program.configure(&config).is_err(), "{config:?}");
        }
        // Nothing that packets meet has changed.
        assert_eq!(bed.run(&udp(2, b"").bytes()).outcome, Outcome::Forwarded);
        assert_eq!(bed.run(&udp(99, b"").bytes()).outcome, Outcome::Slow(SlowCause::Miss));
        let socket = std::net::UdpSocket::bind("127.0.0.1:0");
        assert!(
            bed.program.set_worker(16, 0, bed.program.program()).is_err(),
            "no such port"
        );
        assert!(
            bed.program.set_worker(0, 2, bed.program.program()).is_err(),
            "no such queue"
        );
        if let Ok(socket) = socket {
            assert!(
                bed.program.set_worker(0, 0, socket.as_fd()).is_err(),
                "no AF_XDP socket"
            );
        }
    });
}

/// It has settings, connections and counters of the first one, and neighbours of its own.
#[test]
fn program_with_more_room_takes_the_place_of_the_first() {
    if !privileged() {
        return;
    }
    in_namespace(|second| {
        let mut bed = Bed::new(second, Wanted::default());
        let frame = udp(2, b"data").bytes();
        assert_eq!(bed.run(&frame).outcome, Outcome::Forwarded);
        let forwarded = |bed: &Bed| bed.program.count(Outcome::Forwarded).unwrap().packets;
        let before = forwarded(&bed);
        let grown = bed.program.with_room(5000).unwrap();
        assert_eq!(
            grown.sizes(),
            Sizes {
                neighbors: 5000,
                ..bed.program.sizes()
            }
        );
        grown.replace([]).unwrap();
        grown.publish_table(None).unwrap();
        bed.program = grown;
        assert_eq!(bed.run(&frame).outcome, Outcome::Slow(SlowCause::Miss));
        let mut entries = many(4000);
        entries.extend([1, 2].map(|last| (key(last, false), neighbor(last, false))));
        assert_eq!(bed.program.neighbors().put(&entries), 4002);
        assert_eq!(bed.run(&frame).outcome, Outcome::Forwarded);
        assert_eq!(forwarded(&bed), before + 1, "it counts on");
    });
}
