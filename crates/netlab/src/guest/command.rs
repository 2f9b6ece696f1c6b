//! Programs inside a guest.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Output};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use super::image::found;
use super::link::Answers;
use super::message::{Answer, Request};
use super::{Guest, ended};
use crate::Result;

/// How long a program may run unless something else is said.
const LIMIT: Duration = Duration::from_mins(1);

/// A program to be run inside a guest.
#[derive(Debug)]
#[must_use]
pub struct GuestCommand<'a> {
    guest: &'a Guest,
    program: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    directory: Option<String>,
    limit: Duration,
}

impl<'a> GuestCommand<'a> {
    pub(crate) fn new(guest: &'a Guest, program: &Path) -> Self {
        // Where it was when the guest got it.
        let program = found(program).unwrap_or_else(|_| program.to_owned());
        Self {
            guest,
            program: program.to_string_lossy().into_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: None,
            limit: LIMIT,
        }
    }

    /// One more argument.
    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// More arguments.
    pub fn args<T: Into<String>>(mut self, arguments: impl IntoIterator<Item = T>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// A variable of its environment. Of this process's environment it has nothing.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Where it runs, instead of in `/`.
    pub fn directory(mut self, path: impl Into<String>) -> Self {
        self.directory = Some(path.into());
        self
    }

    /// How long it may run, instead of a minute.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs it to its end and returns what it printed.
    ///
    /// # Errors
    ///
    /// [`Error::Guest`](crate::Error::Guest) if it cannot be started, does not end in time (it is killed), or if the guest ends.
    pub fn output(self) -> Result<Output> {
        let limit = self.limit;
        self.spawn()?.wait(limit)
    }

    /// Starts it. Its input is empty, its output kept.
    ///
    /// # Errors
    ///
    /// [`Error::Guest`](crate::Error::Guest) if the guest has ended. That there is no such program is told later.
    pub fn spawn(self) -> Result<GuestChild<'a>> {
        let guest = self.guest;
        let (id, answers) = guest.link.open();
        let child = GuestChild {
            guest,
            program: self.program.clone(),
            id,
            answers,
            status: None,
            printed: [Vec::new(), Vec::new()],
        };
        let run = Request::Run {
            program: self.program,
            arguments: self.arguments,
            environment: self.environment,
            directory: self.directory,
        };
        let sent = guest.link.send(id, &run, b"");
        sent.map_err(|error| guest.failed(format!("start {}", child.program), error))?;
        Ok(child)
    }
}

/// A program that runs inside a guest, killed when this is dropped.
#[derive(Debug)]
pub struct GuestChild<'a> {
    guest: &'a Guest,
    program: String,
    id: u32,
    answers: Answers,
    status: Option<ExitStatus>,
    /// Standard output, standard error.
    printed: [Vec<u8>; 2],
}

impl GuestChild<'_> {
    /// Waits until it has printed a text, on either output.
    ///
    /// # Errors
    ///
    /// [`Error::Guest`](crate::Error::Guest) if it does not in time, or ends without; with what it printed instead.
    pub fn wait_for(&mut self, text: &str, limit: Duration) -> Result<()> {
        let end = Instant::now() + limit;
        let has = |printed: &[Vec<u8>; 2]| {
            printed
                .iter()
                .any(|output| String::from_utf8_lossy(output).contains(text))
        };
        while !has(&self.printed) {
            if self.status.is_some() || !self.step(end)? {
                let source = io::Error::other(format!("it has not printed '{text}'; {}", self.said()));
                return Err(self.guest.failed(format!("see {} go on", self.program), source));
            }
        }
        Ok(())
    }

    /// How it ended, if it has; without waiting.
    ///
    /// # Errors
    ///
    /// [`Error::Guest`](crate::Error::Guest) if the guest has ended, or could not start it.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        let now = Instant::now();
        while self.status.is_none() && self.step(now)? {}
        Ok(self.status)
    }

    /// What it has printed so far, as far as it was read: standard output, standard error.
    #[must_use]
    pub fn printed(&self) -> &[Vec<u8>; 2] {
        &self.printed
    }

    /// Sends a signal to it and to all that it started: `libc::SIGINT`, …
    ///
    /// # Errors
    ///
    /// [`Error::Guest`](crate::Error::Guest) if the guest has ended. A program that has ended needs no signal.
    pub fn signal(&self, signal: i32) -> Result<()> {
        let sent = self.guest.link.send(self.id, &Request::Signal { signal }, b"");
        sent.map_err(|error| self.guest.failed(format!("send {} a signal", self.program), error))
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// [`Error::Guest`](crate::Error::Guest) if it does not end in time, with what it printed; it is killed then.
    pub fn wait(mut self, limit: Duration) -> Result<Output> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.status {
                let [stdout, stderr] = std::mem::take(&mut self.printed);
                return Ok(Output { status, stdout, stderr });
            }
            if !self.step(end)? {
                let text = format!("it runs on after {} s; {}", limit.as_secs(), self.said());
                let source = io::Error::new(io::ErrorKind::TimedOut, text);
                return Err(self.guest.failed(format!("end {}", self.program), source));
            }
        }
    }

    /// Takes the next answer; whether there was one in time.
    fn step(&mut self, end: Instant) -> Result<bool> {
        let answer = match self.answers.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => return Ok(false),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(self.guest.failed(format!("run {}", self.program), ended()));
            }
        };
        match answer {
            (Answer::Output { error }, text) => self.printed[usize::from(error)].extend(text),
            (Answer::Ended { status }, _) => self.status = Some(ExitStatus::from_raw(status)),
            (Answer::Failed { what, .. }, _) => {
                return Err(self
                    .guest
                    .failed(format!("run {}", self.program), io::Error::other(what)));
            }
            // To a signal.
            _ => {}
        }
        Ok(true)
    }

    fn said(&self) -> String {
        let [out, error] = self.printed.each_ref().map(|output| String::from_utf8_lossy(output));
        format!("it printed:\n{out}{error}")
    }
}

impl Drop for GuestChild<'_> {
    fn drop(&mut self) {
        if self.status.is_none() {
            let kill = Request::Signal { signal: libc::SIGKILL };
            _ = self.guest.link.send(self.id, &kill, b"");
        }
        self.guest.link.close(self.id);
    }
}
