//! What runs inside a guest: its first process, and the one that does what the host says.
//!
//! ```text
//! kernel ── PID 1 ── mounts, modules, names of interfaces (setup.rs); then only buries the dead
//!             └─ agent ── virtio-serial port ⇄ host (serve.rs)
//!                  └─ programs, each in a process group of its own
//! ```
//!
//! When the agent ends, whatever the reason, the guest goes off.

mod serve;
mod setup;

use std::path::Path;
use std::process::{Command, ExitCode};

use rustix::process::{WaitOptions, getpid, wait};
use rustix::system::{RebootCommand, reboot};
use serde::{Deserialize, Serialize};

/// First argument of a program that is to be the agent: see [`is_asked_for`].
pub const ARGUMENT: &str = "guest-agent";

/// Where the guest's [`Plan`] is.
pub(crate) const PLAN: &str = "/etc/ringside-guest.json";

/// What the agent has to do before it is ready.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Files of kernel modules, in the order in which they are loaded.
    pub(crate) modules: Vec<String>,
    /// Names of interfaces, by their hardware addresses.
    pub(crate) interfaces: Vec<([u8; 6], String)>,
    /// The same by the addresses of their PCI devices: of those whose hardware address only their driver knows.
    pub(crate) devices: Vec<(String, String)>,
}

/// Whether this process was started to be the agent of a guest.
#[must_use]
pub fn is_asked_for() -> bool {
    std::env::args_os().nth(1).is_some_and(|argument| argument == ARGUMENT)
}

/// Is the agent. Of use only inside a guest that [`Guest::start`](super::Guest::start) started; elsewhere it says so and changes nothing.
///
/// As the guest's first process it does not return.
#[must_use]
pub fn main() -> ExitCode {
    if !Path::new(PLAN).exists() {
        eprintln!(
            "{ARGUMENT}: this is for guests that Ringside has started, and this machine is none: {PLAN} is missing"
        );
        return ExitCode::FAILURE;
    }
    if getpid().is_init() {
        if let Err(error) = first() {
            // To the console, which the host keeps.
            eprintln!("{ARGUMENT}: {error}");
        }
        let off = reboot(RebootCommand::PowerOff);
        // Only on a kernel without a way to switch itself off. The end of the first process is the end of such a guest, too.
        eprintln!("{ARGUMENT}: cannot switch off: {off:?}");
        return ExitCode::FAILURE;
    }
    match serve::serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{ARGUMENT}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The first process, until the agent has ended.
fn first() -> Result<(), String> {
    setup::setup()?;
    let agent = Command::new("/proc/self/exe")
        // As this one was told.
        .args(std::env::args_os().skip(1))
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", "/root")
        .spawn()
        .map_err(|error| format!("cannot start the agent: {error}"))?;
    loop {
        // Orphans come here as well.
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, _))) if pid.as_raw_nonzero().get().cast_unsigned() == agent.id() => return Ok(()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(format!("cannot wait for the agent: {error}")),
        }
    }
}
