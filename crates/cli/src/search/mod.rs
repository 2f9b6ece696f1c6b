//! `ringside search`: the rates that a path sustains, and what packets meet at them.

mod args;
mod capacity;
mod echo;
mod estimate;
mod path;
mod repeat;
mod table;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressStyle};
use ringside_measure::rate::wire_bits;
use ringside_measure::schema::{
    BurstRecord, FoundRate, Interface, LatencyAt, LatencyKind, Outcome as Kind, SearchResult, SearchTable,
    StabilityRecord, TrialRecord,
};
use ringside_measure::search::{BackToBack, Binary, Goal, LossCurve, Mlr, Range, Search, Stability, Trial};
use ringside_netlab::{Lab, VethConfig};

pub(crate) use args::Args;

use crate::args::Peer;
use crate::stop::Stop;
use crate::{output, pin, serve, session, system};
use args::{Method, Mix};
use echo::Echo;
use path::{Done, Path};
use repeat::Repeats;

/// Trials at the lowest rate, before anything is searched.
const STABILITY_TRIALS: u32 = 10;

pub(crate) fn run(args: &Args) -> Result<()> {
    args.check()?;
    output::check(&args.output)?;
    let stop = Stop::on_signals()?;
    if args.lab.is_none() {
        return search(args, None, &stop);
    }
    let lab = Lab::veth(VethConfig {
        ipv6: false,
        gro: true,
        ..VethConfig::tagged("search")
    })
    .context("building the test bed")?;
    let mut args = args.clone();
    args.port.interface = lab.a.interface.name().to_owned();
    args.flow.to = Some(Peer::Ip(lab.b.ipv4.into()));
    let echo = Echo::start(&lab.b)?;
    lab.a.run(|| search(&args, Some(&echo), &stop))
}

/// `echo`: the process at the other end, if it is on this host.
fn search(args: &Args, echo: Option<&Echo>, stop: &Stop) -> Result<()> {
    let mut path = Path::open(args, stop)?;
    // This thread spins, whatever --wait says.
    let beside = echo.map_or_else(|| path.spinning_here(), Echo::threads);
    session::warn_of_spinning(&args.port, 1, beside)?;
    let (mixes, raised) = args.mixes(path.smallest());
    if raised {
        output::note(format_args!(
            "a probe takes {} bytes: smaller packets are raised to that",
            path.smallest()
        ));
    }
    let mut packets = mixes.iter().map(|mix| path.packets(mix)).collect::<Result<Vec<_>>>()?;
    let mut searcher = Searcher {
        args,
        path: &mut path,
        stop,
        ends: Instant::now() + args.time,
        range: args.range()?,
        bar: bar(),
        trials: 0,
        trial_ns: 0,
        repeats: Repeats::watch(echo.map(Echo::pid)),
    };
    // All trials are this thread's.
    pin::thread(&args.port, 0)?;
    if let Some(time) = estimate::time(args)? {
        output::note(format_args!(
            "takes about {} if nothing disturbs it, and no longer than {}",
            seconds(time),
            seconds(args.time)
        ));
    }
    let mut tables = Vec::new();
    let mut interrupted = false;
    let ends = searcher.ends;
    let wait = searcher.repeats.cpu_wait();
    for (number, (mix, packets)) in mixes.iter().zip(&mut packets).enumerate() {
        // What one leaves of its share is for those behind it.
        let left = u32::try_from(mixes.len() - number).unwrap_or(u32::MAX);
        searcher.ends = Instant::now() + ends.saturating_duration_since(Instant::now()) / left;
        let table = searcher.table(mix, packets);
        tables.push(table.map_err(|error| searcher.path.explain(error))?);
        interrupted |= searcher.is_over();
    }
    searcher.bar.finish_and_clear();
    let result = SearchResult {
        cpu_wait_percent: wait.share().map(|share| share * 100.0),
        method: match args.method {
            Method::Mlr => "mlr".to_owned(),
            Method::Rfc2544 => "rfc2544".to_owned(),
            Method::Rfc9097 => "rfc9097".to_owned(),
        },
        min_pps: searcher.range.min_pps(),
        max_pps: searcher.range.max_pps(),
        kind: if path.there_and_back() {
            LatencyKind::RoundTrip
        } else {
            LatencyKind::OneWay
        },
        interrupted,
        tables,
    };
    let interfaces: Vec<Interface> = path
        .ports()
        .map(|port| {
            Ok(system::interface(
                port.interface(),
                &session::link(port)?,
                Some(port.report()),
            ))
        })
        .collect::<Result<_>>()?;
    let answers = path.check_answers(args);
    let far = path.finish();
    drop(path);
    let nothing = result.tables.iter().all(|table| table.trials == 0);
    let document = system::document_with(interfaces, Kind::Search(result), far.clone());
    let text = table::render(&document, args.verbose);
    output::deliver_run(&args.output, &document, &text, !args.verbose)?;
    serve::lost(far.as_ref())?;
    if nothing {
        anyhow::bail!("no trial was run: it was ended before the first one");
    }
    answers
}

fn seconds(time: Duration) -> String {
    format!("{:.0} s", time.as_secs_f64().max(1.0))
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg}").expect("a constant template");
    ProgressBar::new_spinner().with_style(style)
}

/// Runs searches trial by trial.
struct Searcher<'a> {
    args: &'a Args,
    path: &'a mut Path,
    stop: &'a Stop,
    ends: Instant,
    range: Range,
    bar: ProgressBar,
    trials: u64,
    trial_ns: u64,
    repeats: Repeats,
}

impl Searcher<'_> {
    fn is_over(&self) -> bool {
        self.stop.is_set() || Instant::now() >= self.ends
    }

    fn table(&mut self, mix: &Mix, packets: &mut [Vec<u8>]) -> Result<SearchTable> {
        (self.trials, self.trial_ns) = (0, 0);
        self.repeats.begin();
        let mut table = SearchTable {
            name: mix.name.clone(),
            frame_bytes: mix.sizes.clone(),
            wire_bytes: mix
                .sizes
                .iter()
                .map(|&size| wire_bits(u64::from(size)) as f64 / 8.0)
                .sum::<f64>()
                / mix.sizes.len() as f64,
            ..SearchTable::default()
        };
        if self.args.method == Method::Rfc9097 {
            self.capacity(&mut table, packets)?;
            return Ok(table);
        }
        self.warm_up(packets)?;
        let goals = self.args.goals();
        let stable = self.stability(&mut table, packets)?;
        let least = goals.iter().map(|goal| goal.exceed_ratio).fold(1.0, f64::min);
        if self.path.check_answers(self.args).is_err() {
            table.refused = Some("no packet came out of the path at the lowest rate".to_owned());
        } else if stable > least && !self.args.even_if_unstable {
            table.refused = Some(format!(
                "packets are lost in {:.0} % of the trials at the lowest rate: a highest rate without loss would be chance. Look for who loses them \
                 (ringside doctor, tune), allow loss (--loss), or search all the same (--even-if-unstable)",
                stable * 100.0
            ));
        } else if !self.is_over() {
            table.goals = self.rates(&goals, &table, packets)?;
            self.further(&mut table, packets)?;
        }
        (table.trials, table.trial_time_ns) = (self.trials, self.trial_ns);
        table.repeated_trials = self.repeats.count();
        Ok(table)
    }

    fn capacity(&mut self, table: &mut SearchTable, packets: &mut [Vec<u8>]) -> Result<()> {
        self.bar.set_message("going by the far end's reports");
        self.bar.tick();
        let begun = Instant::now();
        let found = capacity::find(self.path, packets, self.range.max_pps(), self.args.pieces, self.stop)?;
        self.path.received += found.received_packets;
        (table.trials, table.trial_time_ns) = (1, session::nanos(begun.elapsed()));
        table.capacity = Some(found);
        Ok(())
    }

    /// The first packets of a path are slow: caches, tables of neighbours and flows.
    fn warm_up(&mut self, packets: &mut [Vec<u8>]) -> Result<()> {
        let trial = Trial {
            load_pps: self.range.min_pps(),
            duration_ns: 50_000_000,
        };
        self.trial(trial, packets, "warming up").map(drop)
    }

    /// The share of trials at the lowest rate that lose more than the most lenient goal allows.
    fn stability(&mut self, table: &mut SearchTable, packets: &mut [Vec<u8>]) -> Result<f64> {
        let trial = self.args.stability_trial(self.range);
        let mut check = Stability::new(trial, STABILITY_TRIALS)?;
        let most = self.args.goals().iter().map(|goal| goal.loss_ratio).fold(0.0, f64::max);
        self.drive(&mut check, packets, most, "stability at the lowest rate")?;
        table.stability = Some(StabilityRecord::of(trial.load_pps, &check.result(0.0)));
        Ok(check.result(most).bad_ratio())
    }

    fn rates(&mut self, goals: &[Goal], table: &SearchTable, packets: &mut [Vec<u8>]) -> Result<Vec<FoundRate>> {
        let found = |goal: &Goal| FoundRate {
            loss_percent: goal.loss_ratio * 100.0,
            lower_pps: None,
            upper_pps: None,
            throughput_pps: None,
            wire_bps: None,
            finished: false,
            limited_by_sender: false,
            latency: Vec::new(),
        };
        let mut rates = Vec::new();
        match self.args.method {
            Method::Mlr => {
                let mut search = Mlr::new(self.range, goals.to_vec())?;
                // All goals at once: one that fails only the strictest is not to fail it by chance.
                let strictest = goals.iter().map(|goal| goal.loss_ratio).fold(1.0, f64::min);
                self.drive(&mut search, packets, strictest, "searching")?;
                for result in search.results() {
                    rates.push(FoundRate {
                        lower_pps: result.lower.map(|bound| bound.load_pps),
                        upper_pps: result.upper.map(|bound| bound.load_pps),
                        throughput_pps: result.throughput_pps,
                        finished: result.finished,
                        limited_by_sender: result.limited_by_sender(),
                        ..found(&result.goal)
                    });
                }
            }
            Method::Rfc2544 => {
                for goal in goals {
                    let mut search = Binary::new(
                        self.range,
                        goal.loss_ratio,
                        goal.width,
                        self.args.verify,
                        goal.final_trial_ns,
                    )?;
                    self.drive(&mut search, packets, goal.loss_ratio, "searching")?;
                    let result = search.result();
                    rates.push(FoundRate {
                        lower_pps: result.throughput_pps,
                        upper_pps: result.failed_pps,
                        throughput_pps: result
                            .throughput_pps
                            .zip(result.passed)
                            .map(|(load, passed)| load as f64 * (1.0 - passed.loss_ratio())),
                        finished: result.finished,
                        limited_by_sender: result.limited_by_sender(),
                        ..found(goal)
                    });
                }
            }
            // It has no goals: see `capacity`.
            Method::Rfc9097 => {}
        }
        for rate in &mut rates {
            rate.wire_bps = rate.throughput_pps.map(|pps| pps * table.wire_bytes * 8.0);
            let timed = !self.args.no_latency && !self.path.counts_there();
            if let Some(lower) = rate.lower_pps.filter(|_| timed) {
                rate.latency = self.latencies(lower, packets)?;
            }
        }
        Ok(rates)
    }

    fn latencies(&mut self, rate: u64, packets: &mut [Vec<u8>]) -> Result<Vec<LatencyAt>> {
        let mut all = Vec::new();
        for &percent in &self.args.latency_at {
            if self.is_over() {
                break;
            }
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a part of a rate"
            )]
            let load_pps = ((rate as f64 * percent / 100.0) as u64).max(1);
            let trial = Trial {
                load_pps,
                duration_ns: self.args.trial_ns(),
            };
            let done = self.trial(trial, packets, "latency")?;
            all.push(LatencyAt {
                percent,
                trial: TrialRecord::of(trial, done.outcome),
                raw: done.rtt.raw().summary(),
                corrected: done.rtt.corrected().summary(),
                corrected_hdr: done.rtt.corrected().to_hdr(),
            });
        }
        Ok(all)
    }

    /// Curve, bursts and soak, where asked for.
    fn further(&mut self, table: &mut SearchTable, packets: &mut [Vec<u8>]) -> Result<()> {
        let found = table.goals.first();
        let (rate, throughput) = (
            found.and_then(|goal| goal.lower_pps),
            found.and_then(|goal| goal.throughput_pps),
        );
        if self.args.curve && !self.is_over() {
            // From what can be sent and is lost downwards: twice the rate that was found, or all that was tried.
            let most = rate.map_or(self.range.max_pps(), |rate| {
                rate.saturating_mul(2).min(self.range.max_pps())
            });
            let range = Range::new(1, most.max(2))?;
            let mut curve = LossCurve::new(range, 10, self.args.trial_ns())?;
            self.drive(&mut curve, packets, 0.0, "loss curve")?;
            table.curve = curve
                .points()
                .iter()
                .map(|point| TrialRecord::of(point.trial, point.outcome))
                .collect();
        }
        if let Some(searches) = self.args.burst.filter(|_| !self.is_over()) {
            let rate_pps = self.range.max_pps();
            let mut bursts = BackToBack::new(rate_pps, (rate_pps * 2).clamp(64, 1 << 20), searches, self.args.verify)?;
            self.drive(&mut bursts, packets, 0.0, "bursts")?;
            table.burst = bursts
                .result()
                .map(|found| BurstRecord::of(rate_pps, &found, throughput));
        }
        if let (Some(time), Some(load_pps)) = (self.args.soak, rate)
            && !self.is_over()
        {
            let trial = Trial {
                load_pps,
                duration_ns: session::nanos(time),
            };
            table.soak = Some(TrialRecord::of(trial, self.trial(trial, packets, "soak")?.outcome));
        }
        Ok(())
    }

    /// Runs the trials of a search. Those that lose no more than `loss_ratio` pass.
    fn drive(&mut self, search: &mut impl Search, packets: &mut [Vec<u8>], loss_ratio: f64, what: &str) -> Result<()> {
        while let Some(trial) = search.wanted().filter(|_| !self.is_over()) {
            let done = self.trial(trial, packets, what)?;
            if self.stop.is_set() {
                // It was cut short: what it lost says nothing.
                break;
            }
            if self.repeats.wants(&done.outcome, loss_ratio) {
                continue;
            }
            search.record(done.outcome);
        }
        Ok(())
    }

    fn trial(&mut self, trial: Trial, packets: &mut [Vec<u8>], what: &str) -> Result<Done> {
        self.bar.set_message(format!(
            "{what}: {} packets/s for {:.2} s",
            output::count(trial.load_pps as f64),
            Duration::from_nanos(trial.duration_ns).as_secs_f64()
        ));
        self.bar.tick();
        self.repeats.trial_begins();
        let done = self.path.run(trial, packets, self.stop)?;
        self.repeats.trial_ends();
        self.trials += 1;
        self.trial_ns += trial.duration_ns;
        Ok(done)
    }
}
