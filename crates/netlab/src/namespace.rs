//! A network namespace that ends with its handle.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread;

use ringside_nic::Interface;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_bind_recursive, mount_change, unmount};

use crate::enter::Entrance;
use crate::{Error, Result, name, sys};

/// Where `ip netns` looks for namespaces.
const DIRECTORY: &str = "/run/netns";

/// The namespace of the thread that looks.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace: a host of a test bed.
///
/// It has a loopback interface that is up, and a name for `ip netns exec`. The name is removed when the handle is
/// dropped; the kernel ends the namespace when no process, socket or mount is left in it.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    path: PathBuf,
    fd: Arc<OwnedFd>,
    /// Made here, and so removed here.
    ours: bool,
}

impl Namespace {
    /// Creates a namespace whose name contains `tag`, after removing those that killed processes left behind.
    ///
    /// # Errors
    ///
    /// [`Error::Namespace`] without `CAP_SYS_ADMIN`, or if `/run/netns` cannot be written.
    pub fn create(tag: &str) -> Result<Arc<Self>> {
        reap_stale();
        let failed = |operation, source| Error::Namespace {
            operation,
            namespace: tag.to_owned(),
            source,
        };
        let name = name::unique(tag).map_err(|source| failed("name", source))?;
        prepare().map_err(|source| failed("make /run/netns for", source))?;
        let path = Path::new(DIRECTORY).join(&name);
        // A thread can change its namespace for good, so a fresh one does and then ends.
        let made = thread::scope(|scope| {
            let work = || make(&path);
            match thread::Builder::new().spawn_scoped(scope, work) {
                Ok(maker) => maker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                Err(source) => Err(source),
            }
        });
        let fd = made.map_err(|source| failed("create", source))?;
        let namespace = Arc::new(Self {
            name,
            path,
            fd: Arc::new(fd),
            ours: true,
        });
        namespace
            .try_run(|| Interface::by_name("lo").and_then(|lo| lo.set_up(true)))?
            .map_err(|source| Error::Interface {
                namespace: namespace.name.clone(),
                source,
            })?;
        Ok(namespace)
    }

    /// Opens a namespace that is there, by its name under `/run/netns` (`ip netns list`). It is not removed.
    ///
    /// # Errors
    ///
    /// [`Error::Namespace`] if there is none of that name.
    pub fn open(name: &str) -> Result<Arc<Self>> {
        let path = Path::new(DIRECTORY).join(name);
        let file = fs::File::open(&path).map_err(|source| Error::Namespace {
            operation: "open",
            namespace: name.to_owned(),
            source,
        })?;
        Ok(Arc::new(Self {
            name: name.to_owned(),
            path,
            fd: Arc::new(OwnedFd::from(file)),
            ours: false,
        }))
    }

    /// The namespace that the calling thread is in. It is not removed, and has no name for `ip netns`.
    ///
    /// # Errors
    ///
    /// [`Error::Namespace`] without a `/proc`.
    pub fn current() -> Result<Arc<Self>> {
        let path = Path::new(OWN);
        let file = fs::File::open(path).map_err(|source| Error::Namespace {
            operation: "open",
            namespace: OWN.to_owned(),
            source,
        })?;
        Ok(Arc::new(Self {
            name: "this".to_owned(),
            path: path.to_owned(),
            fd: Arc::new(OwnedFd::from(file)),
            ours: false,
        }))
    }

    /// The name, as `ip netns exec` takes it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The path of the name under `/run/netns`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its cookie. No other namespace gets the same one until the machine restarts.
    ///
    /// # Errors
    ///
    /// [`Error::Namespace`] before Linux 5.14.
    pub fn cookie(&self) -> Result<u64> {
        self.try_run(ringside_nic::namespace_cookie)?
            .map_err(|source| Error::Namespace {
                operation: "ask for the cookie of",
                namespace: self.name.clone(),
                source,
            })
    }

    /// The namespace as a file descriptor, as `setns` takes it.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Runs a closure inside and returns what it returns.
    ///
    /// The closure runs on a thread of its own, which costs about a millisecond. What it opens (sockets, BPF links)
    /// stays in the namespace and can be used from anywhere afterwards.
    ///
    /// # Panics
    ///
    /// With the closure's own panic; or if the namespace cannot be entered, which [`Namespace::try_run`] tells as an
    /// error.
    pub fn run<T: Send>(&self, closure: impl FnOnce() -> T + Send) -> T {
        match self.try_run(closure) {
            Ok(value) => value,
            Err(error) => panic!("{error}"),
        }
    }

    /// As [`Namespace::run`], with an error if the namespace cannot be entered.
    ///
    /// # Errors
    ///
    /// [`Error::Namespace`] if the thread cannot be made or moved.
    ///
    /// # Panics
    ///
    /// With the closure's own panic.
    pub fn try_run<T: Send>(&self, closure: impl FnOnce() -> T + Send) -> Result<T> {
        let mut entrance = Entrance::prepare(&self.fd);
        let outcome = thread::scope(|scope| {
            let inside = move || entrance.enter().map(|()| closure());
            match self.thread().spawn_scoped(scope, inside) {
                Ok(running) => running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                Err(source) => Err(source),
            }
        });
        outcome.map_err(|source| self.failed("enter", source))
    }

    /// Starts a thread inside that may outlive the handle.
    ///
    /// The namespace lives on until the thread ends, but loses its name when the handle is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Namespace`] if the thread cannot be made or moved.
    pub fn spawn<T: Send + 'static>(
        &self,
        closure: impl FnOnce() -> T + Send + 'static,
    ) -> Result<thread::JoinHandle<T>> {
        let mut entrance = Entrance::prepare(&self.fd);
        let (entered, outcome) = mpsc::sync_channel(1);
        let inside = move || {
            let result = entrance.enter();
            let inside = result.is_ok();
            // The receiver waits below until this arrives.
            let _ = entered.send(result);
            if !inside {
                // Ends the thread without a message: the caller gets the error, and nobody joins.
                std::panic::resume_unwind(Box::new("the namespace could not be entered"));
            }
            closure()
        };
        let running = self
            .thread()
            .spawn(inside)
            .map_err(|source| self.failed("enter", source))?;
        match outcome.recv() {
            Ok(Ok(())) => Ok(running),
            Ok(Err(source)) => Err(self.failed("enter", source)),
            Err(_) => Err(self.failed("enter", io::Error::other("the thread ended early"))),
        }
    }

    /// A command that runs inside, with the namespace's own sysfs.
    ///
    /// The child is killed when the **thread** that spawns it ends, so that nothing stays behind: spawn from a thread
    /// that lives as long as the child is wanted, not from a short closure in [`Namespace::run`].
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        sys::enter_before_exec(&mut command, Entrance::prepare(&self.fd));
        command
    }

    fn thread(&self) -> thread::Builder {
        thread::Builder::new().name(self.name.clone())
    }

    fn failed(&self, operation: &'static str, source: io::Error) -> Error {
        Error::Namespace {
            operation,
            namespace: self.name.clone(),
            source,
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if self.ours {
            remove(&self.path);
        }
    }
}

/// Removes the namespaces that killed processes left behind, and returns their names.
///
/// Only names of this crate's form are looked at, and of those only the ones whose process no longer lives.
/// [`Namespace::create`] does this first.
pub fn reap_stale() -> Vec<String> {
    let Ok(entries) = fs::read_dir(DIRECTORY) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name::is_stale(name) && remove(&Path::new(DIRECTORY).join(name)))
        .collect()
}

/// Makes the directory of names, and that a mount of its own which is shared, as `ip netns` does (`netns_add` of iproute2's
/// `ip/ipnetns.c`): who did so when there are names already would hide their mounts below it, where nobody can end them.
fn prepare() -> io::Result<()> {
    fs::create_dir_all(DIRECTORY)?;
    let directory = fs::File::open(DIRECTORY)?;
    // `ip netns` holds it meanwhile, too.
    flock(&directory, FlockOperation::LockExclusive)?;
    let share = || mount_change(DIRECTORY, MountPropagationFlags::SHARED | MountPropagationFlags::REC);
    match share() {
        // It is no mount point yet.
        Err(Errno::INVAL) => {
            mount_bind_recursive(DIRECTORY, DIRECTORY)?;
            Ok(share()?)
        }
        done => Ok(done?),
    }
}

/// Makes a namespace, with loopback as the kernel makes it, and gives it a name. Leaves the calling thread inside.
fn make(path: &Path) -> io::Result<OwnedFd> {
    sys::new_network_namespace()?;
    let fd = OwnedFd::from(fs::File::open(OWN)?);
    fs::File::create_new(path)?;
    mount_bind(OWN, path).inspect_err(|_| {
        let _ = fs::remove_file(path);
    })?;
    Ok(fd)
}

/// Removes a name; whether it is gone by us. Another process may remove the same stale one at the same time.
fn remove(path: &Path) -> bool {
    // Not mounted (any more) is as good as unmounted.
    let _ = unmount(path, UnmountFlags::DETACH);
    fs::remove_file(path).is_ok()
}
