//! The conformance list: every row in every mode, on two queues, with and without busy-polling, and what came of it.
//!
//! With `RINGSIDE_CONFORMANCE` set to a directory each variant of a row leaves a line there, from which
//! `scripts/conformance` makes docs/conformance.md. A row runs on veth pairs, or, where `RINGSIDE_TEST_IFACE` and
//! `RINGSIDE_TEST_PEER` name two interfaces that are wired to each other, on those.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ringside_bpf::testing::pass;
use ringside_netlab::testing::is_root;
use ringside_netlab::{End, Lab, VethConfig};
use ringside_xsk::{
    AttachMode, BusyPoll, Direction, Error, Mode, Pages, Path, Port, PortBuilder, Queue, QueueOptions, Wait, XdpLink,
};

use super::{MODES, arrives_at, leading_to, try_open, within};

/// The queue that is not 0.
pub const OTHER: u32 = 2;

/// Of a panic's message or an answer, what a table tells.
const NOTE: usize = 240;

/// A hang is a failure. No variant takes a tenth of it on an idle machine.
const LIMIT: Duration = Duration::from_secs(90);

/// The same on a device under test, which may be an emulated one on a machine that has other things to do.
const WIRED_LIMIT: Duration = Duration::from_mins(6);

/// How a variant of a row runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub path: Path,
    /// The queue under test, of the end that receives.
    pub queue: u32,
    pub busy_poll: bool,
    /// On the device under test, and not on a veth pair.
    pub wired: bool,
}

impl Case {
    /// All variants: each of these modes, two queues, with and without busy-polling.
    fn all(paths: &[Path], wired: bool) -> impl Iterator<Item = Self> {
        // Busy-polling last: the NAPI settings that it needs change once. On a device that takes long each half may have its turn.
        let chosen = std::env::var("RINGSIDE_POLLING").unwrap_or_default();
        let both = [(false, "plain"), (true, "busy-poll")];
        let wanted = both
            .into_iter()
            .filter(move |(_, name)| chosen.is_empty() || chosen == *name);
        wanted.map(|(busy_poll, _)| busy_poll).flat_map(move |busy_poll| {
            paths.iter().flat_map(move |&path| {
                [0, OTHER].map(|queue| Self {
                    path,
                    queue,
                    busy_poll,
                    wired,
                })
            })
        })
    }

    pub fn index(self) -> usize {
        self.queue as usize
    }

    /// The other end's transmit queue from which packets come to the queue under test.
    pub fn from(self) -> u32 {
        if self.wired {
            return self.queue;
        }
        u32::try_from(leading_to(self.index(), self.path)).expect("small")
    }

    /// The other end's receive queue at which packets from the queue under test arrive.
    pub fn to(self) -> u32 {
        if self.wired {
            return self.queue;
        }
        u32::try_from(arrives_at(self.index(), self.path)).expect("small")
    }

    /// With busy-polling if the variant has it.
    pub fn options(self, options: QueueOptions) -> QueueOptions {
        if self.busy_poll {
            options.busy_poll(BusyPoll::with_budget(64))
        } else {
            options
        }
    }

    /// How a queue that is looked at in a loop waits.
    pub fn wait(self) -> Wait {
        if self.busy_poll { Wait::BusyPoll } else { Wait::Spin }
    }

    /// A test bed of its own, for rows that break it.
    pub fn lab(self, tag: &str) -> Lab {
        let lab = Lab::veth(usual(tag)).expect("test bed");
        self.set_napi(&lab);
        lab
    }

    /// A port with the queue under test alone, as the receiving end of a row.
    pub fn port(self, end: &End, options: QueueOptions, with: impl FnOnce(PortBuilder) -> PortBuilder + Send) -> Port {
        let options = self.options(options);
        let opened = try_open(end, self.path, |port| with(port.queues([self.queue]).options(options)));
        let port = opened.unwrap_or_else(|error| self.refused(end, &error));
        self.renew_buffers(end);
        self.settle(end);
        port
    }

    /// virtio-net drops packets in several buffers as long as these are from before the program came, too long for what goes in front
    /// then; with rings of another size come others. <https://elixir.bootlin.com/linux/v6.18/C/ident/mergeable_xdp_get_buf>
    fn renew_buffers(self, end: &End) {
        if !self.wired || self.path != Path::NativeCopy || !is_jumbo(end) {
            return;
        }
        end.run(|| {
            let Ok(before) = end.interface.rings() else { return };
            let mut less = before;
            less.rx /= 2;
            for rings in [less, before] {
                _ = end.interface.set_rings(rings);
            }
        });
    }

    /// A NIC may lose its carrier for a moment when a program is attached, and lose what is sent meanwhile.
    fn settle(self, end: &End) {
        if self.wired {
            end.wait_ready().expect("the link comes back");
        }
    }

    /// A driver may have zero-copy, or native XDP, and none for what a row asks for beyond that: packets in several frames for instance.
    /// It says so when the program is attached (EINVAL, EOPNOTSUPP) or the socket bound (EOPNOTSUPP). And where a row asks for huge
    /// pages and none are reserved, zero-copy is refused for frames across pages.
    fn refused(self, end: &End, error: &Error) -> ! {
        let lacks = |reason: &str| match self.path {
            Path::ZeroCopy
                if ["os error 95", "vm.nr_hugepages", "whole KiB"]
                    .iter()
                    .any(|why| reason.contains(why)) =>
            {
                true
            }
            Path::ZeroCopy | Path::NativeCopy if self.wired && is_jumbo(end) => {
                ["os error 22", "os error 95"].iter().any(|why| reason.contains(why))
            }
            _ => false,
        };
        match error {
            Error::Mode { reason, .. } if lacks(reason) => std::panic::panic_any(Lacks(reason.clone())),
            error @ Error::Attach { .. } if lacks(&error.to_string()) => {
                std::panic::panic_any(Lacks(error.to_string()))
            }
            error => panic!("opens: {error:?}"),
        }
    }

    /// A queue of the other end that sends to the queue under test.
    pub fn sender(self, end: &End, options: QueueOptions) -> Queue {
        self.queue_of(end, self.from(), options.direction(Direction::Transmit))
    }

    /// A queue without a program of its own.
    pub fn queue_of(self, end: &End, queue: u32, options: QueueOptions) -> Queue {
        let opened = self.try_queue_of(end, queue, options);
        opened.unwrap_or_else(|error| self.refused(end, &error))
    }

    /// As [`Case::queue_of`], where it may well be refused.
    pub fn try_queue_of(self, end: &End, queue: u32, options: QueueOptions) -> Result<Queue, Error> {
        let path = match self.path {
            Path::ZeroCopy => Path::ZeroCopy,
            _ => Path::Copy,
        };
        let open = || {
            let builder = Queue::builder(&end.interface, queue).mode(Mode::Require(path));
            let options = self.options(options.clone());
            end.run(|| builder.options(options).open())
        };
        let mut opened = open();
        if let Err(Error::Mode { reason, .. }) = &opened
            && reason.contains("only while an XDP program is attached")
        {
            // Some drivers have zero-copy for a socket that only sends no sooner.
            let program = pass(None, false).expect("loads");
            let link = end.run(|| XdpLink::attach(program.as_fd(), &end.interface, AttachMode::Native));
            senders().push(link.expect("attached"));
            opened = open();
        }
        self.settle(end);
        opened
    }

    /// Preferred busy-polling works only where the interrupts stay off meanwhile; and without it packets would wait for
    /// the timer then. The values are those of the kernel's own suite.
    fn set_napi(self, lab: &Lab) {
        let (polls, time) = if self.busy_poll {
            (2, Duration::from_micros(200))
        } else {
            (0, Duration::ZERO)
        };
        for end in lab.ends() {
            end.run(|| {
                end.interface.set_napi_defer_hard_irqs(polls).expect("settable");
                end.interface.set_gro_flush_timeout(time).expect("settable");
            });
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let polling = if self.busy_poll { "busy-poll" } else { "plain" };
        write!(f, "{}, queue {}, {polling}", self.path.name(), self.queue)
    }
}

/// What came of a variant that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With what is to be said of it, mostly nothing.
    Passed { remark: String },
    /// It could not run: see [`lacks`].
    Skipped { reason: String },
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        passed()
    }
}

/// As it should be, without a remark.
pub fn passed() -> Outcome {
    Outcome::Passed { remark: String::new() }
}

/// The machine, its driver or its kernel cannot: it has been asked, and this is the answer. That something failed is not
/// enough; it must be the error that says so. So strict mode has nothing to object to.
pub fn lacks(reason: impl Into<String>) -> Outcome {
    Outcome::Skipped { reason: reason.into() }
}

/// What a variant ends with where the driver cannot: [`lacks`], from deep inside.
struct Lacks(String);

/// Passed, on the pages that the machine had.
pub fn passed_on(pages: Pages) -> Outcome {
    let remark = match pages {
        Pages::Normal => "on pages of 4 KiB: huge pages were asked for and none are reserved (vm.nr_hugepages)",
        _ => "",
    };
    Outcome::Passed { remark: remark.into() }
}

/// A usual test bed of a row: four queues, quiet, checksums whole.
pub fn usual(tag: &str) -> VethConfig {
    VethConfig {
        queues: 4,
        tx_checksum: false,
        ipv6: false,
        gro: true,
        ..VethConfig::tagged(tag)
    }
}

/// Runs a row of the list in all its variants on one test bed.
///
/// In the test binary "conformance" the test that calls it has the row's name. `name` may also be several, by commas, where
/// one test is what all of them ask for.
pub fn row_on<O: Into<Outcome>>(name: &str, config: VethConfig, run: impl Fn(&Lab, Case) -> O + Send + Sync + 'static) {
    if !is_root() {
        return;
    }
    let row = Row::new(name, std::any::type_name_of_val(&run));
    let zero_copy = zero_copy();
    let _turn = turn();
    let bed = Arc::new(Bed::make(config));
    let run = Arc::new(run);
    let paths: &[Path] = match &zero_copy {
        Ok(()) => &[Path::NativeCopy, Path::Generic, Path::ZeroCopy],
        Err(_) => &MODES,
    };
    let mut failed = Vec::new();
    for case in Case::all(paths, device().is_some()) {
        if case.wired && case.queue != 0 {
            row.record(
                Some(case),
                "skipped",
                "the NIC's hash chooses the queue, and it is 0 for these packets",
            );
            continue;
        }
        case.set_napi(&bed.lab);
        let (run, bed) = (Arc::clone(&run), Arc::clone(&bed));
        failed.extend(row.attempt(Some(case), move || run(&bed.lab, case).into()));
        senders().clear();
    }
    if let Err(answer) = zero_copy {
        row.write(["zero-copy", "", ""], "skipped", answer);
    }
    row.end(&failed);
}

/// As [`row_on`], where each variant makes its own test bed, a veth pair in any case.
pub fn row<O: Into<Outcome>>(name: &str, run: impl Fn(Case) -> O + Send + Sync + 'static) {
    if !is_root() {
        return;
    }
    let row = Row::new(name, std::any::type_name_of_val(&run));
    let run = Arc::new(run);
    let mut failed = Vec::new();
    for case in Case::all(&MODES, false) {
        let run = Arc::clone(&run);
        failed.extend(row.attempt(Some(case), move || run(case).into()));
    }
    row.write(
        ["zero-copy", "", ""],
        "skipped",
        "the row needs a veth pair, which has no zero-copy",
    );
    row.end(&failed);
}

/// A row in which no mode, queue or busy-polling takes part.
pub fn row_once<O: Into<Outcome>>(name: &str, run: impl FnOnce() -> O + Send + 'static) {
    if !is_root() {
        return;
    }
    let row = Row::new(name, std::any::type_name_of_val(&run));
    let failed = row.attempt(None, move || run().into());
    row.end(failed.as_slice());
}

struct Row {
    names: Vec<String>,
    /// The test that it is, as in `cargo test`.
    test: String,
}

impl Row {
    /// `closure`: the name of the type of the closure that the test passes, which begins with the name of the test.
    fn new(names: &str, closure: &str) -> Self {
        let names: Vec<String> = names.split(", ").map(str::to_owned).collect();
        let test = closure.split("::{{closure}}").next().unwrap_or(closure);
        if let Some(test) = test.strip_prefix("conformance::") {
            let function = test.rsplit("::").next().unwrap_or(test).to_uppercase();
            assert!(names == [function.as_str()], "the test {test} is the row {names:?}");
        }
        Self {
            names,
            test: test.to_owned(),
        }
    }

    /// Runs one variant, or all there is; tells what failed.
    fn attempt(&self, case: Option<Case>, run: impl FnOnce() -> Outcome + Send + 'static) -> Option<String> {
        let variant = case.map_or("any".into(), |case| case.to_string());
        // Rows on veth pairs, too, wait for the lock of all interfaces while a driver beside them resets its NIC.
        let limit = if device().is_some() { WIRED_LIMIT } else { LIMIT };
        match catch_unwind(AssertUnwindSafe(|| within(limit, run))) {
            Ok(Outcome::Passed { remark }) => self.record(case, "passed", &remark),
            Ok(Outcome::Skipped { reason }) => {
                eprintln!("{} ({variant}): skipped: {reason}", self.test);
                self.record(case, "skipped", &reason);
            }
            Err(panic) if panic.is::<Lacks>() => {
                let reason = panic.downcast_ref::<Lacks>().map_or("", |lacks| lacks.0.as_str());
                eprintln!("{} ({variant}): skipped: {reason}", self.test);
                self.record(case, "skipped", reason);
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text
                    .or_else(|| panic.downcast_ref::<&str>().copied())
                    .unwrap_or("it panicked");
                self.record(case, "failed", text);
                return Some(format!("{variant}: {text}"));
            }
        }
        None
    }

    fn record(&self, case: Option<Case>, outcome: &str, note: &str) {
        self.write(fields(case), outcome, note);
    }

    fn write(&self, [mode, queue, polling]: [&str; 3], outcome: &str, note: &str) {
        let Some(directory) = std::env::var_os("RINGSIDE_CONFORMANCE").filter(|value| !value.is_empty()) else {
            return;
        };
        // One file for each process and one write for each line: nothing is torn, whoever else writes.
        let path = std::path::Path::new(&directory).join(format!("{}.tsv", std::process::id()));
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .expect("a record");
        // What a packet was is of no use in a table.
        let note: String = note
            .lines()
            .next()
            .unwrap_or("")
            .replace('\t', " ")
            .chars()
            .take(NOTE)
            .collect();
        for name in &self.names {
            let line = [name, mode, queue, polling, outcome, &note, &self.test].join("\t");
            file.write_all(format!("{line}\n").as_bytes()).expect("recorded");
        }
    }

    fn end(&self, failed: &[String]) {
        assert!(
            failed.is_empty(),
            "{} failed in:\n  {}",
            self.names.join(", "),
            failed.join("\n  ")
        );
    }
}

/// Mode, queue and polling, as a record has them; of a row without any of these its mode is "any".
fn fields(case: Option<Case>) -> [&'static str; 3] {
    let Some(case) = case else { return ["any", "", ""] };
    [
        case.path.name(),
        if case.queue == 0 { "0" } else { "other" },
        if case.busy_poll { "busy-poll" } else { "plain" },
    ]
}

/// The two interfaces that a row runs on: a veth pair of its own, or the device under test and what it is wired to.
struct Bed {
    lab: Lab,
    /// What the device's ends were set to: MTU, polls without an interrupt, and how long.
    before: Vec<(u32, u32, Duration)>,
}

impl Bed {
    fn make(config: VethConfig) -> Self {
        let Some((interface, peer)) = device() else {
            return Self {
                lab: Lab::veth(config).expect("test bed"),
                before: Vec::new(),
            };
        };
        let lab = Lab::wired(peer, interface).expect("RINGSIDE_TEST_IFACE and RINGSIDE_TEST_PEER name interfaces");
        let before = lab.ends().map(|end| {
            let napi = end.run(|| end.interface.napi()).expect("readable");
            let mtu = end.state().expect("readable").mtu;
            end.run(|| end.interface.set_mtu(config.mtu))
                .expect("an MTU that it takes");
            (mtu, napi.defer_hard_irqs, napi.gro_flush_timeout)
        });
        Self {
            lab,
            before: before.to_vec(),
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for (end, &(mtu, polls, time)) in self.lab.ends().into_iter().zip(&self.before) {
            end.run(|| {
                // Whatever fails, the others are put back.
                _ = end.interface.set_mtu(mtu);
                _ = end.interface.set_napi_defer_hard_irqs(polls);
                _ = end.interface.set_gro_flush_timeout(time);
            });
        }
    }
}

/// The device under test and the interface that it is wired to, if the environment names them.
fn device() -> Option<(&'static str, &'static str)> {
    static DEVICE: OnceLock<Option<(String, String)>> = OnceLock::new();
    let device = DEVICE.get_or_init(|| {
        let named = |variable| std::env::var(variable).ok().filter(|name| !name.is_empty());
        let interface = named("RINGSIDE_TEST_IFACE")?;
        let peer = named("RINGSIDE_TEST_PEER").expect("RINGSIDE_TEST_PEER names what RINGSIDE_TEST_IFACE is wired to");
        Some((interface, peer))
    });
    device
        .as_ref()
        .map(|(interface, peer)| (interface.as_str(), peer.as_str()))
}

/// The device under test for one row at a time: there is but one.
fn turn() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    device().map(|_| TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Whether its packets may be longer than a frame.
fn is_jumbo(end: &End) -> bool {
    end.state().is_ok_and(|state| state.mtu > 4096)
}

/// The programs that pass all packets on, at ends that only send: until the variant has ended.
fn senders() -> MutexGuard<'static, Vec<XdpLink>> {
    static SENDERS: Mutex<Vec<XdpLink>> = Mutex::new(Vec::new());
    SENDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the receiving end's driver has zero-copy: asked once, by trying it.
fn zero_copy() -> Result<(), &'static str> {
    static ANSWER: OnceLock<Result<(), String>> = OnceLock::new();
    let answer = ANSWER.get_or_init(|| {
        let _turn = turn();
        let bed = Bed::make(usual("probe-zc"));
        let end = &bed.lab.b;
        let queue = Queue::builder(&end.interface, 0).mode(Mode::Require(Path::ZeroCopy));
        match end.run(|| queue.open()) {
            Ok(_) => Ok(()),
            Err(Error::Mode { reason, .. }) => {
                let driver = end
                    .run(|| end.interface.driver())
                    .map_or("?".into(), |driver| driver.name);
                // EOPNOTSUPP, and nothing else, says that the driver has none.
                assert!(reason.contains("os error 95"), "{reason}");
                Err(format!("driver {driver}: {reason}"))
            }
            Err(error) => panic!("{error}"),
        }
    });
    answer.as_ref().map(|&()| ()).map_err(String::as_str)
}
