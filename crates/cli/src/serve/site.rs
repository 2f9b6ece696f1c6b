//! The server: its XDP sockets, its door, and who is at it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use ringside_measure::compare::STEAL_LIMIT;
use ringside_measure::control::{DEFAULT_PORT, Token};
use ringside_measure::schema;
use ringside_wire::MacAddr;
use ringside_wire::flow::canonical;
use ringside_xsk::{Direction, Filter, Port, Queue};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::ServerConfig;

use super::args::{Args, Via};
use super::board::Board;
use super::connection;
use super::guests::{self, Guests};
use super::lending::{Lending, Loan, Part};
use super::pin::Pin;
use super::secret;
use super::tls::Identity;
use super::xsk;
use crate::args::{OutputArgs, RunArgs, bad_value};
use crate::live::{self, Offer, PrometheusArgs};
use crate::output::{self, note};
use crate::run::echo::{Own, named};
use crate::session::{self, Watched};
use crate::stop::Stop;
use crate::system;

/// Connections whose clients have not proven yet who they are, in all and from one address.
const MOST_AT_THE_DOOR: usize = 32;
const MOST_FROM_ONE: usize = 8;
/// How many lines are said about connections that come to nothing, in what time.
const MOST_TOLD: u32 = 5;
const TELL: Duration = Duration::from_secs(1);
/// How long it may take to notice the end.
const LOOK: Duration = Duration::from_millis(100);
/// For how long it is tried to open the sockets again that were lent: what was on the interface may take a moment to go.
const REOPENING: Duration = Duration::from_secs(5);

/// What all connections of a server share.
pub(super) struct Site<'a> {
    pub(super) args: &'a Args,
    pub(super) stop: &'a Stop,
    pub(super) token: Option<Token>,
    pub(super) tls: Option<(Arc<ServerConfig>, Pin)>,
    pub(super) board: Arc<Board>,
    pub(super) xsk: Option<XskEnd>,
    /// What may be started for labs.
    pub(super) guests: Option<Guests>,
    /// Connections with a session, or between two.
    inside: AtomicUsize,
    at_the_door: Mutex<Vec<IpAddr>>,
    strangers: Mutex<Strangers>,
    lending: Lending,
}

/// XDP sockets that are open.
pub(super) struct XskEnd {
    pub(super) mac: MacAddr,
    pub(super) ips: Vec<IpAddr>,
    pub(super) mtu: u32,
    pub(super) threads: usize,
    pub(super) record: schema::Interface,
}

/// Connections that came to nothing and were not told of yet.
#[derive(Default)]
struct Strangers {
    since: Option<Instant>,
    told: u32,
    untold: u64,
}

/// Serves until time or signal.
pub(crate) fn run(args: &Args) -> Result<()> {
    let stop = Stop::on_signals()?;
    let token = secret::token_or_new(args.token_file.as_deref())?;
    let listen = args
        .listen
        .unwrap_or_else(|| SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), DEFAULT_PORT));
    if !listen.ip().is_loopback() && token.is_none() && args.allow.is_empty() && !args.insecure {
        let who = match args.listen {
            Some(_) => format!("--listen {}", listen.ip()),
            None => "listening on all addresses".to_owned(),
        };
        refuse_open(&who)?;
    }
    let tls = args.tls.then(|| tls(args)).transpose()?;
    let wants_xsk = match (args.via, args.port.interface.is_empty()) {
        (Some(Via::AfXdp), true) => bad_value!("--via af-xdp: on which interface? Give its name, or --via udp"),
        (Some(Via::Udp), _) | (None, true) => false,
        (_, false) => true,
    };
    if !wants_xsk && args.prometheus.prometheus.is_some() {
        bad_value!("--prometheus: metrics are of XDP sockets, and this server has none: give it an interface");
    }
    if !wants_xsk && !args.lab_guests.is_empty() {
        bad_value!("--lab-guests: a lab takes an interface: start the server with one (ringside serve INTERFACE)");
    }
    let guests = Guests::of(args)?;
    let web = live::listen(&args.prometheus)?;
    let listener = bind(listen, args.listen.is_none())?;
    listener
        .set_nonblocking(true)
        .context("setting up the listening socket")?;
    let door = listener.local_addr().unwrap_or(listen);
    let mut port = wants_xsk.then(|| open(args)).transpose()?;
    let site = Site {
        args,
        stop: &stop,
        xsk: port.as_ref().map(XskEnd::of).transpose()?,
        guests,
        board: Arc::default(),
        inside: AtomicUsize::new(0),
        at_the_door: Mutex::default(),
        strangers: Mutex::default(),
        lending: Lending::new(stop.part()),
        token,
        tls,
    };
    site.tell(door, port.as_ref());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            site.accept(scope, &listener);
            stop.set();
            site.lending.part().set();
        });
        let ended = match port.take() {
            Some(port) => site.answer_and_lend(port, web.as_ref()),
            None => {
                match args.time {
                    Some(time) => stop.sleep_until(Instant::now() + time),
                    None => stop.sleep_until(Instant::now() + Duration::from_secs(u64::MAX >> 32)),
                };
                Ok(())
            }
        };
        stop.set();
        ended
    })
}

fn tls(args: &Args) -> Result<(Arc<ServerConfig>, Pin)> {
    let path = args
        .key_file
        .clone()
        .unwrap_or_else(|| secret::key_folder().join("serve.pem"));
    let identity = Identity::load_or_make(&path)?;
    let pin = identity.pin();
    Ok((identity.server(&args.allow)?, pin))
}

fn bind(listen: SocketAddr, any: bool) -> Result<TcpListener> {
    let bound = TcpListener::bind(listen);
    let bound = match bound {
        // A kernel without IPv6.
        Err(_) if any => TcpListener::bind((std::net::Ipv4Addr::UNSPECIFIED, listen.port())),
        other => other,
    };
    bound.with_context(|| {
        format!("listening on {listen} (TCP): is another `ringside serve` running? Choose another port with --listen")
    })
}

/// Opens the XDP sockets.
fn open(args: &Args) -> Result<Port> {
    let interface = session::interface(&args.port, &OutputArgs::default())?;
    session::open(
        interface,
        &args.port,
        Direction::Both,
        Filter::Echo(args.udp_port),
        None,
    )
}

impl XskEnd {
    fn of(port: &Port) -> Result<Self> {
        let state = session::link(port)?;
        Ok(Self {
            mac: MacAddr(state.mac),
            ips: port.interface().addresses()?.iter().map(|own| own.address).collect(),
            mtu: state.mtu,
            threads: port.queues().len(),
            record: system::interface(port.interface(), &state, Some(port.report())),
        })
    }
}

impl Site<'_> {
    fn tell(&self, door: SocketAddr, port: Option<&Port>) {
        let door = canonical(door);
        if let (Some(port), Some(end)) = (port, &self.xsk) {
            note(port.report());
            note(format_args!(
                "  answers probes of sessions on UDP port {}, and ICMP echo requests to {}",
                self.args.udp_port,
                named(&end.ips)
            ));
        }
        if let Some(guests) = &self.guests {
            guests::told(guests);
        }
        if let Some((_, pin)) = &self.tls {
            note(format_args!("  TLS: clients give --pin {pin}"));
        }
        let who = match (&self.token, &self.tls, self.args.allow.len()) {
            (Some(_), _, _) => "who has the token",
            (None, Some(_), 1..) => "who has an allowed TLS key",
            _ if door.ip().is_loopback() => "anybody on this host",
            _ => "ANYBODY (--insecure)",
        };
        note(format_args!("serves {who} on TCP port {} ({})", door.port(), door.ip()));
    }

    /// Threads of the board: one for each queue, and one for each UDP socket.
    pub(super) fn threads(&self) -> usize {
        self.xsk.as_ref().map_or(0, |end| end.threads) + 1
    }

    /// Answers through the XDP sockets until the end, but for the times in which the interface is lent.
    fn answer_and_lend(&self, mut port: Port, web: Option<&TcpListener>) -> Result<()> {
        let end = self.args.time.map(|time| Instant::now() + time);
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let web = web.map(TcpListener::try_clone).transpose().context("--prometheus")?;
            self.answer(&mut port, web, &self.lending.part(), left)?;
            // Nothing is attached while it is lent.
            drop(port);
            let over = || self.stop.is_set() || end.is_some_and(|end| Instant::now() >= end);
            if over() || !self.lending.lend_until_back(over) {
                return Ok(());
            }
            let tried = Instant::now();
            port = loop {
                match open(self.args) {
                    Ok(port) => break port,
                    Err(_) if over() => return Ok(()),
                    Err(error) if tried.elapsed() >= REOPENING => return Err(error.context("opening them again")),
                    Err(_) => std::thread::sleep(LOOK),
                }
            };
            self.lending.is_back();
        }
    }

    /// Lends the interface to a client: unless only something beside the sockets is wanted, these are closed until all that its client has is dropped.
    pub(super) fn borrow(&self, client: IpAddr, part: Part) -> Result<Loan<'_>> {
        self.lending.borrow(client, part, &self.board)
    }

    pub(super) fn is_lent(&self) -> bool {
        self.lending.is_lent()
    }

    /// Answers through the XDP sockets until `stop` or the end of the time.
    fn answer(&self, port: &mut Port, web: Option<TcpListener>, stop: &Stop, time: Option<Duration>) -> Result<()> {
        let end = self.xsk.as_ref().context("they are open")?;
        let own = Own {
            mac: end.mac,
            ips: end.ips.clone(),
        };
        let wait = session::wait(&self.args.port);
        let run = RunArgs {
            time,
            count: None,
            output: OutputArgs::default(),
            verbose: false,
            interval: None,
            until_ci: None,
            prometheus: PrometheusArgs::default(),
        };
        let offer = Offer::start("serve", &[&*port], web)?;
        let watched = Watched::ports([&*port]);
        let lanes: Vec<&mut Queue> = port.queues_mut().collect();
        let ran = session::run(lanes, watched, &self.args.port, &run, stop, |queue, worker| {
            xsk::answer_all(queue, &worker, offer.teller(), wait, &own, &self.board)
        })?;
        if let Some(wait) = ran.cpu_wait().filter(|wait| *wait > STEAL_LIMIT) {
            note(format_args!(
                "other processes had the CPU for {:.0} % of the time while one of this server's threads was ready to run",
                wait * 100.0
            ));
        }
        match ran.failure {
            Some(failure) => Err(failure.context("serve ended early")),
            None => Ok(()),
        }
    }

    /// Takes connections until the end; each gets a thread.
    fn accept<'scope>(&'scope self, scope: &'scope std::thread::Scope<'scope, '_>, listener: &TcpListener) {
        let timeout = Timespec::try_from(LOOK).ok();
        while !self.stop.is_set() {
            _ = poll(
                &mut [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)],
                timeout.as_ref(),
            );
            // Who has gone again, and a process without file numbers left, are no reason to end.
            if self.stop.is_set() {
                break;
            }
            let Ok((stream, from)) = listener.accept() else {
                continue;
            };
            let from = canonical(from);
            let Some(place) = self.place(from.ip()) else {
                self.stranger(
                    from,
                    &anyhow!("too many connections at once that have not proven who they are"),
                );
                continue;
            };
            let thread = std::thread::Builder::new().name("control".into());
            let started = thread.spawn_scoped(scope, move || self.one(stream, from, place));
            if let Err(error) = started {
                note(format_args!("{from}: no thread for it: {error}"));
            }
        }
    }

    fn one(&self, stream: TcpStream, from: SocketAddr, place: Place<'_>) {
        if let Err((was_open, error)) = connection::serve(self, stream, from, place) {
            match was_open {
                true => note(format_args!("{from}: {error:#}")),
                false => self.stranger(from, &error),
            }
        }
    }

    fn door(&self) -> MutexGuard<'_, Vec<IpAddr>> {
        self.at_the_door.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place at the door, if there is one.
    fn place(&self, ip: IpAddr) -> Option<Place<'_>> {
        let mut door = self.door();
        let alike = door.iter().filter(|other| **other == ip).count();
        if door.len() >= MOST_AT_THE_DOOR || alike >= MOST_FROM_ONE {
            return None;
        }
        door.push(ip);
        Some(Place {
            ip,
            site_door: &self.at_the_door,
            inside: &self.inside,
            is_inside: false,
        })
    }

    /// A line about a connection that came to nothing, up to five a second.
    fn stranger(&self, from: SocketAddr, error: &anyhow::Error) {
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        if strangers.since.is_none_or(|since| since.elapsed() > TELL) {
            (strangers.since, strangers.told) = (Some(Instant::now()), 0);
        }
        if strangers.told >= MOST_TOLD {
            strangers.untold += 1;
            return;
        }
        strangers.told += 1;
        let untold = std::mem::take(&mut strangers.untold);
        let more = match untold {
            0 => String::new(),
            some => format!(" (and {some} more like it)"),
        };
        output::note(format_args!("{from} did not come in: {error:#}{more}"));
    }
}

/// A connection's place: first at the door, then inside.
pub(super) struct Place<'a> {
    ip: IpAddr,
    site_door: &'a Mutex<Vec<IpAddr>>,
    inside: &'a AtomicUsize,
    is_inside: bool,
}

impl Place<'_> {
    fn leave_door(&self) {
        let mut door = self.site_door.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = door.iter().position(|ip| *ip == self.ip) {
            door.swap_remove(at);
        }
    }

    /// It has proven who it is. False when there are too many inside.
    pub(super) fn enter(&mut self, most: usize) -> bool {
        self.leave_door();
        self.is_inside = true;
        self.inside.fetch_add(1, Ordering::Relaxed) < most
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        match self.is_inside {
            true => _ = self.inside.fetch_sub(1, Ordering::Relaxed),
            false => self.leave_door(),
        }
    }
}

/// A server beyond this host, without anything that says who may use it.
fn refuse_open(who: &str) -> Result<()> {
    bad_value!(
        "{who}: anybody who reaches it could have this host send and receive packets. Give a token (--token-file FILE, made if it is \
         not there, or RINGSIDE_TOKEN) or the keys of clients (--tls --allow PIN), listen on this host only (--listen 127.0.0.1), \
         or say --insecure"
    )
}
