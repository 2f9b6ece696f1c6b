//! Steering for the time of a turn: set before its loads and sockets are there, counted, and put back.

use anyhow::{Context as _, Result};
use ringside_measure::probe::DEFAULT_PORT;
use ringside_measure::schema::LabSteering;
use ringside_measure::steer;
use ringside_netlab::End;
use ringside_nic::{Interface, NtupleFlow};

use super::bed::Bed;
use super::plan::{At, Plan, Probe, Steering};
use crate::steer::{ClassArg, Installed, PinArg, Settings, Watch, look};

/// What is set and counted for a probe; put back when this is dropped.
pub(super) struct Steered<'l> {
    all: Vec<One<'l>>,
}

struct One<'l> {
    name: String,
    host: String,
    place: Place<'l>,
    installed: Option<Installed>,
    /// `None` where only threads are pinned.
    watch: Option<Watch>,
}

/// Where the interface is.
enum Place<'l> {
    End(&'l End),
    Here(Interface),
}

impl Place<'_> {
    fn run<T: Send>(&self, work: impl FnOnce(&Interface) -> Result<T> + Send) -> Result<T> {
        match self {
            Self::End(end) => end.ns.try_run(|| work(&end.interface))?,
            Self::Here(interface) => work(interface),
        }
    }
}

impl<'l> Steered<'l> {
    /// Sets what a probe asks for, and begins to count.
    pub(super) fn begin(plan: &Plan, bed: &'l Bed, probe: &Probe) -> Result<Self> {
        let mut all = Vec::new();
        for steering in probe.steering.iter().filter_map(|number| plan.steerings.get(*number)) {
            let one = begin(plan, bed, probe, steering);
            all.push(one.with_context(|| format!("the steering {}", steering.name))?);
        }
        Ok(Self { all })
    }

    /// What landed where; all of it is put back.
    pub(super) fn end(self) -> Result<Vec<LabSteering>> {
        let end = |mut one: One<'_>| {
            let threads = one.installed.as_mut().map(Installed::ran).unwrap_or_default();
            let settings = one
                .installed
                .as_ref()
                .map(|installed| installed.told.clone())
                .unwrap_or_default();
            let seen = match one.watch {
                Some(watch) => one.place.run(|_| watch.end(None, None, settings, threads))?,
                None => {
                    let mut seen = one.place.run(look)?;
                    (seen.settings, seen.threads) = (settings, threads);
                    seen.sentences = steer::judge(&seen);
                    seen
                }
            };
            Ok(LabSteering {
                name: one.name,
                host: one.host,
                seen,
            })
        };
        self.all.into_iter().map(end).collect()
    }
}

fn begin<'l>(plan: &Plan, bed: &'l Bed, probe: &Probe, steering: &Steering) -> Result<One<'l>> {
    let at_link = |link: usize| bed.end(link, plan.links[link].ends[1] == steering.host).map(Place::End);
    let (place, settings) = match &steering.at {
        At::Link(link) => (at_link(*link)?, steering.settings.clone()),
        At::Interface(name) => (Place::Here(Interface::by_name(name)?), steering.settings.clone()),
        At::Guest { guest, uplink } => {
            let pins = pins(plan, steering, *guest, bed.process(plan, *guest)?);
            let settings = Settings {
                pins,
                ..Settings::default()
            };
            (at_link(*uplink)?, settings)
        }
    };
    let counts = !matches!(steering.at, At::Guest { .. });
    let classes = classes(plan, probe, steering);
    let (installed, watch) = place.run(|interface| {
        let installed = settings.install(interface)?;
        let watch = counts.then(|| Watch::begin(interface, &classes, None)).transpose()?;
        Ok((installed, watch))
    })?;
    Ok(One {
        name: steering.name.clone(),
        host: plan.hosts[steering.host].name.clone(),
        place,
        installed,
        watch,
    })
}

/// The packets of the probe, as the end sees them.
fn classes(plan: &Plan, probe: &Probe, steering: &Steering) -> Vec<ClassArg> {
    let class = |flow| ClassArg {
        flow,
        queue: steering.queue,
        cpu: steering.cpu,
    };
    match probe.scheduled {
        None => vec![class(match probe.pcp {
            Some(pcp) => NtupleFlow::VlanPriority(pcp),
            None => NtupleFlow::UdpPort(DEFAULT_PORT),
        })],
        Some(of) => {
            let classes = plan.schedules[of.schedule].schedule.classes();
            classes
                .iter()
                .map(|of| class(NtupleFlow::VlanPriority(of.pcp)))
                .collect()
        }
    }
}

/// The threads of a guest's machine: each virtual CPU on one in turn, who carries its packets on all that are named.
fn pins(plan: &Plan, steering: &Steering, guest: usize, pid: u32) -> Vec<PinArg> {
    let machine = &plan.guests[plan.guests[guest].machine];
    let vcpus = (0..machine.cpus)
        .zip(steering.vcpus.iter().cycle())
        .map(|(number, cpu)| PinArg {
            pid,
            name: format!("CPU {number}/"),
            cpus: vec![*cpu],
        });
    let vhost = (!steering.vhost.is_empty()).then(|| PinArg {
        pid,
        name: format!("vhost-{pid}"),
        cpus: steering.vhost.clone(),
    });
    vcpus.chain(vhost).collect()
}
