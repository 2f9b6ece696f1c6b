//! `ringside rx --hints` and `--program`: what an XDP program tells about packets, found by itself.

mod common;

use common::{Done, MODES, assert_clean, assert_reconciles, lab, run, start, start_receiver};
use ringside_bpf::testing::EXAMPLE_FILE;
use ringside_measure::schema::{FieldHints, HintsResult, LayoutHints, Number};
use ringside_netlab::testing::is_root;

fn hints(done: &Done) -> HintsResult {
    let result = done.result();
    assert_reconciles(&result);
    result.hints.unwrap_or_else(|| panic!("no hints: {done:#?}"))
}

fn layout<'h>(hints: &'h HintsResult, name: &str) -> &'h LayoutHints {
    let found = hints.layouts.iter().find(|layout| layout.name == name);
    found.unwrap_or_else(|| panic!("no {name}: {hints:#?}"))
}

fn field<'l>(layout: &'l LayoutHints, name: &str) -> &'l FieldHints {
    let found = layout.fields.iter().find(|field| field.name == name);
    found.unwrap_or_else(|| panic!("no {name}: {layout:#?}"))
}

fn unsigned(number: Option<Number>) -> u64 {
    match number {
        Some(Number::Unsigned(number)) => number,
        other => panic!("{other:?}"),
    }
}

#[test]
fn our_own_program_tells_about_each_packet() {
    if !is_root() {
        return;
    }
    for mode in MODES {
        let lab = lab("rxhints", 1);
        let receiver = start_receiver(&lab.b, &format!("rx {{}} -m {mode} --hints --json --count 500 -w poll"));
        let sent = run(&lab.a, &format!("tx {{}} --to {} --count 500 --rate 20000", lab.b.ipv4));
        sent.good();
        let told = hints(&receiver.end().good());
        assert_eq!(told.layouts.len(), 1);
        assert_eq!(
            (told.absent_packets, told.unknown_packets, told.stale_packets),
            (0, 0, 0)
        );
        let rx = layout(&told, "ringside_rx");
        assert!(rx.packets >= 450, "{rx:#?}");
        let time = field(rx, "rx_ktime");
        assert!(unsigned(time.min) > 0 && unsigned(time.max) > unsigned(time.min));
        assert_eq!(unsigned(field(rx, "rx_queue").max), 0);
        assert!(unsigned(field(rx, "packet").max) >= rx.packets / 4, "{rx:#?}");
        assert_clean(&lab.b);
    }
}

#[test]
fn a_program_of_the_users_is_read_by_its_own_types() {
    if !is_root() {
        return;
    }
    for mode in MODES {
        let lab = lab("rxuser", 1);
        let options = format!("rx {{}} -m {mode} --program {} --hints -w poll", EXAMPLE_FILE);
        for json in ["--json", ""] {
            let receiver = start(&lab.b, &format!("{options} --count 400 {json}"));
            receiver.wait_for("XDP program hints id");
            for size in [64, 300] {
                let sent = format!("tx {{}} --to {} --count 200 --rate 20000 --size {size}", lab.b.ipv4);
                run(&lab.a, &sent).good();
            }
            let done = receiver.end().good();
            if json.is_empty() {
                assert!(done.out.contains("hints rx_mark (id "), "{done:#?}");
                assert!(done.out.contains("rx_ktime"), "{done:#?}");
                continue;
            }
            let told = hints(&done);
            let (mark, time) = (layout(&told, "rx_mark"), layout(&told, "rx_time"));
            assert!(mark.packets >= 150 && time.packets >= 150, "{told:#?}");
            let number = field(mark, "mark");
            assert_eq!((unsigned(number.min), unsigned(number.max)), (42, 42));
            assert!(unsigned(field(time, "rx_ktime").min) > 0);
            assert_eq!(
                (told.absent_packets, told.unknown_packets, told.stale_packets),
                (0, 0, 0)
            );
        }
        assert_clean(&lab.b);
    }
}

#[test]
fn files_that_are_no_program_are_refused() {
    if !is_root() {
        return;
    }
    let lab = lab("rxbad", 1);
    let missing = run(&lab.b, "rx {} --program /nonexistent.o -t 1").refused();
    assert!(missing.contains("/nonexistent.o"), "{missing}");
    let other = run(
        &lab.b,
        &format!("rx {{}} --program {} -t 1", env!("CARGO_BIN_EXE_ringside")),
    )
    .bad();
    assert!(other.contains("ringside"), "{other}");
    let name = format!("rx {{}} --program {} --program-name nothing -t 1", EXAMPLE_FILE);
    let unknown = run(&lab.b, &name).refused();
    assert!(unknown.contains("no XDP program nothing, but hints"), "{unknown}");
    let both = run(
        &lab.b,
        &format!("rx {{}} --program {} --filter none -t 1", EXAMPLE_FILE),
    )
    .refused();
    assert!(both.contains("--filter"), "{both}");
    assert_clean(&lab.b);
}
