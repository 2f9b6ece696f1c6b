//! What is to be set, at the end that receives and at the one that sends; set, told, and put back.

use std::fs::File;

use anyhow::{Context as _, Result, bail};
use ringside_measure::schema::{SteerSetting, SteerThread};
use ringside_netlab::attach::VHOST_NET;
use ringside_nic::changes::{Changes, Protection, Restored, Undo};
use ringside_nic::{Interface, Steering, process};

use super::runs::{Pinned, Runs};
use super::values::{CpusArg, EgressArg, PinArg, RuleArg};
use crate::left::{self, Left};
use crate::output;

/// Settings for one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) rules: Vec<RuleArg>,
    pub(crate) rss: Vec<u32>,
    pub(crate) irqs: Vec<CpusArg>,
    pub(crate) rps: Vec<CpusArg>,
    pub(crate) xps: Vec<CpusArg>,
    pub(crate) egress: Vec<EgressArg>,
    pub(crate) pins: Vec<PinArg>,
}

/// Settings that are there, until this is dropped.
#[derive(Debug)]
pub(crate) struct Installed {
    pub(crate) told: Vec<SteerSetting>,
    /// Where the threads run that were pinned, from now on.
    runs: Option<Runs>,
    /// `None` once it is undone.
    undo: Option<Undo>,
    /// Who is told of what cannot be put back.
    left: Left,
}

impl Settings {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn steering(&self) -> Result<(Steering, Vec<Pinned>)> {
        let cpus = |all: &[CpusArg]| all.iter().map(|CpusArg(queue, cpus)| (*queue, cpus.clone())).collect();
        let mut pinned = Vec::new();
        for pin in &self.pins {
            let all = process::threads(pin.pid);
            let found: Vec<Pinned> = all
                .iter()
                .filter(|thread| thread.name.starts_with(&pin.name))
                .map(|thread| Pinned {
                    id: thread.id,
                    name: thread.name.clone(),
                    cpus: pin.cpus.clone(),
                })
                .collect();
            if found.is_empty() {
                let names: Vec<&str> = all.iter().map(|thread| thread.name.as_str()).collect();
                bail!(
                    "process {} has no thread whose name begins with {:?}; it has: {}{}",
                    pin.pid,
                    pin.name,
                    if names.is_empty() {
                        "none, it does not live".to_owned()
                    } else {
                        names.join(", ")
                    },
                    no_vhost(&pin.name)
                );
            }
            pinned.extend(found);
        }
        let steering = Steering {
            rules: self.rules.iter().map(|RuleArg(flow, queue)| (*flow, *queue)).collect(),
            rss: self.rss.clone(),
            irqs: cpus(&self.irqs),
            rps: cpus(&self.rps),
            xps: cpus(&self.xps),
            egress: self
                .egress
                .iter()
                .map(|EgressArg(priority, pcp)| (*priority, *pcp))
                .collect(),
            threads: (pinned.iter()).map(|thread| (thread.id, thread.cpus.clone())).collect(),
        };
        Ok((steering, pinned))
    }

    /// Sets all of it, or nothing. To be called in the interface's namespace. What cannot be put back in the end is told to `left`.
    pub(crate) fn install(&self, interface: &Interface, left: &Left) -> Result<Option<Installed>> {
        if self.is_empty() {
            return Ok(None);
        }
        let (steering, pinned) = self.steering()?;
        let steered = Changes::new().steer(interface, &steering);
        let (steered, undo) = steered.with_context(|| {
            let rules: Vec<String> = (self.rules.iter())
                .map(|RuleArg(flow, queue)| format!("ethtool -N {interface} {} action {queue}", flow.ethtool()))
                .collect();
            match rules.is_empty() {
                true => format!("steering on {interface}"),
                false => format!("steering on {interface} (rules: {})", rules.join("; ")),
            }
        })?;
        let told = steered.into_iter().map(|one| SteerSetting {
            interface: interface.name().to_owned(),
            what: one.what,
            wanted: one.wanted,
            obtained: one.obtained,
        });
        Ok(Some(Installed {
            told: told.collect(),
            runs: Runs::begin(pinned),
            undo: Some(undo),
            left: left.clone(),
        }))
    }
}

impl Installed {
    /// Says what is there.
    pub(crate) fn note(&self) {
        for one in &self.told {
            output::note(format_args!(
                "{}: {}: {}, put back at the end",
                one.interface, one.what, one.obtained
            ));
        }
        if let Some(Protection::None { reason }) = self.undo.as_ref().map(Undo::protection) {
            output::note(format_args!("  if this process is killed it stays: {reason}"));
        }
    }

    /// Where the pinned threads ran since it was installed; they are not looked at any more.
    pub(crate) fn ran(&mut self) -> Vec<SteerThread> {
        self.runs.take().map(Runs::end).unwrap_or_default()
    }

    /// Puts it back, and says what became of it.
    pub(crate) fn put_back(mut self) {
        self.restore().iter().for_each(output::note);
    }

    fn restore(&mut self) -> Vec<Restored> {
        let restored = self.undo.take().map(Undo::restore).unwrap_or_default();
        self.left.add(left::sentences(&restored));
        restored
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Why a process has no thread of vhost's, if that is what was looked for.
fn no_vhost(name: &str) -> String {
    if !name.starts_with("vhost") {
        return String::new();
    }
    match File::options().read(true).write(true).open(VHOST_NET) {
        Ok(_) => ". vhost's are there while a guest runs whose NIC is attached with vhost=on".to_owned(),
        Err(error) => format!(
            ". Nobody has vhost's here: {VHOST_NET} cannot be opened: {error} (CONFIG_VHOST_NET). QEMU carries the packets itself"
        ),
    }
}
