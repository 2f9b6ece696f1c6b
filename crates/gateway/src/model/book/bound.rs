//! What was said of groups and ports together becomes visible at once: each packet is judged by all that was, or by all that is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ringside_gateway_core::policy::{Bind, PolicyWriter, ProfileId, Side};
use ringside_gateway_core::{TenantAddress, Vni};

use super::{Applied, Book};

/// An address of which something was said.
struct Said {
    address: TenantAddress,
    profile: Option<ProfileId>,
    /// What stands for it until all is published; None: nothing else is bound than before.
    turn: Option<ProfileId>,
}

impl Book {
    /// Publishes what was said of groups and ports, and binds the latter.
    pub(super) fn bound(&mut self, mut policy: PolicyWriter<'_>, bound: BTreeSet<TenantAddress>) -> Applied {
        let mut applied = Applied::default();
        let tables = Arc::clone(&self.tables);
        // Who talks to whom is of one network, and so is what is decided about it: rules that name groups, too.
        let changed = policy.changed();
        let users = changed.iter().filter_map(|profile| self.users.get(profile));
        let mut networks: BTreeSet<Vni> = users.flat_map(HashMap::keys).copied().collect();
        let mut bindings = tables.bindings.reader();
        let mut all: Vec<(Said, Option<ProfileId>)> = Vec::with_capacity(bound.len());
        for address in bound {
            let profile = self.ports.get(&address).map(|bound| bound.profile);
            let before = bindings.profile(address);
            // What is bound to an address decides as much as the rules do, and changes no rule.
            if before != profile {
                networks.insert(address.vni);
            }
            let said = Said {
                address,
                profile,
                turn: None,
            };
            all.push((said, before));
        }
        let others = all.iter().filter(|(said, before)| said.profile != *before).count();
        // One that changes alone does so in one step.
        if others > 1 || (others == 1 && !changed.is_empty()) {
            self.turn(&mut policy, &mut all);
        }
        let mut writer = tables.neighbors.write();
        policy.publish_and_bind(|bind| {
            for (said, _) in &all {
                let profile = match bind {
                    Bind::Turns if said.turn.is_none() => continue,
                    Bind::Turns => said.turn,
                    Bind::Profiles => said.profile,
                };
                tables.bindings.set(said.address, profile);
                let number = profile.map_or(self.without_port(), ProfileId::number);
                if writer.set_policy(said.address, number) && bind == Bind::Profiles {
                    applied.changed.push(said.address);
                }
            }
        });
        applied.networks = networks.into_iter().collect();
        applied
    }

    /// Gives a turn to each to which something else is bound than before.
    fn turn(&self, policy: &mut PolicyWriter<'_>, all: &mut [(Said, Option<ProfileId>)]) {
        let mut neighbors = self.tables.neighbors.reader();
        let mut is_known = |address| neighbors.find(address).is_some();
        // Whether rules are bound in a network: before, and after.
        let mut policed: BTreeMap<Vni, [bool; 2]> = BTreeMap::new();
        for (said, before) in all {
            if said.profile == *before {
                continue;
            }
            let vni = said.address.vni;
            let policed = policed.entry(vni).or_insert_with(|| {
                let after = self.users.values().any(|networks| networks.contains_key(&vni));
                [self.tables.bindings.is_policed(vni), after]
            });
            let mut side = |profile: Option<ProfileId>, is_policed: bool| match profile {
                Some(profile) => Side::Profile(profile),
                // A stranger where rules are bound, or where ports may be missing.
                None if self.closed.is_some() || (is_policed && !is_known(said.address)) => Side::Closed,
                None => Side::Open,
            };
            let [was, is] = *policed;
            let (before, after) = (side(*before, was), side(said.profile, is));
            said.turn = Some(policy.turn(before, after));
        }
    }
}

#[cfg(test)]
#[path = "bound_tests.rs"]
mod tests;
