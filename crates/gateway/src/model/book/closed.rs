//! Tables of which nobody knows whether ports are missing: an address without one may do nothing, until somebody says that none is.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringside_gateway_core::policy::ProfileId;
use ringside_gateway_core::table::Neighbors;
use ringside_gateway_core::{TenantAddress, Vni};

use super::{Applied, Book};

/// What stands for ports that may be missing.
#[derive(Debug)]
pub(super) struct Closed {
    /// It allows nothing.
    profile: ProfileId,
    /// Those with neighbours: whoever sends there is looked up.
    networks: HashSet<Vni>,
}

impl Book {
    /// From now on an address without a port may do nothing. To be called before there is a data path.
    pub(in crate::model) fn close(&mut self) {
        let tables = Arc::clone(&self.tables);
        let mut policy = tables.policy.write();
        let profile = policy.profile(&[]);
        // To be known before it is bound.
        policy.publish();
        self.closed = Some(Closed {
            profile,
            networks: HashSet::new(),
        });
        tables.closed.store(true, Ordering::Relaxed);
        for address in self.rebind() {
            self.hold(address.vni);
        }
    }

    /// Opens all addresses without a port again, in the data path too, and returns their number.
    pub(in crate::model) fn open(&mut self) -> usize {
        let Some(Closed { profile, networks }) = self.closed.take() else {
            return 0;
        };
        let changed = self.rebind();
        let tables = Arc::clone(&self.tables);
        networks.iter().for_each(|vni| tables.bindings.release(*vni));
        tables.closed.store(false, Ordering::Relaxed);
        if !self.users.contains_key(&profile) {
            self.unused.push((profile, std::time::Instant::now()));
        }
        let networks = networks.into_iter().collect();
        let applied = Applied { changed, networks };
        self.tell(&applied);
        applied.changed.len()
    }

    /// What is bound to an address without a port.
    pub(super) fn without_port(&self) -> u32 {
        self.closed.as_ref().map_or(0, |closed| closed.profile.number())
    }

    /// While it is closed a network counts as one with rules from its first neighbour on. True if that was this one.
    pub(super) fn hold(&mut self, vni: Vni) -> bool {
        let is_first = self.closed.as_mut().is_some_and(|closed| closed.networks.insert(vni));
        if is_first {
            self.tables.bindings.hold(vni);
        }
        is_first
    }

    /// All neighbours without a port, which have what they are to have now.
    fn rebind(&mut self) -> Vec<TenantAddress> {
        let mut all = Vec::new();
        let tables = Arc::clone(&self.tables);
        let profile = self.without_port();
        for part in 0..Neighbors::PARTS {
            let mut found: Vec<TenantAddress> = Vec::new();
            tables.neighbors.for_each_of(part, |address, _| {
                if !self.ports.contains_key(&address) {
                    found.push(address);
                }
            });
            let mut writer = tables.neighbors.write();
            for address in &found {
                writer.set_policy(*address, profile);
            }
            all.append(&mut found);
        }
        all
    }
}
