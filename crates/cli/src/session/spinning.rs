//! Warns of more spinning threads than CPUs: each is kept waiting for milliseconds at a time.

use std::collections::BTreeSet;

use anyhow::Result;

use crate::args::{PortArgs, WaitArg};
use crate::{output, pin};

/// Returns how many of a command's threads spin.
pub(crate) fn spinning(args: &PortArgs, threads: usize) -> u32 {
    match args.wait {
        WaitArg::Poll => 0,
        WaitArg::Spin | WaitArg::BusyPoll => u32::try_from(threads).unwrap_or(u32::MAX),
    }
}

/// Warns if more threads spin than there are CPUs: `own` of this command, and `beside` of its other
/// end on this machine, which is taken to have the same CPUs.
pub(crate) fn warn(args: &PortArgs, own: u32, beside: u32) -> Result<()> {
    let allowed = pin::allowed()?.len();
    let chosen = match &args.cpus {
        Some(chosen) => chosen.0.iter().collect::<BTreeSet<_>>().len(),
        None => allowed,
    };
    if let Some(text) = warning(own, beside, chosen, allowed) {
        output::note(text);
    }
    Ok(())
}

/// `chosen` are the CPUs for this command's threads, `allowed` those for both ends.
fn warning(own: u32, beside: u32, chosen: usize, allowed: usize) -> Option<String> {
    let advice = "--wait poll, or fewer --queues";
    if own as usize > chosen {
        return Some(format!(
            "{own} threads spin on {chosen} CPU(s) and keep each other waiting: use {advice}"
        ));
    }
    let all = own.saturating_add(beside);
    (beside != 0 && all as usize > allowed).then(|| {
        format!(
            "{all} threads spin on {allowed} CPU(s), {beside} of them of the other end, and keep each \
             other waiting: start the other end with {advice}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warns_with_the_sum_of_both_ends_on_one_machine() {
        // Two queues each on two CPUs: a ping has one thread for all.
        let text = warning(1, 2, 2, 2).unwrap();
        assert!(
            text.starts_with("3 threads spin on 2 CPU(s), 2 of them of the other end"),
            "{text}"
        );
        let text = warning(3, 2, 2, 2).unwrap();
        assert!(text.starts_with("3 threads spin on 2 CPU(s) and keep"), "{text}");
        for fine in [(1, 1, 2, 2), (2, 0, 2, 2), (0, 2, 2, 2), (1, 2, 1, 4), (0, 0, 1, 1)] {
            let (own, beside, chosen, allowed) = fine;
            assert_eq!(warning(own, beside, chosen, allowed), None, "{fine:?}");
        }
    }
}
