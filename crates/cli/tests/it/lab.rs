//! `ringside lab` on the real kernel: a run with its JSON and report, one that is killed and goes on, what breaks in the middle, and
//! nothing left behind.

mod attachments;
mod broken;
mod cabled;
mod checked;
mod chosen;
mod crossing;
mod ctrl_c;
mod delayed;
mod elsewhere;
mod far_guests;
mod guests;
mod hanging;
mod inside;
mod machines;
mod progress;
mod restarted;
mod steered;
mod stressed;
mod studies;
mod together;
mod undone;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::common;
use crate::common::{Done, PATIENCE, Running, unwrapped};
use ringside_measure::latency::Latency;
use ringside_measure::schema::{Document, LabCell, LabResult, LatencyKind, LoadKind, Outcome};
use ringside_netlab::testing::is_root;
use ringside_netlab::{End, wait_until};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};

/// Each run has threads on both CPUs: two tests at once would only measure each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder that goes with the test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ringside-lab-test-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    /// A lab file in it.
    pub(crate) fn lab(&self, content: &str) -> PathBuf {
        let path = self.0.join("my.toml");
        fs::write(&path, content).expect("written");
        path
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

/// `ringside lab …`, in a folder of its own.
fn start(scratch: &Scratch, line: &str) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
    command.arg("lab").args(line.split_whitespace()).current_dir(&scratch.0);
    Running::new(command)
}

fn run(scratch: &Scratch, line: &str) -> Done {
    start(scratch, line).end()
}

/// The same on the host that has this end.
fn start_at(end: &End, scratch: &Scratch, line: &str) -> Running {
    let mut command = common::ringside(end, &format!("lab {line}"));
    command.current_dir(&scratch.0);
    Running::new(command)
}

const HOSTS: &str = "\
[[host]]
name = \"left\"
cpu = 0
[[host]]
name = \"right\"
[[link]]
ends = [\"left\", \"right\"]
";

fn probe(name: &str, keys: &str) -> String {
    format!("[[probe]]\nname = {name:?}\nfrom = \"left\"\nto = \"right\"\n{keys}\n")
}

/// Namespaces that a process has made and that are still there.
fn namespaces_of(pid: u32) -> Vec<String> {
    let names = fs::read_dir("/run/netns").into_iter().flatten();
    names
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(&format!("rs-{pid}-")))
        .collect()
}

/// The children of a process, whatever they are.
fn children_of(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_ascii_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// Whether a process has ended; whoever has to wait for it may not have done so yet.
fn has_ended(pid: u32) -> bool {
    ringside_nic::process::start_time(pid).is_none()
}

fn assert_nothing_is_left_of(pid: u32) {
    assert_eq!(namespaces_of(pid), Vec::<String>::new());
}

fn result(json: &str) -> LabResult {
    let document: Document = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
    match document.result {
        Outcome::Lab(result) => *result,
        other => panic!("no lab: {other:?}"),
    }
}

/// `ringside lab run my.toml --into run --json`, of which nothing is left.
fn run_whole(scratch: &Scratch, patience: Duration) -> (Done, LabResult) {
    let running = start(scratch, "run my.toml --into run --json");
    let pid = running.pid();
    let done = running.end_within(patience).good();
    assert_nothing_is_left_of(pid);
    let result = result(&done.out);
    (done, result)
}

/// The same, and something of it is there to be tested: a machine that is never quiet is a failure.
fn run_quietly(scratch: &Scratch) -> (Done, LabResult) {
    let (done, result) = run_whole(scratch, PATIENCE);
    quiet(&result);
    (done, result)
}

/// That `ringside lab check` found a file right and the machine lacking, which is no failure of its own; what it said, as one line.
fn cannot_be_run(checked: &Done) -> String {
    let told = unwrapped(&checked.out);
    assert_eq!(checked.status.code(), Some(4), "{checked:#?}");
    assert!(!checked.err.contains("ringside: "), "{checked:#?}");
    assert!(told.contains("It cannot be run here: "), "{told}");
    told
}

/// The cells of which no turn was left out because the machine was given away: without any nothing would be tested.
fn quiet(result: &LabResult) -> Vec<&LabCell> {
    let cells: Vec<_> = result.cells.iter().filter(|cell| cell.turns_left_out == 0).collect();
    assert!(
        !cells.is_empty(),
        "the machine was given away in all cells: {result:#?}"
    );
    cells
}

/// What is measured in a cell, and whether beside loads.
type Row<'c> = (&'c str, LatencyKind, bool);

fn rows<'c>(cells: impl IntoIterator<Item = &'c LabCell>) -> Vec<Row<'c>> {
    let row = |cell: &'c LabCell| {
        (
            cell.path.as_str(),
            cell.latency.kind,
            cell.condition == LoadKind::Foreign,
        )
    };
    cells.into_iter().map(row).collect()
}

/// Each of these idle, and then loaded.
fn idle_and_loaded<'c>(of: &[(&'c str, LatencyKind)]) -> Vec<Row<'c>> {
    of.iter()
        .flat_map(|(path, kind)| [false, true].map(|is_loaded| (*path, *kind, is_loaded)))
        .collect()
}

/// What holds of each cell that was measured.
fn check_cell(cell: &LabCell) {
    if cell.turns_left_out > 0 && cell.unavailable.is_some() {
        // On a machine that is given away while measuring a cell may have no quiet turn, and says so.
        return;
    }
    assert_eq!((&cell.unavailable, cell.failed_turns), (&None, 0), "{cell:#?}");
    let (raw, corrected) = (cell.latency.raw.expect("times"), cell.latency.corrected.expect("times"));
    assert_eq!(raw.samples, cell.probes.received, "{cell:#?}");
    assert_eq!(cell.probes.sent, cell.probes.received + cell.probes.lost, "{cell:#?}");
    // A packet crosses two stacks, and never takes a second.
    assert!(raw.min_ns > 200 && raw.max_ns < 1_000_000_000, "{cell:#?}");
    assert!(corrected.mean_ns >= raw.mean_ns, "{cell:#?}");
    let histogram = Latency::from_hdr(cell.latency.corrected_hdr.as_deref().expect("samples")).expect("read");
    assert_eq!(histogram.samples(), corrected.samples, "{cell:#?}");
    assert_eq!(cell.latency.impossible_packets, 0, "{cell:#?}");
}

#[test]
fn a_short_run_has_a_matrix_json_and_a_report() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let load = "[[load]]\nname = \"stream\"\nkind = \"udp\"\nfrom = \"right\"\nto = \"left\"\nrate = 5000\n";
    let content = [
        "title = \"Three ways & <more>\"\nrounds = 2\nturn = \"300ms\"\nsettle = \"20ms\"\n",
        HOSTS,
        load,
        &probe("udp", "with = \"udp\""),
        &probe(
            "packet",
            "with = \"packet\"\nwait = \"wake-up\"\nsize = 200\nmeasure = [\"one-way\"]",
        ),
        &probe(
            "xsk",
            "with = \"xsk\"\nmode = \"generic\"\nwait = \"spin\"\ncount = 30\nmeasure = [\"rtt\"]",
        ),
    ];
    scratch.lab(&content.concat());
    let (_, result) = run_quietly(&scratch);
    assert_eq!(fs::read_to_string(scratch.path("run/lab.toml")).unwrap(), result.file);
    assert_eq!(
        (result.rounds, result.interrupted, result.base.as_str()),
        (2, false, "udp")
    );
    result.cells.iter().for_each(check_cell);
    let (rtt, one_way) = (LatencyKind::RoundTrip, LatencyKind::OneWay);
    let expected = [("udp", rtt), ("udp", one_way), ("packet", one_way), ("xsk", rtt)];
    assert_eq!(rows(&result.cells), idle_and_loaded(&expected));
    for cell in &result.cells {
        let is_loaded = cell.condition == LoadKind::Foreign;
        assert_eq!(cell.loads.len(), usize::from(is_loaded), "{cell:#?}");
        if let Some(load) = cell.loads.first() {
            // At its rate, give or take what a busy machine makes of it.
            let (sent, received) = (load.sent_pps.expect("counted"), load.received_pps.expect("counted"));
            assert!(sent > 2_000.0 && sent < 8_000.0 && received > 1_000.0, "{load:#?}");
        }
        if cell.path == "xsk" && cell.unavailable.is_none() {
            assert!(cell.probes.sent <= 60, "--count: {cell:#?}");
        }
    }
    let report = fs::read_to_string(scratch.path("run/report.html")).unwrap();
    assert!(
        report.contains("Three ways &amp; &lt;more&gt;") && report.contains("<svg"),
        "{report}"
    );
    assert!(report.contains("packet, one way") && report.contains("The lab file"));
    let again = run(&scratch, "report run -o -").good();
    assert!(again.out.contains("packet, one way, loaded p50"), "{}", again.out);
    let list = run(&scratch, "list --runs .").good();
    assert!(
        list.out.contains("./run  Three ways & <more>, finished"),
        "{}",
        list.out
    );
    let through = run(&scratch, "run my.toml --into run --resume -v").good();
    assert!(
        through.err.contains("it is finished") && through.out.contains("x udp"),
        "{through:#?}"
    );
    run(&scratch, "clean run").good();
    assert!(!scratch.path("run").exists());
}

#[test]
fn the_examples_of_the_help_do_what_they_say() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    scratch.lab(&slow().replace("rounds = 6", "rounds = 1"));
    let help = run(&scratch, "--help").good();
    let (_, examples) = help.out.split_once("Examples:\n").expect("examples");
    let typed: Vec<&str> = examples
        .lines()
        .filter_map(|line| line.trim_start().split("  ").next()?.strip_prefix("ringside lab "))
        .collect();
    assert!(typed.len() >= 8, "{examples}");
    for line in typed {
        let running = start(&scratch, line);
        let pid = running.pid();
        running.end().good();
        assert_nothing_is_left_of(pid);
    }
    let report = fs::read_to_string(scratch.path("run1.md")).expect("a report");
    assert!(report.contains("p, round trip, idle"), "{report}");
}

/// Six turns of a quarter of a second and more.
fn slow() -> String {
    format!(
        "rounds = 6\nturn = \"250ms\"\nsettle = \"1ms\"\n{HOSTS}{}",
        probe("p", "with = \"udp\"\nmeasure = [\"rtt\"]")
    )
}

/// Turns that are on the disk.
fn turns(run: &Path) -> usize {
    let entries = fs::read_dir(run.join("turns")).into_iter().flatten();
    entries
        .filter(|entry| {
            entry
                .as_ref()
                .is_ok_and(|entry| entry.path().extension().is_some_and(|end| end == "json"))
        })
        .count()
}

#[test]
fn a_killed_run_goes_on_where_it_was_and_leaves_nothing() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let file = scratch.lab(&slow());
    let mut running = start(&scratch, "run my.toml");
    let pid = running.pid();
    let folder = || {
        let runs = fs::read_dir(scratch.path("ringside-lab")).ok()?;
        Some(runs.flatten().next()?.path())
    };
    assert!(wait_until(PATIENCE, || folder().is_some_and(|run| turns(&run) >= 2)
        || running.is_over()));
    // It does not end while others look at it.
    running.stop();
    let run_folder = folder().expect("a run");
    let list = run(&scratch, "list").good();
    assert!(list.out.contains("running, "), "{}", list.out);
    let second = run(&scratch, "run my.toml --resume").bad();
    assert!(
        second.contains("another process runs the lab in ringside-lab/my-"),
        "{second}"
    );
    running.signal(libc::SIGKILL);
    let killed = running.end();
    assert!(!killed.status.success() && turns(&run_folder) < 6, "{killed:#?}");
    // Its two namespaces remain, unless the lab of another test removes them meanwhile.
    let names = namespaces_of(pid);
    assert!(names.len() <= 2, "{names:?}");
    let clean = run(&scratch, "clean").good();
    assert!(
        clean.out.contains("-lab-left") || namespaces_of(pid).is_empty(),
        "{clean:#?}"
    );
    assert_nothing_is_left_of(pid);
    // A part of a result is one, too.
    run(&scratch, &format!("report {} -o part.json", run_folder.display())).good();
    let part = result(&fs::read_to_string(scratch.path("part.json")).unwrap());
    assert!(part.interrupted && part.cells.len() == 1, "{part:#?}");
    // Another file is another run.
    fs::write(&file, slow().replace("rounds = 6", "rounds = 7")).unwrap();
    let changed = run(&scratch, "run my.toml --resume").bad();
    assert!(
        changed.contains("is not the one that the run in ringside-lab/my-") && changed.contains("from line 1 on"),
        "{changed}"
    );
    fs::write(&file, slow()).unwrap();
    let (before, first) = (turns(&run_folder), run_folder.join("turns/0001-001.json"));
    let kept = fs::read(&first).unwrap();
    let done = run(&scratch, "run my.toml --resume --json").good();
    let whole = result(&done.out);
    assert!(before >= 2 && turns(&run_folder) == 6);
    assert_eq!(
        fs::read(&first).unwrap(),
        kept,
        "what was measured before is not measured again"
    );
    assert_eq!((whole.rounds, whole.interrupted), (6, false));
    // A turn whose CPU was taken away may have no median.
    assert!((1..=6).contains(&whole.cells[0].rounds.len()), "{whole:#?}");
    check_cell(&whole.cells[0]);
}

#[test]
fn a_link_that_goes_and_a_load_that_dies_end_a_run_with_one_error() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    scratch.lab(&slow());
    let running = start(&scratch, "run my.toml --into gone");
    let pid = running.pid();
    assert!(wait_until(PATIENCE, || turns(&scratch.path("gone")) >= 1));
    let names = namespaces_of(pid);
    let left = names.iter().find(|name| name.ends_with("lab-left")).expect("a host");
    let removed = Command::new("ip").args(["-n", left, "link", "del", "eth0"]).status();
    assert!(removed.is_ok_and(|status| status.success()));
    let told = running.end().bad();
    assert!(
        told.contains("the link at eth0 of the host left is gone: somebody removed it"),
        "{told}"
    );
    assert!(
        told.contains("; kept ") && told.contains("`ringside lab run my.toml --into gone --resume` goes on"),
        "{told}"
    );
    assert_nothing_is_left_of(pid);

    let load = "[[load]]\nname = \"tcp\"\nkind = \"iperf3-tcp\"\nfrom = \"left\"\nto = \"right\"\nbitrate = \"1M\"\n";
    scratch.lab(
        &slow()
            .replace("turn = \"250ms\"", "turn = \"20s\"")
            .replace("[[probe]]", &format!("{load}[[probe]]")),
    );
    // The idle turn has its count, so the loaded one is soon there.
    let file = scratch.path("my.toml");
    let short = fs::read_to_string(&file).unwrap() + "count = 50\nrate = 10\n";
    fs::write(&file, short).unwrap();
    let running = start(&scratch, "run my.toml --into died");
    let pid = running.pid();
    assert!(
        wait_until(PATIENCE, || children_of(pid).len() == 2),
        "{}",
        running.told()
    );
    let children = children_of(pid);
    kill(children[1]);
    let told = running.end().bad();
    assert!(
        told.contains("the load tcp: ") && told.contains("ended in the middle of a turn (signal 9)"),
        "{told}"
    );
    assert_nothing_is_left_of(pid);
    assert!(children.iter().all(|pid| has_ended(*pid)), "{children:?}");

    // A kill takes programs along.
    let mut running = start(&scratch, "run my.toml --into died --resume");
    let pid = running.pid();
    assert!(
        wait_until(PATIENCE, || children_of(pid).len() == 2),
        "{}",
        running.told()
    );
    let children = children_of(pid);
    running.signal(libc::SIGKILL);
    assert!(wait_until(PATIENCE, || running.is_over()));
    let gone = || children.iter().all(|pid| has_ended(*pid));
    assert!(wait_until(PATIENCE, gone), "{children:?}");
    run(&scratch, "clean died").good();
    assert_nothing_is_left_of(pid);
}

fn kill(pid: u32) {
    let status = Command::new("kill")
        .args(["-9", &pid.to_string()])
        .stderr(Stdio::null())
        .status();
    assert!(status.is_ok_and(|status| status.success()), "kill {pid}");
}

/// A file system of some KiB.
struct Small(PathBuf);

impl Small {
    fn mount(path: PathBuf) -> Self {
        fs::create_dir_all(&path).expect("a folder");
        mount("ringside-test", &path, "tmpfs", MountFlags::empty(), Some(c"size=20k")).expect("mounted");
        Self(path)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn a_full_disk_ends_a_run_and_keeps_what_there_is() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let small = Small::mount(scratch.path("small"));
    scratch.lab(&slow().replace("250ms", "30ms"));
    let running = start(&scratch, "run my.toml --into small/run");
    let pid = running.pid();
    let told = running.end().bad();
    assert!(
        told.contains("small/run/turns/0") && told.contains("No space left on device"),
        "{told}"
    );
    assert!(told.contains("make room, then go on with --resume"), "{told}");
    assert_nothing_is_left_of(pid);
    let whole = turns(&scratch.path("small/run"));
    assert!((1..6).contains(&whole), "{whole}");
    let halves = fs::read_dir(scratch.path("small/run/turns")).unwrap().flatten().count();
    assert_eq!(halves, whole, "no half file is left");
    // Room is made, and it goes on.
    mount_remount(&small.0, MountFlags::empty(), "size=4m").expect("remounted");
    run(&scratch, "run my.toml --into small/run --resume").good();
    assert_eq!(turns(&scratch.path("small/run")), 6);
    // No room even for the first file: no folder is left.
    drop(small);
    let full = Small::mount(scratch.path("full"));
    fs::write(scratch.path("full/all"), vec![1; 64 << 10]).expect_err("full");
    let told = run(&scratch, "run my.toml --into full/run").bad();
    assert!(told.contains("No space left on device"), "{told}");
    assert!(!scratch.path("full/run").exists());
    drop(full);
}

#[test]
fn two_labs_at_once_do_not_disturb_each_other() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let load = "[[load]]\nname = \"tcp\"\nkind = \"iperf3-tcp\"\nfrom = \"left\"\nto = \"right\"\nbitrate = \"2M\"\n";
    let content = slow()
        .replace("rounds = 6", "rounds = 1")
        .replace("[[probe]]", &format!("{load}[[probe]]"));
    scratch.lab(&content);
    let both = ["one", "two"].map(|name| start(&scratch, &format!("run my.toml --into {name} --json")));
    for running in both {
        let pid = running.pid();
        let done = running.end().good();
        let result = result(&done.out);
        assert_eq!(result.cells.len(), 2);
        result.cells.iter().for_each(check_cell);
        assert_nothing_is_left_of(pid);
    }
}
