//! A virtual machine that a server starts for a lab: what is asked for, what the server allows, and what came up.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// NICs of one machine at the most.
const MOST_NICS: usize = 16;
/// Queues of one of them.
const MOST_QUEUES: u32 = 16;
/// The only attachment that leaves a NIC to the machine that it is of.
const BESIDE: &str = "macvtap";
/// Attachments for which a server starts programs of its own choice only, and gives away nothing that it needs.
const ATTACHMENTS: [&str; 8] = [
    "tap-bridge",
    "vhost-net",
    BESIDE,
    "ovs-userspace",
    "ovs-kernel",
    "xdp",
    "xdp-express",
    "af-xdp",
];

/// A virtual machine, joined to interfaces of the server's machine. It is there until it is told to stop, or until nobody is there any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestEnd {
    /// What it is called in messages.
    pub name: String,
    /// Its NICs: at least one.
    pub nics: Vec<GuestNic>,
    /// Its kernel, by a name of [`GuestsAllowed::kernels`]; `None`: the first of them.
    #[serde(default)]
    pub kernel: Option<String>,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// `any`, `kvm` or `tcg`.
    pub acceleration: String,
    /// Queueing disciplines that talkers in it install: `mqprio`, `etf`, `taprio`.
    #[serde(default)]
    pub qdiscs: Vec<String>,
    /// It has iperf3.
    #[serde(default)]
    pub iperf3: bool,
    /// What clients of the servers in it have to have: it is on a wire.
    pub token: String,
}

/// A NIC of it, and what joins that to an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestNic {
    /// The interface of the server's machine; `None`: the first one that the server allows.
    #[serde(default)]
    pub interface: Option<String>,
    /// How it is joined, by the name that a lab file has for it.
    pub attachment: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Bits of the address that are its network's.
    pub prefix: u8,
    /// Its queues.
    pub queues: u32,
    /// Packets that may wait for it in each; `None`: as many as is usual.
    #[serde(default)]
    pub queue_len: Option<u32>,
    /// XDP programs of the attachment run in the stack.
    #[serde(default)]
    pub is_generic: bool,
    /// Packets of the express lane, if it has one: `udp:PORT` or `pcp:N`.
    #[serde(default)]
    pub express: Option<String>,
}

/// What a server allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestsAllowed {
    /// Interfaces that guests may be joined to: at least one.
    pub uplinks: Vec<GuestUplink>,
    /// Machines at a time, of all clients.
    pub most: u32,
    /// Virtual CPUs of each.
    pub cpus: u32,
    /// Memory of each, in MiB.
    pub memory_mib: u32,
    /// Their kernels, by the names that they are asked for with: at least one.
    pub kernels: Vec<String>,
    /// Attachments that the server's machine is seen not to have, and why.
    #[serde(default)]
    pub lacking: BTreeMap<String, String>,
}

/// An interface that guests may be joined to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestUplink {
    /// Its name.
    pub name: String,
    /// What else it is needed for, in a few words: then it stays where it is, and guests are joined by macvtap.
    #[serde(default)]
    pub needed: Option<String>,
}

/// A machine that is up; or none, where no NIC of it could be joined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestUp {
    /// `kvm` or `tcg`.
    #[serde(default)]
    pub accelerator: Option<String>,
    /// As `uname -r` tells it.
    #[serde(default)]
    pub kernel_release: Option<String>,
    /// For each NIC that was asked for why the server's machine cannot have that attachment; `None`: it is there.
    pub lacks: Vec<Option<String>>,
}

impl GuestsAllowed {
    /// The interface that a NIC is to be joined to.
    ///
    /// # Errors
    /// In words, that it is none of these.
    pub fn uplink(&self, nic: &GuestNic) -> Result<&GuestUplink, String> {
        let found = match &nic.interface {
            None => self.uplinks.first(),
            Some(name) => self.uplinks.iter().find(|uplink| uplink.name == *name),
        };
        found.ok_or_else(|| {
            let names: Vec<&str> = self.uplinks.iter().map(|uplink| uplink.name.as_str()).collect();
            format!(
                "the interface {} is asked for, this server allows {} (--lab-guests)",
                nic.interface.as_deref().unwrap_or("none"),
                names.join(", ")
            )
        })
    }
}

impl GuestEnd {
    /// Whether a server may start it. Asked by the client before anything begins, and by the server.
    ///
    /// # Errors
    /// In words: what is asked for, what is allowed, and by which option of the server.
    pub fn check(&self, allowed: &GuestsAllowed) -> Result<(), String> {
        let bound = |what: &str, wanted: u32, most: u32, option: &str| match wanted {
            0 => Err(format!("{what}: 0 are asked for")),
            _ if wanted > most => Err(format!(
                "{what}: {wanted} are asked for, this server allows {most}{option}"
            )),
            _ => Ok(()),
        };
        bound("virtual CPUs", self.cpus, allowed.cpus, ", as many as its machine has")?;
        bound(
            "MiB of memory",
            self.memory_mib,
            allowed.memory_mib,
            " (--max-guest-memory)",
        )?;
        if let Some(kernel) = self.kernel.as_ref().filter(|kernel| !allowed.kernels.contains(kernel)) {
            return Err(format!(
                "the kernel {kernel} is asked for, this server allows {} (--guest-kernel)",
                allowed.kernels.join(", ")
            ));
        }
        if !["any", "kvm", "tcg"].contains(&self.acceleration.as_str()) {
            return Err(format!("the acceleration {} is none", self.acceleration));
        }
        if let Some(other) = self
            .qdiscs
            .iter()
            .find(|name| !["mqprio", "etf", "taprio"].contains(&name.as_str()))
        {
            return Err(format!("no queueing discipline is called {other}"));
        }
        // Part of a shell's line in the guest.
        if self.token.len() < super::Token::LEAST || !self.token.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err("the token is not made of letters and digits".to_owned());
        }
        if self.nics.is_empty() || self.nics.len() > MOST_NICS {
            return Err(format!(
                "{} NICs are asked for: 1 to {MOST_NICS} can be",
                self.nics.len()
            ));
        }
        let mut uplinks = BTreeSet::new();
        for nic in &self.nics {
            let uplink = allowed.uplink(nic)?;
            if !uplinks.insert(&uplink.name) {
                return Err(format!(
                    "two NICs are to be joined to {}: each takes an interface of its own",
                    uplink.name
                ));
            }
            nic.check(uplink)?;
        }
        Ok(())
    }
}

impl GuestNic {
    fn check(&self, uplink: &GuestUplink) -> Result<(), String> {
        if !ATTACHMENTS.contains(&self.attachment.as_str()) {
            return Err(format!(
                "the attachment {} is asked for, another machine's server has {}",
                self.attachment,
                ATTACHMENTS.join(", ")
            ));
        }
        if let Some(needed) = uplink.needed.as_ref().filter(|_| self.attachment != BESIDE) {
            return Err(format!(
                "{} would take {} from its machine, where it {needed}: take {BESIDE}, which leaves it there, or another interface",
                self.attachment, uplink.name
            ));
        }
        if self.queues == 0 || self.queues > MOST_QUEUES || self.queue_len == Some(0) || self.prefix > 32 {
            return Err("a number is out of range".to_owned());
        }
        if self.address.is_unspecified() || self.address.is_multicast() || self.address.is_broadcast() {
            return Err(format!("{} is no address of a machine", self.address));
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "guest_tests.rs"]
mod tests;
