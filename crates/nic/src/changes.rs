//! Changes on the machine that are put back in order, even after the process was killed.
//!
//! Settings of an interface outlive whoever made them. So each is written down **before** it is made, in a small file
//! under `/run/ringside`, and put back by a guard ([`Undo`]) when it is dropped. What a killed process left is put back
//! by the next one that calls [`recover`].
//!
//! ```no_run
//! use std::time::Duration;
//! use ringside_nic::changes::{self, Changes};
//! use ringside_nic::{Deferral, Interface};
//!
//! # fn main() -> Result<(), ringside_nic::Error> {
//! for left in changes::recover()? {
//!     eprintln!("{left}");
//! }
//! let eth0 = Interface::by_name("eth0")?;
//! let deferral = Deferral {
//!     defer_hard_irqs: 2,
//!     gro_flush_timeout: Duration::from_micros(200),
//!     irq_suspend_timeout: None,
//! };
//! let (applied, undo) = Changes::new().set_deferral(&eth0, &[0, 1], deferral)?;
//! println!("deferral set {applied}; {:?}", undo.protection());
//! // … the work …
//! for change in undo.restore() {
//!     println!("{change}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What is put back, and what is not
//!
//! - Only a value that is still the one that was set. If somebody else has changed it since, it is left alone, and the
//!   [`Outcome`] says so.
//! - Several changes of the same thing, by guards of one process or of several, may end in any order; the last one
//!   restores what was before the first.
//! - A setting that is changed for the whole interface is also in each of its NAPI instances. They get back what each
//!   one had.
//! - Not what is to stay ([`Undo::keep`]), before [`Changes::undo_kept`] is called.
//! - Nothing after a restart of the machine, which forgets all settings by itself.
//!
//! What cannot be put back now stays written down for the next [`recover`], or the next change of the same thing. That
//! is so for settings of NAPI instances while the interface is down, and for threaded polling while it has none: put
//! those back before the XDP program is detached that a veth has its instances from.
//!
//! # Where it is written down
//!
//! In the directory that the environment variable `RINGSIDE_STATE_DIR` names, else in `/run/ringside`. It belongs to its
//! owner alone. Where it cannot be had, the change is made all the same, and [`Undo::protection`] says that a kill would
//! leave it. A process is told from a later one with its number by its start time, and from one before a restart by
//! the kernel's boot id. Processes in different PID namespaces leave each other's changes alone.

mod book;
mod outcome;
mod put_back;
mod record;
mod store;
mod undo;

use std::io;
use std::path::PathBuf;

use self::book::Book;
pub use self::outcome::{Change, Outcome, Recovered, Restored};
use self::record::{Place, Record};
pub use self::undo::{Protection, Undo};
use crate::setting::{Access, Setting};
use crate::{
    Applied, Deferral, Error, Interface, Knob, NapiSetting, NapiThread, QdiscSetup, Result, Steered, Steering, process,
    state_dir,
};

pub use crate::state_dir::VARIABLE as STATE_DIR;

/// Makes changes on the machine that are put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    directory: PathBuf,
}

impl Default for Changes {
    fn default() -> Self {
        Self::new()
    }
}

/// Puts back what processes left that ended without doing so or could not do so, and tells what became of it.
///
/// To be called by whatever changes settings, at its start. It costs a look into a directory if there is nothing to do.
///
/// # Errors
///
/// See [`Changes::recover`].
pub fn recover() -> Result<Vec<Recovered>> {
    Changes::new().recover()
}

impl Changes {
    /// Writes down in the directory that [`STATE_DIR`] names, else in `/run/ringside`.
    #[must_use]
    pub fn new() -> Self {
        Self::in_directory(state_dir::path())
    }

    /// Writes down in a directory, which is made with mode 0755 if it does not exist. It must not be writable by others
    /// than its owner, who is root or the caller.
    #[must_use]
    pub fn in_directory(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
        }
    }

    /// Sets the interrupt deferral of receive queues: see [`Interface::set_deferral`].
    ///
    /// # Errors
    ///
    /// As [`Interface::set_deferral`]. What was changed until then is put back.
    pub fn set_deferral(&self, interface: &Interface, queues: &[u32], deferral: Deferral) -> Result<(Applied, Undo)> {
        let plan = interface.plan_deferral(queues, deferral)?;
        Ok((plan.applied, self.make(interface, plan.values)?))
    }

    /// Changes settings of one NAPI instance: see [`Interface::set_napi`].
    ///
    /// # Errors
    ///
    /// As [`Interface::set_napi`]. What was changed until then is put back.
    pub fn set_napi(&self, interface: &Interface, id: u32, settings: &[NapiSetting]) -> Result<Undo> {
        self.make(interface, interface.plan_napi(id, settings)?)
    }

    /// Moves the polling of all queues into kernel threads, or back: see [`Interface::set_napi_threaded`].
    ///
    /// # Errors
    ///
    /// As [`Interface::set_napi_threaded`].
    pub fn set_napi_threaded(&self, interface: &Interface, threaded: bool) -> Result<Undo> {
        self.make(interface, interface.plan_threaded(threaded)?)
    }

    /// Makes the kernel threads that poll the interface's NAPI instances run on these CPUs only, and returns them as
    /// they are now: see [`Interface::pin_napi_threads`].
    ///
    /// # Errors
    ///
    /// As [`Interface::pin_napi_threads`]. What was changed until then is put back.
    pub fn pin_napi_threads(&self, interface: &Interface, cpus: &[u32]) -> Result<(Vec<NapiThread>, Undo)> {
        let undo = self.make(interface, interface.plan_pinning(cpus)?)?;
        Ok((interface.napi_threads()?, undo))
    }

    /// Turns knobs, in this order: see [`Knob`].
    ///
    /// # Errors
    ///
    /// As [`Interface::knob`], [`Error::FeatureUnchanged`] for an offload that stays as it is, and what the kernel answers.
    /// What was changed until then is put back.
    pub fn set_knobs(&self, interface: &Interface, values: &[(Knob, String)]) -> Result<Undo> {
        let settings = values.iter().cloned().map(|(knob, value)| {
            let value = knob.normal(value);
            (Setting::Knob { knob }, value)
        });
        let undo = self.make(interface, settings.collect())?;
        // One offload may keep another one from taking effect, whatever their order.
        for (knob, value) in values {
            knob.check_effect(interface, value)?;
        }
        Ok(undo)
    }

    /// Installs queueing disciplines in place of the kernel's own, and returns them as the kernel has them then: see [`QdiscSetup`].
    ///
    /// # Errors
    ///
    /// [`Error::QdiscTaken`] where somebody has put something there; [`Error::Kernel`] with the kernel's answer, `ENOENT` where it
    /// does not have that discipline. Nothing is left behind then.
    #[doc(alias = "RTM_NEWQDISC")]
    pub fn set_qdiscs(&self, interface: &Interface, setup: &QdiscSetup) -> Result<(QdiscSetup, Undo)> {
        interface.check_root_qdisc()?;
        let undo = self.make(interface, vec![(Setting::RootQdisc, setup.text())])?;
        let obtained = interface.qdisc_setup()?;
        let obtained = obtained.ok_or_else(|| {
            Error::malformed(
                "read the queueing disciplines",
                interface.name(),
                "they are not there any more",
            )
        })?;
        Ok((obtained, undo))
    }

    /// Steers packets: see [`Steering`]. Returns what was set, as the kernel has it then.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownQueue`], [`Error::NoIrq`], [`Error::Affinity`]; [`Error::Kernel`] with `EOPNOTSUPP` where the driver has no
    /// rules or no table, and with what else it answers to a rule. What was changed until then is put back.
    #[doc(alias = "ntuple")]
    #[doc(alias = "ETHTOOL_SRXCLSRLINS")]
    pub fn steer(&self, interface: &Interface, steering: &Steering) -> Result<(Vec<Steered>, Undo)> {
        let plan = interface.plan_steering(steering)?;
        let undo = self.make(interface, plan.clone())?;
        Ok((interface.steered(plan)?, undo))
    }

    /// Puts back what was to stay ([`Undo::keep`]), the last one first: of all interfaces, or what was changed for one.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if the directory cannot be used. What cannot be put back is no error: the [`Outcome`] tells it.
    pub fn undo_kept(&self, interface: Option<&Interface>) -> Result<Vec<Recovered>> {
        let failed = |error| Error::file("read", &self.directory, error);
        if store::state_files(&self.directory).map_err(failed)?.is_empty() {
            return Ok(Vec::new());
        }
        let place = interface.map(Place::of).transpose()?;
        let mut book = Book::open(&self.directory).map_err(failed)?;
        let mut undone = Vec::new();
        for (owner, records) in book.kept(place.as_ref()) {
            undone.push(Recovered {
                changes: book.take(&owner, &records),
                pid: owner.pid,
                command: owner.command,
                problem: None,
            });
        }
        book.save().map_err(failed)?;
        Ok(undone)
    }

    /// Puts back what processes left that ended without doing so: see [`recover`].
    ///
    /// # Errors
    ///
    /// [`Error::File`] if there is something to do and the directory cannot be used, for instance without privileges.
    /// What cannot be put back is no error: the [`Outcome`] tells it.
    pub fn recover(&self) -> Result<Vec<Recovered>> {
        let failed = |error| Error::file("read", &self.directory, error);
        let files = store::state_files(&self.directory).map_err(failed)?;
        if files.is_empty() {
            return Ok(Vec::new());
        }
        let alive = |(_, pid, start): &(PathBuf, u32, u64)| process::start_time(*pid) == Some(*start);
        let mut book = match Book::open(&self.directory) {
            // The names alone tell an unprivileged process that there is nothing to do.
            Err(_) if files.iter().all(alive) => return Ok(Vec::new()),
            other => other.map_err(failed)?,
        };
        let mut recovered = Vec::new();
        for (owner, records) in book.left_behind() {
            recovered.push(Recovered {
                changes: book.take(&owner, &records),
                pid: owner.pid,
                command: owner.command,
                problem: None,
            });
        }
        let ended = |pid, start| process::start_time(pid) != Some(start);
        for file in book.unreadable.iter().filter(|file| ended(file.pid, file.start)) {
            recovered.push(Recovered {
                pid: file.pid,
                command: String::new(),
                changes: Vec::new(),
                problem: Some(format!("{}: {}", file.path.display(), file.problem)),
            });
        }
        book.save().map_err(failed)?;
        Ok(recovered)
    }

    /// Writes down, then changes, then returns the guard.
    fn make(&self, interface: &Interface, values: Vec<(Setting, String)>) -> Result<Undo> {
        let access = Access::new(interface);
        let (mut book, reason) = match Book::open(&self.directory) {
            Ok(book) => (book, None),
            Err(error) => (Book::in_memory(), Some(error)),
        };
        let planned = plan(interface, &access, values)?;
        let mut records = book.add(planned.clone());
        let reason = reason.or_else(|| {
            let error = book.save().err()?;
            book = Book::in_memory();
            records = book.add(planned);
            Some(error)
        });
        if book.path().is_none() {
            // In memory this cannot fail.
            let _ = book.save();
        }
        let values = records.iter().map(|record| (&record.setting, record.after.as_str()));
        let made = access.write_all(values);
        let path = book.path();
        let undo = Undo {
            directory: path.as_ref().map(|_| self.directory.clone()),
            protection: path.map_or_else(|| self.unprotected(reason), Protection::StateFile),
            records,
            pid: std::process::id(),
        };
        // The guard of a change that failed takes the book itself.
        drop(book);
        made.map(|()| undo)
    }

    fn unprotected(&self, reason: Option<io::Error>) -> Protection {
        let reason = reason.map(|error| format!("{}: {error}", self.directory.display()));
        Protection::None {
            reason: reason.unwrap_or_default(),
        }
    }
}

/// What is there now, as records. What ended meanwhile needs no change, but for an instance that was asked for by itself.
fn plan(interface: &Interface, access: &Access<'_>, values: Vec<(Setting, String)>) -> Result<Vec<Record>> {
    let place = Place::of(interface)?;
    let whole = values.iter().any(|(setting, _)| setting.is_whole());
    let mut records = Vec::new();
    for (setting, after) in values {
        match (access.read(&setting)?, setting) {
            (Some(before), setting) => records.push(Record {
                order: 0,
                place: place.clone(),
                setting,
                before,
                after,
                abandoned: false,
                kept: false,
            }),
            (None, Setting::Napi { id, .. }) if !whole => {
                return Err(Error::UnknownNapi {
                    interface: place.interface,
                    id,
                });
            }
            (None, _) => {}
        }
    }
    Ok(records)
}
