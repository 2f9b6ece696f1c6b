//! The lab as it stands: namespaces, links, and the way to other machines. All of it goes with this value, and after a kill with the
//! next run or `ringside lab clean`.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use ringside_measure::control::{Errand, LoadsEnd};
use ringside_measure::schema;
use ringside_netlab::guest::Guest;
use ringside_netlab::{End, Lab, Namespace, VethConfig};
use ringside_wire::MacAddr;

use super::far_guests::{self, Lodging};
use super::guests::{self, Guests};
use super::load;
use super::passed::Passed;
use super::plan::{self, Place, Plan, Probe, Way, Wire};
use super::schedule::{Remote, errand};
use super::servers;
use crate::compare::{self, Side};
use crate::left::Left;
use crate::output::note;
use crate::serve::{Far, RemoteArgs};
use crate::stop::Stop;
use crate::system;
use crate::trace::Names;

/// Links of a lab: each has a network of its own.
const MOST_LINKS: usize = 250;

/// What was built.
pub(super) struct Bed {
    /// What could not be undone of what was done for turns.
    left: Left,
    /// What other machines' servers do for loads, by the numbers of their hosts.
    receivers: Vec<(usize, LoadsEnd)>,
    stop: Stop,
    /// Paths to other machines, and to guests there, by the numbers of their hosts, or why there is none; closed before links and namespaces go.
    far: Vec<(usize, Result<compare::Bed, String>)>,
    /// Guests there: behind the paths to them.
    lodgings: Vec<Lodging>,
    /// What hosts are called, with the address of another machine.
    hosts: Vec<String>,
    guests: Guests,
    links: Vec<Lab>,
    /// The namespace that this process is in.
    pub(super) here: Arc<Namespace>,
    /// Folder for what guests' consoles say.
    logs: PathBuf,
}

/// From where streams of a load go, and to where.
pub(super) struct Course<'b> {
    pub(super) from: &'b Arc<Namespace>,
    /// The address there, where that is an end of a link.
    pub(super) own: Option<Ipv4Addr>,
    /// The end that is a namespace of this machine.
    pub(super) to: Option<&'b End>,
    pub(super) at: Ipv4Addr,
}

impl Bed {
    /// Returns the guests' machines that have ended, as [`Guests::ended`] does.
    pub(super) fn ended_guests(&self) -> Vec<(usize, String)> {
        self.guests.ended()
    }

    /// Starts guests' machines again that have ended.
    pub(super) fn restart_guests(&mut self, plan: &Plan, machines: &[usize]) -> Result<()> {
        let place = (self.logs.as_path(), &self.stop);
        self.guests.restart(plan, machines, &self.links, place)
    }

    /// Builds it; what guests' consoles say stays in the folder `logs`. What cannot be undone of what is done with it is told to `left`.
    pub(super) fn build(plan: &Plan, logs: &Path, stop: &Stop, left: &Left) -> Result<Self> {
        ensure!(
            plan.links.len() <= MOST_LINKS,
            "{} links: {MOST_LINKS} are the most",
            plan.links.len()
        );
        let mut namespaces: Vec<Option<Arc<Namespace>>> = Vec::new();
        for host in &plan.hosts {
            let namespace = match host.place {
                Place::Namespace => {
                    let made = Namespace::create(&format!("lab-{}", host.name));
                    Some(made.with_context(|| format!("building the host {}", host.name))?)
                }
                Place::Here | Place::Serve(_) | Place::Guest(_) => None,
            };
            namespaces.push(namespace);
        }
        // Interfaces are numbered in each namespace, but for NICs, which are called as ever.
        let taken: Vec<&String> = plan.links.iter().filter_map(plan::Link::nics).flatten().collect();
        let mut free: Vec<_> = namespaces
            .iter()
            .map(|_| {
                (0..)
                    .map(|number| format!("eth{number}"))
                    .filter(|name| !taken.contains(&name))
            })
            .collect();
        let mut links = Vec::new();
        for (number, link) in plan.links.iter().enumerate() {
            let [Some(a), Some(b)] = link.ends.map(|host| namespaces[host].as_ref()) else {
                bail!("a link ends at namespaces");
            };
            let config = config(link, number, hosts(plan, number));
            let made = match &link.wire {
                Wire::Veth { queues, gro, tso } => {
                    let names = link.ends.map(|host| free[host].next().unwrap_or_default());
                    Lab::join(
                        a,
                        b,
                        VethConfig {
                            names,
                            queues: *queues,
                            gro: *gro,
                            tso: *tso,
                            ..config
                        },
                    )
                }
                Wire::Nics(names) => Lab::cable(
                    a,
                    b,
                    VethConfig {
                        names: names.clone(),
                        ..config
                    },
                ),
            };
            links.push(made.with_context(|| format!("building the link {}", ends_of(plan, link)))?);
        }
        let mut bed = Self {
            left: left.clone(),
            receivers: Vec::new(),
            stop: stop.clone(),
            far: Vec::new(),
            lodgings: Vec::new(),
            hosts: plan.hosts.iter().map(plan::Host::named).collect(),
            guests: Guests::build(plan, &links, logs, stop)?,
            links,
            here: Namespace::current()?,
            logs: logs.to_owned(),
        };
        match bed.reach_others(plan) {
            Ok(()) => Ok(bed),
            // What has gone meanwhile tells more than that it does not answer.
            Err(error) => bed.check(plan).and(Err(error)),
        }
    }

    /// Other machines, and then guests there.
    fn reach_others(&mut self, plan: &Plan) -> Result<()> {
        for (number, host) in plan.hosts.iter().enumerate() {
            if let Place::Serve(serve) = &host.place {
                let path = servers::remote(serve).and_then(|remote| dial(remote, &self.stop));
                let path = path.with_context(|| format!("reaching {}", host.named()))?;
                self.far.push((number, Ok(path)));
                self.find_receivers(plan, number)?;
            }
        }
        for machine in far_guests::machines(plan, None) {
            self.have_there(plan, machine)?;
        }
        self.fits(plan)
    }

    /// Has another machine's server start a guest.
    fn have_there(&mut self, plan: &Plan, machine: usize) -> Result<()> {
        let of = &plan.hosts[machine];
        let host = of.lodger().context("a guest elsewhere")?.guest.host;
        note(format_args!(
            "{} is started at {}",
            of.named(),
            plan.hosts[host].named()
        ));
        let lodging = Lodging::begin(plan, machine, &self.remote(host)?, &self.stop);
        let at = self.lodgings.len();
        self.lodgings
            .push(lodging.with_context(|| format!("starting {}", of.named()))?);
        for (number, path) in self.lodgings[at].reach(plan, &self.stop)? {
            let is_there = path.is_ok();
            self.far.push((number, path));
            if is_there {
                self.find_receivers(plan, number)?;
            }
        }
        Ok(())
    }

    /// Finds out whether another machine's server receives the loads that go there: somebody may have started what they take.
    fn find_receivers(&mut self, plan: &Plan, host: usize) -> Result<()> {
        let LoadsEnd { sink, iperf3 } = load::receivers_at(plan, &plan.probes, Way::Serve(host));
        let sink = LoadsEnd {
            sink,
            ..LoadsEnd::default()
        };
        let iperf3 = LoadsEnd {
            iperf3,
            ..LoadsEnd::default()
        };
        let mut done = LoadsEnd::default();
        // One by one: a machine without iperf3 takes streams all the same.
        let servers: Vec<String> = (iperf3.iperf3.iter())
            .map(|port| format!("`iperf3 -s -p {port}`"))
            .collect();
        for (wanted, by_hand) in [(sink, "`ringside lab sink`".to_owned()), (iperf3, servers.join(", "))] {
            if wanted == LoadsEnd::default() {
                continue;
            }
            match errand(&self.remote(host)?, Errand::Loads(wanted.clone()), &self.stop) {
                Ok(_) => {
                    done.sink |= wanted.sink;
                    done.iperf3.extend(wanted.iperf3);
                }
                Err(why) => note(format_args!(
                    "{}: {why:#}. Such loads to it take what is started there by hand: {by_hand}",
                    plan.hosts[host].named()
                )),
            }
        }
        self.receivers.push((host, done));
        Ok(())
    }

    /// Has other machines receive the loads beside a probe, until the value is dropped. For a turn only: a server does nothing for as long as a run may take.
    pub(super) fn receive(&self, plan: &Plan, probe: &Probe) -> Result<Vec<Far>> {
        let mut all = Vec::new();
        for (host, done) in &self.receivers {
            let mut wanted = load::receivers_at(plan, slice::from_ref(probe), Way::Serve(*host));
            wanted.sink &= done.sink;
            wanted.iperf3.retain(|port| done.iperf3.contains(port));
            if wanted != LoadsEnd::default() {
                all.push(errand(&self.remote(*host)?, Errand::Loads(wanted), &self.stop)?);
            }
        }
        Ok(all)
    }

    /// The ends of a way over a link, from its beginning.
    pub(super) fn ends(&self, way: Way) -> Result<(&End, &End)> {
        let Way::Link { link, back } = way else {
            bail!("no link leads there");
        };
        let link = self.links.get(link).context("a link that was built")?;
        Ok(if back { (&link.b, &link.a) } else { (&link.a, &link.b) })
    }

    /// The end of a link at one of its hosts: the first, or the second.
    pub(super) fn end(&self, link: usize, second: bool) -> Result<&End> {
        let link = self.links.get(link).context("a link that was built")?;
        Ok(if second { &link.b } else { &link.a })
    }

    /// Process number of a guest's machine.
    pub(super) fn process(&self, plan: &Plan, guest: usize) -> Result<u32> {
        self.guests.process(plan, guest)
    }

    /// A path over a link, for one probe after the other.
    pub(super) fn path(&self, way: Way) -> Result<compare::Bed> {
        let (near, far) = self.ends(way)?;
        Ok(compare::Bed::between(
            Side::beside_others(near),
            Side::beside_others(far),
        ))
    }

    /// The path to another machine.
    pub(super) fn far(&self, host: usize) -> Result<&compare::Bed> {
        let found = self.far.iter().find(|(number, _)| *number == host);
        match &found.context("a host that was reached")?.1 {
            Ok(path) => Ok(path),
            Err(why) => bail!("{why}"),
        }
    }

    /// How that machine's server is reached.
    pub(super) fn remote(&self, host: usize) -> Result<Remote<'_>> {
        let turns = self.far(host)?.turns.as_ref();
        Ok(Remote {
            args: &turns.context("a host that was reached")?.remote,
            left: self.left_at(host),
        })
    }

    /// Who is told of what could not be undone at a host.
    pub(super) fn left_at(&self, host: usize) -> Left {
        self.left.at(self.hosts.get(host).cloned().unwrap_or_default())
    }

    /// The same in a guest.
    pub(super) fn left_in(&self, guest: &str) -> Left {
        self.left.at(format!("the guest {guest}"))
    }

    /// What could not be undone.
    pub(super) fn left(&self) -> &Left {
        &self.left
    }

    /// Whether a way is there at all: an attachment may be nothing that this machine has.
    pub(super) fn has(&self, way: Way) -> Result<()> {
        match way {
            Way::Guest(number) => self.guests.path(number).map(drop),
            Way::Serve(number) => self.far(number).map(drop),
            Way::Link { .. } => Ok(()),
        }
    }

    /// The path to a guest.
    pub(super) fn guest(&self, number: usize) -> Result<&compare::Bed> {
        self.guests.path(number)
    }

    /// The end, on this machine, of the link that leads to a guest.
    pub(super) fn near(&self, plan: &Plan, guest: usize) -> Result<&End> {
        Ok(guests::near(&plan.guests[guest], &self.links)?.0)
    }

    /// What a guest's NIC is called inside.
    pub(super) fn inside(&self, guest: usize) -> Result<&str> {
        self.guests.interface(guest)
    }

    /// What has passed so far on the way to a guest.
    pub(super) fn passed(&self, way: Way) -> Result<Option<Passed>> {
        match way {
            Way::Guest(number) => self.guests.passed(number),
            Way::Link { .. } | Way::Serve(_) => Ok(None),
        }
    }

    /// Whether the far end of a way has said lately that it is there, where that is a guest.
    pub(super) fn hears(&self, plan: &Plan, way: Way) -> Result<()> {
        match way {
            Way::Guest(number) => self.guests.hears(plan, number),
            Way::Link { .. } | Way::Serve(_) => Ok(()),
        }
    }

    /// The machine of a guest.
    pub(super) fn machine(&self, plan: &Plan, number: usize) -> Result<&Guest> {
        self.guests.machine(plan, number)
    }

    /// What interfaces of this machine's hosts are called.
    pub(super) fn names(&self) -> Names {
        let ends = self.links.iter().flat_map(Lab::ends);
        let of = |end: &End| end.ns.try_run(Names::here).unwrap_or_default();
        ends.map(of).fold(Names::here(), Names::and)
    }

    /// From where streams of a load go on a way, and to where.
    pub(super) fn course(&self, plan: &Plan, way: Way) -> Result<Course<'_>> {
        let mut own = None;
        let (from, to, at) = match way {
            Way::Link { .. } => {
                let (from, to) = self.ends(way)?;
                own = Some(from.ipv4);
                (&from.ns, Some(to), to.ipv4)
            }
            Way::Guest(number) => {
                // That there is one.
                let path = self.guests.path(number)?;
                match plan.guests[number].uplink {
                    Some(_) => {
                        let (near, at) = guests::near(&plan.guests[number], &self.links)?;
                        (&near.ns, None, at)
                    }
                    None => (&self.here, None, path.b.address()),
                }
            }
            Way::Serve(host) => (&self.here, None, self.far(host)?.b.address()),
        };
        Ok(Course { from, own, to, at })
    }

    /// The guests, for the result.
    pub(super) fn machines(&self, plan: &Plan) -> Vec<schema::LabMachine> {
        let mut all = self.guests.machines(plan);
        all.extend(self.lodgings.iter().flat_map(|lodging| lodging.told(plan)));
        all
    }

    /// Whether everything is still there and up.
    ///
    /// # Errors
    /// The first thing that is not.
    pub(super) fn check(&self, plan: &Plan) -> Result<()> {
        for (link, of) in self.links.iter().zip(&plan.links) {
            for (end, host) in link.ends().into_iter().zip(of.ends) {
                let place = || format!("{} of the host {}", end.interface.name(), plan.hosts[host].name);
                let state = end.state();
                let state = state.with_context(|| format!("the link at {} is gone: somebody removed it", place()))?;
                ensure!(
                    state.admin_up && state.carrier,
                    "the link at {} is down: somebody switched it off",
                    place()
                );
            }
        }
        self.guests.check(plan)?;
        // What its server says of a guest that is gone tells more than that it does not answer.
        self.lodgings.iter().try_for_each(|lodging| lodging.check(plan))?;
        for (number, path) in &self.far {
            let turns = path.as_ref().ok().and_then(|path| path.turns.as_ref());
            if let Some(why) = turns.and_then(|turns| turns.finish()?.lost) {
                bail!("{}: {why}", plan.hosts[*number].named());
            }
        }
        Ok(())
    }

    /// All interfaces for the result.
    pub(super) fn interfaces(&self) -> Vec<schema::Interface> {
        let record = |end: &End| {
            end.ns
                .try_run(|| Some(system::interface(&end.interface, &end.interface.state().ok()?, None)))
                .ok()?
        };
        let links = self.links.iter().flat_map(|link| link.ends().map(record));
        let far = self
            .far
            .iter()
            .filter_map(|(_, path)| path.as_ref().ok())
            .flat_map(|path| path.records().into_iter().map(Some));
        links.chain(far).flatten().collect()
    }

    /// Frames of a way that is not over a link are looked at once it is known.
    fn fits(&self, plan: &Plan) -> Result<()> {
        for probe in &plan.probes {
            let Way::Serve(host) = probe.way else { continue };
            // Else that is the reason in its row.
            let Ok(path) = self.far(host) else { continue };
            let near = &path.a;
            let mtu = near.run(|| near.interface.state())?.mtu;
            // The tags of a schedule's frames are counted with them, and not of the MTU.
            let headers = if probe.scheduled.is_some() { 18 } else { 14 };
            ensure!(
                u32::from(probe.frame_bytes) <= mtu + headers,
                "the probe {}: frames of {} bytes: the MTU of {} is {mtu}",
                probe.name,
                probe.frame_bytes,
                near.interface
            );
        }
        Ok(())
    }
}

fn config(link: &plan::Link, number: usize, hosts: [u8; 2]) -> VethConfig {
    VethConfig {
        hosts,
        mtu: link.mtu,
        subnet: u8::try_from(number + 1).unwrap_or(u8::MAX),
        // Nothing but the packets of probes and loads.
        ipv6: false,
        ..VethConfig::tagged("lab")
    }
}

/// The end behind which a guest is has no address: that is the guest's.
fn hosts(plan: &Plan, link: usize) -> [u8; 2] {
    let [a, b] = plan.links[link].ends;
    match plan.guests.iter().find(|guest| guest.uplink == Some(link)) {
        Some(guest) if guest.host == a => [0, 1],
        Some(guest) if guest.host == b => [1, 0],
        _ => [1, 2],
    }
}

fn ends_of(plan: &Plan, link: &plan::Link) -> String {
    let [a, b] = link.ends.map(|host| plan.hosts[host].name.as_str());
    format!("between {a} and {b}")
}

/// The path to a machine where `ringside serve` runs.
pub(super) fn dial(remote: RemoteArgs, stop: &Stop) -> Result<compare::Bed> {
    let way = remote.way()?.context("a server has an address")?;
    let dialled = remote.dial()?.context("a server has an address")?;
    let (IpAddr::V4(to), Some(IpAddr::V4(from))) = (way.to, way.from) else {
        bail!("probes of a lab take IPv4: name the server by its IPv4 address");
    };
    if let Some(error) = ringside_xsk::foreign_program(&way.interface) {
        return Err(error.into());
    }
    let state = way.interface.state()?;
    let near = Side::shared(way.interface.clone(), MacAddr(state.mac), from);
    let far = Side::shared(way.interface, way.mac, to);
    Ok(compare::Bed::to_server(near, far, dialled.turns(remote, stop)?))
}
