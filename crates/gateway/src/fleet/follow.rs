//! Does what [`super::sync`] says.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use etcd_client::WatchRequestSender;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::client::{Etcd, Heard, late, why};
use super::door::Door;
use super::key::{FLEET, MIGRATION};
use super::name::FleetName;
use super::status::Status;
use super::sync::{Action, Failed, Input, Mark, Pulse, State, Sync, Tell};
use super::unanswered::{LOOK, Unanswered};
use crate::model::Done;

/// Answer of a member to a question that was on its way to a leader before another was elected.
/// <https://github.com/etcd-io/etcd/blob/main/api/v3rpc/rpctypes/error.go>
const LEADER_CHANGED: &str = "leader changed";
/// Answers that wait.
const WAITING: usize = 16;

/// Something under way, given up when another takes its place.
#[derive(Debug, Default)]
struct Task(Option<JoinHandle<()>>);

impl Task {
    fn set(&mut self, task: Option<JoinHandle<()>>) {
        if let Some(before) = std::mem::replace(&mut self.0, task) {
            before.abort();
        }
    }
}

impl Task {
    fn is_under_way(&self) -> bool {
        self.0.as_ref().is_some_and(|task| !task.is_finished())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.set(None);
    }
}

/// Of which kind what has come is, and of which of that kind: what is left of one that was given up is not heard.
type Tagged = (usize, u64, Input);

const LIST: usize = 0;
const PULSE: usize = 1;
const WATCH: usize = 2;

#[derive(Debug)]
pub(crate) struct Follower {
    door: Door,
    sync: Sync,
    status: Arc<Status>,
    tables: mpsc::Sender<Done>,
    began: Instant,
    /// How long the tables were waited for: time in which etcd cannot have been late.
    waited: Duration,
    /// When etcd was asked last whether all is well; when it was asked what it has answered last; and what was made of that.
    asked: Instant,
    answered: Instant,
    proven: Option<Duration>,
    unanswered: Unanswered,
    tasks: [Task; 3],
    tags: [u64; 3],
    /// Turn of etcd's members in which each of them was asked.
    turns: [Arc<OnceLock<u64>>; 3],
    /// Whether a question to the only member was late, and none was answered since.
    is_late: bool,
    progress: Option<mpsc::Sender<()>>,
    inputs: mpsc::Sender<Tagged>,
    heard: mpsc::Receiver<Tagged>,
}

impl Follower {
    /// With a copy as of what `mark` says, which would be listed in so many pages.
    pub(crate) fn new(
        door: Door,
        (mark, pages): (Option<Mark>, u32),
        status: Arc<Status>,
        tables: mpsc::Sender<Done>,
    ) -> Self {
        let options = door.options();
        let sync = Sync::new(options.timing, super::random(), mark, Duration::ZERO)
            .with_prefix(&options.prefix)
            .with_pages(pages);
        let (inputs, heard) = mpsc::channel(WAITING);
        Self {
            sync,
            door,
            status,
            tables,
            began: Instant::now(),
            waited: Duration::ZERO,
            asked: Instant::now(),
            answered: Instant::now(),
            proven: None,
            unanswered: Unanswered::new(Instant::now()),
            tasks: Default::default(),
            tags: [0; 3],
            turns: Default::default(),
            is_late: false,
            progress: None,
            inputs,
            heard,
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed().saturating_sub(self.waited)
    }

    /// Until the tables are gone.
    pub(crate) async fn run(mut self) {
        let door = self.door.clone();
        loop {
            while let Some(action) = self.sync.poll(self.now()) {
                if self.act(action).await.is_err() {
                    return;
                }
            }
            self.tell_status();
            let sleep = self
                .sync
                .wake()
                .saturating_sub(self.now())
                .max(Duration::from_millis(1))
                .min(if self.sync.is_waiting() { LOOK } else { Duration::MAX });
            tokio::select! {
                biased;
                tagged = self.heard.recv() => self.hear(tagged),
                () = door.renewed() => {
                    let why = "another connection is to be used".to_owned();
                    self.tasks[WATCH].set(None);
                    self.sync.handle(self.now(), Input::Ended(Failed::Other(why)));
                }
                () = self.tables.closed() => return,
                () = tokio::time::sleep(sleep) => {}
            }
        }
    }

    fn hear(&mut self, tagged: Option<Tagged>) {
        if let Some((kind, tag, input)) = tagged
            && self.tags.get(kind) == Some(&tag)
        {
            if matches!(input, Input::Pulse(Ok(_))) {
                self.answered = self.asked;
                self.is_late = false;
            }
            self.sync.handle(self.now(), input);
        }
    }

    fn tell_status(&mut self) {
        let now = self.now();
        if self.proven != self.sync.proven() {
            self.proven = self.sync.proven();
            self.status.prove(self.sync.told(), self.answered);
        }
        let sync = &self.sync;
        self.status
            .complete
            .store(sync.complete().unwrap_or(0), std::sync::atomic::Ordering::Relaxed);
        let unanswered = self.unanswered.look(Instant::now(), self.sync.is_waiting());
        self.status.set_unanswered(unanswered);
        let unread = (sync.damaged(), sync.newer());
        let state = match sync.state(now) {
            State::CutOff(why) => State::CutOff(match self.door.options().invalid_certificate() {
                Some(invalid) => format!("{why}; {invalid}"),
                None => why,
            }),
            state => state,
        };
        self.status.set(state, sync.known(), sync.counts(), unread);
    }

    /// Begins something in the place of the last of its kind.
    fn start<F: Future<Output = ()> + Send + 'static>(&mut self, kind: usize, task: impl FnOnce(Line) -> F) {
        self.tags[kind] += 1;
        self.turns[kind] = Arc::default();
        let line = Line {
            kind,
            tag: self.tags[kind],
            turn: Arc::clone(&self.turns[kind]),
            inputs: self.inputs.clone(),
        };
        self.tasks[kind].set(Some(tokio::spawn(task(line))));
    }

    /// Returns the turn of etcd's members in which something was asked that is still under way.
    fn turn_under_way(&self, kind: usize) -> Option<u64> {
        let turn = self.turns[kind].get().copied();
        turn.filter(|_| self.tasks[kind].is_under_way())
    }

    /// An error if the tables are gone.
    async fn act(&mut self, action: Action) -> Result<(), ()> {
        let door = self.door.clone();
        match action {
            Action::List(pages) => self.start(LIST, |line| async move {
                line.say(Input::Listed(door.list(pages).await)).await;
            }),
            Action::Pulse => {
                self.asked = Instant::now();
                let is_new = self.sync.mark().is_none();
                // The request before is given up. A member that has no other beside it may only be
                // slow once; of one that is late again, the connection may be dead.
                let late = self.turn_under_way(PULSE);
                let is_late = std::mem::replace(&mut self.is_late, late.is_some());
                let late = late.filter(|_| is_late || door.options().endpoints.len() > 1);
                self.start(PULSE, |line| async move {
                    if let Some(turn) = late {
                        door.late_from(turn).await;
                    }
                    let answer = pulse(&door, &line.turn, is_new).await;
                    line.say(Input::Pulse(answer)).await;
                });
            }
            Action::Watch(from) => {
                let (progress, asked) = mpsc::channel(1);
                self.progress = Some(progress);
                // One that goes on and tells nothing: perhaps another member does.
                if let Some(turn) = self.turn_under_way(WATCH) {
                    door.turn_from(turn).await;
                }
                self.start(WATCH, |line| async move {
                    let ended = watch(&door, from, &line, asked).await;
                    line.say(Input::Ended(ended)).await;
                });
            }
            Action::Unwatch => {
                self.tags[WATCH] += 1;
                self.tasks[WATCH].set(None);
                self.progress = None;
            }
            // One question at a time is enough.
            Action::Progress => self.progress.iter().for_each(|progress| _ = progress.try_send(())),
            Action::Tell(tell) => {
                let mark = self.sync.mark().map(|mark| Mark {
                    revision: match tell {
                        Tell::Revision(revision) => Some(revision),
                        _ => None,
                    },
                    has_unread: !self.sync.damaged().is_empty() || self.sync.newer() > 0,
                    ..mark.clone()
                });
                let began = Instant::now();
                let told = self.tables.send(Done::Told { tell, mark }).await;
                self.waited += began.elapsed();
                return told.map_err(drop);
            }
        }
        Ok(())
    }
}

/// Where a task tells what has come.
struct Line {
    kind: usize,
    tag: u64,
    turn: Arc<OnceLock<u64>>,
    inputs: mpsc::Sender<Tagged>,
}

impl Line {
    async fn say(&self, input: Input) {
        // If nobody hears it any more, nobody misses it.
        _ = self.inputs.send((self.kind, self.tag, input)).await;
    }
}

/// Where there are several members, one that does not answer is given up before all of etcd counts as silent.
async fn pulse(door: &Door, turn: &OnceLock<u64>, is_new: bool) -> Result<Pulse, String> {
    let etcd = door.etcd_of(turn).await?;
    let options = door.options();
    let patience = match options.endpoints.len() {
        1 => options.request,
        _ => options.request.min(options.timing.silence / 2),
    };
    let pulse = tokio::time::timeout(patience, etcd.pulse()).await;
    match &pulse {
        Ok(Ok(_)) => door.good(etcd.turn()).await,
        // It is the first to know the new leader, and the next member may be the one that led.
        Ok(Err(why)) if why.contains(LEADER_CHANGED) => {}
        Ok(Err(_)) => door.turn_from(etcd.turn()).await,
        Err(_) => door.late_from(etcd.turn()).await,
    }
    let pulse = pulse.unwrap_or_else(|_| Err(late(patience)))?;
    if is_new && etcd.is_migrating().await? {
        return Err(format!(
            "what it holds is a part of what is being brought there: run `ringside gateway migrate --to etcd` to its end, which removes the key \
             {MIGRATION}"
        ));
    }
    if pulse.fleet.is_some() || !is_new {
        return Ok(pulse);
    }
    if !etcd.is_empty().await? {
        return Err(format!(
            "its key {FLEET}, which says whose state this is, is gone, and other keys are there: put \
             it back with the value that `ringside gateway health` shows at a gateway that runs; if \
             there is none, see docs/fleet.md"
        ));
    }
    // Nobody has used this prefix yet. Of several that say so at a time one is first.
    tracing::info!("there is no state in etcd yet; it is begun");
    etcd.begin(&FleetName::random()).await?;
    etcd.pulse().await
}

/// Tells what a watch tells, and why it has ended.
async fn watch(door: &Door, from: u64, line: &Line, progress: mpsc::Receiver<()>) -> Failed {
    let etcd = match door.etcd_of(&line.turn).await {
        Ok(etcd) => etcd,
        Err(why) => return Failed::Other(why),
    };
    let failed = watch_at(&etcd, from, line, progress).await;
    if let Failed::Other(_) = failed {
        door.turn_from(etcd.turn()).await;
    }
    failed
}

async fn watch_at(etcd: &Etcd, from: u64, line: &Line, mut progress: mpsc::Receiver<()>) -> Failed {
    let (mut requests, mut answers): (WatchRequestSender, _) = match etcd.watch(from).await {
        Ok(stream) => stream,
        Err(failed) => return failed,
    };
    loop {
        let answer = tokio::select! {
            answer = answers.message() => answer,
            Some(()) = progress.recv() => {
                match requests.request_progress().await {
                    Ok(()) => continue,
                    Err(error) => return Failed::Other(error.to_string()),
                }
            }
        };
        let input = match answer {
            Ok(Some(answer)) => match etcd.heard(&answer) {
                Heard::Began => Input::Watching,
                Heard::Progress(revision) => Input::Progress(revision),
                Heard::Events(pairs) => Input::Events(pairs),
                Heard::Ended(failed) => return failed,
            },
            Ok(None) => return Failed::Other("etcd has ended the watch".to_owned()),
            Err(error) => return Failed::Other(why(super::client::failed(&error))),
        };
        line.say(input).await;
    }
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
