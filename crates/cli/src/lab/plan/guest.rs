//! The checks of guests: of this machine, whose NICs are joined to links, and of others, whose servers start them.

use ringside_netlab::attach::PciAddress;
use ringside_netlab::attach::Way::{Express, Vfio, VhostUser, Xdp};

use super::check::{Checker, Node};
use super::{FarGuest, Guest, Host, Place};
use crate::lab::file::{self, Address};

/// Of this machine, where its NIC is: the link, and the device that it gets whole.
type Joint = (Option<usize>, Option<(PciAddress, Address)>);

impl Checker<'_> {
    /// A guest becomes one of this machine's, or a host that another machine's server starts.
    pub(super) fn guest(&mut self, guest: &file::Guest) {
        let host = &guest.host.get_ref().0;
        let is_there = |host: &&Host| matches!(host.place, Place::Serve(_));
        match self.hosts.iter().filter(is_there).any(|there| there.name == *host) {
            true => {
                let there = self.guest_there(guest);
                self.hosts.extend(there);
            }
            false => {
                let here = self.guest_here(guest);
                self.guests.extend(here);
            }
        }
    }

    fn guest_here(&mut self, guest: &file::Guest) -> Option<Guest> {
        let host = match guest.attachment.get_ref().0 {
            Vfio => match self.node(&guest.host)? {
                Node::Host(at) if matches!(self.hosts[at].place, Place::Here) => at,
                _ => {
                    self.at(&guest.host, "a NIC is this machine's: its host has place = \"here\"");
                    return None;
                }
            },
            _ => self.namespace(&guest.host, "a guest's NIC is joined to one")?,
        };
        self.superfluous(guest.interface.as_ref(), || {
            "only of a guest on another machine it is the interface there: here it is the link that is its uplink"
                .to_owned()
        });
        self.keys_of_attachment(guest);
        let program = self.program(guest);
        let nic = self.nic(guest);
        let machine = self.machine(guest, self.guests.len(), |checker, name| {
            let mut all = checker.guests.iter().enumerate();
            all.position(|(at, other)| other.name == *name && other.machine == at)
        })?;
        let uplink = self.uplink(guest, host)?;
        Some(Guest {
            program,
            ..made(guest, host, (machine, self.guests.get(machine)), (uplink, nic))
        })
    }

    /// A guest of another machine, which probes reach as they reach one.
    fn guest_there(&mut self, guest: &file::Guest) -> Option<Host> {
        let host = self.host_number(&guest.host)?;
        let attachment = guest.attachment.get_ref().0;
        if matches!(attachment, Vfio | VhostUser) {
            self.at(
                &guest.attachment,
                format!(
                    "another machine's server gives no device away and starts no program of a lab's choice: {} is had on this machine only",
                    attachment.name()
                ),
            );
            return None;
        }
        self.keys_of_attachment(guest);
        self.superfluous(guest.uplink.as_ref(), || {
            "a link is of this machine: on another one it is the interface there, interface = \"eth1\"".to_owned()
        });
        self.superfluous(guest.pci.as_ref(), || {
            "pci is nothing that a guest on another machine has".to_owned()
        });
        self.superfluous(guest.modules.as_ref(), || {
            "another machine's server loads no modules of a lab's choice".to_owned()
        });
        let machine = self.machine(guest, self.hosts.len(), |checker, name| {
            let mut all = checker.hosts.iter().enumerate();
            all.position(|(at, other)| {
                let is_first = |there: &FarGuest| there.guest.machine == at && there.guest.host == host;
                other.name == *name && other.lodger().is_some_and(is_first)
            })
        })?;
        let Some(address) = &guest.address else {
            self.at(
                &guest.host,
                "a guest on another machine has an address in a network that this machine is on: address = \"192.0.2.7/24\"",
            );
            return None;
        };
        let own = address.get_ref().0;
        if self
            .hosts
            .iter()
            .filter_map(Host::lodger)
            .any(|other| other.address.0 == own)
        {
            self.at(address, format!("another guest has the address {own}"));
            return None;
        }
        let first = self.hosts.get(machine).and_then(Host::lodger);
        let first = first.map(|there| &there.guest);
        let there = FarGuest {
            guest: made(guest, host, (machine, first), (None, None)),
            interface: guest.interface.as_ref().map(|name| name.get_ref().clone()),
            address: *address.get_ref(),
        };
        Some(Host {
            name: there.guest.name.clone(),
            place: Place::Guest(Box::new(there)),
            cpu: None,
        })
    }

    /// Keys that only some attachments have.
    fn keys_of_attachment(&mut self, guest: &file::Guest) {
        let attachment = guest.attachment.get_ref().0;
        let not_of = |key: &str| format!("{key} is nothing that the attachment {} has", attachment.name());
        if !matches!(attachment, Xdp | Express) {
            self.superfluous(guest.xdp_mode.as_ref(), || not_of("xdp-mode"));
        }
        if attachment != Express {
            self.superfluous(guest.express.as_ref(), || not_of("express"));
        }
        if attachment != VhostUser {
            self.superfluous(guest.socket.as_ref(), || not_of("socket"));
            self.superfluous(guest.program.as_ref(), || not_of("program"));
        } else if guest.socket.is_some() {
            let not_both = || "who has that socket runs already: a socket, or a program to be started".to_owned();
            self.superfluous(guest.program.as_ref(), not_both);
        }
    }

    fn program(&mut self, guest: &file::Guest) -> Vec<String> {
        match &guest.program {
            Some(words) if words.get_ref().first().is_none_or(String::is_empty) => {
                self.at(
                    words,
                    "a program and its arguments: program = [\"NAME\", \"{socket}\", \"{uplink}\"]",
                );
                Vec::new()
            }
            Some(words) => words.get_ref().clone(),
            None => Vec::new(),
        }
    }

    /// The device that it gets whole.
    fn nic(&mut self, guest: &file::Guest) -> Option<(PciAddress, Address)> {
        let attachment = guest.attachment.get_ref().0;
        let not_of = |key: &str| format!("{key} is nothing that the attachment {} has", attachment.name());
        if attachment == Vfio {
            self.superfluous(guest.queues.as_ref(), || not_of("queues"));
            self.superfluous(guest.queue_len.as_ref(), || not_of("queue-len"));
            self.superfluous(guest.uplink.as_ref(), || not_of("uplink"));
        }
        match (&guest.pci, &guest.address, attachment) {
            (Some(pci), Some(address), Vfio) => Some((pci.get_ref().0, *address.get_ref())),
            (_, _, Vfio) => {
                self.at(
                    &guest.attachment,
                    "vfio takes the NIC and its address in the guest: pci = \"0000:01:10.0\", address = \"192.0.2.7/24\"",
                );
                None
            }
            (pci, address, _) => {
                self.superfluous(pci.as_ref(), || not_of("pci"));
                self.superfluous(address.as_ref(), || not_of("address"));
                None
            }
        }
    }

    /// Number of the machine that its NIC is in: the next one, or that of a guest above, as `found` finds it by its name.
    fn machine(
        &mut self,
        guest: &file::Guest,
        next: usize,
        found: impl Fn(&Self, &String) -> Option<usize>,
    ) -> Option<usize> {
        let Some(name) = &guest.machine else {
            return Some(next);
        };
        let only = || "the guest whose machine it is says so".to_owned();
        self.superfluous(guest.kernel.as_ref(), only);
        self.superfluous(guest.cpus.as_ref(), only);
        self.superfluous(guest.memory_mib.as_ref(), only);
        self.superfluous(guest.acceleration.as_ref(), only);
        self.superfluous(guest.modules.as_ref(), only);
        let wanted = &name.get_ref().0;
        let found = found(self, wanted);
        if found.is_none() {
            self.at(
                name,
                format!("there is no guest {wanted} above with a machine of its own"),
            );
        }
        found
    }

    /// The link by which others reach it.
    fn uplink(&mut self, guest: &file::Guest, host: usize) -> Option<Option<usize>> {
        let attachment = guest.attachment.get_ref().0;
        let uplink = match &guest.uplink {
            // What it has no use for was told already.
            Some(name) if attachment != Vfio => {
                let wanted = &name.get_ref().0;
                let found = self.links.iter().position(|link| link.name.as_ref() == Some(wanted));
                match found {
                    None => {
                        self.at(name, format!("there is no link {wanted}: give the link a name"));
                        return None;
                    }
                    Some(link) if !self.links[link].ends.contains(&host) => {
                        self.at(
                            name,
                            format!(
                                "the link {wanted} does not end at the guest's host, {}",
                                guest.host.get_ref()
                            ),
                        );
                        return None;
                    }
                    Some(link) => Some(link),
                }
            }
            _ => None,
        };
        match uplink {
            None if attachment != Vfio => {
                self.at(
                    &guest.attachment,
                    format!(
                        "{} leads from a link to the guest: name the link with uplink",
                        attachment.name()
                    ),
                );
            }
            Some(link) if self.guests.iter().any(|other| other.uplink == Some(link)) => {
                self.at(
                    &guest.attachment,
                    "its uplink is another guest's already: each NIC has one of its own",
                );
            }
            _ => {}
        }
        Some(uplink)
    }
}

/// `first`: the guest whose machine it is, if that is another.
fn made(guest: &file::Guest, host: usize, (machine, first): (usize, Option<&Guest>), (uplink, nic): Joint) -> Guest {
    let own_cpus = || guest.cpus.as_ref().map_or(2, |cpus| cpus.get_ref().small());
    Guest {
        name: guest.name.get_ref().0.clone(),
        host,
        attachment: guest.attachment.get_ref().0,
        uplink,
        machine,
        nic,
        queues: guest.queues.as_ref().map_or(1, |queues| queues.get_ref().small()),
        queue_len: guest.queue_len.as_ref().map(|len| len.get_ref().small()),
        is_generic: guest
            .xdp_mode
            .as_ref()
            .is_some_and(|mode| *mode.get_ref() == file::XdpMode::Generic),
        express: guest.express.as_ref().map(|lane| *lane.get_ref()).unwrap_or_default(),
        socket: guest.socket.as_ref().map(|socket| socket.get_ref().clone()),
        program: Vec::new(),
        kernel: guest.kernel.as_ref().map(|kernel| kernel.get_ref().clone()),
        // All NICs of a machine have its CPUs.
        cpus: first.map_or_else(own_cpus, |first| first.cpus),
        has_own_cpus: guest.cpus.is_some(),
        memory_mib: guest.memory_mib.as_ref().map_or(768, |mib| mib.get_ref().small()),
        acceleration: guest
            .acceleration
            .as_ref()
            .map(|kind| *kind.get_ref())
            .unwrap_or_default(),
        modules: guest.modules.as_ref().map_or_else(Vec::new, |names| {
            names.get_ref().iter().map(|name| name.0.clone()).collect()
        }),
    }
}

#[cfg(test)]
#[path = "guest_tests.rs"]
mod tests;
