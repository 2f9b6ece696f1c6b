use ringside_measure::compare::{Figure, Ratio};
use ringside_measure::schema::{CompareResult, Document, Operation, Outcome, Table, Variant};

use super::render;
use crate::system;

fn figure(median: f64) -> Option<Figure> {
    Some(Figure {
        median,
        min: median * 0.9,
        max: median * 1.1,
        spread_percent: Some(2.6),
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
    }
}

fn variant(name: &str) -> Variant {
    Variant {
        name: name.into(),
        packets_pps: figure(2_614_000.0),
        wire_bps: figure(1.8e9),
        payload_bps: figure(0.46e9),
        loss_percent: figure(12.34),
        cpu_user_percent: figure(51.0),
        cpu_system_percent: figure(9.0),
        cpu_softirq_percent: figure(100.0),
        rtt_min_ns: figure(3_000.0),
        rtt_p50_ns: figure(4_560.0),
        rtt_p90_ns: figure(5_000.0),
        rtt_p99_ns: figure(21_000.0),
        rtt_max_ns: figure(1_200_000.0),
        ratio_to_base: ratio(12.0),
        ..Variant::default()
    }
}

fn document(tables: Vec<Table>) -> Document {
    let result = CompareResult {
        rounds: 7,
        round_duration_ns: 200_000_000,
        steal_limit_percent: 4.0,
        tables,
    };
    system::document(Vec::new(), Outcome::Compare(result))
}

fn row<'t>(text: &'t str, name: &str) -> &'t str {
    let row = |line: &&str| line.trim_start_matches(['|', '│', ' ']).starts_with(name);
    text.lines()
        .find(row)
        .unwrap_or_else(|| panic!("no row {name} in\n{text}"))
}

#[test]
fn a_row_has_every_figure_with_its_spread_and_ratio() {
    let base = Variant {
        ratio_to_base: None,
        ..variant("udp-spin")
    };
    let text = render(
        &document(vec![table(Operation::Rx, vec![base, variant("af-xdp-native")])]),
        &["Path: one.".into()],
        false,
    );
    let cells: Vec<&str> = row(&text, "af-xdp-native").split('|').map(str::trim).collect();
    let expected = [
        "",
        "af-xdp-native",
        "2.61 M ± 3%",
        "1.80",
        "0.46",
        "12.3",
        "51/9/100",
        "12.0 [11.4-12.6]",
        "",
    ];
    assert_eq!(cells, expected);
    assert!(row(&text, "udp-spin").contains("| base |") || row(&text, "udp-spin").contains(" base |"));
    assert!(text.contains("x udp-spin"), "{text}");
    assert!(
        text.contains("Receive, frames of 82 bytes without FCS (40 of payload); a load"),
        "{text}"
    );
    assert!(text.contains("Path: one."), "{text}");
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words.join(" ").contains("2 turns left out for CPU steal"), "{text}");
    assert!(
        text.lines()
            .all(|line| line.starts_with(['|', '+']) || !line.contains('│')),
        "plain"
    );
}

#[test]
fn a_ping_shows_round_trips_and_what_is_missing() {
    let text = render(
        &document(vec![table(Operation::Ping, vec![variant("af-packet")])]),
        &[],
        true,
    );
    let cells: Vec<&str> = row(&text, "af-packet").split(['┆', '│']).map(str::trim).collect();
    let expected = [
        "",
        "af-packet",
        "4.56 ± 3%",
        "2.70",
        "5.00",
        "21.0",
        "-",
        "1320",
        "12.3",
        "51/9/100",
        "12.0 [11.4-12.6]",
        "",
    ];
    assert_eq!(cells, expected);
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
    let text = render(&document(vec![table(Operation::Fwd, variants)]), &[], false);
    assert!(row(&text, "udp-blocking").contains("failed"));
    assert!(
        text.contains("  udp-blocking, udp-spin: failed: no address\n"),
        "{text}"
    );
}

#[test]
fn it_fits_a_terminal() {
    for (operation, columns) in [(Operation::Tx, 100), (Operation::Ping, 110)] {
        let wide = Variant {
            loss_percent: figure(100.0),
            ..variant("af-xdp-zero-copy")
        };
        let text = render(&document(vec![table(operation, vec![wide])]), &[], true);
        let rows = text.lines().filter(|line| line.starts_with('│'));
        let width = rows.map(|line| line.chars().count()).max().unwrap();
        assert!(width <= columns, "{width} columns\n{text}");
    }
}

#[test]
fn long_notes_are_wrapped_and_lose_nothing() {
    let note: String = (0..60).map(|n| format!("word-{n} ")).collect();
    let text = super::wrapped(&note, "  ");
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
