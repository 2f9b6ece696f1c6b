//! Threads of a load, which end with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use anyhow::{Context as _, Result, bail};

use crate::pin;

/// Threads that are on; off when it is dropped.
#[derive(Default)]
pub(super) struct Threads {
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Threads {
    /// Starts one on these CPUs, or on any if there are none. It is told when it has to end.
    pub(super) fn start(
        &mut self,
        name: &str,
        cpus: &[u32],
        work: impl FnOnce(&AtomicBool) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let (end, cpus) = (Arc::clone(&self.end), cpus.to_vec());
        let work = move || {
            pin::to_cpus(&cpus)?;
            work(&end)
        };
        let thread = Builder::new().name(name.to_owned()).spawn(work);
        self.threads.push(thread.context("starting a thread")?);
        Ok(())
    }

    /// Whether they all go on.
    pub(super) fn check(&mut self) -> Result<()> {
        let Some(ended) = self.threads.iter().position(JoinHandle::is_finished) else {
            return Ok(());
        };
        match self.threads.swap_remove(ended).join() {
            Ok(done) => done?,
            Err(_) => bail!("its thread panicked"),
        }
        bail!("its thread ended in the middle of a turn");
    }

    /// The same, and they stay.
    pub(super) fn are_on(&self) -> bool {
        !self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Ends them; why one has ended before, if one has.
    pub(super) fn end(&mut self) -> Result<()> {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(done) => done?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            _ = thread.join();
        }
    }
}
