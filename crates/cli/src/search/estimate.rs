//! How long a search takes.

use std::time::Duration;

use anyhow::Result;
use ringside_measure::search::{Binary, Mlr, Outcome, Range, Search, Trial};

use super::STABILITY_TRIALS;
use super::args::{Args, Method};

/// Returns how long the search takes if no trial is disturbed: it is run on a modelled path, without
/// sending anything. `None` for what goes on until it has seen enough.
pub(super) fn time(args: &Args) -> Result<Option<Duration>> {
    if args.method == Method::Rfc9097 || args.burst.is_some() {
        return Ok(None);
    }
    let range = args.range()?;
    let mut path = Model {
        capacity_pps: range.min_pps().midpoint(range.max_pps()),
        drain: args.drain,
        time: Duration::ZERO,
    };
    match args.method {
        Method::Mlr => path.run(&mut Mlr::new(range, args.goals())?),
        _ => {
            for goal in args.goals() {
                path.run(&mut Binary::new(
                    range,
                    goal.loss_ratio,
                    goal.width,
                    args.verify,
                    goal.final_trial_ns,
                )?);
            }
        }
    }
    let trial = Duration::from_nanos(args.trial_ns());
    let stability = args.stability_trial(range);
    let latencies = if args.no_latency || args.is_one_way() {
        0
    } else {
        args.latency_at.len() * args.goals().len()
    };
    let further = args.soak.unwrap_or_default() + if args.curve { trial * 10 } else { Duration::ZERO };
    let one = path.time
        + Duration::from_nanos(stability.duration_ns) * STABILITY_TRIALS
        + trial * u32::try_from(latencies).unwrap_or(u32::MAX)
        + further;
    let (mixes, _) = args.mixes(0);
    Ok(Some(one * u32::try_from(mixes.len()).unwrap_or(u32::MAX)))
}

/// A path that forwards so many packets a second, and loses a few from four fifths of that on, so that
/// goals have different rates.
struct Model {
    capacity_pps: u64,
    drain: Duration,
    /// What the trials would have taken.
    time: Duration,
}

impl Model {
    fn run(&mut self, search: &mut impl Search) {
        while let Some(trial) = search.wanted() {
            self.time += Duration::from_nanos(trial.duration_ns);
            let through = Trial {
                load_pps: trial.load_pps.min(self.capacity_pps),
                ..trial
            };
            let few = match through.load_pps > self.capacity_pps / 5 * 4 {
                true => through.packets().div_ceil(500),
                false => 0,
            };
            let outcome = Outcome {
                intended: trial.packets(),
                sent: trial.packets(),
                received: through.packets() - few,
            };
            // The last packets are waited for.
            if outcome.lost() != 0 {
                self.time += self.drain;
            }
            search.record(outcome);
        }
    }
}

impl Args {
    /// A trial at the lowest rate: of ten packets at least.
    pub(super) fn stability_trial(&self, range: Range) -> Trial {
        let load_pps = range.min_pps();
        Trial {
            load_pps,
            duration_ns: (self.trial_ns() / 5).max(10_000_000_000_u64.div_ceil(load_pps)),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn estimate(options: &str) -> Option<Duration> {
        let options = ["search", "eth0"].into_iter().chain(options.split_whitespace());
        time(&Command::parse_from(options).args).expect("options that make sense")
    }

    #[test]
    fn a_search_without_options_takes_less_than_a_minute() {
        let time = estimate("").expect("an estimate");
        assert!(
            (Duration::from_secs(20)..Duration::from_secs(55)).contains(&time),
            "{time:?}"
        );
    }

    #[test]
    fn what_is_asked_for_in_addition_takes_longer() {
        let plain = estimate("").expect("an estimate");
        let quick = estimate("--quick").expect("an estimate");
        assert!(quick * 3 < plain, "{quick:?} {plain:?}");
        for more in [
            "--trial 2s",
            "--sizes 100,200",
            "--soak 60s",
            "--method rfc2544 --trial 60s",
        ] {
            let longer = estimate(more).expect("an estimate");
            assert!(longer > plain + plain / 5, "{more}: {longer:?} {plain:?}");
        }
        assert_eq!(estimate("--burst 5"), None);
    }
}
