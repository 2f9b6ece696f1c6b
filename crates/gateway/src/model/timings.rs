//! How long changes take.

use prometheus_client::metrics::histogram::Histogram;

/// Upper ends of the buckets, in seconds: from a change in memory to a disk that is in trouble.
const BUCKETS: [f64; 16] = [
    0.000_01, 0.000_03, 0.000_1, 0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0,
];

/// How long changes take. Cheap to clone; all clones are the same.
#[derive(Debug, Clone)]
pub struct Timings {
    /// Until they are on the disk, for each transaction.
    pub commit: Histogram,
    /// From then on until they are in the tables and in the data path, for each request.
    pub program: Histogram,
}

impl Timings {
    pub(super) fn new() -> Self {
        Self {
            commit: Histogram::new(BUCKETS),
            program: Histogram::new(BUCKETS),
        }
    }
}
