//! The connection to etcd, which is made when it is needed, to one member at a time: where one does not answer the next one is asked.
//!
//! All members at once would be asked in turns, whether they answer or not: with one of three out of reach every third question would
//! be lost, or late.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::client::{Etcd, EtcdOptions};

/// Cheap to clone; all clones are the same.
#[derive(Debug, Clone)]
pub struct Door(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: Mutex<EtcdOptions>,
    known: tokio::sync::Mutex<Known>,
    renewed: Notify,
}

#[derive(Debug)]
struct Known {
    etcd: Option<Etcd>,
    /// How often another member was turned to. Gateways do not begin with the same one.
    turns: u64,
}

impl Door {
    /// Nothing is asked yet.
    #[must_use]
    pub fn new(options: EtcdOptions) -> Self {
        Self(Arc::new(Inner {
            options: Mutex::new(options),
            known: tokio::sync::Mutex::new(Known {
                etcd: None,
                turns: super::random() % 1000,
            }),
            renewed: Notify::new(),
        }))
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

    pub(crate) async fn renewed(&self) {
        self.0.renewed.notified().await;
    }

    /// The one that there is, or another.
    pub(crate) async fn etcd(&self) -> Result<Etcd, String> {
        let mut known = self.0.known.lock().await;
        if let Some(etcd) = &known.etcd {
            return Ok(etcd.clone());
        }
        let mut options = self.options();
        let place = usize::try_from(known.turns).unwrap_or(0) % options.endpoints.len().max(1);
        options.endpoints = options.endpoints.get(place).cloned().into_iter().collect();
        match Etcd::open(&options).await {
            Ok(etcd) => {
                let etcd = etcd.of_turn(known.turns);
                known.etcd = Some(etcd.clone());
                Ok(etcd)
            }
            Err(why) => {
                known.turns += 1;
                Err(why)
            }
        }
    }

    /// It did not answer: from now on another member is asked, unless that is so already.
    pub(crate) async fn turn_from(&self, turn: u64) {
        let mut known = self.0.known.lock().await;
        if known.turns == turn {
            known.turns += 1;
            known.etcd = None;
        }
    }

    /// As [`Door::turn_from`], whichever is asked now.
    pub(crate) async fn turn(&self) {
        let turn = self.0.known.lock().await.turns;
        self.turn_from(turn).await;
    }
}
