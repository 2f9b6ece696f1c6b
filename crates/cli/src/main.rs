//! `ringside`: measures what a host, a NIC or a path can do.
#![deny(unsafe_code)]

mod args;
mod caps;
mod clock;
mod compare;
mod config;
mod delay;
mod doctor;
mod lab;
mod left;
mod live;
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
mod search;
mod serve;
mod session;
mod steer;
mod stop;
mod sweep;
mod system;
mod target;
mod top;
mod trace;
mod tune;
mod validity;

use std::process::ExitCode;

use args::{Cli, Command};
use ringside_netlab::guest::agent;

fn main() -> ExitCode {
    // Not a command for users: the first process of a guest, before there is even a /proc.
    if agent::is_asked_for() {
        return agent::main();
    }
    let cli = Cli::read();
    napi::recover();
    validity::begin();
    let done = |result: anyhow::Result<()>| result.map(|()| ExitCode::SUCCESS);
    let result = match cli.command {
        Command::Rx(args) => done(run::rx::run(&args)),
        Command::Tx(args) => done(run::tx::run(&args)),
        Command::Fwd(args) => done(run::fwd::run(&args)),
        Command::Echo(args) => done(run::echo::run(&args)),
        Command::Ping(mut args) => {
            done(serve::find(&mut args.port, &mut args.flow, &mut args.remote).and_then(|()| run::ping::run(&args)))
        }
        Command::Talker(args) => done(run::talker::run(&args)),
        Command::Listener(args) => done(run::listener::run(&args)),
        Command::Serve(args) => done(serve::run(&args)),
        Command::Impair(args) => done(run::impair::run(&args)),
        Command::Compare(args) => done(compare::run(&args)),
        Command::Delay(args) => done(delay::run(&args)),
        Command::Caps(args) => done(caps::run(&args)),
        Command::Report(args) => done(report::run(&args)),
        Command::Search(mut args) => {
            done(serve::find(&mut args.port, &mut args.flow, &mut args.remote).and_then(|()| search::run(&args)))
        }
        Command::Sweep(args) => done(sweep::run(&args)),
        Command::Steer(args) => done(steer::run(&args)),
        Command::Lab(args) => lab::run(&args),
        Command::Completions(args) => done(manual::completions(&args)),
        Command::Man(args) => done(manual::man(&args)),
        Command::Top(args) => done(top::run(&args)),
        Command::Trace(args) => done(trace::run(&args)),
        Command::Tune(args) => tune::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        #[cfg(feature = "gateway")]
        Command::Gateway(args) => ringside_gateway::client::run(&args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            // One paragraph: what was tried, and the chain of causes.
            output::note(format_args!("ringside: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
