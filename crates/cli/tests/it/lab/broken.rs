//! What ends a lab in the middle, and what is there afterwards: nothing of the lab, and all that was measured. The way without guests; with them it is
//! `together.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ringside_measure::schema::{LabResult, LatencyKind, LoadKind};
use ringside_netlab::End;
use ringside_netlab::testing::{expect, measured};

use super::together::folders_of;
use super::*;

/// A directory for changes of its own: nobody else's start puts back what a killed lab of these tests has left.
pub(super) struct State(PathBuf);

impl State {
    pub(super) fn new(scratch: &Scratch) -> Self {
        let path = scratch.path("state");
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    pub(super) fn start(&self, scratch: &Scratch, line: &str) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
        command
            .arg("lab")
            .args(line.split_whitespace())
            .current_dir(&scratch.0)
            .env(STATE_DIR, &self.0);
        Running::new(command)
    }

    /// Nothing is left of a run, nor of what it had started.
    pub(super) fn assert_nothing_is_left_of(&self, pid: u32, children: &[u32]) {
        assert_nothing_is_left_of(pid);
        assert!(children.iter().all(|pid| has_ended(*pid)), "{children:?}");
        assert_eq!((folders_of(pid), self.changes()), (Vec::new(), Vec::new()));
    }

    fn start_at(&self, end: &End, scratch: &Scratch, line: &str) -> Running {
        let mut command = common::ringside(end, &format!("lab {line}"));
        command.current_dir(&scratch.0).env(STATE_DIR, &self.0);
        Running::new(command)
    }

    /// Files of processes that have changed something.
    pub(super) fn changes(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).expect("a folder").flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.starts_with("changes-")).collect()
    }
}

const STATE_DIR: &str = ringside_nic::changes::STATE_DIR;

/// CPUs that queue 0 of an interface spreads its packets over, as the kernel writes them.
pub(super) fn rps(end: &End) -> String {
    let path = format!("/sys/class/net/{}/queues/rx-0/rps_cpus", end.interface.name());
    let text = end.run(|| fs::read_to_string(path).expect("a queue"));
    text.trim().trim_start_matches(['0', ',']).to_owned()
}

#[test]
fn clean_puts_back_what_a_killed_lab_has_steered() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let state = State::new(&scratch);
    let hosts = common::lab("lab-steered", 1);
    let server = common::start(&hosts.b, "serve {} --insecure");
    server.wait_for("UDP port");
    // One interface is there afterwards, the other goes with the lab.
    let steering = |name: &str, at: &str| format!("[[steering]]\nname = {name:?}\n{at}\nrps = [\"0=1\"]\n");
    let content = [
        "rounds = 1\nturn = \"60s\"\nsettle = \"1ms\"\n",
        HOSTS,
        "[[host]]\nname = \"me\"\nplace = \"here\"\n",
        &format!("[[host]]\nname = \"far\"\nserve = \"{}\"\n", hosts.b.ipv4),
        &steering(
            "mine",
            &format!("host = \"me\"\ninterface = {:?}", hosts.a.interface.name()),
        ),
        &steering("theirs", "host = \"right\""),
    ]
    .concat();
    let own = "[[probe]]\nname = \"p\"\nfrom = \"me\"\nto = \"far\"\nwith = \"udp\"\nsteering = [\"mine\"]\n";
    let inside = probe("p", "with = \"udp\"\nmeasure = [\"rtt\"]\nsteering = [\"theirs\"]");
    assert_eq!(rps(&hosts.a), "");
    for (probe, stays) in [(own, true), (&inside, false)] {
        scratch.lab(&(content.clone() + probe));
        let mut running = state.start_at(&hosts.a, &scratch, "run my.toml --into run");
        let pid = running.pid();
        let is_steered = || match stays {
            true => rps(&hosts.a) == "2",
            false => !state.changes().is_empty(),
        };
        assert!(
            wait_until(PATIENCE, || is_steered() || running.is_over()) && is_steered(),
            "{}",
            running.told()
        );
        assert_eq!(namespaces_of(pid).len(), 2);
        running.signal(libc::SIGKILL);
        let killed = running.end();
        assert!(!killed.status.success(), "{killed:#?}");
        // Nobody is there to put it back.
        assert_eq!(state.changes().len(), 1);
        assert_eq!(rps(&hosts.a), if stays { "2" } else { "" });
        let clean = state.start_at(&hosts.a, &scratch, "clean run").end().good();
        assert_eq!(rps(&hosts.a), "", "{clean:#?}");
        if stays {
            assert!(
                clean.err.contains("RPS CPUs of receive queue 0 (none → 1): restored"),
                "it says what it has put back: {clean:#?}"
            );
        }
        assert_eq!(state.changes(), [""; 0], "{clean:#?}");
        assert_nothing_is_left_of(pid);
        assert!(!scratch.path("run").exists());
        let again = state.start_at(&hosts.a, &scratch, "clean").end().good();
        assert_eq!(again.err, "", "there is no more to do");
    }
    drop(server);
    common::assert_clean(&hosts.a);
}

#[test]
fn a_link_that_goes_takes_its_steering_along() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let state = State::new(&scratch);
    let steering = "[[steering]]\nname = \"there\"\nhost = \"right\"\nrps = [\"0=1\"]\nqueue = 0\ncpu = 1\n\
                    [[steering]]\nname = \"counted\"\nhost = \"left\"\nqueue = 0\n";
    let content = [
        "rounds = 500\nturn = \"100ms\"\nsettle = \"1ms\"\n",
        HOSTS,
        steering,
        &probe(
            "p",
            "with = \"udp\"\nmeasure = [\"rtt\"]\nsteering = [\"there\", \"counted\"]",
        ),
    ];
    scratch.lab(&content.concat());
    let mut running = state.start(&scratch, "run my.toml --into run");
    let pid = running.pid();
    let is_at_it = || turns(&scratch.path("run")) >= 1 && !state.changes().is_empty();
    assert!(
        wait_until(PATIENCE, || is_at_it() || running.is_over()),
        "{}",
        running.told()
    );
    let names = namespaces_of(pid);
    let right = names.iter().find(|name| name.ends_with("lab-right")).expect("a host");
    remove_link(right, "eth0");
    let done = running.end();
    let told = done.bad();
    assert!(
        told.contains(" is gone: somebody removed it") && told.contains("--resume` goes on"),
        "{told}"
    );
    assert_eq!(done.err.matches("ringside: ").count(), 1, "one error: {}", done.err);
    assert_nothing_is_left_of(pid);
    assert_eq!(state.changes(), [""; 0], "nothing is to be put back any more");
}

/// As somebody does who is in the wrong place.
pub(super) fn remove_link(namespace: &str, interface: &str) {
    let removed = Command::new("ip")
        .args(["-n", namespace, "link", "del", interface])
        .status();
    assert!(
        removed.is_ok_and(|status| status.success()),
        "{interface} in {namespace}"
    );
}

/// What a result is, apart from its figures.
fn shape(result: &LabResult) -> String {
    let mut result = result.clone();
    // Depends on the machine and on chance. So does how many rounds have a figure: a round without
    // an answer has none.
    result.warnings.clear();
    let cells: Vec<_> = result
        .cells
        .iter()
        .map(|cell| {
            let loads: Vec<&str> = cell.loads.iter().map(|load| load.name.as_str()).collect();
            (
                (&cell.path, cell.latency.kind, cell.condition, &cell.description),
                (cell.failed_turns, loads, cell.ratio_to_idle.is_some()),
                (cell.latency.corrected.is_some(), cell.latency.corrected_hdr.is_some()),
                (cell.ratio_to_base.is_some(), &cell.base, cell.steering.len()),
            )
        })
        .collect();
    let stages: Vec<_> = result
        .stages
        .iter()
        .map(|one| (&one.path, one.condition, one.is_round_trip, one.traced.is_some()))
        .collect();
    let about = (&result.title, result.rounds, result.turn_ns, &result.base);
    format!(
        "{about:#?} {} {cells:#?} {stages:#?} {:#?} {}",
        result.interrupted, result.machines, result.file
    )
}

/// The files of turns and stages, and what is in them; without those that are being written, which are named otherwise until they are whole.
fn parts(run: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let folders = ["turns", "stages"]
        .into_iter()
        .filter_map(|name| fs::read_dir(run.join(name)).ok());
    let files = folders.flatten().flatten().map(|entry| entry.path());
    files
        .filter(|path| path.extension().is_some_and(|extension| extension != "part"))
        .map(|path| (path.clone(), fs::read(&path).expect("a file")))
        .collect()
}

#[test]
fn what_is_interrupted_and_goes_on_ends_as_what_was_not() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let load = "[[load]]\nname = \"stream\"\nkind = \"udp\"\nfrom = \"right\"\nto = \"left\"\nrate = 2000\n";
    let content = [
        "rounds = 4\nturn = \"200ms\"\nsettle = \"5ms\"\n",
        HOSTS,
        load,
        &probe("udp", "with = \"udp\"\nmeasure = [\"rtt\", \"one-way\"]\ntrace = true"),
        &probe("packet", "with = \"packet\"\nmeasure = [\"rtt\"]\nloads = []"),
    ];
    scratch.lab(&content.concat());
    measured(|| {
        for folder in ["whole", "run"] {
            _ = fs::remove_dir_all(scratch.path(folder));
        }
        let whole = result(&run(&scratch, "run my.toml --into whole --json").good().out);
        // Ctrl-C in a turn, and in what was left then; seconds before the end each time, most of them of the traced turns.
        let mut kept = BTreeMap::new();
        for (line, wanted) in [("run my.toml --into run", 4), ("run my.toml --into run --resume", 10)] {
            let mut running = start(&scratch, line);
            let pid = running.pid();
            let there = || parts(&scratch.path("run")).len() >= wanted;
            assert!(
                wait_until(PATIENCE, || there() || running.is_over()),
                "{}",
                running.told()
            );
            running.signal(libc::SIGINT);
            let told = running.end().bad();
            assert!(
                told.contains("interrupted") && told.contains("`ringside lab run my.toml --into run --resume` goes on"),
                "{told}"
            );
            assert_nothing_is_left_of(pid);
            let now = parts(&scratch.path("run"));
            assert!(now.len() >= wanted && now.len() < 22, "{:?}", now.keys());
            assert!(kept.iter().all(|(path, content)| now.get(path) == Some(content)));
            kept = now;
        }
        let done = run(&scratch, "run my.toml --into run --resume --json").good();
        let resumed = result(&done.out);
        let now = parts(&scratch.path("run"));
        assert!(
            kept.iter().all(|(path, content)| now.get(path) == Some(content)),
            "what was done is not done again"
        );
        let names = |run: &str| -> Vec<_> {
            let folder = scratch.path(run);
            let files = parts(&folder).into_keys();
            files
                .map(|path| path.strip_prefix(&folder).expect("below it").to_owned())
                .collect()
        };
        assert_eq!(names("run"), names("whole"));
        assert_eq!(now.len(), 22, "five cells in four rounds, and two traced turns");
        for cell in whole.cells.iter().chain(&resumed.cells) {
            assert!(cell.rounds.len() <= 4, "{cell:#?}");
        }
        // On a machine that is given away while measuring, quiet rounds are a matter of luck.
        if [&whole, &resumed]
            .iter()
            .all(|result| result.cells.iter().all(|cell| cell.turns_left_out == 0))
        {
            let shapes = [&resumed, &whole].map(shape);
            expect(shapes[0] == shapes[1], format_args!("the shapes differ\n{shapes:#?}"))?;
        }
        let loaded = resumed.cells.iter().filter(|cell| cell.condition == LoadKind::Foreign);
        assert_eq!(
            loaded
                .filter(|cell| cell.latency.kind == LatencyKind::RoundTrip)
                .count(),
            1
        );
        // A turn is told when it begins, and only those that were left are.
        let begun = done.err.matches(" of 22, ").count();
        assert_eq!(begun, 22 - kept.len(), "{}", done.err);
        Ok(())
    });
}

#[test]
fn a_disk_that_is_full_for_the_report_costs_no_turn() {
    if !is_root() {
        return;
    }
    let (_alone, scratch) = (alone(), Scratch::new());
    let small = Small::mount(scratch.path("small"));
    mount_remount(&small.0, MountFlags::empty(), "size=4m").expect("remounted");
    scratch.lab(&slow().replace("rounds = 6", "rounds = 3"));
    let mut running = start(&scratch, "run my.toml --into small/run");
    let pid = running.pid();
    let folder = scratch.path("small/run");
    let is_there = || turns(&folder) >= 1;
    assert!(
        wait_until(PATIENCE, || is_there() || running.is_over()),
        "{}",
        running.told()
    );
    // Somebody else's file takes all but what two turns need: the report has 17 KiB.
    let filler = scratch.path("small/filler");
    let size = fs::metadata(folder.join("turns/0001-001.json"))
        .expect("a turn")
        .len()
        .next_multiple_of(4096);
    let free = rustix::fs::statvfs(&small.0).expect("a file system");
    let most = free.f_bavail * free.f_bsize - 2 * size - (4 << 10);
    fs::write(&filler, vec![1; usize::try_from(most).expect("small")]).expect("it fits");
    let told = running.end().bad();
    assert!(
        told.contains("small/run/report.html: No space left on device") && told.contains("go on with --resume"),
        "{told}"
    );
    assert_nothing_is_left_of(pid);
    let kept = parts(&folder);
    assert_eq!(kept.len(), 3);
    let names: Vec<_> = fs::read_dir(&folder)
        .expect("a folder")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert!(
        !names.iter().any(|name| name.to_string_lossy().ends_with(".part")),
        "{names:?}"
    );
    assert!(!folder.join("result.json").exists());
    let list = run(&scratch, "list --runs small").good().out;
    assert!(list.contains("ended after 3 of 3 turns; --resume goes on"), "{list}");
    fs::remove_file(&filler).expect("removed");
    let done = run(&scratch, "run my.toml --into small/run --resume --json").good();
    assert!(!result(&done.out).interrupted);
    assert!(!done.err.contains("turn 1 of 3"), "{}", done.err);
    assert_eq!(parts(&folder), kept);
    assert!(folder.join("report.html").exists());
}
