//! The sockets of running commands: `live-PID-START.sock` in the state directory.
//!
//! A process is told from a later one with its number by its start time, in clock ticks since boot.

use std::fs;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use ringside_nic::{process, state_dir};
use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

/// Connections that may wait.
const BACKLOG: i32 = 128;

/// A socket that is there. Whether anybody listens is another question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) path: PathBuf,
    pub(crate) pid: u32,
    start: u64,
}

/// A socket of this process's own, which only its user may connect to. Removed when it is dropped.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    pub(super) fn make() -> io::Result<Self> {
        let directory = state_dir::path();
        state_dir::make(&directory)?;
        sweep(&directory);
        let pid = std::process::id();
        let start = process::start_time(pid).ok_or_else(|| io::Error::other("/proc does not tell of this process"))?;
        // A process has one run at a time, but tests of the same process may have several.
        let path = directory.join(format!("live-{pid}-{start}.sock"));
        _ = fs::remove_file(&path);
        let listener = bind_private(&path)?;
        Ok(Self { listener, path })
    }
}

/// Listens on a socket whose file is created with mode 600.
///
/// The kernel takes the mode from the socket (`unix_bind_bsd()` in net/unix/af_unix.c).
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

impl Drop for Socket {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.path);
    }
}

/// All sockets, by process number, those that killed processes left removed.
pub(crate) fn all() -> io::Result<Vec<Entry>> {
    let directory = state_dir::path();
    sweep(&directory);
    entries(&directory)
}

fn entries(directory: &Path) -> io::Result<Vec<Entry>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let sockets = entries.flatten().filter_map(|entry| {
        let name = entry.file_name();
        let (pid, start) = name
            .to_str()?
            .strip_prefix("live-")?
            .strip_suffix(".sock")?
            .split_once('-')?;
        Some(Entry {
            path: entry.path(),
            pid: pid.parse().ok()?,
            start: start.parse().ok()?,
        })
    });
    let mut sockets: Vec<Entry> = sockets.collect();
    sockets.sort_by_key(|entry| (entry.pid, entry.start));
    Ok(sockets)
}

/// Removes what killed processes left: of a process that is not there, and nobody listens. The one without the other may be a
/// process of another PID namespace, or one that is just about to listen.
fn sweep(directory: &Path) {
    for entry in entries(directory).unwrap_or_default() {
        let gone = process::start_time(entry.pid) != Some(entry.start);
        if gone && UnixStream::connect(&entry.path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        {
            _ = fs::remove_file(&entry.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    #[test]
    fn a_socket_is_for_its_user_alone_from_the_start() {
        let directory = std::env::temp_dir().join(format!("rs-private-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let watch = inotify::init(CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, &directory, WatchFlags::CREATE | WatchFlags::ATTRIB).unwrap();
        let path = directory.join("socket");
        let listener = bind_private(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        _ = UnixStream::connect(&path).unwrap();
        let mut buffer = [std::mem::MaybeUninit::uninit(); 512];
        let mut events = inotify::Reader::new(&watch, &mut buffer);
        let [first, second] = [(); 2].map(|()| events.next().map(|event| event.events()));
        fs::remove_file(&path).unwrap();
        fs::remove_dir(&directory).unwrap();
        drop(listener);
        assert_eq!(mode & 0o777, 0o600);
        // The mode was not changed after the file was there.
        assert_eq!((first, second), (Ok(ReadFlags::CREATE), Err(rustix::io::Errno::AGAIN)));
    }

    #[test]
    fn only_what_is_dead_and_deaf_is_removed() {
        let directory = std::env::temp_dir().join(format!("rs-live-{}", std::process::id()));
        state_dir::make(&directory).unwrap();
        let own = process::start_time(std::process::id()).unwrap();
        let at = |pid: u32, start: u64| directory.join(format!("live-{pid}-{start}.sock"));
        // Of a living process, deaf; of a dead one that somebody listens for; of a dead one, deaf.
        let [deaf, heard, dead] = [
            at(std::process::id(), own),
            at(std::process::id(), own + 1),
            at(4_194_304, 7),
        ];
        drop(UnixListener::bind(&deaf).unwrap());
        let _listener = UnixListener::bind(&heard).unwrap();
        drop(UnixListener::bind(&dead).unwrap());
        // A child that another thread has forked listens too until it executes its program.
        let is_deaf =
            || UnixStream::connect(&dead).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
        assert!(ringside_netlab::wait_until(Duration::from_secs(10), is_deaf));
        fs::write(directory.join("live-1-2.json"), "").unwrap();
        sweep(&directory);
        let left = entries(&directory).unwrap();
        assert_eq!(
            left.iter().map(|entry| &entry.path).collect::<Vec<_>>(),
            [&deaf, &heard]
        );
        assert!(directory.join("live-1-2.json").exists(), "somebody else's");
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(entries(&directory).unwrap(), [], "no directory is none to look into");
    }
}
