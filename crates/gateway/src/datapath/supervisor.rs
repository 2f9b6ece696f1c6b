//! The interfaces and the workers on them: what happens to them is seen, told, and answered.
//!
//! ```text
//!  gone, moved away, down, back; other queues; longer packets; a worker that fails
//!        ──▶ workers end ──▶ program on what is there, sockets on what is up ──▶ workers
//!  other addresses, MAC address, MTU ──▶ other settings          no carrier ──▶ told
//! ```
//! The caches stay all the while, and what they know is sent on as long as an interface has the program.

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ringside_bpf::gateway::GatewayProgram;
use ringside_bpf::{Link, XdpMode};
use ringside_gateway_core::Firewall;
use ringside_gateway_core::decide::{Decider, Settings};
use ringside_nic::{Interface, LinkWatch};

use super::cache::Cache;
use super::notices::{About, Event};
use super::ports::{Ports, has_address, lacks_addresses, no_address};
use super::sockets::{self, Share};
use super::worker::{Lane, Shared, Skip, Tell, Worker};
use super::worker_status::WorkerStatus;
use super::{BURST, PathOptions, attach, now, veth};
use crate::model::Tables;

/// The end of the gateway is noticed this soon.
const LISTEN: Duration = Duration::from_millis(100);
/// Interfaces are looked at so often although nobody told anything: addresses come without a word.
const LOOK: Duration = Duration::from_secs(1);
/// Between two tries to have the sockets again: soon at first, then rarely.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The program on the interfaces, by their numbers; None where it is not. Dropped first, so that nothing is handed up any more.
/// Whoever locks the cache as well locks this first.
pub(super) type Attached = Mutex<Vec<Option<(Link, XdpMode)>>>;

pub(super) struct Supervisor {
    pub(super) options: PathOptions,
    pub(super) tables: Arc<Tables>,
    pub(super) shared: Arc<Shared>,
    pub(super) cache: Arc<Mutex<Cache>>,
    pub(super) workers: Arc<[WorkerStatus]>,
    pub(super) tell: Tell,
    pub(super) attached: Arc<Attached>,
}

/// Why workers end while the gateway goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Gone,
    Down,
    Back,
    OtherQueues,
    LongerPackets,
    Failed,
}

impl Why {
    const fn text(self) -> &'static str {
        match self {
            Self::Gone => "an interface is gone",
            Self::Down => "an interface is down",
            Self::Back => "an interface is back",
            Self::OtherQueues => "an interface has other queues",
            Self::LongerPackets => "an interface brings longer packets",
            Self::Failed => "one of them failed",
        }
    }
}

/// What the sockets of an interface were opened for.
#[derive(Debug, Clone, Copy)]
struct Opened {
    queues: u32,
    mtu: u16,
}

impl Supervisor {
    /// Until the gateway ends, and the sockets with it.
    pub(super) fn run(self, mut shares: Vec<Share>) {
        let mut watches = self.watch();
        while !self.shared.stop.load(Ordering::Relaxed) {
            let begun = Instant::now();
            let Some(why) = self.work(&mut shares, &mut watches) else {
                return;
            };
            if !shares.is_empty() {
                tracing::warn!(why = why.text(), "the workers have ended");
            }
            drop(shares);
            // Who fails at once is not tried again at once.
            let pause = match why == Why::Failed && begun.elapsed() < LONGEST_PAUSE {
                true => LONGEST_PAUSE,
                false => FIRST_PAUSE,
            };
            match self.have_again(&mut watches, pause) {
                Some(again) => shares = again,
                None => return,
            }
            // What a watch follows may be another interface by now.
            watches = self.watch();
        }
    }

    /// Without one everything is noticed, only later.
    fn watch(&self) -> Vec<LinkWatch> {
        let ports = self.shared.ports.load();
        let watched = ports.all().map(|(_, name, _)| LinkWatch::by_name(name));
        let said = |error: &_| tracing::warn!(%error, "its events are only seen once a second");
        watched.filter_map(|watch| watch.inspect_err(said).ok()).collect()
    }

    /// The workers' threads, until the gateway ends (None), or something asks for other sockets: what.
    fn work(&self, shares: &mut [Share], watches: &mut [LinkWatch]) -> Option<Why> {
        let opened = self.opened(shares);
        let halt = AtomicBool::new(false);
        let why = std::thread::scope(|scope| {
            // Also if this thread panics.
            let _at_end = AtEnd(&halt);
            let mut threads = Vec::new();
            for ((number, told), share) in self.workers.iter().enumerate().zip(shares) {
                told.begin(share);
                let halt = &halt;
                let run = move || {
                    let _at_end = AtEnd(halt);
                    let lanes = share.iter_mut().flat_map(|(number, port)| {
                        let number = *number;
                        port.queues_mut().map(move |queue| Lane::new(number, queue))
                    });
                    self.worker(number, told, halt).run(lanes.collect())
                };
                let name = format!("worker {number}");
                match std::thread::Builder::new().name(name).spawn_scoped(scope, run) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        tracing::error!(%error, "a worker cannot be started");
                        return Some(Why::Failed);
                    }
                }
            }
            let why = self.look_after(&halt, &opened, watches);
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
        self.workers.iter().for_each(WorkerStatus::end);
        why
    }

    /// By the interfaces' numbers.
    fn opened(&self, shares: &[Share]) -> Vec<Opened> {
        let settings = self.shared.settings.load();
        let opened = |(number, port): (u8, &ringside_gateway_core::decide::PortSettings)| {
            let of_port = shares.iter().flatten().filter(|(of, _)| *of == number);
            let queues: usize = of_port.map(|(_, port)| port.queues().len()).sum();
            Opened {
                queues: u32::try_from(queues).unwrap_or(u32::MAX),
                mtu: port.mtu,
            }
        };
        (0..).zip(&settings.ports).map(opened).collect()
    }

    fn worker<'a>(&'a self, number: usize, told: &'a WorkerStatus, halt: &'a AtomicBool) -> Worker<'a> {
        let options = &self.options;
        if let Some(cpu) = options.cpus.get(number % options.cpus.len().max(1))
            && let Err(error) = pin(*cpu)
        {
            tracing::warn!(worker = *told.name.load_full(), cpu, %error, "cannot be pinned");
        }
        let firewall = Firewall::new(&self.tables.policy, Arc::clone(&self.tables.conntrack));
        Worker {
            decider: Decider::new(
                self.shared.settings.load_full(),
                self.tables.neighbors.reader(),
                self.tables.hosts.reader(),
                self.tables.bindings.reader(),
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
            skip: Skip::new(now()),
            reported: 0,
            leaving: Vec::with_capacity(BURST as usize),
            left: Vec::with_capacity(BURST as usize),
            cache: &self.cache,
            connections: Arc::clone(self.program().connections()),
            conntrack: &self.tables.conntrack,
        }
    }

    /// Looks at the interfaces until the gateway ends (None), or sockets have to be opened anew: why.
    fn look_after(&self, halt: &AtomicBool, opened: &[Opened], watches: &mut [LinkWatch]) -> Option<Why> {
        let mut looked: Option<Instant> = None;
        loop {
            if self.shared.stop.load(Ordering::Relaxed) {
                return None;
            }
            let happened = self.listen(watches, LISTEN);
            let halted = halt.load(Ordering::Acquire);
            if happened || halted || looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
                looked = Some(Instant::now());
                match self.look(opened) {
                    Ok(None) => {}
                    Ok(Some(why)) => return Some(why),
                    // A kernel that does not answer for once: the next look is soon.
                    Err(error) => tracing::debug!(%error, "the interfaces cannot be looked at"),
                }
            }
            if halted {
                // Workers see the end of the gateway as well, and may be the first to.
                let ends = self.shared.stop.load(Ordering::Relaxed);
                return (!ends).then_some(Why::Failed);
            }
        }
    }

    /// Waits until something happens to a link, and counts what happened to these. True if something did.
    fn listen(&self, watches: &mut [LinkWatch], patience: Duration) -> bool {
        let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::ZERO);
        let fds = watches
            .iter()
            .map(|watch| PollFd::new(watch.as_fd(), PollFlags::POLLIN));
        // Whatever it says, there is a look.
        _ = poll(&mut fds.collect::<Vec<_>>(), timeout);
        let mut happened = false;
        for watch in watches {
            loop {
                match watch.next() {
                    Ok(Some(event)) => {
                        happened = true;
                        if let Some(event) = Event::of(&event) {
                            self.shared.notices.count(event);
                        }
                    }
                    Ok(None) => break,
                    Err(error) => {
                        tracing::debug!(%error, "a link cannot be watched");
                        // What could not be read may still be there, and would end every wait at once.
                        std::thread::sleep(patience);
                        break;
                    }
                }
            }
        }
        happened
    }

    /// What has changed. Something if sockets have to be opened anew.
    fn look(&self, opened: &[Opened]) -> Result<Option<Why>> {
        let ports = self.shared.ports.load_full();
        for ((number, name, interface), opened) in ports.all().zip(opened) {
            let why = match interface {
                Some(interface) => self.look_at((number, name), interface, opened)?,
                None => self.attach((number, name)).then_some(Why::Back),
            };
            if why.is_some() {
                return Ok(why);
            }
        }
        self.adapt(&ports);
        let longer = self.shared.settings.load();
        let is_longer = longer
            .ports
            .iter()
            .zip(opened)
            .any(|(port, opened)| port.mtu > opened.mtu);
        Ok(is_longer.then_some(Why::LongerPackets))
    }

    fn look_at(&self, (number, name): (u8, &str), interface: &Interface, opened: &Opened) -> Result<Option<Why>> {
        let notices = &self.shared.notices;
        let found = match Interface::by_index(interface.index()) {
            Ok(found) => found,
            Err(ringside_nic::Error::UnknownIndex { .. }) => {
                notices.count(Event::Gone);
                notices.tell(About::Interface(number), Some(gone(name)));
                notices.tell(About::Link(number), None);
                notices.tell(About::Peer(number), None);
                if let Some(attached) = self.attached().get_mut(usize::from(number)) {
                    *attached = None;
                }
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
        notices.tell(About::Name(number), renamed);
        let state = interface.state()?;
        let link = match (state.admin_up, state.carrier) {
            (false, _) => Some(format!(
                "the interface {name} is down: it forwards nothing; ip link set dev {name} up"
            )),
            (true, false) => Some(format!("the interface {name} has no carrier: it forwards nothing")),
            (true, true) => None,
        };
        notices.tell(About::Link(number), link);
        let is_native = matches!(
            self.attached().get(usize::from(number)),
            Some(Some((_, XdpMode::Native)))
        );
        // Workers send by sockets, which takes no program.
        let is_concerned = self.options.fast && is_native && state.kind.as_deref() == Some("veth");
        notices.tell(
            About::Peer(number),
            is_concerned.then(|| veth::problem(interface)).flatten(),
        );
        let (queues, room) = (interface.rx_queues()?, self.program().sizes().queues);
        let more = (queues > room).then(|| {
            format!(
                "the interface {name} has {queues} receive queues, and the fast path was made for {room}: what comes on the \
                 others and takes a worker is dropped; start the gateway anew"
            )
        });
        notices.tell(About::Queues(number), more);
        match (state.admin_up, opened.queues) {
            (true, 0) => return Ok(Some(Why::Back)),
            (false, 0) => return Ok(None),
            // What is on its rings would be sent when it is up again, however late.
            (false, _) => return Ok(Some(Why::Down)),
            (true, _) => {}
        }
        if queues.min(room) != opened.queues {
            self.detach_from_veth(number, interface);
            return Ok(Some(Why::OtherQueues));
        }
        Ok(None)
    }

    /// Makes known what the interfaces have now.
    fn adapt(&self, ports: &Arc<Ports>) {
        let notices = &self.shared.notices;
        let now = match ports.look() {
            Ok(now) => now,
            // One has just gone: the next look sees it.
            Err(error) => return tracing::debug!(%error, "the interfaces cannot be looked at"),
        };
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: they may be changed by others.
        let before = self.shared.settings.load_full();
        let for_program = ports.for_program(&now.ports);
        let is_same = before.ports == now.ports && before.underlay.addresses == now.addresses;
        let now_has = now.addresses.clone();
        if !is_same || cache.config.ports != for_program {
            let old = (
                std::mem::replace(&mut cache.config.ports, for_program),
                std::mem::replace(&mut cache.config.addresses, now.addresses.clone()),
            );
            if let Err(error) = cache.configure() {
                (cache.config.ports, cache.config.addresses) = old;
                let problem = format!("an interface has changed, and what was so before goes on: {error}");
                notices.tell(About::Settings, Some(problem));
                return;
            }
            tracing::info!(?now, "an interface has changed");
            notices.count(Event::Changed);
            let mut settings = Settings::clone(&before);
            settings.ports.clone_from(&now.ports);
            settings.underlay.addresses = now.addresses;
            self.shared.settings.store(Arc::new(settings));
        }
        drop(cache);
        notices.tell(About::Settings, None);
        let lacks = lacks_addresses(&self.options.fleet_addresses, &now_has);
        notices.tell(About::FleetAddresses, lacks);
        for ((number, name, interface), port) in ports.all().zip(&now.ports) {
            let lacks = interface.is_some() && !has_address(port);
            notices.tell(About::Address(number), lacks.then(|| no_address(name)));
        }
    }

    fn program(&self) -> Arc<GatewayProgram> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&cache.program)
    }

    fn attached(&self) -> MutexGuard<'_, Vec<Option<(Link, XdpMode)>>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A veth has no program on queues that it gets later, until it is attached anew; other drivers take it there.
    /// <https://elixir.bootlin.com/linux/v6.18/C/ident/veth_set_channels>
    fn detach_from_veth(&self, number: u8, interface: &Interface) {
        if !interface
            .state()
            .is_ok_and(|state| state.kind.as_deref() == Some("veth"))
        {
            return;
        }
        if let Some(pins) = &self.options.pins {
            attach::unlink(pins, interface);
        }
        if let Some(attached) = self.attached().get_mut(usize::from(number)) {
            *attached = None;
        }
    }

    /// Puts the program on an interface that is there and does not have it yet. True if it has it now.
    pub(super) fn attach(&self, (number, name): (u8, &str)) -> bool {
        let _attaching = self.shared.attaching.lock().unwrap_or_else(PoisonError::into_inner);
        let program = self.program();
        let tried = Interface::by_name(name)
            .map_err(anyhow::Error::from)
            .and_then(|interface| {
                anyhow::ensure!(interface.state()?.admin_up, "it is down; ip link set dev {name} up");
                let pins = self.options.pins.as_deref();
                attach::attach(&program, &interface, self.options.mode, pins)
            });
        let mut attached = self.attached();
        let notices = &self.shared.notices;
        match tried {
            Ok(link) => {
                // Nobody is there any more: then the gateway ends.
                let Some(place) = attached.get_mut(usize::from(number)) else {
                    return false;
                };
                *place = Some(link);
                notices.tell(About::Interface(number), None);
                true
            }
            Err(error) => {
                let is_gone = matches!(error.downcast_ref(), Some(ringside_nic::Error::UnknownInterface { .. }));
                let problem = match is_gone {
                    true => gone(name),
                    false => format!("the interface {name} cannot be had, which is tried every second: {error:#}"),
                };
                notices.tell(About::Interface(number), Some(problem));
                false
            }
        }
    }

    /// The sockets once more, as soon as they can be had. None if the gateway ends before.
    fn have_again(&self, watches: &mut [LinkWatch], mut pause: Duration) -> Option<Vec<Share>> {
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
                self.listen(watches, left.min(LISTEN));
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            match self.reopen() {
                Ok(shares) if shares.is_empty() => {
                    notices.tell(About::Sockets, None);
                    return Some(shares);
                }
                Ok(shares) => {
                    notices.count(Event::Reopened);
                    notices.tell(About::Sockets, None);
                    let opened: Vec<String> = shares
                        .iter()
                        .flatten()
                        .map(|(_, port)| port.report().to_string())
                        .collect();
                    tracing::info!(report = opened.join("; "), "packets are forwarded again");
                    return Some(shares);
                }
                Err(error) => {
                    let problem = format!("no sockets can be had, which is tried every second: {error:#}");
                    notices.tell(About::Sockets, Some(problem));
                }
            }
        }
    }

    fn reopen(&self) -> Result<Vec<Share>> {
        let before = self.shared.ports.load_full();
        let mut there = Vec::new();
        for (number, name, known) in before.all() {
            let has_it = self.attached().get(usize::from(number)).is_some_and(Option::is_some);
            let interface = match has_it || self.attach((number, name)) {
                // It may have another name by now.
                true => {
                    let same = known.filter(|known| Interface::by_index(known.index()).is_ok());
                    same.cloned().or_else(|| Interface::by_name(name).ok())
                }
                false => None,
            };
            if interface.is_some() && interface.as_ref() != known {
                self.shared.notices.count(Event::Back);
            }
            there.push(interface);
        }
        let ports = Arc::new(before.with(there));
        self.shared.ports.store(Arc::clone(&ports));
        self.adapt(&ports);
        // One lock after the other.
        let program = self.program();
        let modes = attach::modes(&self.attached());
        // A busy queue is retried with the next attempt.
        sockets::open(&self.options, &ports, &modes, &program, None)
    }
}

fn gone(name: &str) -> String {
    format!("the interface {name} is gone: it forwards nothing until there is one of that name again")
}

/// Ends the workers when it is dropped.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn pin(cpu: usize) -> std::io::Result<()> {
    use nix::sched::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(nix::unistd::Pid::from_raw(0), &set)?)
}
