//! The caches as their owner sees them.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use ringside_bpf::Error;
use ringside_bpf::gateway::{
    CachedNeighbor, GatewayConfig, GatewayPort, GatewayProgram, TableHand, NeighborKey, Outcome, Sizes, SlowCause,
};

use crate::bed::{Bed, SIZES, Wanted, in_namespace, key, neighbor};
use crate::common::privileged;
use crate::fixtures::udp;

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
    program
        .neighbors()
        .for_each(|key, value| {
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
            assert_eq!(found.insert(key, value), None, "once");
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
        bed.program
            .neighbors()
            .put(&[(key(4, false), neighbor(4, false))]);
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
            use std::os::fd::AsFd;
            assert!(
                bed.program.set_worker(0, 0, socket.as_fd()).is_err(),
                "no AF_XDP socket"
            );
        }
    });
}
