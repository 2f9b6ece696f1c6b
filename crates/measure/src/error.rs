//! What a caller can get wrong when it sets a measurement up or evaluates it.

/// Why a measurement cannot be set up or evaluated.
///
/// What can go wrong with a received packet is a [`crate::probe::ProbeError`] instead: it is made on
/// the packet's path and counted, not shown.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rate that is no rate.
    #[error(
        "setting a pace of {packets_per_second} packets/s: the rate has to be from 0.000001 to 1000000000000; give another one, or no rate for as fast as possible"
    )]
    Rate {
        /// What was asked for.
        packets_per_second: f64,
    },
    /// A period of zero.
    #[error("setting a pace with a period of 0 ns: give at least 1 ns, or no pace for as fast as possible")]
    Period,
    /// A figure in a round is not a finite number, or below zero.
    #[error("evaluating round {round}: its {what} is {value}, which is no measurement; look at how that round was run")]
    Round {
        /// Index of the round.
        round: usize,
        /// Which figure.
        what: &'static str,
        /// Its value.
        value: f64,
    },
    /// Two variants were not run equally often.
    #[error("comparing {variant} rounds with {base} rounds of the base: rounds are paired, run both equally often")]
    RoundsDiffer {
        /// Rounds of the base.
        base: usize,
        /// Rounds of the variant.
        variant: usize,
    },
    /// No round is left to make a figure from.
    #[error("evaluating {rounds} rounds: none can be used ({left_out} left out for a base of zero); run more rounds")]
    NoRounds {
        /// Rounds given.
        rounds: usize,
        /// Rounds left out.
        left_out: usize,
    },
    /// A histogram that is none.
    #[error("reading a histogram: {0}; it has to be HdrHistogram's V2 format, compressed, in base64 (`HISTF…`)")]
    Histogram(String),
    /// A schedule that contradicts itself, or that the link cannot carry: says which class, and by how much.
    #[error("setting up a schedule: {0}")]
    Schedule(String),
    /// Packets that cannot be treated so: says what contradicts itself.
    #[error("impairing a path: {0}")]
    Impairment(String),
    /// A search that cannot be made: says of what, and what it would take.
    #[error("searching: {0}")]
    Search(String),
    /// A width of an interval that no interval can have.
    #[error(
        "running until an interval is narrower than {} % of its median: give a part between 0 and 100 %, such as 1 %",
        width * 100.0
    )]
    Width {
        /// What was asked for, as a part of the median.
        width: f64,
    },
    /// A sweep that cannot be made: says of what, and what it would take.
    #[error("planning a sweep: {0}")]
    Sweep(String),
    /// A figure that cannot be, such as a mean above the maximum.
    #[error(
        "checking the figures of a result: {at}: {what}; that cannot be, and must not be published: please report it"
    )]
    Unsound {
        /// Where it stands.
        at: String,
        /// What it is.
        what: String,
    },
    /// A result file of another schema.
    #[error(
        "reading a result: its schema is `{found}`, this version reads `{}`; use the version of the tool that wrote it",
        crate::schema::SCHEMA
    )]
    Schema {
        /// What the file says.
        found: String,
    },
}
