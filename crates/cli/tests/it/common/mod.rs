//! What the tests of the binary share: a test bed, the program in it, and what it printed.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(unreachable_pub, reason = "shared by test binaries, not an API")]

pub mod frames;
pub mod live;
pub mod load;
pub mod process;
pub mod ptp;

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use ringside_measure::schema::{Document, Outcome, RunResult};
use ringside_netlab::{End, Lab, Namespace, VethConfig};
use ringside_xsk::{Direction, Mode, Path, Port, PortBuilder, Queue, QueueOptions};
use serde_json::Value;

pub use self::process::{Done, PATIENCE, Running};

/// The modes that a veth offers, as the command line names them.
pub const MODES: [&str; 2] = ["native", "generic"];

/// Two hosts and a veth pair with so many queues. No IPv6, hence no packets but the test's.
pub fn lab(tag: &str, queues: u32) -> Lab {
    lab_with(VethConfig {
        queues,
        ipv6: false,
        ..VethConfig::tagged(tag)
    })
}

pub fn lab_with(config: VethConfig) -> Lab {
    // With GRO a veth receives through NAPI whether or not an XDP program is attached.
    Lab::veth(VethConfig { gro: true, ..config }).expect("test bed")
}

/// Three hosts in a row: what comes in on `in` of the middle one may leave by `out`.
pub struct Row {
    pub left: Lab,
    pub right: Lab,
}

pub fn row(tag: &str) -> Row {
    row_with(tag, [1, 1], 1500)
}

/// With so many queues on each of the two links.
pub fn row_with(tag: &str, queues: [u32; 2], mtu: u32) -> Row {
    row_of(tag, queues, mtu, [1, 2])
}

/// As one network, for hosts with a wire between them: the outer two have each other's addresses, and the middle one's ends
/// those of the host behind.
pub fn wire(tag: &str) -> Row {
    row_of(tag, [1, 1], 1500, [1, 1])
}

/// With a router of the kernel's in the middle.
pub fn routed(tag: &str) -> Row {
    let row = row(tag);
    row.left
        .b
        .run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("forwarding"));
    for (end, by) in [(&row.left.a, &row.left.b), (&row.right.b, &row.right.a)] {
        let mut command = end.ns.command("ip");
        command.args(["route", "add", "default", "via", &by.ipv4.to_string()]);
        let done = command.output().expect("ip");
        assert!(done.status.success(), "{done:?}");
    }
    row
}

fn row_of(tag: &str, queues: [u32; 2], mtu: u32, subnets: [u8; 2]) -> Row {
    let [left, middle, right] =
        ["l", "m", "r"].map(|end| Namespace::create(&format!("{tag}-{end}")).expect("namespace"));
    let config = |subnet: u8, queues, names: [&str; 2]| VethConfig {
        subnet,
        queues,
        mtu,
        ipv6: false,
        gro: true,
        ..VethConfig::named(names[0], names[1])
    };
    Row {
        left: Lab::join(&left, &middle, config(subnets[0], queues[0], ["far", "in"])).expect("link"),
        right: Lab::join(&middle, &right, config(subnets[1], queues[1], ["out", "far"])).expect("link"),
    }
}

/// The binary, to be run in the namespace of `end`, with arguments as one writes them in a shell, `{}` being the
/// interface's name.
///
/// Adds `--wait poll` to commands of [`WAITING`] unless the arguments have `--wait`: the default is
/// to spin, which takes a CPU from concurrent tests. Adds `--timeout 5` to `ping` unless the arguments
/// have it: by default an answer is late after a second, for which a virtual machine can lose its CPUs.
pub fn ringside(end: &End, arguments: &str) -> Command {
    let mut command = end.ns.command(env!("CARGO_BIN_EXE_ringside"));
    command.args(words(end, arguments)).env_remove("SSH_CONNECTION");
    let waits = arguments
        .split_once(' ')
        .is_some_and(|(name, _)| WAITING.contains(&name));
    if waits && !arguments.contains("--wait") && !arguments.contains(" -w") {
        command.args(["--wait", "poll"]);
    }
    if arguments.starts_with("ping ") && !arguments.contains("--timeout") {
        command.args(["--timeout", "5"]);
    }
    command
}

/// Commands with the option `--wait`.
const WAITING: [&str; 6] = ["rx", "tx", "fwd", "echo", "ping", "impair"];

pub fn words(end: &End, arguments: &str) -> Vec<String> {
    arguments
        .replace("{}", end.interface.name())
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

/// Starts the binary, both outputs read as they come.
pub fn start(end: &End, arguments: &str) -> Running {
    Running::new(ringside(end, arguments))
}

/// Starts it, and waits until it has its sockets and program in place.
pub fn start_receiver(end: &End, arguments: &str) -> Running {
    let running = start(end, arguments).receiving();
    running.wait_for("XDP program ringside_xsk");
    running
}

/// Runs it to its end.
pub fn run(end: &End, arguments: &str) -> Done {
    start(end, arguments).end()
}

/// The binary where everybody may run it.
pub fn readable_copy() -> PathBuf {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    let copy = COPY.get_or_init(|| {
        let name = concat!("ringside-of-", env!("CARGO_CRATE_NAME"));
        let copy = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        ringside_netlab::testing::copy_program(env!("CARGO_BIN_EXE_ringside"), &copy);
        copy
    });
    copy.clone()
}

/// Keeps a document for the validation by its schema, if scripts/test names a folder.
pub fn keep(json: &str) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let Some(folder) = std::env::var_os("RINGSIDE_RESULTS") else {
        return;
    };
    // What is no document is the caller's to report.
    let document: Value = serde_json::from_str(json).unwrap_or_default();
    let schema = document["schema"].as_str().unwrap_or("none").replace('/', "-");
    let number = COUNT.fetch_add(1, Relaxed);
    let name = format!("{schema}-{}-{number}.json", std::process::id());
    std::fs::write(PathBuf::from(folder).join(name), json).expect("written");
}

impl Done {
    /// Returns the result that `--json` printed.
    pub fn document(&self) -> Document {
        Document::from_value(self.json()).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// Returns what `--json` printed.
    pub fn json(&self) -> Value {
        keep(&self.out);
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    pub fn result(&self) -> RunResult {
        match self.document().result {
            Outcome::Run(result) => *result,
            other => panic!("not a run: {other:?}"),
        }
    }
}

/// What an interface is like apart from its counters, to see whether a run has changed something.
#[derive(Debug, PartialEq, Eq)]
pub struct Settings {
    mtu: u32,
    admin_up: bool,
    queues: (u32, u32),
    features: Vec<(String, bool)>,
    flags: String,
}

impl Settings {
    /// Whether an offload is in force.
    pub fn features_named(&self, name: &str) -> bool {
        self.features.iter().any(|(feature, active)| feature == name && *active)
    }
}

pub fn settings(end: &End) -> Settings {
    end.run(|| {
        let state = end.interface.state().expect("state");
        let features = end.interface.features().expect("features");
        let flags = format!("/sys/class/net/{}/flags", end.interface.name());
        Settings {
            mtu: state.mtu,
            admin_up: state.admin_up,
            queues: (
                end.interface.rx_queues().expect("queues"),
                end.interface.tx_queues().expect("queues"),
            ),
            features: features
                .into_iter()
                .map(|feature| (feature.name, feature.active))
                .collect(),
            flags: std::fs::read_to_string(flags).expect("flags"),
        }
    })
}

/// Asserts that nothing of a run is left on an interface: no XDP program, and each queue can be bound.
pub fn assert_clean(end: &End) {
    let state = end.state().expect("interface");
    assert_eq!(state.xdp, None, "an XDP program is left on {}", end.interface.name());
    if !state.admin_up {
        return;
    }
    end.run(|| {
        for queue in 0..end.interface.rx_queues().expect("queues") {
            // The kernel gives a queue back when it comes to it. Transmit only: whatever the MTU is.
            let patient = QueueOptions::new()
                .direction(Direction::Transmit)
                .busy_timeout(PATIENCE);
            if let Err(error) = Queue::builder(&end.interface, queue).options(patient).open() {
                panic!("queue {queue} was not given back: {error}");
            }
        }
    });
}

/// A port of the library's on one end, as the other side of a test.
pub fn port(end: &End, with: impl FnOnce(PortBuilder) -> PortBuilder + Send) -> Port {
    let builder = Port::builder(end.interface.clone()).mode(Mode::Require(Path::NativeCopy));
    end.run(|| with(builder).open()).expect("port opens")
}

/// Joins the lines of a wrapped text. The position of line breaks depends on the figures in it.
pub fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// All counted losses.
pub fn losses(result: &RunResult) -> u64 {
    result.packets.losses.iter().map(|loss| loss.count).sum()
}

/// Asserts that the counts of a run add up.
pub fn assert_reconciles(result: &RunResult) {
    assert_eq!(result.unaccounted_packets, 0, "{result:#?}");
    assert!(result.packets.reconciles(), "{result:#?}");
}
