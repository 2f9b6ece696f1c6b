//! The connection to etcd, which is made when it is needed, to one member at a time: where one does not answer the next one is asked.
//!
//! All members at once would be asked in turns, whether they answer or not: with one of three out of reach every third question would
//! be lost, or late. After a while the first one is asked again: else one that was gone would have nothing to do when it is back.
//!
//! A new connection takes its time, the more the busier everybody is: who gives up each one before it is there never gets an answer. So
//! each one that follows another without an answer is waited for twice as long, up to what a connection may take.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::client::{Etcd, EtcdOptions, late};
use super::order::Order;
use super::sync::{Failed, Page, Pages};

/// A connection takes some time, and who a user is takes etcd more, on a machine that has other things to do most.
const LEAST_PATIENCE: Duration = Duration::from_millis(500);

/// Cheap to clone; all clones are the same.
#[derive(Debug, Clone)]
pub struct Door(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: Mutex<EtcdOptions>,
    order: Order,
    known: tokio::sync::Mutex<Known>,
    renewed: Notify,
    /// The longest that a connection may be waited for where there are several members.
    patience: Mutex<Duration>,
}

#[derive(Debug)]
struct Known {
    etcd: Option<Etcd>,
    /// How often another member was turned to.
    turns: u64,
    /// When the connection was begun, or the member turned to.
    since: Instant,
    /// How often another member was turned to since the last answer.
    failures: u32,
    /// When this member last answered.
    answered: Option<Instant>,
}

impl Known {
    /// From now on the next member is asked.
    fn turn(&mut self) {
        self.turns += 1;
        self.failures += 1;
        self.etcd = None;
        self.since = Instant::now();
        self.answered = None;
        tracing::debug!(turns = self.turns, "the next member of etcd is asked");
    }
}

impl Door {
    /// Nothing is asked yet.
    #[must_use]
    pub fn new(options: EtcdOptions) -> Self {
        Self(Arc::new(Inner {
            options: Mutex::new(options),
            order: Order::new(super::random()),
            known: tokio::sync::Mutex::new(Known {
                etcd: None,
                turns: 0,
                since: Instant::now(),
                failures: 0,
                answered: None,
            }),
            renewed: Notify::new(),
            patience: Mutex::new(Duration::MAX),
        }))
    }

    /// A connection that takes longer is given up for one to the next member: somebody has to be answered within about this time.
    pub(crate) fn set_patience(&self, patience: Duration) {
        *self.0.patience.lock().unwrap_or_else(PoisonError::into_inner) = patience.max(LEAST_PATIENCE);
    }

    pub(crate) fn options(&self) -> EtcdOptions {
        self.0.options.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on with these: what is under way is done anew.
    pub async fn renew(&self, options: EtcdOptions) {
        *self.0.options.lock().unwrap_or_else(PoisonError::into_inner) = options;
        self.0.known.lock().await.etcd = None;
        self.0.renewed.notify_one();
    }

    /// See [`EtcdOptions::forward_stale`].
    #[must_use]
    pub fn forward_stale(&self) -> Option<Duration> {
        self.options().forward_stale
    }

    pub(crate) async fn renewed(&self) {
        self.0.renewed.notified().await;
    }

    /// The one that there is, or another.
    pub(crate) async fn etcd(&self) -> Result<Etcd, String> {
        self.etcd_of(&OnceLock::new()).await
    }

    /// As [`Door::etcd`]. Sets `turn` to that of the member, also if its connection takes long.
    pub(crate) async fn etcd_of(&self, turn: &OnceLock<u64>) -> Result<Etcd, String> {
        let mut known = self.0.known.lock().await;
        turn.get_or_init(|| known.turns);
        if let Some(etcd) = &known.etcd {
            return Ok(etcd.clone());
        }
        let mut options = self.options();
        let place = self.0.order.place(known.turns, options.endpoints.len());
        let patience = match options.endpoints.len() {
            0 | 1 => Duration::MAX,
            _ => *self.0.patience.lock().unwrap_or_else(PoisonError::into_inner),
        };
        options.endpoints = options.endpoints.get(place).cloned().into_iter().collect();
        let opened = tokio::time::timeout(patience, Etcd::open(&options)).await;
        match opened.unwrap_or_else(|_| Err(late(patience))) {
            Ok(etcd) => {
                let etcd = etcd.of_turn(known.turns);
                known.etcd = Some(etcd.clone());
                known.since = Instant::now();
                Ok(etcd)
            }
            Err(why) => {
                known.turn();
                Err(why)
            }
        }
    }

    /// Some keys: see [`Etcd::list`].
    pub(crate) async fn list(&self, pages: Pages) -> Result<Page, Failed> {
        let etcd = self.etcd().await.map_err(Failed::Other)?;
        let listed = etcd.list(pages).await;
        if let Err(Failed::Other(_)) = listed {
            self.turn_from(etcd.turn()).await;
        }
        listed
    }

    /// It did not answer: from now on another member is asked, unless that is so already.
    pub(crate) async fn turn_from(&self, turn: u64) {
        let mut known = self.0.known.lock().await;
        if known.turns == turn {
            known.turn();
        }
    }

    /// As [`Door::turn_from`], after a request sent at `sent` that failed: unless the member has
    /// answered another one since. A new leader drops what its followers sent to the one before.
    pub(crate) async fn lost_from(&self, turn: u64, sent: Instant) {
        let mut known = self.0.known.lock().await;
        if known.turns == turn && known.answered.is_none_or(|answered| answered < sent) {
            known.turn();
        }
    }

    /// As [`Door::turn_from`], after a request that was not answered in time: unless the connection
    /// is so new that it may not be there yet.
    pub(crate) async fn late_from(&self, turn: u64) {
        let options = self.options();
        let most = options.connect.min(options.timing.silence);
        let is_there = {
            let known = self.0.known.lock().await;
            let patience = LEAST_PATIENCE * 2_u32.pow(known.failures.min(6));
            known.failures == 0 || known.since.elapsed() >= patience.min(most)
        };
        if is_there {
            self.turn_from(turn).await;
        }
    }

    /// It has answered. If it is not the first of this gateway's order, that one is asked again after a while.
    pub(crate) async fn good(&self, turn: u64) {
        let mut known = self.0.known.lock().await;
        if known.turns != turn {
            return;
        }
        known.failures = 0;
        known.answered = Some(Instant::now());
        let options = self.options();
        let (members, since) = (options.endpoints.len(), known.since.elapsed());
        if let Some(turns) = self.0.order.back(turn, members, since, options.balance) {
            (known.turns, known.etcd, known.answered) = (turns, None, None);
            self.0.renewed.notify_one();
        }
    }

    /// Has a lease live on, by an answer within this time: of one that is late another member is asked from now on. False if it is over.
    pub(crate) async fn keep(&self, lease: i64, within: Duration) -> Result<bool, String> {
        let until = Instant::now() + within;
        let door = self.clone();
        // It goes on if it is late: who asks next may have what comes of it.
        let opened = tokio::spawn(async move { door.etcd().await });
        let etcd = match tokio::time::timeout(within, opened).await {
            Ok(etcd) => etcd.map_err(|error| error.to_string())??,
            Err(_) => return Err(late(within)),
        };
        let kept = tokio::time::timeout_at(until.into(), etcd.keep(lease)).await;
        match &kept {
            Ok(Ok(_)) => self.good(etcd.turn()).await,
            Ok(Err(_)) => self.turn_from(etcd.turn()).await,
            Err(_) => self.late_from(etcd.turn()).await,
        }
        kept.unwrap_or_else(|_| Err(late(within)))
    }
}
