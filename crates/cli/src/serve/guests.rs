//! Guests that the server starts for clients' labs, where it may (`--lab-guests`): joined to interfaces that are named there, and gone with the
//! connection that asked for them.
//!
//! ```text
//!  connection ── Lodger ── thread ── namespace: uplink ── attachment ── guest: ringside serve --lab --trace
//! ```
//!
//! All that is of a guest is in a namespace of its own, an interface that nobody else needs, too, and its programs die with its thread. So nothing of
//! it is on the machine after a kill but the name of that namespace, which the next `ringside` removes.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, bail, ensure};
use ringside_measure::control::{GuestEnd, GuestNic, GuestUp, GuestUplink, GuestsAllowed, Ready};
use ringside_measure::schema::FarEnd;
use ringside_netlab::attach::{AttachConfig, Attachment, Uplink, Way};
use ringside_netlab::guest::{Guest, Kernel};
use ringside_netlab::{Borrowed, Namespace, find_program, use_of};
use ringside_nic::Interface;

use super::args::Args;
use super::lending::Loan;
use super::secret;
use crate::lab::boot::{self, Boot};
use crate::lab::{Acceleration, Lane};
use crate::left::Left;
use crate::output::note;

/// How long the servers in a guest whose CPUs are emulated may take until they listen.
const SERVE: Duration = Duration::from_secs(60);
/// How often it is looked whether all is well, and whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// What `ringside serve` says when it listens.
const SERVES: &str = "serves who has the token";

/// What the server allows, and what there is of it.
pub(super) struct Guests {
    uplinks: Vec<String>,
    /// The server's own interface.
    own: String,
    kernels: Vec<(String, Kernel)>,
    most: u32,
    memory_mib: u32,
    cpus: u32,
    time: Duration,
    /// The uplinks of each machine that is there.
    taken: Mutex<Vec<Vec<String>>>,
}

/// A machine's place among them.
pub(super) struct Place<'a> {
    guests: &'a Guests,
    uplinks: Vec<String>,
}

/// A client's guest, from the question for it on.
pub(super) struct Lodger<'a> {
    words: Receiver<Word>,
    called_off: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// What is told when it is up.
    ready: Option<Ready>,
    far: FarEnd,
    /// For how long it may be there, and from when on it may not.
    most: Duration,
    over: Option<Instant>,
    _place: Place<'a>,
    /// Of the server's own interface, where that is its uplink.
    _loan: Loan<'a>,
}

/// From its thread.
enum Word {
    Up(GuestUp),
    Over(String),
}

/// What its client is to be told.
pub(super) enum Said {
    Ready(Box<Ready>),
    Over(String),
}

impl Guests {
    /// Those of `--lab-guests`, if there are any. Their kernels are fetched now: no client waits for that, or has something fetched.
    pub(super) fn of(args: &Args) -> Result<Option<Self>> {
        if args.lab_guests.is_empty() {
            return Ok(None);
        }
        Guest::check().context("--lab-guests")?;
        for name in &args.lab_guests {
            Interface::by_name(name).context("--lab-guests")?;
        }
        let named = |name: &String| {
            let kernel = Kernel::named(name).with_context(|| format!("--guest-kernel {name}"))?;
            Ok::<_, Error>((name.clone(), kernel))
        };
        let mut kernels: Vec<_> = args.guest_kernel.iter().map(named).collect::<Result<_>>()?;
        if kernels.is_empty() {
            let kernel = Kernel::usual().context("--lab-guests: a kernel for guests")?;
            kernels.push((kernel.release.clone(), kernel));
        }
        let cpus = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(Some(Self {
            uplinks: args.lab_guests.clone(),
            own: args.port.interface.clone(),
            kernels,
            most: args.max_guests.into(),
            memory_mib: args.max_guest_memory,
            cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
            time: args.max_time,
            taken: Mutex::default(),
        }))
    }

    fn taken(&self) -> MutexGuard<'_, Vec<Vec<String>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As clients are told.
    pub(super) fn allowed(&self) -> GuestsAllowed {
        let config = AttachConfig::new("any");
        let lacking = |way: Way| Some((way.name().to_owned(), Attachment::lacks(way, &config)?.to_string()));
        let is_taken = |name: &String| self.taken().iter().flatten().any(|taken| taken == name);
        let needed = |name: &String| match use_of(name) {
            // One that a guest has is elsewhere meanwhile.
            Some(_) if name != &self.own && is_taken(name) => None,
            None if name == &self.own => Some("has the server's own sockets".to_owned()),
            use_ => use_,
        };
        let uplink = |name: &String| GuestUplink {
            name: name.clone(),
            needed: needed(name),
        };
        GuestsAllowed {
            uplinks: self.uplinks.iter().map(uplink).collect(),
            most: self.most,
            cpus: self.cpus,
            memory_mib: self.memory_mib,
            kernels: self.kernels.iter().map(|(name, _)| name.clone()).collect(),
            lacking: Way::ALL.into_iter().filter_map(lacking).collect(),
        }
    }

    /// A place for a machine, if it may be there.
    fn admit(&self, wanted: &GuestEnd) -> Result<(Place<'_>, Vec<GuestUplink>)> {
        let allowed = self.allowed();
        wanted.check(&allowed).map_err(Error::msg)?;
        let uplinks = wanted.nics.iter().map(|nic| allowed.uplink(nic).cloned());
        let uplinks: Vec<_> = uplinks.collect::<Result<_, _>>().map_err(Error::msg)?;
        let mut taken = self.taken();
        ensure!(
            taken.len() < usize::try_from(self.most).unwrap_or(usize::MAX),
            "{} guests are there already, this server allows {} (--max-guests): try again later",
            taken.len(),
            self.most
        );
        if let Some(uplink) = uplinks
            .iter()
            .find(|uplink| taken.iter().flatten().any(|name| *name == uplink.name))
        {
            bail!(
                "another guest is joined to {}: try again later, or take another interface",
                uplink.name
            );
        }
        let names: Vec<String> = uplinks.iter().map(|uplink| uplink.name.clone()).collect();
        taken.push(names.clone());
        let place = Place {
            guests: self,
            uplinks: names,
        };
        Ok((place, uplinks))
    }

    /// Begins to start one, whose client is told of `ready` when it is up, and of what of it is `left` in the end. `borrow` has the interfaces that it takes.
    pub(super) fn begin<'a>(
        &'a self,
        wanted: &GuestEnd,
        (ready, left): (Ready, &Left),
        borrow: impl FnOnce(&[GuestUplink]) -> Result<Loan<'a>>,
    ) -> Result<Lodger<'a>> {
        let (place, uplinks) = self.admit(wanted)?;
        let loan = borrow(&uplinks)?;
        let kernel = match &wanted.kernel {
            Some(name) => self.kernels.iter().find(|(other, _)| other == name),
            None => self.kernels.first(),
        };
        let asked = Asked {
            wanted: wanted.clone(),
            uplinks,
            kernel: kernel.context("a kernel that is allowed")?.1.clone(),
            time: self.time,
            called_off: Arc::default(),
            left: left.clone(),
        };
        let called_off = Arc::clone(&asked.called_off);
        let (tell, words) = channel();
        let builder = thread::Builder::new().name("lodger".into());
        let thread = builder
            .spawn(move || live(&asked, &tell))
            .context("starting a thread")?;
        Ok(Lodger {
            words,
            called_off,
            thread: Some(thread),
            far: ready.far.clone(),
            ready: Some(ready),
            most: self.time,
            over: None,
            _place: place,
            _loan: loan,
        })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut taken = self.guests.taken();
        if let Some(at) = taken.iter().position(|uplinks| *uplinks == self.uplinks) {
            taken.swap_remove(at);
        }
    }
}

impl Lodger<'_> {
    /// What has become of it since the last look.
    pub(super) fn look(&mut self) -> Option<Said> {
        if self.over.is_some_and(|over| Instant::now() >= over) {
            let most = self.most.as_secs_f64();
            return Some(Said::Over(format!(
                "this server has guests for no longer than {most} s (--max-time)"
            )));
        }
        match self.words.try_recv() {
            Ok(Word::Up(up)) => {
                self.over = Some(Instant::now() + self.most);
                let ready = self.ready.take()?;
                let guest = Some(up);
                Some(Said::Ready(Box::new(Ready { guest, ..ready })))
            }
            Ok(Word::Over(why)) => Some(Said::Over(why)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Said::Over("its thread has ended".to_owned())),
        }
    }

    /// Whether its client knows that it is up.
    pub(super) fn is_up(&self) -> bool {
        self.ready.is_none()
    }

    /// Ends it.
    pub(super) fn end(self) -> FarEnd {
        self.far.clone()
    }
}

impl Drop for Lodger<'_> {
    /// Nothing of it is left when this returns.
    fn drop(&mut self) {
        self.called_off.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// What a thread is to start.
struct Asked {
    wanted: GuestEnd,
    /// Of each NIC.
    uplinks: Vec<GuestUplink>,
    kernel: Kernel,
    time: Duration,
    called_off: Arc<AtomicBool>,
    /// Who is told of what is not back.
    left: Left,
}

/// What there is then. What is first goes first.
struct Up {
    /// `None` where none of its NICs could be joined.
    guest: Option<Guest>,
    nics: Vec<Joined>,
    _home: Arc<Namespace>,
}

/// A NIC that is joined.
struct Joined {
    attachment: Attachment,
    /// Its uplink, unless that stays with its machine.
    _uplink: Option<Lent>,
}

/// An interface that a guest has. It goes back when this is dropped.
struct Lent {
    borrowed: Borrowed,
    left: Left,
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Err(error) = self.borrowed.give_back() {
            let name = self.borrowed.interface().name();
            let why = format!("{name}, which a guest had, is not as it was before: {error}; look at it with `ip link`");
            note(format_args!("{why}"));
            self.left.add([why]);
        }
    }
}

/// A guest's life.
fn live(asked: &Asked, tell: &Sender<Word>) {
    let is_called_off = || asked.called_off.load(Ordering::Relaxed);
    // Nobody listens any more: it is called off, too.
    let over = |error: &Error| _ = tell.send(Word::Over(format!("the guest {}: {error:#}", asked.wanted.name)));
    let (up, told) = match come_up(asked) {
        Ok(booted) => booted,
        Err(error) => return over(&error),
    };
    _ = tell.send(Word::Up(told));
    while !is_called_off() {
        if let Err(error) = up.check() {
            // It is undone before it is told.
            drop(up);
            return over(&error);
        }
        thread::sleep(LOOK);
    }
}

fn come_up(asked: &Asked) -> Result<(Up, GuestUp)> {
    let wanted = &asked.wanted;
    let here = Namespace::current()?;
    let home = Namespace::create(&format!("guest-{}", wanted.name))?;
    let (mut joined, mut addresses, mut lacks) = (Vec::new(), Vec::new(), Vec::new());
    for (number, (nic, uplink)) in wanted.nics.iter().zip(&asked.uplinks).enumerate() {
        match join(number, nic, uplink, ([&here, &home], &asked.left)) {
            Ok(one) => {
                joined.push(one);
                addresses.push((nic.address, nic.prefix));
                lacks.push(None);
            }
            Err(error) => lacks.push(Some(format!("{error:#}"))),
        }
    }
    let attachments = joined.iter().map(|one| &one.attachment).zip(addresses);
    let nics: Vec<_> = attachments
        .map(|(attachment, (ip, prefix))| (attachment, ip, prefix))
        .collect();
    let guest = match nics.is_empty() {
        true => None,
        false => Some(start(asked, nics)?),
    };
    let told = GuestUp {
        accelerator: guest.as_ref().map(|guest| guest.accelerator().name().to_owned()),
        kernel_release: guest.as_ref().map(|guest| guest.release().to_owned()),
        lacks,
    };
    let up = Up {
        guest,
        nics: joined,
        _home: home,
    };
    up.wait_until_it_serves(asked)?;
    Ok((up, told))
}

fn start(asked: &Asked, nics: Vec<(&Attachment, Ipv4Addr, u8)>) -> Result<Guest> {
    let wanted = &asked.wanted;
    let qdiscs = wanted.qdiscs.iter().map(String::as_str);
    let mut config = boot::config(&wanted.name, asked.kernel.clone(), qdiscs)?;
    config.cpus = wanted.cpus;
    config.memory_mib = wanted.memory_mib;
    config.acceleration = Acceleration::named(&wanted.acceleration)
        .context("a kind of acceleration")?
        .wanted();
    config.cancel = Some(Arc::clone(&asked.called_off));
    // Where it is not, loads that take it say so.
    if wanted.iperf3 && find_program("iperf3").is_some() {
        config.programs.push("iperf3".into());
    }
    let boot = Boot {
        config,
        nics,
        serve: [
            format!("{}={}", secret::VARIABLE, wanted.token),
            format!("--lab --trace --max-time {}", asked.time.as_secs_f64()),
        ],
        also: Vec::new(),
    };
    boot.start()
}

impl Up {
    fn check(&self) -> Result<()> {
        if let Some(guest) = self.guest.as_ref().filter(|guest| guest.has_ended()) {
            bail!(
                "it has ended, or somebody has ended it; the last that its console said: {}",
                boot::last_words(guest)
            );
        }
        Ok(self.nics.iter().try_for_each(|nic| nic.attachment.check())?)
    }

    fn wait_until_it_serves(&self, asked: &Asked) -> Result<()> {
        let end = Instant::now() + SERVE;
        for (at, guest) in (0..self.nics.len()).zip(self.guest.iter().cycle()) {
            loop {
                let said = boot::said(guest, at);
                if said.contains(SERVES) {
                    break;
                }
                self.check()?;
                ensure!(!asked.called_off.load(Ordering::Relaxed), "it was called off");
                ensure!(
                    Instant::now() < end,
                    "`ringside serve` in it does not listen after {SERVE:?}; it said: {said}"
                );
                thread::sleep(LOOK * 4);
            }
        }
        Ok(())
    }
}

/// Joins a NIC to its uplink: in the namespace that is the guest's, but for an uplink that its machine needs itself.
fn join(
    number: usize,
    nic: &GuestNic,
    uplink: &GuestUplink,
    ([here, home], left): ([&Arc<Namespace>; 2], &Left),
) -> Result<Joined> {
    let lane = match &nic.express {
        Some(lane) => lane.parse::<Lane>().map_err(Error::msg)?,
        None => Lane::default(),
    };
    let mut config = boot::attach_config(number, (nic.queues, nic.queue_len), nic.is_generic, lane)?;
    config.mac = mac(Interface::by_name(&uplink.name)?.state()?.mac, number);
    config.home = Some(Arc::clone(home));
    let lent = match uplink.needed {
        Some(_) => None,
        None => Some(Lent {
            borrowed: Borrowed::take(here, home, &uplink.name)?,
            left: left.clone(),
        }),
    };
    let own;
    let (ns, interface) = match &lent {
        Some(lent) => {
            lent.borrowed.bring_up()?;
            (home, lent.borrowed.interface())
        }
        None => {
            own = Interface::by_name(&uplink.name)?;
            let state = own.state()?;
            ensure!(
                state.admin_up && state.carrier,
                "{own} is down: switch it on (ip link set dev {own} up)"
            );
            (here, &own)
        }
    };
    let way: Way = nic.attachment.parse()?;
    let uplink = Uplink {
        ns,
        interface,
        peer: None,
    };
    Ok(Joined {
        attachment: Attachment::make(way, &uplink, &config)?,
        _uplink: lent,
    })
}

/// The hardware address of a NIC: another one than that of any machine's guest on the wire, and the same one in the next run, for others remember it.
fn mac(uplink: [u8; 6], number: usize) -> [u8; 6] {
    let tag: String = uplink.iter().map(|byte| format!("{byte:02x}")).collect();
    AttachConfig::new(format!("{tag}-{number}")).mac
}

/// For the server's terminal.
pub(super) fn told(guests: &Guests) {
    let names: Vec<&str> = guests.kernels.iter().map(|(name, _)| name.as_str()).collect();
    note(format_args!(
        "  starts up to {} guests for labs, of {} MiB, joined to {}; kernel {}",
        guests.most,
        guests.memory_mib,
        guests.uplinks.join(", "),
        names.join(", ")
    ));
}
