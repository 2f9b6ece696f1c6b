//! The JSON that results are written as, versioned by [`SCHEMA`].
//!
//! Field names are a promise: within one version fields are added, never renamed, removed or
//! given another unit. Readers ignore what they do not know. A figure has its unit in its name
//! (`_ns`, `_pps`, `_bps`, `_bytes`, `_percent`, `_packets`); `null` means "not measured" or "not
//! enough samples", and never stands for zero.
//!
//! ```
//! use ringside_measure::schema::{Document, Operation, Outcome};
//!
//! # let json = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/schema/golden-run-1.json"));
//! let document = Document::from_json(json)?;
//! if let Outcome::Run(run) = &document.result {
//!     assert_eq!(run.operation, Operation::Ping);
//!     assert_eq!(run.packets.difference(), 0);
//! }
//! assert_eq!(document.to_json()?, json.trim_end());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::validity::Validity;

mod asked;
mod comparison;
mod delay;
#[cfg(test)]
pub(crate) mod example;
mod far;
mod hints;
mod impair;
mod lab;
mod run;
mod schedule;
mod search;
mod sound;
mod stages;
mod steer;
mod sweep;
mod system;
mod trace;
mod under_load;
mod until;

pub use asked::{ChecksumBy, LaunchBy, LaunchResult, TxStampsResult, Via};
pub use comparison::{AaRatio, CompareResult, LoadedVariant, Table, Variant};
pub use delay::{ClockRead, DelayCell, DelayResult, DelayTurn, IdleUse};
pub use far::{ClockBasis, ClockOffset, FarEnd};
pub use hints::{
    FieldHints, HashHints, HashTypeCount, HintsResult, LayoutHints, NicHints, Number, StampCount, VlanCount, VlanHints,
};
pub use impair::{ImpairResult, ImpairedDirection};
pub use lab::{
    LabCell, LabClock, LabClocks, LabLoad, LabMachine, LabRedirected, LabRestart, LabResult, LabSchedule, LabStages,
    LabSteering, LabTap, LabWaiting, LabWindows,
};
pub use run::{
    CpuUse, CycleResult, Interval, LatencyKind, LatencyResult, LinkChange, LinkEvent, Operation, QueueCounters,
    RunResult, SenderLateness, XdpFault, XdpStatistics, XdpVerdicts,
};
pub use schedule::{ArrivalStamps, ClassReceived, ClassResult, ClassSent, ClockState, ScheduleResult};
pub use search::{
    BurstRecord, CapacityRecord, FoundRate, LatencyAt, SearchResult, SearchTable, StabilityRecord, TrialRecord,
};
pub use sound::check;
pub use stages::{CpuStages, PerfCounts, StagesPerPacket, ThreadUse};
pub use steer::{
    SteerClass, SteerCount, SteerCpu, SteerFlow, SteerLanding, SteerQueue, SteerResult, SteerRule, SteerSentence,
    SteerSetting, SteerThread, SteerTo,
};
pub use sweep::{BestResult, ConfigurationResult, KnobResult, LevelResult, SweepResult, UnavailableLevel};
pub use system::{CState, Interface, Mitigation, Mode, QueueMode, System};
pub use trace::{
    CostTurns, FlightRecord, MeasuredWhole, MissingHook, RecordedEvent, RecordedPoint, SlowResult, SlowStage,
    StageResult, TraceCost, TraceResult, TracedPath,
};
pub use under_load::{LoadCondition, LoadKind, Responsiveness, UnderLoadResult};
pub use until::{SeriesEstimate, UntilCi};

/// Name and version of the schema.
pub const SCHEMA: &str = "ringside.result/1";

/// JSON Schema (draft 2020-12) of a [`Document`].
pub const JSON_SCHEMA: &str = include_str!("../schemas/ringside.result-1.json");

/// A result file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Document {
    /// Always [`SCHEMA`]; reading a file of another one fails.
    pub schema: SchemaName,
    /// Version of the tool that wrote it.
    pub tool_version: String,
    /// When the run began, in seconds since 1970 (UTC).
    pub started_unix_s: u64,
    /// The command line that can repeat it.
    pub command_line: Vec<String>,
    /// What it ran on.
    pub system: System,
    /// The interfaces that it used, with the modes obtained.
    pub interfaces: Vec<Interface>,
    /// What came out.
    pub result: Outcome,
    /// The other end, where that was a `ringside serve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<Box<FarEnd>>,
    /// Whether it can be believed; `None` where nobody looked, as in results of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validity: Option<Validity>,
}

// Functions rather than generics of the caller's: the code that reads and writes results is compiled
// once, here.
impl Document {
    /// Reads a result.
    ///
    /// # Errors
    /// When the text is no JSON, or not a document of this schema.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        Self::from_value(serde_json::from_str(text)?)
    }

    /// Reads a result that was parsed before.
    ///
    /// # Errors
    /// When the value is not a document of this schema.
    pub fn from_value(value: serde_json::Value) -> Result<Self, serde_json::Error> {
        serde_json::from_value(value)
    }

    /// Checks the figures as [`check`] does.
    ///
    /// # Errors
    /// [`Error::Unsound`] for a figure that cannot be.
    pub fn check(&self) -> Result<(), Error> {
        check(&self.to_value())
    }

    /// Checks the figures and writes the result as JSON, indented.
    ///
    /// # Errors
    /// [`Error::Unsound`] for a figure that cannot be.
    pub fn to_json(&self) -> Result<String, Error> {
        let value = self.to_value();
        check(&value)?;
        Ok(serde_json::to_string_pretty(&value).expect("a value is JSON"))
    }

    // Numbers, strings and lists of them: JSON can hold them all.
    fn to_value(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("a document is JSON")
    }
}

/// What came out: `{"run": …}`, `{"compare": …}`, `{"delay": …}`, `{"search": …}`, `{"sweep": …}`, `{"trace": …}`, `{"lab": …}`
/// or `{"steer": …}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// One operation, measured once.
    Run(Box<RunResult>),
    /// Several ways to do the same, interleaved.
    Compare(CompareResult),
    /// The time from the XDP program to the application.
    Delay(DelayResult),
    /// Rates that a path sustains.
    Search(SearchResult),
    /// What settings are worth.
    Sweep(Box<SweepResult>),
    /// Where the time of packets goes.
    Trace(Box<TraceResult>),
    /// Paths of a lab, idle and loaded.
    Lab(Box<LabResult>),
    /// Where packets landed that were to land somewhere.
    Steer(Box<SteerResult>),
}

/// Stands for [`SCHEMA`]: no other value of the field can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("const" = SCHEMA)))]
#[serde(try_from = "String", into = "&'static str")]
pub struct SchemaName;

impl From<SchemaName> for &'static str {
    fn from(_: SchemaName) -> Self {
        SCHEMA
    }
}

impl TryFrom<String> for SchemaName {
    type Error = Error;

    fn try_from(found: String) -> Result<Self, Error> {
        if found == SCHEMA {
            Ok(Self)
        } else {
            Err(Error::Schema { found })
        }
    }
}

#[cfg(test)]
mod json_schema_tests;
#[cfg(test)]
pub(crate) mod tests;
