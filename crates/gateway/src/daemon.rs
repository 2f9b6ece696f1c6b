//! The program: from a configuration to a gateway that runs, until it is told to end.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use crate::api::{Api, Listeners};
use crate::config::{Config, Format, Level};
use crate::metrics::{self, Metrics};
use crate::model::{DataPath, Model, Tables};
use crate::store::Store;

/// Between two looks at what is to be done now and then. The watchdog's time has to be longer.
const TICK: Duration = Duration::from_secs(1);
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
    make_parent(&config.store, 0o700, "store.path")?;
    make_parent(&config.socket.path, 0o755, "api.socket")?;
    let store = Store::open(&config.store)?;
    let (model, writer) = Model::start(store, config.limits.clone(), config.model_options(), |tables| {
        start_path(&config, tables)
    })?;
    // Two: one for a bulk load and one for everybody else. Packets do not come here.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(4)
        .thread_name("control")
        .enable_all()
        .build()
        .context("starting the threads of the control plane")?;
    let served = runtime.block_on(serve(file, config, model, &log));
    // What still runs is let go, so that the writer can end.
    runtime.shutdown_timeout(Duration::from_secs(1));
    if writer.join().is_err() {
        tracing::error!("a thread of the store has panicked");
    }
    tracing::info!("ended");
    served
}

async fn serve(file: &Path, mut config: Config, model: Model, log: &Log) -> Result<()> {
    let mut reload = signal(SignalKind::hangup()).context("waiting for SIGHUP")?;
    let mut terminate = signal(SignalKind::terminate()).context("waiting for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("waiting for SIGINT")?;
    let listeners = Listeners::open(Some(&config.socket), config.tcp.as_ref()).await?;
    if let Some(address) = config.metrics {
        let listener = metrics::listen(address).await?;
        tokio::spawn(Metrics::new(model.clone()).serve(listener));
    }
    let tcp = listeners.tcp_address().map(tracing::field::display);
    tracing::info!(socket = %config.socket.path.display(), tcp, "the API is offered");
    let (stop, stopped) = watch::channel(false);
    let mut api = tokio::spawn(listeners.serve(Api::new(model.clone()), stopped));
    tell(&[NotifyState::Ready]);
    let mut tick = tokio::time::interval(TICK);
    let mut pulse = Pulse::default();
    loop {
        tokio::select! {
            _ = tick.tick() => {
                if !pulse.beat(&model).await {
                    anyhow::bail!("the store's threads have ended; the log says why");
                }
                if model.is_alive() {
                    tell(&[NotifyState::Watchdog]);
                }
            }
            _ = reload.recv() => config = reread(file, config, &model, log).await,
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            served = &mut api => {
                return served.context("the API's task")?.context("the API ended by itself");
            }
        }
    }
    tracing::info!("asked to end");
    tell(&[NotifyState::Stopping]);
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
async fn reread(file: &Path, before: Config, model: &Model, log: &Log) -> Config {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        tell(&[NotifyState::Reloading, now]);
    }
    let config = match Config::read(file) {
        Ok(after) => {
            let restart = before.takes_restart(&after);
            if !restart.is_empty() {
                tracing::warn!(keys = restart.join(", "), "these changes take a restart");
            }
            log.set(after.level);
            model.set_options(after.model_options()).await;
            tracing::info!("the configuration was read again");
            // What takes a restart stays what it was, so that it is told the next time, too.
            Config {
                level: after.level,
                tombstones: after.tombstones,
                ..before
            }
        }
        Err(error) => {
            tracing::error!("nothing was changed: {error}");
            before
        }
    };
    tell(&[NotifyState::Ready]);
    config
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
