//! The table of reasons in docs/gateway.md is that of the code.

use std::collections::BTreeSet;

use ringside_gateway_core::DropReason;

const DOCS: &str = include_str!("../../../../../docs/gateway.md");
const HEADER: &str = include_str!("../../../src/bpf/include/gateway.h");

/// Name and paths of each row.
fn rows() -> Vec<(&'static str, &'static str)> {
    let (_, section) = DOCS.split_once("\n## Why packets are dropped\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let row = |line: &'static str| {
        let cells: Vec<_> = line.strip_prefix("| `")?.split('|').map(str::trim).collect();
        assert!(cells.iter().take(4).all(|cell| !cell.is_empty()), "{line}");
        Some((cells[0].trim_end_matches('`'), cells[1]))
    };
    section.lines().filter_map(row).collect()
}

#[test]
fn docs_have_each_reason_in_its_place() {
    let names: Vec<_> = rows().iter().map(|(name, _)| *name).collect();
    let known: Vec<_> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
    assert_eq!(names, known);
}

/// Those of the header are those that the program drops for, with their numbers.
#[test]
fn docs_say_what_the_fast_path_drops_for() {
    let of_program: BTreeSet<(String, u8)> = HEADER
        .lines()
        .filter_map(|line| {
            let (name, number) = line.trim().strip_prefix("DROP_")?.split_once(" = ")?;
            let name = name.to_lowercase().replace('_', "-");
            Some((name, number.split(',').next()?.parse().ok()?))
        })
        .collect();
    let told = rows().into_iter().filter(|(_, paths)| paths.contains("fast"));
    let told = told.map(|(name, _)| {
        let reason = DropReason::ALL.iter().find(|reason| reason.name() == name);
        (name.to_owned(), reason.unwrap().number())
    });
    assert_eq!(told.collect::<BTreeSet<_>>(), of_program);
}
