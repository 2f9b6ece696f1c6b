//! `--until-ci` of a single run: its pieces tell how well its figure is known.

use std::time::Duration;

use ringside_measure::precision::{Estimate, UntilWidth, of_series};
use ringside_measure::schema::{Interval, SeriesEstimate, UntilCi};

use super::nanos;
use crate::args::RunArgs;

/// Decides whether the median of a run's pieces is known well enough.
pub(super) struct Known {
    until: UntilWidth,
    /// What a whole piece takes.
    piece_ns: u64,
    reached: bool,
}

impl Known {
    /// `None` where nobody asked.
    pub(super) fn new(run: &RunArgs, piece: Duration) -> Option<Self> {
        Some(Self {
            until: run.until_ci.clone()?,
            piece_ns: nanos(piece),
            reached: false,
        })
    }

    /// After one more piece.
    pub(super) fn is_reached(&mut self, pieces: &[Interval]) -> bool {
        let (_, values) = figures(pieces, self.piece_ns);
        self.reached = self.until.is_reached(values.len(), || of_series(&values)?.width());
        self.reached
    }

    /// What became of it.
    pub(super) fn result(&self, pieces: &[Interval]) -> UntilCi {
        let (name, values) = figures(pieces, self.piece_ns);
        let estimate = of_series(&values);
        UntilCi {
            estimate: estimate.map(record),
            ..UntilCi::of(
                self.until.width(),
                self.reached,
                name,
                estimate.and_then(|estimate| estimate.width()),
            )
        }
    }
}

fn record(estimate: Estimate) -> SeriesEstimate {
    SeriesEstimate {
        median: estimate.median,
        low: estimate.low,
        high: estimate.high,
        correlation: estimate.correlation,
        pieces: estimate.pieces,
    }
}

/// The median times of the whole pieces, where something is timed; their rates otherwise.
#[allow(clippy::cast_precision_loss, reason = "counts of a piece")]
fn figures(pieces: &[Interval], piece_ns: u64) -> (&'static str, Vec<f64>) {
    let whole = || pieces.iter().filter(|piece| piece.duration_ns >= piece_ns / 10 * 9);
    let times: Vec<f64> = whole().filter_map(|piece| Some(piece.p50_ns? as f64)).collect();
    if !times.is_empty() {
        return ("p50_ns", times);
    }
    let receives = pieces.iter().any(|piece| piece.received_packets > 0);
    let rate = |piece: &Interval| {
        let packets = if receives {
            piece.received_packets
        } else {
            piece.sent_packets
        };
        packets as f64 * 1e9 / piece.duration_ns as f64
    };
    (
        if receives { "received_pps" } else { "sent_pps" },
        whole().map(rate).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(received: u64, sent: u64, p50_ns: Option<u64>, duration_ns: u64) -> Interval {
        Interval {
            start_ns: 0,
            duration_ns,
            received_packets: received,
            sent_packets: sent,
            p50_ns,
        }
    }

    #[test]
    fn the_figure_is_what_the_run_is_about() {
        let second = 1_000_000_000;
        let timed = [piece(5, 6, Some(700), second), piece(5, 6, None, second)];
        assert_eq!(figures(&timed, second), ("p50_ns", vec![700.0]));
        let received = [piece(50, 6, None, second / 2 * 2), piece(0, 6, None, second)];
        assert_eq!(figures(&received, second), ("received_pps", vec![50.0, 0.0]));
        // The last piece of a run may be short.
        let sent = [piece(0, 60, None, 2 * second), piece(0, 1, None, second / 2)];
        assert_eq!(figures(&sent, second), ("sent_pps", vec![30.0]));
    }

    #[test]
    fn pieces_that_agree_end_a_run() {
        let mut known = Known {
            until: UntilWidth::new(0.01).unwrap(),
            piece_ns: 1_000,
            reached: false,
        };
        let mut pieces = Vec::new();
        while !known.is_reached(&pieces) {
            pieces.push(piece(0, 0, Some(10_000 + pieces.len() as u64 % 3), 1_000));
            assert!(pieces.len() < 20, "it does not end");
        }
        // Ten, and as many again as it takes to look twice.
        assert_eq!(pieces.len(), 13);
        let result = known.result(&pieces);
        assert!(result.reached && result.width_percent.unwrap() < 1.0, "{result:?}");
        assert_eq!(result.estimate.unwrap().median, 10_001.0);
    }
}
