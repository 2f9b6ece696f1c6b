//! The kernel threads that poll NAPI instances, and the CPUs that they run on.

use std::fs;

use serde::Serialize;

use crate::setting::{Access, Setting};
use crate::{Error, Interface, Result, cpus, process};

/// A kernel thread that polls a NAPI instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NapiThread {
    /// Its process number.
    pub pid: u32,
    /// Its name: `napi/IFACE-ID`, with the interface's name when it was made.
    pub name: String,
    /// The id of the NAPI instance; `None` for one that has none, and where the kernel cut the name off.
    pub napi: Option<u32>,
    /// The CPUs that it may run on.
    pub cpus: Vec<u32>,
}

/// The name's beginning: <https://elixir.bootlin.com/linux/v6.18/C/ident/napi_kthread_create>
const PREFIX: &str = "napi/";

impl Interface {
    /// The kernel threads that poll this interface's NAPI instances; empty if the software interrupt does.
    ///
    /// Linux 6.8 tells them by number, without those of instances that have no id (the transmit side of virtio-net). On an
    /// older one they are found by their names, which another interface of the same name in another network namespace
    /// may share, and there they stay until the instance ends, even when the software interrupt polls again. Kernel
    /// threads are only visible in the first PID namespace.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if the interface was removed.
    pub fn napi_threads(&self) -> Result<Vec<NapiThread>> {
        let napis = match self.napis() {
            Err(Error::NeedsKernel { .. }) => return Ok(by_name(self.name())),
            other => other?,
        };
        let threads = napis.iter().filter_map(|napi| {
            let pid = napi.thread?;
            // In another PID namespace the same number is somebody else, or nobody.
            let name = process::command(pid).filter(|name| name.starts_with(PREFIX))?;
            Some(NapiThread {
                pid,
                name,
                napi: Some(napi.id),
                cpus: cpus::of_thread(pid).ok()?,
            })
        });
        Ok(threads.collect())
    }

    /// Makes the kernel threads that poll this interface's NAPI instances run on these CPUs only, and returns them
    /// as they are now.
    ///
    /// Threads come with [`Interface::set_napi_threaded`], and new ones run everywhere again. Nothing is put back
    /// later: [`changes`](crate::changes) does that.
    ///
    /// # Errors
    ///
    /// [`Error::NoNapi`] if there are no such threads; [`Error::Affinity`] if the kernel refuses, for instance with
    /// `EINVAL` if none of the CPUs is online or `EPERM` without `CAP_SYS_NICE`.
    #[doc(alias = "sched_setaffinity")]
    pub fn pin_napi_threads(&self, cpus: &[u32]) -> Result<Vec<NapiThread>> {
        let values = self.plan_pinning(cpus)?;
        Access::new(self).write_all(values.iter().map(|(setting, value)| (setting, value.as_str())))?;
        self.napi_threads()
    }

    pub(crate) fn plan_pinning(&self, cpus: &[u32]) -> Result<Vec<(Setting, String)>> {
        let threads = self.napi_threads()?;
        if threads.is_empty() {
            return Err(Error::no_napi("pin the NAPI threads", self.name()));
        }
        // One that ended since is passed over.
        let settings = threads.iter().filter_map(|thread| {
            let start = process::start_time(thread.pid)?;
            let thread = thread.pid;
            Some((Setting::Affinity { thread, start }, cpus::text(cpus)))
        });
        Ok(settings.collect())
    }
}

/// The threads with the interface's name in theirs.
fn by_name(interface: &str) -> Vec<NapiThread> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let threads = numbers.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let name = process::command(pid)?;
        let napi = napi_of(&name, interface)?;
        Some(NapiThread {
            pid,
            name,
            napi,
            cpus: cpus::of_thread(pid).ok()?,
        })
    });
    threads.collect()
}

/// Whether a thread of that name serves the interface, and which NAPI instance. Before Linux 5.17 a name ends after 15
/// bytes, and an id that may have been cut is none.
fn napi_of(name: &str, interface: &str) -> Option<Option<u32>> {
    let rest = name.strip_prefix(PREFIX)?;
    let maybe_cut = name.len() == CUT;
    let whole = format!("{interface}-");
    match rest.strip_prefix(&whole) {
        Some("") if maybe_cut => Some(None),
        // An instance that nobody can poll from outside has the id 0, as many others.
        Some(id) => id.parse().ok().map(|id| (!maybe_cut && id != 0).then_some(id)),
        None => (maybe_cut && whole.starts_with(rest)).then_some(None),
    }
}

/// <https://elixir.bootlin.com/linux/v5.16/C/ident/TASK_COMM_LEN>, without the NUL.
const CUT: usize = 15;

#[cfg(test)]
#[path = "threads_tests.rs"]
mod tests;
