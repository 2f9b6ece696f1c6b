use clap::Parser as _;

use super::super::text::InWords;
use super::*;
use crate::args::{Cli, Command};

fn args(line: &str) -> ImpairArgs {
    let words = format!("ringside impair a,b {line}");
    match Cli::try_parse_from(words.split_whitespace()).unwrap().command {
        Command::Impair(args) => *args,
        other => panic!("{other:?}"),
    }
}

fn refused(line: &str) -> String {
    let words = format!("ringside impair a,b {line}");
    Cli::try_parse_from(words.split_whitespace()).unwrap_err().to_string()
}

#[test]
fn values_are_for_both_directions_or_for_one() {
    let args = args(
        "--loss 1% --loss back=every:7 --delay there=2ms --jitter 200us --rate back=100mbit --limit 5 --reorder 2%:3",
    );
    let [there, back] = args.settings();
    assert_eq!((there.loss, back.loss), (Pick::Share(0.01), Pick::Every(7)));
    assert_eq!((there.delay_ns, back.delay_ns), (2_000_000, 0));
    assert_eq!((there.jitter_ns, there.spread), (200_000, Spread::Uniform));
    assert_eq!((there.reorder, there.reorder_by), (Pick::Share(0.02), 3));
    let rate = Rate {
        per_second: 100_000_000,
        unit: Unit::Bits,
        queue: 5,
    };
    assert_eq!((there.rate, back.rate), (None, Some(rate)));
    assert_eq!(
        InWords(&there).to_string(),
        "loss 1%, delay 2ms ± 200µs, 2% held back by 3"
    );
}

#[test]
fn the_other_direction_is_left_alone() {
    let [there, back] = args("--loss 1% --only back").settings();
    assert_eq!((there, back.loss), (Settings::default(), Pick::Share(0.01)));
    assert_eq!(InWords(&args("").settings()[0]).to_string(), "as it comes");
}

#[test]
fn bursts_and_normal_jitter() {
    let settings = &args("--loss burst:1%,25% --corrupt burst:1%,25%,50%,0.5% --reorder every:9:2 --delay 1ms --jitter normal:5ms --overtaking").settings()[0];
    let bursts = |bad, good| Pick::Bursts {
        enter: 0.01,
        leave: 0.25,
        bad,
        good,
    };
    assert_eq!(
        (settings.loss, settings.corrupt),
        (bursts(1.0, 0.0), bursts(0.5, 0.005))
    );
    assert_eq!((settings.reorder, settings.reorder_by), (Pick::Every(9), 2));
    assert_eq!((settings.spread, settings.overtaking), (Spread::Normal, true));
    assert_eq!(
        InWords(settings).to_string(),
        "loss burst:1%,25%,100%,0%, corruption burst:1%,25%,50%,0.5%, delay 1ms normally ± 5ms, overtaking, every:9 held back by 2"
    );
}

#[test]
fn memory_is_what_rate_and_delay_come_to() {
    let hold = |line: &str| {
        let args = args(line);
        args.hold(&args.settings())
    };
    // The second where memory is short.
    assert_eq!(hold("").unwrap(), [4096, 1024]);
    assert_eq!(hold("--delay 60s").unwrap(), [4096, 1024]);
    assert_eq!(
        hold("--rate 1000000pps --delay 9ms --jitter 1ms --limit 100").unwrap(),
        [10_102; 2]
    );
    // 9 Mbit are 743 packets of 1514 bytes.
    let bits = hold("--rate 90mbit --delay 100ms --limit 4000").unwrap();
    assert_eq!(bits, [4_745; 2]);
    let pps = hold("--rate 1000pps --delay 1ms --limit 10").unwrap();
    assert_eq!(pps, [4096, 1024]);
    let chosen = hold("--rate 1000pps --delay 1ms --limit 10 --hold 20").unwrap();
    assert_eq!(chosen, [20; 2]);
    let error = hold("--rate 100000pps --delay 1s --hold 5000").unwrap_err().to_string();
    assert!(
        error.contains("--hold 5000") && error.contains("give --hold 101002"),
        "{error}"
    );
    let error = hold("--rate 1000000000pps --delay 60s").unwrap_err().to_string();
    assert!(error.contains("give less"), "{error}");
}

#[test]
fn two_interfaces() {
    let of = |text: &str| {
        let mut args = args("");
        text.clone_into(&mut args.port.interface);
        args.interfaces().map(|names| names.map(str::to_owned))
    };
    assert_eq!(of("a,b").unwrap(), ["a", "b"]);
    for wrong in ["a", "a,", ",b", "a,b,c", "", "a,a"] {
        let error = of(wrong).unwrap_err().to_string();
        assert!(error.contains("two interfaces"), "{error}");
    }
}

#[test]
fn nonsense_is_refused_with_what_to_write() {
    for (line, hint) in [
        ("--loss 1", "write 0.5%"),
        ("--loss 101%", "from 0% to 100%"),
        ("--loss=-1%", "from 0% to 100%"),
        ("--loss every:0", "from 1 on"),
        ("--loss burst:1%", "two to four"),
        ("--loss here=1%", "there=… or back=…"),
        ("--reorder 1%", "1%:3"),
        ("--reorder every:100", "every:100:3"),
        ("--reorder 1%:0", "from 1"),
        ("--delay 2", "250us"),
        ("--delay 61s", "0us to 60s"),
        ("--jitter normal:x", "250us"),
        ("--rate 100", "100mbit"),
        ("--rate 0pps", "from 1"),
        ("--match tcp", "udp:PORT"),
        ("--match udp:0", "65535"),
        ("--hold 0", "--hold"),
        ("--only up", "there"),
    ] {
        let error = refused(line);
        assert!(error.contains(hint), "{line}: {error}");
    }
}
