//! Takes the place of `config` in a build without the feature `full`: there is no `--config` there.

use std::ffi::OsString;

use anyhow::Result;
use clap::Command;

/// The command line that repeats this run.
pub(crate) fn command_line() -> Vec<String> {
    std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

pub(crate) fn define(whole: Command) -> Command {
    whole
}

pub(crate) fn expand(_: &Command, words: Vec<OsString>) -> Result<Vec<OsString>> {
    Ok(words)
}
