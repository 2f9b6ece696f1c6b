//! Guests of a lab: their NICs joined to links, and a `ringside serve` behind each, which answers as another machine's does.
//!
//! ```text
//!  near ──link── host │ attachment │ NIC of the guest ── ringside serve
//!   .1                                    .2
//! ```

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use ringside_bpf::TapRings;
use ringside_measure::schema::LabMachine;
use ringside_netlab::attach::{AttachConfig, Attachment, Uplink, Vfio};
use ringside_netlab::guest::{Accelerator, Guest, Kernel};
use ringside_netlab::{End, Lab, wait_until};
use ringside_nic::process;

use super::boot::{self, Boot, own_program};
use super::file::{self, Address};
use super::passed::Passed;
use super::plan::{self, Plan, Work};
use super::{bed, load, machine};
use crate::compare::{self, Side};
use crate::output;
use crate::serve::RemoteArgs;
use crate::stop::Stop;

/// How long a server may take in a guest whose CPUs are emulated.
const SERVE: Duration = Duration::from_secs(60);
/// How long a guest whose CPUs are emulated may say nothing during a turn: it is slow, and not gone. Who ends it is noticed by its process. So long, too,
/// another machine that does something for the lab.
pub(super) const SILENCE: Duration = Duration::from_secs(10);
/// The same of a guest with CPUs of its own: longer than its server's connection takes, which ends a turn.
const SILENCE_KVM: Duration = Duration::from_secs(3);
/// How long the agent of a guest that says nothing may take to answer.
const AGENT: Duration = Duration::from_secs(2);
/// How long a machine may take to end behind a turn that failed because of it.
const ENDING: Duration = Duration::from_millis(300);
/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(300);

/// All guests of a lab. What is first goes first: connections, then machines, then what joins them to links.
#[derive(Default)]
pub(super) struct Guests {
    /// The paths to them, by their numbers in the file; or why there is none.
    paths: Vec<(usize, Result<compare::Bed, String>)>,
    /// What their NICs are called inside.
    interfaces: Vec<(usize, String)>,
    machines: Vec<Machine>,
    /// By the numbers of their guests.
    attachments: Vec<(usize, Attachment)>,
    /// Sees what waits in them, if that is wanted and can be had.
    rings: Option<TapRings>,
}

struct Machine {
    /// Of the guest that it is of.
    number: usize,
    guest: Guest,
    console: PathBuf,
}

impl Machine {
    fn last_words(&self) -> String {
        format!(
            "the last that its console said, which is in {}: {}",
            self.console.display(),
            boot::last_words(&self.guest)
        )
    }
}

/// A NIC that is joined and not yet in a machine.
struct Joined<'l> {
    number: usize,
    attachment: Attachment,
    /// Where packets to it start, if that is a namespace.
    near: Option<&'l End>,
    address: Address,
}

impl Joined<'_> {
    /// Whether it is a NIC of this machine.
    fn is_whole(&self) -> bool {
        matches!(self.attachment, Attachment::Vfio(_))
    }
}

impl Guests {
    /// Joins and boots them. An attachment that this machine cannot have is no error: the paths over it say why.
    pub(super) fn build(plan: &Plan, links: &[Lab], logs: &Path, stop: &Stop) -> Result<Self> {
        let mut all = Self::default();
        if plan.rings && !plan.guests.is_empty() {
            all.rings = match TapRings::start() {
                Ok(rings) => Some(rings),
                Err(error) => {
                    output::note(format_args!("what waits in TAP devices cannot be seen here: {error}"));
                    None
                }
            };
        }
        for machine in (0..plan.guests.len()).filter(|number| plan.guests[*number].machine == *number) {
            all.start(plan, machine, links, (logs, stop))?;
        }
        Ok(all)
    }

    /// Joins and boots one machine.
    fn start(&mut self, plan: &Plan, machine: usize, links: &[Lab], to: (&Path, &Stop)) -> Result<()> {
        let ((logs, stop), mut joined) = (to, Vec::new());
        let nics = plan.guests.iter().enumerate();
        for (number, nic) in nics.filter(|(_, nic)| nic.machine == machine) {
            match join(plan, nic, number, links) {
                Ok(nic) => joined.push(nic),
                Err(error) => self.paths.push((number, Err(format!("{error:#}")))),
            }
        }
        if joined.is_empty() {
            return Ok(());
        }
        let name = &plan.guests[machine].name;
        let console = console(logs, name)?;
        let guest = boot(plan, machine, &joined, (&console, stop)).with_context(|| {
            let console = console.display();
            format!("booting the guest {name} (its console: {console})")
        });
        let guest = match guest {
            Ok(guest) => guest,
            // What the NIC that it got needs is known to nobody but its driver.
            Err(error) if joined.iter().any(Joined::is_whole) && !stop.is_set() => {
                let why = format!("{error:#}");
                self.paths
                    .extend(joined.iter().map(|nic| (nic.number, Err(why.clone()))));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for (at, nic) in joined.into_iter().enumerate() {
            let name = &plan.guests[nic.number].name;
            let path = reach(&guest, &nic, at, stop);
            let path = path.with_context(|| format!("reaching the guest {name}"));
            let path = match path {
                // Nor is what its cable leads to.
                Err(error) if nic.is_whole() && !stop.is_set() => Err(format!("{error:#}")),
                path => Ok(path?),
            };
            self.paths.push((nic.number, path));
            self.interfaces.push((nic.number, boot::interface(at)));
            self.attachments.push((nic.number, nic.attachment));
        }
        self.machines.push(Machine {
            number: machine,
            guest,
            console,
        });
        Ok(())
    }

    /// Returns the machines that have ended, by the numbers of their guests, with the last that
    /// each one's console said. Waits a moment for one that is about to end.
    pub(super) fn ended(&self) -> Vec<(usize, String)> {
        let of = |machine: &Machine| machine.guest.has_ended();
        if !self.machines.is_empty() {
            wait_until(ENDING, || self.machines.iter().any(of));
        }
        let ended = self.machines.iter().filter(|machine| of(machine));
        ended.map(|machine| (machine.number, machine.last_words())).collect()
    }

    /// Starts machines again that have ended. What joined their NICs may have ended with them: that
    /// is made again, too.
    pub(super) fn restart(
        &mut self,
        plan: &Plan,
        machines: &[usize],
        links: &[Lab],
        (logs, stop): (&Path, &Stop),
    ) -> Result<()> {
        let is_its = |number: &usize| machines.contains(&plan.guests[*number].machine);
        // In the order in which they go at the end of a run.
        self.paths.retain(|(number, _)| !is_its(number));
        self.interfaces.retain(|(number, _)| !is_its(number));
        self.machines.retain(|of| !machines.contains(&of.number));
        self.attachments.retain(|(number, _)| !is_its(number));
        // The loss of their servers has set it. The threads that see it have ended with the paths.
        stop.clear();
        for machine in machines {
            let started = self.start(plan, *machine, links, (logs, stop));
            let name = &plan.guests[*machine].name;
            started.with_context(|| format!("starting the guest {name} again"))?;
        }
        Ok(())
    }

    /// The path to one.
    pub(super) fn path(&self, number: usize) -> Result<&compare::Bed> {
        let found = self.paths.iter().find(|(of, _)| *of == number);
        match &found.context("a guest of the lab")?.1 {
            Ok(path) => Ok(path),
            Err(why) => bail!("{why}"),
        }
    }

    /// What one's NIC is called inside.
    pub(super) fn interface(&self, number: usize) -> Result<&str> {
        let found = self.interfaces.iter().find(|(of, _)| *of == number);
        Ok(&found.context("a guest that was reached")?.1)
    }

    /// The machine of one.
    pub(super) fn machine(&self, plan: &Plan, number: usize) -> Result<&Guest> {
        Ok(&self.booted(plan, number)?.guest)
    }

    fn booted(&self, plan: &Plan, number: usize) -> Result<&Machine> {
        let wanted = plan.guests.get(number).map(|guest| guest.machine);
        let found = self.machines.iter().find(|machine| Some(machine.number) == wanted);
        found.context("a guest that was booted")
    }

    /// Whether the programs run that carry their packets, and the connections are there.
    pub(super) fn check(&self, plan: &Plan) -> Result<()> {
        if let Some(machine) = self.machines.iter().find(|machine| machine.guest.has_ended()) {
            bail!(
                "the guest {} has ended, or somebody has ended it; {}",
                plan.guests[machine.number].name,
                machine.last_words()
            );
        }
        self.attachments.iter().try_for_each(|(_, made)| made.check())?;
        for (number, path) in &self.paths {
            let turns = path.as_ref().ok().and_then(|path| path.turns.as_ref());
            let Some(turns) = turns else { continue };
            if let Some(why) = turns.finish().and_then(|far| far.lost) {
                bail!("{}", self.lost(plan, *number, &why)?);
            }
            self.hears(plan, *number)?;
        }
        Ok(())
    }

    /// Whether the server in a guest has said lately that it is there, in a turn or not.
    pub(super) fn hears(&self, plan: &Plan, number: usize) -> Result<()> {
        let Some(turns) = &self.path(number)?.turns else {
            return Ok(());
        };
        let quiet = turns.quiet();
        if quiet <= turns.silence.unwrap_or(SILENCE_KVM) {
            return Ok(());
        }
        let why = format!("its server has said nothing for {:.1} s", quiet.as_secs_f64());
        bail!("{}", self.lost(plan, number, &why)?)
    }

    /// What is to be said of a guest whose server is lost: by what else it was looked for, and what became of it.
    fn lost(&self, plan: &Plan, number: usize, why: &str) -> Result<String> {
        let name = &plan.guests[number].name;
        let machine = self.booted(plan, number)?;
        if machine.guest.answers_within(AGENT) {
            return Ok(format!(
                "the guest {name}: {why}; its agent answers over its serial port"
            ));
        }
        let process = match machine.guest.pid() {
            Ok(pid) if process::is_stopped(pid) => {
                format!(
                    "its machine, process {pid}, is stopped: somebody has sent it SIGSTOP, or holds it with a debugger"
                )
            }
            Ok(pid) => format!("its machine, process {pid}, runs: its kernel or QEMU hangs"),
            Err(_) => "its machine is gone".to_owned(),
        };
        Ok(format!(
            "the guest {name} hangs: {why}; nor has its agent answered over its serial port within {AGENT:?}; {process}; {}",
            machine.last_words()
        ))
    }

    /// What has passed one's attachment so far.
    pub(super) fn passed(&self, number: usize) -> Result<Option<Passed>> {
        let found = self.attachments.iter().find(|(of, _)| *of == number);
        let read = |(_, attachment): &(usize, Attachment)| Passed::read(attachment, self.rings.as_ref());
        found.map(read).transpose()
    }

    /// Process number of one's machine.
    pub(super) fn process(&self, plan: &Plan, number: usize) -> Result<u32> {
        // That there is one.
        self.path(number)?;
        let machine = self.machines.iter().find(|of| of.number == plan.guests[number].machine);
        machine
            .context("a guest's machine")?
            .guest
            .pid()
            .context("asking for the process of a guest's machine")
    }

    /// For the result.
    pub(super) fn machines(&self, plan: &Plan) -> Vec<LabMachine> {
        let of = |nic: &plan::Guest| {
            let machine = self.machines.iter().find(|machine| machine.number == nic.machine);
            let machine = machine.map(|machine| &machine.guest);
            LabMachine {
                name: nic.name.clone(),
                kind: "guest".to_owned(),
                cpu: None,
                attachment: Some(nic.attachment.name().to_owned()),
                accelerator: machine.map(|guest| guest.accelerator().name().to_owned()),
                kernel_release: machine.map(|guest| guest.release().to_owned()),
            }
        };
        plan.guests.iter().map(of).collect()
    }
}

/// The namespace's end of the link that leads to a guest, and the guest's address.
pub(super) fn near<'l>(nic: &plan::Guest, links: &'l [Lab]) -> Result<(&'l End, Ipv4Addr)> {
    let (_, near, _) = ends(nic, links)?;
    Ok((near, far_address(near)))
}

/// A guest's uplink: its near end, and the host's, which is the one without an address.
fn ends<'l>(nic: &plan::Guest, links: &'l [Lab]) -> Result<(&'l Lab, &'l End, &'l End)> {
    let link = nic
        .uplink
        .and_then(|link| links.get(link))
        .context("a link that was built")?;
    Ok(match link.a.ipv4.is_unspecified() {
        true => (link, &link.b, &link.a),
        false => (link, &link.a, &link.b),
    })
}

fn far_address(near: &End) -> Ipv4Addr {
    let [a, b, c, host] = near.ipv4.octets();
    Ipv4Addr::new(a, b, c, 3 - host.min(2))
}

/// The kernel of a guest's machine.
fn kernel(machine: &plan::Guest) -> Result<Kernel> {
    Ok(match &machine.kernel {
        Some(kernel) => Kernel::named(kernel)?,
        None => Kernel::usual()?,
    })
}

/// What the kernels of guests' machines lack for the NICs that they are to get, by the numbers of these guests, and of the modules that the file names, as far as they
/// are here: nothing is fetched.
pub(super) fn kernels_lack(plan: &Plan) -> (Vec<(usize, String)>, Vec<String>) {
    let at_hand = |guest: &plan::Guest| Kernel::at_hand(plan.guests[guest.machine].kernel.as_deref());
    let told = |guest: &plan::Guest, why: &dyn Display| format!("the guest {}: {why}", guest.name);
    let of_nic = |(number, guest): (usize, &plan::Guest)| {
        let (pci, _) = guest.nic?;
        let modules = &plan.guests[guest.machine].modules;
        let why = at_hand(guest)?.drivers_of(pci, modules).err()?;
        Some((number, told(guest, &why)))
    };
    let of_modules = |guest: &plan::Guest| {
        if guest.modules.is_empty() {
            return None;
        }
        let why = at_hand(guest)?.has_modules(&guest.modules).err()?;
        Some(told(guest, &why))
    };
    (
        plan.guests.iter().enumerate().filter_map(of_nic).collect(),
        plan.guests.iter().filter_map(of_modules).collect(),
    )
}

fn join<'l>(plan: &Plan, nic: &plan::Guest, number: usize, links: &'l [Lab]) -> Result<Joined<'l>> {
    if let Some((pci, address)) = nic.nic {
        // As long as its driver has it.
        Vfio::check(pci)?;
        let machine = &plan.guests[nic.machine];
        kernel(machine)?.drivers_of(pci, &machine.modules)?;
        return Ok(Joined {
            number,
            attachment: Attachment::Vfio(Arc::new(Vfio::bind(pci)?)),
            near: None,
            address,
        });
    }
    let (link, near, far) = ends(nic, links)?;
    let uplink = Uplink::at(link, far, near);
    let config = attachment(nic, number)?;
    Ok(Joined {
        number,
        attachment: Attachment::make(nic.attachment, &uplink, &config)?,
        near: Some(near),
        address: Address(far_address(near), 24),
    })
}

/// What a guest's attachment is to be like.
pub(super) fn attachment(nic: &plan::Guest, number: usize) -> Result<AttachConfig> {
    let mut config = boot::attach_config(number, (nic.queues, nic.queue_len), nic.is_generic, nic.express)?;
    config.socket = nic.socket.as_ref().map(Into::into);
    config.program.clone_from(&nic.program);
    config.pci = nic.nic.map(|(pci, _)| pci);
    Ok(config)
}

/// Where a guest's console goes: a file of the run's folder that no boot before has.
fn console(logs: &Path, name: &str) -> Result<PathBuf> {
    // QEMU opens it, wherever that runs.
    let logs = std::path::absolute(logs).context("the place of the run's folder")?;
    let names = (2..).map(|boot| format!("console-{name}-{boot}.log"));
    let mut all = std::iter::once(format!("console-{name}.log"))
        .chain(names)
        .map(|name| logs.join(name));
    all.find(|path| !path.exists()).context("a name for a guest's console")
}

fn boot(plan: &Plan, number: usize, nics: &[Joined<'_>], to: (&Path, &Stop)) -> Result<Guest> {
    let (machine, (console, stop)) = (&plan.guests[number], to);
    let kernel = kernel(machine)?;
    let qdiscs = qdiscs(plan, |way| nics.iter().any(|nic| way == plan::Way::Guest(nic.number)));
    let mut config = boot::config(&machine.name, kernel, qdiscs)?;
    config.cpus = machine.cpus;
    config.emulated_cpus = Some(plan.emulated_cpus(number));
    config.memory_mib = machine.memory_mib;
    config.console = Some(console.to_owned());
    config.cancel = Some(stop.flag());
    config.acceleration = machine.acceleration.wanted();
    config.modules.extend(machine.modules.iter().cloned());
    for load in &plan.loads {
        if let Work::Program {
            command,
            guest: Some(guest),
            ..
        } = &load.what
            && plan.guests[*guest].machine == machine.machine
        {
            config.programs.extend(command.first().map(PathBuf::from));
            config.programs.push(machine::PINS.into());
        }
    }
    let loads = load::receivers(plan, |_, _| true);
    if !loads.iperf3.is_empty() {
        config.programs.push("iperf3".into());
    }
    let iperf3 = |port: &u16| format!("iperf3 -s -p {port} >/iperf3-{port}.log 2>&1 </dev/null &");
    let mut also: Vec<String> = loads.iperf3.iter().map(iperf3).collect();
    if loads.sink {
        let own = own_program()?;
        also.push(format!("{} lab sink >/sink.log 2>&1 </dev/null &", own.display()));
    }
    let addresses = nics.iter().map(|nic| (&nic.attachment, nic.address.0, nic.address.1));
    let boot = Boot {
        config,
        nics: addresses.collect(),
        serve: [String::new(), "--insecure".to_owned()],
        also,
    };
    boot.start()
}

/// Queueing disciplines that talkers install at the other end of these ways.
pub(super) fn qdiscs(plan: &Plan, is_its: impl Fn(plan::Way) -> bool) -> Vec<&'static str> {
    let schedules = plan.schedules.iter();
    let its = schedules.filter(|schedule| schedule.is_back && is_its(schedule.way));
    let all: BTreeSet<&str> = its.map(|schedule| schedule.qdisc.name()).collect();
    all.into_iter()
        .filter(|name| *name != file::Qdisc::AsItIs.name())
        .collect()
}

/// Waits for the server behind a NIC, and connects to it.
fn reach(guest: &Guest, nic: &Joined<'_>, at: usize, stop: &Stop) -> Result<compare::Bed> {
    let dial = || match nic.near {
        Some(near) => near.ns.try_run(|| dial(near, nic.address.0, stop))?,
        None => bed::dial(RemoteArgs::at(nic.address.0), stop),
    };
    until_reached(SERVE, guest.accelerator() == Accelerator::Tcg, stop, dial).map_err(|error| {
        let said = boot::said(guest, at);
        anyhow!("{error:#}; `ringside serve` there said: {said}")
    })
}

/// Connects to a server in a guest, which may not answer yet.
pub(super) fn until_reached(
    limit: Duration,
    is_emulated: bool,
    stop: &Stop,
    dial: impl Fn() -> Result<compare::Bed>,
) -> Result<compare::Bed> {
    let over = Instant::now() + limit;
    loop {
        ensure!(!stop.is_set(), "interrupted");
        match dial() {
            Ok(mut path) => {
                if let Some(turns) = &mut path.turns {
                    turns.silence = is_emulated.then_some(SILENCE);
                }
                return Ok(path);
            }
            Err(error) if Instant::now() >= over => return Err(error),
            Err(_) => std::thread::sleep(LOOK),
        }
    }
}

fn dial(near: &End, address: Ipv4Addr, stop: &Stop) -> Result<compare::Bed> {
    let remote = RemoteArgs::at(address);
    let way = remote.way()?.context("a server has an address")?;
    let dialled = remote.dial()?.context("a server has an address")?;
    let IpAddr::V4(to) = way.to else {
        return Err(anyhow!("a guest has an IPv4 address"));
    };
    let far = Side::shared(way.interface, way.mac, to);
    Ok(compare::Bed::to_server(
        Side::beside_others(near),
        far,
        dialled.turns(remote, stop)?,
    ))
}
