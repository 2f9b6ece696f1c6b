//! Takes part in a fleet: does what [`super::shards`] says, and tells what is known.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringside_gateway_core::Vni;
use ringside_gateway_core::shard::{MemberId, Shard};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::baggage::Baggage;
use super::door::Door;
use super::shards::{Action, Counts, Input, Map, Membership, Peer, Record, Shards, Timing};
use super::status::Status;
use super::sync::Barrier;
use crate::api::Tls;

/// Answers that wait.
const WAITING: usize = 64;
/// How long a member that ends may take to say so.
const FAREWELL: Duration = Duration::from_secs(1);
/// The longest sleep: tables and links are looked at so often.
const LONGEST_SLEEP: Duration = Duration::from_millis(250);

/// What a gateway is in its fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberOptions {
    /// What it is called.
    pub name: String,
    /// Its share, beside the others'.
    pub weight: u32,
    /// Where hosts send to: one of each family at the most.
    pub addresses: Vec<std::net::IpAddr>,
    /// Where others reach its API.
    pub api: Option<String>,
    /// How long etcd keeps it when it says nothing.
    pub lease: Duration,
    /// Without a link on any interface for so long its shards are given to others; None: it keeps them.
    pub without_link: Option<Duration>,
    /// Its shards are not given up when it is asked to end: it is back soon, and its fast path goes on meanwhile.
    pub stays: bool,
}

/// What is known of a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// This gateway.
    pub me: MemberId,
    /// What it says of itself.
    pub record: Record,
    /// Whether it takes part.
    pub membership: Membership,
    /// Who takes part, as far as is known.
    pub peers: Arc<BTreeMap<MemberId, Peer>>,
    /// Who owns what.
    pub map: Arc<Map>,
    /// Why etcd's map cannot be read.
    pub damage: Option<String>,
    /// Shards that have been without a gateway for longer than it takes to give them one.
    pub orphans: usize,
    /// It drains, and nothing is left to it.
    pub is_drained: bool,
    /// What was done so far.
    pub counts: Counts,
}

impl Known {
    /// Shards of a member.
    #[must_use]
    pub fn shards_of(&self, id: MemberId) -> usize {
        self.map.count(id)
    }

    /// Who owns a network, and what it says of itself if it lives.
    #[must_use]
    pub fn owner(&self, vni: Vni) -> Option<(MemberId, Option<&Peer>)> {
        let owner = self.map.owner(Shard::of(vni))?;
        Some((owner, self.peers.get(&owner)))
    }

    /// False if the map may be an old one.
    #[must_use]
    pub const fn is_followed(&self) -> bool {
        matches!(self.membership, Membership::Member)
    }

    /// What needs attention, for people.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        self.own_problem().into_iter().chain(self.orphans_problem()).collect()
    }

    fn orphans_problem(&self) -> Option<String> {
        // Others may know better.
        (self.orphans > 0 && self.is_followed()).then(|| {
            format!(
                "{} shards have no gateway that lives, and none takes them: hosts do not find the \
                 way to their networks; start a gateway \
                 of the fleet, or look what stands in the way of those that run (`ringside \
                 gateway fleet`)",
                self.orphans
            )
        })
    }

    fn own_problem(&self) -> Option<String> {
        let owned = self.shards_of(self.me);
        match &self.membership {
            Membership::Member if self.record.cut_off && owned == 0 => Some(
                "no interface of this gateway has a link: other gateways have its shards; it gets \
                 them back when a link has been there \
                 for a while"
                    .to_owned(),
            ),
            Membership::Member if self.record.cut_off => Some(format!(
                "no interface of this gateway has a link: of its shards {owned} are left to it, for want of another gateway that is synced; it gets \
                 them back when a link has been there for a while"
            )),
            Membership::Member | Membership::Joining(None) => (self.damage.as_ref())
                .map(|why| format!("etcd holds {why}: the last one that could be read holds, and is written anew"))
                .or_else(|| self.record.lacks_family(self.peers.values().map(|peer| &peer.record))),
            Membership::Joining(Some(why)) => Some(format!("the fleet could not be joined yet: {why}")),
            Membership::Lapsed(why) => Some(format!(
                "the lease of this gateway has run out ({why}): its {owned} shards may be others' by now; packets go on as before"
            )),
            Membership::Replaced(why) => Some(why.clone()),
        }
    }
}

/// A handle to a member. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Member {
    known: watch::Receiver<Known>,
    /// Until when etcd keeps the lease for sure.
    lease: watch::Receiver<Option<Instant>>,
    asked: mpsc::UnboundedSender<Asked>,
    door: Door,
    baggage: Baggage,
}

#[derive(Debug)]
enum Asked {
    Drain(bool),
    /// To end.
    End(tokio::sync::oneshot::Sender<()>),
}

impl Member {
    /// Takes part from now on, on a thread of its own: no answer of it shall wait for other work. `baggage` goes along with shards
    /// that it gives away; `has_link` says whether any packet can reach this gateway.
    ///
    /// # Errors
    /// If there is no thread or no runtime to be had.
    pub fn start(
        options: &MemberOptions,
        door: Door,
        status: Arc<Status>,
        baggage: Baggage,
        has_link: impl Fn() -> bool + Send + 'static,
    ) -> std::io::Result<Self> {
        let record = Record {
            name: options.name.clone(),
            run: super::random(),
            weight: options.weight,
            addresses: options.addresses.clone(),
            api: options.api.clone(),
            synced: false,
            draining: false,
            cut_off: false,
        };
        let timing = Timing {
            lease: options.lease,
            without_link: options.without_link,
            ..Timing::default()
        };
        door.set_patience(timing.patience());
        let shards = Shards::new(record, timing, super::random());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (known_to, known) = watch::channel(known(&shards, Duration::ZERO));
        let (lease_to, lease) = watch::channel(None);
        let (asked, asks) = mpsc::unbounded_channel();
        let (inputs, heard) = mpsc::channel(WAITING);
        let driver = Driver {
            door: door.clone(),
            shards,
            status,
            began: Instant::now(),
            barrier: Barrier::default(),
            tasks: JoinSet::new(),
            watch: None,
            watched: 0,
            inputs,
            granted: Duration::ZERO,
            lease: None,
            stays: options.stays,
            baggage: baggage.clone(),
            has_link: Box::new(has_link),
            known: known_to,
            lease_to,
        };
        let run = move || runtime.block_on(driver.run(asks, heard));
        std::thread::Builder::new().name("fleet".to_owned()).spawn(run)?;
        Ok(Self {
            known,
            lease,
            asked,
            door,
            baggage,
        })
    }

    /// Packets of others' networks that came here: what the fast path has counted is a second old.
    #[must_use]
    pub fn foreign_packets(&self) -> u64 {
        self.baggage.foreign_packets()
    }

    /// From now on others are asked with these.
    pub fn set_tls(&self, tls: Tls) {
        self.baggage.set_tls(tls);
    }

    /// What is known now.
    #[must_use]
    pub fn known(&self) -> Known {
        self.known.borrow().clone()
    }

    /// Whether its shards go to others, or have gone.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.known.borrow().record.draining
    }

    /// What is known now, and a word whenever that changes.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Known> {
        self.known.clone()
    }

    /// How long etcd keeps its lease for sure, unless it says something.
    #[must_use]
    pub fn lease_left(&self) -> Option<Duration> {
        self.lease
            .borrow()
            .map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// How long etcd says that leases live on; those that it says nothing of are left out.
    pub async fn leases_left(&self, leases: &[i64]) -> BTreeMap<i64, Duration> {
        let mut left = BTreeMap::new();
        let Ok(etcd) = self.door.etcd().await else { return left };
        let mut tasks: JoinSet<_> = JoinSet::new();
        for lease in leases.iter().copied() {
            let etcd = etcd.clone();
            tasks.spawn(async move { (lease, etcd.left(lease).await) });
        }
        while let Some(told) = tasks.join_next().await {
            if let Ok((lease, Ok(Some(time)))) = told {
                left.insert(lease, time);
            }
        }
        left
    }

    /// To be taken out of service, or back into it.
    pub fn drain(&self, drain: bool) {
        // It lives as long as anybody may ask.
        _ = self.asked.send(Asked::Drain(drain));
    }

    /// Gives up its lease, unless it is back soon.
    pub async fn end(&self) {
        let (done, ended) = tokio::sync::oneshot::channel();
        if self.asked.send(Asked::End(done)).is_ok() {
            _ = tokio::time::timeout(FAREWELL, ended).await;
        }
    }
}

fn known(shards: &Shards, now: Duration) -> Known {
    let view = shards.view();
    Known {
        me: shards.id(),
        record: shards.record().clone(),
        membership: shards.membership(now),
        peers: Arc::new(view.peers().map(|(id, peer)| (id, peer.clone())).collect()),
        map: Arc::new(view.map().clone()),
        damage: view.damage().map(str::to_owned),
        orphans: shards.orphans(now),
        is_drained: shards.is_drained(),
        counts: shards.counts(),
    }
}

struct Driver {
    door: Door,
    shards: Shards,
    status: Arc<Status>,
    began: Instant,
    barrier: Barrier,
    tasks: JoinSet<()>,
    watch: Option<AbortHandle>,
    /// Which watch: what is left of an earlier one is not heard.
    watched: u64,
    inputs: mpsc::Sender<(Option<u64>, Input)>,
    /// How long etcd made the lease.
    granted: Duration,
    lease: Option<i64>,
    stays: bool,
    baggage: Baggage,
    has_link: Box<dyn Fn() -> bool + Send>,
    known: watch::Sender<Known>,
    lease_to: watch::Sender<Option<Instant>>,
}

impl Driver {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Until nobody has a handle any more, or it is asked to end.
    async fn run(mut self, mut asks: mpsc::UnboundedReceiver<Asked>, mut heard: mpsc::Receiver<(Option<u64>, Input)>) {
        loop {
            self.look_at_tables();
            let (now, has_link) = (self.now(), (self.has_link)());
            self.shards.handle(now, Input::Link(has_link));
            while let Some(action) = self.shards.poll(self.now()) {
                self.act(action);
            }
            self.tell();
            let sleep = self.shards.wake().saturating_sub(self.now());
            let sleep = sleep.clamp(Duration::from_millis(1), LONGEST_SLEEP);
            let status = Arc::clone(&self.status);
            tokio::select! {
                Some((watch, input)) = heard.recv() => {
                    if watch.is_none_or(|watch| watch == self.watched) {
                        self.hear(input);
                    }
                }
                asked = asks.recv() => match asked {
                    None => return,
                    Some(Asked::Drain(drain)) => {
                        let now = self.now();
                        self.shards.handle(now, Input::Drain(drain));
                    }
                    Some(Asked::End(done)) => {
                        self.farewell().await;
                        _ = done.send(());
                        return;
                    }
                },
                Some(_) = self.tasks.join_next() => {}
                () = status.news.notified() => {}
                () = tokio::time::sleep(sleep) => {}
            }
        }
    }

    /// Whoever may have something has to know what the others know, as of when it began to follow them, or did so anew.
    fn look_at_tables(&mut self) {
        if let Some(synced) = self.status.look(&mut self.barrier) {
            let now = self.now();
            self.shards.handle(now, Input::Synced(synced));
        }
    }

    fn hear(&mut self, input: Input) {
        if let Input::Granted(Ok((id, time))) = &input {
            (self.lease, self.granted) = (Some(*id), *time);
        }
        let now = self.now();
        self.shards.handle(now, input);
    }

    /// Who wants to know is told, and the log.
    fn tell(&self) {
        let now = self.now();
        let until = self.shards.lease_left(now).map(|left| Instant::now() + left);
        self.lease_to.send_replace(until);
        let news = known(&self.shards, now);
        self.known.send_if_modified(|before| {
            if *before == news {
                return false;
            }
            log(before, &news);
            self.status.set_member(news.problems());
            // What is nobody's is no other's.
            self.baggage
                .own(|shard| news.map.owner(shard).is_none_or(|owner| owner == news.me));
            *before = news;
            true
        });
    }

    /// Does something in a task that says what came of it.
    fn ask<F: Future<Output = Input> + Send + 'static>(&mut self, ask: impl FnOnce(Door) -> F) {
        let (answer, inputs) = (ask(self.door.clone()), self.inputs.clone());
        self.tasks.spawn(async move {
            let input = answer.await;
            // If nobody hears it any more, nobody misses it.
            _ = inputs.send((None, input)).await;
        });
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Grant(time) => self.ask(|door| async move {
                Input::Granted(match door.etcd().await {
                    Ok(etcd) => etcd.grant(time).await,
                    Err(why) => Err(why),
                })
            }),
            Action::Keep(lease, within) => {
                let granted = self.granted;
                self.ask(move |door| async move {
                    let kept = door.keep(lease, within).await;
                    Input::Kept(kept.map(|lives| if lives { granted } else { Duration::ZERO }))
                });
            }
            Action::Register(registration) => self.ask(move |door| async move {
                Input::Registered(match door.etcd().await {
                    Ok(etcd) => etcd.register(&registration).await,
                    Err(why) => Err(why),
                })
            }),
            Action::List => self.ask(|door| async move {
                Input::Listed(match door.etcd().await {
                    Ok(etcd) => etcd.list_members().await,
                    Err(why) => Err(why),
                })
            }),
            Action::Watch(from) => {
                self.unwatch();
                let (door, inputs, watch) = (self.door.clone(), self.inputs.clone(), self.watched);
                self.watch = Some(self.tasks.spawn(async move {
                    let ended = follow(&door, from, watch, &inputs).await;
                    _ = inputs.send((Some(watch), Input::Ended(ended))).await;
                }));
            }
            Action::Unwatch => self.unwatch(),
            Action::HandOver { to, shards } => {
                let api = self.shards.view().peer(to).and_then(|peer| peer.record.api.clone());
                let baggage = self.baggage.clone();
                self.ask(move |_| async move { Input::HandedOver(to, baggage.give(api, &shards).await) });
            }
            Action::Propose(proposal) => self.ask(move |door| async move {
                Input::Proposed(match door.etcd().await {
                    Ok(etcd) => etcd.propose(&proposal).await,
                    Err(why) => Err(why),
                })
            }),
        }
    }

    fn unwatch(&mut self) {
        self.watched += 1;
        if let Some(watch) = self.watch.take() {
            watch.abort();
        }
    }

    /// Its shards are others' at once, and not when its lease has run out.
    async fn farewell(&mut self) {
        let Some(lease) = self.lease.filter(|_| !self.stays) else {
            return;
        };
        let revoked = async {
            let etcd = self.door.etcd().await?;
            etcd.revoke(lease).await
        };
        match tokio::time::timeout(FAREWELL, revoked).await {
            Ok(Ok(())) => tracing::info!("the lease in the fleet is given up"),
            Ok(Err(why)) => tracing::warn!(why, "the lease in the fleet could not be given up; it runs out"),
            Err(_) => tracing::warn!("the lease in the fleet could not be given up in time; it runs out"),
        }
    }
}

/// Tells what a watch tells, and why it has ended.
async fn follow(door: &Door, from: u64, watch: u64, inputs: &mpsc::Sender<(Option<u64>, Input)>) -> String {
    let etcd = match door.etcd().await {
        Ok(etcd) => etcd,
        Err(why) => return why,
    };
    // Dropped, the first one would end the watch.
    let (_requests, mut answers) = match etcd.watch_members(from).await {
        Ok(stream) => stream,
        Err(why) => return why,
    };
    loop {
        let changed = match answers.message().await {
            Ok(Some(answer)) => match etcd.heard_of_members(&answer) {
                Ok(changed) => changed,
                Err(why) => return why,
            },
            Ok(None) => return "etcd has ended the watch".to_owned(),
            Err(error) => return super::client::why(super::client::failed(&error)),
        };
        if !changed.is_empty() && inputs.send((Some(watch), Input::Changed(changed))).await.is_err() {
            return "nobody listens".to_owned();
        }
    }
}

fn log(before: &Known, now: &Known) {
    if before.membership != now.membership {
        match &now.membership {
            Membership::Member => tracing::info!(name = now.record.name, "a member of the fleet"),
            Membership::Joining(why) => tracing::debug!(why, "the fleet is being joined"),
            Membership::Lapsed(_) if matches!(before.membership, Membership::Lapsed(_)) => {}
            Membership::Lapsed(why) => {
                tracing::error!(
                    why,
                    "the lease has run out: others may have this gateway's shards; packets go on"
                );
            }
            Membership::Replaced(why) => tracing::error!("{why}"),
        }
    }
    match (before.record.cut_off, now.record.cut_off) {
        (false, true) => tracing::error!("no interface has a link: others are to have this gateway's shards"),
        (true, false) => tracing::info!("there is a link again: this gateway takes its shards back"),
        _ => {}
    }
    match (before.orphans, now.orphans) {
        (0, 1..) => tracing::error!(shards = now.orphans, "shards have no gateway that lives"),
        (1.., 0) => tracing::info!("all shards have a gateway again"),
        _ => {}
    }
    let (owned, had) = (now.shards_of(now.me), before.shards_of(before.me));
    if owned != had {
        tracing::info!(
            owned,
            had,
            generation = now.map.generation,
            "shards were given or taken"
        );
    }
    if now.is_drained && !before.is_drained {
        tracing::info!("drained: all shards are others'");
    }
}
