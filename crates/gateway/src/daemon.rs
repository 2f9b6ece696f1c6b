//! The program: from a configuration to a gateway that runs, until it is told to end.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ringside_gateway_core::Vni;
use sd_notify::NotifyState;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use crate::api::{Api, Keys, Listeners};
use crate::config::{Config, Format, Level};
use crate::datapath::Held;
use crate::fleet::backlog::LAST;
use crate::fleet::{Baggage, Door, Member};
use crate::metrics::{self, Metrics};
use crate::model::{DataPath, Model, ModelOptions, Tables, Working};
use crate::store::Store;

/// Between two looks at what is to be done now and then. The watchdog's time has to be longer.
const TICK: Duration = Duration::from_secs(1);
/// Between two signs that a start goes on; and by when the next one comes, as in the unit's `TimeoutStartSec`.
const SIGN: Duration = Duration::from_secs(10);
const START: Duration = Duration::from_secs(120);
/// A writer that does not answer for so long waits for its disk.
const STALLED: Duration = Duration::from_secs(5);

/// Runs a gateway until SIGTERM or SIGINT.
///
/// `start_path` starts the data path when the tables are filled and before anybody can change them.
///
/// # Errors
/// What is wrong with the configuration, the store, the sockets, the data path.
pub fn run(file: &Path, start_path: impl FnOnce(&Config, &Arc<Tables>) -> Result<Arc<dyn DataPath>>) -> Result<()> {
    let config = Config::read(file)?;
    let log = log(&config)?;
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    make_parent(&config.store, 0o700, "store.path")?;
    make_parent(&config.socket.path, 0o755, "api.socket")?;
    let door = config.etcd.clone().map(Door::new);
    let held = config.path.as_ref().and_then(Held::of);
    let working = Working::new(move || {
        working();
        if let Some(held) = &held {
            held.renew();
        }
    });
    let store = match door {
        Some(_) => Store::open_mirror_with(&config.store, &working)?,
        None => Store::open_with(&config.store, &working)?,
    };
    // Two: one for a bulk load and one for everybody else. Packets do not come here.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(4)
        .thread_name("control")
        .enable_all()
        .build()
        .context("starting the threads of the control plane")?;
    // What somebody else may have is had before anything is done with packets.
    let doors = runtime.block_on(Doors::open(&config))?;
    let limits = config.limits.clone();
    let options = ModelOptions {
        working,
        ..config.model_options()
    };
    let start = |tables: &Arc<Tables>| {
        limit_tenants(tables, &BTreeMap::new(), &config.tenants);
        start_path(&config, tables)
    };
    let (model, writer) = match &door {
        Some(door) => Model::start_fleet(store, door.clone(), limits, options, start)?,
        None => Model::start(store, limits, options, start)?,
    };
    let member = match (&config.fleet, &door, model.health().fleet_status()) {
        (Some(options), Some(door), Some(status)) => {
            let tls = config.tcp.as_ref().map(|tcp| tcp.tls.clone());
            let baggage = Baggage::new(model.tables(), tls);
            let path = Arc::clone(model.path());
            let started = Member::start(options, door.clone(), status, baggage, move || path.has_link());
            Some(started.context("taking part in the fleet")?)
        }
        _ => None,
    };
    let renewable = Renewable {
        keys: doors.listeners.keys(),
        door,
        member: member.clone(),
    };
    let served = runtime.block_on(serve(file, config, model, &log, doors, &renewable, member));
    // What still runs is let go, so that the writer can end.
    runtime.shutdown_timeout(Duration::from_secs(1));
    // A copy of etcd's state has an end of its own.
    if renewable.door.is_none() && !ends(&writer, LAST) {
        tracing::warn!(
            "the store's disk does not answer, and is not waited for: what was answered is there at the next start, what was not may be"
        );
    } else if writer.join().is_err() {
        tracing::error!("a thread of the store has panicked");
    }
    tracing::info!("ended");
    served
}

/// Whether a thread ends within this time.
fn ends(thread: &std::thread::JoinHandle<()>, patience: Duration) -> bool {
    let began = Instant::now();
    while !thread.is_finished() && began.elapsed() < patience {
        std::thread::sleep(Duration::from_millis(10));
    }
    thread.is_finished()
}

/// Where the gateway is asked. Nobody is let in yet.
struct Doors {
    listeners: Listeners,
    metrics: Option<TcpListener>,
}

impl Doors {
    async fn open(config: &Config) -> Result<Self> {
        Ok(Self {
            listeners: Listeners::open(Some(&config.socket), config.tcp.as_ref()).await?,
            metrics: match config.metrics {
                Some(address) => Some(metrics::listen(address).await?),
                None => None,
            },
        })
    }
}

/// What credentials can be renewed of.
struct Renewable {
    keys: Option<Keys>,
    door: Option<Door>,
    member: Option<Member>,
}

async fn serve(
    file: &Path,
    mut config: Config,
    model: Model,
    log: &Log,
    doors: Doors,
    renewable: &Renewable,
    member: Option<Member>,
) -> Result<()> {
    let mut reload = signal(SignalKind::hangup()).context("waiting for SIGHUP")?;
    let mut terminate = signal(SignalKind::terminate()).context("waiting for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("waiting for SIGINT")?;
    let Doors { listeners, metrics } = doors;
    if let Some(listener) = metrics {
        tokio::spawn(Metrics::new(model.clone(), member.clone()).serve(listener));
    }
    let tcp = listeners.tcp_address().map(tracing::field::display);
    tracing::info!(socket = %config.socket.path.display(), tcp, "the API is offered");
    let (stop, stopped) = watch::channel(false);
    let mut api = tokio::spawn(listeners.serve(Api::new(model.clone()).of(member.clone()), stopped));
    tell(&[NotifyState::Ready]);
    let mut tick = tokio::time::interval(TICK);
    let mut pulse = Pulse::default();
    loop {
        tokio::select! {
            _ = tick.tick() => {
                model.limit_age(renewable.door.as_ref().and_then(Door::forward_stale));
                if !pulse.beat(&model).await {
                    anyhow::bail!("the store's threads have ended; the log says why");
                }
                if model.is_alive() {
                    tell(&[NotifyState::Watchdog]);
                }
            }
            _ = reload.recv() => config = reread(file, config, &model, log, renewable).await,
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            served = &mut api => {
                return served.context("the API's task")?.context("the API ended by itself");
            }
        }
    }
    tracing::info!("asked to end");
    tell(&[NotifyState::Stopping]);
    // Before the last packets are sent on: hosts are told whom to send to.
    if let Some(member) = member {
        member.end().await;
    }
    // It is read by the task as long as that runs.
    _ = stop.send(true);
    api.await.context("the API's task")??;
    Ok(())
}

/// Looks whether the writer answers, without waiting for it: a disk that hangs shall not have the watchdog end what goes on.
#[derive(Default)]
struct Pulse(Option<(Instant, tokio::task::JoinHandle<bool>)>);

impl Pulse {
    /// False if the threads are gone.
    async fn beat(&mut self, model: &Model) -> bool {
        if let Some((_, asked)) = self.0.take_if(|(_, asked)| asked.is_finished())
            && !asked.await.unwrap_or(false)
        {
            return false;
        }
        let (since, _) = self.0.get_or_insert_with(|| {
            let model = model.clone();
            (Instant::now(), tokio::spawn(async move { model.tick().await }))
        });
        model.health().set_stalled(since.elapsed() > STALLED);
        true
    }
}

/// Reads the configuration again: all of what can be changed now is, or nothing.
async fn reread(file: &Path, mut before: Config, model: &Model, log: &Log, renewable: &Renewable) -> Config {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        tell(&[NotifyState::Reloading, now]);
    }
    let read = Config::read(file).map_err(anyhow::Error::from);
    // What may fail is first, and of that what changes something is last.
    let possible = read.and_then(|after| {
        // Others may be renewed while one is not.
        let (known, mut invalid) = (before.invalid_certificates(), after.invalid_certificates());
        invalid.retain(|problem| !known.contains(problem));
        ensure!(invalid.is_empty(), "{}", invalid.join("; "));
        let keys = renewable.read_keys(&before, &after)?;
        let running = before.running(&after);
        if let Some(path) = &running.path {
            let set = model.path().set(&path.settings, &running.limits.timeouts);
            set.context("path")?;
        }
        Ok((after, keys))
    });
    let config = match possible {
        Ok((after, keys)) => {
            if let Some(keys) = keys {
                renewable.renew(&keys, &mut before, &after);
            }
            let restart = before.takes_restart(&after);
            if !restart.is_empty() {
                tracing::warn!(keys = restart.join(", "), "these changes take a restart");
            }
            log.set(after.level);
            if let (Some(door), Some(known), Some(now)) = (&renewable.door, &mut before.etcd, &after.etcd)
                && (&known.tls, &known.user) != (&now.tls, &now.user)
            {
                (known.tls, known.user) = (now.tls.clone(), now.user.clone());
                door.renew(known.clone()).await;
                tracing::info!("the credentials of store.etcd were read again");
            }
            // The queue may be full, of changes that wait for a disk that hangs: whatever else is to be done now does not.
            let (waits, options) = (model.clone(), after.model_options());
            tokio::spawn(async move { waits.set_options(options).await });
            limit_tenants(model.tables(), &before.tenants, &after.tenants);
            model.tables().conntrack.limit_each(after.limits.per_tenant);
            tracing::info!("the configuration was read again");
            // What takes a restart stays what it was, so that it is told the next time, too.
            before.running(&after)
        }
        Err(error) => {
            tracing::error!("nothing was changed: {error:#}");
            before
        }
    };
    tell(&[NotifyState::Ready]);
    config
}

/// Networks have these limits from now on, and those that had others before have none of their own.
fn limit_tenants(tables: &Tables, before: &BTreeMap<Vni, u32>, now: &BTreeMap<Vni, u32>) {
    for vni in before.keys().chain(now.keys()) {
        tables.conntrack.limit_tenant(*vni, now.get(vni).copied());
    }
}

impl Renewable {
    /// What the files of api.tcp hold now, if that is something else.
    fn read_keys(&self, before: &Config, after: &Config) -> Result<Option<Keys>> {
        match (&self.keys, &before.tcp, &after.tcp) {
            (Some(_), Some(known), Some(now)) if known.tls != now.tls => Ok(Some(Keys::read(&now.tls)?)),
            _ => Ok(None),
        }
    }

    /// Whoever connects over TCP is greeted with these.
    fn renew(&self, by: &Keys, before: &mut Config, after: &Config) {
        if let (Some(keys), Some(known), Some(now)) = (&self.keys, &mut before.tcp, &after.tcp) {
            keys.replace(by);
            known.tls = now.tls.clone();
            if let Some(member) = &self.member {
                member.set_tls(now.tls.clone());
            }
            tracing::info!("the certificates of api.tcp were read again");
        }
    }
}

/// Tells the service manager, not too often, that the start goes on: with a hundred million neighbours it takes minutes.
fn working() {
    thread_local! {
        static TOLD: Cell<Option<Instant>> = const { Cell::new(None) };
    }
    TOLD.with(|told| {
        if told.get().is_none_or(|told| told.elapsed() >= SIGN) {
            told.set(Some(Instant::now()));
            let most = u32::try_from(START.as_micros()).unwrap_or(u32::MAX);
            tell(&[NotifyState::ExtendTimeoutUsec(most)]);
        }
    });
}

/// Tells the service manager, if there is one.
fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "the service manager could not be told");
    }
}

fn make_parent(path: &Path, mode: u32, key: &str) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    let Some(parent) = path.parent() else { return Ok(()) };
    let made = std::fs::DirBuilder::new().recursive(true).mode(mode).create(parent);
    made.with_context(|| format!("{key}: making the folder {}", parent.display()))
}

/// What is logged, which can be changed.
#[derive(Debug)]
struct Log(reload::Handle<LevelFilter, Registry>);

impl Log {
    fn set(&self, level: Level) {
        // The subscriber lives as long as the process.
        _ = self.0.modify(|filter| *filter = filter_of(level));
    }
}

fn filter_of(level: Level) -> LevelFilter {
    match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    }
}

fn log(config: &Config) -> Result<Log> {
    let (filter, handle) = reload::Layer::new(filter_of(config.level));
    // On stderr, which systemd takes to the journal.
    let layer = match config.format {
        Format::Text => fmt::layer().with_ansi(false).with_writer(io::stderr).boxed(),
        Format::Json => fmt::layer().json().with_writer(io::stderr).boxed(),
    };
    let subscriber = tracing_subscriber::registry().with(filter).with(layer);
    subscriber.try_init().context("starting the log")?;
    Ok(Log(handle))
}
