//! A machine with this program in it: what it is made like, and what runs there. For a lab here, and for one elsewhere (`ringside serve --lab-guests`).

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result, ensure};
use ringside_netlab::attach::Attachment;
use ringside_netlab::guest::{Acceleration, Agent, Guest, GuestConfig, Kernel};

/// What a machine is made like.
pub(crate) struct Boot<'b> {
    pub(crate) name: &'b str,
    pub(crate) kernel: Kernel,
    pub(crate) cpus: u32,
    pub(crate) memory_mib: u32,
    pub(crate) acceleration: Acceleration,
    /// Queueing disciplines that talkers in it install.
    pub(crate) qdiscs: Vec<&'b str>,
    pub(crate) has_iperf3: bool,
    /// What joins its NICs, and their addresses.
    pub(crate) nics: Vec<(&'b Attachment, Ipv4Addr, u8)>,
    /// In front of `ringside serve` in a shell's line, and behind its interface and address.
    pub(crate) serve: [String; 2],
    /// More such lines.
    pub(crate) also: Vec<String>,
    /// Where its console's output is to stay.
    pub(crate) console: Option<PathBuf>,
    pub(crate) called_off: Option<Arc<AtomicBool>>,
}

impl Boot<'_> {
    /// Starts it, with a server behind each NIC that is about to listen.
    pub(crate) fn start(self) -> Result<Guest> {
        let own = own_program()?;
        let mut config = GuestConfig::new(self.name, self.kernel, Agent::program(&own));
        config.cpus = self.cpus;
        config.memory_mib = self.memory_mib;
        config.acceleration = self.acceleration;
        config.console = self.console;
        config.called_off = self.called_off;
        config.programs = ["sh", "ip"].map(Into::into).to_vec();
        if self.has_iperf3 {
            config.programs.push("iperf3".into());
        }
        config.modules = (self.qdiscs.iter().flat_map(|qdisc| modules(qdisc)))
            .map(|module| (*module).to_owned())
            .collect();
        config.modules.sort_unstable();
        config.modules.dedup();
        let nics = self.nics.iter().enumerate();
        config.nics = nics
            .map(|(at, (attachment, ..))| attachment.nic(interface(at)))
            .collect();
        let guest = Guest::start(&config)?;
        let mut script = "set -e\nip link set lo up\n".to_owned();
        let [before, behind] = &self.serve;
        for (at, (_, address, prefix)) in self.nics.iter().enumerate() {
            let (name, log, own) = (interface(at), log(at), own.display());
            script += &format!(
                "ip addr add {address}/{prefix} dev {name}\nip link set {name} up\n\
                 {before} {own} serve {name} --listen {address} {behind} >{log} 2>&1 </dev/null &\n"
            );
        }
        for line in self.also {
            script += &format!("{line}\n");
        }
        let done = guest.command("sh").args(["-c", &script]).output()?;
        ensure!(
            done.status.success(),
            "setting up its interfaces: {}",
            String::from_utf8_lossy(&done.stderr).trim()
        );
        Ok(guest)
    }
}

/// Modules of a queueing discipline.
fn modules(qdisc: &str) -> &'static [&'static str] {
    match qdisc {
        "mqprio" => &["sch_mqprio"],
        // Below an mqprio.
        "etf" => &["sch_mqprio", "sch_etf"],
        "taprio" => &["sch_taprio"],
        _ => &[],
    }
}

/// This program, which is in the guest, too.
pub(crate) fn own_program() -> Result<PathBuf> {
    std::env::current_exe().context("finding the program of this process")
}

/// What the NIC of this number is called inside.
pub(crate) fn interface(at: usize) -> String {
    format!("eth{at}")
}

/// Its server's log stays in the guest, for when it does not come up.
fn log(at: usize) -> String {
    format!("/serve{at}.log")
}

/// What the server behind a NIC has said, on one line.
pub(crate) fn said(guest: &Guest, at: usize) -> String {
    let said = guest.read(Path::new(&log(at))).unwrap_or_default();
    String::from_utf8_lossy(&said).trim().replace('\n', "; ")
}
