//! Queueing disciplines are installed as a whole or not at all. What the kernel here does not have, guests show
//! (`crates/cli/tests/it/guest.rs`).

use crate::common;
use crate::common::Bed;
use ringside_netlab::testing;
use ringside_nic::{Error, Etf, Gate, Gates, Interface, QdiscSetup, QueueRange};

fn setups() -> [QdiscSetup; 3] {
    let mut map = [0; 16];
    map[13] = 1;
    let mqprio = QdiscSetup {
        map,
        queues: [0, 1].map(|offset| QueueRange { count: 1, offset }).to_vec(),
        gates: None,
        etf: Vec::new(),
    };
    let taprio = QdiscSetup {
        gates: Some(Gates {
            base_ns: 0,
            cycle_ns: 1_000_000,
            entries: [(2, 300_000), (1, 700_000)]
                .map(|(open, interval_ns)| Gate { open, interval_ns })
                .to_vec(),
        }),
        ..mqprio.clone()
    };
    let etf = QdiscSetup {
        etf: vec![Etf {
            queue: 1,
            delta_ns: 200_000,
            offload: false,
        }],
        ..mqprio.clone()
    };
    [mqprio, taprio, etf]
}

fn root(interface: &Interface) -> Vec<(String, String)> {
    let all = interface.qdiscs().unwrap();
    all.into_iter().map(|one| (one.kind, one.parent)).collect()
}

/// Either the kernel has it, and then it is as it was asked for, or its answer is told; afterwards all is as before.
#[test]
fn all_or_nothing() {
    if !testing::is_root() {
        return;
    }
    let bed = Bed::new("qdisc");
    let before = bed.run(root);
    for setup in setups() {
        match bed.run(|interface| bed.changes.set_qdiscs(interface, &setup)) {
            Ok((obtained, undo)) => {
                assert_eq!(obtained, setup);
                let taken = bed
                    .run(|interface| bed.changes.set_qdiscs(interface, &setup).map(drop))
                    .unwrap_err();
                assert!(matches!(taken, Error::QdiscTaken { .. }), "{taken}");
                assert_eq!(undo.changes()[0].what, "root queueing discipline");
                common::assert_restored(&undo.restore());
            }
            Err(error) => {
                let text = error.to_string();
                assert_eq!(error.errno(), Some(libc::ENOENT), "{text}");
                assert!(
                    text.contains("install the queueing discipline") && text.contains("veth-a"),
                    "{text}"
                );
            }
        }
        assert_eq!(bed.run(root), before);
        assert!(bed.files().is_empty(), "nothing is left to be written down");
    }
}

#[test]
fn what_somebody_has_put_there_stays() {
    if !testing::is_root() {
        return;
    }
    let bed = Bed::new("qdisctaken");
    // The one that every kernel has.
    let mut tc = bed.end().ns.command("tc");
    tc.args("qdisc add dev veth-a root handle 7: pfifo limit 10".split(' '));
    assert!(tc.status().unwrap().success());
    let before = bed.run(root);
    assert_eq!(before, [("pfifo".to_owned(), "root".to_owned())]);
    for setup in setups() {
        let error = bed
            .run(|interface| bed.changes.set_qdiscs(interface, &setup).map(drop))
            .unwrap_err();
        assert!(error.to_string().contains("its root is pfifo 7:"), "{error}");
    }
    assert_eq!(bed.run(root), before);
    assert!(
        bed.run(|interface| interface.qdisc_setup()).is_err(),
        "not one of these"
    );
}

#[test]
fn a_veth_says_how_fast_it_is() {
    if !testing::is_root() {
        return;
    }
    let bed = Bed::new("qdiscspeed");
    assert_eq!(
        bed.run(|interface| interface.speed_bps().unwrap()),
        Some(10_000_000_000)
    );
}
