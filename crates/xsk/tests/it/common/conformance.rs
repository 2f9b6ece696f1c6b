//! The conformance list: every row in every mode, on two queues, with and without busy-polling, and what came of it.
//!
//! With `RINGSIDE_CONFORMANCE` set to a directory each variant of a row leaves a line there, from which
//! `scripts/conformance` makes docs/conformance.md. A row runs on veth pairs, or, where `RINGSIDE_TEST_IFACE` and
//! `RINGSIDE_TEST_PEER` name two interfaces that are wired to each other, on those.

use std::fmt;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ringside_bpf::testing::pass;
use ringside_netlab::testing::{is_root, skip_unsupported};
use ringside_netlab::{End, Lab, VethConfig};
use ringside_nic::Steering;
use ringside_nic::changes::{Changes, Undo};
use ringside_xsk::{
    AttachMode, BusyPoll, Direction, Error, Mode, Pages, Path, Port, PortBuilder, Queue, QueueOptions, Wait, XdpLink,
};

use super::PATIENCE;
use super::{MODES, arrives_at, hash_packets, leading_to, try_open};

mod record;

use record::Row;

/// The queue that is not 0.
pub const OTHER: u32 = 2;

/// The same of a device under test: what has several has this one.
const WIRED_OTHER: u32 = 1;

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
                [0, if wired { WIRED_OTHER } else { OTHER }].map(|queue| Self {
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

    /// On a device under test packets come on the queue that the variant is about: on 0 those that no NIC hashes, on another one those that are,
    /// while both ends' tables have no other queue. The answer of a NIC that has no such queue or table.
    fn steer(self, lab: &Lab) -> Result<Option<Steered>, String> {
        if !self.wired || self.queue == 0 {
            return Ok(None);
        }
        let mut undo = Vec::new();
        for end in lab.ends() {
            let queues = end.run(|| end.interface.rx_queues()).expect("readable");
            if queues <= self.queue {
                return Err(format!("the NIC has {queues} queue"));
            }
            let steering = Steering {
                rss: vec![self.queue],
                ..Steering::default()
            };
            match end.run(|| Changes::new().steer(&end.interface, &steering)) {
                Ok((_, put_back)) => undo.push(put_back),
                Err(error) => {
                    return Err(format!(
                        "the NIC cannot be told which queues it has for packets: {error}"
                    ));
                }
            }
        }
        hash_packets(true);
        Ok(Some(Steered { _undo: undo }))
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

    /// A port with the queue under test alone, as the receiving end of a row. Waits up to
    /// [`PATIENCE`] while the kernel gives back the queue of the port before.
    pub fn port(self, end: &End, options: QueueOptions, with: impl FnOnce(PortBuilder) -> PortBuilder + Send) -> Port {
        let options = self.options(options).busy_timeout(PATIENCE);
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

    /// A queue without a program of its own. Waits for it as [`Case::port`] does.
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
            let options = self.options(options.clone()).busy_timeout(PATIENCE);
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

/// While it lives packets are hashed, and all come on one queue.
struct Steered {
    _undo: Vec<Undo>,
}

impl Drop for Steered {
    fn drop(&mut self) {
        hash_packets(false);
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
        let steered = match case.steer(&bed.lab) {
            Ok(steered) => steered,
            Err(reason) => {
                row.record(Some(case), "skipped", &reason);
                continue;
            }
        };
        case.set_napi(&bed.lab);
        let (run, bed) = (Arc::clone(&run), Arc::clone(&bed));
        failed.extend(row.attempt(Some(case), move || run(&bed.lab, case).into()));
        senders().clear();
        drop(steered);
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
    let elsewhere = device().is_some() && row.names.iter().all(|name| WIRED.contains(&name.as_str()));
    if !elsewhere {
        row.write(
            ["zero-copy", "", ""],
            "skipped",
            "the row needs a veth pair, which has no zero-copy",
        );
    }
    row.end(&failed);
}

/// Rows on veth pairs that the device under test has with zero-copy, by other tests: [`row_wired`].
const WIRED: [&str; 6] = [
    "K6",
    "K12",
    "KILL_UNDER_TRAFFIC",
    "DOWN_AND_UP",
    "INTERFACE_REMOVED",
    "MOVED_TO_ANOTHER_NAMESPACE",
];

/// The part with zero-copy, on the device under test, of a row that is a [`row`] otherwise: on queue 0. What a variant has broken it mends, for
/// the next test has the same device.
pub fn row_wired<O: Into<Outcome>>(name: &str, run: impl Fn(&Lab, Case) -> O + Send + Sync + 'static) {
    if !is_root() {
        return;
    }
    assert!(device().is_some(), "RINGSIDE_TEST_IFACE names the device under test");
    let row = Row::new(name, std::any::type_name_of_val(&run));
    if let Err(answer) = zero_copy() {
        row.write(["zero-copy", "", ""], "skipped", answer);
        return skip_unsupported(&format!("zero-copy: {answer}"));
    }
    let _turn = turn();
    let run = Arc::new(run);
    let mut failed = Vec::new();
    for case in Case::all(&[Path::ZeroCopy], true).filter(|case| case.queue == 0) {
        // An interface that came back is another one.
        let bed = Bed::make(usual("wired"));
        case.set_napi(&bed.lab);
        let (run, bed) = (Arc::clone(&run), Arc::new(bed));
        failed.extend(row.attempt(Some(case), move || run(&bed.lab, case).into()));
        senders().clear();
    }
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
