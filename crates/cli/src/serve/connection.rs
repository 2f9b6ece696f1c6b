//! One client's connection to the server, from the greeting to the farewell.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, anyhow, bail};
use ringside_measure::control::{
    self, FarVia, GuestUplink, HANDSHAKE_NS, Ready, Server, ServerEvent, ServerOptions, Start, Work,
};
use ringside_measure::probe::DEFAULT_PORT;
use ringside_measure::schema::{self, FarEnd};
use ringside_nic::clock::{Monotonic, Offset, Realtime};

use super::board::Session;
use super::contest::Turn;
use super::errand::{self, Errand};
use super::fits::{check_mode, check_size, interface_of};
use super::guests::{Guests, Lodger, Said};
use super::lending::{Loan, Part};
use super::running::{LATE_NS, Running};
use super::secret;
use super::site::{Place, Site, XskEnd};
use super::wire::{Came, Wire};
use super::{clocks, tls, udp};
use crate::clock::now_ns;
use crate::left::Left;
use crate::output::note;
use crate::session::{self, nanos};
use crate::system;
use crate::trace::Recording;

/// How long the thread sleeps while nothing comes.
const LOOK: Duration = Duration::from_millis(50);
/// How long a farewell may take to be read.
const FAREWELL: Duration = Duration::from_millis(500);
/// A piece of a session, for the record.
const PIECE: Duration = Duration::from_secs(1);

/// Why a connection ended, and whether its client had proven who it is.
type Ended = (bool, Error);

/// Serves one client to its end. A client that says farewell is no error.
pub(super) fn serve(site: &Site<'_>, stream: TcpStream, from: SocketAddr, place: Place<'_>) -> Result<(), Ended> {
    let mut connection = Connection::open(site, stream, from, place).map_err(|error| (false, error))?;
    let done = connection.run();
    // Whatever was open for it is closed before it is told.
    connection.session = None;
    connection.turn = None;
    let left = connection.undo();
    connection.loan = None;
    if !left.is_empty() {
        // Who has said farewell waits for this.
        let why = "what was done for a lab could not be undone";
        connection.server.refuse_leaving(why, left, now_ns());
    }
    let output = connection.server.take_output();
    _ = connection.wire.write(&output);
    connection.wire.finish(FAREWELL);
    connection.wire.linger(FAREWELL);
    done.map_err(|error| (connection.was_open, error))
}

struct Connection<'a> {
    site: &'a Site<'a>,
    wire: Wire,
    server: Server,
    from: SocketAddr,
    own: IpAddr,
    place: Place<'a>,
    was_open: bool,
    session: Option<Running>,
    /// A turn of a comparison, with what it is told as.
    turn: Option<(Turn, FarEnd)>,
    /// What is done for a lab.
    errand: Option<Doing<'a>>,
    /// A guest for one, also while it boots.
    guest: Option<Lodger<'a>>,
    /// What of them could not be undone, and was not told yet.
    left: Left,
    /// What its kernel sees of the turn's probes, if that is wanted.
    recording: Option<Recording>,
    /// A turn that is over, of which the record is being fetched.
    closing: Option<JoinHandle<FarEnd>>,
    /// Bytes of its frames.
    turn_bytes: u64,
    /// The interface, from a comparison's first turn to the end of the connection. After the turn: that is on it.
    loan: Option<Loan<'a>>,
}

/// Something for a lab. Undone before others may have the interface.
struct Doing<'a> {
    errand: Errand,
    /// What it is told as.
    far: FarEnd,
    /// When its time is over.
    over: Instant,
    _loan: Loan<'a>,
}

impl<'a> Connection<'a> {
    fn open(site: &'a Site<'a>, stream: TcpStream, from: SocketAddr, place: Place<'a>) -> Result<Self> {
        let own = stream
            .local_addr()
            .context("asking for the address that it came to")?
            .ip()
            .to_canonical();
        let wire = match &site.tls {
            None => Wire::plain(stream)?,
            Some((config, _)) => {
                let deadline = Instant::now() + Duration::from_nanos(HANDSHAKE_NS);
                tls::accept(config, stream, deadline)?
            }
        };
        let options = ServerOptions {
            token: site.token.clone(),
            nonce: secret::random()?,
            binding: site.tls.as_ref().map(|(_, pin)| pin.bytes()),
        };
        Ok(Self {
            site,
            wire,
            server: Server::new(options, now_ns()),
            from,
            own,
            place,
            was_open: false,
            session: None,
            turn: None,
            errand: None,
            guest: None,
            left: Left::default(),
            recording: None,
            closing: None,
            turn_bytes: 0,
            loan: None,
        })
    }

    fn run(&mut self) -> Result<()> {
        loop {
            self.wire.wait(self.patience());
            if self.site.stop.is_set() {
                let left = self.undo();
                self.server.refuse_leaving("the server was ended", left, now_ns());
                return Ok(());
            }
            let bytes = match self.wire.read() {
                Ok(Came::Bytes(bytes)) => bytes,
                Ok(Came::End) => return Err(self.gone(self.server.closed().into())),
                Err(error) => return Err(self.gone(anyhow!("the connection is broken: {error}"))),
            };
            let came_ns = now_ns();
            for event in self.server.receive(&bytes, came_ns)? {
                if !self.take(event, came_ns)? {
                    return Ok(());
                }
            }
            self.server.tick(now_ns())?;
            self.follow();
            self.look_after_guest()?;
            self.end_in_time()?;
            let output = self.server.take_output();
            let written = self.wire.write(&output).context("the connection is broken");
            written.map_err(|error| self.gone(error))?;
        }
    }

    /// How long to sleep: not beyond the next feedback.
    fn patience(&self) -> Duration {
        let begun = self.session.as_ref().and_then(|session| {
            session.start.feedback_ns?;
            Some(session.begun.as_ref()?.next_feedback)
        });
        begun.map_or(LOOK, |next| next.saturating_duration_since(Instant::now()).min(LOOK))
    }

    /// Adds to an error of the connection that a session was going on, if one was.
    fn gone(&self, error: Error) -> Error {
        match self.session.as_ref().is_some_and(|session| session.begun.is_some()) {
            true => anyhow!("{error:#}, during a session: it is ended here, too"),
            false => error,
        }
    }

    /// Does what the client wants; false when it goes.
    fn take(&mut self, event: ServerEvent, came_ns: u64) -> Result<bool> {
        match event {
            ServerEvent::Open(_) => {
                self.was_open = true;
                // Between two sessions there may be some more.
                if !self.place.enter(usize::from(self.site.args.max_sessions) * 2) {
                    let why = "too many clients are connected: try again later";
                    self.server.refuse(why, now_ns());
                    bail!(why);
                }
            }
            ServerEvent::Start(start) if start.work == Work::Contest => match self.prepare_turn(&start) {
                Ok(ready) => self.server.ready(ready, now_ns()),
                Err(error) => self.server.refuse(format!("{error:#}"), now_ns()),
            },
            ServerEvent::Start(start) if start.work == Work::Errand => match self.prepare_errand(&start) {
                Ok(Some(ready)) => self.server.ready(ready, now_ns()),
                // When it is up.
                Ok(None) => {}
                Err(error) => {
                    note(format_args!("{}: refused: {error:#}", self.from));
                    self.server
                        .refuse_leaving(format!("{error:#}"), self.left.take(), now_ns());
                }
            },
            ServerEvent::Start(start) => match self.prepare(start) {
                Ok((session, ready)) => {
                    self.session = Some(session);
                    self.server.ready(ready, now_ns());
                }
                Err(error) => {
                    note(format_args!("{}: refused: {error:#}", self.from));
                    self.server.refuse(format!("{error:#}"), now_ns());
                }
            },
            ServerEvent::Go => {
                if let Some(session) = &mut self.session {
                    note(format_args!("{}: {}", self.from, session.words()));
                    session.go();
                }
            }
            ServerEvent::Count { session: trial } => {
                if let Some(session) = &self.session {
                    self.server
                        .tally(session.entry.session.tally(trial, now_ns()), now_ns());
                }
            }
            ServerEvent::Ask { number } => {
                // What the two clocks are apart is known better than two readings one after the other would tell.
                let ahead = Offset::<Monotonic, Realtime>::measure().delta_ns();
                let now = now_ns();
                self.server.time(number, came_ns, now, now.saturating_add_signed(ahead));
            }
            ServerEvent::Stop(_) if self.turn.is_some() => {
                if let Some((turn, far)) = self.turn.take() {
                    let cpu_wait_percent = turn.cpu_wait_percent();
                    let (result, lost) = turn.finish(self.turn_bytes);
                    let far = FarEnd {
                        cpu_wait_percent,
                        result: Some(Box::new(result)),
                        lost,
                        ..far
                    };
                    match self.recording.take() {
                        // It takes longer than the other end waits for a word.
                        Some(recording) => self.closing = Some(close(recording, far)?),
                        None => self.server.outcome(far, now_ns()),
                    }
                }
            }
            ServerEvent::Stop(_) if self.errand.is_some() || self.guest.is_some() => {
                let end = |doing: Doing<'_>| doing.errand.end(doing.far, self.site.stop);
                let far = self.errand.take().map(end);
                if let Some(far) = far.or_else(|| self.guest.take().map(Lodger::end)) {
                    let left = self.left.take();
                    self.server.outcome(FarEnd { left, ..far }, now_ns());
                }
            }
            ServerEvent::Stop(stop) => {
                let session = self.session.take().context("there is one")?;
                let far = session.finish(stop.sent_packets, self.from);
                self.server.outcome(far, now_ns());
            }
            ServerEvent::Bye => return Ok(false),
        }
        Ok(true)
    }

    /// What goes on by itself during a session: feedback, and the record of its pieces.
    fn follow(&mut self) {
        if let Some(closed) = self.closing.take_if(|closing| closing.is_finished())
            && let Ok(far) = closed.join()
        {
            self.server.outcome(far, now_ns());
        }
        let Some(session) = &mut self.session else { return };
        let number = session.entry.session.number;
        let Some(begun) = &mut session.begun else { return };
        let now = Instant::now();
        if let Some(every) = session.start.feedback_ns
            && now >= begun.next_feedback
        {
            self.server
                .tally(session.entry.session.tally(number, now_ns()), now_ns());
            begun.next_feedback = now + Duration::from_nanos(every);
        }
        if now >= begun.piece_began + PIECE {
            begun.piece(&session.entry.session, now);
        }
    }

    /// Ends what is done for a lab for longer than this server allows.
    fn end_in_time(&mut self) -> Result<()> {
        if self.errand.as_ref().is_some_and(|doing| Instant::now() >= doing.over) {
            // It is undone before it is told.
            let left = self.undo();
            let most = self.site.args.max_time.as_secs_f64();
            let why = format!("this server does nothing for a lab for longer than {most} s (--max-time)");
            self.server.refuse_leaving(why.clone(), left, now_ns());
            bail!(why);
        }
        Ok(())
    }

    /// Undoes what is done for a lab. What could not be undone.
    fn undo(&mut self) -> Vec<String> {
        if let Some(doing) = self.errand.take() {
            doing.errand.undo();
        }
        self.guest = None;
        self.left.take()
    }

    /// Opens the far end of a comparison's turn.
    fn prepare_turn(&mut self, start: &Start) -> Result<Ready> {
        let Some(end) = &self.site.xsk else {
            bail!("a comparison takes an interface: start the server with one (ringside serve INTERFACE)");
        };
        check_size(start.frame_bytes, end.mtu, &end.record.name)?;
        let to = start.to.unwrap_or(self.own);
        if !end.ips.contains(&to) {
            bail!(
                "packets to {to} do not come in at {}, which has {}",
                end.record.name,
                crate::run::echo::named(&end.ips)
            );
        }
        if self.loan.is_none() {
            self.loan = Some(self.site.borrow(self.client(), Part::Turns)?);
            note(format_args!(
                "{}: a comparison has {} for itself",
                self.from, end.record.name
            ));
        }
        // In front of the sockets: nothing of the turn is missed.
        self.recording = match start.contest.as_ref().and_then(|contest| contest.trace) {
            None => None,
            Some(_) if !self.site.args.trace => {
                bail!("this server does not let its clients trace: start it with --trace")
            }
            Some(session) => Some(Recording::start(session).context("tracing")?),
        };
        let turn = Turn::open(start, &end.record.name, end.mac, to)?;
        let ready = self.ready(end);
        self.turn = Some((turn, ready.far.clone()));
        self.turn_bytes = start.frame_bytes.into();
        Ok(ready)
    }

    /// Whether a guest for a lab is up, and is still there.
    fn look_after_guest(&mut self) -> Result<()> {
        let Some(guest) = &mut self.guest else { return Ok(()) };
        match guest.look() {
            None => {}
            Some(Said::Ready(ready)) => self.server.ready(*ready, now_ns()),
            Some(Said::Over(why)) => {
                let was_up = guest.is_up();
                // It is undone before it is told.
                let left = self.undo();
                self.server.refuse_leaving(why.clone(), left, now_ns());
                if was_up {
                    bail!(why);
                }
                note(format_args!("{}: {why}", self.from));
            }
        }
        Ok(())
    }

    /// Begins what is to be done for a lab. A guest is not ready by then.
    fn prepare_errand(&mut self, start: &Start) -> Result<Option<Ready>> {
        let args = self.site.args;
        if !args.lab {
            bail!("this server does nothing for its clients' labs: start it with --lab");
        }
        let wanted = start.errand.as_deref().context("something to do is named")?;
        let Some(end) = &self.site.xsk else {
            bail!("a lab takes an interface: start the server with one (ringside serve INTERFACE)");
        };
        let ready = Ready {
            most_ns: nanos(args.max_time),
            most_pps: args.max_rate,
            guests: self.site.guests.as_ref().map(Guests::allowed),
            ..self.ready(end)
        };
        if let control::Errand::Guest(guest) = wanted {
            let Some(guests) = &self.site.guests else {
                bail!("this server starts no guests for its clients' labs: start it with --lab-guests INTERFACE");
            };
            note(format_args!("{}: {} for a lab", self.from, Errand::words(wanted)));
            let borrow = |uplinks: &[GuestUplink]| {
                // What comes by it is the guest's, and not for the server's sockets.
                let is_own = uplinks.iter().any(|uplink| uplink.name == end.record.name);
                let part = if is_own { Part::Sockets } else { Part::Beside };
                self.site.borrow(self.client(), part)
            };
            self.guest = Some(guests.begin(guest, (ready, &self.left), borrow)?);
            return Ok(None);
        }
        let takes_sockets = matches!(wanted, control::Errand::Schedule(end) if end.via == "af-xdp");
        let part = if takes_sockets { Part::Sockets } else { Part::Beside };
        let loan = self.site.borrow(self.client(), part)?;
        note(format_args!("{}: {} for a lab", self.from, Errand::words(wanted)));
        let bounds = errand::Bounds {
            time: args.max_time,
            rate_pps: args.max_rate,
            ptp: &args.ptp,
            stop: self.site.stop,
            left: &self.left,
        };
        let errand = Errand::begin(wanted, &end.record.name, self.own, &bounds)?;
        self.errand = Some(Doing {
            errand,
            far: ready.far.clone(),
            // It began a little before the streams that may last for all of the time.
            over: Instant::now() + args.max_time + errand::PATIENCE,
            _loan: loan,
        });
        Ok(Some(ready))
    }

    /// Who it is, where its other connections are concerned.
    fn client(&self) -> IpAddr {
        self.from.ip().to_canonical()
    }

    /// That the interface is ready.
    fn ready(&self, end: &XskEnd) -> Ready {
        Ready {
            via: FarVia::AfXdp,
            port: DEFAULT_PORT,
            mac: Some(end.mac.to_string()),
            most_ns: u64::MAX,
            most_pps: None,
            clock: clocks::own(),
            spinning_threads: 0,
            far: self.far_end(FarVia::AfXdp, end.record.clone()),
            guests: None,
            guest: None,
        }
    }

    /// This end, before anything was counted.
    fn far_end(&self, via: FarVia, record: schema::Interface) -> FarEnd {
        FarEnd {
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            via: match via {
                FarVia::AfXdp => "af_xdp".to_owned(),
                FarVia::Udp => "udp".to_owned(),
            },
            authenticated_by: self.authenticated_by().to_owned(),
            system: system::system(),
            interfaces: vec![record],
            ..FarEnd::default()
        }
    }

    /// Opens what a session needs, or says why not.
    fn prepare(&self, start: Start) -> Result<(Running, Ready)> {
        let (args, site) = (self.site.args, self.site);
        let most_ns = nanos(args.max_time);
        if let (Some(wanted), Some(most)) = (start.rate_pps, args.max_rate)
            && wanted > most
        {
            bail!(
                "{wanted} packets/s are asked for, this server allows {most} (--max-rate): ask for no more (ping --rate, search --to-rate)"
            );
        }
        if let Some(wanted) = start.duration_ns
            && wanted > most_ns
        {
            #[allow(clippy::cast_precision_loss, reason = "for people")]
            let seconds = wanted as f64 / 1e9;
            bail!(
                "{seconds:.1} s are asked for, this server allows {} s (--max-time)",
                args.max_time.as_secs_f64()
            );
        }
        let via = match (start.via, &site.xsk, args.via) {
            (Some(FarVia::AfXdp), None, _) => {
                bail!("this server has no XDP sockets: it was started without an interface, or with --via udp")
            }
            (Some(via), _, _) => via,
            (None, Some(_), _) => FarVia::AfXdp,
            (None, None, _) => FarVia::Udp,
        };
        let to = start.to.unwrap_or(self.own);
        let (record, port, threads, responder) = match via {
            FarVia::AfXdp => {
                if site.is_lent() {
                    bail!("a comparison has the interface for itself: try again later, or take --far-via udp");
                }
                let end = site.xsk.as_ref().context("this server has no XDP sockets")?;
                if !end.ips.contains(&to) {
                    bail!(
                        "packets to {to} do not come in at {}, which has {}: send them to one of these (--to), or take --far-via udp",
                        end.record.name,
                        crate::run::echo::named(&end.ips)
                    );
                }
                check_mode(start.mode, &end.record)?;
                check_size(start.frame_bytes, end.mtu, &end.record.name)?;
                (end.record.clone(), args.udp_port, end.threads, None)
            }
            FarVia::Udp => {
                if start.mode.is_some() {
                    bail!("a mode of XDP is asked for (--far-mode), but this end has a UDP socket");
                }
                let (record, mtu) = interface_of(to)?;
                check_size(start.frame_bytes, mtu, &record.name)?;
                // Its number on the board is behind those of the queues.
                let threads = site.threads();
                let responder = udp::Responder::open(to, &site.board, threads - 1)?;
                let port = responder.port;
                (record, port, threads, Some(responder))
            }
        };
        let session = Session::new(
            start.session,
            start.work,
            start.from,
            args.max_rate,
            threads.max(site.threads()),
        );
        let entry = site.board.enter(session, args.max_sessions.into())?;
        // Its first packets may overtake the word that they come.
        let most = now_ns().saturating_add(most_ns).saturating_add(LATE_NS);
        entry.session.go(most);
        let far = self.far_end(via, record);
        let ready = Ready {
            via,
            port,
            mac: site.xsk.as_ref().map(|end| end.mac.to_string()),
            most_ns,
            most_pps: args.max_rate,
            clock: clocks::own(),
            spinning_threads: match via {
                FarVia::AfXdp => session::spinning(&args.port, site.threads() - 1),
                FarVia::Udp => 0,
            },
            far: far.clone(),
            guests: None,
            guest: None,
        };
        let running = Running {
            start,
            via,
            entry,
            _udp: responder,
            most_ns,
            far,
            begun: None,
        };
        Ok((running, ready))
    }

    fn authenticated_by(&self) -> &'static str {
        match (&self.site.token, &self.site.tls) {
            (Some(_), Some(_)) => "token and tls",
            (Some(_), None) => "token",
            (None, Some(_)) => "tls",
            (None, None) => "nothing",
        }
    }
}

/// Fetches the record of a turn's probes, beside the connection.
fn close(recording: Recording, far: FarEnd) -> Result<JoinHandle<FarEnd>> {
    let closer = std::thread::Builder::new().name("record".into());
    let fetch = move || match recording.finish() {
        Ok(recorded) => FarEnd {
            recorded: Some(recorded),
            ..far
        },
        Err(error) => FarEnd {
            lost: far.lost.clone().or_else(|| Some(format!("tracing: {error:#}"))),
            ..far
        },
    };
    closer.spawn(fetch).context("starting a thread")
}
