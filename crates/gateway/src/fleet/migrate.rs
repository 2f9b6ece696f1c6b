//! The truth from a file to etcd, or back, while no gateway uses the file; compared at the end by a digest over all of it.
//!
//! What was deleted and is remembered goes along, with its time. Who was interrupted runs it again: what is there and the same stays. Until it
//! has come to its end, neither side is taken for the truth because of it: a file is a copy of etcd's state, whole or empty, and etcd has
//! the key `v1/migration`, for whose end gateways that start there wait.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use sha2::{Digest as _, Sha256};
use tokio::task::{JoinSet, LocalSet};

use super::client::{Committed, Etcd, Held, MOST_BYTES, MOST_OPERATIONS, Refused, Step, why};
use super::door::Door;
use super::item::Item;
use super::key::Key;
use super::name::FleetName;
use super::shards::Record;
use super::sync::{Failed, Listing, Mark, Pulse};
use super::value::{Entry, Packed, pack};
use crate::config::Config;
use crate::model::{Made, Working};
use crate::object::{Change, Group, Neighbor, Port, Statement};
use crate::store::{Role, Store};

/// Transactions that are under way at a time.
const UNDER_WAY: usize = 8;
/// So often something is asked in vain, one member of etcd after the other, before it is given up.
const TRIES: u32 = 8;

/// Where the truth comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum To {
    /// To the etcd of `[store.etcd]`
    Etcd,
    /// To the file `store.path`
    Sqlite,
}

/// What was brought there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    to: To,
    objects: usize,
    deleted: usize,
    keys: usize,
    digest: String,
    revision: u64,
}

impl fmt::Display for Migrated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            objects,
            deleted,
            keys,
            digest,
            revision,
            ..
        } = self;
        writeln!(
            f,
            "{objects} objects, and {deleted} that were deleted: {keys} keys, etcd's revision {revision}"
        )?;
        writeln!(f, "the same on both sides: sha256 {digest}")?;
        f.write_str(match self.to {
            To::Etcd => "say store.kind = \"etcd\" now; the file is a copy from here on",
            To::Sqlite => {
                "say store.kind = \"sqlite\" now; etcd keeps what it has, and no gateway should go on with that"
            }
        })
    }
}

/// All of it: what each key holds.
#[derive(Debug, Default, PartialEq, Eq)]
struct State(BTreeMap<Key, Vec<u8>>);

impl State {
    fn add<O: Packed>(&mut self, entries: BTreeMap<Key, Vec<Entry<O>>>) {
        let values = entries.into_iter().filter_map(|(key, mut entries)| {
            entries.sort_by_key(|entry| entry.statement.key());
            Some((key, pack(key, &entries)?))
        });
        self.0.extend(values);
    }

    fn digest(&self) -> String {
        let mut digest = Sha256::new();
        for (key, value) in &self.0 {
            digest.update(key.to_string());
            digest.update((value.len() as u64).to_le_bytes());
            digest.update(value);
        }
        digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// As statements, with the times of those that delete.
    fn statements(&self) -> Result<Vec<(Change, i64)>> {
        fn of<O: Packed>(entries: Vec<Entry<O>>) -> impl Iterator<Item = (Change, i64)> {
            entries
                .into_iter()
                .map(|entry| (O::into_change(entry.statement), entry.deleted))
        }
        let mut all = Vec::new();
        for (key, value) in &self.0 {
            let item = Item::read(*key, Some(value));
            match item.map_err(|reason| anyhow!("etcd's key {key} cannot be read: {reason}"))? {
                Item::Group(_, entry) => all.extend(of(entry.into_iter().collect())),
                Item::Ports(_, entries) => all.extend(of(entries)),
                Item::Neighbors(_, entries) => all.extend(of(entries)),
                Item::DamagedPorts(_) => {}
            }
        }
        Ok(all)
    }
}

/// Brings the truth where it is to be. The configuration is read by [`Config::read_to_migrate`]. `beside_gateways`: also while gateways live
/// in etcd's fleet.
///
/// # Errors
/// What is in the way; what was there before is there still.
pub fn migrate(config: &Config, to: To, beside_gateways: bool) -> Result<Migrated> {
    let options = config.etcd.as_ref().context("store.etcd is missing")?;
    let mut store = Store::open_any(&config.store, Role::Either, &Working::default())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let all = async {
        let door = Door::new(options.clone());
        let pulse = ask(&door, async |etcd| etcd.pulse().await).await?;
        let checked = pulse.fleet.as_ref().map_or(Ok(()), FleetName::check);
        checked.map_err(|why| anyhow!("etcd: {why}. Nothing was changed"))?;
        if !beside_gateways {
            nobody_lives(&door).await?;
        }
        match to {
            To::Etcd => to_etcd(&mut store, &door).await,
            To::Sqlite => to_sqlite(&mut store, &door, pulse).await,
        }
    };
    runtime.context("starting")?.block_on(LocalSet::new().run_until(all))
}

/// Tries in vain, one after the other.
struct Tries<'a> {
    door: &'a Door,
    vain: u32,
}

impl<'a> Tries<'a> {
    const fn of(door: &'a Door) -> Self {
        Self { door, vain: 0 }
    }

    /// How long to wait before the next try. An error after the last one.
    fn pause(&mut self, why: String) -> Result<Duration> {
        self.vain += 1;
        let options = self.door.options();
        ensure!(
            self.vain < TRIES + u32::try_from(options.endpoints.len()).unwrap_or(TRIES),
            "etcd: {why}"
        );
        Ok(options.timing.retry * self.vain)
    }
}

/// What a member of etcd answers: where one does not the next one is asked, as gateways do. It may be asked twice.
async fn ask<T>(door: &Door, question: impl AsyncFn(&Etcd) -> Result<T, String>) -> Result<T> {
    let mut tries = Tries::of(door);
    loop {
        let why = match door.etcd().await {
            Ok(etcd) => match question(&etcd).await {
                Ok(answer) => return Ok(answer),
                Err(why) => {
                    door.turn_from(etcd.turn()).await;
                    why
                }
            },
            Err(why) => why,
        };
        tokio::time::sleep(tries.pause(why)?).await;
    }
}

async fn to_etcd(store: &mut Store, door: &Door) -> Result<Migrated> {
    ensure!(
        store.mark()?.is_none(),
        "the store is a copy of a fleet's state already: there is nothing to bring there"
    );
    let state = read_store(store)?;
    let missing = store.missing()?;
    ensure!(
        missing.is_empty(),
        "the store has lost something: {}. Do that with this gateway by itself (store.kind = \"sqlite\") first. Nothing was changed",
        missing.join("; ")
    );
    let (there, revisions, _) = list(door).await?;
    // Those of an earlier try are the same.
    if let Some((key, _)) = there.0.iter().find(|(key, value)| state.0.get(key) != Some(value)) {
        bail!(
            "etcd holds other objects under this prefix, at {key}: give another store.etcd.prefix, or remove them. Nothing was changed"
        );
    }
    let name = FleetName::random();
    ask(door, async |etcd| etcd.begin_migration(&name).await).await?;
    let missing = state.0.iter().filter(|(key, _)| !revisions.contains_key(key));
    write(door, missing).await?;
    let (written, _, revision) = list(door).await?;
    ensure!(
        state.digest() == written.digest(),
        "etcd does not hold what the store holds: somebody else writes there too. The store is as it was"
    );
    let pulse = ask(door, async |etcd| etcd.pulse().await).await?;
    let fleet = pulse.fleet.context("etcd has lost whose state this is")?;
    // Until now it was to be run again; from here on gateways may begin with what etcd holds.
    ask(door, async |etcd| etcd.end_migration().await).await?;
    store.set_mark(Some(&Mark {
        cluster: pulse.cluster,
        fleet,
        revision: Some(revision),
        has_unread: false,
    }))?;
    summary(To::Etcd, &state, revision)
}

async fn to_sqlite(store: &mut Store, door: &Door, pulse: Pulse) -> Result<Migrated> {
    let fleet = pulse.fleet.context("etcd holds no fleet's state under this prefix")?;
    let is_half = ask(door, async |etcd| etcd.is_migrating().await).await?;
    ensure!(
        !is_half,
        "what etcd holds is a part of what was to be brought there: run migrate --to etcd to its end first"
    );
    if store.mark()?.is_none() {
        let own = read_store(store)?;
        ensure!(
            own.0.is_empty(),
            "the store holds objects of its own: give another store.path. Nothing was changed"
        );
    }
    let (state, _, revision) = list(door).await?;
    let made: Vec<Made> = (state.statements()?.into_iter())
        .map(|(change, deleted)| Made::Said(change, deleted))
        .collect();
    // From here on it is a copy, whole, until it is the truth.
    let mark = Mark {
        cluster: pulse.cluster,
        fleet,
        revision: Some(revision),
        has_unread: false,
    };
    store.replace_all(&made, &mark)?;
    let written = read_store(store)?;
    ensure!(
        state.digest() == written.digest(),
        "the store does not hold what etcd holds; it is a copy of etcd's state still"
    );
    let (now, ..) = list(door).await?;
    ensure!(
        state.digest() == now.digest(),
        "somebody has changed what etcd holds meanwhile: stop all gateways that have it, and run this again. The store is a copy of etcd's \
         state still"
    );
    store.set_mark(None)?;
    store.rest()?;
    summary(To::Sqlite, &state, revision)
}

/// Gateways that take part in etcd's fleet would go on with it, and write there.
async fn nobody_lives(door: &Door) -> Result<()> {
    let listed = ask(door, async |etcd| etcd.list_members().await).await?;
    let record = |value: Option<Vec<u8>>| Record::decode(&value?).ok();
    let mut names: Vec<String> = (listed.members.into_iter())
        .map(|entry| record(entry.value).map_or_else(|| format!("{:016x}", entry.id.0), |record| record.name))
        .collect();
    names.sort();
    ensure!(
        names.is_empty(),
        "gateways live in etcd's fleet, and may change what it holds: {}. Stop them first (or wait for the leases of those that were killed), or \
         say --beside-gateways. Nothing was changed",
        names.join(", ")
    );
    Ok(())
}

fn summary(to: To, state: &State, revision: u64) -> Result<Migrated> {
    let statements = state.statements()?;
    let is_deleted = |change: &Change| match change {
        Change::Neighbor(statement) => matches!(statement, Statement::Delete(..)),
        Change::Port(statement) => matches!(statement, Statement::Delete(..)),
        Change::Group(statement) => matches!(**statement, Statement::Delete(..)),
    };
    let deleted = statements.iter().filter(|(change, _)| is_deleted(change)).count();
    Ok(Migrated {
        to,
        objects: statements.len() - deleted,
        deleted,
        keys: state.0.len(),
        digest: state.digest(),
        revision,
    })
}

fn read_store(store: &mut Store) -> Result<State> {
    fn add<O: Packed>(entries: &mut BTreeMap<Key, Vec<Entry<O>>>, change: &Change, when: i64) {
        if let Some(statement) = O::of(change) {
            let (key, _) = O::place(statement.key());
            entries.entry(key).or_default().push(Entry {
                statement: statement.clone(),
                deleted: when,
            });
        }
    }
    let (mut groups, mut ports, mut neighbors) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let loaded = store.load(|changes, deleted| {
        for (change, when) in changes.iter().zip(deleted) {
            add::<Group>(&mut groups, change, *when);
            add::<Port>(&mut ports, change, *when);
            add::<Neighbor>(&mut neighbors, change, *when);
        }
    })?;
    ensure!(
        loaded.quarantined == 0,
        "{} rows of the store were damaged, and are in its table `quarantine`; put these objects anew",
        loaded.quarantined
    );
    let mut state = State::default();
    state.add(groups);
    state.add(ports);
    state.add(neighbors);
    Ok(state)
}

/// Everything, when each key was changed, and as of which revision: asked for as a gateway does that starts.
async fn list(door: &Door) -> Result<(State, HashMap<Key, u64>, u64)> {
    let (mut state, mut revisions) = (State::default(), HashMap::new());
    let (mut listing, mut tries, mut lists) = (Listing::new(0), Tries::of(door), Tries::of(door));
    let began = Instant::now();
    loop {
        let now = began.elapsed();
        let Some(pages) = listing.ask(now, 0) else {
            tokio::time::sleep(listing.due().unwrap_or(now).saturating_sub(now)).await;
            continue;
        };
        let page = match door.list(pages).await {
            Ok(page) => page,
            Err(Failed::Compacted) => {
                // Another one may have more time.
                let failed =
                    "what was listed was compacted before all of it was: etcd is to keep its history for longer";
                tokio::time::sleep(lists.pause(failed.to_owned())?).await;
                (state, revisions, listing) = (State::default(), HashMap::new(), Listing::new(0));
                continue;
            }
            Err(failed) => {
                let pause = tries.pause(format!("listing what it holds: {}", why(failed)))?;
                listing.retry(began.elapsed() + pause);
                continue;
            }
        };
        tries = Tries::of(door);
        let end = listing.take(began.elapsed(), &page);
        for pair in page.pairs {
            let name = String::from_utf8_lossy(&pair.key).into_owned();
            let key =
                Key::parse(&pair.key).with_context(|| format!("etcd holds {name}, which is no key of this schema"))?;
            revisions.insert(key, pair.revision);
            state.0.insert(key, pair.value.unwrap_or_default());
        }
        if let Some((revision, _)) = end {
            return Ok((state, revisions, revision));
        }
    }
}

/// Keys that nobody has written yet.
async fn write(door: &Door, values: impl Iterator<Item = (&Key, &Vec<u8>)>) -> Result<()> {
    let mut values = values.peekable();
    let mut under_way = JoinSet::new();
    loop {
        while under_way.len() < UNDER_WAY && values.peek().is_some() {
            let (mut steps, mut bytes) = (Vec::new(), 0);
            while let Some((key, value)) = values.next_if(|(_, value)| {
                steps.is_empty() || (steps.len() < MOST_OPERATIONS && bytes + value.len() <= MOST_BYTES)
            }) {
                bytes += value.len();
                steps.push(Step {
                    key: *key,
                    revision: 0,
                    write: Some(Some(value.clone())),
                });
            }
            under_way.spawn_local(commit(door.clone(), steps));
        }
        match under_way.join_next().await {
            None => return Ok(()),
            Some(Ok(done)) => done?,
            Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

/// Writes some of them, all or none. One whose answer was lost may have been made: then they are there.
async fn commit(door: Door, steps: Vec<Step>) -> Result<()> {
    let committed = ask(&door, async |etcd| match etcd.commit(&steps).await {
        Err(Refused::Lost(why)) => Err(why),
        answer => Ok(answer),
    });
    let is_there =
        |held: &[Held]| (held.iter().zip(&steps)).all(|(held, step)| Some(&held.value) == step.write.as_ref());
    match committed
        .await
        .context("writing into it; run this again, it goes on from there")?
    {
        Ok(Committed::Yes(_)) => Ok(()),
        Ok(Committed::No(held)) if is_there(&held) => Ok(()),
        Ok(Committed::No(_)) => bail!("somebody else writes into etcd under this prefix; run this when nobody does"),
        Err(refused) => bail!(
            "writing into etcd: {}; run this again, it goes on from there",
            refused.why()
        ),
    }
}
