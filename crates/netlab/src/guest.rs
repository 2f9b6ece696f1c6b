//! Guests: virtual machines under QEMU with a kernel of choice, in which this machine's own programs run.
//!
//! A guest has no disk and no distribution. Its files are a handful of this machine's programs with their shared libraries, packed
//! into the archive that its kernel unpacks into memory; its first process is an [`agent`] that does what the host says over a
//! virtio-serial port. So a test that this machine's kernel or hardware cannot run is run there, by the very same binary:
//!
//! ```no_run
//! use ringside_netlab::guest::{Agent, Guest, GuestConfig, Kernel, Model};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let ringside = "/usr/local/bin/ringside";
//! let config = GuestConfig::new("zero-copy", Kernel::usual()?, Agent::program(ringside)).back_to_back(Model::VirtioNet);
//! let guest = Guest::start(&config)?;
//! let doctor = guest.command(ringside).args(["doctor", "eth1"]).output()?;
//! println!("on {}: {}", guest.accelerator().name(), String::from_utf8_lossy(&doctor.stdout));
//! # Ok(())
//! # }
//! ```
//!
//! # What it takes
//!
//! `qemu-system-x86_64` (7.2; for igb 8.0) and a kernel: see [`Kernel`]. Root only for what a NIC is joined to; a guest of itself needs
//! no privilege, but the right to open `/dev/kvm` where that is to be used.
//!
//! # What stays
//!
//! Nothing. A guest is killed when it is dropped, and by the kernel when this process is.

pub mod agent;
mod aliases;
mod arguments;
mod cache;
mod command;
mod config;
mod cpio;
mod elf;
mod image;
mod kernel;
mod kvm;
mod link;
pub(crate) mod machine;
mod message;
mod modules;
mod package;

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant, SystemTime};

use ringside_nic::clock::{Far, Monotonic, Offset, Timestamp};

pub use self::cache::{Cache, OFFLINE};
pub use self::command::{GuestChild, GuestCommand};
pub use self::config::{Acceleration, Accelerator, Agent, GuestConfig, Model, Nic, Wire};
pub use self::kernel::Kernel;
pub use self::package::Package;

use self::arguments::{Files, arguments};
use self::link::{Answers, Link};
use self::machine::{Folder, Machine, last_lines};
use self::message::{Answer, PIECE, Request};
use crate::attach::process::is_program;
use crate::sys::attach_queue;
use crate::{Error, Result, testing};

/// The emulator's program.
const QEMU: &str = "qemu-system-x86_64";

/// Kind of the error of a guest whose QEMU aborted.
const ABORTED: io::ErrorKind = io::ErrorKind::ConnectionAborted;

/// How often it is looked whether a guest is still waited for.
const LOOK: Duration = Duration::from_millis(100);

/// Readings of a guest's clock, of which the best counts.
const CLOCK_ROUNDS: usize = 17;

/// How long copying a file may rest.
const STEP_LIMIT: Duration = Duration::from_secs(30);

/// Removes the folders that guests and attachments of killed processes left behind among the temporary files (a guest's image, sockets, a
/// switch's database), and returns which.
///
/// Only names of this crate's form are looked at, and of those only the ones whose process no longer lives. Whatever makes such a folder does
/// this first.
pub fn reap_folders() -> Vec<PathBuf> {
    Folder::reap()
}

/// A virtual machine that runs. Dropping it ends it.
#[derive(Debug)]
pub struct Guest {
    name: String,
    release: String,
    accelerator: Accelerator,
    boot: Duration,
    aborts: u32,
    console: PathBuf,
    // Killed before its files go and the connection is closed.
    machine: Machine,
    link: Link,
    _folder: Folder,
}

impl Guest {
    /// Whether this machine can have guests, as far as that is seen without one: its architecture, and QEMU.
    ///
    /// # Errors
    ///
    /// [`Error::Prepare`] with what is missing.
    pub fn check() -> Result<()> {
        if !cfg!(target_arch = "x86_64") {
            let reason = "guests run this machine's programs, and only x86_64 is known how";
            return Err(prepare("start", "a guest", reason));
        }
        if !is_program(QEMU) {
            let reason = "there is no such program; make setup installs it (Debian's qemu-system-x86)";
            return Err(prepare("start", QEMU, reason));
        }
        Ok(())
    }

    /// Starts a guest and waits until it can be told what to do.
    ///
    /// # Errors
    ///
    /// [`Error::Prepare`] if something that it is made of is missing; [`Error::Guest`] with the end of its console if it does not
    /// come up, or is not waited for any longer ([`GuestConfig::cancel`]).
    pub fn start(config: &GuestConfig) -> Result<Self> {
        Self::check()?;
        let failed =
            |error: io::Error| prepare("write", format_args!("the files of the guest '{}'", config.name), error);
        let folder = Folder::create(&config.name).map_err(failed)?;
        let initramfs = folder.path().join("initramfs");
        image::write(config, BufWriter::new(File::create(&initramfs).map_err(failed)?))?;
        let begin = Instant::now();
        let start = |accelerator, limits| start(config, accelerator, limits, &initramfs, &folder);
        let all = (config.boot_limit, config.boot_limit);
        let tried = (kvm::FIRST_WORD, config.boot_limit.min(kvm::BOOT));
        let mut aborts = 0;
        let mut emulate = || {
            start(Accelerator::Tcg, all).or_else(|error| {
                if !is_abort(&error) {
                    return Err(error);
                }
                aborts += 1;
                testing::record_repeat("QEMU aborted while a guest started");
                start(Accelerator::Tcg, all)
            })
        };
        let started = match config.acceleration {
            Acceleration::Require(Accelerator::Tcg) => emulate(),
            Acceleration::Require(Accelerator::Kvm) => start(Accelerator::Kvm, all),
            Acceleration::Any if kvm::is_worth_a_try() => start(Accelerator::Kvm, tried).or_else(|error| {
                let dear = begin.elapsed() >= kvm::DEAR;
                // Not what is missing for another reason, nor what was not waited for.
                let late = matches!(&error, Error::Guest { source, .. } if source.kind() == io::ErrorKind::TimedOut);
                if late && config.boot_limit >= kvm::FIRST_WORD {
                    kvm::failed(&error);
                }
                let emulated = emulate();
                // It has died there after a while, and by no fault of its own.
                if dear && !late && emulated.is_ok() {
                    kvm::failed(&error);
                }
                emulated
            }),
            Acceleration::Any => emulate(),
        };
        let (machine, link, release, accelerator) = started?;
        let guest = Self {
            name: config.name.clone(),
            release,
            accelerator,
            boot: begin.elapsed(),
            aborts,
            console: console(config, &folder),
            machine,
            link,
            _folder: folder,
        };
        guest.set_clock()?;
        Ok(guest)
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The release of the kernel that it runs.
    #[must_use]
    pub fn release(&self) -> &str {
        &self.release
    }

    /// What its CPUs are made of. A result that was had in it says so.
    #[must_use]
    pub fn accelerator(&self) -> Accelerator {
        self.accelerator
    }

    /// How long it took until it was ready.
    #[must_use]
    pub fn boot_time(&self) -> Duration {
        self.boot
    }

    /// Returns how often QEMU itself aborted while it emulated the guest's start, 0 or 1.
    ///
    /// QEMU 10.0 does so rarely, when a guest's kernel maps devices: `iotlb_to_section: Assertion
    /// 'section_index < d->map.sections_nb' failed`. [`Guest::start`] then starts it once more.
    #[must_use]
    pub fn aborts(&self) -> u32 {
        self.aborts
    }

    /// Number of the process that it is: its virtual CPUs are threads of that, named `CPU 0/TCG`, `CPU 0/KVM`, ….
    ///
    /// # Errors
    ///
    /// Without a mounted procfs, and once it has ended.
    pub fn pid(&self) -> io::Result<u32> {
        self.machine.pid()
    }

    /// Whether it has ended, by itself or by somebody's hand.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.machine.wait(Duration::ZERO).is_some()
    }

    /// What its console has said so far.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn console(&self) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.console)?).into_owned())
    }

    /// The last lines of that, and the one in which a kernel that has died says of what.
    #[must_use]
    pub fn last_words(&self) -> String {
        last_lines(&self.console)
    }

    /// A program to be run in it, one of those that its configuration names, by the same name or path.
    pub fn command(&self, program: impl AsRef<Path>) -> GuestCommand<'_> {
        GuestCommand::new(self, program.as_ref())
    }

    /// Whether its agent answers in time. One that stands still, or whose kernel hangs, does not; [`Guest::has_ended`] says no to both.
    #[must_use]
    pub fn answers_within(&self, limit: Duration) -> bool {
        self.ask_within(limit, &Request::Time, b"", |_| ()).is_ok()
    }

    /// Copies a file into it, with its permissions.
    ///
    /// # Errors
    ///
    /// [`Error::Guest`].
    pub fn copy_in(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let copy = || -> io::Result<()> {
            let mut file = File::open(from)?;
            let mode = file.metadata()?.permissions().mode() & 0o777;
            let mut piece = vec![0; PIECE];
            let mut append = false;
            loop {
                let length = file.read(&mut piece)?;
                // An empty file is written, too.
                if length == 0 && append {
                    return Ok(());
                }
                let path = to.to_string_lossy().into_owned();
                self.ask(&Request::Write { path, mode, append }, &piece[..length], |_| ())?;
                append = true;
            }
        };
        copy().map_err(|error| self.failed(format!("copy {} into it", from.display()), error))
    }

    /// The content of one of its files.
    ///
    /// # Errors
    ///
    /// [`Error::Guest`].
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref().to_string_lossy().into_owned();
        let mut content = Vec::new();
        let read = self.ask(&Request::Read { path: path.clone() }, b"", |piece| {
            content.extend(piece)
        });
        read.map_err(|error| self.failed(format!("read its file {path}"), error))?;
        Ok(content)
    }

    /// Sets its clock to this machine's, as [`Guest::start`] does. Between the two lies the way of one message.
    ///
    /// # Errors
    ///
    /// [`Error::Guest`].
    pub fn set_clock(&self) -> Result<()> {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let ns = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
        let set = self.ask(&Request::SetClock { ns }, b"", |_| ());
        set.map_err(|error| self.failed("set its clock", error))
    }

    /// How far its CLOCK_MONOTONIC is from this machine's, by the best of some messages there and back. An emulated CPU's answer
    /// takes most of a millisecond, and so uncertain is this.
    ///
    /// # Errors
    ///
    /// [`Error::Guest`].
    pub fn clock_offset(&self) -> Result<Offset<Monotonic, Far>> {
        let mut best: Option<Offset<Monotonic, Far>> = None;
        for _ in 0..CLOCK_ROUNDS {
            let before = Timestamp::now();
            let mut theirs = 0;
            let asked = self.ask(&Request::Time, b"", |time| {
                theirs = time.try_into().map_or(0, u64::from_le_bytes);
            });
            let after = Timestamp::now();
            asked.map_err(|error| self.failed("read its clock", error))?;
            let offset = Offset::bracketed(before, Timestamp::from_nanos(theirs), after);
            let better = |new: &Offset<_, _>| {
                best.as_ref()
                    .is_none_or(|old| new.uncertainty_ns() < old.uncertainty_ns())
            };
            best = offset.filter(better).or(best);
        }
        let none = || io::Error::other("it is more than 292 years away");
        best.ok_or_else(|| self.failed("read its clock", none()))
    }

    /// Switches it off and waits until it is. Dropping it is quicker.
    ///
    /// # Errors
    ///
    /// [`Error::Guest`] if it does not go off in time. It is ended then, too.
    pub fn power_off(self, limit: Duration) -> Result<()> {
        let off = || -> io::Result<()> {
            self.ask(&Request::PowerOff, b"", |_| ())?;
            let late = || io::Error::new(io::ErrorKind::TimedOut, format!("it is on after {} s", limit.as_secs()));
            let status = self.machine.wait(limit).ok_or_else(late)?;
            let bad = || io::Error::other(format!("{QEMU} ended with {status}"));
            status.success().then_some(()).ok_or_else(bad)
        };
        off().map_err(|error| self.failed("switch it off", error))
    }

    /// Sends a request and waits until it is done.
    fn ask(&self, request: &Request, body: &[u8], piece: impl FnMut(Vec<u8>)) -> io::Result<()> {
        self.ask_within(STEP_LIMIT, request, body, piece)
    }

    /// The same, no part of the answer later than that after the one before.
    fn ask_within(
        &self,
        limit: Duration,
        request: &Request,
        body: &[u8],
        mut piece: impl FnMut(Vec<u8>),
    ) -> io::Result<()> {
        let (id, answers) = self.link.open();
        let done = self.link.send(id, request, body).and_then(|()| {
            loop {
                match answers.recv_timeout(limit) {
                    Ok((Answer::Done, _)) => return Ok(()),
                    Ok((Answer::Piece, content)) => piece(content),
                    Ok((Answer::Failed { what, .. }, _)) => return Err(io::Error::other(what)),
                    Ok(_) => {}
                    Err(RecvTimeoutError::Timeout) => return Err(io::ErrorKind::TimedOut.into()),
                    Err(RecvTimeoutError::Disconnected) => return Err(ended()),
                }
            }
        });
        self.link.close(id);
        done
    }

    fn failed(&self, operation: impl Into<String>, source: io::Error) -> Error {
        Error::Guest {
            guest: self.name.clone(),
            operation: operation.into(),
            source,
            console: last_lines(&self.console),
        }
    }
}

type Started = (Machine, Link, String, Accelerator);

/// `limits`: until its kernel says something, and until it is ready.
fn start(
    config: &GuestConfig,
    accelerator: Accelerator,
    limits: (Duration, Duration),
    initramfs: &Path,
    folder: &Folder,
) -> Result<Started> {
    let (console, log) = (console(config, folder), folder.path().join("qemu.log"));
    let run = || -> io::Result<(Machine, Link, Answers)> {
        // Whatever another attempt has left there is not what this one's errors are to show.
        File::create(&console)?;
        let (ours, theirs) = UnixStream::pair()?;
        let mut descriptors = vec![OwnedFd::from(theirs)];
        let mut files = Files {
            initramfs,
            console: &console,
            agent: descriptors[0].as_raw_fd(),
            taps: Vec::new(),
        };
        for nic in &config.nics {
            let queues: &[OwnedFd] = match &nic.wire {
                Wire::Hub(_) | Wire::VhostUser { .. } | Wire::Vfio(_) => &[],
                Wire::Tap(tap) => tap.queues(),
            };
            // A QEMU that was killed has left those detached that its guest did not use, and the next
            // one aborts if it cannot detach them.
            queues.iter().try_for_each(|queue| attach_queue(queue.as_fd()))?;
            // Copies, which are QEMU's: the devices stay the caller's.
            let copies = queues.iter().map(OwnedFd::try_clone).collect::<io::Result<Vec<_>>>()?;
            files.taps.push(copies.iter().map(|copy| copy.as_raw_fd()).collect());
            descriptors.extend(copies);
        }
        let mut command = Command::new(QEMU);
        command
            .args(arguments(config, accelerator, &files))
            .stdin(Stdio::null());
        let output = File::create(&log)?;
        command.stdout(output.try_clone()?).stderr(output);
        let machine = Machine::start(command, descriptors)?;
        let (link, ready) = Link::new(ours)?;
        Ok((machine, link, ready))
    };
    let failed = |source: io::Error| Error::Guest {
        guest: config.name.clone(),
        operation: format!("start it on {}", accelerator.name()),
        source,
        console: last_lines(&console),
    };
    let cancelled = || failed(io::Error::new(io::ErrorKind::Interrupted, "it is not waited for"));
    if config.is_cancelled() {
        return Err(cancelled());
    }
    let (machine, link, ready) = run().map_err(failed)?;
    // What unpacks a kernel says a word, too, where nothing else will run.
    let silent = || fs::read(&console).is_ok_and(|said| !String::from_utf8_lossy(&said).contains("Linux version"));
    let (first_word, limit) = limits;
    let mut answer = wait(&ready, first_word.min(limit), config);
    if matches!(answer, Err(RecvTimeoutError::Timeout)) && !silent() {
        answer = wait(&ready, limit.saturating_sub(first_word), config);
    }
    if config.is_cancelled() && answer.is_err() {
        return Err(cancelled());
    }
    let source = match answer {
        Ok((Answer::Ready { version, release }, _)) if version == message::VERSION => {
            return Ok((machine, link, release, accelerator));
        }
        Ok(_) => io::Error::other(format!(
            "its agent ({}) is of another version of Ringside",
            config.agent.program.display()
        )),
        Err(RecvTimeoutError::Timeout) => {
            let limit = if silent() { first_word.min(limit) } else { limit };
            let text = format!("it is not ready after {:.1} s", limit.as_secs_f64());
            io::Error::new(io::ErrorKind::TimedOut, text)
        }
        Err(RecvTimeoutError::Disconnected) => {
            // It has closed the connection, and so is about to end.
            let status = machine.wait(Duration::from_secs(1));
            let is_abort = status.is_some_and(|status| status.signal() == Some(libc::SIGABRT));
            let status = status.map_or("is about to end".to_owned(), |status| format!("ended with {status}"));
            let kind = if is_abort { ABORTED } else { io::ErrorKind::Other };
            io::Error::new(kind, format!("{QEMU} {status} {}", last_lines(&log)))
        }
    };
    Err(failed(source))
}

/// Reports whether QEMU itself aborted while a guest started.
fn is_abort(error: &Error) -> bool {
    matches!(error, Error::Guest { source, .. } if source.kind() == ABORTED)
}

/// Waits for an answer, unless that is cancelled.
fn wait(
    ready: &Answers,
    limit: Duration,
    config: &GuestConfig,
) -> std::result::Result<(Answer, Vec<u8>), RecvTimeoutError> {
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match ready.recv_timeout(left.min(LOOK)) {
            Err(RecvTimeoutError::Timeout) if !left.is_zero() && !config.is_cancelled() => {}
            answer => return answer,
        }
    }
}

fn console(config: &GuestConfig, folder: &Folder) -> PathBuf {
    config.console.clone().unwrap_or_else(|| folder.path().join("console"))
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the guest has ended")
}

fn prepare(operation: &'static str, what: impl Display, reason: impl Display) -> Error {
    Error::Prepare {
        operation,
        what: what.to_string(),
        reason: reason.to_string(),
    }
}
