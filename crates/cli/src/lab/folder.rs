//! A run's folder: the lab file, each turn that is through, and in the end result and report.
//!
//! ```text
//! DIR/lab.toml               the file, as it was when the run began: --resume wants the same
//! DIR/run.json               by what it was begun, and on what
//! DIR/guests.json            how guests came up, if there are any
//! DIR/restarts.json          guests that ended in a turn, if any did
//! DIR/left.json              what could not be undone of what was done for turns, if there is anything
//! DIR/turns/0001-003.json    round 1, cell 3: written whole and to the disk before the next turn begins
//! DIR/stages/001-idle.json   where packets' time went on the path of the first probe
//! DIR/result.json  report.html
//! ```
//!
//! A file is there whole or not at all: it is written beside its place, brought to the disk, and renamed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use ringside_measure::latency::{Jitter, Summary};
use ringside_measure::schema::{
    LabClock, LabLoad, LabMachine, LabRedirected, LabRestart, LabSchedule, LabStages, LabSteering, LabTap, LoadKind,
};
use ringside_measure::sequence::Counts;
use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::file::Text;
use super::overrides::Overrides;
use super::plan::Plan;
use crate::args::bad_value;
use crate::{files, system};

/// Where runs are unless it is said otherwise.
pub(super) const RUNS: &str = "ringside-lab";

const LAB: &str = "lab.toml";
const RUN: &str = "run.json";
const GUESTS: &str = "guests.json";
const LEFT: &str = "left.json";
const RESTARTS: &str = "restarts.json";
const TURNS: &str = "turns";
const STAGES: &str = "stages";
const LOCK: &str = "lock";
pub(super) const RESULT: &str = "result.json";
pub(super) const REPORT: &str = "report.html";

/// Layout of the folder.
const SCHEMA: &str = "ringside.lab-run/1";

/// The folder of a run, which nobody else writes to.
pub(super) struct Folder {
    path: PathBuf,
    pub(super) about: About,
    pub(super) turns: Vec<Turn>,
    pub(super) stages: Vec<LabStages>,
    /// Guests, as they came up.
    pub(super) guests: Vec<LabMachine>,
    /// Guests that ended in a turn and were started again.
    pub(super) restarts: Vec<LabRestart>,
    /// What could not be undone of what was done for turns, a sentence each.
    pub(super) left: Vec<String>,
    /// Nobody else's for as long as it is held; not needed to look.
    _lock: Option<Lock>,
}

/// The lock of a folder, released when it is dropped.
///
/// Closing the file is not enough: a child process has a copy of the descriptor until it executes
/// its program.
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// By what and on what a run was begun: all its turns have to have been measured so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct About {
    schema: String,
    /// What the file is called.
    pub(super) name: String,
    tool_version: String,
    kernel: String,
    pub(super) started_unix_s: u64,
    /// What it measures that the file says otherwise.
    #[serde(flatten)]
    overrides: Overrides,
}

/// A turn that is through.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Turn {
    /// From 0 on.
    pub(super) round: u32,
    /// Number of the cell, from 0 on.
    pub(super) cell: usize,
    #[serde(flatten)]
    pub(super) outcome: Outcome,
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Measured(Box<Measured>),
    Failed(String),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Measured {
    pub(super) probes: Counts,
    pub(super) not_sent_probes: u64,
    pub(super) impossible_packets: u64,
    /// Nothing where the other end's clock is not known well enough; so with the next three.
    pub(super) raw: Option<Summary>,
    pub(super) raw_hdr: Option<String>,
    pub(super) corrected: Option<Summary>,
    pub(super) corrected_hdr: Option<String>,
    /// Shares from 0 to 1.
    pub(super) steal: f64,
    pub(super) waiting: f64,
    /// Tries before this one, of which the hypervisor took too much.
    #[serde(default)]
    pub(super) repeats: u32,
    /// The guest's, where times are by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) clock: Option<LabClock>,
    pub(super) loads: Vec<LabLoad>,
    /// Of a class of a schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) schedule: Option<LabSchedule>,
    /// The same class's, of the latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) jitter: Option<Jitter>,
    /// Where packets landed, for each end that was steered. Of a schedule at its first class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) steering: Vec<LabSteering>,
    /// To a guest that is attached by XDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) redirected: Option<LabRedirected>,
    /// To a guest behind a device of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tap: Option<LabTap>,
}

/// How far a run is.
pub(super) struct State {
    pub(super) about: About,
    pub(super) title: String,
    pub(super) turns: usize,
    pub(super) of: usize,
    pub(super) is_finished: bool,
    pub(super) is_running: bool,
}

impl Folder {
    /// Begins a run in a new folder. Where there was none before, none is left by what fails here.
    pub(super) fn create(path: &Path, text: &Text, overrides: &Overrides) -> Result<Self> {
        if path.exists() && fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
            let begun = path.join(RUN).exists();
            bail!(
                "the folder {} is not empty{}",
                path.display(),
                if begun {
                    ": a run was begun there; go on with it by --resume, or name another folder with --into"
                } else {
                    "; name another one with --into"
                }
            );
        }
        let was_there = path.exists();
        let begin = || -> Result<Self> {
            fs::create_dir_all(path.join(TURNS)).with_context(|| format!("making the folder {}", path.display()))?;
            let lock = lock(path)?;
            let about = About::now(&text.name, overrides);
            put(&path.join(LAB), text.text.as_bytes())?;
            // Last: what makes it a run.
            put(&path.join(RUN), &json(&about)?)?;
            Ok(Self {
                path: path.to_owned(),
                about,
                turns: Vec::new(),
                stages: Vec::new(),
                guests: Vec::new(),
                restarts: Vec::new(),
                left: Vec::new(),
                _lock: Some(lock),
            })
        };
        begin().inspect_err(|_| {
            if !was_there {
                _ = fs::remove_dir_all(path);
                return;
            }
            _ = fs::remove_dir_all(path.join(TURNS));
            for file in [LAB, RUN, LOCK] {
                _ = fs::remove_file(path.join(file));
            }
        })
    }

    /// Goes on with a run, by the same lab file on the same system. What the command line changed
    /// of the file then is changed now; it may say so again.
    pub(super) fn resume(path: &Path, text: &Text, overrides: &Overrides) -> Result<Self> {
        let lock = about(path).and_then(|_| lock(path))?;
        let folder = Self {
            _lock: Some(lock),
            ..Self::look(path)?
        };
        let before = folder.text()?.text;
        if before != text.text {
            let line = 1 + before
                .lines()
                .zip(text.text.lines())
                .take_while(|(a, b)| a == b)
                .count();
            bail!(
                "--resume: the lab file {} is not the one that the run in {} was begun with (they differ from line {line} on): \
                 put it back as it was ({}), or begin a new run without --resume",
                text.name,
                path.display(),
                path.join(LAB).display()
            );
        }
        let begun = &folder.about.overrides;
        if overrides != begun && *overrides != Overrides::default() {
            bad_value!(
                "--resume: the run in {} was begun with {}, and this is {}: leave these options out, \
                 or begin a new run",
                path.display(),
                begun.options(),
                overrides.options()
            );
        }
        let now = About::now(&text.name, overrides);
        for (what, was, is) in [
            ("by ringside", &folder.about.tool_version, &now.tool_version),
            ("on Linux", &folder.about.kernel, &now.kernel),
        ] {
            ensure!(
                was == is,
                "--resume: the run in {} was begun {what} {was}, and this is {is}: its turns cannot be compared; begin a new run",
                path.display()
            );
        }
        Ok(folder)
    }

    /// Reads what is there of a run, whoever is at it.
    pub(super) fn look(path: &Path) -> Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            about: about(path)?,
            turns: parts(&path.join(TURNS))?,
            stages: match path.join(STAGES) {
                folder if folder.exists() => parts(&folder)?,
                _ => Vec::new(),
            },
            guests: list(&path.join(GUESTS))?,
            restarts: list(&path.join(RESTARTS))?,
            left: list(&path.join(LEFT))?,
            _lock: None,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The lab file that it was begun with.
    pub(super) fn text(&self) -> Result<Text> {
        Ok(Text {
            name: self.about.name.clone(),
            text: read(&self.path.join(LAB))?,
        })
    }

    /// What it measures.
    pub(super) fn plan(&self, text: &Text) -> Result<Plan> {
        Plan::read_with(text, &self.about.overrides)
    }

    pub(super) fn has(&self, round: u32, cell: usize) -> bool {
        self.turns.iter().any(|turn| (turn.round, turn.cell) == (round, cell))
    }

    /// Keeps a turn: when this returns it is on the disk.
    pub(super) fn add(&mut self, turn: Turn) -> Result<()> {
        let name = format!("{:04}-{:03}.json", turn.round + 1, turn.cell + 1);
        put(&self.path.join(TURNS).join(name), &json(&turn)?)?;
        self.turns.push(turn);
        Ok(())
    }

    /// Keeps where packets' time went on a path, by the number of its probe.
    pub(super) fn add_stages(&mut self, probe: usize, stages: LabStages) -> Result<()> {
        let folder = self.path.join(STAGES);
        fs::create_dir_all(&folder).with_context(|| format!("making the folder {}", folder.display()))?;
        let condition = super::run::condition(stages.condition != LoadKind::Idle);
        put(
            &folder.join(format!("{:03}-{condition}.json", probe + 1)),
            &json(&stages)?,
        )?;
        self.stages.push(stages);
        Ok(())
    }

    /// Keeps what guests there are. They have to be what they were in turns before.
    pub(super) fn know(&mut self, guests: Vec<LabMachine>) -> Result<()> {
        ensure!(
            self.turns.is_empty() || guests == self.guests,
            "--resume: the guests came up in another way than for the turns that are kept (kernel or accelerator): begin a new run"
        );
        if !guests.is_empty() {
            put(&self.path.join(GUESTS), &json(&guests)?)?;
        }
        self.guests = guests;
        Ok(())
    }

    /// Keeps that a guest ended in a turn.
    pub(super) fn add_restart(&mut self, restart: LabRestart) -> Result<()> {
        self.restarts.push(restart);
        put(&self.path.join(RESTARTS), &json(&self.restarts)?)
    }

    /// Keeps what could not be undone, each once.
    pub(super) fn add_left(&mut self, sentences: Vec<String>) -> Result<()> {
        let before = self.left.len();
        for sentence in sentences {
            if !self.left.contains(&sentence) {
                self.left.push(sentence);
            }
        }
        match self.left.len() > before {
            true => put(&self.path.join(LEFT), &json(&self.left)?),
            false => Ok(()),
        }
    }

    /// Writes a file of the run.
    pub(super) fn write(&self, name: &str, content: &[u8]) -> Result<PathBuf> {
        let path = self.path.join(name);
        put(&path, content)?;
        Ok(path)
    }
}

impl About {
    fn now(name: &str, overrides: &Overrides) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            name: name.to_owned(),
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: system::system().kernel_release,
            started_unix_s: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            overrides: overrides.clone(),
        }
    }
}

/// A folder for a run that has none: by name, date and time.
pub(super) fn fresh(name: &str) -> PathBuf {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let stem = Path::new(name)
        .file_stem()
        .map_or_else(|| "lab".into(), |stem| stem.to_string_lossy());
    let first = Path::new(RUNS).join(format!("{stem}-{}", super::date::stamp(seconds)));
    // Two in one second.
    let more = (2..).map(|number| first.with_file_name(format!("{stem}-{}-{number}", super::date::stamp(seconds))));
    std::iter::once(first.clone())
        .chain(more)
        .find(|path| !path.exists())
        .unwrap_or(first)
}

/// The folders of runs in a folder, the oldest first.
pub(super) fn all(runs: &Path) -> Result<Vec<(PathBuf, Result<State>)>> {
    let entries = match fs::read_dir(runs) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("looking for runs in {}", runs.display()))?,
    };
    let mut found: Vec<(PathBuf, Result<State>)> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join(RUN).exists())
        .map(|path| {
            let state = state(&path);
            (path, state)
        })
        .collect();
    found.sort_by_key(|(path, state)| {
        (
            state.as_ref().map_or(0, |state| state.about.started_unix_s),
            path.clone(),
        )
    });
    Ok(found)
}

/// The newest run of a lab file that is not finished.
pub(super) fn unfinished(name: &str) -> Result<PathBuf> {
    let mut runs = all(Path::new(RUNS))?;
    runs.retain(|(_, state)| {
        state
            .as_ref()
            .is_ok_and(|state| !state.is_finished && state.about.name == name)
    });
    match runs.pop() {
        Some((path, _)) => Ok(path),
        None => bail!("--resume: there is no unfinished run of {name} in {RUNS}; name its folder with --into"),
    }
}

/// How far a run is.
pub(super) fn state(path: &Path) -> Result<State> {
    let about = about(path)?;
    let text = Text {
        name: about.name.clone(),
        text: read(&path.join(LAB))?,
    };
    let plan = Plan::read_with(&text, &about.overrides)?;
    let is_running =
        File::open(path.join(LOCK)).is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_err());
    Ok(State {
        title: plan.title.clone(),
        turns: parts::<Turn>(&path.join(TURNS))?.len(),
        of: super::run::Cell::all(&plan).len() * plan.rounds as usize,
        is_finished: path.join(RESULT).exists(),
        is_running,
        about,
    })
}

/// Removes the folder of a run that nobody is at.
pub(super) fn remove(path: &Path) -> Result<()> {
    about(path)?;
    let _lock = lock(path)?;
    fs::remove_dir_all(path).with_context(|| format!("removing the folder {}", path.display()))
}

fn about(path: &Path) -> Result<About> {
    let file = path.join(RUN);
    ensure!(
        file.exists(),
        "{} is no folder of a run: it has no {RUN}; `ringside lab list` shows the runs that there are",
        path.display()
    );
    let about: About = parse(&file)?;
    ensure!(
        about.schema == SCHEMA,
        "{}: {:?} is another layout than this version's, {SCHEMA:?}",
        file.display(),
        about.schema
    );
    Ok(about)
}

/// What files of a folder hold, in the order of their names.
fn parts<T: DeserializeOwned>(folder: &Path) -> Result<Vec<T>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading the turns in {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "json"));
    files.sort();
    files.iter().map(|file| parse(file)).collect()
}

/// What a file holds, which is there only if there is something.
fn list<T: DeserializeOwned>(file: &Path) -> Result<Vec<T>> {
    match file.exists() {
        true => parse(file),
        false => Ok(Vec::new()),
    }
}

fn lock(path: &Path) -> Result<Lock> {
    let file = path.join(LOCK);
    let lock = File::options().create(true).truncate(false).write(true).open(&file);
    let lock = lock.with_context(|| format!("opening {}", file.display()))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock(lock)),
        Err(_) => bail!(
            "another process runs the lab in {}: wait for it, or name another folder with --into",
            path.display()
        ),
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

fn parse<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let what = || {
        format!(
            "reading {}, which ringside wrote: it was changed; begin a new run",
            path.display()
        )
    };
    serde_json::from_str(&read(path)?).with_context(what)
}

fn json(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(value).context("writing JSON")?;
    text.push(b'\n');
    Ok(text)
}

/// Writes a file whole, to the disk, or not at all.
fn put(path: &Path, content: &[u8]) -> Result<()> {
    files::write(path, content).map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "; what was measured before is kept: make room, then go on with --resume"
            }
            _ => "",
        };
        anyhow::anyhow!("writing {}: {error}{hint}", path.display())
    })
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
