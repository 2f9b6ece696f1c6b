//! The interface and the workers on it: what happens to it is seen, told, and answered.
//!
//! ```text
//!  gone, moved away ──▶ workers end ──▶ there is one of its name again ──▶ program and sockets on that ──▶ workers
//!  other queues, longer packets, a worker that fails ──▶ workers end ──▶ sockets anew ──▶ workers
//!  other addresses, MAC address, MTU ──▶ other settings                 down, no carrier ──▶ told
//! ```
//! The caches stay all the while, and what they know is sent on as long as the interface has the program.

use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ringside_bpf::gateway::GatewayProgram;
use ringside_bpf::{Link, XdpMode};
use ringside_gateway_core::Firewall;
use ringside_gateway_core::decide::{Decider, PortSettings, Settings};
use ringside_nic::{Interface, LinkWatch};
use ringside_wire::MacAddr;
use ringside_xsk::{Mode, Path as Way, Port, Program, QueueOptions};

use super::cache::Cache;
use super::notices::{About, Event};
use super::worker::{Lane, Shared, Tell, Worker};
use super::{BURST, PathOptions, Told, attach, gateway_port};
use crate::model::Tables;

/// The end of the gateway is noticed this soon.
const LISTEN: Duration = Duration::from_millis(100);
/// The interface is looked at so often although nobody told anything: addresses come without a word.
const LOOK: Duration = Duration::from_secs(1);
/// Between two tries to have it again: soon at first, then rarely.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The program on its interface. Dropped first, so that nothing is handed up any more.
pub(super) type Attached = Mutex<Option<(Link, XdpMode)>>;

pub(super) struct Supervisor {
    pub(super) options: PathOptions,
    pub(super) tables: Arc<Tables>,
    pub(super) shared: Arc<Shared>,
    pub(super) cache: Arc<Mutex<Cache>>,
    pub(super) workers: Arc<[Told]>,
    pub(super) tell: Tell,
    pub(super) attached: Arc<Attached>,
}

/// Why workers end while the gateway goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Gone,
    OtherQueues,
    LongerPackets,
    Failed,
}

impl Why {
    const fn text(self) -> &'static str {
        match self {
            Self::Gone => "the interface is gone",
            Self::OtherQueues => "the interface has other queues",
            Self::LongerPackets => "the interface brings longer packets",
            Self::Failed => "one of them failed",
        }
    }
}

/// What the sockets were opened for.
struct Opened {
    queues: usize,
    mtu: u16,
}

impl Supervisor {
    /// Until the gateway ends, and the port with it.
    pub(super) fn run(self, mut port: Port) {
        let mut watch = self.watch();
        while !self.shared.stop.load(Ordering::Relaxed) {
            let begun = Instant::now();
            let Some(why) = self.work(&mut port, watch.as_mut()) else {
                return;
            };
            tracing::warn!(
                interface = self.options.interface,
                why = why.text(),
                "the workers have ended"
            );
            drop(port);
            if why == Why::OtherQueues {
                self.detach_from_veth();
            }
            // Who fails at once is not tried again at once.
            let soon = begun.elapsed() > LONGEST_PAUSE;
            let Some(again) = self.have_again(watch.as_mut(), if soon { FIRST_PAUSE } else { LONGEST_PAUSE }) else {
                return;
            };
            port = again;
            // What the watch follows may be another interface by now.
            watch = self.watch();
        }
    }

    /// Without one everything is noticed, only later.
    fn watch(&self) -> Option<LinkWatch> {
        LinkWatch::by_name(&self.options.interface)
            .inspect_err(|error| tracing::warn!(%error, "its events are only seen once a second"))
            .ok()
    }

    /// The workers' threads, until the gateway ends (None), or something asks for other sockets: what.
    fn work(&self, port: &mut Port, watch: Option<&mut LinkWatch>) -> Option<Why> {
        let opened = Opened {
            queues: port.queues().len(),
            mtu: self.shared.settings.load().ports.first().map_or(0, |port| port.mtu),
        };
        let count = self.workers.len().min(opened.queues.max(1));
        let mut lanes: Vec<Vec<Lane<'_>>> = (0..count).map(|_| Vec::new()).collect();
        for (number, queue) in port.queues_mut().enumerate() {
            lanes[number % count].push(Lane::new(queue, self.options.patience));
        }
        let halt = AtomicBool::new(false);
        let why = std::thread::scope(|scope| {
            // Also if this thread panics.
            let _at_end = AtEnd(&halt);
            let mut threads = Vec::new();
            for ((number, told), lanes) in self.workers.iter().enumerate().zip(lanes) {
                told.begin(&self.options.interface, &lanes);
                let halt = &halt;
                let started = std::thread::Builder::new()
                    .name(format!("worker {number}"))
                    .spawn_scoped(scope, move || {
                        let _at_end = AtEnd(halt);
                        self.worker(number, told, halt).run(lanes)
                    });
                match started {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        tracing::error!(%error, "a worker cannot be started");
                        return Some(Why::Failed);
                    }
                }
            }
            let why = self.look_after(&halt, &opened, watch);
            halt.store(true, Ordering::Relaxed);
            for (thread, told) in threads.into_iter().zip(&*self.workers) {
                let failed = match thread.join() {
                    Ok(Ok(())) => None,
                    Ok(Err(error)) => Some(error.to_string()),
                    Err(_) => Some("it has panicked".to_owned()),
                };
                if let Some(error) = failed.filter(|_| why.is_some()) {
                    tracing::warn!(worker = *told.name.load_full(), error, "a worker has ended");
                }
            }
            why
        });
        self.workers.iter().for_each(Told::end);
        why
    }

    fn worker<'a>(&'a self, number: usize, told: &'a Told, halt: &'a AtomicBool) -> Worker<'a> {
        let options = &self.options;
        if let Some(cpu) = options.cpus.get(number % options.cpus.len().max(1))
            && let Err(error) = pin(*cpu)
        {
            tracing::warn!(worker = *told.name.load_full(), cpu, %error, "cannot be pinned");
        }
        let firewall = Firewall::new(&self.tables.policy, Arc::clone(&self.tables.conntrack));
        Worker {
            port: 0,
            decider: Decider::new(
                self.shared.settings.load_full(),
                self.tables.neighbors.reader(),
                self.tables.hosts.reader(),
                firewall,
                BURST as usize,
            ),
            hosts: self.tables.hosts.reader(),
            shared: &self.shared,
            halt,
            tell: self.tell.clone(),
            counters: &told.counters,
            seen: &told.seen,
            spin: options.spin,
        }
    }

    /// Looks at the interface until the gateway ends (None), or it has to be opened anew: why.
    fn look_after(&self, halt: &AtomicBool, opened: &Opened, mut watch: Option<&mut LinkWatch>) -> Option<Why> {
        let mut looked: Option<Instant> = None;
        loop {
            if self.shared.stop.load(Ordering::Relaxed) {
                return None;
            }
            let happened = self.listen(watch.as_deref_mut(), LISTEN);
            let halted = halt.load(Ordering::Relaxed);
            if happened || halted || looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
                looked = Some(Instant::now());
                match self.look(opened) {
                    Ok(None) => {}
                    Ok(Some(why)) => return Some(why),
                    // A kernel that does not answer for once: the next look is soon.
                    Err(error) => tracing::debug!(%error, "the interface cannot be looked at"),
                }
            }
            if halted {
                return Some(Why::Failed);
            }
        }
    }

    /// Waits until something happens to a link, and counts what happened to this one. True if something did.
    fn listen(&self, watch: Option<&mut LinkWatch>, patience: Duration) -> bool {
        let Some(watch) = watch else {
            std::thread::sleep(patience);
            return false;
        };
        let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::ZERO);
        // Whatever it says, there is a look.
        _ = poll(&mut [PollFd::new(watch.as_fd(), PollFlags::POLLIN)], timeout);
        let mut happened = false;
        loop {
            match watch.next() {
                Ok(Some(event)) => {
                    happened = true;
                    if let Some(event) = Event::of(&event) {
                        self.shared.notices.count(event);
                    }
                }
                Ok(None) => return happened,
                Err(error) => {
                    tracing::debug!(%error, "the link cannot be watched");
                    // What could not be read may still be there, and would end every wait at once.
                    std::thread::sleep(patience);
                    return happened;
                }
            }
        }
    }

    /// Addresses, MTU and MAC address may change. Something if it has to be opened anew.
    fn look(&self, opened: &Opened) -> Result<Option<Why>> {
        let name = &self.options.interface;
        let notices = &self.shared.notices;
        let interface = self.shared.interface.load();
        let found = match Interface::by_index(interface.index()) {
            Ok(found) => found,
            Err(ringside_nic::Error::UnknownIndex { .. }) => {
                notices.count(Event::Gone);
                notices.tell(About::Interface, Some(gone(name)));
                return Ok(Some(Why::Gone));
            }
            Err(error) => return Err(error.into()),
        };
        let renamed = (found.name() != name).then(|| {
            format!(
                "the interface {name} is called {} now: the configuration has to say so before the next start",
                found.name()
            )
        });
        notices.tell(About::Name, renamed);
        let state = interface.state()?;
        let link = match (state.admin_up, state.carrier) {
            (false, _) => Some(format!(
                "the interface {name} is down: nothing is forwarded; ip link set dev {name} up"
            )),
            (true, false) => Some(format!("the interface {name} has no carrier: nothing is forwarded")),
            (true, true) => None,
        };
        notices.tell(About::Link, link);
        let (port, addresses) = own_port(&interface)?;
        self.adapt(&interface, port, addresses);
        let (queues, room) = (interface.rx_queues()?, self.program().sizes().queues);
        let more = (queues > room).then(|| {
            format!(
                "the interface {name} has {queues} receive queues, and the fast path was made for {room}: what comes on the \
                 others and takes a worker is dropped; start the gateway anew"
            )
        });
        notices.tell(About::Queues, more);
        if queues.min(room) as usize != opened.queues {
            return Ok(Some(Why::OtherQueues));
        }
        Ok((port.mtu > opened.mtu).then_some(Why::LongerPackets))
    }

    /// Makes known what the interface has now.
    fn adapt(&self, interface: &Interface, port: PortSettings, addresses: Vec<IpAddr>) {
        let (name, notices) = (&self.options.interface, &self.shared.notices);
        let before = self.shared.settings.load_full();
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let ports = vec![Some(gateway_port(interface.index(), &port))];
        let is_same = before.ports.first() == Some(&port) && before.underlay.addresses == addresses;
        if !is_same || cache.config.ports != ports {
            let old = (
                std::mem::replace(&mut cache.config.ports, ports),
                std::mem::replace(&mut cache.config.addresses, addresses.clone()),
            );
            if let Err(error) = cache.configure() {
                (cache.config.ports, cache.config.addresses) = old;
                let problem = format!("the interface {name} has changed, and what was so before goes on: {error}");
                notices.tell(About::Settings, Some(problem));
                return;
            }
            tracing::info!(?port, ?addresses, "the interface has changed");
            notices.count(Event::Changed);
            let mut settings = Settings::clone(&before);
            settings.ports = vec![port];
            settings.underlay.addresses = addresses;
            self.shared.settings.store(Arc::new(settings));
        }
        drop(cache);
        notices.tell(About::Settings, (!has_address(&port)).then(|| no_address(name)));
    }

    fn program(&self) -> Arc<GatewayProgram> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&cache.program)
    }

    /// The interface's sockets once more, as soon as they can be had. None if the gateway ends before.
    fn have_again(&self, mut watch: Option<&mut LinkWatch>, mut pause: Duration) -> Option<Port> {
        let notices = &self.shared.notices;
        loop {
            let until = Instant::now() + pause;
            while let Some(left) = until
                .checked_duration_since(Instant::now())
                .filter(|left| !left.is_zero())
            {
                if self.shared.stop.load(Ordering::Relaxed) {
                    return None;
                }
                // One that has just come is not kept waiting.
                if self.listen(watch.as_deref_mut(), left.min(LISTEN)) && notices.is_told(About::Interface) {
                    break;
                }
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            match self.reopen() {
                Ok(port) => {
                    notices.count(Event::Reopened);
                    notices.tell(About::Interface, None);
                    tracing::info!(report = %port.report(), "packets are forwarded again");
                    return Some(port);
                }
                Err(error) => {
                    let name = &self.options.interface;
                    let is_gone = matches!(error.downcast_ref(), Some(ringside_nic::Error::UnknownInterface { .. }));
                    let problem = match is_gone {
                        true => gone(name),
                        false => {
                            format!("the interface {name} cannot be had again, which is tried every second: {error:#}")
                        }
                    };
                    notices.tell(About::Interface, Some(problem));
                }
            }
        }
    }

    /// A veth has no program on queues that it gets later, until it is attached anew; other drivers take it there.
    /// <https://elixir.bootlin.com/linux/v6.18/C/ident/veth_set_channels>
    fn detach_from_veth(&self) {
        let interface = self.shared.interface.load();
        if !interface
            .state()
            .is_ok_and(|state| state.kind.as_deref() == Some("veth"))
        {
            return;
        }
        if let Some(pins) = &self.options.pins {
            attach::unlink(pins, &interface);
        }
        *self.attached.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn reopen(&self) -> Result<Port> {
        let interface = Interface::by_name(&self.options.interface)?;
        let before = self.shared.interface.load();
        let program = self.program();
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        if interface != **before {
            // What was on the one that is gone has gone with it.
            *attached = None;
            self.shared.interface.store(Arc::new(interface.clone()));
            self.shared.notices.count(Event::Back);
        }
        let (port, addresses) = own_port(&interface)?;
        self.adapt(&interface, port, addresses);
        let mode = match &*attached {
            Some((_, mode)) => *mode,
            None => {
                let pins = self.options.pins.as_deref();
                let (link, mode) = attach::attach(&program, true, &interface, self.options.mode, pins)?;
                *attached = Some((link, mode));
                mode
            }
        };
        open(&self.options, &interface, mode, &program)
    }
}

fn gone(name: &str) -> String {
    format!("the interface {name} is gone: nothing is forwarded until there is one of that name again")
}

/// Hosts can reach the gateway.
pub(super) fn has_address(port: &PortSettings) -> bool {
    port.v4.is_some() || port.v6.is_some()
}

pub(super) fn no_address(name: &str) -> String {
    format!(
        "the interface {name} has no address that hosts could send to; give it one: ip address add ADDRESS/LENGTH dev {name}"
    )
}

/// Ends the workers when it is dropped.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn pin(cpu: usize) -> std::io::Result<()> {
    use nix::sched::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(nix::unistd::Pid::from_raw(0), &set)?)
}

/// What an interface has, as the gateway's port, and all addresses that hosts may send to.
pub(super) fn own_port(interface: &Interface) -> Result<(PortSettings, Vec<IpAddr>)> {
    let state = interface.state()?;
    let addresses: Vec<IpAddr> = interface.addresses()?.iter().map(|own| own.address).collect();
    let v4 = addresses.iter().find_map(|ip| match ip {
        IpAddr::V4(ip) => Some(*ip),
        IpAddr::V6(_) => None,
    });
    // Hosts that are not on this link do not know addresses that are this link's alone.
    let v6 = addresses.iter().find_map(|ip| match ip {
        IpAddr::V6(ip) if !ip.is_unicast_link_local() => Some(*ip),
        _ => None,
    });
    let port = PortSettings {
        mac: MacAddr(state.mac),
        v4,
        v6,
        mtu: u16::try_from(state.mtu).unwrap_or(u16::MAX),
    };
    Ok((port, addresses))
}

/// A socket for each queue of an interface that has the program, as far as the program has room.
pub(super) fn open(
    options: &PathOptions,
    interface: &Interface,
    attached: XdpMode,
    program: &GatewayProgram,
) -> Result<Port> {
    let mode = match attached {
        XdpMode::Generic => Mode::Require(Way::Generic),
        XdpMode::Native => options.mode,
    };
    let queues = interface.rx_queues()?.min(program.sizes().queues);
    let open = |queue_options: QueueOptions| {
        Port::builder(interface.clone())
            .queues(0..queues)
            .mode(mode)
            .options(queue_options.batch(BURST))
            .program(Program::Attached {
                xsks_map: program.workers().try_clone_to_owned()?,
            })
            .open()
            .map_err(anyhow::Error::from)
    };
    // The smallest frames that packets fit, for they have to fit the CPU's cache.
    let sizes = [
        QueueOptions::default(),
        QueueOptions::default().frame_size(4096),
        QueueOptions::default().multi_buffer(true),
    ];
    let too_large = |opened: &Result<Port>| match opened {
        Err(error) => matches!(error.downcast_ref(), Some(ringside_xsk::Error::MtuTooLarge { .. })),
        Ok(_) => false,
    };
    let mut opened = sizes.into_iter().map(open).skip_while(too_large);
    let opened = opened.next().expect("packets in several frames may be of any length");
    opened.with_context(|| format!("opening {}", interface.name()))
}
