//! Steering for the time of a turn: set before its loads and sockets are there, counted, and put back.

use anyhow::{Context as _, Result, bail};
use ringside_measure::control::Errand;
use ringside_measure::probe::DEFAULT_PORT;
use ringside_measure::schema::{LabSteering, SteerResult};
use ringside_netlab::End;
use ringside_nic::{Interface, NtupleFlow};

use super::bed::Bed;
use super::plan::{At, Plan, Probe, Steering};
use super::schedule::errand;
use crate::serve::Far;
use crate::steer::{ClassArg, Installed, PinArg, Settings, Watch, judged};
use crate::stop::Stop;

/// What is set and counted for a probe; put back when this is dropped.
pub(super) struct Steered<'l> {
    all: Vec<One<'l>>,
}

struct One<'l> {
    name: String,
    host: String,
    done: Done<'l>,
}

/// By whom it is set and counted.
#[allow(clippy::large_enum_variant, reason = "a few, for the time of a turn")]
enum Done<'l> {
    Here {
        place: Place<'l>,
        installed: Option<Installed>,
        /// `None` where only threads are pinned.
        watch: Option<Box<Watch>>,
    },
    /// By another machine's server.
    There(Box<Far>),
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
    pub(super) fn begin(plan: &Plan, bed: &'l Bed, probe: &Probe, stop: &Stop) -> Result<Self> {
        let mut all = Vec::new();
        for steering in probe.steering.iter().filter_map(|number| plan.steerings.get(*number)) {
            let one = begin(plan, bed, (probe, steering), stop);
            all.push(one.with_context(|| format!("the steering {}", steering.name))?);
        }
        Ok(Self { all })
    }

    /// What landed where; all of it is put back.
    pub(super) fn end(self) -> Result<Vec<LabSteering>> {
        let end = |one: One<'_>| {
            Ok(LabSteering {
                seen: one.done.end().with_context(|| format!("the steering {}", one.name))?,
                name: one.name,
                host: one.host,
            })
        };
        self.all.into_iter().map(end).collect()
    }
}

impl Done<'_> {
    /// What landed where; all of it is put back.
    fn end(self) -> Result<SteerResult> {
        let (place, mut installed, watch) = match self {
            Self::There(far) => {
                let far = far.finish(0);
                return match (far.steered, far.lost) {
                    (Some(seen), _) => Ok(*seen),
                    (None, why) => bail!("{}", why.unwrap_or_else(|| "the server told of nothing".to_owned())),
                };
            }
            Self::Here {
                place,
                installed,
                watch,
            } => (place, installed, watch),
        };
        let installed = installed.as_mut_slice();
        place.run(|interface| match watch {
            Some(watch) => watch.end(None, None, installed),
            None => judged(interface, installed),
        })
    }
}

fn begin<'l>(plan: &Plan, bed: &'l Bed, (probe, steering): (&Probe, &Steering), stop: &Stop) -> Result<One<'l>> {
    let at_link = |link: usize| bed.end(link, plan.links[link].ends[1] == steering.host).map(Place::End);
    let classes = classes(plan, probe, steering);
    let left = bed.left_at(steering.host);
    let here = |place: Place<'l>, settings: &Settings, counts: bool| {
        let (installed, watch) = place.run(|interface| {
            let installed = settings.install(interface, &left)?;
            let watch = counts.then(|| Watch::begin(interface, &classes, None)).transpose()?;
            let watch = watch.map(Box::new);
            Ok((installed, watch))
        })?;
        Ok::<_, anyhow::Error>(Done::Here {
            place,
            installed,
            watch,
        })
    };
    let done = match &steering.at {
        At::Link(link) => here(at_link(*link)?, &steering.settings, true)?,
        At::Interface(name) => here(Place::Here(Interface::by_name(name)?), &steering.settings, true)?,
        At::There => {
            let wanted = Errand::Steer(steering.settings.asked_of(&classes));
            Done::There(Box::new(errand(&bed.remote(steering.host)?, wanted, stop)?))
        }
        At::Guest { guest, uplink } => {
            let pins = pins(plan, steering, *guest, bed.process(plan, *guest)?);
            let settings = Settings {
                pins,
                ..Settings::default()
            };
            here(at_link(*uplink)?, &settings, false)?
        }
    };
    Ok(One {
        name: steering.name.clone(),
        host: plan.hosts[steering.host].name.clone(),
        done,
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
    let vcpus = (0..plan.guests[guest].cpus)
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
