//! What the tests of the binary share: a test bed, the program in it, and what it printed.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(unreachable_pub, reason = "shared by test binaries, not an API")]

pub mod frames;
pub mod live;

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringside_measure::schema::{Document, Outcome, RunResult};
use ringside_netlab::{End, Lab, Namespace, VethConfig, wait_until};
use ringside_xsk::{Direction, Mode, Path, Port, PortBuilder, Queue, QueueOptions};

/// Longer than anything here takes: what is not done by then hangs.
pub const PATIENCE: Duration = Duration::from_secs(45);

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
pub fn ringside(end: &End, arguments: &str) -> Command {
    let mut command = end.ns.command(env!("CARGO_BIN_EXE_ringside"));
    command.args(words(end, arguments)).env_remove("SSH_CONNECTION");
    command
}

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
    let running = start(end, arguments);
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
        fs::copy(env!("CARGO_BIN_EXE_ringside"), &copy).expect("copy");
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("permissions");
        copy
    });
    copy.clone()
}

/// A process that was started by a test; killed when the test ends before it.
pub struct Running {
    what: String,
    child: Child,
    readers: Vec<JoinHandle<()>>,
    out: Arc<Mutex<Vec<u8>>>,
    err: Arc<Mutex<Vec<u8>>>,
}

impl Running {
    pub fn new(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let (out, err) = (Arc::default(), Arc::default());
        let readers = vec![
            collect(child.stdout.take().expect("piped"), &out),
            collect(child.stderr.take().expect("piped"), &err),
        ];
        let what = command
            .get_args()
            .map(|word| word.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" ");
        Self {
            what,
            child,
            readers,
            out,
            err,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What standard error holds by now.
    pub fn told(&self) -> String {
        String::from_utf8_lossy(&self.err.lock().unwrap()).into_owned()
    }

    /// Waits until standard error holds `text`.
    pub fn wait_for(&self, text: &str) {
        self.wait_for_times(text, 1);
    }

    /// Waits until standard error holds `text` so many times.
    pub fn wait_for_times(&self, text: &str, times: usize) {
        self.wait_until(&format!("{times} times {text:?}"), |err| {
            err.matches(text).count() >= times
        });
    }

    /// Waits until standard error is as wanted.
    pub fn wait_until(&self, what: &str, is_there: impl Fn(&str) -> bool) {
        assert!(
            wait_until(PATIENCE, || is_there(&self.told())),
            "{}: not {what} in: {}",
            self.what,
            self.told()
        );
    }

    pub fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.child.id()).expect("small");
        // SAFETY: no memory is involved. The child has not been waited for, so its number is still its own.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "{}: kill", self.what);
    }

    /// As Ctrl-C; then waits for the end.
    pub fn interrupt(self) -> Done {
        self.signal(libc::SIGINT);
        self.end()
    }

    pub fn is_over(&mut self) -> bool {
        self.child.try_wait().expect("waits").is_some()
    }

    /// Waits for the end.
    pub fn end(mut self) -> Done {
        let begin = Instant::now();
        let over = wait_until(PATIENCE, || self.is_over());
        if !over {
            panic!("{}: still running after {PATIENCE:?}: {}", self.what, self.told());
        }
        let status = self.child.wait().expect("is over");
        for reader in self.readers.drain(..) {
            reader.join().expect("reads");
        }
        let text = |bytes: &Mutex<Vec<u8>>| String::from_utf8(bytes.lock().unwrap().clone()).expect("UTF-8");
        Done {
            what: self.what.clone(),
            status,
            took: begin.elapsed(),
            out: text(&self.out),
            err: text(&self.err),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn collect(mut from: impl Read + Send + 'static, to: &Arc<Mutex<Vec<u8>>>) -> JoinHandle<()> {
    let to = Arc::clone(to);
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(bytes @ 1..) = from.read(&mut piece) {
            to.lock().unwrap().extend_from_slice(&piece[..bytes]);
        }
    })
}

/// What a run of the binary left behind.
#[derive(Debug)]
pub struct Done {
    pub what: String,
    pub status: ExitStatus,
    /// From the call that waited for it.
    pub took: Duration,
    pub out: String,
    pub err: String,
}

impl Done {
    /// Asserts that it ended well.
    pub fn good(self) -> Self {
        assert!(self.status.success(), "{self:#?}");
        assert!(!self.err.contains("panicked"), "{self:#?}");
        self
    }

    /// Asserts that it failed with a message for people, and returns that.
    ///
    /// That is the last paragraph of standard error; what comes before is the report of what was opened.
    pub fn bad(&self) -> String {
        assert!(!self.status.success(), "{self:#?}");
        assert_eq!(self.status.signal(), None, "{self:#?}");
        for ugly in ["panicked", "backtrace", "unwrap", "Error {", "Some("] {
            assert!(!self.err.contains(ugly), "{self:#?}");
        }
        let at = self.err.rfind("ringside: ").or_else(|| self.err.rfind("error: "));
        let message = self.err[at.unwrap_or_else(|| panic!("no message: {self:#?}"))..].trim_end();
        // The parser of the command line shows usage and help in paragraphs of their own.
        let message = match message.split_once("\n\n") {
            Some((first, more)) if message.starts_with("error: ") && more.ends_with("try '--help'.") => first,
            _ => message,
        };
        assert!(!message.contains("\n\n"), "more than a paragraph: {self:#?}");
        message.to_owned()
    }

    /// As [`Done::bad`]; and it told nothing else, because nothing was opened.
    pub fn refused(&self) -> String {
        let message = self.bad();
        // On a busy machine the kernel may still be clearing up behind the test before.
        let told = self
            .err
            .lines()
            .find(|line| !line.contains("; waiting "))
            .unwrap_or_default();
        assert!(message.starts_with(told), "more than the message: {self:#?}");
        assert_eq!(self.out, "", "{self:#?}");
        message
    }

    /// What `--json` printed.
    pub fn document(&self) -> Document {
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

/// All counted losses.
pub fn losses(result: &RunResult) -> u64 {
    result.packets.losses.iter().map(|loss| loss.count).sum()
}

/// Asserts that the counts of a run add up.
pub fn assert_reconciles(result: &RunResult) {
    assert_eq!(result.unaccounted_packets, 0, "{result:#?}");
    assert!(result.packets.reconciles(), "{result:#?}");
}
