use ringside_measure::compare::{Figure, Ratio};
use ringside_measure::schema::{AaRatio, CompareResult, Document, Operation, Outcome, Table, Variant};

use super::render;
use crate::system;

/// With a spread that no other figure has: `percent` of it.
fn figure(median: f64, percent: f64) -> Option<Figure> {
    Some(Figure {
        median,
        min: median * 0.9,
        max: median * 1.1,
        spread: Some(median * percent / 100.0),
        spread_percent: (median > 0.0).then_some(percent),
        rounds_used: 6,
        rounds_left_out: 1,
    })
}

fn ratio(median: f64) -> Option<Ratio> {
    Some(Ratio {
        median,
        low: Some(median * 0.95),
        high: Some(median * 1.05),
        rounds_used: 6,
        rounds_left_out: 1,
    })
}

fn table(operation: Operation, variants: Vec<Variant>) -> Table {
    Table {
        operation,
        frame_bytes: 82,
        payload_bytes: 40,
        load: "a load".into(),
        base: "udp-spin".into(),
        ratio_of: "packets_pps".into(),
        variants,
        under_load: Vec::new(),
        aa: Vec::new(),
        noise_floor_percent: None,
    }
}

fn variant(name: &str) -> Variant {
    Variant {
        name: name.into(),
        packets_pps: figure(2_614_000.0, 2.6),
        wire_bps: figure(1.8e9, 3.6),
        payload_bps: figure(0.46e9, 4.6),
        loss_percent: figure(12.34, 5.0),
        cpu_user_percent: figure(51.0, 20.0),
        cpu_system_percent: figure(9.0, 35.0),
        cpu_softirq_percent: figure(100.0, 7.0),
        cpu_busy_percent: figure(160.0, 5.0),
        rtt_min_ns: figure(3_000.0, 1.1),
        rtt_mean_ns: figure(4_810.0, 1.2),
        rtt_p50_ns: figure(4_560.0, 1.3),
        rtt_p90_ns: figure(5_000.0, 1.4),
        rtt_p99_ns: figure(21_000.0, 1.5),
        rtt_p99_9_ns: figure(99_000.0, 16.0),
        rtt_max_ns: figure(1_200_000.0, 170.0),
        ratio_to_base: ratio(12.0),
        ..Variant::default()
    }
}

fn document(tables: Vec<Table>) -> Document {
    let result = CompareResult {
        rounds: 7,
        round_duration_ns: 200_000_000,
        steal_limit_percent: 4.0,
        cpu_wait_percent: None,
        turns_repeated: 3,
        tables,
        until_ci: None,
    };
    system::document(Vec::new(), Outcome::Compare(result))
}

/// The cells of a row: a figure each, and what is below it.
fn row(text: &str, name: &str) -> Vec<(String, String)> {
    let split = |line: &str| -> Vec<String> {
        let cells = line.split(['|', '┆', '│']).map(|cell| cell.trim().to_owned());
        cells.collect()
    };
    let mut lines = text.lines();
    let first = lines
        .by_ref()
        .map(split)
        .find(|cells| cells.get(1).is_some_and(|first| first == name))
        .unwrap_or_else(|| panic!("no row {name} in\n{text}"));
    let second = split(lines.next().unwrap_or_default());
    let inside = 1..first.len() - 1;
    // The second line of a row has no name; where it has one it is the next row's.
    let second = if second.get(1).is_some_and(String::is_empty) {
        second
    } else {
        vec![String::new(); first.len()]
    };
    let cells: Vec<_> = first.into_iter().zip(second).collect();
    cells[inside].to_vec()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    let pair = |(cell, below): &(&str, &str)| ((*cell).into(), (*below).into());
    expected.iter().map(pair).collect()
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The columns behind the rates or times.
const TAIL: [(&str, &str); 4] = [
    ("12.3", "±0.6"),
    ("160", "±8"),
    ("51/9/100", "±10/±3/±7"),
    ("12.0", "[11.4-12.6]"),
];

#[test]
fn a_row_has_every_figure_with_its_spread_and_ratio() {
    let base = Variant {
        ratio_to_base: None,
        ..variant("udp-spin")
    };
    let text = render(
        &document(vec![table(Operation::Rx, vec![base, variant("af-xdp-native")])]),
        &["Path: one.".into()],
        None,
    );
    let rates = [
        ("af-xdp-native", ""),
        ("2.61 M", "±2.6%"),
        ("1.80", "±3.6%"),
        ("0.46", "±4.6%"),
    ];
    assert_eq!(
        row(&text, "af-xdp-native"),
        pairs(&[&rates[..], &TAIL].concat()),
        "{text}"
    );
    let base = row(&text, "udp-spin");
    assert_eq!(base.last(), pairs(&[("base", "")]).last(), "{text}");
    assert!(
        base[1..base.len() - 1].iter().all(|cell| cell.1.contains('±')),
        "{text}"
    );
    assert!(text.contains("x udp-spin"), "{text}");
    assert!(
        text.contains("Receive, frames of 82 bytes without FCS (40 of payload); a load"),
        "{text}"
    );
    assert!(text.contains("Path: one."), "{text}");
    assert!(
        words(&text).contains("CPU steal above 4 %: 3 repeated, 2 left out."),
        "{text}"
    );
    assert!(
        text.lines()
            .all(|line| line.starts_with(['|', '+']) || !line.contains('│')),
        "plain"
    );
}

#[test]
fn a_ping_shows_round_trips_with_their_spreads() {
    let text = render(
        &document(vec![table(Operation::Ping, vec![variant("af-packet")])]),
        &[],
        Some(200),
    );
    let times = [
        ("af-packet", ""),
        ("2.61 M", "±2.6%"),
        ("3.00", "±1.1%"),
        ("4.81", "±1.2%"),
        ("4.56", "±1.3%"),
        ("5.00", "±1.4%"),
        ("21.0", "±1.5%"),
        ("99.0", "±16%"),
        ("1200", "±170%"),
    ];
    assert_eq!(row(&text, "af-packet"), pairs(&[&times[..], &TAIL].concat()), "{text}");
    let columns: Vec<String> = row(&text, "variant")
        .into_iter()
        .map(|cell| words(&format!("{} {}", cell.0, cell.1)))
        .collect();
    assert_eq!(
        columns,
        [
            "variant",
            "round trips/s",
            "RTT µs min",
            "mean",
            "p50",
            "p90",
            "p99",
            "p99.9",
            "max",
            "lost %",
            "CPU % all",
            "CPU % usr/sys/irq",
            "x udp-spin [95 %]"
        ]
    );
    // What a median over rounds does not tell.
    assert!(
        text.contains("shortest and longest of all rounds, µs: af-packet 2.70-1320"),
        "{text}"
    );
}

/// Nothing is left out silently: what a round or two cannot tell is said in the place of the spread.
#[test]
fn what_is_missing_is_shown_as_missing() {
    let once = |figure: Option<Figure>| {
        figure.map(|figure| Figure {
            spread: None,
            spread_percent: None,
            rounds_used: 1,
            ..figure
        })
    };
    let full = variant("udp-spin");
    let single = Variant {
        packets_pps: once(full.packets_pps),
        loss_percent: once(full.loss_percent),
        cpu_user_percent: None,
        rtt_p99_ns: once(full.rtt_p99_ns),
        rtt_p99_9_ns: None,
        ratio_to_base: full.ratio_to_base.map(|ratio| Ratio {
            low: None,
            high: None,
            ..ratio
        }),
        ..variant("af-packet")
    };
    let text = render(&document(vec![table(Operation::Ping, vec![full, single])]), &[], None);
    let cells = row(&text, "af-packet");
    for (column, expected) in [
        (1, ("2.61 M", "±?")),
        (6, ("21.0", "±?")),
        (7, ("-", "")),
        (9, ("12.3", "±?")),
        (11, ("-/9/100", "-/±3/±7")),
        (12, ("12.0", "[?]")),
    ] {
        assert_eq!(cells[column], pairs(&[expected])[0], "{text}");
    }
    assert!(
        words(&text).contains("af-packet: p99 is of 1 of 6 rounds; the others have too few samples for it"),
        "{text}"
    );
    assert!(!text.contains("udp-spin: p99"), "{text}");
    assert!(words(&text).contains("?: too few rounds to tell"), "{text}");
}

#[test]
fn failures_have_a_row_and_share_their_reason() {
    let failed = |name: &str| Variant {
        failure: Some("no address".into()),
        ..Variant {
            name: name.into(),
            ..Variant::default()
        }
    };
    let variants = vec![failed("udp-blocking"), failed("udp-spin"), variant("af-packet")];
    let text = render(&document(vec![table(Operation::Fwd, variants)]), &[], None);
    assert_eq!(row(&text, "udp-blocking")[1].0, "failed");
    assert!(
        text.contains("  udp-blocking, udp-spin: failed: no address\n"),
        "{text}"
    );
}

#[test]
fn fits_a_terminal() {
    for (operation, columns) in [(Operation::Tx, 80), (Operation::Ping, 80), (Operation::Ping, 120)] {
        let wide = Variant {
            loss_percent: figure(100.0, 30.0),
            cpu_user_percent: figure(150.0, 30.0),
            cpu_system_percent: figure(150.0, 30.0),
            rtt_max_ns: figure(12_345_678.0, 170.0),
            ..variant("af-xdp-zero-copy")
        };
        let text = render(&document(vec![table(operation, vec![wide])]), &[], Some(columns));
        let width = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(width <= columns, "{width} columns of {columns}\n{text}");
    }
}

#[test]
fn long_notes_are_wrapped_and_lose_nothing() {
    let note: String = (0..60).map(|n| format!("word-{n} ")).collect();
    let text = super::wrap(None, &note, "  ");
    assert!(text.lines().count() > 3);
    assert!(
        text.lines()
            .all(|line| line.starts_with("  ") && !line.starts_with("   ") && line.len() <= 100),
        "{text}"
    );
    assert_eq!(
        text.split_whitespace().collect::<Vec<_>>(),
        note.split_whitespace().collect::<Vec<_>>()
    );
}

#[test]
fn a_variant_beside_itself_shows_the_noise() {
    let aa = |name: &str, ratio: Option<Ratio>| AaRatio {
        name: name.into(),
        ratio,
        rounds: Vec::new(),
    };
    let ratio = |low: Option<f64>, high: Option<f64>| {
        Some(Ratio {
            median: 1.01,
            low,
            high,
            rounds_used: 8,
            rounds_left_out: 0,
        })
    };
    let with = |noise_floor_percent, aa| {
        let table = Table {
            aa,
            noise_floor_percent,
            ..table(Operation::Rx, vec![variant("udp-spin")])
        };
        render(&document(vec![table]), &[], None)
    };
    let known = vec![
        aa("udp-spin", ratio(Some(0.98), Some(1.03))),
        aa("af-packet", ratio(Some(1.001), Some(1.02))),
    ];
    let text = with(Some(3.0), known);
    for part in [
        "x itself",
        "[0.98-1.03]",
        "a ratio between 0.97 and 1.03 means nothing here",
        "1 of 2 intervals do not hold 1",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let text = with(None, vec![aa("udp-spin", ratio(None, None)), aa("af-packet", None)]);
    assert!(text.contains("too few rounds to tell from which difference"), "{text}");
    assert!(!render(&document(vec![table(Operation::Rx, vec![])]), &[], None).contains("A/A"));
}
