//! Questions to the store, away from the threads that serve everybody.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

use crate::store::{Reader, Store, StoreError};

/// Connections that read.
#[derive(Debug)]
pub struct Readers {
    /// Those that nobody uses just now.
    idle: Mutex<Vec<Reader>>,
    /// How many may be used at a time.
    permits: Arc<Semaphore>,
    /// Why the last question was not answered, if it was not.
    failed: Mutex<Option<String>>,
}

/// More questions at a time would only share the same disk and cores.
const READERS: usize = 2;

impl Readers {
    pub(super) fn new(store: &Store) -> Result<Self, StoreError> {
        let idle: Vec<Reader> = (0..READERS).map(|_| store.reader()).collect::<Result<_, _>>()?;
        Ok(Self {
            idle: Mutex::new(idle),
            permits: Arc::new(Semaphore::new(READERS)),
            failed: Mutex::default(),
        })
    }

    /// What is wrong, for people, until a question is answered again.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let told = |why| format!("the last question to the store was not answered: {why}");
        failed.as_ref().map(told)
    }

    /// Asks, on a thread that may wait for the disk.
    ///
    /// # Errors
    /// What the question fails with.
    ///
    /// # Panics
    /// If the question does.
    pub async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        question: impl FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.expect("never closed");
        let readers = Arc::clone(self);
        let asked = tokio::task::spawn_blocking(move || {
            let reader = readers.lock().pop().expect("one for each permit");
            let answer = question(&reader);
            let failed = answer.as_ref().err().map(ToString::to_string);
            *readers.failed.lock().unwrap_or_else(PoisonError::into_inner) = failed;
            readers.lock().push(reader);
            // Not before: who asked may have gone away, and the reader is here still.
            drop(permit);
            answer
        });
        asked.await.expect("a question does not panic")
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Reader>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
