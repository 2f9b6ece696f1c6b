//! Every option with a time, a count or bytes takes units, and its help says so.

use std::any::TypeId;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Command};
use ringside_xsk::Mode;

use super::{Cli, List};
use crate::config::check;

/// Options whose numbers are no counts, and why.
const NO_COUNTS: [(&[&str], &str); 4] = [
    (&["max-guest-memory"], "MiB, a unit of its own"),
    (
        &["from-port", "load-port", "peer-port", "port", "prometheus", "to-port"],
        "UDP and TCP ports",
    ),
    (
        &[
            "groups",
            "napi-cpu",
            "other-cpu",
            "priority",
            "ptp-domain",
            "queue",
            "seed",
            "send-cpu",
            "session",
            "threaded-napi",
            "version",
            "vlan",
            "vni",
            "watched-by",
        ],
        "the number that something has",
    ),
    (&["max-guests", "max-sessions"], "at most 64"),
];

/// Options whose values have times or counts among other parts, each with such a value.
const PARTS: [(&str, &str); 13] = [
    ("--napi-defer", "2:200us"),
    ("impair --loss", "every:10k"),
    ("impair --duplicate", "back=every:10k"),
    ("impair --corrupt", "every:10k"),
    ("impair --reorder", "every:10k:1k"),
    ("impair --rate", "there=100kpps"),
    ("talker --fault", "omit:5:1k"),
    ("sweep --knob", "batch=64,1k"),
    ("trace --size", "0.5k"),
    ("ping --load-size", "0.5k"),
    ("talker --class", "5:0us:300us:1.5k:0.02k"),
    ("listener --class", "5:0us:300us:1.5k"),
    ("tune --coalesce", "rx-usecs=50us,rx-frames=1k"),
];

const TIMES: [&str; 6] = ["ns", "us", "ms", "s", "min", "h"];
const COUNTS: [&str; 3] = ["k", "M", "G"];

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Time,
    Count,
    Parts(&'static str),
    Other,
}

/// Returns all commands without subcommands, each with its name in full.
fn commands(command: &Command, above: &str) -> Vec<(String, Command)> {
    let name = format!("{above} {}", command.get_name());
    let below: Vec<_> = command
        .get_subcommands()
        .flat_map(|below| commands(below, &name))
        .collect();
    match below.is_empty() {
        true => vec![(name, command.clone())],
        false => below,
    }
}

/// Returns whether the parser of the command line takes a value.
fn takes(command: &Command, arg: &Arg, value: &str) -> bool {
    let long = arg.get_long().unwrap();
    check(command, &OsString::from(format!("--{long}={value}"))).is_ok()
}

/// Returns what the value of an option is, which is named with its command.
fn kind(command: &Command, arg: &Arg, option: &str) -> Kind {
    let long = arg.get_long().unwrap();
    let of = arg.get_value_parser().type_id();
    let is = |types: &[TypeId]| types.iter().any(|one| of == *one);
    if let Some((_, value)) = PARTS.iter().find(|(name, _)| option.ends_with(name)) {
        return Kind::Parts(value);
    }
    let texts = [
        TypeId::of::<String>(),
        TypeId::of::<PathBuf>(),
        TypeId::of::<OsString>(),
    ];
    let lists = [TypeId::of::<List>(), TypeId::of::<Mode>()];
    if NO_COUNTS.iter().any(|(names, _)| names.contains(&long)) || is(&texts) || is(&lists) {
        return Kind::Other;
    }
    if is(&[TypeId::of::<Duration>()]) || takes(command, arg, "7ms") {
        return Kind::Time;
    }
    let integers = [
        TypeId::of::<u8>(),
        TypeId::of::<u16>(),
        TypeId::of::<u32>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
        TypeId::of::<i32>(),
    ];
    match is(&integers) || (arg.get_value_names() != Some(&["PERCENT".into()]) && takes(command, arg, "7")) {
        true => Kind::Count,
        false => Kind::Other,
    }
}

/// Returns whether the help of an option has a number with one of these units.
fn names(arg: &Arg, units: &[&str]) -> bool {
    let help = arg
        .get_help()
        .into_iter()
        .chain(arg.get_long_help())
        .map(ToString::to_string);
    let defaults = arg
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy().into_owned());
    let text = help.chain(defaults).collect::<Vec<_>>().join(" ");
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.')
        .any(|word| {
            let unit = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
            unit.len() < word.len() && units.contains(&unit)
        })
}

#[test]
fn every_time_and_every_count_takes_units_and_names_them() {
    let mut wrong = Vec::new();
    let (mut times, mut counts) = (0, 0);
    for (name, command) in commands(&Cli::definition(), "") {
        let options = command.get_arguments().filter(|arg| arg.get_long().is_some());
        for arg in options.filter(|arg| arg.get_action().takes_values()) {
            let option = format!("{} --{}", name.trim(), arg.get_long().unwrap());
            let (value, units, number) = match kind(&command, arg, &option) {
                Kind::Time => ("7s", &TIMES[..], &mut times),
                // Also within the bounds of what takes at most 64.
                Kind::Count => ("0.06k", &COUNTS[..], &mut counts),
                Kind::Parts(value) => (value, &["us", "k", "kpps"][..], &mut counts),
                Kind::Other => continue,
            };
            *number += 1;
            if !takes(&command, arg, value) {
                wrong.push(format!("{option}: refuses {value}"));
            }
            if !names(arg, units) {
                wrong.push(format!("{option}: its help names no unit"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(times > 50 && counts > 100, "{times} times, {counts} counts");
}
