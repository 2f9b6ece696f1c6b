//! Notes what gateways say of who owns what, while something happens.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringside_gateway::fleet::shards::record;
use ringside_gateway::proto::fleet_service_client::FleetServiceClient;
use ringside_gateway::proto::{GetFleetRequest, WatchShardsRequest, WatchShardsResponse};
use ringside_gateway_core::shard::{Member, SHARDS, Shard, preferred};
use tokio::task::JoinHandle;
use tokio_stream::StreamExt as _;
use tonic::transport::{Channel, Endpoint};

use super::ownership::{Owners, Ownership, Word};

/// How long anything may take on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks whether a gateway answers.
const LOOK: Duration = Duration::from_millis(50);

type Client = FleetServiceClient<Channel>;

async fn client(socket: &Path) -> Option<Client> {
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap();
    endpoint.connect().await.ok().map(FleetServiceClient::new)
}

/// See the module. It ends when it is dropped.
pub(crate) struct Recorder {
    ownership: Arc<Mutex<Ownership>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Recorder {
    pub(crate) fn start(gateways: &[(&'static str, PathBuf)]) -> Self {
        let (ownership, began) = (Arc::new(Mutex::new(Ownership::default())), Instant::now());
        let mut tasks = Vec::new();
        tasks.push(tokio::spawn(tick(Arc::clone(&ownership))));
        for (name, socket) in gateways {
            ownership.lock().unwrap().said.entry(name).or_default().id = record::id(name).0;
            tasks.push(tokio::spawn(watch(Arc::clone(&ownership), name, socket.clone(), began)));
            tasks.push(tokio::spawn(look(Arc::clone(&ownership), name, socket.clone(), began)));
        }
        Self { ownership, tasks }
    }

    /// Waits until all gateways know the same map, in which each shard has who is preferred for it. What moves later is looked at.
    pub(crate) async fn settled(&self) {
        let begin = Instant::now();
        loop {
            {
                let mut ownership = self.ownership.lock().unwrap();
                if let Some(generation) = settled(&ownership) {
                    if ownership.since == 0 {
                        ownership.since = generation;
                    }
                    return;
                }
                let last = ownership.said.iter().map(|(name, said)| (name, said.last().map(short)));
                assert!(
                    begin.elapsed() < PATIENCE,
                    "shards do not come to rest: {:?}",
                    last.collect::<Vec<_>>()
                );
            }
            tokio::time::sleep(LOOK / 2).await;
        }
    }

    /// All that was said, when all gateways know what etcd holds.
    pub(crate) async fn end(self, etcd: impl Fn() -> (u64, Owners)) -> Ownership {
        let begin = Instant::now();
        loop {
            self.settled().await;
            let map = etcd();
            let mut ownership = self.ownership.lock().unwrap();
            if known(&ownership) == Some((map.0, &map.1)) {
                ownership.etcd = Some(map);
                return std::mem::take(&mut *ownership);
            }
            assert!(begin.elapsed() < PATIENCE, "gateways do not know generation {}", map.0);
        }
    }
}

fn short(word: &Word) -> String {
    match word {
        Word::Gone => "gone".to_owned(),
        Word::Map {
            generation,
            is_current,
            owners,
        } => {
            let mut names: Vec<u64> = owners.to_vec();
            names.sort_unstable();
            let counts = names
                .chunk_by(|one, other| one == other)
                .map(|same| (same[0], same.len()));
            format!("{generation}, current: {is_current}, {:x?}", counts.collect::<Vec<_>>())
        }
    }
}

/// In which generation.
fn settled(ownership: &Ownership) -> Option<u64> {
    let member = |said: &super::ownership::Said| Member {
        id: ringside_gateway_core::shard::MemberId(said.id),
        weight: 100,
        is_synced: true,
        is_draining: false,
    };
    let members: Vec<Member> = ownership.said.values().map(member).collect();
    let is_preferred = |owners: &Owners| {
        let mut all = Shard::all().zip(owners.iter());
        all.all(|(shard, owner)| preferred(shard, &members).is_some_and(|member| member.id.0 == *owner))
    };
    let (generation, owners) = known(ownership)?;
    is_preferred(owners).then_some(generation)
}

/// The map that all know, with leases that live.
fn known(ownership: &Ownership) -> Option<(u64, &Owners)> {
    let mut known = None;
    for said in ownership.said.values() {
        match (said.last()?, &known) {
            (
                Word::Map {
                    generation,
                    is_current: true,
                    owners,
                },
                None,
            ) => known = Some((*generation, owners)),
            (
                Word::Map {
                    generation,
                    is_current: true,
                    owners,
                },
                Some(known),
            ) if *known == (*generation, owners) => {}
            _ => return None,
        }
    }
    known
}

/// Notes what a gateway's watch tells, again and again.
async fn watch(all: Arc<Mutex<Ownership>>, name: &'static str, socket: PathBuf, began: Instant) {
    loop {
        if let Some(mut client) = client(&socket).await
            && let Ok(stream) = client.watch_shards(WatchShardsRequest {}).await
        {
            let mut stream = stream.into_inner();
            let mut owners = vec![0; SHARDS as usize];
            while let Some(Ok(told)) = stream.next().await {
                let word = apply(&mut owners, &told);
                all.lock().unwrap().say(name, began.elapsed(), word);
            }
            all.lock().unwrap().say(name, began.elapsed(), Word::Gone);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Notes for how long this machine lets nobody run: whoever is to keep a lease meanwhile cannot.
async fn tick(all: Arc<Mutex<Ownership>>) {
    loop {
        let began = Instant::now();
        tokio::time::sleep(LOOK).await;
        let late = began.elapsed().saturating_sub(LOOK);
        let stalled = &mut all.lock().unwrap().stalled;
        *stalled = late.max(*stalled);
    }
}

fn apply(owners: &mut [u64], told: &WatchShardsResponse) -> Word {
    if told.whole {
        owners.fill(0);
    }
    for owner in &told.owners {
        owners[owner.shard as usize] = owner.gateway;
    }
    Word::Map {
        generation: told.generation,
        is_current: told.current,
        owners: (&*owners).into(),
    }
}

/// Notes when a gateway answers.
async fn look(all: Arc<Mutex<Ownership>>, name: &'static str, socket: PathBuf, began: Instant) {
    let mut connected = None;
    loop {
        if connected.is_none() {
            connected = client(&socket).await;
        }
        if let Some(client) = &mut connected {
            let asked = began.elapsed();
            match client.get_fleet(GetFleetRequest { leases: false }).await {
                Ok(_) => all.lock().unwrap().answers(name, asked, began.elapsed()),
                Err(_) => connected = None,
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}
