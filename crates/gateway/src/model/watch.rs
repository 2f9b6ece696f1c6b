//! Changes, to those who want to know.

use std::sync::Arc;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::Outcome;
use crate::object::Change;

/// Batches that a watcher may be behind.
pub(super) const BATCHES: usize = 256;
/// Changes of a batch: a slow watcher costs so much memory times [`BATCHES`], some tens of megabytes.
const SIZE: usize = 1024;

/// Changes that were made, in order.
#[derive(Debug)]
pub(super) struct Published {
    revision: u64,
    changes: Vec<Change>,
}

/// The watcher missed changes: what it knows is not what there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too slow: changes were missed, list everything anew")]
pub struct TooSlow;

/// Gets every change from when it was made on, in order.
#[derive(Debug)]
pub struct Watcher(broadcast::Receiver<Arc<Published>>);

impl Watcher {
    pub(super) fn new(receiver: broadcast::Receiver<Arc<Published>>) -> Self {
        Self(receiver)
    }

    /// Waits for changes, and gives those to `each` that were made together. None when there will be no more.
    ///
    /// # Errors
    /// [`TooSlow`]; from then on nothing that comes is complete.
    pub async fn next(&mut self, each: impl FnOnce(&[Change])) -> Result<Option<u64>, TooSlow> {
        match self.0.recv().await {
            Ok(published) => {
                each(&published.changes);
                Ok(Some(published.revision))
            }
            Err(RecvError::Closed) => Ok(None),
            Err(RecvError::Lagged(_)) => Err(TooSlow),
        }
    }
}

/// Tells watchers what has changed.
pub(super) fn publish(
    watchers: &broadcast::Sender<Arc<Published>>,
    revision: u64,
    changes: Vec<Change>,
    outcomes: &[Outcome],
) {
    if watchers.receiver_count() == 0 {
        return;
    }
    let mut changed = changes
        .into_iter()
        .zip(outcomes)
        .filter_map(|(change, outcome)| outcome.is_change().then_some(change))
        .peekable();
    while changed.peek().is_some() {
        let changes = changed.by_ref().take(SIZE).collect();
        // If the last watcher has just gone, nobody misses it.
        _ = watchers.send(Arc::new(Published { revision, changes }));
    }
}
