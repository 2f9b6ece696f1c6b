//! What is reported: results of this tool and of others.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use ringside_measure::latency::Latency;
use ringside_measure::schema::{self, Document, Outcome};

use super::foreign::{self, Foreign};
use super::loaded;
use super::metrics::{self, Metric};

/// One result.
pub(super) struct Entry {
    /// The file's name without its ending, made unique among all.
    pub(super) name: String,
    pub(super) content: Content,
}

pub(super) enum Content {
    Ours(Box<Document>),
    Foreign(Box<Foreign>),
}

impl Entry {
    /// Reads all files; `-` is standard input.
    pub(super) fn read_all(files: &[std::path::PathBuf]) -> Result<Vec<Self>> {
        let mut entries: Vec<Self> = Vec::new();
        for file in files {
            let mut entry = Self::read(file)?;
            let alike = entries
                .iter()
                .filter(|other| other.name == entry.name || other.name.starts_with(&format!("{} (", entry.name)));
            let alike = alike.count();
            if alike > 0 {
                entry.name = format!("{} ({})", entry.name, alike + 1);
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    /// One of this process.
    pub(super) fn of(name: &str, document: Document) -> Self {
        Self {
            name: name.to_owned(),
            content: Content::Ours(Box::new(document)),
        }
    }

    fn read(file: &Path) -> Result<Self> {
        let shown = file.display();
        let text = if file == Path::new("-") {
            std::io::read_to_string(std::io::stdin()).context("reading a result from standard input")?
        } else {
            fs::read_to_string(file).with_context(|| format!("reading the result {shown}"))?
        };
        let name = file
            .file_stem()
            .map_or_else(|| "result".to_owned(), |stem| stem.to_string_lossy().into_owned());
        let name = if name == "-" { "standard input".to_owned() } else { name };
        if let Some(foreign) = foreign::sockperf(&text) {
            return Ok(Self {
                name,
                content: Content::Foreign(Box::new(foreign?)),
            });
        }
        let value: serde_json::Value = serde_json::from_str(&text).with_context(|| {
            format!("reading the result {shown}: it is neither JSON of `ringside --json` or `iperf3 --json` nor a log of `sockperf --full-log`")
        })?;
        if let Some(foreign) = foreign::iperf3(&value) {
            return Ok(Self {
                name,
                content: Content::Foreign(Box::new(
                    foreign.with_context(|| format!("reading iperf3's result {shown}"))?,
                )),
            });
        }
        if value.get("schema").is_none() {
            bail!(
                "reading the result {shown}: JSON, but neither of `ringside --json` (it has no \"schema\") nor of `iperf3 --json`"
            );
        }
        schema::check(&value).with_context(|| format!("reading the result {shown}"))?;
        let document = Document::from_value(value).with_context(|| format!("reading the result {shown}"))?;
        Ok(Self {
            name,
            content: Content::Ours(Box::new(document)),
        })
    }

    /// What it can be compared with others by.
    pub(super) fn metrics(&self) -> Vec<Metric> {
        match &self.content {
            Content::Foreign(foreign) => foreign.metrics.clone(),
            Content::Ours(document) => match &document.result {
                Outcome::Run(run) => metrics::of_run(run),
                Outcome::Lab(lab) => super::lab::metrics(lab),
                Outcome::Compare(_)
                | Outcome::Delay(_)
                | Outcome::Search(_)
                | Outcome::Sweep(_)
                | Outcome::Trace(_)
                | Outcome::Steer(_) => Vec::new(),
            },
        }
    }

    /// Its times, with what they are; the corrected ones apart where they differ.
    pub(super) fn times(&self) -> Vec<(String, Latency)> {
        match &self.content {
            Content::Foreign(foreign) => foreign
                .times
                .iter()
                .map(|times| (self.name.clone(), times.clone()))
                .collect(),
            Content::Ours(document) => match &document.result {
                Outcome::Run(run) if run.under_load.is_some() => run
                    .under_load
                    .iter()
                    .flat_map(|result| loaded::times(&self.name, result))
                    .collect(),
                Outcome::Run(run) => {
                    let Some(latency) = &run.latency else { return Vec::new() };
                    let read = |hdr: &Option<String>| hdr.as_ref().and_then(|text| Latency::from_hdr(text).ok());
                    let mut all = Vec::new();
                    all.extend(read(&latency.raw_hdr).map(|times| (self.name.clone(), times)));
                    if latency.corrected_hdr != latency.raw_hdr {
                        let name = format!("{}, from the intended sending", self.name);
                        all.extend(read(&latency.corrected_hdr).map(|times| (name, times)));
                    }
                    all.extend(document.far.iter().flat_map(|far| super::far::times(&self.name, far)));
                    all
                }
                // It has plots of its own: one has too many lines for all its cells.
                Outcome::Lab(_) => Vec::new(),
                Outcome::Compare(_)
                | Outcome::Delay(_)
                | Outcome::Search(_)
                | Outcome::Sweep(_)
                | Outcome::Trace(_)
                | Outcome::Steer(_) => Vec::new(),
            },
        }
    }

    /// Packets (or bits) per second over time, and median times: (seconds, value).
    pub(super) fn rates(&self) -> Vec<(String, Vec<(f64, f64)>)> {
        match &self.content {
            Content::Foreign(foreign) => vec![(self.name.clone(), foreign.packet_rates.clone())],
            Content::Ours(document) => match &document.result {
                Outcome::Run(run) => {
                    let receives = run.packets.received.unwrap_or(0) > 0;
                    let point = |interval: &ringside_measure::schema::Interval| {
                        let packets = if receives {
                            interval.received_packets
                        } else {
                            interval.sent_packets
                        };
                        (
                            middle(interval),
                            packets as f64 * 1e9 / interval.duration_ns.max(1) as f64,
                        )
                    };
                    vec![(self.name.clone(), run.intervals.iter().map(point).collect())]
                }
                Outcome::Compare(_)
                | Outcome::Delay(_)
                | Outcome::Search(_)
                | Outcome::Sweep(_)
                | Outcome::Lab(_)
                | Outcome::Trace(_)
                | Outcome::Steer(_) => Vec::new(),
            },
        }
    }

    /// Median times over time, in seconds and nanoseconds.
    pub(super) fn medians(&self) -> Vec<(String, Vec<(f64, f64)>)> {
        let Content::Ours(document) = &self.content else {
            return Vec::new();
        };
        let Outcome::Run(run) = &document.result else {
            return Vec::new();
        };
        let points: Vec<(f64, f64)> = run
            .intervals
            .iter()
            .filter_map(|interval| Some((middle(interval), interval.p50_ns? as f64)))
            .collect();
        vec![(self.name.clone(), points)]
    }
}

fn middle(interval: &ringside_measure::schema::Interval) -> f64 {
    (interval.start_ns as f64 + interval.duration_ns as f64 / 2.0) / 1e9
}
