//! Deletes one object, or all that a file, a network or a host has.

use std::cell::RefCell;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use ringside_gateway_core::TenantAddress;
use ringside_measure::{BadValue, bad_value};
use serde::Deserialize;
use serde_json::json;
use tonic::transport::Channel;

use super::remote::Remote;
use super::simple::{check_filter, meant, told};
use super::{FilterArgs, Kind, named, show, text};
use crate::object::{Group, Neighbor, Object, Port, Statement, wire};
use crate::proto::Outcome;

/// Objects of a request: few enough that one is on its way while the gateway writes another.
const BATCH: usize = 8192;

/// `delete`
#[derive(Debug, Args)]
pub(super) struct DeleteArgs {
    /// neighbor, port or group
    kind: Kind,
    /// Network and address of a neighbour or port, number of a group
    #[arg(num_args = 1..=2, value_name = "KEY")]
    #[arg(required_unless_present_any = ["file", "vni", "prefix", "host"])]
    key: Vec<String>,
    /// All neighbours or ports of a CSV file; - is standard input. It has the columns vni and ip,
    /// perhaps version; others do not count
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key", "vni", "prefix", "host"])]
    file: Option<PathBuf>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Only neighbours on the host with this address
    #[arg(long, value_name = "IP", conflicts_with = "key")]
    host: Option<IpAddr>,
    /// The version of what is said; what is known in a higher one stays [default: that of what is
    /// known]
    #[arg(long, value_parser = super::version)]
    version: Option<u64>,
}

/// A line of a file.
#[derive(Debug, Deserialize)]
struct Line {
    vni: u32,
    ip: IpAddr,
    #[serde(default)]
    version: Option<u64>,
}

impl show::Row for Line {
    const COLUMNS: show::Columns = show::Columns {
        required: &["vni", "ip"],
        optional: &["version"],
        allows_others: true,
    };
}

/// Keys of a request. Without versions each is deleted in the one in which it is known.
type Batch = (Keys, bool);

/// Keys and versions.
type Keys = Vec<(TenantAddress, u64)>;

/// A kind that a network has many of.
trait Addressed: Remote + Object<Key = TenantAddress> {}

impl<O: Remote + Object<Key = TenantAddress>> Addressed for O {}

/// What became of objects.
#[derive(Debug, Default)]
struct Counts {
    deleted: u64,
    absent: u64,
    older: u64,
}

pub(super) async fn run(channel: Channel, args: &DeleteArgs, json: bool) -> Result<()> {
    match args.kind {
        Kind::Neighbor if !args.key.is_empty() => {
            one::<Neighbor>(&channel, super::address(&args.key)?, args.version, json).await
        }
        Kind::Port if !args.key.is_empty() => {
            one::<Port>(&channel, super::address(&args.key)?, args.version, json).await
        }
        Kind::Group if !args.key.is_empty() => {
            one::<Group>(&channel, super::group(&args.key)?, args.version, json).await
        }
        Kind::Neighbor => many::<Neighbor>(&channel, args, json).await,
        Kind::Port => many::<Port>(&channel, args, json).await,
        // Refused by `check`.
        Kind::Group => Ok(()),
    }
}

/// Checks that it is plain which objects are meant.
pub(super) fn check(args: &DeleteArgs) -> Result<()> {
    let FilterArgs { vni, prefix } = &args.filter;
    let is_filtered = vni.is_some() || prefix.is_some() || args.host.is_some();
    if !args.key.is_empty() && is_filtered {
        bad_value!("a key names one object: leave --vni, --prefix and --host out");
    }
    if prefix.is_some() && vni.is_none() {
        bad_value!("--prefix is of one network: give its number with --vni");
    }
    if !args.key.is_empty() {
        return super::check_key(args.kind, &args.key);
    }
    if args.kind == Kind::Group {
        bad_value!("security groups are deleted one by one, by their numbers");
    }
    check_filter(args.kind, &args.filter, args.host)
}

async fn one<O: Remote>(at: &Channel, key: O::Key, version: Option<u64>, json: bool) -> Result<()> {
    let name = named::<O>(key);
    let version = match version {
        Some(version) => version,
        None => match O::find(at, key).await? {
            Some(Statement::Put(object)) => object.version(),
            Some(deleted) => bail!("{name} was deleted, in version {}", deleted.version()),
            None => bail!("there is no {name}"),
        },
    };
    let outcome = O::delete(at, &[(key, version)], false).await?;
    told::<O>(key, version, outcome.first().copied(), json)
}

async fn many<O: Addressed>(channel: &Channel, args: &DeleteArgs, json: bool) -> Result<()> {
    let began = Instant::now();
    let counts = match &args.file {
        Some(file) => delete_all::<O>(channel, batches_of(file, args.version)?).await?,
        None => {
            let keys = list::<O>(channel, args).await?;
            let batches = keys.chunks(BATCH).map(|keys| Ok((keys.to_vec(), false)));
            delete_all::<O>(channel, batches).await?
        }
    };
    let Counts { deleted, absent, older } = counts;
    let milliseconds = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    if json {
        show::json(
            &json!({
                "deleted": deleted,
                "absent": absent,
                "older": older,
                "milliseconds": milliseconds,
            }),
            false,
        )?;
    } else {
        show::print(&format!(
            "{deleted} {}s deleted in {milliseconds} ms, {absent} were not there, {older} are \
             known in a higher version and stay",
            O::NAME
        ))?;
    }
    if older > 0 {
        bail!(
            "{older} {}s are known in a higher version, and stay: somebody has changed them, or \
             give a higher one",
            O::NAME
        );
    }
    Ok(())
}

/// Keys and versions of all that a filter means, or of what it means and has no higher version.
async fn list<O: Addressed>(channel: &Channel, args: &DeleteArgs) -> Result<Keys> {
    let meant = meant(&args.filter, args.host);
    let (mut keys, mut token) = (Vec::new(), Vec::new());
    loop {
        let (objects, next) = O::list(channel, &meant, token).await?;
        let version = |object: &O| args.version.unwrap_or_else(|| object.version());
        keys.extend(objects.iter().map(|object| (object.key(), version(object))));
        token = next;
        if token.is_empty() {
            return Ok(keys);
        }
    }
}

/// Lines of a file, batch by batch, until one is wrong.
fn batches_of(file: &Path, version: Option<u64>) -> Result<impl Iterator<Item = Result<Batch>>> {
    let name = file.display().to_string();
    let mut keys = show::csv::<Line>(file)?.map(move |line| {
        let (number, line) = line?;
        let wrong = |error| BadValue(format!("{name}, line {number}: {error}"));
        let key = text::address(line.vni, line.ip).map_err(wrong)?;
        let version = line.version.or(version).map(wire::version).transpose().map_err(wrong)?;
        Ok::<_, anyhow::Error>((key, version))
    });
    let mut next = None;
    Ok(std::iter::from_fn(move || {
        // All keys of a batch have versions, or none has.
        let mut batch: Option<Batch> = None;
        while let Some(line) = next.take().or_else(|| keys.next()) {
            let (key, version) = match line {
                Ok(line) => line,
                Err(error) => return Some(Err(error)),
            };
            let new = || (Vec::with_capacity(BATCH), version.is_none());
            let (some, any_version) = batch.get_or_insert_with(new);
            if *any_version != version.is_none() {
                next = Some(Ok((key, version)));
                break;
            }
            some.push((key, version.unwrap_or(0)));
            if some.len() == BATCH {
                break;
            }
        }
        batch.map(Ok)
    }))
}

/// Several requests at a time, in any order: each says the same of an object.
async fn delete_all<O: Addressed>(
    channel: &Channel,
    // Until one is wrong.
    batches: impl Iterator<Item = Result<Batch>>,
) -> Result<Counts> {
    let (batches, counts) = (RefCell::new(batches), RefCell::new(Counts::default()));
    let work = async || -> Result<()> {
        loop {
            let next = batches.borrow_mut().next();
            let Some(batch) = next else { return Ok(()) };
            let (keys, any_version) = batch?;
            for outcome in O::delete(channel, &keys, any_version).await? {
                let mut counts = counts.borrow_mut();
                match outcome {
                    Outcome::Deleted => counts.deleted += 1,
                    Outcome::Older => counts.older += 1,
                    _ => counts.absent += 1,
                }
            }
        }
    };
    let done = tokio::try_join!(work(), work(), work(), work());
    let counts = counts.take();
    done.map_err(|error| {
        error.context(format!(
            "{} are deleted, and stay so; the same command goes on with the rest",
            counts.deleted
        ))
    })?;
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: DeleteArgs,
    }

    fn checked(words: &[&str]) -> Result<()> {
        let words = ["delete", "neighbors"].iter().chain(words);
        check(&Line::try_parse_from(words)?.args)
    }

    /// An empty variable of a script (`--prefix "$PREFIX"`) must not mean all that there is.
    #[test]
    fn rejects_empty_prefix_and_prefix_without_network() {
        for (words, expected) in [
            (&["--prefix", ""][..], "\"\" is none"),
            (&["--vni", "42", "--prefix", ""], "\"\" is none"),
            (&["--vni", "42", "--prefix", "10.0/8"], "\"10.0/8\" is none"),
            (&["--prefix", "10.0.0.0/8"], "give its number with --vni"),
            (
                &["--prefix", "10.0.0.0/8", "--host", "192.0.2.1"],
                "give its number with --vni",
            ),
            (&["42", "10.0.0.7", "--prefix", "10.0.0.0/8"], "leave --vni, --prefix"),
        ] {
            let error = checked(words).unwrap_err().to_string();
            assert!(error.contains(expected), "{words:?}: {error}");
        }
        checked(&["--vni", "42", "--prefix", "10.0.0.0/8"]).unwrap();
        checked(&["--vni", "42"]).unwrap();
    }
}
