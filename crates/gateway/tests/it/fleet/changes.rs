//! Changes of what tenants' packets go by, while something happens: an address moves, a rule is withdrawn and another one added, a
//! neighbour and a port are deleted, step after step; and what packets show of it through each gateway.
//!
//! The next step begins when all gateways' packets have followed the one before: a gateway that is cut off goes by the last one
//! that it knew, and everybody sees which one that is.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::cluster::Cluster;
use super::followed::{Arrival, Change, During, GATEWAYS, OBJECTS, Record, What};
use super::history::Answer;
use super::movers::{EVERY, Heard, Movers, Sent, Told};
use super::objects::connect;
use super::traffic::Packets;

/// How long anything may take on a machine that has other things to do; something happens for a minute at the most.
const PATIENCE: Duration = Duration::from_secs(120);
/// For an answer of a gateway that may stand still, before another one is told.
const ANSWER: Duration = Duration::from_secs(3);
/// Before the next try where nothing can be had, and between two looks at what has come.
const PAUSE: Duration = Duration::from_millis(10);
/// Between two steps.
const BETWEEN: Duration = Duration::from_millis(100);
/// Of packets that do not arrive so many in a row are none that are late.
const ROW: usize = 3;
/// How long the last packets may be on their way.
const LATE: Duration = Duration::from_millis(500);
/// Of packets that are to arrive all the time so many may not, one after the other: a second.
const LOST: usize = 50;
const _: () = assert!(LOST as u128 * EVERY.as_millis() == 1000);
/// After that no packet goes by what was before a change: from its answer on, or from when the gateway reaches etcd again. A question is
/// given up after 1.5 s here (`request-ms`), a connection after 2 s (`connect-ms`), and members are asked one after the other: 2 s on a machine
/// that has nothing else to do, and on others what these make of it.
pub(crate) const BOUND: Duration = Duration::from_secs(10);

/// What comes.
#[derive(Debug, Default)]
struct Seen {
    arrived: Vec<Arrival>,
    foreign: Vec<String>,
    /// By gateway and stream: the last number, and where it arrived.
    last: [[Option<(usize, usize)>; What::ALL.len()]; GATEWAYS],
}

/// What the task that makes steps, and who looks at it, share.
#[derive(Debug)]
struct Common {
    began: Instant,
    sent: Arc<Sent>,
    seen: Mutex<Seen>,
    made: Mutex<[Vec<Change>; OBJECTS]>,
    /// The step that all have followed, and the last one that is to be made.
    followed: AtomicUsize,
    last: AtomicUsize,
    /// No step is begun before.
    resume: Mutex<Duration>,
    silent: Arc<AtomicBool>,
}

/// See the module.
pub(crate) struct Changes {
    common: Arc<Common>,
    threads: Vec<JoinHandle<()>>,
    steps: tokio::task::JoinHandle<()>,
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.common.sent.over.store(true, Ordering::Relaxed);
        self.common.silent.store(true, Ordering::Relaxed);
        self.steps.abort();
    }
}

impl Common {
    /// Whether packets through all gateways go by a step, as far as those show that were sent after it was answered.
    fn has_followed(&self, step: usize) -> bool {
        let made = self.made.lock().unwrap();
        let times = self.sent.times.lock().unwrap();
        let seen = self.seen.lock().unwrap();
        (0..GATEWAYS).all(|gateway| {
            let of = |what: What| seen.last[gateway][what as usize];
            What::ALL.iter().all(|what| {
                let answered = what.object().and_then(|object| made[object].get(step - 1)?.answered);
                let Some((_, answered)) = answered else {
                    return what.object().is_none();
                };
                let first = times.partition_point(|time| *time < answered);
                match (what.place(step), of(*what)) {
                    (Some(place), Some((number, at))) => number >= first && at == place,
                    (Some(_), None) => false,
                    // Others that were sent after the last one of these have arrived.
                    (None, last) => {
                        let from = last.map_or(first, |(number, _)| first.max(number + 1));
                        of(What::Always).is_some_and(|(number, _)| number >= from + ROW)
                    }
                }
            })
        })
    }

    /// Tells an object's step to one gateway after the other until one has made it.
    async fn make(&self, sockets: &[(&'static str, PathBuf)], object: usize, told: &Told, at: &mut usize) {
        let begun = self.began.elapsed();
        let change = Change { begun, answered: None };
        self.made.lock().unwrap()[object].push(change);
        loop {
            let tell = async {
                let mut clients = connect(&sockets[*at].1).await?;
                clients.tell(told.clone()).await
            };
            let answer = tokio::time::timeout(ANSWER, tell).await;
            if let Ok(Some(Answer::Made)) = answer {
                let answered = Some((*at, self.began.elapsed()));
                self.made.lock().unwrap()[object].last_mut().unwrap().answered = answered;
                return;
            }
            assert_ne!(answer, Ok(Some(Answer::Older)), "{told:?}: nobody else changes it");
            assert!(self.began.elapsed() < begun + PATIENCE, "nobody takes {told:?}");
            *at = (*at + 1) % sockets.len();
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl Changes {
    /// Begins with the first two steps.
    pub(crate) async fn start(cluster: &Cluster) -> Self {
        let common = Arc::new(Common {
            began: Instant::now(),
            sent: Arc::default(),
            seen: Mutex::default(),
            made: Mutex::default(),
            followed: AtomicUsize::new(0),
            last: AtomicUsize::new(2),
            resume: Mutex::default(),
            silent: Arc::default(),
        });
        let (movers, sockets) = (cluster.movers(), cluster.sockets());
        let mut at = 0;
        for (object, told) in movers.told(1).iter().enumerate() {
            common.make(&sockets, object, told, &mut at).await;
        }
        let seen = Arc::clone(&common);
        let threads = movers.listen(
            &common.silent,
            &(Arc::new(move |told: Heard| {
                let at = seen.began.elapsed();
                let mut seen = seen.seen.lock().unwrap();
                match told {
                    Ok((gateway, what, number, place)) => {
                        let last = &mut seen.last[gateway][what as usize];
                        *last = (*last).max(Some((number, place)));
                        seen.arrived.push(Arrival {
                            gateway,
                            what,
                            number,
                            place,
                            at,
                        });
                    }
                    Err(foreign) => seen.foreign.push(foreign),
                }
            }) as Arc<_>),
        );
        let mut threads = threads;
        threads.push(movers.send(common.began, Arc::clone(&common.sent)));
        let steps = tokio::spawn(steps(Arc::clone(&common), Arc::clone(movers), sockets));
        let mut changes = Self { common, threads, steps };
        changes.followed(2).await;
        changes
    }

    /// Has steps made one after the other, without an end; so much later, for what happens is to have begun by then.
    pub(crate) fn go_on(&self, later: Duration) {
        *self.common.resume.lock().unwrap() = self.now() + later;
        self.common.last.store(usize::MAX, Ordering::Relaxed);
    }

    /// Since it began.
    pub(crate) fn now(&self) -> Duration {
        self.common.began.elapsed()
    }

    /// Has steps made up to this one, and waits until all packets follow.
    pub(crate) async fn followed(&mut self, step: usize) {
        self.common.last.fetch_max(step, Ordering::Relaxed);
        while self.common.followed.load(Ordering::Relaxed) < step {
            if self.steps.is_finished() {
                (&mut self.steps).await.expect("it makes steps");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Whether packets of all these go by a step through all gateways, and were to go by a later one.
    pub(crate) fn goes_back_to(&self, step: usize, streams: &[What]) -> bool {
        let seen = self.common.seen.lock().unwrap();
        let is_new = |number: usize| number + LOST > seen.arrived.last().map_or(0, |last| last.number);
        let goes = |last: &[Option<(usize, usize)>; What::ALL.len()], what: &What| {
            last[*what as usize].is_some_and(|(number, at)| is_new(number) && Some(at) == what.place(step))
        };
        seen.last.iter().all(|last| streams.iter().all(|what| goes(last, what)))
    }

    /// Waits until two more steps, begun from now on, were followed; and ends it.
    pub(crate) async fn end(mut self, cluster: &Cluster) -> Record {
        let begun = self.common.made.lock().unwrap()[0].len();
        self.followed(begun + 2).await;
        self.stop(cluster).await
    }

    /// What there is by now, when what is under way has come.
    pub(crate) async fn stop(mut self, cluster: &Cluster) -> Record {
        self.steps.abort();
        _ = (&mut self.steps).await;
        self.common.sent.over.store(true, Ordering::Relaxed);
        self.threads.pop().expect("who sends").join().expect("no panic");
        tokio::time::sleep(LATE).await;
        self.common.silent.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("no panic");
        }
        let mut seen = std::mem::take(&mut *self.common.seen.lock().unwrap());
        let mut record = Record {
            made: std::mem::take(&mut *self.common.made.lock().unwrap()),
            sent: std::mem::take(&mut *self.common.sent.times.lock().unwrap()),
            arrived: std::mem::take(&mut seen.arrived),
            foreign: seen.foreign,
            ..Record::default()
        };
        for (all, gateway) in record.restarts.iter_mut().zip(&cluster.gateways) {
            let since = |time: Instant| time.saturating_duration_since(self.common.began);
            *all = gateway
                .restarts
                .iter()
                .map(|[ended, begun]| (since(*ended), since(*begun)))
                .collect();
        }
        record
    }
}

/// Makes steps as far as it may, each when all have followed the one before.
async fn steps(common: Arc<Common>, movers: Arc<Movers>, sockets: Vec<(&'static str, PathBuf)>) {
    for step in 1.. {
        if step > 1 {
            let waits = || common.began.elapsed() < *common.resume.lock().unwrap();
            while common.last.load(Ordering::Relaxed) < step || waits() {
                tokio::time::sleep(PAUSE).await;
            }
            // By one gateway after the other.
            let mut at = step % sockets.len();
            for (object, told) in movers.told(step).iter().enumerate() {
                common.make(&sockets, object, told, &mut at).await;
            }
        }
        let begin = Instant::now();
        while !common.has_followed(step) {
            assert!(
                begin.elapsed() < PATIENCE,
                "step {step} is not followed: {:?}",
                common.seen.lock().unwrap().last
            );
            tokio::time::sleep(PAUSE).await;
        }
        common.followed.store(step, Ordering::Relaxed);
        tokio::time::sleep(BETWEEN).await;
    }
}

/// What is looked at: what happened between these times, in which this may be lost.
pub(crate) fn during(from: Duration, to: Duration, packets: Packets, names: [&str; GATEWAYS]) -> During {
    let lost = names.map(|name| match packets {
        Packets::All => Some(LOST),
        Packets::Of(owner, _) if owner != name => Some(LOST),
        Packets::Of(..) | Packets::Any(_) => None,
    });
    During {
        from,
        to,
        bound: BOUND,
        lost,
    }
}
