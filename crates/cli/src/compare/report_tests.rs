use super::{Contest, Operation, Reading, Series, table};
use crate::compare::under::Under;
use crate::compare::variant::Kind;
use anyhow::anyhow;
use ringside_measure::latency::Latency;
use ringside_measure::schema::{LoadKind, Responsiveness};
use ringside_nic::host::CpuTime;
use serde_json::Value;

/// A turn at a rate, with a tenth lost, in which the sender's CPU spent half its time in the kernel.
fn reading(pps: f64, steal: f64) -> Reading {
    let mut sender = CpuTime::default();
    (sender.system, sender.idle) = (10, 10);
    let mut receiver = CpuTime::default();
    (receiver.user, receiver.softirq) = (15, 5);
    Reading {
        pps,
        loss: Some(0.1),
        offered_pps: Some(pps / 0.9),
        rtt: None,
        responsiveness: None,
        cpus: [sender, receiver],
        steal,
        waiting: 0.25,
        far_waiting: None,
    }
}

fn ping(ns: u64) -> Reading {
    let mut latency = Latency::new();
    (0..1_000).for_each(|_| latency.record(ns));
    Reading {
        rtt: latency.summary(),
        responsiveness: Responsiveness::of(&latency),
        ..reading(1e9 / ns as f64, 0.0)
    }
}

fn series(kind: Kind, readings: impl IntoIterator<Item = (u32, Reading)>) -> Series {
    let mut series = Series::new(kind);
    for (round, reading) in readings {
        series.add(round, Ok(reading));
    }
    series
}

fn contest(operation: Operation, series: Vec<Series>) -> Contest {
    Contest {
        operation,
        frame_bytes: 100,
        series,
        load: None,
    }
}

#[test]
fn figures_are_medians_of_the_quiet_rounds_and_ratios_are_paired() {
    let rounds = |factor: f64, steal: f64| {
        (0..7_u32).map(move |round| {
            let drift = 1e6 * f64::from(round + 1);
            (round, reading(drift * factor, if round == 6 { steal } else { 0.0 }))
        })
    };
    let table = table(&contest(
        Operation::Rx,
        vec![
            series(Kind::UdpSpin, rounds(1.0, 0.0)),
            series(Kind::AfXdpNative, rounds(3.0, 0.5)),
        ],
    ));
    assert_eq!(
        (table.base.as_str(), table.ratio_of.as_str()),
        ("udp-spin", "packets_pps")
    );
    let [base, native] = table.variants.as_slice() else {
        panic!("{table:?}")
    };
    assert_eq!(base.packets_pps.unwrap().median, 4e6);
    assert_eq!(base.ratio_to_base, None);
    let figure = native.packets_pps.unwrap();
    assert_eq!(
        (figure.median, figure.rounds_used, figure.rounds_left_out),
        (10.5e6, 6, 1)
    );
    // 100 bytes, 24 of Ethernet, 58 of payload.
    assert_eq!(native.wire_bps.unwrap().median, 10.5e6 * 124.0 * 8.0);
    assert_eq!(native.payload_bps.unwrap().median, 10.5e6 * 58.0 * 8.0);
    assert!((native.loss_percent.unwrap().median - 10.0).abs() < 1e-9);
    let stages = [
        native.cpu_user_percent,
        native.cpu_system_percent,
        native.cpu_softirq_percent,
    ];
    assert_eq!(stages.map(|figure| figure.unwrap().median), [75.0, 50.0, 25.0]);
    assert_eq!(native.cpu_busy_percent.unwrap().median, 150.0);
    let ratio = native.ratio_to_base.unwrap();
    assert_eq!((ratio.median, ratio.rounds_used, ratio.rounds_left_out), (3.0, 6, 1));
}

/// 20 ticks of each CPU, some of the sender's in the kernel.
fn busy(system: u64, loss: f64) -> Reading {
    let mut reading = reading(1e6, 0.0);
    (reading.cpus[0].system, reading.cpus[0].idle) = (system, 20 - system);
    reading.loss = Some(loss);
    reading
}

#[test]
fn cpu_time_is_that_of_rounds_and_not_of_all_together() {
    // Together they are 30 ticks of 100, which no round is anywhere near.
    let rounds = [1, 2, 3, 4, 20].map(|system| busy(system, 0.0));
    let table = table(&contest(Operation::Rx, vec![series(Kind::UdpSpin, (0..).zip(rounds))]));
    let variant = &table.variants[0];
    let system = variant.cpu_system_percent.unwrap();
    assert_eq!((system.median, system.min, system.max), (15.0, 5.0, 100.0));
    assert_eq!(system.spread, Some(5.0), "half of what lies between 10 and 20");
    // All the receiver's 20 ticks, and the sender's 15: the sum is taken round by round, too.
    let all = variant.cpu_busy_percent.unwrap();
    assert!(
        (all.median - 115.0).abs() < 1e-9 && (all.max - 200.0).abs() < 1e-9,
        "{all:?}"
    );
    assert_eq!(
        variant.cpu_user_percent.unwrap().spread,
        Some(0.0),
        "the same in each round"
    );
}

/// The figures of a JSON value, with their names: objects that have a median.
fn figures(value: &Value, name: &str, found: &mut Vec<(String, Value)>) {
    let Value::Object(fields) = value else { return };
    if fields.contains_key("median") && name != "ratio_to_base" {
        found.push((name.into(), value.clone()));
    }
    fields.iter().for_each(|(name, value)| figures(value, name, found));
}

#[test]
fn every_figure_is_written_with_its_spread() {
    let rounds = |rounds: u32| {
        (0..rounds).map(|round| {
            let rtt = ping(5_000 + 1_000 * u64::from(round)).rtt;
            (
                round,
                Reading {
                    rtt,
                    ..busy(u64::from(round), 0.0)
                },
            )
        })
    };
    let written = |count| {
        let table = table(&contest(Operation::Ping, vec![series(Kind::UdpSpin, rounds(count))]));
        let mut found = Vec::new();
        figures(&serde_json::to_value(&table.variants[0]).unwrap(), "", &mut found);
        found
    };
    let found = written(5);
    // Rates 3, loss 1, CPU 4, times 6: with a thousand samples a round there is no p99.9.
    assert_eq!(found.len(), 14, "{found:#?}");
    for (name, figure) in &found {
        assert!(figure["spread"].is_number(), "{name}: {figure}");
        let has_percentage = figure["median"].as_f64() > Some(0.0);
        assert_eq!(figure["spread_percent"].is_number(), has_percentage, "{name}: {figure}");
    }
    let spread = |name: &str| found.iter().find(|(found, _)| found == name).unwrap().1["spread"].clone();
    assert_eq!(spread("rtt_max_ns"), 1_000.0);
    assert_eq!(spread("cpu_system_percent"), 5.0);
    assert_eq!(spread("loss_percent"), 0.0);
    // One round does not tell how much rounds differ.
    for (name, figure) in written(1) {
        assert!(
            figure["spread"].is_null() && figure["spread_percent"].is_null(),
            "{name}: {figure}"
        );
    }
}

#[test]
fn a_turn_that_failed_leaves_the_others_paired() {
    let mut variant = series(Kind::AfPacket, [(0, reading(2e6, 0.0)), (2, reading(6e6, 0.0))]);
    variant.add(1, Err(anyhow!("it rained")));
    let base = series(
        Kind::UdpSpin,
        (0..3).map(|round| (round, reading(1e6 * f64::from(round + 1), 0.0))),
    );
    let table = table(&contest(Operation::Fwd, vec![base, variant]));
    let variant = &table.variants[1];
    assert_eq!(variant.ratio_to_base.unwrap().rounds_used, 2);
    assert_eq!(variant.ratio_to_base.unwrap().median, 2.0);
    assert_eq!(variant.failure, None);
    assert!(
        variant.set_up.ends_with("(1 of 3 turns failed: it rained)"),
        "{}",
        variant.set_up
    );
}

#[test]
fn one_that_never_ran_has_a_reason_and_the_base_is_one_that_did() {
    let mut udp = Series::new(Kind::UdpSpin);
    udp.add(0, Err(anyhow!("no address")));
    assert!(!udp.is_given_up());
    udp.add(1, Err(anyhow!("no address")));
    assert!(udp.is_given_up());
    let table = table(&contest(
        Operation::Rx,
        vec![udp, series(Kind::AfPacket, [(0, reading(1.0, 0.0))])],
    ));
    assert_eq!(table.variants[0].failure.as_deref(), Some("no address"));
    assert_eq!(table.variants[0].packets_pps, None);
    assert_eq!(table.base, "af-packet");
}

#[test]
fn pings_are_compared_by_their_median_round_trip() {
    let of = |kind, ns: u64| series(kind, (0..5).map(|round| (round, ping(ns))));
    let table = table(&contest(
        Operation::Ping,
        vec![of(Kind::UdpSpin, 10_000), of(Kind::AfXdpNative, 5_000)],
    ));
    assert_eq!(table.ratio_of, "rtt_p50_ns");
    let native = &table.variants[1];
    assert_eq!(native.ratio_to_base.unwrap().median, 0.5);
    assert_eq!(native.rtt_p50_ns.unwrap().median, 5_000.0);
    assert_eq!(native.rtt_p99_9_ns, None, "too few samples");
    assert_eq!(native.rounds[0].value, 5_000.0);
}

#[test]
fn cpu_wait_is_the_median_of_turns_that_count() {
    let turn = |waiting, steal| Reading {
        waiting,
        ..reading(1.0, steal)
    };
    let turns = [turn(0.0, 0.0), turn(0.25, 0.0), turn(0.5, 0.0), turn(1.0, 0.5)];
    assert_eq!(super::cpu_wait_percent(&turns), Some(25.0));
    assert_eq!(super::cpu_wait_percent(&[]), None);
}

#[test]
fn cpu_wait_of_a_server_is_apart_from_that_of_this_host() {
    let turn = |far_waiting| Reading {
        far_waiting,
        ..reading(1.0, 0.0)
    };
    let waits = [Some(0.25), None, Some(0.75), Some(0.5)];
    let turns = (0..).zip(waits.map(turn));
    let contests = [contest(Operation::Rx, vec![series(Kind::UdpSpin, turns)])];
    assert_eq!(super::far_cpu_wait_percent(&contests), Some(50.0));
    assert_eq!(super::cpu_wait_percent(super::readings(&contests)), Some(25.0));
    let local = [contest(Operation::Rx, vec![series(Kind::UdpSpin, [(0, turn(None))])])];
    assert_eq!(super::far_cpu_wait_percent(&local), None);
}

#[test]
fn a_variant_that_took_part_twice_is_compared_with_itself() {
    let turns = |factor: f64| (0..8_u32).map(move |round| (round, reading(1e6 * factor * f64::from(round + 1), 0.0)));
    let mut again = Series::again(Kind::UdpSpin);
    for (round, reading) in turns(1.02) {
        again.add(round, Ok(reading));
    }
    let contest = contest(
        Operation::Rx,
        vec![
            series(Kind::UdpSpin, turns(1.0)),
            series(Kind::AfXdpNative, turns(3.0)),
            again,
        ],
    );
    let table = table(&contest);
    // The second one is no variant.
    let names: Vec<&str> = table.variants.iter().map(|variant| variant.name.as_str()).collect();
    assert_eq!(
        (names, table.base.as_str()),
        (vec!["udp-spin", "af-xdp-native"], "udp-spin")
    );
    let [aa] = table.aa.as_slice() else {
        panic!("{:?}", table.aa)
    };
    let ratio = aa.ratio.expect("pairs");
    assert_eq!(
        (aa.name.as_str(), aa.rounds.len(), ratio.rounds_used),
        ("udp-spin", 8, 8)
    );
    assert!((ratio.median - 1.02).abs() < 1e-9);
    assert!(
        (table.noise_floor_percent.expect("an interval") - 2.0).abs() < 1e-6,
        "{table:?}"
    );
    // All ratios are as exact as can be, and each that there is has been looked at.
    let (_, width) = super::widest(&[contest]).expect("ratios");
    assert!(width.expect("an interval") < 1e-9);
}

#[test]
fn under_load_stands_beside_itself_idle() {
    let under = Under {
        kind: LoadKind::Foreign,
        rate: 5_000,
    };
    let of = |ns: u64| (0..6).map(move |round| (round, ping(ns)));
    let mut loaded = Series::under(Kind::UdpSpin, under);
    of(30_000).for_each(|(round, reading)| loaded.add(round, Ok(reading)));
    let contest = contest(
        Operation::Ping,
        vec![
            series(Kind::UdpSpin, of(10_000)),
            series(Kind::AfPacket, of(5_000)),
            loaded,
        ],
    );
    let table = table(&contest);
    assert_eq!(table.variants.len(), 2, "those under load are no variants of their own");
    let [loaded] = table.under_load.as_slice() else {
        panic!("{:?}", table.under_load)
    };
    assert_eq!(
        (loaded.name.as_str(), loaded.kind, loaded.load_pps),
        ("udp-spin", LoadKind::Foreign, 5_000.0)
    );
    let ratio = loaded.ratio_to_idle.expect("pairs");
    assert!((ratio.median - 3.0).abs() < 0.01, "{ratio:?}");
    // 30 us are two million a minute; to the histogram's three digits.
    let per_minute = loaded.round_trips_per_minute.expect("measured").median;
    assert!((per_minute / 2e6 - 1.0).abs() < 1e-3, "{per_minute}");
}

/// Measures one turn, with the CPU steal that each try has. Returns the tries and the steal of the
/// reading that counts.
fn measure(series: &mut Series, steals: [f64; 2], repeats: &mut usize) -> (usize, f64) {
    let mut tries = 0;
    series.measure(0, repeats, || {
        tries += 1;
        Some(Ok(reading(1.0, steals[tries - 1])))
    });
    (tries, series.readings.last().expect("a reading").1.steal)
}

#[test]
fn a_disturbed_turn_is_repeated_once() {
    let mut series = Series::new(Kind::UdpSpin);
    let mut repeats = 2;
    assert_eq!(measure(&mut series, [0.0, 0.9], &mut repeats), (1, 0.0));
    assert_eq!((repeats, series.repeats), (2, 0));
    assert_eq!(measure(&mut series, [0.5, 0.0], &mut repeats), (2, 0.0));
    assert_eq!(measure(&mut series, [0.5, 0.6], &mut repeats), (2, 0.6));
    assert_eq!((repeats, series.repeats), (0, 2));
    assert_eq!(measure(&mut series, [0.5, 0.0], &mut repeats), (1, 0.5));
    assert_eq!(series.readings.len(), 4);
}

#[test]
fn a_repeat_that_fails_or_is_interrupted_does_not_count() {
    for repeat in [None, Some(Err(anyhow!("no packet arrived")))] {
        let mut series = Series::new(Kind::UdpSpin);
        let mut readings = [Some(Ok(reading(1.0, 0.5))), repeat].into_iter();
        series.measure(3, &mut 1, || readings.next().expect("two tries at most"));
        let kept: Vec<(u32, f64)> = series
            .readings
            .iter()
            .map(|(round, kept)| (*round, kept.steal))
            .collect();
        assert_eq!(kept, [(3, 0.5)]);
        assert_eq!((series.repeats, series.failures()), (0, 0));
    }
}
