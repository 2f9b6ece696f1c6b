//! Ringside's own rows: the binary `ringside`, started as any other program.
//!
//! All that the benchmark knows about it is in this file.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::children::Invocation;
use crate::lab::{FAR, NEAR, NEAR_ADDRESS};
use crate::operation::Operation;
use crate::peers::{Client, Missing, Role, RoundTrips, Variant};

const NAME: &str = "ringside";
/// A locally administered address that nobody has.
const NOWHERE: &str = "02:00:00:00:00:02";

/// The row of an operation, or why there is none.
pub(crate) fn variant(operation: Operation) -> Result<Variant, Missing> {
    let program = binary().map_err(|error| Missing {
        name: NAME.to_owned(),
        why: format!("{error:#}"),
    })?;
    let near = match operation {
        Operation::Rx => Invocation::new([&*program, "rx", NEAR, "--json"]),
        // To a MAC address: nobody behind the sink would answer ARP.
        Operation::Tx => Invocation::new([&*program, "tx", NEAR, "--to", NOWHERE, "--size", "64", "--json"]),
        Operation::Fwd => Invocation::new([&*program, "fwd", NEAR, "--json"]),
        Operation::Ping => Invocation::new([&*program, "echo", NEAR, "--json"]),
    };
    let client = (operation == Operation::Ping).then(|| Client {
        invocation: Invocation::new([&*program, "ping", FAR, "--to", NEAR_ADDRESS, "--json", "--time"]),
        parse: parse_round_trips,
    });
    Ok(Variant {
        name: NAME.to_owned(),
        role: Role::Ours,
        near,
        client,
    })
}

/// A row of ours with more options, to find out what a setting is worth.
pub(crate) fn with_options(operation: Operation, options: &str) -> Option<Variant> {
    let mut variant = variant(operation).ok()?;
    let words = || options.split_whitespace().map(str::to_owned);
    variant.near.words.extend(words());
    if let Some(client) = &mut variant.client {
        // The last word of the client's is the option that takes the time.
        let last = client.invocation.words.len() - 1;
        client.invocation.words.splice(last..last, words());
    }
    variant.name = format!("{NAME} {options}");
    variant.role = Role::Tuned;
    Some(variant)
}

/// The release binary of the workspace, or the one that `RINGSIDE` names.
fn binary() -> Result<String> {
    let path = match std::env::var_os("RINGSIDE") {
        Some(path) => PathBuf::from(path),
        None => {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
            let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
            target.join("release/ringside")
        }
    };
    let path = path
        .canonicalize()
        .with_context(|| format!("{}: build it with `cargo build --release -p ringside`", path.display()))?;
    Ok(path.display().to_string())
}

/// The result of `ringside ping --json`, schema `ringside.result/1`: times from the real sending, as
/// the peers measure them.
fn parse_round_trips(output: &str) -> Result<RoundTrips> {
    let value: serde_json::Value = serde_json::from_str(output.trim())?;
    let nanoseconds = |name: &str| {
        value
            .pointer(&format!("/result/run/latency/raw/{name}"))
            .and_then(serde_json::Value::as_f64)
            .with_context(|| format!("no /result/run/latency/raw/{name} in {output}"))
    };
    Ok(RoundTrips {
        p50: nanoseconds("p50_ns")?,
        p99: nanoseconds("p99_ns")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_are_found_in_a_result() {
        let output =
            r#"{"schema":"ringside.result/1","result":{"run":{"latency":{"raw":{"p50_ns":3500,"p99_ns":4200}}}}}"#;
        let times = parse_round_trips(output).unwrap();
        assert_eq!((times.p50, times.p99), (3500.0, 4200.0));
        // Too few samples for a percentile: the tool says null, and that is no round trip of 0.
        assert!(parse_round_trips(&output.replace("4200", "null")).is_err());
    }
}
