//! The fleet's time, by which what was deleted grows old: seconds that only count up, in etcd's key `v1/clock`.
//!
//! Each gateway has read it once, and knows by a clock that does not jump how much later it is now. Now and then one of them writes
//! that down, if nobody has meanwhile. So the fleet's time is never ahead of the time that has really passed, and stands still while
//! no gateway runs; what any gateway's wall clock says counts once, in a fleet that has no time yet. Who forgot by the wall clock
//! would forget everything when that jumps ahead, and a late statement would bring back what was deleted.

use std::sync::{Arc, Mutex, PoisonError};

use super::client::{Etcd, Refused};
use crate::model::{Readers, Steady, now};

/// Nobody writes it down if somebody has since so many seconds.
const WRITTEN_EVERY: i64 = 30;

#[derive(Debug)]
pub(crate) struct Clock {
    readers: Arc<Readers>,
    /// None: it was not asked for yet.
    known: Mutex<Option<Steady>>,
}

impl Clock {
    pub(crate) fn new(readers: Arc<Readers>) -> Self {
        let known = Mutex::default();
        Self { readers, known }
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
        let now = match (self.known(), written) {
            (Some(known), written) => known.max(written.unwrap_or(known)),
            (None, Some(written)) => written,
            (None, None) => self.first().await,
        };
        if written.is_some_and(|written| now.saturating_sub(written) < WRITTEN_EVERY) {
            return Ok(self.learn(now));
        }
        if etcd.set_clock(now, revision).await? {
            return Ok(self.learn(now));
        }
        // Somebody was faster.
        let (written, _) = etcd.clock().await?;
        let now = written.ok_or_else(|| Refused::Lost("the fleet's time is gone again".to_owned()))?;
        Ok(self.learn(now))
    }

    /// Where there is none yet: not before anything that was deleted.
    async fn first(&self) -> i64 {
        let newest = self.readers.ask(|reader| reader.newest_deletion()).await;
        newest.ok().flatten().unwrap_or_else(now)
    }
}
