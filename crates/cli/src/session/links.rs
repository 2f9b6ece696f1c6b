//! What happens to the links of a run: told once, written down, waited out; and the run's end when one is gone.
//!
//! Each queue of the library learns it too, where it receives. One watch for all is told of each event once, and also
//! of an interface that is only sent to, or that nothing is sent to at the moment.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use ringside_measure::schema;
use ringside_nic::{Interface, LinkEvent, LinkState, LinkStatus, LinkWatch};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::nanos;
use crate::output;
use crate::progress::Progress;

/// How often the links are looked at, and how long the watching thread may outlive the run. The
/// kernel gathers messages about carriers for up to a second
/// (<https://elixir.bootlin.com/linux/v6.18/C/ident/linkwatch_schedule_work>); its answers are up
/// to date.
const LOOK: Duration = Duration::from_millis(50);

/// How often while one is not up.
const LOOK_WHILE_DOWN: Duration = Duration::from_millis(10);

/// How long to wait for the word on an interface that a worker has found gone.
const LAST_WORD: Duration = Duration::from_secs(2);

/// What the watching thread and the run share.
#[derive(Default)]
pub(super) struct Shared {
    /// Links that are not up.
    down: AtomicUsize,
    over: AtomicBool,
}

impl Shared {
    /// Counts a link that has gone down, or come back.
    fn count(&self, up: bool) {
        if up {
            self.down.fetch_sub(1, Ordering::Relaxed);
        } else {
            self.down.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed) != 0
    }
}

/// An event, of which link and when.
struct Told {
    link: usize,
    at: Instant,
    event: LinkEvent,
}

/// The links of a run, as far as the run has heard of them.
pub(super) struct Links {
    pub(super) shared: Arc<Shared>,
    told: Receiver<Told>,
    links: Vec<Link>,
    history: History,
    /// Why nothing can be measured any more.
    end: Option<anyhow::Error>,
}

struct Link {
    name: String,
    down_since: Option<Instant>,
    /// It was up before.
    was_up: bool,
    /// The MTU, if it was changed during the run.
    new_mtu: Option<u32>,
}

/// What happened to the links of a run.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) events: Vec<schema::LinkChange>,
    pub(crate) flaps: u64,
    pub(crate) down: Duration,
}

impl Links {
    /// Watches these interfaces until it is dropped.
    ///
    /// That is done by a thread of its own, for which nobody waits: with a change of the link it asks the kernel for more,
    /// which answers under the lock of all changes to interfaces, and that can take more than a second while others
    /// work on theirs.
    pub(super) fn watch(interfaces: &[Interface]) -> Result<Self> {
        let watches = interfaces
            .iter()
            .map(LinkWatch::open)
            .collect::<Result<Vec<LinkWatch>, _>>()?;
        let shared = Arc::new(Shared::default());
        let (tell, told) = mpsc::channel();
        let at = Instant::now();
        let mut links = Vec::new();
        for (link, (interface, watch)) in interfaces.iter().zip(&watches).enumerate() {
            let name = interface.name().to_owned();
            // It was switched on when it was opened: it has gone down since.
            if watch.status() == Some(LinkStatus::Down) {
                shared.count(false);
                _ = tell.send(Told {
                    link,
                    at,
                    event: LinkEvent::Down,
                });
            } else if watch.status() == Some(LinkStatus::NoCarrier) {
                output::note(format_args!("{name} has no carrier so far"));
            }
            links.push(Link {
                name,
                down_since: (watch.status() == Some(LinkStatus::NoCarrier)).then_some(at),
                was_up: watch.status() != Some(LinkStatus::NoCarrier),
                new_mtu: None,
            });
        }
        let thread = std::thread::Builder::new().name("links".into());
        thread.spawn({
            let shared = Arc::clone(&shared);
            let interfaces = interfaces.to_vec();
            move || follow(&interfaces, watches, &shared, &tell)
        })?;
        Ok(Self {
            shared,
            told,
            links,
            history: History::default(),
            end: None,
        })
    }

    /// Tells the user what has happened by now. True when the run cannot go on.
    pub(super) fn tell(&mut self, start: Instant, progress: &Progress) -> bool {
        while let Ok(told) = self.told.try_recv() {
            if let Some(note) = self.take(told, start) {
                progress.note(note);
            }
        }
        self.end.is_some()
    }

    /// Why the run has ended, if it was for a link. `error` is a worker's.
    pub(super) fn explain(&mut self, start: Instant, error: Option<anyhow::Error>) -> Option<anyhow::Error> {
        if self.end.is_some() {
            return self.end.take();
        }
        let error = error?;
        let (interface, event) = match error.downcast_ref() {
            Some(ringside_xsk::Error::LinkGone { interface, event, .. }) => (interface, event),
            _ if is_too_long(&error) => return Some(self.blame_mtu(start, error)),
            _ => return Some(error),
        };
        // The worker's socket may know before the message is there, and does not know where the interface went.
        while let Ok(told) = self.told.recv_timeout(LAST_WORD) {
            _ = self.take(told, start);
            if self.end.is_some() {
                return self.end.take();
            }
        }
        gone(interface, event).or(Some(error))
    }

    /// Returns the error of a run whose packets are longer than the MTU, which was lowered.
    fn blame_mtu(&mut self, start: Instant, error: anyhow::Error) -> anyhow::Error {
        let end = Instant::now() + LAST_WORD;
        loop {
            if let Some((name, mtu)) = self.links.iter().find_map(|link| Some((&link.name, link.new_mtu?))) {
                return mtu_was_changed(name, mtu, &error);
            }
            // The worker's socket may know before the message is there.
            match self.told.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(told) => _ = self.take(told, start),
                Err(_) => return error,
            }
        }
    }

    /// What is known in the end.
    pub(super) fn history(mut self, start: Instant, ended: Instant) -> History {
        while let Ok(told) = self.told.try_recv()
            && told.at <= ended
        {
            _ = self.take(told, start);
        }
        self.history.down += self
            .links
            .iter()
            .filter_map(|link| link.down_since)
            .map(|since| ended.saturating_duration_since(since))
            .sum::<Duration>();
        std::mem::take(&mut self.history)
    }

    /// Writes an event down; what to tell of it.
    fn take(&mut self, told: Told, start: Instant) -> Option<String> {
        let Told { link, at, event } = told;
        let link = &mut self.links[link];
        let at_ns = nanos(at.saturating_duration_since(start));
        let interface = link.name.clone();
        if let Some(event) = in_schema(&event) {
            self.history.events.push(schema::LinkChange {
                at_ns,
                interface,
                event,
            });
        }
        let name = &link.name;
        match event {
            LinkEvent::Down | LinkEvent::NoCarrier => {
                let what = match event {
                    LinkEvent::Down => "is down",
                    _ => "has no carrier",
                };
                // From one to the other is no news: it is waited for already.
                if link.down_since.is_some() {
                    return None;
                }
                link.down_since = Some(at);
                self.history.flaps += 1;
                Some(format!("{name} {what}; waiting for it to come back"))
            }
            LinkEvent::Up => {
                let down = at.saturating_duration_since(link.down_since.take()?);
                self.history.down += down;
                let again = if std::mem::replace(&mut link.was_up, true) {
                    " again"
                } else {
                    ""
                };
                Some(format!(
                    "{name} is up{again} after {:.2} s; going on",
                    down.as_secs_f64()
                ))
            }
            LinkEvent::Renamed { name: new } => {
                let note = format!("{name} is called {new} now; going on");
                link.name = new;
                Some(note)
            }
            LinkEvent::QueuesChanged { rx, tx } => Some(format!(
                "{name} has {rx} receive and {tx} transmit queues now; going on with those that were opened"
            )),
            LinkEvent::MtuChanged { mtu } => {
                link.new_mtu = Some(mtu);
                Some(format!("{name} has MTU {mtu} now; it sends no packets that are longer"))
            }
            event => {
                self.end = self.end.take().or_else(|| gone(name, &event));
                None
            }
        }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
    }
}

/// The watching thread.
fn follow(interfaces: &[Interface], mut watches: Vec<LinkWatch>, shared: &Shared, tell: &Sender<Told>) {
    // The state that was told last.
    let mut told: Vec<Option<LinkStatus>> = watches.iter().map(LinkWatch::status).collect();
    // One that had no carrier from the start is none to wait for.
    let mut up: Vec<bool> = told.iter().map(|status| *status != Some(LinkStatus::Down)).collect();
    while !shared.over.load(Ordering::Relaxed) {
        let are_up = told.iter().all(|status| *status == Some(LinkStatus::Up));
        let timeout = if are_up { LOOK } else { LOOK_WHILE_DOWN };
        let mut fds: Vec<PollFd<'_>> = watches
            .iter()
            .map(|watch| PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN))
            .collect();
        // Whatever it answers, the watches know.
        _ = poll(&mut fds, Timespec::try_from(timeout).ok().as_ref());
        drop(fds);
        for (link, (watch, interface)) in watches.iter_mut().zip(interfaces).enumerate() {
            let mut events = Vec::new();
            let mut was_up = watch.status() == Some(LinkStatus::Up);
            // A kernel that does not answer has told nothing.
            while let Ok(Some(event)) = watch.next() {
                // On the way up a link has no carrier by the messages when it has one.
                if event != LinkEvent::NoCarrier || was_up {
                    events.push(event);
                }
                was_up = watch.status() == Some(LinkStatus::Up);
            }
            // Later than all of these.
            if watch.status().is_some() {
                events.extend(interface.state().ok().map(|state| LinkEvent::from(status(&state))));
            }
            for event in events {
                let now = match event {
                    LinkEvent::Down => Some(LinkStatus::Down),
                    LinkEvent::NoCarrier => Some(LinkStatus::NoCarrier),
                    LinkEvent::Up => Some(LinkStatus::Up),
                    _ => None,
                };
                if now.is_some() {
                    if std::mem::replace(&mut told[link], now) == now {
                        continue;
                    }
                    let is_up = now == Some(LinkStatus::Up);
                    if std::mem::replace(&mut up[link], is_up) != is_up {
                        shared.count(is_up);
                    }
                }
                let at = Instant::now();
                if tell.send(Told { link, at, event }).is_err() {
                    return;
                }
            }
        }
    }
}

/// Returns whether packets pass. A carrier is enough for XDP sockets: they do not wait for the
/// kernel to activate its own queues.
fn status(state: &LinkState) -> LinkStatus {
    match (state.admin_up, state.carrier) {
        (false, _) => LinkStatus::Down,
        (true, false) => LinkStatus::NoCarrier,
        (true, true) => LinkStatus::Up,
    }
}

/// Returns whether a packet was longer than the MTU allows. Sizes are checked against it before a
/// run, so that it was lowered since.
pub(crate) fn is_too_long(error: &anyhow::Error) -> bool {
    use ringside_xsk::Error::Setting;
    matches!(error.downcast_ref(), Some(Setting { setting, .. }) if *setting == "packet length")
}

/// Returns the error of a run whose packets are longer than the new MTU.
pub(crate) fn mtu_was_changed(name: &str, mtu: u32, error: &anyhow::Error) -> anyhow::Error {
    anyhow!("the MTU of {name} was changed to {mtu} during the run: {error}")
}

/// The end of an interface, in words; none for what it survives.
fn gone(name: &str, event: &LinkEvent) -> Option<anyhow::Error> {
    match event {
        LinkEvent::Removed => Some(anyhow!("{name} was removed during the run")),
        LinkEvent::Moved { .. } => Some(anyhow!("{name} was moved to another network namespace during the run")),
        _ => None,
    }
}

fn in_schema(event: &LinkEvent) -> Option<schema::LinkEvent> {
    Some(match event {
        LinkEvent::Down => schema::LinkEvent::Down,
        LinkEvent::NoCarrier => schema::LinkEvent::NoCarrier,
        LinkEvent::Up => schema::LinkEvent::Up,
        LinkEvent::Removed => schema::LinkEvent::Removed,
        LinkEvent::Moved { .. } => schema::LinkEvent::Moved,
        LinkEvent::Renamed { .. } => schema::LinkEvent::Renamed,
        LinkEvent::QueuesChanged { .. } => schema::LinkEvent::QueuesChanged,
        LinkEvent::MtuChanged { .. } => schema::LinkEvent::MtuChanged,
        // There again after it was gone: the run has ended by then.
        _ => return None,
    })
}
