//! The near end's side of a control connection: dials, asks the far end to open, keeps the connection alive during the run, and
//! stops the run when it is lost.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use ringside_measure::control::{
    Client, ClientEvent, ClientOptions, Errand, Fault, LoadsEnd, Ready, SESSION_STEP, Start, Stop as StopMessage,
    Tally, Token, Work,
};
use ringside_measure::schema::FarEnd;

use super::pin::Pin;
use super::secret;
use super::wire::{Came, Wire};
use super::{RemoteArgs, place, tls};
use crate::args::bad_value;
use crate::clock::now_ns;
use crate::left::Left;
use crate::output::note;
use crate::stop::Stop;

/// How long a host may take to take a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the keeper sleeps: part of the two seconds in which packets stop when the connection is lost.
const LOOK: Duration = Duration::from_millis(50);
/// How long a server may take to undo what it does: a program there has two seconds to end.
const UNDO: Duration = Duration::from_secs(15);

/// A connection that is open, both sides having proven who they are.
pub(crate) struct Dialled {
    pub(super) link: Link,
    pub(super) who: String,
    left: Left,
}

/// The far end of a run.
pub(crate) struct Far {
    link: Arc<Mutex<Link>>,
    who: String,
    pub(crate) ready: Ready,
    keeper: Option<JoinHandle<()>>,
    /// It does something that is to be undone, and has not said that it is.
    is_doing: bool,
    /// Who is told of what it could not undo.
    left: Left,
}

/// Connection, state, and what came and was not asked for yet.
pub(super) struct Link {
    pub(super) wire: Wire,
    pub(super) client: Client,
    /// The pin of this host's own key, where it has shown one.
    own: Option<Pin>,
    events: VecDeque<ClientEvent>,
    /// Why it is of no use any more.
    pub(super) lost: Option<String>,
    /// That is the server's own word: it has undone what it did before it said so.
    is_ended: bool,
    /// The session is over, and the keeper with it.
    pub(super) over: bool,
}

impl RemoteArgs {
    /// Dials the server, if there is one; `None` if there is none.
    pub(crate) fn dial(&self) -> Result<Option<Dialled>> {
        let Some(server) = &self.server else {
            let unused = [
                (self.token_file.is_some(), "--token-file"),
                (self.pin.is_some(), "--pin"),
                (self.tls, "--tls"),
                (self.far_via.is_some(), "--far-via"),
                (self.far_mode.is_some(), "--far-mode"),
            ];
            if let Some((_, option)) = unused.iter().find(|(given, _)| *given) {
                bad_value!(
                    "{option} is about a `ringside serve` at the other end: name its host in the interface's place, or with --server HOST"
                );
            }
            return Ok(None);
        };
        let token = match &self.token {
            Some(token) => Some(token.clone()),
            None => secret::token(self.token_file.as_deref())?,
        };
        let who = format!("the server at {server}");
        let address = place::address(server)?;
        let stream = TcpStream::connect_timeout(&address, CONNECT).map_err(|error| {
            anyhow!("connecting to {address} (TCP): {error}; does `ringside serve` run there, and does a firewall let it through?")
        })?;
        let (wire, own) = self.wire(stream, token.as_ref()).with_context(|| who.clone())?;
        let options = ClientOptions {
            token,
            nonce: secret::random()?,
            binding: wire.certificate().map(|certificate| Pin::of(certificate).bytes()),
        };
        let mut link = Link {
            wire,
            client: Client::new(options, now_ns()),
            own,
            events: VecDeque::new(),
            lost: None,
            is_ended: false,
            over: false,
        };
        match link.next().with_context(|| who.clone())? {
            ClientEvent::Open => Ok(Some(Dialled {
                link,
                who,
                left: Left::default(),
            })),
            other => bail!("{who}: not expected now: {other:?}"),
        }
    }

    fn wire(&self, stream: TcpStream, token: Option<&Token>) -> Result<(Wire, Option<Pin>)> {
        if self.pin.is_none() && !self.tls {
            return Ok((Wire::plain(stream)?, None));
        }
        if self.pin.is_none() && token.is_none() {
            bad_value!("--tls alone does not tell who answers there: add the server's --pin, or a token");
        }
        let key_file = secret::key_folder().join("client.pem");
        tls::connect(&key_file, self.pin, stream, Instant::now() + CONNECT).map(|(wire, own)| (wire, Some(own)))
    }
}

impl Link {
    /// Takes what has come and sends what is to be sent, without waiting.
    pub(super) fn pump(&mut self) -> Result<()> {
        if let Some(lost) = &self.lost {
            bail!("{lost}");
        }
        let done = self.try_pump();
        if let Err(why) = &done {
            self.lost = Some(why.to_string());
        }
        done
    }

    fn try_pump(&mut self) -> Result<()> {
        let output = self.client.take_output();
        let written = self.wire.write(&output);
        match self.wire.read() {
            Ok(Came::Bytes(bytes)) => {
                let events = self.client.receive(&bytes, now_ns());
                self.is_ended = matches!(events, Err(Fault::Refused { .. }));
                self.events.extend(events?);
            }
            Ok(Came::End) => return Err(self.client.closed().into()),
            Err(error) => return Err(anyhow!(tls::broken(&error, self.own))),
        }
        // What it said last tells more than that it is gone.
        written.map_err(|error| anyhow!(tls::broken(&error, self.own)))?;
        self.client.tick(now_ns())?;
        let output = self.client.take_output();
        Ok(self.wire.write(&output)?)
    }

    /// What came and was not asked for yet, without waiting.
    fn look(&mut self) -> Result<Option<ClientEvent>> {
        self.pump()?;
        Ok(self.events.pop_front())
    }

    /// Waits for the next event. How long is the protocol's business.
    fn next(&mut self) -> Result<ClientEvent> {
        loop {
            if let Some(event) = self.look()? {
                return Ok(event);
            }
            self.wire.wait(LOOK);
        }
    }

    /// Says that it is all. Who does something has undone it when this returns, or it is said to `left` that nobody knows, as is what could not be undone.
    fn part(&mut self, is_doing: bool, left: &Left) {
        self.client.bye(now_ns());
        let is_there = self.pump().is_ok();
        self.wire.finish(LOOK);
        // Of what it still says only what it could not undo is of interest.
        let (wire, client) = (&mut self.wire, &mut self.client);
        let mut take = |bytes: &[u8]| _ = client.receive(bytes, now_ns());
        let silent = match (is_doing, is_there) {
            (false, _) => None,
            (true, true) if wire.ends_within(UNDO, &mut take) => None,
            (true, true) => Some(format!("within {UNDO:?} ")),
            (true, false) if self.is_ended => None,
            (true, false) => Some(String::new()),
        };
        left.add(client.take_left());
        left.add(silent.map(|within| {
            format!(
                "its server has not said {within}that what it did for the lab is undone: look at its own terminal; if it has ended, `ringside lab clean` \
                 there undoes it"
            )
        }));
    }
}

impl Dialled {
    /// Tells somebody of what it could not undo, or is not known to have undone, once it is over.
    pub(crate) fn telling(mut self, left: Left) -> Self {
        self.left = left;
        self
    }

    /// A number for a session, other than any that is likely under way.
    pub(crate) fn session() -> Result<u32> {
        let random = secret::random()?;
        let number = u32::from_be_bytes([random[0], random[1], random[2], random[3]]);
        Ok((number & !(SESSION_STEP - 1)).max(SESSION_STEP))
    }

    /// Has the far end open.
    pub(crate) fn start(self, start: Start) -> Result<Far> {
        self.start_while(start, || Ok(()))
    }

    /// The same, of what may take minutes, while `goes_on`.
    ///
    /// # Errors
    /// Why it does not. What was begun there is undone then, or somebody is told that nobody knows.
    pub(crate) fn start_while(mut self, start: Start, goes_on: impl Fn() -> Result<()>) -> Result<Far> {
        // Of no loads nothing is begun.
        let nothing = Errand::Loads(LoadsEnd::default());
        let is_doing = start.work == Work::Errand && start.errand.as_deref() != Some(&nothing);
        self.link.client.start(start, now_ns());
        loop {
            let event = match goes_on().and_then(|()| self.link.look().with_context(|| self.who.clone())) {
                Ok(event) => event,
                Err(error) => {
                    self.link.part(is_doing, &self.left);
                    return Err(error);
                }
            };
            match event {
                Some(ClientEvent::Ready(ready)) => {
                    return Ok(Far {
                        link: Arc::new(Mutex::new(self.link)),
                        who: self.who,
                        ready: *ready,
                        keeper: None,
                        is_doing,
                        left: self.left,
                    });
                }
                Some(ClientEvent::Refused(why)) => {
                    self.left.add(self.link.client.take_left());
                    bail!("{} refuses: {why}", self.who);
                }
                Some(_) => {}
                None => self.link.wire.wait(LOOK),
            }
        }
    }
}

impl Far {
    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Packets will come. From now on the loss of the connection ends the run.
    pub(crate) fn go(&mut self, stop: &Stop) -> Result<()> {
        {
            let mut link = self.link();
            link.pump().with_context(|| self.who.clone())?;
            link.client.go(now_ns());
            link.pump().with_context(|| self.who.clone())?;
        }
        let (link, stop, who) = (Arc::clone(&self.link), stop.clone(), self.who.clone());
        let keeper = std::thread::Builder::new().name("control".into());
        self.keeper = Some(
            keeper
                .spawn(move || keep(&link, &stop, &who))
                .context("starting a thread")?,
        );
        Ok(())
    }

    /// Why the connection is of no use any more.
    pub(crate) fn lost(&self) -> Option<String> {
        let lost = self.link().lost.clone();
        lost.map(|why| format!("{}: {why}", self.who))
    }

    /// What has come there of a trial, asked for now. `None` when the connection is lost.
    pub(crate) fn count(&self, trial: u32) -> Option<Tally> {
        self.link().client.count(trial, now_ns());
        self.until(|event| match event {
            ClientEvent::Tally(tally) if tally.session == trial => Some(tally),
            _ => None,
        })
    }

    /// Feedback that has come since the last call.
    pub(crate) fn tallies(&self) -> Vec<Tally> {
        let mut link = self.link();
        _ = link.pump();
        let tally = |event| match event {
            ClientEvent::Tally(tally) => Some(tally),
            _ => None,
        };
        link.events.drain(..).filter_map(tally).collect()
    }

    /// What time it is there; `None` when the connection is lost.
    pub(crate) fn ask_time(&self, number: u64) -> Option<TimeAsked> {
        let asked_ns = {
            let mut link = self.link();
            let now = now_ns();
            link.client.ask(number, now);
            link.pump().ok()?;
            now
        };
        self.until(|event| match event {
            ClientEvent::Time {
                number: of,
                monotonic_came_ns,
                monotonic_ns,
                realtime_ns: far_realtime_ns,
            } if of == number => Some(TimeAsked {
                asked_ns,
                came_ns: monotonic_came_ns,
                left_ns: monotonic_ns,
                heard_ns: now_ns(),
                far_realtime_ns,
            }),
            _ => None,
        })
    }

    fn until<T>(&self, wanted: impl FnMut(ClientEvent) -> Option<T>) -> Option<T> {
        until(&self.link, CONNECT, wanted).ok()
    }

    /// Ends the session and brings home what came of it there. Where the connection was lost, what is known of it.
    pub(crate) fn finish(mut self, sent_packets: u64) -> FarEnd {
        let lost = self.end(sent_packets);
        match lost {
            Ok(mut far) => {
                self.left.add(std::mem::take(&mut far.left));
                far
            }
            Err(error) => FarEnd {
                lost: Some(format!("{}: {error:#}", self.who)),
                ..self.ready.far.clone()
            },
        }
    }

    fn end(&mut self, sent_packets: u64) -> Result<FarEnd> {
        self.link().over = true;
        if let Some(keeper) = self.keeper.take() {
            _ = keeper.join();
        }
        let far = {
            let mut link = self.link();
            link.pump()?;
            link.client.stop(StopMessage { sent_packets }, now_ns());
            loop {
                if let ClientEvent::Outcome(far) = link.next()? {
                    link.client.bye(now_ns());
                    _ = link.pump();
                    link.wire.finish(LOOK);
                    break *far;
                }
            }
        };
        self.is_doing = false;
        Ok(far)
    }
}

impl Drop for Far {
    /// Who does something has undone it when this returns, or it is said that nobody knows.
    fn drop(&mut self) {
        self.link().over = true;
        if let Some(keeper) = self.keeper.take() {
            _ = keeper.join();
        }
        // Whatever is open there is to be closed; nothing more is to be said after the end of a session.
        self.link().part(self.is_doing, &self.left);
    }
}

/// Waits for one event, others go by.
pub(super) fn until<T>(
    link: &Mutex<Link>,
    longest: Duration,
    mut wanted: impl FnMut(ClientEvent) -> Option<T>,
) -> Result<T> {
    let end = Instant::now() + longest;
    while Instant::now() < end {
        let mut link = link.lock().unwrap_or_else(PoisonError::into_inner);
        link.pump()?;
        while let Some(event) = link.events.pop_front() {
            if let Some(found) = wanted(event) {
                return Ok(found);
            }
        }
        // Not with the lock for long: the keeper has to look, too.
        link.wire.wait(Duration::from_millis(5));
    }
    bail!("it does not answer")
}

/// Readings of both hosts' clocks around one question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeAsked {
    pub(crate) asked_ns: u64,
    pub(crate) came_ns: u64,
    pub(crate) left_ns: u64,
    pub(crate) heard_ns: u64,
    /// CLOCK_REALTIME when the far CLOCK_MONOTONIC showed `left_ns`.
    pub(crate) far_realtime_ns: u64,
}

/// The keeper: says that this end is there, and stops the run when the other is not.
pub(super) fn keep(link: &Mutex<Link>, stop: &Stop, who: &str) {
    loop {
        {
            let mut link = link.lock().unwrap_or_else(PoisonError::into_inner);
            if link.over {
                return;
            }
            if let Err(error) = link.pump() {
                stop.set();
                note(format_args!("{who}: {error:#}; packets stop here"));
                return;
            }
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
#[path = "far_tests.rs"]
mod tests;
