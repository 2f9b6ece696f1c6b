//! `ringside`: measures what a host, a NIC or a path can do.

mod args;
mod clock;
mod compare;
mod stop;
mod system;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Compare(args) => compare::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One paragraph: what was tried, and the chain of causes.
            eprintln!("ringside: {error:#}");
            ExitCode::FAILURE
        }
    }
}
