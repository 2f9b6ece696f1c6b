//! Metrics for Prometheus, on loopback unless the configuration says otherwise.
//!
//! Labels are bounded: paths, reasons, states, workers; never an address or a number of a tenant.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use ringside_gateway_core::conntrack::State;
use ringside_gateway_core::underlay_error::Unreachable;
use tokio::net::TcpListener;

use crate::fleet::Member;
use crate::model::{CacheCounters, Counters, Model, PathCounters};

mod fleet;
mod plain;

/// Offers the metrics of a model until it is dropped.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Registry>);

impl Metrics {
    /// All there are; of its fleet, too, if it takes part in one.
    #[must_use]
    pub fn new(model: Model, member: Option<Member>) -> Self {
        let mut registry = Registry::with_prefix("ringside_gateway");
        let version = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Version of the gateway", version);
        let timings = model.timings();
        registry.register_with_unit(
            "store_commit",
            "Time until changes were on the disk, for each transaction",
            Unit::Seconds,
            timings.commit.clone(),
        );
        registry.register_with_unit(
            "map_programming",
            "Time until changes that are on the disk were in the tables and in the fast path's maps, for each request",
            Unit::Seconds,
            timings.program.clone(),
        );
        registry.register_collector(Box::new(OfModel(model, member)));
        Self(Arc::new(registry))
    }

    /// As text, in the format OpenMetrics.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to memory cannot fail.
        _ = prometheus_client::encoding::text::encode(&mut text, &self.0);
        text
    }

    /// Answers at `/metrics`, until this is dropped.
    pub async fn serve(self, listener: TcpListener) {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Out of files: those who are there go some time.
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            };
            let metrics = self.clone();
            tokio::spawn(async move {
                let answer = service_fn(|request| {
                    let answer = metrics.answer(&request);
                    async { Ok::<_, Infallible>(answer) }
                });
                let connection =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
                // A minute for a scrape; who is slower, or sends nothing, is gone.
                _ = tokio::time::timeout(std::time::Duration::from_secs(60), connection).await;
            });
        }
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<String> {
        let refuse = |status, text: &str| {
            let mut answer = Response::new(text.to_owned());
            *answer.status_mut() = status;
            answer
        };
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/metrics") => {}
            (_, "/metrics") => return refuse(StatusCode::METHOD_NOT_ALLOWED, "GET /metrics is all there is\n"),
            _ => return refuse(StatusCode::NOT_FOUND, "the metrics are at /metrics\n"),
        }
        let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
        let is_asked = |accept: &str| accept.contains("application/openmetrics-text");
        let (kind, text) = match accept.is_some_and(is_asked) {
            true => (
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
                self.text(),
            ),
            // Browsers show it.
            false => (
                "text/plain; version=0.0.4; charset=utf-8",
                plain::from_openmetrics(&self.text()),
            ),
        };
        let mut answer = Response::new(text);
        answer
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        answer
    }
}

/// Where metrics are offered.
///
/// # Errors
/// What the kernel says, with the key of the configuration.
pub async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|error| anyhow::anyhow!("metrics.listen {address}: {error}"))
}

struct OfModel(Model, Option<Member>);

impl fmt::Debug for OfModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OfModel").finish_non_exhaustive()
    }
}

type Labels = Vec<(&'static str, String)>;

/// Writes families of metrics.
struct Out<'a, 'b>(&'a mut DescriptorEncoder<'b>);

impl Out<'_, '_> {
    #[allow(clippy::cast_precision_loss, reason = "counts to 16 digits")]
    fn gauge(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: usize) -> fmt::Result {
        let metric = self.0.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        ConstGauge::new(value as f64).encode(metric)
    }

    fn counter(&mut self, name: &str, help: &str, count: u64) -> fmt::Result {
        let metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(count).encode(metric)
    }

    #[allow(clippy::cast_precision_loss, reason = "counts to 16 digits")]
    fn gauges(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        values: impl IntoIterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        for (labels, value) in values {
            ConstGauge::new(value as f64).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn counters(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        counts: impl IntoIterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, unit, MetricType::Counter)?;
        for (labels, count) in counts {
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn label(name: &'static str, value: impl Into<String>) -> Labels {
    vec![(name, value.into())]
}

impl Collector for OfModel {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Out(&mut encoder);
        let counters = self.0.counters();
        self.tables(&mut out)?;
        if let Some(status) = self.0.health().fleet() {
            fleet::encode(&mut out, status)?;
        }
        if let Some(member) = &self.1 {
            fleet::encode_member(&mut out, member)?;
        }
        self.connections(&mut out)?;
        packets(&mut out, &counters)?;
        let workers = counters.workers.iter();
        out.gauges(
            "worker_load_permille",
            "Thousandths of its time in which a worker had packets",
            None,
            workers.map(|worker| (label("worker", &*worker.name), worker.permille.into())),
        )
    }
}

impl OfModel {
    fn tables(&self, out: &mut Out<'_, '_>) -> fmt::Result {
        let (tables, health) = (self.0.tables(), self.0.health());
        let objects = [
            ("neighbors", tables.neighbors.len()),
            ("hosts", tables.hosts.len()),
            ("ports", tables.ports()),
            ("security-groups", tables.groups()),
            ("tombstones", tables.tombstones()),
        ];
        let objects = objects.map(|(kind, count)| (label("kind", kind), count as u64));
        out.gauges("objects", "Objects in the tables in memory", None, objects)?;
        let memory = [
            ("neighbors", tables.neighbors.memory()),
            ("policy", tables.policy.memory()),
            ("bindings", tables.bindings.memory()),
            ("connections", tables.conntrack.memory()),
        ];
        let memory = memory.map(|(table, bytes)| (label("table", table), bytes as u64));
        out.gauges("table_memory", "Memory of the tables", Some(&Unit::Bytes), memory)?;
        let store = usize::try_from(health.store_bytes()).unwrap_or(usize::MAX);
        out.gauge("store_size", "Size of the store's files", Some(&Unit::Bytes), store)?;
        let read_only = usize::from(health.read_only().is_some());
        out.gauge(
            "store_read_only",
            "1 while the store cannot be written",
            None,
            read_only,
        )?;
        out.gauge(
            "store_stalled",
            "1 while changes have waited for the store's disk, or for etcd, for five seconds",
            None,
            health.is_stalled().into(),
        )?;
        out.gauge(
            "problems",
            "What needs attention: see `ringside gateway health`",
            None,
            self.0.problems().len(),
        )?;
        out.gauge(
            "draining",
            "1 while the gateway is drained",
            None,
            (tables.is_draining() || self.1.as_ref().is_some_and(Member::is_draining)).into(),
        )?;
        out.gauge("watchers", "Watchers of changes", None, self.0.watchers())?;
        out.counter(
            "store_commits",
            "Transactions of the store, since it was made",
            health.revision(),
        )?;
        // The first generation is the one without rules.
        out.counter(
            "policy_changes",
            "Changes of what rules allow",
            tables.policy.generation() - 1,
        )
    }

    fn connections(&self, out: &mut Out<'_, '_>) -> fmt::Result {
        let tables = self.0.tables();
        let counts = tables.conntrack.counts();
        let states = State::ALL
            .iter()
            .map(|state| (label("state", state.name()), counts.of(*state).into()));
        out.gauges("connections", "Connections that are tracked, by state", None, states)?;
        let limit = tables.connection_limit() as usize;
        out.gauge("connection_limit", "Connections that may be tracked", None, limit)?;
        let [unreplied, closing, established] = counts.evicted;
        let ended = [
            ("timed-out", counts.timed_out),
            ("no-longer-allowed", counts.no_longer_allowed),
            ("replaced", counts.replaced),
            ("evicted-unreplied", unreplied),
            ("evicted-closing", closing),
            ("evicted-established", established),
        ];
        let ended = ended.map(|(why, count)| (label("why", why), count));
        out.counters("connections_ended", "Connections that have ended, by why", None, ended)?;
        out.counter("connections_begun", "Connections that have begun", counts.begun)
    }
}

fn packets(out: &mut Out<'_, '_>, counters: &Counters) -> fmt::Result {
    let paths = [("fast", &counters.fast), ("slow", &counters.slow)];
    let verdicts = paths.iter().flat_map(|(path, counters)| {
        let PathCounters {
            forwarded_packets,
            answered_packets,
            passed_packets,
            ..
        } = counters;
        [
            ("forwarded", *forwarded_packets),
            ("answered", *answered_packets),
            ("passed", *passed_packets),
            ("dropped", counters.refused_packets()),
        ]
        .map(|(verdict, packets)| {
            (
                vec![("path", (*path).to_owned()), ("verdict", verdict.to_owned())],
                packets,
            )
        })
    });
    out.counters("packets", "Packets, by what became of them", None, verdicts)?;
    let received = paths.map(|(path, counters)| (label("path", path), counters.received_packets));
    out.counters("received_packets", "Packets that came", None, received)?;
    for (name, help, of) in [
        (
            "received",
            "Bytes that came, from the outer Ethernet header on",
            (|counters| counters.received_bytes) as fn(&PathCounters) -> u64,
        ),
        ("forwarded", "Bytes that were sent on", |counters| {
            counters.forwarded_bytes
        }),
        (
            "dropped",
            "Bytes that were dropped, as they came; but for those that found no worker free, and those that the kernel dropped in the end",
            |counters| counters.dropped_bytes,
        ),
    ] {
        let bytes = paths.map(|(path, counters)| (label("path", path), of(counters)));
        out.counters(name, help, Some(&Unit::Bytes), bytes)?;
    }
    let reasons = paths.iter().flat_map(|(path, counters)| {
        counters.dropped_packets.iter().map(|(reason, packets)| {
            let labels = vec![("path", (*path).to_owned()), ("reason", reason.name().to_owned())];
            (labels, *packets)
        })
    });
    out.counters("dropped_packets", "Packets that were dropped, by reason", None, reasons)?;
    let errors = counters.icmp_errors.iter();
    out.counters(
        "icmp_errors",
        "ICMP errors to tenants, by what became of them",
        None,
        errors.map(|(what, count)| (label("what", *what), *count)),
    )?;
    let causes = counters.handed_up.iter();
    out.counters(
        "handed_up_packets",
        "Packets that the fast path handed to workers, by cause",
        None,
        causes.map(|(cause, packets)| (label("cause", *cause), *packets)),
    )?;
    if let Some(direct) = counters.direct {
        let notices = [
            ("sent", direct.sent),
            ("failed", direct.failed),
            ("held-back", direct.held_back),
        ];
        out.counters(
            "direct_path_notices",
            "Notices to hosts that send much, by what became of them",
            None,
            notices.map(|(what, count)| (label("what", what), count)),
        )?;
    }
    caches(out, counters)?;
    let full = counters.queue_full.iter();
    out.counters(
        "worker_queue_full",
        "Times that workers found no room where they tell others what is to be done, by queue",
        None,
        full.map(|(queue, times)| (label("queue", *queue), *times)),
    )?;
    let events = counters.interface_events.iter();
    out.counters(
        "interface_events",
        "What happened to the interface",
        None,
        events.map(|(event, count)| (label("event", *event), *count)),
    )?;
    let said = counters.path_mtu.iter();
    out.counters(
        "path_mtu_messages",
        "What routers have said of packets that were too long for them, by what became of it",
        None,
        said.map(|(what, count)| (label("what", *what), *count)),
    )?;
    out.gauge(
        "limited_hosts",
        "Hosts to which less gets than the port sends, as far as is known",
        None,
        usize::try_from(counters.limited_hosts).unwrap_or(usize::MAX),
    )?;
    unreachable(out, counters)
}

fn unreachable(out: &mut Out<'_, '_>, counters: &Counters) -> fmt::Result {
    let messages = counters.unreachable_messages.iter();
    out.counters(
        "unreachable_messages",
        "ICMP errors that say that a packet of the gateway did not reach its host, by cause",
        None,
        messages.map(|(cause, count)| (label("cause", *cause), *count)),
    )?;
    let hosts = Unreachable::ALL.map(|cause| {
        let hosts = counters.unreachable_hosts.iter();
        (
            label("cause", cause.name()),
            hosts.filter(|host| host.cause == cause.name()).count() as u64,
        )
    });
    out.gauges(
        "unreachable_hosts",
        "Hosts that do not get what the gateway sends at present, as ICMP errors say, by cause",
        None,
        hosts,
    )
}

fn caches(out: &mut Out<'_, '_>, counters: &Counters) -> fmt::Result {
    let neighbors = CacheCounters {
        entries: counters.cache_entries,
        capacity: counters.cache_capacity,
        evicted: counters.cache_evicted,
        refused: counters.cache_refused,
        // The daemon writes it without the kernel.
        failed: 0,
    };
    out.counter(
        "fast_path_divergences",
        "Entries of the fast path's cache of neighbours that were other than the tables: never, unless something is wrong",
        counters.cache_diverged,
    )?;
    let labelled = |(what, count): (&'static str, u64)| (label("what", what), count);
    for (name, cache) in [
        ("fast_path_cache", neighbors),
        ("fast_path_connection_cache", counters.connection_cache),
    ] {
        let gone = [
            ("evicted", cache.evicted),
            ("refused", cache.refused),
            ("failed", cache.failed),
        ];
        out.counters(
            &format!("{name}_pressure"),
            "Entries of a cache of the fast path: evicted for others, without room, or refused by the kernel",
            None,
            gone.map(labelled),
        )?;
        let size = [("entries", cache.entries), ("capacity", cache.capacity)];
        out.gauges(
            name,
            "Entries of a cache of the fast path, and its room",
            None,
            size.map(labelled),
        )?;
    }
    Ok(())
}
