use ringside_measure::compare::Ratio;
use ringside_measure::schema::{CompareResult, Document, Operation, Outcome, Table, Variant};

use super::render;
use crate::compare::testing::{rate, ratio, table, time};
use crate::system;

fn document(tables: Vec<Table>) -> Document {
    let result = CompareResult {
        rounds: 7,
        round_duration_ns: 200_000_000,
        steal_limit_percent: 4.0,
        cpu_wait_percent: None,
        turns_repeated: 0,
        tables,
        until_ci: None,
    };
    system::document(Vec::new(), Outcome::Compare(result))
}

fn line<'t>(text: &'t str, begin: &str) -> &'t str {
    let found = text.lines().find(|line| line.trim_start().starts_with(begin));
    found.unwrap_or_else(|| panic!("no line {begin:?} in\n{text}"))
}

#[test]
fn names_the_best_option_of_each_question() {
    let text = render(
        &document(vec![
            table(
                Operation::Rx,
                vec![
                    rate("udp-blocking", 850_000.0, None),
                    rate("af-xdp-native", 2_610_000.0, ratio(3.06, 2.91, 3.2)),
                    rate("xdp-limit", 4_000_000.0, ratio(4.7, 4.6, 4.8)),
                ],
            ),
            table(
                Operation::Ping,
                vec![
                    time("udp-blocking", 9_200.0, None),
                    time("af-xdp-native", 5_500.0, ratio(0.6, 0.58, 0.62)),
                    time("xdp-limit", 3_700.0, ratio(0.4, 0.38, 0.42)),
                ],
            ),
        ]),
        "veth pair",
    );
    let receive = line(&text, "receive");
    for part in ["af-xdp-native", "2.61 M packets/s", "3.06 [2.91-3.20] x udp-blocking"] {
        assert!(receive.contains(part), "no {part:?} in {receive}");
    }
    let round_trip = line(&text, "round trip");
    for part in ["af-xdp-native", "5.50 µs", "0.60 [0.58-0.62] x udp-blocking"] {
        assert!(round_trip.contains(part), "no {part:?} in {round_trip}");
    }
    assert!(line(&text, "Best here:").contains("af-xdp-native (receive, round trip)."));
    assert!(text.contains("Frames of 64 and 82 bytes"), "{text}");
}

#[test]
fn claims_no_difference_that_the_interval_does_not_show() {
    let variants = vec![
        rate("udp-blocking", 850_000.0, None),
        rate("af-packet", 860_000.0, ratio(1.01, 0.96, 1.07)),
    ];
    let text = render(&document(vec![table(Operation::Tx, variants)]), "veth pair");
    assert!(
        line(&text, "Best here:").contains("nothing is clearly better than plain UDP (transmit)."),
        "{text}"
    );
}

#[test]
fn concludes_nothing_without_an_interval() {
    let unknown = Ratio {
        low: None,
        high: None,
        ..ratio(3.0, 0.0, 0.0).expect("a ratio")
    };
    let variants = vec![
        rate("udp-blocking", 850_000.0, None),
        rate("af-packet", 2_550_000.0, Some(unknown)),
    ];
    let text = render(&document(vec![table(Operation::Rx, variants)]), "veth pair");
    assert!(
        line(&text, "Best here:").contains("too few rounds for an interval, no conclusion (receive)."),
        "{text}"
    );
}

#[test]
fn says_that_plain_udp_was_not_measured() {
    let failed = || Variant {
        name: "udp-blocking".into(),
        failure: Some("a veth drops its packets without GRO".into()),
        ..Variant::default()
    };
    let without_udp = |best| Table {
        base: "af-packet".into(),
        ..table(Operation::Rx, vec![failed(), rate("af-packet", 1e6, None), best])
    };
    let text = |tables| render(&document(tables), "veth pair");
    for best in [
        rate("af-xdp-native", 5e5, ratio(0.5, 0.4, 0.6)),
        rate("af-xdp-native", 1.01e6, ratio(1.01, 0.9, 1.1)),
    ] {
        let text = text(vec![without_udp(best)]);
        let conclusion = line(&text, "Best here:");
        assert!(
            conclusion.contains("plain UDP was not measured, no conclusion (receive)."),
            "{text}"
        );
        let header = text.replace('\n', " ");
        assert!(header.contains("ratio to the first option with a figure"), "{text}");
        assert!(!header.contains("the best plain UDP socket"), "{text}");
    }
    // A clear difference to another base is one.
    let clear = || without_udp(rate("af-xdp-native", 3e6, ratio(3.0, 2.9, 3.1)));
    assert!(line(&text(vec![clear()]), "Best here:").contains("af-xdp-native (receive)."));
    let with_udp = table(Operation::Tx, vec![rate("udp-blocking", 1e6, None)]);
    let text = text(vec![clear(), with_udp]).replace('\n', " ");
    assert!(
        text.contains("the best plain UDP socket, or without one to the first option"),
        "{text}"
    );
}

#[test]
fn shows_failures() {
    let failed = Variant {
        name: "af-xdp-native".into(),
        failure: Some("the flow of packets stopped".into()),
        ..Variant::default()
    };
    let variants = vec![rate("udp-blocking", 850_000.0, None), failed];
    let text = render(&document(vec![table(Operation::Rx, variants)]), "veth pair");
    assert!(
        text.contains("Failed: af-xdp-native (receive): the flow of packets stopped"),
        "{text}"
    );
    assert!(line(&text, "receive").contains("the base of ratios"), "{text}");
}

#[test]
fn fits_a_terminal_of_eighty_columns() {
    let best = || rate("af-xdp-zero-copy", 123_000.0, ratio(12.34, 10.25, 13.45));
    let tables = [Operation::Rx, Operation::Tx, Operation::Fwd]
        .map(|operation| table(operation, vec![rate("udp-sendmmsg", 10_000.0, None), best()]));
    let text = render(&document(tables.to_vec()), &"a long path ".repeat(20));
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}
