//! What a lab takes of this machine, looked at before anything is built.

use std::collections::BTreeSet;
use std::env;

use ringside_nic::Interface;

use super::load::how_to_get;
use super::plan::{self, Plan, Work};

/// What it lacks.
pub(super) fn lacks(plan: &Plan) -> Vec<String> {
    let mut all = Vec::new();
    let online = plan::online();
    for (what, cpu) in plan.cpus() {
        if !online.contains(&cpu) {
            all.push(format!(
                "{what} is to be on CPU {cpu}, which is not online (online: {online:?})"
            ));
        }
    }
    let programs: BTreeSet<&str> = plan
        .loads
        .iter()
        .filter_map(|load| match load.what {
            Work::Udp { .. } | Work::Tcp { .. } => None,
            Work::Iperf3 { .. } => Some("iperf3"),
            Work::StressNg { .. } => Some("stress-ng"),
        })
        .collect();
    let nics = plan.links.iter().filter_map(|link| link.nics());
    all.extend(
        nics.flatten()
            .filter_map(|name| Some(Interface::by_name(name).err()?.to_string())),
    );
    for program in programs {
        if !is_there(program) {
            all.push(format!("the program {program} is not there: {}", how_to_get(program)));
        }
    }
    all
}

/// Whether a program is in `PATH`.
pub(crate) fn is_there(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
