//! Runs a command in a guest with two NICs back to back, eth0 and eth1:
//!
//! ```text
//! cargo run -p ringside-netlab --example guest -- virtio ip,ethtool 'ip -br link; ethtool -i eth0'
//! cargo run -p ringside-netlab --example guest -- igb target/debug/ringside 'target/debug/ringside doctor eth0'
//! ```
//!
//! First the kind of NIC (virtio, igb), then programs that the guest has, then a line for its shell.
//! `RINGSIDE_GUEST_KERNEL` chooses the kernel, `RINGSIDE_GUEST_MODULES` modules to be loaded, by commas.

use std::error::Error;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use ringside_netlab::guest::{Agent, Guest, GuestConfig, Kernel, Model, agent};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    // The guest's first process is this program, too.
    if agent::is_asked_for() {
        return Ok(agent::main());
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, programs, line] = &arguments[..] else {
        return Err("three words: virtio or igb, programs by commas, a line for the shell".into());
    };
    let model = match model.as_str() {
        "virtio" => Model::VirtioNet,
        "igb" => Model::Igb,
        other => return Err(format!("no NIC is called {other}: virtio, igb").into()),
    };
    let own = Agent::program(std::env::current_exe()?);
    let mut config = GuestConfig::new("example", Kernel::usual()?, own).back_to_back(model);
    let modules = std::env::var("RINGSIDE_GUEST_MODULES").unwrap_or_default();
    config.modules = modules
        .split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    // What has a path is found at that path, from the top.
    let path = |name: &str| match name.contains('/') {
        true => std::path::absolute(name),
        false => Ok(Path::new(name).to_owned()),
    };
    for program in programs.split(',').chain(["sh", "cat", "mkdir", "sleep"]) {
        config.programs.push(path(program)?);
    }
    let guest = Guest::start(&config)?;
    let (kernel, accelerator) = (guest.release(), guest.accelerator().name());
    eprintln!(
        "Linux {kernel} on {accelerator}, ready after {:.1} s",
        guest.boot_time().as_secs_f64()
    );
    let here = std::env::current_dir()?.display().to_string();
    let command = guest
        .command("sh")
        .args(["-c", &format!("mkdir -p {here} && cd {here} && {line}")]);
    let done = command.limit(Duration::from_mins(10)).output()?;
    std::io::stdout().write_all(&done.stdout)?;
    std::io::stderr().write_all(&done.stderr)?;
    Ok(if done.status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
