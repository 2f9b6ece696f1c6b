//! Neighbours from CSV, as many as there are.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use ringside_measure::units::count_in;
use ringside_measure::{BadValue, bad_value};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

use super::connect::refused;
use super::show;
use crate::object::Neighbor;
use crate::object::text::{EncapsulationForm, HostForm, NeighborForm, Text as _};
use crate::object::wire::Wire as _;
use crate::proto::neighbor_service_client::NeighborServiceClient;
use crate::proto::{LoadNeighborsRequest, LoadNeighborsResponse};

/// `load`
#[derive(Debug, Clone, Args)]
pub(super) struct LoadArgs {
    /// The file; - is standard input
    file: PathBuf,
    /// For all lines without one [default: the gateway gives each the next version, if it differs
    /// from what is known]
    #[arg(long, value_parser = super::version)]
    version: Option<u64>,
    /// Neighbours that are committed together: 1 to 65536, such as 100 or 10k
    #[arg(long, value_name = "N", default_value_t = 8192, value_parser = count_in(1..=65_536_u32))]
    batch: u32,
    /// Skip this number of neighbours at the beginning of the file, such as 100 or 10k: those that
    /// an interrupted load has put
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = count_in(0..=u64::MAX))]
    skip: u64,
}

/// A line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Line {
    vni: u32,
    ip: std::net::IpAddr,
    mac: String,
    host_ip: std::net::IpAddr,
    #[serde(default)]
    host_mac: Option<String>,
    #[serde(default)]
    port: Option<u8>,
    #[serde(default)]
    encapsulation: Option<EncapsulationForm>,
    #[serde(default)]
    version: Option<u64>,
}

impl show::Row for Line {
    const COLUMNS: show::Columns = show::Columns {
        required: &["vni", "ip", "mac", "host-ip"],
        optional: &["host-mac", "port", "encapsulation", "version"],
        allows_others: false,
    };
}

impl Line {
    /// The neighbour, and whether it has a version.
    fn neighbor(self, version: Option<u64>) -> Result<(Neighbor, bool), String> {
        let version = self.version.or(version);
        let form = NeighborForm {
            vni: self.vni,
            ip: self.ip,
            mac: self.mac,
            host: HostForm {
                ip: self.host_ip,
                mac: self.host_mac,
                port: self.port,
                encapsulation: self.encapsulation,
            },
            version,
        };
        Ok((Neighbor::from_text(&form, 0)?, version.is_some()))
    }
}

/// Reads all lines, in batches, on a thread of its own. The first line that is wrong ends it.
/// Says how many it has sent.
fn read(args: &LoadArgs, batches: &mpsc::Sender<LoadNeighborsRequest>) -> Result<u64> {
    let (name, size) = (args.file.display(), args.batch as usize);
    let send = |batch: &mut LoadNeighborsRequest| {
        let sent = batches.blocking_send(std::mem::take(batch));
        sent.is_ok()
    };
    let (mut batch, mut count) = (LoadNeighborsRequest::default(), 0);
    for line in show::csv::<Line>(&args.file)? {
        let (number, line) = line?;
        let (neighbor, has_version) = line
            .neighbor(args.version)
            .map_err(|error| BadValue(format!("{name}, line {number}: {error}")))?;
        count += 1;
        if count <= args.skip {
            continue;
        }
        // All neighbours of a batch have versions, or none has.
        let is_other = batch.next_version == has_version && !batch.neighbors.is_empty();
        // If the gateway has refused, that is told by who reads its answers.
        if is_other && !send(&mut batch) {
            return Ok(count - args.skip);
        }
        batch.next_version = !has_version;
        batch.neighbors.push(neighbor.to_wire());
        if batch.neighbors.len() == size && !send(&mut batch) {
            return Ok(count - args.skip);
        }
    }
    if !batch.neighbors.is_empty() {
        send(&mut batch);
    }
    Ok(count.saturating_sub(args.skip))
}

pub(super) async fn run(channel: Channel, args: &LoadArgs, json: bool) -> Result<()> {
    let began = Instant::now();
    let (batches, stream) = mpsc::channel(4);
    let what = args.clone();
    let (give, taken) = oneshot::channel();
    let reading = std::thread::spawn(move || _ = give.send(read(&what, &batches)));
    let answers = NeighborServiceClient::new(channel)
        .load_neighbors(ReceiverStream::new(stream))
        .await;
    let mut answers = answers.map_err(|status| refused(&status))?.into_inner();
    let mut last = LoadNeighborsResponse::default();
    let refusal = loop {
        match answers.next().await {
            Some(Ok(answer)) => last = answer,
            Some(Err(status)) => break Some(refused(&status)),
            None => break None,
        }
    };
    let done = last.changed + last.unchanged + last.older + last.conflicts;
    let so_far = || {
        let put = done + args.skip;
        if done == 0 {
            return match args.skip {
                0 => "no neighbour is known to be put".to_owned(),
                skip => format!("no neighbour is known to be put behind those of --skip {skip}"),
            };
        }
        format!("{put} neighbours before that are known, and stay so; --skip {put} goes on behind them")
    };
    // The thread may still wait for its input, or for room.
    if let Some(refusal) = refusal {
        return Err(refusal.context(so_far()));
    }
    // Not by joining the thread: it waits for room until this runtime drops the stream.
    let read = match taken.await {
        Ok(read) => read.with_context(so_far)?,
        Err(_) => std::panic::resume_unwind(reading.join().expect_err("it gave no result")),
    };
    if read == 0 {
        let behind = match args.skip {
            0 => "in it".to_owned(),
            skip => format!("behind the first {skip}"),
        };
        bad_value!("{}: there are no neighbours {behind}", args.file.display());
    }
    if done != read {
        bail!("of {read} neighbours the gateway has answered only {done}");
    }
    let milliseconds = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    if json {
        show::json(
            &json!({
                "neighbors": read,
                "changed": last.changed,
                "unchanged": last.unchanged,
                "older": last.older,
                "conflicts": last.conflicts,
                "milliseconds": milliseconds,
            }),
            false,
        )?;
    } else {
        show::print(&format!(
            "{read} neighbours in {milliseconds} ms: {} new or newer, {} there already, {} older than what is known, {} in \
             conflict with what is known",
            last.changed, last.unchanged, last.older, last.conflicts
        ))?;
    }
    if last.conflicts > 0 {
        bail!(
            "{} neighbours differ from what is known in the same version: give a higher version",
            last.conflicts
        );
    }
    Ok(())
}
