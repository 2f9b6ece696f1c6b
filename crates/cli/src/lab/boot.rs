//! A machine with this program in it: what it is made like, and what runs there. For a lab here, and for one elsewhere (`ringside serve --lab-guests`).

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use ringside_bpf::XdpMode;
use ringside_netlab::attach::{AttachConfig, Attachment};
use ringside_netlab::guest::{Agent, Guest, GuestConfig, Kernel};

use super::file::Lane;
use crate::output;

/// What a machine is made like that has this program, and talkers with these queueing disciplines. It has no NIC yet.
pub(crate) fn config<'q>(name: &str, kernel: Kernel, qdiscs: impl IntoIterator<Item = &'q str>) -> Result<GuestConfig> {
    let mut config = GuestConfig::new(name, kernel, Agent::program(own_program()?));
    config.programs = ["sh", "ip"].map(Into::into).to_vec();
    let modules: BTreeSet<&str> = qdiscs.into_iter().flat_map(modules).copied().collect();
    config.modules = modules.into_iter().map(str::to_owned).collect();
    Ok(config)
}

/// What joins a NIC is made like: by its number, its queues and how much waits in each, where XDP programs run, and for what packets there is an express lane.
pub(crate) fn attach_config(
    number: usize,
    (queues, queue_len): (u32, Option<u32>),
    is_generic: bool,
    lane: Lane,
) -> Result<AttachConfig> {
    let mut config = AttachConfig::new(format!("g{number}"));
    config.queues = queues;
    config.queue_len = queue_len;
    config.xdp_mode = if is_generic { XdpMode::Generic } else { XdpMode::Native };
    config.express = lane.0;
    config.ringside = own_program()?;
    Ok(config)
}

/// A machine, and what runs in it.
pub(crate) struct Boot<'b> {
    /// As [`config`] begins it.
    pub(crate) config: GuestConfig,
    /// What joins its NICs, and their addresses.
    pub(crate) nics: Vec<(&'b Attachment, Ipv4Addr, u8)>,
    /// In front of `ringside serve` in a shell's line, and behind its interface and address.
    pub(crate) serve: [String; 2],
    /// More such lines.
    pub(crate) also: Vec<String>,
}

impl Boot<'_> {
    /// Starts it, with a server behind each NIC that is about to listen.
    pub(crate) fn start(mut self) -> Result<Guest> {
        let own = own_program()?;
        let nics = self.nics.iter().enumerate();
        self.config.nics = nics
            .map(|(at, (attachment, ..))| attachment.nic(interface(at)))
            .collect();
        let guest = Guest::start(&self.config)?;
        if guest.aborts() != 0 {
            output::note(format_args!(
                "guest {}: QEMU aborted while it started and was started once more",
                guest.name()
            ));
        }
        let mut script = "set -e\nip link set lo up\n".to_owned();
        let [before, behind] = &self.serve;
        for (at, (_, address, prefix)) in self.nics.iter().enumerate() {
            let (name, log, own) = (interface(at), log(at), own.display());
            script += &format!(
                "ip addr add {address}/{prefix} dev {name}\nip link set dev {name} up\n\
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

/// The last that its console said, on one line. A kernel that was told to be quiet says nothing while all is well.
pub(crate) fn last_words(guest: &Guest) -> String {
    match guest.last_words() {
        words if words.is_empty() => "nothing".to_owned(),
        words => words.replace('\n', " | "),
    }
}
