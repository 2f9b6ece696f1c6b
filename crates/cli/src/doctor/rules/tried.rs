//! What came of binding queues and sending packets.

use std::collections::BTreeMap;

use ringside_measure::schema::Mode;
use ringside_nic::XdpFeatures;

use super::super::facts::Nic;
use super::super::finding::Findings;
use super::super::tried::{Answerer, Answers, Outcome, Test, Try};
use super::queues;
use crate::output::mode_name;

/// The pair is ours and everything on it: what does not work there works nowhere on this machine.
pub(super) fn judge_veth(test: &Test, findings: &mut Findings<'_>) {
    if let Some(failure) = &test.failure {
        findings.warning(
            "veth.test",
            format!("the test on a veth pair could not be made: {failure}"),
            "so nothing here says whether AF_XDP works; it takes root (CAP_SYS_ADMIN and CAP_NET_ADMIN)",
        );
    }
    for (mode, tries) in by_mode(test) {
        // No driver of virtual links has it.
        let expected = mode == Mode::ZeroCopy;
        let (good, bad) = split(&tries);
        if !good.is_empty() {
            findings.ok("veth.echo", echoed(mode, &good));
        }
        for tried in bad {
            let what = told(tried);
            match &tried.outcome {
                Outcome::Refused { of_mode: true, .. } if expected => {
                    findings.ok("veth.echo", format!("zero-copy: {ONLY_NICS}"));
                }
                _ => {
                    findings.error(
                        "veth.echo",
                        what,
                        "this is the machine itself, without any NIC or its driver: look at the kernel's log (dmesg)",
                    );
                }
            }
            if expected {
                break;
            }
        }
    }
    flows(test, findings);
}

const ONLY_NICS: &str = "not on a veth pair, only with drivers of NICs";

fn flows(test: &Test, findings: &mut Findings<'_>) {
    if test.flows.is_empty() {
        return;
    }
    let mut came: BTreeMap<u32, usize> = BTreeMap::new();
    let lost: Vec<_> = test.flows.iter().filter(|seen| seen.queue.is_none()).collect();
    for queue in test.flows.iter().filter_map(|seen| seen.queue) {
        *came.entry(queue).or_default() += 1;
    }
    if !lost.is_empty() {
        let lost: Vec<_> = lost.iter().map(|seen| seen.flow.as_str()).collect();
        findings.error(
            "veth.flows",
            format!("packets of the kernel's sockets did not come: {}", lost.join(", ")),
            "all queues were bound, so each of them should have",
        );
        return;
    }
    let came: Vec<_> = came
        .iter()
        .map(|(queue, flows)| format!("{flows} to queue {queue}"))
        .collect();
    findings.ok(
        "veth.flows",
        format!(
            "of {} flows of the kernel's sockets came {}: bind all queues, or see only a part",
            test.flows.len(),
            came.join(", ")
        ),
    );
}

/// On somebody's interface: what its driver said it can has to work.
pub(super) fn judge_live(test: &Test, nic: &Nic, findings: &mut Findings<'_>) {
    if let Some(failure) = &test.failure {
        findings.error(
            "live.test",
            format!("the test of {} was not finished: {failure}", nic.name),
            "what is told of it is what it told until then",
        );
    }
    for (mode, tries) in by_mode(test) {
        let (good, bad) = split(&tries);
        if !good.is_empty() {
            findings.ok("live.mode", echoed(mode, &good));
        }
        for group in alike(&bad) {
            judge_failure(&group, mode, nic, findings);
        }
    }
    match &test.left_behind {
        Some(left) => {
            findings.error(
                "live.left",
                format!("{} is not as it was before: {left}", nic.name),
                "the test puts everything back, and so does its end: please report it",
            );
        }
        None if !test.tries.is_empty() => findings.ok("live.left", "everything is as it was before"),
        None => {}
    }
}

/// Queues of one mode with the same outcome are told together.
fn judge_failure(group: &[&Try], mode: Mode, nic: &Nic, findings: &mut Findings<'_>) {
    let features = nic.device.xdp_features;
    let offered = |flag| features.is_none_or(|set| set.contains(flag));
    let bad: Vec<u32> = group.iter().map(|tried| tried.queue).collect();
    let first = group[0];
    match &first.outcome {
        Outcome::Refused { reason, of_mode: false } => {
            findings.error(
                "live.refused",
                format!("{}: {reason}", queues(&bad)),
                "like that no mode can be had; nothing was changed, or taken from anybody",
            );
        }
        Outcome::Refused { .. } if mode == Mode::ZeroCopy && !offered(XdpFeatures::XSK_ZEROCOPY) => {
            findings.ok("live.mode", "zero-copy: refused, as the driver does not offer it");
        }
        Outcome::Refused { .. } if mode == Mode::NativeCopy && !offered(XdpFeatures::BASIC) => {
            findings.ok("live.mode", "native copy: refused, as the driver does not offer it");
        }
        Outcome::Refused { reason, .. } => {
            let what = format!("{}, {}: refused: {reason}", mode_name(mode), queues(&bad));
            match mode {
                Mode::Generic => findings.error("live.mode", what, "generic mode asks nothing of a driver"),
                _ => findings.warning(
                    "live.mode",
                    what,
                    "the driver may have this mode, but not like that: its limits (channels, MTU, offloads) are often in dmesg",
                ),
            };
        }
        Outcome::Failed { .. } => {
            findings.error(
                "live.mode",
                told(first),
                "the queue can be bound, but is of no use like that",
            );
        }
        Outcome::Asked(answers) => {
            let what = told(first);
            match answers.answered {
                0 => findings.warning(
                    "live.echo",
                    what,
                    "either nothing was sent, or the peer answers neither `ringside echo` probes nor ICMP, or the answers do \
                     not come back: try with a peer that answers ping",
                ),
                _ => findings.warning("live.echo", what, "packets are lost at one at a time: look at the link's counters (ip -s link)"),
            };
        }
        Outcome::Sent => {}
    }
}

/// Whether nobody was asked to answer.
pub(super) fn without_peer(test: &Test) -> bool {
    !test
        .tries
        .iter()
        .any(|tried| matches!(tried.outcome, Outcome::Asked(_)))
}

fn by_mode(test: &Test) -> Vec<(Mode, Vec<&Try>)> {
    [Mode::ZeroCopy, Mode::NativeCopy, Mode::Generic]
        .into_iter()
        .map(|mode| {
            (
                mode,
                test.tries.iter().filter(|tried| tried.mode == mode).collect::<Vec<_>>(),
            )
        })
        .filter(|(_, tries)| !tries.is_empty())
        .collect()
}

fn split<'a>(tries: &[&'a Try]) -> (Vec<&'a Try>, Vec<&'a Try>) {
    tries.iter().copied().partition(|tried| tried.works())
}

/// Those that were refused for the same reason together, but for the queue in it.
fn alike<'a>(bad: &[&'a Try]) -> Vec<Vec<&'a Try>> {
    let mut groups: Vec<Vec<&Try>> = Vec::new();
    for tried in bad {
        let refused = |other: &Try| matches!(tried.outcome, Outcome::Refused { .. }) && other.outcome == tried.outcome;
        match groups.iter_mut().find(|group| refused(group[0])) {
            Some(group) => group.push(tried),
            None => groups.push(vec![tried]),
        }
    }
    groups
}

/// What works, in a line.
fn echoed(mode: Mode, good: &[&Try]) -> String {
    let bound: Vec<u32> = good.iter().map(|tried| tried.queue).collect();
    let mut text = format!("{}: {} bound", mode_name(mode), queues(&bound));
    let asked: Vec<(u32, &Answers)> = good
        .iter()
        .filter_map(|tried| match &tried.outcome {
            Outcome::Asked(answers) => Some((tried.queue, answers)),
            _ => None,
        })
        .collect();
    let Some((_, first)) = asked.first() else {
        text.push_str(", a frame sent from each");
        return text;
    };
    text.push_str(&match first.by {
        Answerer::Echo => format!(", {} of {} packets echoed on each", first.answered, first.sent),
        Answerer::Icmp => format!(
            ", {} of {} ICMP requests answered, past our program",
            first.answered, first.sent
        ),
    });
    let times: Vec<_> = asked.iter().filter_map(|(_, answers)| answers.median_rtt_ns).collect();
    if let (Some(least), Some(most)) = (times.iter().min(), times.iter().max()) {
        let (least, most) = (micros(*least), micros(*most));
        text.push_str(&match least == most {
            true => format!(", median round trip {least} µs"),
            false => format!(", median round trips {least} to {most} µs"),
        });
    }
    let elsewhere: Vec<_> = asked
        .iter()
        .filter(|(queue, answers)| answers.came_to.iter().any(|came| came.queue != *queue))
        .map(|(queue, answers)| {
            let came: Vec<u32> = answers.came_to.iter().map(|came| came.queue).collect();
            format!("those from queue {queue} come to {}", queues(&came))
        })
        .collect();
    if !elsewhere.is_empty() {
        text.push_str(&format!("; {}", elsewhere.join(", ")));
    }
    text
}

fn micros(nanos: u64) -> u64 {
    (nanos + 500) / 1000
}

/// What does not work, in a line.
fn told(tried: &Try) -> String {
    let what = match &tried.outcome {
        Outcome::Refused { reason, .. } => format!("refused: {reason}"),
        Outcome::Failed { reason } => format!("bound, but: {reason}"),
        Outcome::Sent => "a frame sent".to_owned(),
        Outcome::Asked(answers) => format!("{} of {} packets came back", answers.answered, answers.sent),
    };
    format!("{}, queue {}: {what}", mode_name(tried.mode), tried.queue)
}

#[cfg(test)]
#[path = "tried_tests.rs"]
mod tests;
