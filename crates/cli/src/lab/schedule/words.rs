//! The command lines of `ringside listener` and `ringside talker`, wherever they run.

use ringside_measure::control::ScheduleEnd;

use super::Kept;
use crate::run::streams::PtpArgs;

/// What an end is called.
pub(crate) fn program(end: &ScheduleEnd) -> &'static str {
    match end.talks {
        Some(_) => "ringside talker",
        None => "ringside listener",
    }
}

/// The words behind `ringside`.
pub(crate) fn of(end: &ScheduleEnd, interface: &str, kept: Option<&Kept>, ptp: &PtpArgs) -> Vec<String> {
    let mut words = Vec::new();
    let mut say = |all: &[&str]| words.extend(all.iter().map(|word| (*word).to_owned()));
    let command = if end.talks.is_some() { "talker" } else { "listener" };
    say(&[command, interface, "--json", "--via", &end.via]);
    say(&[
        "--cycle",
        &format!("{}ns", end.cycle_ns),
        "--class",
        &end.classes.join(","),
    ]);
    if let Some(cpu) = end.cpu {
        say(&["--cpus", &cpu.to_string()]);
    }
    if end.via == "af-xdp" {
        say(&["--mode", "native"]);
    }
    match &end.talks {
        None => say(&["--wait", if end.spins { "spin" } else { "poll" }]),
        Some(talk) => {
            let seconds = std::time::Duration::from_nanos(talk.duration_ns)
                .as_secs_f64()
                .to_string();
            say(&["--to-mac", &talk.to_mac, "-t", &seconds, "--qdisc", &talk.qdisc]);
            if end.spins {
                say(&["--spin"]);
            }
        }
    }
    if let Some(kept) = kept {
        say(&["--arrivals", &kept.path()]);
    }
    words.extend(ptp.words());
    words
}
