//! The list in a guest, on two NICs of its own that are wired to each other: zero-copy, and the NIC's driver with native and generic XDP.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use ringside_netlab::guest::{Agent, Guest, GuestConfig, Kernel, Model};
use ringside_netlab::testing::is_root;

/// For one module's rows on emulated CPUs, on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_mins(40);

/// How often it is told what has come.
const LOOK: Duration = Duration::from_secs(15);

/// The modules of this binary whose tests are rows.
const MODULES: [&str; 12] = [
    "basic",
    "drivers",
    "facts",
    "faults",
    "libxdp",
    "metadata",
    "multi_buffer",
    "programs",
    "rings",
    "shared",
    "stats",
    WIRED,
];

/// Rows that are only had on a NIC, and ignored elsewhere.
const WIRED: &str = "wired";

/// The kernel whose interrupts are threads and whose locks sleep.
const PREEMPT_RT: &str = "linux-image-rt-amd64/trixie-backports";

/// What came of the rows goes to `RINGSIDE_CONFORMANCE`, from which `table::guests::write_guests` makes a document.
#[test]
#[ignore = "make test-guests runs it"]
fn virtio_net() {
    run("virtio-net", None, Model::VirtioNet, 1);
}

#[test]
#[ignore = "make test-guests runs it"]
fn igb() {
    // Most of the time goes by while a link comes back, which takes a second or two each time that a program comes or goes.
    run("igb", None, Model::Igb, 3);
}

#[test]
#[ignore = "make test-guests runs it"]
fn preempt_rt() {
    run("preempt-rt", Some(PREEMPT_RT), Model::VirtioNet, 1);
}

/// What is to be run: binaries, each with the words that choose its tests, with a `+` between them. Those of `RINGSIDE_TEST_BINARIES`
/// (`PATH=WORDS:PATH=WORDS…`) are rows that are not in this binary.
fn all() -> Vec<(PathBuf, String)> {
    let own = Agent::test_binary().expect("this binary").program;
    let mut all: Vec<_> = MODULES
        .map(|module| (own.clone(), format!("conformance::{module}::")))
        .to_vec();
    let others = std::env::var("RINGSIDE_TEST_BINARIES").unwrap_or_default();
    all.extend(others.split(':').filter_map(|other| {
        let (path, words) = other.split_once('=')?;
        Some((path.into(), words.to_owned()))
    }));
    // To look into some: RINGSIDE_ROWS=basic::poll_tx+k4
    if let Ok(wanted) = std::env::var("RINGSIDE_ROWS") {
        let binaries: std::collections::BTreeSet<PathBuf> = all.iter().map(|(path, _)| path.clone()).collect();
        all = binaries.into_iter().map(|path| (path, wanted.clone())).collect();
    }
    all
}

fn boot(name: &str, kernel: Kernel, (model, pairs): (Model, usize), others: Vec<PathBuf>) -> Guest {
    let agent = Agent::test_binary().expect("this binary");
    let own = agent.program.clone();
    let mut config = GuestConfig::new(name, kernel, agent);
    for _ in 0..pairs {
        config = config.back_to_back(model);
    }
    // Network namespaces and what these rows need in them.
    config.modules = ["veth", "xsk_diag"].map(str::to_owned).to_vec();
    // Zero-copy drivers take frames across pages only on huge ones.
    let huge_pages = 96 * pairs;
    config.memory_mib = 768 + 256 * u32::try_from(pairs).expect("few");
    config.kernel_arguments = [format!("hugepages={huge_pages}")].to_vec();
    config.programs = ["cat", "ethtool", "ip", "mkdir", "prlimit", "setpriv", "sh"]
        .map(PathBuf::from)
        .to_vec();
    config.programs.push(own);
    config.programs.extend(others);
    let guest = Guest::start(&config).expect("a guest");
    eprintln!(
        "{name}, Linux {} on {}, ready after {:?}",
        guest.release(),
        guest.accelerator().name(),
        guest.boot_time()
    );
    // No packets of the kernel's own; and all that a NIC hashes come on queue 0.
    let script = "set -e; mkdir /tmp/records
        for end in $(cd /sys/class/net && echo eth*); do
            echo 1 > /proc/sys/net/ipv6/conf/$end/disable_ipv6
            ip link set $end up
            ethtool -X $end equal 1 || echo $end has one queue
        done
        cat /proc/meminfo";
    let done = guest.command("sh").args(["-c", script]).output().expect("runs");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.success() && said.contains(&format!("HugePages_Free:    {huge_pages:5}")),
        "{done:?}"
    );
    guest
}

/// On so many pairs of NICs at the same time, of which each has the rows of one binary or module after the other.
fn run(nic: &str, kernel: Option<&str>, model: Model, pairs: usize) {
    if !is_root() {
        return;
    }
    let named = kernel.map_or_else(Kernel::usual, Kernel::named);
    let what = &all();
    let others = what.iter().map(|(path, _)| path.clone()).collect();
    let guest = boot(nic, named.expect("a kernel for guests"), (model, pairs), others);
    if kernel == Some(PREEMPT_RT) {
        let version = guest.command("cat").arg("/proc/version").output().expect("runs");
        let version = String::from_utf8_lossy(&version.stdout);
        assert!(version.contains("PREEMPT_RT"), "{version}");
    }
    let folder = std::env::var_os("RINGSIDE_CONFORMANCE").expect("RINGSIDE_CONFORMANCE names the directory of records");
    let folder = Path::new(&folder).join(nic);
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("kernel"), guest.release()).expect("written");
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (ended, wait) = mpsc::channel::<()>();
        let (guest, folder, next) = (&guest, &folder, &next);
        // What has come so far is there, and told, also while a row takes long and when this is ended before its time.
        scope.spawn(move || {
            let mut seen = String::new();
            while wait.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let records = told(guest);
                for line in records.lines().filter(|line| !seen.contains(line)) {
                    eprintln!("{line}");
                }
                fs::write(folder.join("rows.tsv"), &records).expect("written");
                seen = records;
            }
        });
        for pair in 0..pairs {
            // The last one's end, also by a panic, ends the thread above.
            let ended = ended.clone();
            scope.spawn(move || {
                while let Some((binary, words)) = what.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // What failed is in the records, too: `table::guests::write_guests` compares it with what is known.
                    rows(guest, pair, binary, words);
                }
                drop(ended);
            });
        }
    });
    let records = told(&guest);
    fs::write(folder.join("rows.tsv"), &records).expect("written");
    let zero_copy = |line: &str| line.contains("\tzero-copy\t0\t") && line.contains("\tpassed\t");
    // Some rows alone may be such that zero-copy does not have.
    let is_whole = std::env::var_os("RINGSIDE_ROWS").is_none();
    assert!(!is_whole || records.lines().any(zero_copy), "{records}");
}

/// Runs the rows of a binary whose names contain one of some words, on one pair of NICs, and shows what they said.
fn rows(guest: &Guest, pair: usize, binary: &Path, words: &str) {
    let begin = Instant::now();
    let tests = guest.command(binary).args(["--test-threads=1", "--nocapture"]);
    let tests = tests.args(words.split('+').filter(|word| !word.is_empty()));
    let tests = match words.contains(WIRED) {
        true => tests.args(["--ignored"]),
        false => tests,
    };
    let tests = tests
        .env("RINGSIDE_CONFORMANCE", "/tmp/records")
        .env("RINGSIDE_STRICT", "1")
        .env(
            "RINGSIDE_POLLING",
            std::env::var("RINGSIDE_POLLING").unwrap_or_default(),
        )
        .env("RINGSIDE_TEST_IFACE", format!("eth{}", 2 * pair + 1))
        .env("RINGSIDE_TEST_PEER", format!("eth{}", 2 * pair));
    let done = tests.limit(PATIENCE).output().expect("ends");
    for said in [&done.stdout, &done.stderr] {
        eprintln!("{}", String::from_utf8_lossy(said));
    }
    eprintln!("{words}: {:?}", begin.elapsed());
}

/// The records of all rows that have run.
fn told(guest: &Guest) -> String {
    let all = guest.command("sh").args(["-c", "cat /tmp/records/* || true"]).output();
    String::from_utf8(all.expect("runs").stdout).expect("text")
}
