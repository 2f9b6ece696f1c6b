//! The command line of `ringside lab`.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use super::overrides::Overrides;
use crate::args::OutputArgs;

const EXAMPLES: &str = "\
Examples:
  ringside lab list                            the studies that come with ringside, and the runs in ringside-lab
  ringside lab show host-to-host               what a study does, for how long, and what it needs
  ringside lab check host-to-host              the same, and whether it can be run here
  ringside lab run smoke                       a study by its name, into a new folder in ringside-lab
  ringside lab run smoke --rounds 1 --turn 100ms --only udp   a part of it, for a first look
  ringside lab show smoke --toml               its file, to begin one of your own with
  ringside lab check my.toml                   a lab file of your own: whether it is right
  ringside lab run my.toml --into run1         into a folder of your choice
  ringside lab run my.toml --into run1 --resume   go on after a kill, an error or Ctrl-C
  ringside lab report run1 -o run1.md          the result of a run, or what is there of it
  ringside lab clean                           remove what killed runs have left";

/// A lab: hosts, links, loads and probes from one file
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Check a lab file as a whole, and tell what it would do; exit status 4 if the file is right and the lab cannot be run here
    Check(FileArgs),
    /// Show what a lab does: hosts, guests, links, load, probes, how long it takes, and what it
    /// needs. It need not be able to run here
    Show(ShowArgs),
    /// Build the lab, measure all cells round by round, and write result and report
    Run(RunArgs),
    /// Make result and report of a run's folder, finished or not
    Report(ReportArgs),
    /// Remove what killed runs have left on this machine, and the folders of runs
    Clean(CleanArgs),
    /// List the studies that come with ringside, and runs
    List(ListArgs),
    /// Take the streams of loads of the kind tcp on another machine, where `ringside serve` runs; in guests a lab starts it itself
    Sink(SinkArgs),
}

#[derive(Debug, clap::Args)]
pub(super) struct FileArgs {
    /// A lab file, or the name of a study that comes with ringside
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    #[command(flatten)]
    pub(super) overrides: Overrides,
}

#[derive(Debug, clap::Args)]
pub(super) struct ShowArgs {
    #[command(flatten)]
    pub(super) file: FileArgs,
    /// Print the lab file instead
    #[arg(long, conflicts_with_all = ["rounds", "turn", "only"])]
    pub(super) toml: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub(super) file: FileArgs,
    /// Folder of the run [default: ringside-lab/NAME-DATE-TIME; with --resume the newest one of that name that is not finished]
    #[arg(long, value_name = "DIR")]
    pub(super) into: Option<PathBuf>,
    /// Go on with a run that was ended: what is measured already is kept. The lab file has to be
    /// the same; --rounds, --turn and --only are those that it was begun with
    #[arg(long)]
    pub(super) resume: bool,
    /// Print all figures, and what explains them
    #[arg(short, long)]
    pub(super) verbose: bool,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct ReportArgs {
    /// Folder of a run
    #[arg(value_name = "DIR")]
    pub(super) folder: PathBuf,
    /// Where to write it, as for `ringside report`: .html, .md, .csv or .json; - for Markdown on standard output
    /// [default: report.html in the folder]
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(super) struct CleanArgs {
    /// Folders of runs to be removed, too
    #[arg(value_name = "DIR")]
    pub(super) folders: Vec<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    /// Folder in which runs are
    #[arg(long, value_name = "DIR", default_value = super::folder::RUNS)]
    pub(super) runs: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(super) struct SinkArgs {
    /// Address to listen on, TCP port 29800, and for packets of UDP a port that the kernel chooses. Whoever reaches it can send: take one of a network that is nobody else's
    #[arg(long, value_name = "ADDRESS", default_value_t = Ipv4Addr::UNSPECIFIED)]
    pub(super) listen: Ipv4Addr,
}
