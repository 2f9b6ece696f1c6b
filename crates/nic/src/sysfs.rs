//! The sysfs of the calling thread's network namespace.
//!
//! sysfs shows the interfaces of the network namespace that it was **mounted** in, which need not be the one that the
//! reader is in: after `setns()` the files at `/sys` still belong to the interfaces of the namespace before, and there
//! may be one of the same name and even the same index. So the files are taken from a mount of our own, made in the
//! thread's namespace and attached nowhere (<https://man7.org/linux/man-pages/man2/fsmount.2.html>). That takes
//! `CAP_SYS_ADMIN` and Linux 5.2; without it `/sys` has to do, if the index agrees.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::{Error, Interface, Result};

const MOUNT_POINT: &str = "/sys";

/// A sysfs to read and write the files of an interface in.
#[derive(Debug)]
pub(crate) struct Sysfs {
    own: Option<OwnedFd>,
}

impl Sysfs {
    /// That of the calling thread's network namespace.
    pub(crate) fn of_this_thread() -> Self {
        Self { own: mount().ok() }
    }

    pub(crate) fn read(&self, interface: &Interface, file: &str) -> Result<String> {
        self.check(interface)?;
        self.read_unchecked(interface, file)
    }

    pub(crate) fn number<N: FromStr>(&self, interface: &Interface, file: &str) -> Result<N> {
        let text = self.read(interface, file)?;
        text.parse().map_err(|_| {
            let what = io::Error::other(format!("'{text}'"));
            Error::file("understand", shown(interface, file), what)
        })
    }

    pub(crate) fn write(&self, interface: &Interface, file: &str, value: &str) -> Result<()> {
        self.check(interface)?;
        let written = self
            .open(interface, file, OFlags::WRONLY)
            .and_then(|mut file| file.write_all(value.as_bytes()));
        written.map_err(|source| Error::file("write", shown(interface, file), source))
    }

    fn read_unchecked(&self, interface: &Interface, file: &str) -> Result<String> {
        let mut text = String::new();
        let read = self
            .open(interface, file, OFlags::RDONLY)
            .and_then(|mut file| file.read_to_string(&mut text));
        match read {
            Ok(_) => Ok(text.trim_end().to_owned()),
            Err(source) => Err(Error::file("read", shown(interface, file), source)),
        }
    }

    /// Makes sure that the directory is that of this very interface.
    fn check(&self, interface: &Interface) -> Result<()> {
        interface.check_namespace("use the settings of")?;
        let index = self.read_unchecked(interface, "ifindex")?;
        if index.parse() == Ok(interface.index()) {
            return Ok(());
        }
        Err(Error::file(
            "read",
            shown(interface, ""),
            io::ErrorKind::NotFound.into(),
        ))
    }

    fn open(&self, interface: &Interface, file: &str, how: OFlags) -> io::Result<File> {
        let below = Path::new("class/net").join(interface.name()).join(file);
        let (root, path) = match &self.own {
            Some(own) => (own.as_fd(), below),
            None => (CWD as BorrowedFd<'_>, Path::new(MOUNT_POINT).join(below)),
        };
        Ok(File::from(openat(root, &path, how | OFlags::CLOEXEC, Mode::empty())?))
    }
}

/// How a file's path reads in a message.
fn shown(interface: &Interface, file: &str) -> PathBuf {
    Path::new(MOUNT_POINT)
        .join("class/net")
        .join(interface.name())
        .join(file)
}

fn mount() -> io::Result<OwnedFd> {
    let context = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
        | MountAttrFlags::MOUNT_ATTR_RELATIME;
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}
