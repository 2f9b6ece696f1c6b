//! The other end of a measurement between two hosts.

use serde::{Deserialize, Serialize};

use super::{ClockState, Interface, LatencyResult, RunResult, SteerResult, System};

/// What the other end was and what it counted. No addresses: results are shared.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FarEnd {
    /// Version of the tool there.
    pub tool_version: String,
    /// What it received and sent with: `af_xdp` or `udp`.
    pub via: String,
    /// How the two know each other: `token`, `tls`, `token and tls` or `nothing`.
    pub authenticated_by: String,
    /// What it ran on.
    pub system: System,
    /// The interfaces that it used, with the modes obtained.
    pub interfaces: Vec<Interface>,
    /// What it counted; `None` where the connection was lost before it could tell.
    pub result: Option<Box<RunResult>>,
    /// For how long its thread that waited most was ready to run and had no CPU, in percent of the
    /// time; left out where its kernel or its version does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_wait_percent: Option<f64>,
    /// How far its clock is from this one's; left out where nobody asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockOffset>,
    /// From this end to the far one, by both clocks; left out where nobody asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub there: Option<LatencyResult>,
    /// From the far end to this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back: Option<LatencyResult>,
    /// Why the control connection ended before the run, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// What its kernel saw of probes, for who traces both ends; in no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<serde_json::Value>,
    /// Where packets landed there, for a lab that steers it; in no result as this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steered: Option<Box<SteerResult>>,
    /// When packets of a schedule came there, as `ringside listener --arrivals` writes it, for a lab; in no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<String>,
    /// How right its clock is, for a lab that asks; in no result as this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_state: Option<Box<ClockState>>,
    /// What was done there for a lab and could not be undone, a sentence each; in no result as this.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
}

/// Why two clocks can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ClockBasis {
    /// Both ends run on one kernel and read one clock.
    SameKernel,
    /// Both kernels are told to be synchronised, by NTP or PTP, and how well.
    Synchronised,
}

/// The far end's clock less this one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClockOffset {
    /// Why the times of both can be compared.
    pub basis: ClockBasis,
    /// By how much the far clock is ahead, in nanoseconds: what one-way times were corrected by.
    pub offset_ns: i64,
    /// How far a one-way time may be from the truth because of it, in either direction.
    pub uncertainty_ns: u64,
    /// The same as the two were seen over the control connection: to half of the shortest round trip, before and after.
    pub seen_offset_ns: i64,
    /// How well that is known.
    pub seen_uncertainty_ns: u64,
}
