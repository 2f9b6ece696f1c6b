//! A process under measurement: started in a namespace on one CPU, paused and resumed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// What to start: a program, its arguments, and its environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invocation {
    /// The program and its arguments.
    pub(crate) words: Vec<String>,
    /// Variables that are set besides the inherited ones.
    pub(crate) environment: Vec<(String, String)>,
    /// Whether the program chooses its CPUs itself, by its arguments.
    pub(crate) places_itself: bool,
}

impl Invocation {
    /// A program that stays on the CPU that it is given.
    pub(crate) fn new<S: Into<String>>(words: impl IntoIterator<Item = S>) -> Self {
        Self {
            words: words.into_iter().map(Into::into).collect(),
            environment: Vec::new(),
            places_itself: false,
        }
    }

    /// The same under another program, which takes its words last.
    pub(crate) fn under(mut self, words: &[String]) -> Self {
        self.words.splice(0..0, words.iter().cloned());
        self
    }

    /// The command that runs it in the namespace on the CPU. `ip`, `setpriv` and `taskset` replace
    /// themselves by what they start, so the process is the program. It is killed when the calling
    /// thread ends, in whatever way: nobody is left spinning on a CPU.
    pub(crate) fn command(&self, namespace: &str, cpu: usize) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, "setpriv", "--pdeathsig", "KILL"]);
        if !self.places_itself {
            command.args(["taskset", "--cpu-list", &cpu.to_string()]);
        }
        command.args(&self.words);
        command.envs(self.environment.iter().map(|(key, value)| (key, value)));
        command
    }
}

/// A running or paused process. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it; what it prints goes to a file.
    pub(crate) fn start(invocation: &Invocation, namespace: &str, cpu: usize, log: &Path) -> Result<Self> {
        if let Some(folder) = log.parent() {
            fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        }
        let file = File::create(log).with_context(|| format!("writing {}", log.display()))?;
        let child = invocation
            .command(namespace, cpu)
            // An open pipe: some programs end when their input does.
            .stdin(Stdio::piped())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("starting {:?}", invocation.words))?;
        Ok(Self {
            child,
            log: log.to_owned(),
        })
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Takes it off the CPU.
    pub(crate) fn pause(&mut self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it run again.
    pub(crate) fn resume(&mut self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Asks it to end, as Ctrl-C does, and waits until it has.
    pub(crate) fn end(&mut self, patience: Duration) -> Result<()> {
        self.signal(Signal::INT)?;
        let end = Instant::now() + patience;
        while self.child.try_wait()?.is_none() {
            ensure!(
                Instant::now() < end,
                "was not done after {patience:?}:\n{}",
                tail(&self.log)
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// An error with the end of its output if it has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("ended with {status}:\n{}", tail(&self.log)),
        }
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        // The id of a process that ended and was waited for may be somebody else's by now.
        self.check()?;
        let pid = Pid::from_raw(i32::try_from(self.child.id())?).context("process id 0")?;
        kill_process(pid, signal).with_context(|| format!("sending {signal:?}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Its namespace goes too, and with it all that it attached, so nothing asks it to be tidy.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command to its end and returns its standard output; kills it when it takes too long.
pub(crate) fn output(mut command: Command, patience: Duration, log: &Path) -> Result<String> {
    let errors = File::create(log).with_context(|| format!("writing {}", log.display()))?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .with_context(|| format!("starting {command:?}"))?;
    let end = Instant::now() + patience;
    // The output is one line, which a pipe holds: nobody has to read while it runs.
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > end {
            child.kill()?;
            child.wait()?;
            bail!("{command:?} was not done after {patience:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let output = child.wait_with_output()?;
    ensure!(status.success(), "{status}:\n{}", tail(log));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The last lines of a file, for an error message.
fn tail(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}
