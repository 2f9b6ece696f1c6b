//! `ringside-gateway`: the overlay gateway, and the client of its API.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use ringside_gateway::client::{self, ClientArgs};
use ringside_gateway::config::Config;
use ringside_gateway::daemon;
use ringside_gateway::datapath::{self, XdpPath};
use ringside_gateway::fleet::migrate::{To, migrate};
use ringside_gateway::model::{DataPath, NoDataPath};
use ringside_measure::BadValue;
use ringside_nic::{HugePages, Interface, XdpMode};

#[global_allocator]
static MEMORY: HugePages = HugePages;

/// An overlay gateway: it knows where tenants' addresses live, and sends their packets on.
#[derive(Debug, Parser)]
#[command(
    version,
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  ringside-gateway --config /etc/ringside-gateway.toml
  ringside-gateway --config /etc/ringside-gateway.toml --check
  ringside-gateway --config /etc/ringside-gateway.toml --unpin
  ringside-gateway migrate --to etcd --config /etc/ringside-gateway.toml
  ringside-gateway ctl health"
)]
struct Cli {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Args)]
struct DaemonArgs {
    /// The configuration; SIGHUP has it read again
    #[arg(long, value_name = "FILE", default_value = "/etc/ringside-gateway.toml")]
    config: PathBuf,
    /// Only check the configuration
    #[arg(long)]
    check: bool,
    /// Take down the data path that goes on without a daemon (path.pins)
    #[arg(long, conflicts_with = "check")]
    unpin: bool,
}

#[derive(Debug, Args)]
struct MigrateArgs {
    /// Where it comes to
    #[arg(long, value_name = "KIND")]
    to: To,
    /// The configuration, which names both
    #[arg(long, value_name = "FILE", default_value = "/etc/ringside-gateway.toml")]
    config: PathBuf,
    /// Also while gateways live in etcd's fleet; what they change meanwhile ends it with an error
    #[arg(long)]
    beside_gateways: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Bring what the gateway knows from its file to etcd, or back, while it is stopped
    Migrate(MigrateArgs),
    /// Attach an XDP program that passes every packet, without which a veth does not take what the
    /// gateway sends
    ///
    /// Needed at the other end of a veth that the gateway has, in its network namespace. The
    /// program stays until `ip link set dev INTERFACE xdp off`.
    #[command(after_help = "Examples:\n  ringside-gateway attach-pass veth1")]
    AttachPass {
        /// The other end of the veth
        interface: String,
    },
    /// Ask a gateway that runs, or change what it knows
    Ctl(Box<ClientArgs>),
}

fn attach_pass(name: &str) -> anyhow::Result<ExitCode> {
    let interface = Interface::by_name(name)?;
    if let Some(xdp) = interface.state()?.xdp {
        let id = xdp.prog_id;
        let there = ringside_bpf::loaded_program(id);
        let called = match &there {
            Ok(Some(there)) => format!("\"{}\", id {id}", there.name),
            _ => format!("id {id}"),
        };
        // With it the veth does not take what is sent, and the kernel takes none in native mode.
        if xdp.mode == XdpMode::Generic {
            anyhow::bail!(
                "{name} has an XDP program in generic mode ({called}), beside which the kernel \
                 takes none in native mode; nothing was changed. Remove it (ip link set dev {name} \
                 xdpgeneric off, or end the process that attached it) and repeat this command"
            );
        }
        let there = there.with_context(|| {
            format!(
                "{name} has an XDP program in native mode ({called}), and whether it passes every \
                 packet cannot be seen; nothing was changed"
            )
        })?;
        if there.is_some_and(|there| there.passes_all) {
            println!("{name} has a program already that passes every packet (id {id}); nothing was changed");
            return Ok(ExitCode::SUCCESS);
        }
        anyhow::bail!(
            "{name} has another XDP program in native mode ({called}), which may drop or \
             redirect what the gateway sends; nothing was changed. If it passes these packets, \
             nothing else is needed; else remove it (ip link set dev {name} xdp off, or end the \
             process that attached it) and repeat this command"
        );
    }
    ringside_bpf::attach_pass(interface.index())?;
    println!("{name} has a program that passes every packet; to remove it: ip link set dev {name} xdp off");
    Ok(ExitCode::SUCCESS)
}

fn check(file: &Path) -> anyhow::Result<ExitCode> {
    let config = Config::read(file)?;
    println!("{}: good", file.display());
    for warning in config.warnings() {
        println!("{warning}");
    }
    Ok(ExitCode::SUCCESS)
}

fn unpin(file: &Path) -> anyhow::Result<ExitCode> {
    let config = Config::read(file)?;
    if let Some(pins) = config.path.and_then(|path| path.pins) {
        datapath::unpin(&pins)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn bring(args: &MigrateArgs) -> anyhow::Result<ExitCode> {
    let config = Config::read_to_migrate(&args.config)?;
    let migrated = migrate(&config, args.to, args.beside_gateways)?;
    println!("{migrated}");
    Ok(ExitCode::SUCCESS)
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match (cli.command, cli.daemon) {
        (Some(Command::Ctl(args)), _) => client::run(&args),
        (Some(Command::Migrate(args)), _) => bring(&args),
        (Some(Command::AttachPass { interface }), _) => attach_pass(&interface),
        (
            None,
            DaemonArgs {
                config, check: true, ..
            },
        ) => check(&config),
        (
            None,
            DaemonArgs {
                config, unpin: true, ..
            },
        ) => unpin(&config),
        (None, DaemonArgs { config, .. }) => {
            let run = daemon::run(&config, |config, tables| match &config.path {
                Some(options) => Ok(Arc::new(XdpPath::start(options, tables)?) as Arc<dyn DataPath>),
                None => Ok(Arc::new(NoDataPath)),
            });
            run.map(|()| ExitCode::SUCCESS)
        }
    };
    result.unwrap_or_else(|error| {
        eprintln!("ringside-gateway: {error:#}");
        match error.downcast_ref::<BadValue>() {
            Some(_) => ExitCode::from(2),
            None => ExitCode::FAILURE,
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory as _};

    use super::Cli;

    /// The examples of a command and of those below it, as command lines of this program.
    fn examples(command: &Command, into: &mut Vec<String>) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in help.lines().filter_map(|line| line.strip_prefix("  ")) {
            // Behind two spaces is what it is about.
            let typed = line.split("  ").next().unwrap_or(line);
            into.push(typed.replace("ringside gateway", "ringside-gateway ctl"));
        }
        command.get_subcommands().for_each(|command| examples(command, into));
    }

    #[test]
    fn times_and_counts_take_units() {
        for (words, is_fine) in [
            ("drain --wait 2min", true),
            ("drain --wait 500ms", true),
            ("drain --wait 30", true),
            ("drain --wait 5x", false),
            ("list neighbors --limit 10k", true),
            ("list neighbors --limit 0", false),
            ("list neighbors --vni 16777216", false),
            ("load FILE --batch 10k --skip 2M", true),
            ("load FILE --batch 70k", false),
            ("direct --from 192.0.2.1 --most 100k", true),
            ("trace --count 1k", true),
            ("trace --count 1.5", false),
        ] {
            let words = ["ringside-gateway", "ctl"].into_iter().chain(words.split(' '));
            let parsed = Cli::command().try_get_matches_from(words.clone());
            let code = parsed.map_or_else(|error| error.exit_code(), |_| 0);
            assert_eq!(code, if is_fine { 0 } else { 2 }, "{:?}", words.collect::<Vec<_>>());
        }
    }

    #[test]
    fn each_example_of_the_help_is_a_command_line() {
        let definition = Cli::command();
        definition.clone().debug_assert();
        let mut all = Vec::new();
        examples(&definition, &mut all);
        assert!(all.len() > 20, "{all:#?}");
        for example in all {
            let parsed = Cli::command().try_get_matches_from(example.split_whitespace());
            assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
        }
    }
}
