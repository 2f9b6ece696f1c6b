//! This program once more: in a namespace, in a guest, or on another machine.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ringside_measure::control::{Errand, ScheduleEnd, Start, Work};
use ringside_measure::schema::{Document, FarEnd, Outcome, RunResult};
use ringside_netlab::guest::{Guest, GuestChild};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::lab::load::tempfile;
use crate::lab::{boot, guests};
use crate::left::Left;
use crate::napi;
use crate::serve::{Dialled, Far, RemoteArgs};
use crate::session::nanos;
use crate::stop::Stop;

/// Where a listener in a guest writes when packets came.
const ARRIVALS: &str = "/arrivals.json";
/// How long a program has, once it is told to end, to put back what it has changed.
const LAST: Duration = Duration::from_secs(2);
/// The same in a guest, whose CPUs may be emulated.
const LAST_INSIDE: Duration = Duration::from_secs(10);
/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(5);

/// This program with a command line; ended when it is dropped.
pub(crate) struct Program<'g> {
    pub(crate) what: &'static str,
    runs: Runs<'g>,
}

enum Runs<'g> {
    Here(Here),
    Inside(Inside<'g>),
    There(Box<There>),
}

struct Inside<'g> {
    child: GuestChild<'g>,
    guest: &'g Guest,
    /// Who is told of what it left and could not be put back; `None` of what changes nothing.
    left: Option<Left>,
}

/// At a `ringside serve`, which is ready before it says that it is.
struct There {
    /// `None` once it was told to end.
    far: Option<Far>,
    /// When a talker is over.
    over: Option<Instant>,
    told: Option<FarEnd>,
}

struct Here {
    child: Child,
    /// Who is told of what it left and could not be put back.
    left: Left,
    /// A second signal would end it at once, and leave what it has changed.
    is_told: bool,
    out: File,
    err: File,
}

impl<'g> Program<'g> {
    /// On this machine, by a command in its namespace. What it leaves is put back from here; what cannot be is told to `left`.
    pub(crate) fn here(what: &'static str, mut command: Command, words: &[String], left: Left) -> Result<Self> {
        let (out, err) = (
            tempfile().context("a file for a result")?,
            tempfile().context("a file for messages")?,
        );
        command
            .args(words)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(err.try_clone()?)
            // Not the terminal's Ctrl-C: it is told when to end.
            .process_group(0);
        let child = command.spawn().with_context(|| format!("starting {what}"))?;
        Ok(Self {
            what,
            runs: Runs::Here(Here {
                child,
                left,
                is_told: false,
                out,
                err,
            }),
        })
    }

    /// In a guest. What it leaves is put back there; what cannot be is told to `left`.
    pub(super) fn inside(what: &'static str, guest: &'g Guest, words: &[String], left: Option<Left>) -> Result<Self> {
        let own = boot::own_program()?;
        let child = guest.command(own).args(words.iter().map(String::as_str)).spawn()?;
        Ok(Self {
            what,
            runs: Runs::Inside(Inside { child, guest, left }),
        })
    }

    /// At another machine's server; the loss of the connection sets `stop`.
    pub(super) fn there(what: &'static str, remote: &Remote<'_>, end: ScheduleEnd, stop: &Stop) -> Result<Self> {
        let lasts = end.talks.as_ref().map(|talk| Duration::from_nanos(talk.duration_ns));
        let far = errand(remote, Errand::Schedule(end), stop)?;
        let there = There {
            far: Some(far),
            over: lasts.map(|lasts| Instant::now() + lasts),
            told: None,
        };
        Ok(Self {
            what,
            runs: Runs::There(Box::new(there)),
        })
    }

    /// Whether it ended well, if it has ended.
    pub(crate) fn ended(&mut self) -> Result<Option<bool>> {
        let status = match &mut self.runs {
            Runs::Here(here) => here.child.try_wait()?,
            Runs::Inside(inside) => inside.child.try_wait()?,
            Runs::There(there) => {
                if there.over.is_some_and(|over| Instant::now() >= over) {
                    there.end();
                }
                return Ok(there.told.as_ref().map(|far| far.lost.is_none()));
            }
        };
        Ok(status.map(|status| status.success()))
    }

    /// Waits for it to be ready, while `goes_on`.
    ///
    /// # Errors
    /// Its own words if it has ended; and where it is not ready in time.
    pub(crate) fn until(
        &mut self,
        is_ready: impl Fn(&Self) -> Result<bool>,
        deadline: Instant,
        goes_on: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let is_there = |program: &mut Self| {
            // In this order: what makes it look ready may be another's.
            let is_there = is_ready(program)?;
            match program.ended()? {
                Some(_) => bail!("{}", program.failed()?),
                None => Ok(is_there),
            }
        };
        self.wait("is not ready", is_there, deadline, goes_on)
    }

    /// Waits for it to end well, while `goes_on`.
    ///
    /// # Errors
    /// Its own words if it does not end well; and where it does not end in time.
    pub(crate) fn until_ended(&mut self, deadline: Instant, goes_on: impl FnMut() -> Result<()>) -> Result<()> {
        let is_over = |program: &mut Self| match program.ended()? {
            Some(false) => bail!("{}", program.failed()?),
            ended => Ok(ended.is_some()),
        };
        self.wait("has not ended", is_over, deadline, goes_on)
    }

    fn wait(
        &mut self,
        lack: &str,
        is_so: impl Fn(&mut Self) -> Result<bool>,
        deadline: Instant,
        mut goes_on: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let begin = Instant::now();
        while !is_so(self)? {
            goes_on()?;
            ensure!(
                Instant::now() < deadline,
                "{} {lack} after {:.1} s",
                self.what,
                begin.elapsed().as_secs_f64()
            );
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// What it has said so far on standard error.
    pub(crate) fn said(&self) -> Result<String> {
        match &self.runs {
            Runs::Here(here) => text(&here.err),
            Runs::Inside(inside) => Ok(String::from_utf8_lossy(&inside.child.printed()[1]).into_owned()),
            Runs::There(there) => Ok(there.told.as_ref().and_then(|far| far.lost.clone()).unwrap_or_default()),
        }
    }

    /// Whether it has said that it listens.
    pub(crate) fn listens(&self) -> Result<bool> {
        if matches!(self.runs, Runs::There(_)) {
            return Ok(true);
        }
        let said = self.said()?;
        Ok(said.contains("a packet socket listens") || said.contains("XDP program ringside_xsk"))
    }

    pub(crate) fn interrupt(&mut self) -> Result<()> {
        match &mut self.runs {
            Runs::There(there) => there.end(),
            Runs::Here(here) => here.interrupt(),
            Runs::Inside(inside) => inside.child.signal(libc::SIGINT)?,
        }
        Ok(())
    }

    pub(crate) fn result(&self) -> Result<RunResult> {
        let json = match &self.runs {
            Runs::There(there) => {
                let result = there.told.as_ref().and_then(|far| far.result.clone());
                return Ok(*result.with_context(|| format!("{} told of nothing", self.what))?);
            }
            Runs::Here(here) => text(&here.out)?,
            Runs::Inside(inside) => String::from_utf8_lossy(&inside.child.printed()[0]).into_owned(),
        };
        let document = Document::from_json(&json).with_context(|| format!("reading the result of {}", self.what))?;
        match document.result {
            Outcome::Run(result) => Ok(*result),
            _ => bail!("{} told of something else", self.what),
        }
    }

    /// When packets came, of a listener on another machine.
    pub(super) fn arrivals(&self) -> Result<Vec<u8>> {
        let Runs::There(there) = &self.runs else {
            bail!("it is not on another machine");
        };
        let arrivals = there.told.as_ref().and_then(|far| far.arrivals.clone());
        Ok(arrivals.context("a listener tells when packets came")?.into_bytes())
    }

    /// Why it ended.
    pub(crate) fn failed(&self) -> Result<String> {
        let said = self.said()?;
        let last = said.lines().map(str::trim).rfind(|line| line.starts_with("ringside: "));
        let why = last.or_else(|| said.lines().last()).unwrap_or("it said nothing");
        let at = match &self.runs {
            Runs::Here(_) => "",
            Runs::Inside(_) => " in the guest",
            Runs::There(_) => " on the other machine",
        };
        Ok(format!("{}{at}: {}", self.what, why.trim_start_matches("ringside: ")))
    }
}

impl There {
    /// Has it end, and takes what came of it.
    fn end(&mut self) {
        if let Some(far) = self.far.take() {
            self.told = Some(far.finish(0));
        }
    }
}

/// How another machine's server is reached, and who is told of what it could not undo.
pub(in crate::lab) struct Remote<'l> {
    pub(in crate::lab) args: &'l RemoteArgs,
    pub(in crate::lab) left: Left,
}

/// Has another machine's server do something, over a connection of its own, whose loss sets `stop`. Loads may fill the path: a word that is held up is
/// no loss.
pub(in crate::lab) fn errand(remote: &Remote<'_>, errand: Errand, stop: &Stop) -> Result<Far> {
    let dialled = remote.args.dial()?.context("a server has an address")?;
    let mut far = dialled.telling(remote.left.clone()).start_while(start(errand)?, || {
        ensure!(!stop.is_set(), "interrupted");
        Ok(())
    })?;
    far.go(stop)?;
    Ok(far)
}

/// What a server is asked for.
pub(in crate::lab) fn start(errand: Errand) -> Result<Start> {
    Ok(Start {
        errand: Some(Box::new(errand)),
        silence_ns: Some(nanos(guests::SILENCE)),
        ..Start::new(Dialled::session()?, Work::Errand)
    })
}

impl Here {
    /// Has it end; told once, however often this is asked for.
    fn interrupt(&mut self) {
        // Who has ended is told nothing: its number may be another's.
        if self.is_told || !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        if let Some(pid) = pid(&self.child) {
            self.is_told = true;
            _ = kill_process(pid, Signal::INT);
        }
    }
}

impl Drop for Here {
    /// It puts back by itself what it has changed, a talker its queueing discipline. Who does not is killed. What it left then, or was killed before by
    /// somebody else, is put back from here.
    fn drop(&mut self) {
        self.interrupt();
        let end = Instant::now() + LAST;
        let mut ended = None;
        while ended.is_none() && Instant::now() < end {
            ended = self.child.try_wait().ok().flatten();
            if ended.is_none() {
                thread::sleep(LOOK);
            }
        }
        // Its result says what it could not put back.
        if ended.is_some_and(|status| status.success()) {
            return;
        }
        if ended.is_none() {
            if let Some(group) = pid(&self.child) {
                _ = kill_process_group(group, Signal::KILL);
            }
            _ = self.child.wait();
        }
        self.left.add(napi::recover_of(Some(self.child.id())));
    }
}

impl Inside<'_> {
    fn is_over(&mut self, limit: Duration) -> Option<bool> {
        let end = Instant::now() + limit;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status.success()),
                Ok(None) if Instant::now() < end => thread::sleep(LOOK),
                _ => return None,
            }
        }
    }
}

impl Drop for Inside<'_> {
    /// As here: who does not end when it is told to is killed, and what it has left is put back by the next `ringside` there.
    fn drop(&mut self) {
        let Some(left) = self.left.take() else { return };
        let mut over = self.is_over(Duration::ZERO);
        // A guest that does not answer goes, with all that is in it.
        if over == Some(true) || !self.guest.answers_within(LAST) {
            return;
        }
        if over.is_none() {
            _ = self.child.signal(libc::SIGINT);
            over = self.is_over(LAST_INSIDE);
        }
        if over == Some(true) {
            return;
        }
        if over.is_none() {
            _ = self.child.signal(libc::SIGKILL);
            _ = self.is_over(LAST);
        }
        let clean = boot::own_program().and_then(|own| {
            let clean = self.guest.command(own).args(["lab", "clean"]).limit(LAST_INSIDE);
            let done = clean.output()?;
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            ensure!(
                done.status.success() && !said.contains("not restored"),
                "{}",
                said.trim()
            );
            Ok(())
        });
        let why = clean.err().map(|why| {
            format!("what a talker had changed could not be put back: {why:#}; the guest goes with the run")
        });
        left.add(why);
    }
}

fn pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// Where a listener writes when packets came.
pub(crate) enum Kept {
    /// A file without a name, of this process.
    Here(File),
    /// A file of the guest's.
    Inside,
}

impl Kept {
    pub(crate) fn at(is_inside: bool) -> Result<Self> {
        Ok(match is_inside {
            true => Self::Inside,
            false => Self::Here(tempfile().context("a file for what a listener hears")?),
        })
    }

    /// As the listener finds it.
    pub(crate) fn path(&self) -> String {
        match self {
            Self::Here(file) => format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()),
            Self::Inside => ARRIVALS.to_owned(),
        }
    }

    /// What a listener of this machine has written.
    pub(crate) fn read(&self) -> Result<Vec<u8>> {
        match self {
            Self::Here(file) => whole(file),
            Self::Inside => bail!("it is in the guest"),
        }
    }
}

pub(crate) fn text(file: &File) -> Result<String> {
    Ok(String::from_utf8_lossy(&whole(file)?).into_owned())
}

/// All that is in a file, wherever its writer is: the two share one position, so it is not moved.
fn whole(file: &File) -> Result<Vec<u8>> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut content = Vec::new();
    let mut again = File::open(path).context("reading what a program said")?;
    again.rewind()?;
    again.read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shell with a script, whose `$0` is a file of this process; once it has said that it is ready.
    fn shell(script: &str, kept: &Kept) -> Program<'static> {
        // Whoever runs the tests may have left SIGINT ignored, which no shell can undo.
        let words = ["--default-signal=INT", "sh", "-c", script, &kept.path()].map(str::to_owned);
        let program = Program::here("a shell", Command::new("env"), &words, Left::default()).expect("a shell");
        wait_for(&program, "ready");
        program
    }

    fn wait_for(program: &Program<'_>, word: &str) {
        let end = Instant::now() + Duration::from_secs(20);
        while !program.said().expect("readable").contains(word) {
            assert!(Instant::now() < end, "{:?}", program.said());
            thread::sleep(LOOK);
        }
    }

    const ORDERLY: &str = "trap 'trap \"echo again >> $0; exit 1\" INT; echo told >&2; sleep 0.2; echo undone >> $0; exit 0' INT; \
                           echo ready >&2; while :; do sleep 0.02; done";

    #[test]
    fn who_is_dropped_puts_back_what_it_has_changed() {
        let kept = Kept::at(false).expect("a file");
        drop(shell(ORDERLY, &kept));
        assert_eq!(kept.read().expect("readable"), b"undone\n");
        // Who is on its way out already is not told a second time.
        let kept = Kept::at(false).expect("a file");
        let mut program = shell(ORDERLY, &kept);
        program.interrupt().expect("told");
        wait_for(&program, "told");
        drop(program);
        assert_eq!(kept.read().expect("readable"), b"undone\n");
    }

    #[test]
    fn who_does_not_end_is_killed() {
        let kept = Kept::at(false).expect("a file");
        let program = shell("trap '' INT; echo ready >&2; while :; do sleep 0.02; done", &kept);
        let Runs::Here(here) = &program.runs else {
            panic!("it is here")
        };
        let number = pid(&here.child).expect("a number");
        let begun = Instant::now();
        drop(program);
        assert!(begun.elapsed() >= LAST, "it had its time");
        let gone = rustix::process::test_kill_process(number);
        assert_eq!(gone, Err(rustix::io::Errno::SRCH));
    }
}
