//! `ringside`: measures what a host, a NIC or a path can do.
#![deny(unsafe_code)]

mod args;
mod caps;
mod clock;
mod compare;
mod napi;
mod output;
#[allow(
    unreachable_pub,
    unsafe_code,
    reason = "system calls of the peers that no library wraps"
)]
mod peer;
mod pin;
mod progress;
mod run;
mod session;
mod stop;
mod system;
mod target;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    napi::recover();
    let result = match cli.command {
        Command::Rx(args) => run::rx::run(&args),
        Command::Tx(args) => run::tx::run(&args),
        Command::Fwd(args) => run::fwd::run(&args),
        Command::Echo(args) => run::echo::run(&args),
        Command::Ping(args) => run::ping::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Caps(args) => caps::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One paragraph: what was tried, and the chain of causes.
            output::note(format_args!("ringside: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
