//! The cache of neighbours grows while packets are forwarded, on a thread of its own.
//!
//! ```text
//!  loads a second program with a larger table                                    without the lock
//!  copies the entries of the smaller table, then adds other neighbours           some at a time
//!  puts the second program behind the links                                      without the lock
//!  makes it the cache's program                                                  with the lock
//!  waits until the first program has no packet any more                          without the lock
//! ```
//! "The lock" is that of the cache. Every change goes to both tables meanwhile ([`Cache::other`]),
//! so it does not matter which of them a packet meets.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use ringside_bpf::gateway::{GatewayProgram, TableHand};
use ringside_gateway_core::TenantAddress;
use ringside_nic::wait_for_grace_period;

use super::attach;
use super::cache::{AddressCursor, Cache, FOLLOWED, key_of};
use super::supervisor::Attached;
use super::worker::Shared;
use super::{PathOptions, XdpPath};
use crate::model::Tables;

/// Time after which a program that was replaced has no packet any more, where the kernel cannot be
/// asked.
const GRACE_PERIOD: Duration = Duration::from_millis(100);
/// Pause in which others get the cache's lock.
const PAUSE: Duration = Duration::from_micros(100);
/// Pause after the cache could not grow.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// What it takes to make the cache of neighbours larger.
pub(super) struct Growth {
    tables: Arc<Tables>,
    shared: Arc<Shared>,
    cache: Arc<Mutex<Cache>>,
    attached: Arc<Attached>,
    pins: Option<PathBuf>,
    /// It gets no larger.
    max_neighbors: u32,
}

/// The thread on which the cache grows, and when it may begin again.
#[derive(Default)]
pub(super) struct GrowthThread {
    thread: Option<JoinHandle<Result<()>>>,
    retry_at: Option<Instant>,
}

impl GrowthThread {
    /// Starts it if the cache lacks room. It is not waited for when the gateway ends: it replaces
    /// no program then, and what the kernel loads ends with the process.
    pub(super) fn start_if_due(&mut self, growth: &Arc<Growth>, now: Instant) {
        if let Some(ended) = self.thread.take_if(|thread| thread.is_finished()) {
            let result = ended
                .join()
                .unwrap_or_else(|_| Err(anyhow::anyhow!("its thread panicked")));
            self.report(result, now);
        }
        if self.thread.is_some() || self.retry_at.is_some_and(|at| now < at) || !growth.is_due() {
            return;
        }
        let growth = Arc::clone(growth);
        let thread = std::thread::Builder::new().name("cache growth".to_owned());
        match thread.spawn(move || growth.run()) {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => self.report(Err(error.into()), now),
        }
    }

    fn report(&mut self, result: Result<()>, now: Instant) {
        self.retry_at = None;
        if let Err(error) = result {
            tracing::warn!(%error, "the fast path's cache of neighbours cannot be made larger");
            self.retry_at = Some(now + RETRY_INTERVAL);
        }
    }
}

impl Growth {
    pub(super) fn of(path: &XdpPath, options: &PathOptions) -> Self {
        Self {
            tables: Arc::clone(&path.tables),
            shared: Arc::clone(&path.shared),
            cache: Arc::clone(&path.cache),
            attached: Arc::clone(&path.attached),
            pins: options.pins.clone(),
            max_neighbors: *options.cached_neighbors.end(),
        }
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of neighbours that the tables have.
    fn known(&self) -> u32 {
        u32::try_from(self.tables.neighbors.len()).unwrap_or(u32::MAX)
    }

    fn is_due(&self) -> bool {
        let cache = self.cache();
        let room = cache.program.sizes().neighbors;
        cache.is_used && room < self.known() && room < self.max_neighbors
    }

    fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    fn run(&self) -> Result<()> {
        let begun = Instant::now();
        let larger = self.begin()?;
        let before = self.cache().program.sizes().neighbors;
        let replaced = match self.fill(&larger) {
            true => self.replace(&larger),
            false => Ok(false),
        };
        if replaced? {
            let milliseconds = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            let now = larger.sizes().neighbors;
            tracing::info!(
                before,
                now,
                milliseconds,
                "the fast path's cache of neighbours is larger"
            );
        }
        Ok(())
    }

    /// Loads a program with a larger table, which gets every change from now on.
    fn begin(&self) -> Result<Arc<GatewayProgram>> {
        let (program, other) = {
            let cache = self.cache();
            (Arc::clone(&cache.program), cache.other.clone())
        };
        // Links may have it already, and not the one before again.
        if let Some(larger) = other {
            return Ok(larger);
        }
        let room = self.known().saturating_mul(2).min(self.max_neighbors);
        let larger = Arc::new(program.with_room(room)?);
        self.cache().other = Some(Arc::clone(&larger));
        Ok(larger)
    }

    /// Fills the larger table, first with what packets have asked for. Returns false if the gateway
    /// ends.
    fn fill(&self, larger: &GatewayProgram) -> bool {
        let mut hand = TableHand::default();
        loop {
            if self.is_stopped() {
                return false;
            }
            self.cache().copy_entries(&mut hand, larger);
            if hand.is_new() {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        let mut cursor = AddressCursor::default();
        let room = larger.sizes().neighbors as usize;
        while !cursor.is_done() && larger.neighbors().len() < room {
            if self.is_stopped() {
                return false;
            }
            let addresses = cursor.next(&self.tables.neighbors, |_| true);
            if !addresses.is_empty() {
                self.cache().add_entries(&addresses, larger);
                std::thread::sleep(PAUSE);
            }
        }
        true
    }

    /// Puts the program with the larger table in place of the one before. Returns false if the
    /// gateway ends.
    fn replace(&self, larger: &Arc<GatewayProgram>) -> Result<bool> {
        // Until packets meet this program alone, no link is added.
        let _attaching = self.shared.attaching.lock().unwrap_or_else(PoisonError::into_inner);
        // Until the cache has this program as well, the gateway does not end.
        let attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_stopped() {
            return Ok(false);
        }
        let links = || attached.iter().flatten().map(|(link, _)| link);
        let before = Arc::clone(&self.cache().program);
        if let Err(error) = larger.replace(links()) {
            before.replace(links())?;
            wait_for_packets();
            self.cache().other = None;
            return Err(error.into());
        }
        let mut cache = self.cache();
        cache.other = Some(std::mem::replace(&mut cache.program, Arc::clone(larger)));
        // All of it is looked through.
        cache.marked = 0;
        cache.marking = None;
        let maps = self.pins.as_deref().map(attach::maps);
        if let Err(error) = larger.publish_table(maps.as_deref()) {
            tracing::warn!(%error, "the next start makes the fast path's caches anew");
        }
        drop(cache);
        drop(attached);
        wait_for_packets();
        self.cache().other = None;
        Ok(true)
    }
}

/// Waits until a program that was replaced has no packet any more.
fn wait_for_packets() {
    if wait_for_grace_period().is_err() {
        std::thread::sleep(GRACE_PERIOD);
    }
}

impl Cache {
    /// Copies the next entries to a larger table.
    fn copy_entries(&mut self, hand: &mut TableHand, larger: &GatewayProgram) {
        let mut entries = Vec::with_capacity(FOLLOWED);
        let table = self.program.neighbors();
        table.read_on(hand, FOLLOWED, |key, value| entries.push((key, value)));
        larger.neighbors().put(&entries);
    }

    /// Adds those of these neighbours to a larger table that it lacks.
    fn add_entries(&mut self, addresses: &[TenantAddress], larger: &GatewayProgram) {
        let mut found = vec![None; addresses.len()];
        self.neighbors.look_up(addresses, &mut found);
        let mut entries = Vec::with_capacity(addresses.len());
        for (address, neighbor) in addresses.iter().zip(found) {
            let key = key_of(*address);
            let is_new = !larger.neighbors().contains(&key);
            let value = neighbor
                .filter(|_| is_new)
                .and_then(|known| self.cached(address.vni, &known));
            if let Some(value) = value {
                self.known.insert(address.vni.number());
                entries.push((key, value));
            }
        }
        larger.neighbors().put(&entries);
    }
}

#[cfg(test)]
#[path = "growth_tests.rs"]
mod tests;
