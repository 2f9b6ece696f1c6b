//! Who is asked for the MAC addresses of hosts: the kernel, whose neighbour table is kept true by ARP and neighbour discovery.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use ringside_gateway_core::table::{HostId, HostReader};
use ringside_nic::Route;
use ringside_wire::MacAddr;

use super::notices::About;
use super::worker::Shared;
use crate::model::Tables;

/// Between two looks into the kernel's table while somebody waits for an answer.
const WHILE_WAITING: Duration = Duration::from_millis(2);
/// And otherwise.
const LOOK: Duration = Duration::from_secs(1);
/// A host that does not answer is asked again with the next packet, but not sooner.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// One that did is asked whether it is still there.
const CONFIRM: Duration = Duration::from_secs(30);

pub(super) struct Resolver {
    pub(super) tables: Arc<Tables>,
    pub(super) shared: Arc<Shared>,
    /// Hosts whose MAC addresses are known from the process before.
    pub(super) resolved: Vec<HostId>,
    /// Hosts whose MAC addresses are wanted.
    pub(super) wanted: Receiver<HostId>,
    /// Hosts whose MAC addresses are others than they were.
    pub(super) found: Sender<HostId>,
}

/// Somebody on the link: a host, or the router to some.
#[derive(Default)]
struct Hop {
    hosts: Vec<HostId>,
    mac: Option<[u8; 6]>,
    asked: Option<Instant>,
}

impl Hop {
    fn is_to_be_asked(&self, after: Duration) -> bool {
        self.asked.is_none_or(|asked| asked.elapsed() >= after)
    }

    fn is_waited_for(&self) -> bool {
        self.mac.is_none() && !self.is_to_be_asked(ASK_AGAIN)
    }
}

/// Whose MAC address packets to a host get.
fn hop_to(host: IpAddr) -> Option<IpAddr> {
    match Route::to(host) {
        Ok(route) => Some(route.gateway.unwrap_or(host)),
        Err(error) => {
            tracing::debug!(%host, %error, "no way to a host");
            None
        }
    }
}

impl Resolver {
    pub(super) fn run(self) {
        let mut hosts = self.tables.hosts.reader();
        let mut hops = HashMap::new();
        let mut looked = Instant::now();
        let mut index = self.shared.interface.load().index();
        for id in &self.resolved {
            if let Some((hop, mac)) = hosts.find(*id).and_then(|host| Some((hop_to(host.ip)?, host.mac?))) {
                let hop: &mut Hop = hops.entry(hop).or_default();
                hop.hosts.push(*id);
                hop.mac = Some(mac.0);
            }
        }
        while !self.shared.stop.load(Ordering::Relaxed) {
            let waits = hops.values().any(Hop::is_waited_for);
            let pause = if waits { WHILE_WAITING } else { LOOK / 10 };
            match self.wanted.recv_timeout(pause) {
                Ok(id) => {
                    self.ask(id, &mut hosts, &mut hops);
                    self.wanted
                        .try_iter()
                        .for_each(|id| self.ask(id, &mut hosts, &mut hops));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let latest = self.shared.interface.load().index();
            if latest != index {
                index = latest;
                // Whoever is on its link, nobody there has been asked.
                hops.values_mut().for_each(|hop| hop.asked = None);
            }
            if waits || looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.look(&mut hops);
            }
        }
    }

    fn ask(&self, id: HostId, hosts: &mut HostReader, hops: &mut HashMap<IpAddr, Hop>) {
        let Some(host) = hosts.find(id).filter(|host| host.mac.is_none()) else {
            return;
        };
        let Some(hop) = hop_to(host.ip) else { return };
        let known = hops.entry(hop).or_default();
        if !known.hosts.contains(&id) {
            known.hosts.push(id);
        }
        match known.mac {
            Some(mac) => self.tell(id, mac),
            None if known.is_to_be_asked(ASK_AGAIN) => {
                known.asked = Some(Instant::now());
                self.shared.interface.load().ask_for(hop);
            }
            None => {}
        }
    }

    /// What the kernel has found out since.
    fn look(&self, hops: &mut HashMap<IpAddr, Hop>) {
        let interface = self.shared.interface.load();
        let mut failed = None;
        for family in [IpAddr::from([0; 4]), IpAddr::from([0; 16])] {
            if !hops.keys().any(|ip| ip.is_ipv4() == family.is_ipv4()) {
                continue;
            }
            let known = match interface.neighbours(family) {
                Ok(known) => known,
                Err(error) => {
                    failed = Some(format!("MAC addresses of hosts cannot be found out: {error}"));
                    continue;
                }
            };
            for (ip, mac) in known {
                if let Some(hop) = hops.get_mut(&ip).filter(|hop| hop.mac != Some(mac)) {
                    hop.mac = Some(mac);
                    hop.hosts.iter().for_each(|id| self.tell(*id, mac));
                }
            }
        }
        self.shared.notices.tell(About::Hosts, failed);
        for (ip, hop) in hops.iter_mut().filter(|(_, hop)| hop.mac.is_some()) {
            if hop.is_to_be_asked(CONFIRM) {
                hop.asked = Some(Instant::now());
                interface.ask_for(*ip);
            }
        }
    }

    fn tell(&self, id: HostId, mac: [u8; 6]) {
        self.tables.hosts.resolve(id, Some(MacAddr(mac)));
        // Nobody is there any more: then the data path ends.
        _ = self.found.send(id);
    }
}
