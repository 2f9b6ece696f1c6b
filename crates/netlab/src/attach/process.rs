//! Programs that carry packets: started in a namespace, with their output in a file, and ended with the attachment.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::Way;
use crate::guest::machine::{Machine, last_lines};
use crate::{Error, Result, find_program};

/// How long a program may take until it does its work, on a machine that has other things to do.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(30);

/// How long it may take to end when it is told to.
const END_LIMIT: Duration = Duration::from_secs(3);

/// How often it is looked at meanwhile.
const STEP: Duration = Duration::from_millis(5);

/// A program that runs. When this is dropped it is told to end (SIGINT), and killed if it does not.
#[derive(Debug)]
pub(crate) struct Program {
    name: String,
    machine: Machine,
    log: PathBuf,
}

impl Program {
    /// Starts it. What it prints goes into a file of this folder.
    pub(crate) fn start(way: Way, name: &str, mut command: Command, folder: &Path, advice: &str) -> Result<Self> {
        let log = folder.join(format!("{name}.out"));
        let file = command.get_program().to_string_lossy().into_owned();
        let start = || -> io::Result<Machine> {
            let output = File::create(&log)?;
            command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
            Machine::start(command, Vec::new())
        };
        let machine = start().map_err(|error| missing(way, &file, &error, advice))?;
        Ok(Self {
            name: name.to_owned(),
            machine,
            log,
        })
    }

    /// Waits until `is_ready`, while it runs.
    pub(crate) fn wait_until(&self, what: &'static str, is_ready: impl Fn(&Self) -> bool) -> Result<()> {
        let end = Instant::now() + START_LIMIT;
        while !is_ready(self) {
            self.check()?;
            if Instant::now() >= end {
                return Err(self.failed(format!("it has not {what} after {} s", START_LIMIT.as_secs())));
            }
            std::thread::sleep(STEP);
        }
        Ok(())
    }

    /// What it has printed.
    pub(crate) fn said(&self) -> String {
        fs::read(&self.log).map_or(String::new(), |text| String::from_utf8_lossy(&text).into_owned())
    }

    /// Whether it runs.
    pub(crate) fn check(&self) -> Result<()> {
        match self.machine.wait(Duration::ZERO) {
            None => Ok(()),
            Some(status) => Err(self.failed(format!("it ended with {status}"))),
        }
    }

    pub(crate) fn failed(&self, why: String) -> Error {
        Error::Program {
            program: self.name.clone(),
            why,
            said: last_lines(&self.log),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.machine.interrupt();
        // It may have left things to put back; whatever it does not the machine's drop ends.
        _ = self.machine.wait(END_LIMIT);
    }
}

/// Runs a program to its end and returns what it printed.
pub(crate) fn run(way: Way, command: &mut Command, advice: &str) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let done = output.map_err(|error| missing(way, &name, &error, advice))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if done.status.success() {
        return Ok(text(&done.stdout));
    }
    Err(Error::Program {
        program: name,
        why: format!("it ended with {}", done.status),
        said: text(&done.stderr),
    })
}

/// Whether there is such a program.
pub(crate) fn find(way: Way, name: &str, advice: &str) -> Result<()> {
    match is_program(name) {
        true => Ok(()),
        false => Err(missing(way, name, &io::ErrorKind::NotFound.into(), advice)),
    }
}

/// Whether a program of that name would be found: in `PATH`, or where its name says.
pub(crate) fn is_program(name: &str) -> bool {
    match name.contains('/') {
        true => Path::new(name).is_file(),
        false => find_program(name).is_some(),
    }
}

fn missing(way: Way, name: &str, error: &io::Error, advice: &str) -> Error {
    if error.kind() == io::ErrorKind::NotFound {
        return Error::Missing {
            way,
            what: format!("there is no program '{name}'"),
            advice: advice.to_owned(),
        };
    }
    Error::Program {
        program: name.to_owned(),
        why: format!("it cannot be started: {error}"),
        said: String::new(),
    }
}
