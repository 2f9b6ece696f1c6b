//! One connection for many turns: what a comparison does with the far end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use ringside_measure::control::{ClientEvent, Start, Stop as StopMessage};
use ringside_measure::schema::{FarEnd, Interface};

use super::RemoteArgs;
use super::far::{Dialled, Link, keep, until};
use crate::clock::now_ns;
use crate::session::nanos;
use crate::stop::Stop;

/// How long opening and closing may take there.
const LONGEST: Duration = Duration::from_secs(20);

/// Turns with one server.
pub(crate) struct Turns {
    link: Arc<Mutex<Link>>,
    who: String,
    pub(crate) remote: RemoteArgs,
    keeper: Option<JoinHandle<()>>,
    /// Without a word of each other for so long, during a turn, both take the other for gone; `None`: as long as is usual.
    pub(crate) silence: Option<Duration>,
    /// What it was at the last turn.
    far: Mutex<Option<FarEnd>>,
}

impl Dialled {
    /// For turns. The loss of the connection sets `stop`.
    pub(crate) fn turns(self, remote: RemoteArgs, stop: &Stop) -> Result<Turns> {
        let link = Arc::new(Mutex::new(self.link));
        let (kept, stop, who) = (Arc::clone(&link), stop.clone(), self.who.clone());
        let keeper = std::thread::Builder::new().name("control".into());
        let keeper = keeper
            .spawn(move || keep(&kept, &stop, &who))
            .context("starting a thread")?;
        Ok(Turns {
            link,
            who: self.who,
            remote,
            keeper: Some(keeper),
            silence: None,
            far: Mutex::default(),
        })
    }
}

impl Turns {
    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn far(&self) -> MutexGuard<'_, Option<FarEnd>> {
        self.far.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the far end open its part of a turn.
    pub(crate) fn begin(&self, mut start: Start) -> Result<()> {
        start.silence_ns = self.silence.map(nanos).or(start.silence_ns);
        {
            let mut link = self.link();
            link.pump().with_context(|| self.who.clone())?;
            link.client.start(start, now_ns());
        }
        let answer = until(&self.link, LONGEST, |event| match event {
            ClientEvent::Ready(ready) => Some(Ok(ready.far)),
            ClientEvent::Refused(why) => Some(Err(why)),
            _ => None,
        });
        match answer.with_context(|| self.who.clone())? {
            Ok(far) => *self.far() = Some(far),
            Err(why) => bail!("{} refuses: {why}", self.who),
        }
        self.link().client.go(now_ns());
        Ok(())
    }

    /// Ends the turn there; what it told.
    pub(crate) fn end(&self) -> Result<FarEnd> {
        {
            let mut link = self.link();
            link.pump().with_context(|| self.who.clone())?;
            link.client.stop(StopMessage::default(), now_ns());
        }
        until(&self.link, LONGEST, |event| match event {
            ClientEvent::Outcome(far) => Some(*far),
            _ => None,
        })
        .with_context(|| self.who.clone())
    }

    /// Returns the far end's interface as it was at the last turn; `None` before the first.
    pub(crate) fn interface(&self) -> Option<Interface> {
        self.far().as_ref()?.interfaces.first().cloned()
    }

    /// How long it has said nothing, during a turn and between two.
    pub(crate) fn quiet(&self) -> Duration {
        Duration::from_nanos(self.link().client.quiet_ns(now_ns()))
    }

    /// What the far end was, for the result; with why it was lost, if it was.
    pub(crate) fn finish(&self) -> Option<FarEnd> {
        let lost = self.link().lost.clone();
        let far = self.far().clone()?;
        Some(FarEnd {
            lost: lost.map(|why| format!("{}: {why}", self.who)),
            ..far
        })
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        {
            let mut link = self.link();
            link.over = true;
            link.client.bye(now_ns());
            // It goes with the process otherwise.
            _ = link.pump();
        }
        if let Some(keeper) = self.keeper.take() {
            _ = keeper.join();
        }
    }
}
