//! What is asked of etcd, by the crate `etcd-client`.

use std::fmt;
use std::time::Duration;

use etcd_client::{
    Channel, Client, Compare, CompareOp, ConnectOptions, Error, GetOptions, KvClient, LeaseClient, MaintenanceClient,
    Txn, TxnOp, TxnOpResponse, WatchClient, WatchOptions, WatchRequestSender, WatchResponseStream,
};
use tonic::transport::channel::Change;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::clock::Written;
use super::key::{CLOCK, FLEET, KINDS, Key, MIGRATION, SCHEMA};
use super::name::FleetName;
use super::space::{self, Space};
use super::sync::{Failed, Page, Pages, Pair, Pulse, Timing};

use crate::certificate;

mod members;

/// The largest answer: a watch that catches up is told a thousand revisions at once.
const LONGEST: usize = 1 << 30;
/// What may be on its way of an answer, and of all answers of a connection. With HTTP/2's own 64 KiB a page of a list would wait a dozen times for
/// this side to say that more may come.
const WINDOW: u32 = 2 << 20;
const WINDOWS: u32 = 8 << 20;
/// What etcd takes in a transaction unless it is told otherwise (`--max-txn-ops`).
pub(crate) const MOST_OPERATIONS: usize = 128;
/// What a request may hold, below the 1.5 MiB that etcd takes unless it is told otherwise (`--max-request-bytes`).
pub(crate) const MOST_BYTES: usize = 1 << 20;

/// Of how many keys a transaction tells how they are, should it not be made. Those of more are read then: else all members would have that in
/// their logs for each of them, and mostly for nothing.
const TOLD: usize = 16;

/// Keys and certificates for etcd, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdTls {
    /// The authority of etcd's servers.
    pub ca: Vec<u8>,
    /// The gateway's certificate and its key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for EtcdTls {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdTls").finish_non_exhaustive()
    }
}

impl EtcdOptions {
    /// Returns why the gateway's certificate for etcd is not valid now, if that is so.
    pub(crate) fn invalid_certificate(&self) -> Option<String> {
        let (certificate, _) = self.tls.as_ref()?.identity.as_ref()?;
        let why = certificate::invalidity(certificate)?;
        Some(format!("store.etcd.certificate {why}"))
    }
}

/// A user of etcd, and the password.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for User {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Where a fleet's state is, and how it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdOptions {
    /// `http://HOST:PORT`, or `https://` with [`EtcdOptions::tls`].
    pub endpoints: Vec<String>,
    /// What all keys begin with; it ends with `/`.
    pub prefix: String,
    /// For `https://`.
    pub tls: Option<EtcdTls>,
    /// Who asks, where a certificate does not say it.
    pub user: Option<User>,
    /// How long a connection may take.
    pub connect: Duration,
    /// How long an answer may take.
    pub request: Duration,
    /// After how long with another member of etcd the first one is asked again, and up to a quarter more.
    pub balance: Duration,
    /// After how long without a proof that nothing of etcd is missing tenants' packets are dropped; None: they are sent on for ever.
    pub forward_stale: Option<Duration>,
    /// When what is done.
    pub timing: Timing,
}

/// Connections to etcd. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Etcd {
    kv: KvClient,
    watch: WatchClient,
    lease: LeaseClient,
    maintenance: MaintenanceClient,
    prefix: String,
    request: Duration,
    turn: u64,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// A key as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    /// When it was changed last; 0: it is not there.
    pub(crate) revision: u64,
    pub(crate) value: Option<Vec<u8>>,
}

impl Held {
    /// It is not there.
    pub(crate) const NONE: Self = Self {
        revision: 0,
        value: None,
    };
}

/// A key, how it has to be, and what becomes of it: None, nothing; Some(None), it goes.
pub(crate) struct Step {
    pub(crate) key: Key,
    pub(crate) revision: u64,
    pub(crate) write: Option<Option<Vec<u8>>>,
}

/// Why a transaction was not made, or is not known to have been.
#[derive(Debug)]
pub(crate) enum Refused {
    /// It was not, and will not be if it is tried again.
    Final(String),
    /// It was not, for etcd's database is full.
    Full,
    /// Nobody knows; it may be tried again.
    Lost(String),
}

impl Refused {
    fn new(error: &Error, lost: impl FnOnce() -> String) -> Self {
        use tonic::Code::{FailedPrecondition, InvalidArgument, PermissionDenied, ResourceExhausted, Unauthenticated};
        match error {
            Error::GRpcStatus(status) if space::is_full(status.message()) => Self::Full,
            Error::GRpcStatus(status)
                if matches!(
                    status.code(),
                    FailedPrecondition | InvalidArgument | PermissionDenied | ResourceExhausted | Unauthenticated
                ) =>
            {
                Self::Final(format!("etcd refuses it: {}", status.message()))
            }
            _ => Self::Lost(lost()),
        }
    }

    pub(crate) fn why(self) -> String {
        match self {
            Self::Final(why) | Self::Lost(why) => why,
            Self::Full => space::FULL.to_owned(),
        }
    }
}

/// What came of a transaction.
#[derive(Debug)]
pub(crate) enum Committed {
    /// It was made, at this revision.
    Yes(u64),
    /// Something was other than it had to be: how the keys are, in order.
    No(Vec<Held>),
}

fn number(number: i64) -> u64 {
    number.max(0).cast_unsigned()
}

fn revision_of(header: Option<&etcd_client::ResponseHeader>) -> u64 {
    header.map_or(0, |header| number(header.revision()))
}

/// What etcd, or the way to it, says; with all that led to it.
fn told(error: &Error) -> String {
    match error {
        Error::GRpcStatus(status) if space::is_full(status.message()) => space::FULL.to_owned(),
        Error::GRpcStatus(status) => {
            let mut text = status.message().to_owned();
            let mut source = std::error::Error::source(status);
            while let Some(error) = source {
                text = format!("{text}: {error}");
                source = error.source();
            }
            text
        }
        Error::TransportError(error) => crate::api::with_sources(error),
        other => other.to_string(),
    }
}

pub(crate) fn failed(error: &Error) -> Failed {
    match error {
        Error::GRpcStatus(status) if status.message().contains("has been compacted") => Failed::Compacted,
        other => Failed::Other(told(other)),
    }
}

/// As `Client::connect` makes one, with windows for what etcd tells at once.
async fn channel(options: &EtcdOptions) -> Result<Channel, Error> {
    let (channel, endpoints) = tonic::transport::Channel::balance_channel(1);
    for endpoint in &options.endpoints {
        let mut endpoint = Endpoint::from_shared(endpoint.clone())?
            .connect_timeout(options.connect)
            .keep_alive_while_idle(true)
            .http2_keep_alive_interval(options.timing.silence)
            .keep_alive_timeout(options.timing.silence)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOWS);
        if let Some(tls) = &options.tls {
            let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.ca));
            if let Some((certificate, key)) = &tls.identity {
                config = config.identity(Identity::from_pem(certificate, key));
            }
            endpoint = endpoint.tls_config(config)?;
        }
        let change = Change::Insert(endpoint.uri().clone(), endpoint);
        let told = endpoints.send(change).await;
        told.map_err(|_| Error::EndpointError("the channel has ended".to_owned()))?;
    }
    Ok(Channel::Tonic(channel))
}

impl Etcd {
    /// Asks for nothing but, where there is a user, who that is; who answers shows later.
    pub(crate) async fn open(options: &EtcdOptions) -> Result<Self, String> {
        let mut connect = ConnectOptions::new().with_require_leader(true);
        if let Some(user) = &options.user {
            connect = connect
                .with_user(&user.name, &user.password)
                .with_auto_token_refresh(true);
        }
        let opened = async { Client::from_channel(channel(options).await?, Some(connect)).await };
        let connected = tokio::time::timeout(options.request, opened).await;
        let client = connected
            .map_err(|_| late(options.request))?
            .map_err(|error| told(&error))?;
        Ok(Self {
            kv: client.kv_client().max_decoding_message_size(LONGEST),
            watch: client.watch_client().max_decoding_message_size(LONGEST),
            lease: client.lease_client(),
            maintenance: client.maintenance_client(),
            prefix: options.prefix.clone(),
            request: options.request,
            turn: 0,
        })
    }

    /// The one of this turn: see [`super::Door`].
    pub(crate) fn of_turn(self, turn: u64) -> Self {
        Self { turn, ..self }
    }

    /// See [`Etcd::of_turn`].
    pub(crate) const fn turn(&self) -> u64 {
        self.turn
    }

    /// Returns a key with the prefix in front.
    pub(crate) fn name(&self, key: impl fmt::Display) -> String {
        format!("{}{key}", self.prefix)
    }

    fn pair(&self, pair: etcd_client::KeyValue, is_put: bool) -> Pair {
        let revision = number(pair.mod_revision());
        let (mut key, value) = pair.into_key_value();
        if key.starts_with(self.prefix.as_bytes()) {
            key.drain(..self.prefix.len());
        }
        let value = is_put.then_some(value);
        Pair { key, value, revision }
    }

    async fn within<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Failed> {
        match tokio::time::timeout(self.request, call).await {
            Ok(answer) => answer.map_err(|error| failed(&error)),
            Err(_) => Err(Failed::Other(late(self.request))),
        }
    }

    /// Some keys that begin with a kind, behind one and before another.
    pub(crate) async fn list(&self, pages: Pages) -> Result<Page, Failed> {
        let Pages {
            kind,
            after,
            before,
            smaller,
            revision,
        } = pages;
        let page = KINDS
            .iter()
            .zip(super::pages::KEYS)
            .find(|(known, _)| **known == kind)
            .map_or(1024, |(_, page)| page);
        let first = match after {
            // The next one that there can be.
            Some(after) => [self.prefix.as_bytes(), &after, &[0]].concat(),
            None => self.name(kind).into_bytes(),
        };
        let end = match before {
            Some(before) => [self.prefix.as_bytes(), &before].concat(),
            // All names of a kind end before the kind with the byte behind its slash.
            None => format!("{}0", self.name(kind).trim_end_matches('/')).into_bytes(),
        };
        let limit = (page >> smaller.min(62)).max(1);
        let mut options = GetOptions::new().with_range(end).with_limit(limit);
        if let Some(revision) = revision {
            options = options.with_revision(revision.cast_signed());
        }
        let mut kv = self.kv.clone();
        let mut answer = self.within(kv.get(first, Some(options))).await?;
        Ok(Page {
            revision: revision_of(answer.header()),
            more: answer.more(),
            pairs: (answer.take_kvs().into_iter().map(|pair| self.pair(pair, true))).collect(),
        })
    }

    /// Whose state it is, as a quorum knows it.
    pub(crate) async fn pulse(&self) -> Result<Pulse, String> {
        let mut kv = self.kv.clone();
        let answer = self.within(kv.get(self.name(FLEET), None)).await.map_err(why)?;
        Ok(Pulse {
            revision: revision_of(answer.header()),
            cluster: answer.header().map_or(0, etcd_client::ResponseHeader::cluster_id),
            fleet: answer.kvs().first().map(|pair| FleetName::read(pair.value())),
        })
    }

    /// How full the database of the member that is asked is.
    pub(crate) async fn space(&self) -> Result<Space, String> {
        let mut maintenance = self.maintenance.clone();
        let told = self.within(maintenance.status()).await.map_err(why)?;
        Ok(Space {
            bytes: number(told.db_size()),
            // So it is called in etcd's protocol before 3.4; it has nothing to do with Raft.
            used: number(told.raft_used_db_size()),
            is_full: told.errors().iter().any(|error| error.contains("NOSPACE")),
        })
    }

    /// Returns whether nobody has written anything there yet.
    pub(crate) async fn is_empty(&self) -> Result<bool, String> {
        let mut kv = self.kv.clone();
        let one = GetOptions::new().with_prefix().with_keys_only().with_limit(1);
        let answer = self.within(kv.get(self.name(SCHEMA), Some(one))).await.map_err(why)?;
        Ok(answer.kvs().is_empty())
    }

    /// Says whose state it is, where nobody has written anything yet.
    pub(crate) async fn begin(&self, fleet: &FleetName) -> Result<(), String> {
        let name = self.name(FLEET);
        let nobody = Compare::create_revision(self.name(SCHEMA), CompareOp::Equal, 0).with_prefix();
        let begin = Txn::new()
            .when([nobody])
            .and_then([TxnOp::put(&*name, fleet.as_bytes(), None)]);
        let mut kv = self.kv.clone();
        self.within(kv.txn(begin)).await.map(drop).map_err(why)
    }

    /// Says that what is here is not all yet, and whose state it is, where nobody has yet.
    pub(crate) async fn begin_migration(&self, fleet: &FleetName) -> Result<(), String> {
        let (name, migration) = (self.name(FLEET), TxnOp::put(self.name(MIGRATION), "under way", None));
        let begin = Txn::new()
            .when([Compare::create_revision(&*name, CompareOp::Equal, 0)])
            .and_then([TxnOp::put(&*name, fleet.as_bytes(), None), migration.clone()])
            .or_else([migration]);
        let mut kv = self.kv.clone();
        self.within(kv.txn(begin)).await.map(drop).map_err(why)
    }

    /// Says that all of it is here.
    pub(crate) async fn end_migration(&self) -> Result<(), String> {
        let mut kv = self.kv.clone();
        let end = kv.delete(self.name(MIGRATION), None);
        self.within(end).await.map(drop).map_err(why)
    }

    /// Whether what is here is not all yet.
    pub(crate) async fn is_migrating(&self) -> Result<bool, String> {
        let mut kv = self.kv.clone();
        let answer = self.within(kv.get(self.name(MIGRATION), None)).await.map_err(why)?;
        Ok(!answer.kvs().is_empty())
    }

    /// The fleet's time, and in which revision it was written; 0: there is none.
    pub(crate) async fn clock(&self) -> Result<(Written, u64), Refused> {
        let read = Txn::new().and_then([TxnOp::get(self.name(CLOCK), None)]);
        let held = held(&self.transact(read).await?).pop().unwrap_or(Held::NONE);
        let written = held.value.map_or(Written::Missing, |value| {
            let time = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
            time.map_or(Written::Damaged, Written::At)
        });
        Ok((written, held.revision))
    }

    /// False if it was written since this revision.
    pub(crate) async fn set_clock(&self, time: i64, revision: u64) -> Result<bool, Refused> {
        let name = self.name(CLOCK);
        let set = Txn::new()
            .when([Compare::mod_revision(&*name, CompareOp::Equal, revision.cast_signed())])
            .and_then([TxnOp::put(&*name, time.to_string(), None)]);
        Ok(self.transact(set).await?.succeeded())
    }

    async fn transact(&self, transaction: Txn) -> Result<etcd_client::TxnResponse, Refused> {
        let mut kv = self.kv.clone();
        match tokio::time::timeout(self.request, kv.txn(transaction)).await {
            Ok(answer) => answer.map_err(|error| Refused::new(&error, || told(&error))),
            Err(_) => Err(Refused::Lost(late(self.request))),
        }
    }

    /// Keys, as the member that is asked knows them: perhaps as they were.
    pub(crate) async fn read(&self, keys: &[Key]) -> Result<Vec<Held>, Refused> {
        self.read_by(keys, &GetOptions::new().with_serializable()).await
    }

    async fn read_by(&self, keys: &[Key], options: &GetOptions) -> Result<Vec<Held>, Refused> {
        let get = |key: &Key| TxnOp::get(self.name(key), Some(options.clone()));
        let read = Txn::new().and_then(keys.iter().map(get).collect::<Vec<_>>());
        Ok(held(&self.transact(read).await?))
    }

    /// All steps, or none.
    pub(crate) async fn commit(&self, steps: &[Step]) -> Result<Committed, Refused> {
        let compare = |step: &Step| {
            let revision = step.revision.cast_signed();
            Compare::mod_revision(self.name(step.key), CompareOp::Equal, revision)
        };
        let write = |step: &Step| {
            let write = step.write.as_ref()?;
            Some(match write {
                Some(value) => TxnOp::put(self.name(step.key), &**value, None),
                None => TxnOp::delete(self.name(step.key), None),
            })
        };
        let get = |step: &Step| TxnOp::get(self.name(step.key), None);
        let mut transaction = Txn::new()
            .when(steps.iter().map(compare).collect::<Vec<_>>())
            .and_then(steps.iter().filter_map(write).collect::<Vec<_>>());
        let tells = steps.len() <= TOLD;
        if tells {
            transaction = transaction.or_else(steps.iter().map(get).collect::<Vec<_>>());
        }
        let answer = self.transact(transaction).await?;
        Ok(if answer.succeeded() {
            Committed::Yes(revision_of(answer.header()))
        } else if tells {
            Committed::No(held(&answer))
        } else {
            let keys: Vec<Key> = steps.iter().map(|step| step.key).collect();
            Committed::No(self.read_by(&keys, &GetOptions::new()).await?)
        })
    }

    /// Everything from a revision on.
    pub(crate) async fn watch(&self, from: u64) -> Result<(WatchRequestSender, WatchResponseStream), Failed> {
        let options = WatchOptions::new()
            .with_prefix()
            .with_start_revision(from.cast_signed())
            .with_progress_notify();
        let mut watch = self.watch.clone();
        let stream = self.within(watch.watch(self.name(SCHEMA), Some(options))).await?;
        Ok(stream.split())
    }

    /// What a watch has told.
    pub(crate) fn heard(&self, answer: &etcd_client::WatchResponse) -> Heard {
        if answer.canceled() {
            return Heard::Ended(match answer.compact_revision() {
                0 => Failed::Other(answer.cancel_reason().to_owned()),
                _ => Failed::Compacted,
            });
        }
        if answer.created() {
            return Heard::Began;
        }
        if answer.events().is_empty() {
            return Heard::Progress(revision_of(answer.header()));
        }
        let pairs = answer.events().iter().filter_map(|event| {
            let is_put = event.event_type() == etcd_client::EventType::Put;
            Some(self.pair(event.kv()?.clone(), is_put))
        });
        Heard::Events(pairs.collect())
    }
}

/// See [`Etcd::heard`].
pub(crate) enum Heard {
    Began,
    Progress(u64),
    Events(Vec<Pair>),
    Ended(Failed),
}

fn held(answer: &etcd_client::TxnResponse) -> Vec<Held> {
    let of = |answer: &TxnOpResponse| match answer {
        TxnOpResponse::Get(got) => got.kvs().first().map(|pair| Held {
            revision: number(pair.mod_revision()),
            value: Some(pair.value().to_vec()),
        }),
        _ => None,
    };
    answer
        .op_responses()
        .iter()
        .map(|answer| of(answer).unwrap_or(Held::NONE))
        .collect()
}

pub(crate) fn late(time: Duration) -> String {
    format!("no answer within {} ms", time.as_millis())
}

pub(crate) fn why(failed: Failed) -> String {
    match failed {
        Failed::Compacted => "what was asked for has been compacted".to_owned(),
        Failed::Other(why) => why,
    }
}
