//! A knob: an option of the command line, and values of it.

use std::str::FromStr;

use anyhow::{Result, anyhow, bail};
use clap::{Arg, Args as _, Command, FromArgMatches as _};
use ringside_measure::sweep::Knob;
use toml::{Table, Value};

use crate::args::PortArgs;
use crate::config;

/// Options about an interface that are none of how it is opened.
const NO_KNOBS: [&str; 1] = ["queues"];

/// Leaves an option out.
const DEFAULT: &str = "default";

/// `--knob NAME=LEVEL,LEVEL`, whose levels the command line's own parser takes.
#[derive(Debug, Clone)]
pub(crate) struct KnobArg(pub(crate) Knob);

/// The options that an interface is opened with.
fn options() -> Command {
    PortArgs::augment_args(Command::new("knob"))
}

fn option(name: &str) -> Result<Arg> {
    let command = options();
    let found = command
        .get_arguments()
        .find(|arg| arg.get_long() == Some(name) && !NO_KNOBS.contains(&name));
    found.cloned().ok_or_else(|| {
        let names: Vec<&str> = command
            .get_arguments()
            .filter_map(Arg::get_long)
            .filter(|name| !NO_KNOBS.contains(name))
            .collect();
        anyhow!("{name:?} is no knob; there are {}", names.join(", "))
    })
}

fn is_switch(option: &Arg) -> bool {
    !option.get_action().takes_values()
}

impl FromStr for KnobArg {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some((name, levels)) = text.split_once('=') else {
            bail!("a knob and its levels are written as NAME=LEVEL,LEVEL, such as batch=16,64");
        };
        let option = option(name)?;
        let mut levels: Vec<String> = levels.split(',').map(|level| level.trim().to_owned()).collect();
        for level in &levels {
            if level.is_empty() {
                bail!("{name}: a level is empty; write {DEFAULT} to leave the option out");
            }
            settings([(name, level.as_str())])?;
        }
        // The option's default is the base wherever it stands: what is known best, and what others have.
        let usual = option.get_default_values().first().and_then(|value| value.to_str());
        let is_base =
            |level: &String| level == DEFAULT || Some(level.as_str()) == usual || is_switch(&option) && level == "off";
        if let Some(at) = levels.iter().position(is_base) {
            let base = levels.remove(at);
            levels.insert(0, base);
        }
        Ok(Self(Knob::new(name, levels)))
    }
}

/// What a configuration means for opening an interface.
///
/// # Errors
/// In the words of the command line's parser.
pub(crate) fn settings<'k>(levels: impl IntoIterator<Item = (&'k str, &'k str)>) -> Result<PortArgs> {
    let mut words = vec!["knob".to_owned(), "interface".to_owned()];
    for (name, level) in levels {
        let option = option(name)?;
        match level {
            DEFAULT => {}
            "on" if is_switch(&option) => words.push(format!("--{name}")),
            "off" if is_switch(&option) => {}
            _ if is_switch(&option) => bail!("{name} is a switch: its levels are on and off, not {level:?}"),
            _ => words.push(format!("--{name}={level}")),
        }
    }
    let matches = options()
        .try_get_matches_from(words)
        .map_err(|error| anyhow!(config::first_paragraph(&error)))?;
    let args = PortArgs::from_arg_matches(&matches).map_err(|error| anyhow!(config::first_paragraph(&error)))?;
    args.check()?;
    Ok(args)
}

/// A configuration as a file that `--config` takes, with a remark on top.
pub(crate) fn file<'k>(remarks: &[String], levels: impl IntoIterator<Item = (&'k str, &'k str)>) -> Result<String> {
    let mut text: String = remarks.iter().map(|remark| format!("# {remark}\n")).collect();
    let mut table = Table::new();
    for (name, level) in levels {
        let value = match level {
            DEFAULT => {
                text += &format!("# {name}: by default\n");
                continue;
            }
            "on" if is_switch(&option(name)?) => Value::Boolean(true),
            "off" if is_switch(&option(name)?) => Value::Boolean(false),
            level => level
                .parse()
                .map_or_else(|_| Value::String(level.to_owned()), Value::Integer),
        };
        table.insert(name.to_owned(), value);
    }
    text += &toml::to_string(&table)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::WaitArg;

    fn knob(text: &str) -> Result<Knob> {
        text.parse().map(|KnobArg(knob)| knob)
    }

    #[test]
    fn the_default_is_the_base() {
        assert_eq!(
            knob("batch=16,64,256").unwrap(),
            Knob::new("batch", ["64", "16", "256"])
        );
        assert_eq!(knob("batch=128,256").unwrap(), Knob::new("batch", ["128", "256"]));
        assert_eq!(knob("wait=poll, spin").unwrap(), Knob::new("wait", ["spin", "poll"]));
        assert_eq!(
            knob("huge-pages=on,off").unwrap(),
            Knob::new("huge-pages", ["off", "on"])
        );
        assert_eq!(
            knob("frames=4096,default").unwrap(),
            Knob::new("frames", ["default", "4096"])
        );
        assert_eq!(knob("napi-defer=2:200,default").unwrap().levels, ["default", "2:200"]);
        assert_eq!(knob("mode=generic,native").unwrap().levels, ["generic", "native"]);
    }

    #[test]
    fn each_knob_that_the_help_names_is_one() {
        let help = super::super::Args::augment_args(Command::new("sweep"));
        let knobs = help.get_arguments().find(|arg| arg.get_long() == Some("knob")).unwrap();
        let text = knobs.get_help().unwrap().to_string();
        let named: Vec<&str> = text.split_once(": ").unwrap().1.split(", ").map(str::trim).collect();
        let command = options();
        let mut there: Vec<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
        there.retain(|name| !NO_KNOBS.contains(name));
        let sorted = |mut names: Vec<&str>| {
            names.sort_unstable();
            names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>()
        };
        assert_eq!(sorted(named), sorted(there));
    }

    #[test]
    fn mistakes_are_told() {
        for (text, words) in [
            ("batch", "NAME=LEVEL"),
            ("batch=", "a level is empty"),
            ("bacth=1", "\"bacth\" is no knob; there are mode, wait,"),
            ("queues=0,1", "is no knob"),
            ("interface=a,b", "is no knob"),
            ("batch=x,1", "invalid value 'x' for '--batch"),
            ("wait=often,spin", "possible values: spin, poll, busy-poll"),
            ("huge-pages=1,0", "is a switch: its levels are on and off"),
            ("frame-size=3000,2048", "--unaligned"),
            ("napi-defer=2,default", "POLLS:MICROS"),
        ] {
            let error = knob(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn settings_are_what_the_command_line_would_make_of_them() {
        let args = settings([
            ("batch", "256"),
            ("wait", "poll"),
            ("huge-pages", "on"),
            ("ring", "default"),
        ])
        .unwrap();
        assert_eq!(
            (args.batch, args.wait, args.huge_pages, args.ring),
            (256, WaitArg::Poll, true, None)
        );
    }

    #[test]
    fn a_file_has_the_levels_as_options() {
        let levels = [
            ("wait", "poll"),
            ("batch", "256"),
            ("huge-pages", "on"),
            ("ring", "default"),
            ("napi-defer", "2:200"),
        ];
        let text = file(&["the best".to_owned()], levels).unwrap();
        let expected =
            "# the best\n# ring: by default\nbatch = 256\nhuge-pages = true\nnapi-defer = \"2:200\"\nwait = \"poll\"\n";
        assert_eq!(text, expected);
    }
}
