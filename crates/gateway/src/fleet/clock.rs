//! The fleet's time, by which what was deleted grows old: seconds that only count up, in etcd's key `v1/clock`.
//!
//! Each gateway has read it once, and knows by a clock that does not jump how much later it is now. Now and then one of them writes
//! that down, if nobody has meanwhile. So the fleet's time is never ahead of the time that has really passed, and stands still while
//! no gateway runs; what any gateway's wall clock says counts once, in a fleet that has no time yet. Who forgot by the wall clock
//! would forget everything when that jumps ahead, and a late statement would bring back what was deleted.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::client::{Etcd, Refused};
use super::door::Door;
use super::key::CLOCK;
use super::status::Status;
use crate::model::{Readers, Steady, now};

/// Nobody writes it down if somebody has since so many seconds.
const WRITTEN_EVERY: i64 = 30;
/// The pause between two looks at the key.
const PAUSE: Duration = Duration::from_secs(5);

/// Returns what health says about a key that is no number, if no gateway knows the time.
fn damaged(key: &str) -> String {
    format!(
        "the key {CLOCK} in etcd, the fleet's time, is no number, and no gateway knows the time: \
         nothing can be deleted, and deleted objects are not forgotten; remove the key \
         (etcdctl del {key}), and the next delete writes it"
    )
}

/// What the key holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// It is not there.
    Missing,
    /// Seconds.
    At(i64),
    /// No number.
    Damaged,
}

#[derive(Debug)]
pub(crate) struct Clock {
    readers: Arc<Readers>,
    status: Arc<Status>,
    /// None: it was not asked for yet.
    known: Mutex<Option<Steady>>,
}

impl Clock {
    pub(crate) fn new(readers: Arc<Readers>, status: Arc<Status>) -> Self {
        let known = Mutex::default();
        Self { readers, status, known }
    }

    /// Learns the time as long as the program runs, so that it is known when somebody damages the
    /// key; then writes it again.
    pub(crate) async fn watch(self: Arc<Self>, door: Door) {
        loop {
            let looked = match door.etcd().await {
                Ok(etcd) => self.look(&etcd).await.map_err(Refused::why),
                Err(why) => Err(why),
            };
            if let Err(why) = looked {
                tracing::debug!(why, "the fleet's time is not known");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn look(&self, etcd: &Etcd) -> Result<(), Refused> {
        let (written, _) = etcd.clock().await?;
        match written {
            Written::Missing => self.status.set_clock_problem(None),
            Written::At(time) => {
                self.status.set_clock_problem(None);
                self.learn(time);
            }
            Written::Damaged => _ = self.agree(etcd).await?,
        }
        Ok(())
    }

    fn known(&self) -> Option<i64> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().map(Steady::now)
    }

    /// Takes notice of a time; of two the later one holds.
    fn learn(&self, time: i64) -> i64 {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let time = known.as_ref().map_or(time, |known| known.now().max(time));
        *known = Some(Steady::at(time));
        time
    }

    /// What time it is, in seconds since 1970 or less.
    pub(crate) async fn now(&self, etcd: &Etcd) -> Result<i64, Refused> {
        match self.known() {
            Some(now) => Ok(now),
            None => self.agree(etcd).await,
        }
    }

    /// As [`Clock::now`], and has etcd know it.
    pub(crate) async fn agree(&self, etcd: &Etcd) -> Result<i64, Refused> {
        let (written, revision) = etcd.clock().await?;
        let known = self.known();
        let is_damaged = written == Written::Damaged;
        let problem = (is_damaged && known.is_none()).then(|| damaged(&etcd.name(CLOCK)));
        self.status.set_clock_problem(problem.clone());
        if let Some(problem) = problem {
            return Err(Refused::Final(problem));
        }
        let now = match (known, written) {
            (Some(known), Written::At(written)) => known.max(written),
            (Some(known), _) => known,
            (None, Written::At(written)) => written,
            (None, _) => self.first().await,
        };
        if matches!(written, Written::At(written) if now.saturating_sub(written) < WRITTEN_EVERY) {
            return Ok(self.learn(now));
        }
        if etcd.set_clock(now, revision).await? {
            if is_damaged {
                tracing::warn!("the key v1/clock in etcd was no number: the fleet's time is written again");
            }
            return Ok(self.learn(now));
        }
        // Somebody was faster.
        match etcd.clock().await? {
            (Written::At(now), _) => Ok(self.learn(now)),
            _ => Err(Refused::Lost("the fleet's time is gone again".to_owned())),
        }
    }

    /// Where there is none yet: not before anything that was deleted.
    async fn first(&self) -> i64 {
        let newest = self.readers.ask(|reader| reader.newest_deletion()).await;
        newest.ok().flatten().unwrap_or_else(now)
    }
}
