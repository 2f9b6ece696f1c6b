//! `migrate`: asks no gateway, for none may run; the program that knows store and etcd does it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};

/// The program beside this one, or wherever programs are.
const PROGRAM: &str = "ringside-gateway";

#[derive(Debug, Clone, Copy, ValueEnum)]
enum To {
    /// To the etcd of `[store.etcd]`
    Etcd,
    /// To the file `store.path`
    Sqlite,
}

/// `migrate`
#[derive(Debug, Args)]
pub(super) struct MigrateArgs {
    /// Where it comes to
    #[arg(long, value_name = "KIND")]
    to: To,
    /// The configuration of the gateway, which names both
    #[arg(long, value_name = "FILE", default_value = "/etc/ringside-gateway.toml")]
    config: PathBuf,
    /// Also while gateways live in etcd's fleet; what they change meanwhile ends it with an error
    #[arg(long)]
    beside_gateways: bool,
}

pub(super) fn run(args: &MigrateArgs) -> Result<ExitCode> {
    let beside = std::env::current_exe()
        .ok()
        .map(|program| program.with_file_name(PROGRAM));
    let program = match beside.filter(|program| program.is_file()) {
        Some(program) => program.into_os_string(),
        None => OsString::from(PROGRAM),
    };
    let to = match args.to {
        To::Etcd => "etcd",
        To::Sqlite => "sqlite",
    };
    let mut command = Command::new(&program);
    command.args(["migrate", "--to", to, "--config"]).arg(&args.config);
    if args.beside_gateways {
        command.arg("--beside-gateways");
    }
    let status = command.status();
    let status = status.with_context(|| format!("running {}, which knows store and etcd", program.display()))?;
    Ok(match status.success() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
