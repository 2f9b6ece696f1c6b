//! Changes into etcd: what waits is merged key by key into what is there, in transactions that fail where something else is there.
//!
//! ```text
//!   what waits ──▶ groups, then ports, then neighbours ──▶ up to 128 keys each, several under way
//!                    read (any member) ──▶ merge ──▶ if unchanged since: put ──▶ until the tables have it ──▶ answer
//!                                            ▲            otherwise: what is there now
//!                                            └─────────────────┘
//! ```
//! A transaction whose answer is lost is made again, with the versions that it had: if it was made,
//! it changes nothing more.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::iter;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::client::{Committed, Etcd, Held, MOST_BYTES, MOST_OPERATIONS, Refused, Step};
use super::clock::Clock;
use super::door::Door;
use super::key::{ADDRESSES, Key};
use super::merge::{self, Merged, Write, key_of};
use super::space;
use super::status::Status;
use super::value;
use crate::model::{Answer, Done, Job, ModelOptions, Outcome, Readers, Repaired, Tables, WriteError, forget_every};
use crate::object::Change;

/// Changes that are taken together. More make the answer to the first one late and save nothing.
const AT_ONCE: usize = 65_536;
/// Transactions that are under way at a time.
const UNDER_WAY: usize = 16;
/// Objects that are forgotten at a time.
const FORGET_AT_ONCE: usize = 16_384;

#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) door: Door,
    pub(crate) status: Arc<Status>,
    /// The revisions that the tables have, and that the copy has.
    pub(crate) has: [watch::Receiver<u64>; 2],
    pub(crate) tables: mpsc::Sender<Done>,
    /// What the tables know, by which it is guessed what is in etcd.
    pub(crate) known: Arc<Tables>,
    pub(crate) readers: Arc<Readers>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) options: ModelOptions,
    pub(crate) commit: prometheus_client::metrics::histogram::Histogram,
}

/// What is said about a key: which change of which request.
type Said = (Key, Vec<(usize, usize)>);

/// A part of what waits, that becomes a transaction.
#[derive(Debug, Clone)]
struct Part {
    requests: Arc<Vec<Vec<Change>>>,
    said: Vec<Said>,
    known: Arc<Tables>,
    tables: mpsc::Sender<Done>,
    clock: Arc<Clock>,
    deadline: Instant,
    /// Statements of transactions that were made, or may have been, with the versions that were
    /// open. Another try must not decide them again: others may have changed the objects since.
    filled: Filled,
}

type Filled = HashMap<(usize, usize), Change>;

/// Why statements cannot be merged into what a key holds.
enum Unreadable {
    /// The key at this place is damaged.
    Damaged(usize),
    /// A newer program has written it; what to do.
    Newer(String),
}

/// What came of it.
#[derive(Debug)]
struct Made {
    outcomes: Vec<((usize, usize), Outcome)>,
    /// With which the tables have all of it.
    revision: u64,
    /// Keys that were written.
    written: usize,
}

impl Writer {
    /// Until nobody can ask any more.
    pub(crate) async fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        let mut forgotten = Instant::now();
        while let Some(first) = queue.recv().await {
            let (mut requests, mut answers, mut ticks) = (Vec::new(), Vec::new(), Vec::new());
            let (mut repairs, mut size) = (Vec::new(), 0);
            let waiting = iter::from_fn(|| queue.try_recv().ok());
            for job in iter::once(first).chain(waiting) {
                match job {
                    Job::Write { changes, answer } => {
                        size += changes.len();
                        requests.push(changes);
                        answers.push(answer);
                    }
                    Job::Tick(answer) => ticks.push(answer),
                    Job::Repaired(answer) => repairs.push(answer),
                    Job::Options(options) => self.options = options,
                }
                if size >= AT_ONCE {
                    break;
                }
            }
            if !requests.is_empty() {
                self.write(requests, answers).await;
            }
            for answer in repairs {
                // Who asked and went away does not need to know.
                _ = answer.send(self.repair().await);
            }
            if !ticks.is_empty() {
                if self.status.lost() > 0 && self.status.refusal().is_none() {
                    self.restore().await;
                }
                // If the tables are gone nobody is answered, and the daemon ends.
                _ = self.tables.send(Done::Tick(ticks)).await;
                if forgotten.elapsed() >= forget_every(self.options.tombstones) && self.status.refusal().is_none() {
                    forgotten = Instant::now();
                    tokio::spawn(forget(
                        self.door.clone(),
                        Arc::clone(&self.readers),
                        Arc::clone(&self.clock),
                        self.options.tombstones,
                    ));
                }
            }
        }
    }

    /// Writes keys anew that cannot be read, with what the tables know of their objects.
    async fn repair(&mut self) -> Result<Repaired, WriteError> {
        if let Some(reason) = self.status.refusal() {
            return Err(WriteError::ReadOnly(reason));
        }
        let keys = self.status.damaged_keys();
        let patience = 2 * self.door.options().request;
        let said: Vec<Said> = keys.iter().map(|key| (*key, Vec::new())).collect();
        let made = self.write_kind(&Arc::default(), said, Instant::now() + patience).await;
        let made: Result<Vec<Made>, _> = made.into_iter().map(|(_, made)| made).collect();
        let made = made?;
        let revision = made.iter().map(|made| made.revision).max().unwrap_or(0);
        let has_it = self.has[0].wait_for(|reached| *reached >= revision);
        // Health shows what is left.
        _ = tokio::time::timeout(patience, has_it).await;
        let name = |key: &Key| format!("the key {key} could not be read: {}", key.objects());
        let missing = keys.iter().map(name).collect();
        Ok(Repaired {
            missing,
            opened: 0,
            keys_written: made.iter().map(|made| made.written).sum(),
        })
    }

    /// Puts ports back whose keys somebody has removed past all gateways: a gateway that has never
    /// known them takes their addresses for open.
    async fn restore(&self) {
        let (answer, changes) = oneshot::channel();
        // If the tables are gone the daemon ends.
        _ = self.tables.send(Done::Restoration(answer)).await;
        let changes = changes.await.unwrap_or_default();
        if changes.is_empty() {
            return;
        }
        let (answer, outcomes) = oneshot::channel();
        self.write(vec![changes], vec![answer]).await;
        let status = Arc::clone(&self.status);
        tokio::spawn(async move {
            match outcomes.await {
                Ok(Ok(outcomes)) => {
                    let is_change = |outcome: &&Outcome| outcome.is_change();
                    let restored = outcomes.iter().filter(is_change).count() as u64;
                    status.restored.fetch_add(restored, Ordering::Relaxed);
                    tracing::warn!(restored, "ports that were missing in etcd are put back");
                }
                Ok(Err(error)) => tracing::debug!(%error, "missing ports are not put back yet"),
                Err(_) => {}
            }
        });
    }

    async fn write(&self, requests: Vec<Vec<Change>>, answers: Vec<Answer>) {
        if let Some(reason) = self.status.refusal() {
            let error = WriteError::ReadOnly(reason);
            // Who asked and went away does not need to know.
            answers
                .into_iter()
                .for_each(|answer| _ = answer.send(Err(error.clone())));
            return;
        }
        let began = Instant::now();
        let patience = 2 * self.door.options().request;
        let mut outcomes: Vec<Vec<Outcome>> = requests
            .iter()
            .map(|changes| vec![Outcome::Unchanged; changes.len()])
            .collect();
        let mut revisions = vec![0; requests.len()];
        let mut errors: Vec<Option<WriteError>> = vec![None; requests.len()];
        let mut is_begun = vec![false; requests.len()];
        let mut said = BTreeMap::<Key, Vec<(usize, usize)>>::new();
        for (request, changes) in requests.iter().enumerate() {
            for (at, change) in changes.iter().enumerate() {
                said.entry(key_of(change)).or_default().push((request, at));
            }
        }
        let requests = Arc::new(requests);
        let mut said = said.into_iter().peekable();
        while let Some((first, _)) = said.peek() {
            let kind = std::mem::discriminant(first);
            let of_kind: Vec<Said> =
                iter::from_fn(|| said.next_if(|(key, _)| std::mem::discriminant(key) == kind)).collect();
            let mut failed = false;
            for (part, made) in self.write_kind(&requests, of_kind, began + patience).await {
                match made {
                    Ok(made) => {
                        for ((request, at), outcome) in made.outcomes {
                            outcomes[request][at] = outcome;
                            is_begun[request] |= outcome.is_change();
                            revisions[request] = made.revision.max(revisions[request]);
                        }
                    }
                    Err(error) => {
                        failed = true;
                        let requests = part.iter().flat_map(|(_, said)| said);
                        requests.for_each(|(request, _)| errors[*request] = Some(error.clone()));
                    }
                }
            }
            // What is bound to neighbours comes before them, or they do not come.
            if failed {
                let why: Arc<str> = "what it takes could not be written before".into();
                for (request, _) in said.by_ref().flat_map(|(_, said)| said) {
                    errors[request].get_or_insert_with(|| WriteError::Unknown(Arc::clone(&why)));
                }
            }
        }
        // A part was refused, and another one made.
        for (error, _) in errors.iter_mut().zip(is_begun).filter(|(_, is_begun)| *is_begun) {
            if let Some(WriteError::ReadOnly(why)) = error {
                *error = Some(WriteError::Unknown(Arc::clone(why)));
            }
        }
        self.commit.observe(began.elapsed().as_secs_f64());
        let ([mut reached, mut copied], status) = (self.has.clone(), Arc::clone(&self.status));
        tokio::spawn(async move {
            let all = answers.into_iter().zip(outcomes).zip(revisions).zip(errors);
            for (((answer, outcomes), revision), error) in all {
                let result = match error {
                    Some(error) => Err(error),
                    None => {
                        let has_it = async { reached.wait_for(|reached| *reached >= revision).await.map(drop) };
                        match tokio::time::timeout(patience, has_it).await {
                            Ok(Ok(())) => {
                                // Lists are to show it, too; but nobody waits for a disk that hangs.
                                let has_it = copied.wait_for(|copied| *copied >= revision);
                                _ = tokio::time::timeout(status.backlog.patience(), has_it).await;
                                Ok(outcomes)
                            }
                            Ok(Err(_)) => Err(WriteError::Unknown("etcd has it, and this gateway ends".into())),
                            Err(_) => Err(WriteError::Unknown(
                                "etcd has it, and has not told this gateway of it yet".into(),
                            )),
                        }
                    }
                };
                // Who asked and went away does not need to know.
                _ = answer.send(result);
            }
        });
    }

    /// All of a kind, in several transactions.
    async fn write_kind(
        &self,
        requests: &Arc<Vec<Vec<Change>>>,
        said: Vec<Said>,
        deadline: Instant,
    ) -> Vec<(Vec<Said>, Result<Made, WriteError>)> {
        let mut parts = said.chunks(MOST_OPERATIONS).map(|said| Part {
            requests: Arc::clone(requests),
            said: said.to_vec(),
            known: Arc::clone(&self.known),
            tables: self.tables.clone(),
            clock: Arc::clone(&self.clock),
            deadline,
            filled: Filled::new(),
        });
        let (mut under_way, mut done) = (JoinSet::new(), Vec::new());
        loop {
            while under_way.len() < UNDER_WAY
                && let Some(part) = parts.next()
            {
                let (door, status) = (self.door.clone(), Arc::clone(&self.status));
                under_way.spawn(async move {
                    let made = part.clone().make(&door, &status).await;
                    (part.said, made)
                });
            }
            match under_way.join_next().await {
                Some(Ok(made)) => done.push(made),
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                None => return done,
            }
        }
    }
}

impl Part {
    async fn make(mut self, door: &Door, status: &Status) -> Result<Made, WriteError> {
        // Something of it may have been made.
        let mut perhaps = false;
        let mut tries = 0;
        let mut why = String::new();
        while Instant::now() < self.deadline {
            if tries > 0 {
                // Who meets the same others again and again waits a little longer each time, and not as long as they do.
                let most = 1_u64 << tries.min(7);
                tokio::time::sleep(Duration::from_millis(1 + super::random() % most)).await;
            }
            tries += 1;
            let etcd = match door.etcd().await {
                Ok(etcd) => etcd,
                Err(error) => {
                    why = error;
                    continue;
                }
            };
            let sent = std::time::Instant::now();
            match self.once(&etcd, status, &mut perhaps).await {
                Ok(made) => return Ok(made),
                Err(Refused::Final(error)) => {
                    why = error;
                    break;
                }
                Err(Refused::Full) => {
                    status.set_full(true);
                    why = space::FULL.to_owned();
                    break;
                }
                Err(Refused::Lost(error)) => {
                    why = error;
                    door.lost_from(etcd.turn(), sent).await;
                }
            }
        }
        Err(match perhaps {
            true => WriteError::Unknown(why.into()),
            false => WriteError::ReadOnly(why.into()),
        })
    }

    /// Until something fails but a comparison.
    async fn once(&mut self, etcd: &Etcd, status: &Status, perhaps: &mut bool) -> Result<Made, Refused> {
        let is_delete = |(request, at): &(usize, usize)| self.requests[*request][*at].is_delete();
        let deletes = self.said.iter().flat_map(|(_, said)| said).any(is_delete);
        let now = if deletes { self.clock.now(etcd).await? } else { 0 };
        let keys: Vec<Key> = self.said.iter().map(|(key, _)| *key).collect();
        let mut is_guess = self.are_new(&keys);
        let mut held = match is_guess {
            true => vec![Held::NONE; keys.len()],
            false => etcd.read(&keys).await?,
        };
        let mut made = Made {
            outcomes: Vec::new(),
            revision: 0,
            written: 0,
        };
        // As many keys at a time as their values allow.
        let (mut from, mut repaired) = (0, BTreeSet::new());
        while from < self.said.len() {
            let (steps, outcomes, filled) = match self.merge(from, &held, &repaired, now) {
                Ok(merged) => merged,
                Err(Unreadable::Newer(why)) => return Err(Refused::Final(why)),
                Err(Unreadable::Damaged(at)) => {
                    debug_assert!(!repaired.contains(&at), "what the tables know can be read");
                    held[at].value = self.known_value(self.said[at].0).await?;
                    repaired.insert(at);
                    continue;
                }
            };
            let writes = steps.iter().filter(|step| step.write.is_some()).count();
            let is_write = writes > 0;
            let committed = etcd.commit(&steps).await;
            // One that is refused, or met another's, was not made.
            if matches!(committed, Ok(Committed::Yes(_)) | Err(Refused::Lost(_))) {
                *perhaps |= is_write;
                self.filled.extend(filled);
            }
            match committed? {
                Committed::Yes(revision) => {
                    status.transactions.fetch_add(1, Ordering::Relaxed);
                    let known = steps.iter().map(|step| step.revision).max().unwrap_or(0);
                    made.revision = made.revision.max(if is_write { revision } else { known });
                    made.outcomes.extend(outcomes);
                    made.written += writes;
                    from += steps.len();
                }
                Committed::No(now) => {
                    let conflicts = u64::from(!std::mem::take(&mut is_guess));
                    status.conflicts.fetch_add(conflicts, Ordering::Relaxed);
                    if Instant::now() > self.deadline {
                        return Err(Refused::Lost("others change the same again and again".to_owned()));
                    }
                    repaired.retain(|at| *at >= from + steps.len());
                    held.splice(from..from + steps.len(), now);
                }
            }
        }
        Ok(made)
    }

    /// Whether the tables know nobody at any address of these keys. Then it is likely that they are not in etcd, either, as in a load of what is
    /// new, and they need not be read: if they are there after all, a transaction that takes them for new is not made, and says so.
    fn are_new(&self, keys: &[Key]) -> bool {
        let mut reader = self.known.neighbors.reader();
        let mut found = [None; ADDRESSES as usize];
        keys.iter().all(|key| {
            let Key::Neighbors(block) = key else { return false };
            reader.look_up(&block.addresses(), &mut found);
            found.iter().all(Option::is_none)
        })
    }

    /// What stands for the value of a damaged key: all that the tables know of its objects.
    async fn known_value(&self, key: Key) -> Result<Option<Vec<u8>>, Refused> {
        let (answer, known) = oneshot::channel();
        // If the tables are gone the daemon ends.
        _ = self.tables.send(Done::Known(key, answer)).await;
        let known = known.await;
        let known = known.map_err(|_| Refused::Lost("the gateway is being stopped".to_owned()))?;
        Ok(known.write())
    }

    /// Merges statements into keys from one on, up to as much as a request may hold. A key that is
    /// `repaired` is written in any case.
    #[allow(clippy::type_complexity, reason = "two lists and a map")]
    fn merge(
        &self,
        from: usize,
        held: &[Held],
        repaired: &BTreeSet<usize>,
        now: i64,
    ) -> Result<(Vec<Step>, Vec<((usize, usize), Outcome)>, Filled), Unreadable> {
        let (mut steps, mut all, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut all_filled = Filled::new();
        for (at, ((key, said), held)) in self.said.iter().zip(held).enumerate().skip(from) {
            let change = |place: &(usize, usize)| {
                let filled = self.filled.get(place);
                filled.unwrap_or_else(|| &self.requests[place.0][place.1])
            };
            let changes: Vec<&Change> = said.iter().map(change).collect();
            let value = held.value.as_deref();
            let merged = merge::merge(*key, value, &changes, now);
            let Merged {
                write,
                outcomes,
                filled,
            } = merged.map_err(|reason| match value {
                Some(value) if value::is_newer(*key, value) => Unreadable::Newer(format!(
                    "the key {key} in etcd cannot be read ({reason}): \
                     tell it a gateway of that version"
                )),
                _ => Unreadable::Damaged(at),
            })?;
            let write = match (write, value) {
                (Write::Keep, Some(value)) if repaired.contains(&at) => Write::Put(value.to_vec()),
                (write, _) => write,
            };
            let write = match write {
                Write::Keep => None,
                Write::Put(value) => {
                    bytes += value.len();
                    Some(Some(value))
                }
                Write::Delete => Some(None),
            };
            if bytes > MOST_BYTES && !steps.is_empty() {
                break;
            }
            steps.push(Step {
                key: *key,
                revision: held.revision,
                write,
            });
            all.extend(said.iter().copied().zip(outcomes));
            let filled = said.iter().copied().zip(filled);
            all_filled.extend(filled.filter_map(|(place, filled)| Some((place, filled?))));
        }
        Ok((steps, all, all_filled))
    }
}

/// Forgets what was deleted long ago. Other gateways do so too: who comes second finds nothing left.
async fn forget(door: Door, readers: Arc<Readers>, clock: Arc<Clock>, age: Duration) {
    // Where nothing was deleted no time is kept.
    if let Ok(None) = readers.ask(|reader| reader.newest_deletion()).await {
        return;
    }
    let agreed = async {
        let etcd = door.etcd().await?;
        clock.agree(&etcd).await.map_err(Refused::why)
    };
    let now = match agreed.await {
        Ok(now) => now,
        Err(why) => return tracing::debug!(why, "the fleet's time is not known"),
    };
    let before = now.saturating_sub(i64::try_from(age.as_secs()).unwrap_or(i64::MAX));
    let found = readers
        .ask(move |reader| reader.deleted_before(before, FORGET_AT_ONCE))
        .await;
    let mut keys: Vec<Key> = match found {
        Ok(found) => found.iter().map(key_of).collect(),
        Err(error) => return tracing::warn!(%error, "what was deleted long ago is not forgotten yet"),
    };
    keys.dedup();
    let forgotten = async {
        let etcd = door.etcd().await?;
        for keys in keys.chunks(MOST_OPERATIONS) {
            forget_some(&etcd, keys, before).await?;
        }
        Ok::<_, String>(())
    };
    if let Err(why) = forgotten.await {
        tracing::debug!(why, "what was deleted long ago is not forgotten yet");
    }
}

async fn forget_some(etcd: &Etcd, keys: &[Key], before: i64) -> Result<(), String> {
    let held = etcd.read(keys).await.map_err(Refused::why)?;
    let step = |(key, held): (&Key, &Held)| {
        let write = match merge::forget(*key, held.value.as_deref(), before).ok()? {
            Write::Keep => return None,
            Write::Put(value) => Some(value),
            Write::Delete => None,
        };
        Some(Step {
            key: *key,
            revision: held.revision,
            write: Some(write),
        })
    };
    let steps: Vec<Step> = keys.iter().zip(&held).filter_map(step).collect();
    if !steps.is_empty() {
        // If somebody was faster, another time.
        etcd.commit(&steps).await.map_err(Refused::why)?;
    }
    Ok(())
}
