//! Writers and watchers at several gateways while something happens, and what is checked of it afterwards.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringside_gateway::proto;
use ringside_gateway::proto::neighbor_service_client::NeighborServiceClient;
use ringside_gateway::proto::{PutNeighborsRequest, WatchNeighborsRequest};
use tokio_stream::StreamExt as _;
use tonic::transport::{Channel, Endpoint};

use super::common::{list_all, neighbor};
use super::history::{Answer, History, Key};

/// Neighbours that all writers write.
const KEYS: u32 = 40;
/// How long anything may take on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(60);
/// Before the next try where nothing can be had.
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) fn number_of(neighbor: &proto::Neighbor) -> Key {
    let mac = &neighbor.mac;
    u32::from_be_bytes([0, mac[3], mac[4], mac[5]])
}

type Client = NeighborServiceClient<Channel>;

/// None if nobody is there just now.
async fn client(socket: &Path) -> Option<Client> {
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap();
    endpoint.connect().await.ok().map(NeighborServiceClient::new)
}

/// Puts one neighbour. None: the connection is gone, and it is not known what came of it.
async fn put(client: &mut Client, key: Key, version: u64) -> Option<Answer> {
    let request = PutNeighborsRequest {
        neighbors: vec![neighbor(key, version)],
    };
    match client.put_neighbors(request).await {
        Ok(answer) => match answer.into_inner().outcomes().next() {
            // A try whose answer was lost has made it.
            Some(proto::Outcome::Created | proto::Outcome::Replaced | proto::Outcome::Unchanged) => Some(Answer::Made),
            Some(proto::Outcome::Older) => Some(Answer::Older),
            other => panic!("{other:?}"),
        },
        Err(status) if status.message().contains("not known whether") => Some(Answer::Unknown),
        Err(status) if status.message().contains("nothing can be changed") => Some(Answer::Refused),
        Err(status) => {
            use tonic::Code::{Cancelled, Internal, Unavailable, Unknown};
            let is_connection = matches!(status.code(), Cancelled | Internal | Unavailable | Unknown);
            assert!(is_connection, "{status}");
            None
        }
    }
}

async fn held_at(socket: &Path) -> Option<BTreeMap<Key, u64>> {
    let all = list_all(&mut client(socket).await?, 1000).await;
    Some(
        all.iter()
            .map(|neighbor| (number_of(neighbor), neighbor.version))
            .collect(),
    )
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
        write!(f, "; {made} writes made, {refused} refused, {unknown} unknown")
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
                let Some(client) = &mut connected else {
                    connected = client(&socket).await;
                    tokio::time::sleep(PAUSE).await;
                    continue;
                };
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let key = u32::try_from((random >> 33) % u64::from(KEYS)).unwrap();
                let version = versions.fetch_add(1, Ordering::Relaxed);
                // Taken before, and written late.
                if random >> 60 == 0 {
                    tokio::time::sleep(PAUSE).await;
                }
                let answer = put(client, key, version).await;
                history
                    .lock()
                    .unwrap()
                    .writes
                    .push((key, version, answer.unwrap_or(Answer::Unknown)));
                match answer {
                    Some(Answer::Made | Answer::Older) => {
                        made.lock().unwrap().entry(name).or_default().push(Instant::now());
                    }
                    Some(Answer::Refused) => tokio::time::sleep(PAUSE).await,
                    Some(Answer::Unknown) => {}
                    None => connected = None,
                }
            }
        }));
    }

    /// Notes what a gateway's watch tells; of one that was started anew under another name, for it begins with what it knows.
    pub(crate) async fn watch(&mut self, name: &'static str, socket: PathBuf) {
        let (history, stop) = (Arc::clone(&self.history), Arc::clone(&self.stop));
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
                let Some(mut client) = client(&socket).await else {
                    continue;
                };
                let request = WatchNeighborsRequest::default();
                let Ok(stream) = client.watch_neighbors(request).await else {
                    continue;
                };
                let mut stream = stream.into_inner();
                begun.take().map(|begun| begun.send(()));
                while let Some(Ok(answer)) = stream.next().await {
                    let mut history = history.lock().unwrap();
                    let watched = history.watched.entry(format!("{name} {incarnation}")).or_default();
                    for event in answer.events {
                        if let Some(proto::neighbor_event::Event::Put(neighbor)) = event.event {
                            watched.push((number_of(&neighbor), neighbor.version));
                        }
                    }
                }
            }
        }));
        has_begun.await.unwrap();
    }

    /// When what went wrong is over: waits until each gateway has taken a write, and all of them know of all of these.
    pub(crate) async fn converge(&mut self, gateways: &[(&'static str, PathBuf)]) {
        let begin = Instant::now();
        let mut markers = Vec::new();
        for (key, (name, socket)) in (KEYS..).zip(gateways) {
            let mut tries = 0;
            loop {
                let version = self.version.fetch_add(1, Ordering::Relaxed);
                let answer = match client(socket).await {
                    Some(mut client) => {
                        let answer = put(&mut client, key, version).await.unwrap_or(Answer::Unknown);
                        self.history.lock().unwrap().writes.push((key, version, answer));
                        answer
                    }
                    None => Answer::Refused,
                };
                if answer == Answer::Made {
                    markers.push((key, version));
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
                let held = held_at(socket).await.unwrap_or_default();
                if markers.iter().all(|(key, version)| held.get(key) == Some(version)) {
                    break;
                }
                assert!(begin.elapsed() < PATIENCE, "{name} does not know {markers:?}");
                tokio::time::sleep(PAUSE).await;
            }
        }
        self.converged = Some(begin.elapsed());
    }

    /// Has the writers end, waits until all gateways hold the same, and checks everything.
    pub(crate) async fn end(self, gateways: &[(&'static str, PathBuf)], least: usize) -> Shown {
        let over = Instant::now();
        self.stop.store(true, Ordering::Relaxed);
        for writer in self.writers {
            writer.await.expect("no writer panics");
        }
        // What was written last is on its way to watchers.
        tokio::time::sleep(Duration::from_millis(300)).await;
        for watcher in self.watchers {
            watcher.abort();
            _ = watcher.await;
        }
        let begin = Instant::now();
        let held = loop {
            let mut held = HashMap::new();
            for (name, socket) in gateways {
                held.insert(*name, held_at(socket).await.unwrap());
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
