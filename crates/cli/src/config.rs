//! `--config FILE`: options of the command line, from a file.
//!
//! ```toml
//! batch = 256           # --batch 256
//! wait = "spin"         # --wait spin
//! huge-pages = true     # --huge-pages
//! sizes = [64, 1514]    # --sizes 64,1514
//! ```
//!
//! The file becomes arguments in front of the user's, and the parser of the command line does the rest: so a value is checked by
//! the very same rules, and what the record of a result calls its command line repeats the run without the file. What is on the
//! command line itself is not taken from the file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, bail};
use clap::builder::ValueRange;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use toml::{Spanned, Value};

/// The name of the option.
const OPTION: &str = "config";

/// The commands that take it.
const COMMANDS: [&str; 8] = ["rx", "tx", "fwd", "echo", "ping", "compare", "talker", "listener"];

/// The arguments of this process, those of the file included.
static ARGUMENTS: OnceLock<Vec<OsString>> = OnceLock::new();

/// The command line that repeats this run.
pub(crate) fn command_line() -> Vec<String> {
    let words = ARGUMENTS
        .get()
        .cloned()
        .unwrap_or_else(|| std::env::args_os().collect());
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Adds the option to the commands that take it.
pub(crate) fn define(mut whole: Command) -> Command {
    for name in COMMANDS {
        // Not in a build without the feature `full`.
        if whole.find_subcommand(name).is_none() {
            continue;
        }
        let option = Arg::new(OPTION)
            .long(OPTION)
            .value_name("FILE")
            .value_parser(clap::value_parser!(std::path::PathBuf))
            .help(
                "Take options from a file (TOML, named as here without the dashes), such as `ringside sweep --write` makes; what is \
                 on the command line counts more",
            );
        whole = whole.mut_subcommand(name, |command| command.arg(option));
    }
    whole
}

/// The command line with the file's options in place of `--config`.
pub(crate) fn expand(definition: &Command, words: Vec<OsString>) -> Result<Vec<OsString>> {
    let expanded = match Asked::of(definition, &words) {
        Some(asked) => asked.expanded(definition, &words)?,
        None => words,
    };
    Ok(ARGUMENTS.get_or_init(|| expanded).clone())
}

/// A command line with `--config`.
struct Asked {
    /// The command.
    name: String,
    matches: ArgMatches,
    file: std::path::PathBuf,
}

impl Asked {
    /// What is wrong with the rest of the command line, its own parser tells later.
    fn of(definition: &Command, words: &[OsString]) -> Option<Self> {
        let lenient = definition.clone().ignore_errors(true);
        let matches = lenient.try_get_matches_from(words).ok()?;
        let (name, matches) = matches.subcommand()?;
        let file = matches.try_get_one::<std::path::PathBuf>(OPTION).ok()??;
        Some(Self {
            name: name.to_owned(),
            matches: matches.clone(),
            file: file.clone(),
        })
    }

    fn expanded(&self, definition: &Command, words: &[OsString]) -> Result<Vec<OsString>> {
        let command = definition
            .find_subcommand(&self.name)
            .context("a command that was just parsed")?;
        let is_given = |arg: &Arg| self.matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
        let mut options = Vec::new();
        for (arg, option) in read(command, &self.file)? {
            let conflicts = command.get_arg_conflicts_with(arg);
            if !is_given(arg) && !conflicts.into_iter().any(is_given) {
                options.push(option);
            }
        }
        let at = words.iter().position(|word| word.as_os_str() == self.name.as_str());
        let (front, rest) = words.split_at(at.map_or(words.len(), |at| at + 1));
        let mut expanded = front.to_vec();
        expanded.extend(options);
        let mut rest = rest.iter();
        while let Some(word) = rest.next() {
            if word == "--config" {
                // And its value.
                rest.next();
            } else if !word.as_encoded_bytes().starts_with(b"--config=") {
                expanded.push(word.clone());
            }
        }
        Ok(expanded)
    }
}

/// The options of a file, each as one word, with the argument that it is.
fn read<'c>(command: &'c Command, path: &Path) -> Result<Vec<(&'c Arg, OsString)>> {
    let shown = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("reading the options in {shown}"))?;
    let line = |at: usize| 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
    let table: BTreeMap<Spanned<String>, Value> = toml::from_str(&text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        anyhow::anyhow!("reading the options in {shown}, line {}: {}", line(at), error.message())
    })?;
    let mut options = Vec::new();
    for (key, value) in &table {
        let (name, at) = (key.get_ref(), line(key.span().start));
        let place = || format!("reading the options in {shown}, line {at}");
        let arg = find(command, name).with_context(place)?;
        if let Some(word) = word(arg, name, value).with_context(place)? {
            check(command, &word).with_context(place)?;
            options.push((at, arg, word));
        }
    }
    options.sort_by_key(|(at, ..)| *at);
    Ok(options.into_iter().map(|(_, arg, word)| (arg, word)).collect())
}

/// The argument that an option's name stands for.
fn find<'c>(command: &'c Command, name: &str) -> Result<&'c Arg> {
    let is_it = |arg: &&Arg| {
        let aliases = arg.get_visible_aliases().unwrap_or_default();
        arg.get_long() == Some(name) || aliases.contains(&name)
    };
    match command.get_arguments().find(is_it) {
        Some(arg) if ![OPTION, "help", "version"].contains(&name) => Ok(arg),
        _ => {
            let command = command.get_name();
            bail!(
                "`{name}` is no option of `ringside {command}` that can stand in a file: see ringside {command} --help"
            )
        }
    }
}

/// `--batch=256`; `None` for a switch that is off.
fn word(arg: &Arg, name: &str, value: &Value) -> Result<Option<OsString>> {
    let scalar = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        _ => bail!("`{name}`: {value} is neither text nor a number"),
    };
    let text = match value {
        Value::Boolean(on) => {
            let may_stand_alone =
                !arg.get_action().takes_values() || arg.get_num_args().is_some_and(|range| range.min_values() == 0);
            if !may_stand_alone {
                bail!("`{name}` takes a value and is not just {on}");
            }
            return Ok(on.then(|| format!("--{name}").into()));
        }
        Value::Array(values) => values.iter().map(scalar).collect::<Result<Vec<_>>>()?.join(","),
        value => scalar(value)?,
    };
    if !arg.get_action().takes_values() || arg.get_num_args() == Some(ValueRange::EMPTY) {
        bail!("`{name}` is a switch: true or false, not {text:?}");
    }
    Ok(Some(format!("--{name}={text}").into()))
}

/// Has the command line's own parser look at one option. What else it would have to have is no matter here.
pub(crate) fn check(command: &Command, word: &OsString) -> Result<()> {
    let alone = [OsString::from(command.get_name()), word.clone()];
    let Err(error) = command.clone().try_get_matches_from(alone) else {
        return Ok(());
    };
    match error.kind() {
        ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::TooManyValues | ErrorKind::NoEquals => {
            bail!(first_paragraph(&error))
        }
        _ => Ok(()),
    }
}

/// What is wrong, without the usage and the hints of the parser.
pub(crate) fn first_paragraph(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let paragraph = text.split("\n\n").next().unwrap_or(text);
    // The possible values stand on a line of their own.
    let mut line = paragraph.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    if let Some(ContextValue::String(hint)) = error.get(ContextKind::SuggestedValue) {
        line += &format!("; is `{hint}` meant?");
    }
    line
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
