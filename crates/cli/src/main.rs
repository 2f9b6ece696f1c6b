//! `ringside`: measures what a host, a NIC or a path can do.
#![deny(unsafe_code)]
#![cfg_attr(
    not(feature = "full"),
    allow(dead_code, unused_imports, reason = "only the commands of a full build use it")
)]

mod args;
mod caps;
mod clock;
mod compare;
#[cfg_attr(not(feature = "full"), path = "no_config.rs")]
mod config;
mod cpu_wait;
mod delay;
#[cfg(feature = "full")]
mod doctor;
mod files;
#[cfg(feature = "full")]
mod lab;
mod left;
mod live;
#[cfg(feature = "full")]
mod manual;
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
mod report;
mod run;
#[cfg(feature = "full")]
mod search;
mod serve;
mod session;
#[cfg_attr(not(feature = "full"), path = "steer/table.rs")]
mod steer;
mod stop;
#[cfg_attr(not(feature = "full"), path = "sweep/table.rs")]
mod sweep;
mod system;
mod target;
#[cfg(feature = "full")]
mod top;
#[cfg_attr(not(feature = "full"), path = "trace/table.rs")]
mod trace;
#[cfg(feature = "full")]
mod tune;
mod validity;

use std::process::ExitCode;

use args::{Cli, Command};
#[cfg(feature = "full")]
use ringside_netlab::guest::agent;

fn main() -> ExitCode {
    // Not a command for users: the first process of a guest, before there is even a /proc.
    #[cfg(feature = "full")]
    if agent::is_asked_for() {
        return agent::main();
    }
    let cli = Cli::read();
    napi::recover();
    validity::begin();
    let done = |result: anyhow::Result<()>| result.map(|()| ExitCode::SUCCESS);
    let result = match cli.command {
        #[cfg(feature = "full")]
        Command::Rx(args) => done(run::rx::run(&args)),
        #[cfg(feature = "full")]
        Command::Tx(args) => done(run::tx::run(&args)),
        #[cfg(feature = "full")]
        Command::Fwd(args) => done(run::fwd::run(&args)),
        #[cfg(feature = "full")]
        Command::Echo(args) => done(run::echo::run(&args)),
        #[cfg(feature = "full")]
        Command::Ping(mut args) => {
            done(serve::find(&mut args.port, &mut args.flow, &mut args.remote).and_then(|()| run::ping::run(&args)))
        }
        #[cfg(feature = "full")]
        Command::Talker(args) => done(run::talker::run(&args)),
        #[cfg(feature = "full")]
        Command::Listener(args) => done(run::listener::run(&args)),
        #[cfg(feature = "full")]
        Command::Serve(args) => done(serve::run(&args)),
        #[cfg(feature = "full")]
        Command::Impair(args) => done(run::impair::run(&args)),
        Command::Compare(args) => done(compare::run(&args)),
        #[cfg(feature = "full")]
        Command::Delay(args) => done(delay::run(&args)),
        Command::Caps(args) => done(caps::run(&args)),
        Command::Report(args) => report::run(&args),
        #[cfg(feature = "full")]
        Command::Search(mut args) => {
            done(serve::find(&mut args.port, &mut args.flow, &mut args.remote).and_then(|()| search::run(&args)))
        }
        #[cfg(feature = "full")]
        Command::Sweep(args) => done(sweep::run(&args)),
        #[cfg(feature = "full")]
        Command::Steer(args) => done(steer::run(&args)),
        #[cfg(feature = "full")]
        Command::Lab(args) => lab::run(&args),
        #[cfg(feature = "full")]
        Command::Completions(args) => done(manual::completions(&args)),
        #[cfg(feature = "full")]
        Command::Man(args) => done(manual::man(&args)),
        #[cfg(feature = "full")]
        Command::Schema(args) => done(manual::schema(&args)),
        #[cfg(feature = "full")]
        Command::Top(args) => done(top::run(&args)),
        #[cfg(feature = "full")]
        Command::Trace(args) => done(trace::run(&args)),
        #[cfg(feature = "full")]
        Command::Tune(args) => tune::run(&args),
        #[cfg(feature = "full")]
        Command::Doctor(args) => doctor::run(&args),
        #[cfg(feature = "full")]
        Command::Gateway(args) => ringside_gateway::client::run(&args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            // One paragraph: what was tried, and the chain of causes.
            output::note(format_args!("ringside: {error:#}"));
            match args::is_about_a_value(&error) {
                true => ExitCode::from(2),
                false => ExitCode::FAILURE,
            }
        }
    }
}
