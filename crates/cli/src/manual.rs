//! Man pages and shell completions, from the one definition of the command line, and the schemas
//! of what commands write.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Command;
use clap_complete::Shell;
use ringside_measure::{live, schema};

use crate::args::Cli;
use crate::output;

/// `ringside completions`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ringside completions bash > /usr/share/bash-completion/completions/ringside
  ringside completions zsh > /usr/share/zsh/site-functions/_ringside
  ringside completions fish > /usr/share/fish/vendor_completions.d/ringside.fish")]
pub(crate) struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// `ringside man`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ringside man | man -l -                      the page of ringside
  ringside man --out /usr/share/man/man1       ringside.1, and one for each command: ringside-rx.1, …")]
pub(crate) struct ManArgs {
    /// Write the pages of all commands to this folder, which is made if it is not there [default: the page of ringside to
    /// standard output]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// `ringside schema`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ringside schema > ringside.result-1.json
  ringside schema doctor                       of what `ringside doctor --json` writes
  ringside schema live                         of what a running command answers with")]
pub(crate) struct SchemaArgs {
    /// The documents: result, which --json of all that measure writes; caps, doctor, top or tune,
    /// which that of these commands writes; live, which a running command answers with
    #[arg(value_enum, default_value = "result")]
    of: Schema,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Schema {
    Result,
    Caps,
    Doctor,
    Live,
    Top,
    Tune,
}

pub(crate) fn schema(args: &SchemaArgs) -> Result<()> {
    output::print(match args.of {
        Schema::Result => schema::JSON_SCHEMA,
        Schema::Live => live::JSON_SCHEMA,
        Schema::Caps => include_str!("../schemas/ringside.caps-1.json"),
        Schema::Doctor => include_str!("../schemas/ringside.doctor-1.json"),
        Schema::Top => include_str!("../schemas/ringside.top-1.json"),
        Schema::Tune => include_str!("../schemas/ringside.tune-1.json"),
    })
}

pub(crate) fn completions(args: &CompletionArgs) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::definition(), "ringside", &mut text);
    output::print(&String::from_utf8(text).context("a completion script that is no UTF-8")?)
}

pub(crate) fn man(args: &ManArgs) -> Result<()> {
    let mut whole = Cli::definition();
    // Names and defaults of the commands are complete only then.
    whole.build();
    let Some(folder) = &args.out else {
        return output::print(&page(&whole, "ringside")?);
    };
    fs::create_dir_all(folder).with_context(|| format!("making the folder {}", folder.display()))?;
    let commands = whole.get_subcommands().filter(|command| command.get_name() != "help");
    let commands = commands.map(|command| (format!("ringside-{}", command.get_name()), command));
    for (name, command) in std::iter::once(("ringside".to_owned(), &whole)).chain(commands) {
        let file = folder.join(format!("{name}.1"));
        fs::write(&file, page(command, &name)?).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

fn page(command: &Command, name: &str) -> Result<String> {
    let mut text = Vec::new();
    // The name of a page is one word.
    let command = command.clone().name(name.to_owned()).display_name(name);
    clap_mangen::Man::new(command)
        .render(&mut text)
        .context("writing a man page")?;
    String::from_utf8(text).context("a man page that is no UTF-8")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    /// The examples of all commands, as they stand in the help.
    fn examples() -> Vec<String> {
        let whole = Cli::definition();
        let mut all = Vec::new();
        for command in whole.get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let begins = all.len();
            for line in help.lines().filter(|line| line.starts_with("  ")) {
                // Behind two spaces is what it is about; behind a pipe or an arrow what is the shell's.
                let line = line.trim_start();
                let typed = line.split("  ").next().unwrap_or(line);
                all.extend(
                    typed
                        .split(" | ")
                        .flat_map(|part| part.split(" > "))
                        .map(str::trim)
                        .filter(|part| part.starts_with("ringside "))
                        .map(str::to_owned),
                );
            }
            assert!(all.len() > begins, "{} has no example", command.get_name());
        }
        all
    }

    /// As a shell would, as far as examples go: words, and what stands between single quotes.
    fn words(line: &str) -> Vec<String> {
        let mut words = Vec::new();
        for (at, part) in line.split('\'').enumerate() {
            match at % 2 {
                0 => words.extend(part.split_whitespace().map(str::to_owned)),
                _ => words.push(part.to_owned()),
            }
        }
        words
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::definition().debug_assert();
    }

    #[test]
    fn each_example_of_the_help_is_a_command_line() {
        let examples = examples();
        assert!(examples.len() > 40, "{examples:#?}");
        for example in &examples {
            // The help has 100 columns, and what it breaks cannot be typed.
            assert!(example.len() <= 97, "{example}");
            let words = words(example).into_iter().map(|word| word.replace("COMMAND", "true"));
            let parsed = Cli::definition().try_get_matches_from(words);
            assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
        }
        assert!(
            Cli::try_parse_from(["ringside", "rx"]).is_err(),
            "not everything is one"
        );
    }

    #[test]
    fn each_command_has_a_page_with_its_options_and_examples() {
        let mut whole = Cli::definition();
        whole.build();
        let rx = page(whole.find_subcommand("rx").unwrap(), "ringside-rx").unwrap();
        for part in [".TH ringside-rx 1", "busy\\-poll\\-budget", "Examples:"] {
            assert!(rx.contains(part), "no {part:?} in {rx}");
        }
    }
}
