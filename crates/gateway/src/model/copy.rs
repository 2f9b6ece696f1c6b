//! The thread that writes down what etcd has told: for a start without it, and for questions.

use std::iter;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use tokio::sync::watch;

use super::{Health, Made};
use crate::fleet::Status;
use crate::fleet::sync::Mark;
use crate::store::Store;

/// Objects that go into one transaction.
const AT_ONCE: usize = 65_536;
/// Between two tries.
const PAUSE: Duration = Duration::from_secs(1);

/// Something that the tables have.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) made: Vec<Made>,
    /// What that is as of, if that is another revision than before, or none.
    pub(super) mark: Option<Mark>,
}

#[derive(Debug)]
pub(super) struct Copier {
    pub(super) store: Store,
    pub(super) health: Arc<Health>,
    pub(super) status: Arc<Status>,
    /// The revision that the copy has, or would have if it could be written.
    pub(super) copied: watch::Sender<u64>,
}

impl Copier {
    /// Until there is nothing more to write.
    pub(super) fn run(mut self, waiting: &Receiver<Copy>) {
        let (mut made, mut mark, mut puts) = (Vec::new(), None, 0);
        // Something is missing between what is on the disk and what comes.
        let mut has_gap = false;
        while let Some(first) = self.next(waiting, puts == 0) {
            for copy in first.into_iter().chain(iter::from_fn(|| waiting.try_recv().ok())) {
                made.extend(copy.made);
                mark = copy.mark.or(mark);
                puts += 1;
                if made.len() >= AT_ONCE {
                    break;
                }
            }
            let revision = mark.as_ref().and_then(|mark: &Mark| mark.revision);
            let is_kept = !has_gap
                && match self.write(&made, mark.as_ref()) {
                    Ok(()) => {
                        self.status.backlog.written(made.len(), puts);
                        false
                    }
                    Err(why) => {
                        has_gap = self.status.backlog.failed(why);
                        !has_gap
                    }
                };
            if !is_kept {
                (made, mark, puts) = (Vec::new(), None, 0);
            }
            // The truth is in etcd and in the tables all the same.
            if let Some(revision) = revision {
                self.copied.send_replace(revision);
            }
        }
        if let Err(error) = self.store.rest() {
            tracing::warn!(%error, "the store's log stays as it is, and is read at the next start");
        }
    }

    /// Waits for something; or, when something could not be written, for a time. None: there will be no more.
    fn next(&mut self, waiting: &Receiver<Copy>, is_idle: bool) -> Option<Option<Copy>> {
        use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
        match waiting.recv_timeout(PAUSE) {
            Ok(copy) => Some(Some(copy)),
            Err(Disconnected) => None,
            Err(Timeout) if is_idle => {
                if let Err(error) = self.store.rest() {
                    // It only takes room.
                    tracing::warn!(%error, "the store's log could not be written back");
                }
                self.health.set_bytes(self.store.bytes());
                self.next(waiting, is_idle)
            }
            Err(Timeout) => Some(None),
        }
    }

    fn write(&mut self, made: &[Made], mark: Option<&Mark>) -> Result<(), String> {
        match self.store.mirror(made, mark) {
            Ok(revision) => {
                self.health.can_write(revision, self.store.bytes());
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, "the copy of etcd's state cannot be written");
                Err(error.to_string())
            }
        }
    }
}
