use clap::Parser as _;

use super::*;
use crate::args::{Cli, Command};

const CLASSES: [&str; 3] = ["5:100us:200us", "3:300us:100us", "1:600us:400us"];

fn args(qdisc: &str) -> TalkerArgs {
    let mut words = vec![
        "ringside",
        "talker",
        "x",
        "--to-mac",
        "02:00:00:00:00:01",
        "--qdisc",
        qdisc,
    ];
    words.extend(CLASSES.iter().flat_map(|class| ["--class", class]));
    match Cli::parse_from(words).command {
        Command::Talker(args) => *args,
        other => panic!("{other:?}"),
    }
}

fn planned(qdisc: &str, queues: u32) -> Result<QdiscSetup> {
    let args = args(qdisc);
    let schedule = Schedule::new(1_000_000, args.schedule.classes.clone()).unwrap();
    plan(&args, &schedule, queues)
}

#[test]
fn each_class_has_a_queue_and_others_have_theirs() {
    let setup = planned("mqprio", 4).unwrap();
    assert_eq!(setup.map, [0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 2, 0, 1, 0, 0]);
    assert_eq!(
        setup
            .queues
            .iter()
            .map(|range| (range.count, range.offset))
            .collect::<Vec<_>>(),
        [(1, 0), (1, 1), (1, 2), (1, 3)]
    );
    assert_eq!((setup.gates, setup.etf), (None, Vec::new()));
    let etf = planned("etf", 8).unwrap().etf;
    assert_eq!(
        etf.iter().map(|leaf| (leaf.queue, leaf.delta_ns)).collect::<Vec<_>>(),
        [(1, 200_000), (2, 200_000), (3, 200_000)]
    );
}

#[test]
fn with_fewer_queues_classes_share() {
    let two = planned("etf", 2).unwrap();
    assert_eq!(
        (two.map[13], two.map[11], two.map[9], two.queues.len(), two.etf.len()),
        (1, 1, 1, 2, 1)
    );
    let three = planned("mqprio", 3).unwrap();
    assert_eq!((three.map[13], three.map[11], three.map[9]), (1, 1, 2));
    let error = planned("taprio", 1).unwrap_err().to_string();
    assert!(error.contains("one TX queue"), "{error}");
}

#[test]
fn gates_are_open_in_the_windows_only() {
    let gates = planned("taprio", 4).unwrap().gates.unwrap();
    let entries: Vec<_> = gates.entries.iter().map(|gate| (gate.open, gate.interval_ns)).collect();
    assert_eq!(
        entries,
        [(1, 100_000), (2, 200_000), (4, 100_000), (1, 200_000), (8, 400_000)]
    );
    assert_eq!((gates.base_ns, gates.cycle_ns), (0, 1_000_000));
    let sum: u64 = gates.entries.iter().map(|gate| u64::from(gate.interval_ns)).sum();
    assert_eq!(sum, 1_000_000);
}
