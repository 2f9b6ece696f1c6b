//! Measuring, without sockets and without a clock.
//!
//! Everything here is fed with packets, counts and time stamps in nanoseconds by its caller, and
//! gives figures back. Nothing on the packet's path allocates, locks or reads a clock: memory is
//! taken when a value is made.
//!
//! | question | module |
//! |---|---|
//! | When is the next packet due? | [`pace`] |
//! | Are deadlines kept, and when to wake up for them? | [`cycle`] |
//! | Which packets are due when in a cycle of several classes, and did they come in their windows? | [`schedule`] |
//! | What is in a probe? | [`probe`] |
//! | Which were lost, doubled, out of order? | [`sequence`] |
//! | How long did they take? | [`latency`] |
//! | From the XDP program to the application: where, and how did it wait? | [`delay`] |
//! | Where does a packet's time go, stage by stage, and who took it? | [`trace`] |
//! | What does another machine's clock show now? | [`mapping`] |
//! | Do the counts add up? | [`counters`] |
//! | How many bits is that? | [`rate`] |
//! | Is A faster than B, or is it noise? | [`compare`] |
//! | Which settings matter, and which are best? | [`sweep`] |
//! | Is it known well enough to stop? | [`precision`] |
//! | Which rate does it sustain? | [`search`] |
//! | What if the path were worse? | [`impair`] |
//! | What do two hosts say to each other? | [`control`] |
//! | Do packets land where they were to land? | [`steer`] |
//! | What number or time does a text say? | [`units`] |
//! | Can a result be believed? | [`validity`] |
//! | What does a result file hold? | [`schema`] |
//! | What does a running command tell of itself? | [`live`] |
//!
//! # A run, in short
//!
//! ```
//! use ringside_measure::latency::RttRecorder;
//! use ringside_measure::pace::Pacer;
//! use ringside_measure::sequence::Tracker;
//!
//! let start_ns = 1_000;
//! let mut pacer = Pacer::per_second(1_000_000, start_ns)?;
//! let mut tracker = Tracker::new(1024);
//! let mut rtt = RttRecorder::new();
//!
//! for now_ns in (start_ns..start_ns + 50_000).step_by(500) {
//!     for sequence in pacer.take(now_ns, 64) {
//!         let intended_ns = pacer.intended_ns(sequence).unwrap_or(now_ns);
//!         tracker.on_sent(sequence);
//!         // … the packet travels and comes back 7 µs later …
//!         if tracker.on_received(sequence).is_first() {
//!             rtt.record(intended_ns, now_ns, now_ns + 7_000);
//!         }
//!     }
//! }
//! assert_eq!(tracker.counts().received, 50);
//! assert_eq!(rtt.raw().summary().unwrap().max_ns, 7_000);
//! # Ok::<(), ringside_measure::Error>(())
//! ```
#![forbid(unsafe_code)]

mod bad_value;
pub mod compare;
pub mod control;
pub mod counters;
pub mod cycle;
pub mod delay;
mod error;
pub mod impair;
pub mod latency;
pub mod live;
pub mod mapping;
pub mod pace;
pub mod precision;
pub mod probe;
mod random;
pub mod rate;
pub mod schedule;
pub mod schema;
pub mod search;
pub mod sequence;
pub mod steer;
pub mod sweep;
pub mod trace;
pub mod units;
pub mod validity;

pub use bad_value::BadValue;
pub use error::Error;
