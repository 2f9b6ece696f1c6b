//! Writers and watchers at several gateways while something happens, and what is checked of it afterwards.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::history::{Answer, History, Key, State};
use super::objects::connect;

/// Neighbours that all writers write, and half as many ports and a fourth as many groups.
const KEYS: u32 = 40;
/// Neighbours that are loaded in bulk: those that writers write are among them.
const BULK: u32 = 200;
/// Batches of a load.
const BATCHES: u32 = 4;
/// From here on there is what nobody else writes.
const MARKERS: u32 = 1000;
/// How long anything may take on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(60);
/// Before the next try where nothing can be had.
const PAUSE: Duration = Duration::from_millis(20);
/// Between two loads.
const BETWEEN: Duration = Duration::from_millis(200);

/// What is said in time. The client's library may wait for ever for the answer of a gateway that is killed just as it is asked, though
/// the connection is closed: one call of some ten thousand.
async fn in_time<T>(said: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(PATIENCE / 3, said).await.ok()
}

fn draw(random: &mut u64) -> u64 {
    *random = random
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *random >> 33
}

/// Mostly neighbours; every fourth statement is a delete.
fn what(random: &mut u64) -> (Key, bool) {
    let number = |random: &mut u64, most: u32| u32::try_from(draw(random) % u64::from(most)).unwrap();
    let key = match draw(random) % 8 {
        0 => Key::Group(number(random, KEYS / 4)),
        1 | 2 => Key::Port(number(random, KEYS / 2)),
        _ => Key::Neighbor(number(random, KEYS)),
    };
    (key, !draw(random).is_multiple_of(4))
}

/// When each write that was made was answered, by gateway.
type Times = Arc<Mutex<HashMap<&'static str, Vec<Instant>>>>;

/// See the module.
pub(crate) struct Trial {
    history: Arc<Mutex<History>>,
    stop: Arc<AtomicBool>,
    version: Arc<AtomicU64>,
    writers: Vec<tokio::task::JoinHandle<()>>,
    watchers: Vec<tokio::task::JoinHandle<()>>,
    made: Times,
    began: Instant,
    converged: Option<Duration>,
}

/// What a trial has shown, if nothing was wrong.
pub(crate) struct Shown {
    pub(crate) history: History,
    /// How long no write was made, at the gateway that was worst and the one that was best off.
    without: [Duration; 2],
    converged: Option<Duration>,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [most, least] = self.without.map(|time| time.as_secs_f64());
        write!(
            f,
            "no write for {most:.1} s at the worst gateway, {least:.1} s at the best"
        )?;
        if let Some(converged) = self.converged {
            write!(f, "; all the same after {:.1} s", converged.as_secs_f64())?;
        }
        let count = |what| {
            self.history
                .writes
                .iter()
                .filter(|(.., answer)| *answer == what)
                .count()
        };
        let (made, refused, unknown) = (count(Answer::Made), count(Answer::Refused), count(Answer::Unknown));
        write!(f, "; {made} writes made, {refused} refused, {unknown} unknown")?;
        match count(Answer::Loaded) {
            0 => Ok(()),
            loaded => write!(f, "; {loaded} loaded"),
        }
    }
}

impl Trial {
    pub(crate) fn new() -> Self {
        Self {
            history: Arc::default(),
            stop: Arc::default(),
            version: Arc::new(AtomicU64::new(1)),
            writers: Vec::new(),
            watchers: Vec::new(),
            made: Arc::default(),
            began: Instant::now(),
            converged: None,
        }
    }

    /// Writes an object once, by a gateway that takes it.
    pub(crate) async fn put(&self, (name, socket): &(&'static str, PathBuf), key: Key) {
        let state = State::there(self.version.fetch_add(1, Ordering::SeqCst));
        let mut clients = connect(socket).await.expect("it answers");
        let answer = clients.write(key, state).await.unwrap_or(Answer::Unknown);
        let now = self.version.load(Ordering::SeqCst);
        self.history
            .lock()
            .unwrap()
            .wrote(Some(*name), (key, state, answer), now);
        assert_eq!(answer, Answer::Made);
    }

    /// Waits until the watch of a gateway that was begun anew so often has told of something.
    pub(crate) async fn tells(&self, name: &'static str, incarnations: usize) {
        let begin = Instant::now();
        loop {
            let told = |history: &History| {
                let mut its = history.begun.iter().filter(|(_, (of, _))| *of == name);
                let told = its.by_ref().filter(|(watch, _)| history.watched.contains_key(*watch));
                told.count() > incarnations
            };
            if told(&self.history.lock().unwrap()) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{name} tells nothing");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Writes one after the other: some in the newest version there is, some in one that another writer has just taken. A gateway
    /// may go and come back.
    pub(crate) fn write(&mut self, name: &'static str, socket: PathBuf, seed: u64) {
        let (history, stop, versions, made) = (
            Arc::clone(&self.history),
            Arc::clone(&self.stop),
            Arc::clone(&self.version),
            Arc::clone(&self.made),
        );
        made.lock().unwrap().entry(name).or_default();
        self.writers.push(tokio::spawn(async move {
            let mut random = seed;
            let mut connected = None;
            while !stop.load(Ordering::Relaxed) {
                let Some(clients) = &mut connected else {
                    connected = connect(&socket).await;
                    tokio::time::sleep(PAUSE).await;
                    continue;
                };
                let (key, is_there) = what(&mut random);
                let version = versions.fetch_add(1, Ordering::SeqCst);
                // Taken before, and written late.
                if draw(&mut random).is_multiple_of(16) {
                    tokio::time::sleep(PAUSE).await;
                }
                let state = State { version, is_there };
                let answer = in_time(clients.write(key, state)).await.flatten();
                let known = answer.unwrap_or(Answer::Unknown);
                let now = versions.load(Ordering::SeqCst);
                history.lock().unwrap().wrote(Some(name), (key, state, known), now);
                match answer {
                    Some(Answer::Made | Answer::Older | Answer::Loaded) => {
                        made.lock().unwrap().entry(name).or_default().push(Instant::now());
                    }
                    Some(Answer::Refused) => tokio::time::sleep(PAUSE).await,
                    Some(Answer::Unknown) => {}
                    None => connected = None,
                }
            }
        }));
    }

    /// Loads neighbours in bulk, again and again.
    pub(crate) fn load(&mut self, socket: PathBuf) {
        let (history, stop, versions) = (
            Arc::clone(&self.history),
            Arc::clone(&self.stop),
            Arc::clone(&self.version),
        );
        self.writers.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                tokio::time::sleep(BETWEEN).await;
                let Some(mut clients) = connect(&socket).await else {
                    continue;
                };
                let batch = |number: u32| {
                    let of = BULK / BATCHES;
                    let keys = (number * of..(number + 1) * of).map(Key::Neighbor);
                    let versioned = |key| (key, versions.fetch_add(1, Ordering::SeqCst));
                    keys.map(versioned).collect::<Vec<_>>()
                };
                let batches: Vec<_> = (0..BATCHES).map(batch).collect();
                let done = in_time(clients.load(&batches)).await.unwrap_or(0);
                let now = versions.load(Ordering::SeqCst);
                let mut history = history.lock().unwrap();
                for (number, batch) in batches.into_iter().enumerate() {
                    let answer = if number < done { Answer::Loaded } else { Answer::Unknown };
                    for (key, version) in batch {
                        history.wrote(None, (key, State::there(version), answer), now);
                    }
                }
            }
        }));
    }

    /// Notes what a gateway's watch tells; of one that was started anew under another name, for it begins with what it knows.
    pub(crate) async fn watch(&mut self, name: &'static str, socket: PathBuf) {
        let (history, stop, versions) = (
            Arc::clone(&self.history),
            Arc::clone(&self.stop),
            Arc::clone(&self.version),
        );
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let mut begun = Some(begun);
        self.watchers.push(tokio::spawn(async move {
            for incarnation in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                if incarnation > 0 {
                    tokio::time::sleep(PAUSE).await;
                }
                let (watch, now) = (format!("{name} {incarnation}"), versions.load(Ordering::SeqCst));
                let Some(mut clients) = connect(&socket).await else {
                    continue;
                };
                history.lock().unwrap().begun.insert(watch.clone(), (name, now));
                let has_begun = || _ = begun.take().map(|begun| begun.send(()));
                let note = |told: Vec<_>| {
                    let now = versions.load(Ordering::SeqCst);
                    history.lock().unwrap().told(&watch, told, now);
                };
                clients.watch(has_begun, note).await;
            }
        }));
        has_begun.await.unwrap();
    }

    /// When what went wrong is over: waits until each gateway has taken a write, and all of them know of all of these.
    pub(crate) async fn converge(&mut self, gateways: &[(&'static str, PathBuf)]) {
        let begin = Instant::now();
        let mut markers = Vec::new();
        for (key, (name, socket)) in (MARKERS..).map(Key::Neighbor).zip(gateways) {
            let mut tries = 0;
            loop {
                let state = State::there(self.version.fetch_add(1, Ordering::SeqCst));
                let answer = match connect(socket).await {
                    Some(mut clients) => {
                        let answer = in_time(clients.write(key, state)).await.flatten();
                        let answer = answer.unwrap_or(Answer::Unknown);
                        let now = self.version.load(Ordering::SeqCst);
                        let mut history = self.history.lock().unwrap();
                        history.wrote(Some(name), (key, state, answer), now);
                        drop(history);
                        answer
                    }
                    None => Answer::Refused,
                };
                if answer == Answer::Made {
                    markers.push((key, state));
                    break;
                }
                tries += 1;
                assert!(
                    begin.elapsed() < PATIENCE,
                    "{name} takes no write: {answer:?}, try {tries}"
                );
                tokio::time::sleep(PAUSE).await;
            }
        }
        for (name, socket) in gateways {
            loop {
                let held = match connect(socket).await {
                    Some(mut clients) => clients.neighbors().await,
                    None => BTreeMap::new(),
                };
                if markers.iter().all(|(key, state)| held.get(key) == Some(state)) {
                    break;
                }
                assert!(begin.elapsed() < PATIENCE, "{name} does not know {markers:?}");
                tokio::time::sleep(PAUSE).await;
            }
        }
        self.converged = Some(begin.elapsed());
    }

    /// Returns how many writes were made.
    pub(crate) fn count_made(&self) -> usize {
        let history = self.history.lock().unwrap();
        let made = history.writes.iter().filter(|(.., answer)| *answer == Answer::Made);
        made.count()
    }

    /// Waits until so many writes were made.
    pub(crate) async fn wait_made(&self, least: usize) {
        let begin = Instant::now();
        loop {
            let made = self.count_made();
            if made >= least {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{made} writes were made, not {least}");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Has the writers end soon.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Has the writers end, waits until all gateways hold the same, and etcd itself where that is asked; and checks everything.
    pub(crate) async fn end(
        self,
        gateways: &[(&'static str, PathBuf)],
        etcd: Option<&(dyn Fn() -> BTreeMap<Key, State> + Sync)>,
        least: usize,
    ) -> Shown {
        let over = Instant::now();
        self.stop.store(true, Ordering::Relaxed);
        for writer in self.writers {
            writer.await.expect("no writer panics");
        }
        // What was written last is on its way to watchers.
        tokio::time::sleep(Duration::from_millis(300)).await;
        for watcher in self.watchers {
            watcher.abort();
            if let Err(error) = watcher.await
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
        let written: BTreeSet<Key> = (self.history.lock().unwrap().writes.iter())
            .map(|(key, ..)| *key)
            .collect();
        let begin = Instant::now();
        let held = loop {
            let mut held = HashMap::new();
            for (name, socket) in gateways {
                let mut clients = connect(socket).await.expect("it answers");
                held.insert(*name, clients.held(written.iter().copied()).await);
            }
            if let Some(etcd) = etcd {
                held.insert("etcd", etcd());
            }
            let mut values = held.values();
            let first = values.next();
            if values.all(|other| Some(other) == first) {
                break held;
            }
            assert!(begin.elapsed() < PATIENCE, "they hold other things: {held:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        let mut history = std::mem::take(&mut *self.history.lock().unwrap());
        history.held = held;
        let count = |what| history.writes.iter().filter(|(.., answer)| *answer == what).count();
        let made = count(Answer::Made);
        assert!(
            made >= least,
            "{made} writes were made, {} refused, {} are unknown",
            count(Answer::Refused),
            count(Answer::Unknown)
        );
        assert_eq!(history.violations(), [], "{made} writes made");
        let made = self.made.lock().unwrap();
        let without = made.values().map(|times| longest(self.began, times, over));
        let without: Vec<Duration> = without.collect();
        let (most, least) = (without.iter().max(), without.iter().min());
        Shown {
            history,
            without: [most, least].map(|time| time.copied().unwrap_or_default()),
            converged: self.converged,
        }
    }
}

/// The longest time between two of them, or the beginning or the end. Writers of the same gateway may be out of order.
fn longest(began: Instant, times: &[Instant], over: Instant) -> Duration {
    let mut times = times.to_vec();
    times.extend([began, over]);
    times.sort();
    let between = times.windows(2).map(|pair| pair[1] - pair[0]);
    between.max().unwrap_or_default()
}
