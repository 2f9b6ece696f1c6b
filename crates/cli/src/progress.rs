//! One line a second on a terminal, nothing when the output goes elsewhere.

use std::fmt::Write as _;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ringside_measure::schema::Interval;

/// Live figures on standard error.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Intervals were asked for: each stays as a line, on whatever standard error is.
    keep: bool,
}

impl Progress {
    pub(crate) fn new(keep: bool) -> Self {
        let target = if keep {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let bar = ProgressBar::with_draw_target(None, target)
            .with_style(ProgressStyle::with_template("{msg}").expect("a constant template"));
        Self { bar, keep }
    }

    pub(crate) fn tick(&self, interval: &Interval) {
        let line = line(interval);
        if self.keep {
            crate::output::note(line);
        } else {
            // Draws it, too.
            self.bar.set_message(line);
        }
    }

    /// A line that stays.
    pub(crate) fn note(&self, text: impl std::fmt::Display) {
        self.bar.suspend(|| crate::output::note(text));
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

#[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
fn line(interval: &Interval) -> String {
    let seconds = interval.duration_ns.max(1) as f64 / 1e9;
    let rate = |packets: u64| crate::output::count(packets as f64 / seconds);
    let at = (interval.start_ns + interval.duration_ns) as f64 / 1e9;
    let mut line = format!(
        "{at:9.2} s   received {:>11} packets/s   sent {:>11} packets/s",
        rate(interval.received_packets),
        rate(interval.sent_packets)
    );
    if let Some(p50) = interval.p50_ns {
        _ = write!(line, "   RTT p50 {:>8.2} µs", p50 as f64 / 1e3);
    }
    line
}
