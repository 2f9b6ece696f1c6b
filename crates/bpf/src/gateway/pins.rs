//! A data path that goes on while nobody runs: maps and links with names in a bpffs.
//!
//! ```text
//!  /sys/fs/bpf/ringside-gateway/   neighbors connections policies configs lease state workers ports counters samples
//!                                  lost-bulk lost-exception  …  link-eth0  …
//! ```
//! The next process takes the maps over ([`GatewayProgram::adopt`]), loads its own program on them, and puts that behind
//! the link in one step ([`GatewayProgram::take_over`]): each packet meets the old or the new program. In between, hits are
//! sent on as before; what would need a worker is dropped and counted, for the sockets end with their process.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::layout::{Entry as _, LAYOUT, Lease};
use super::table::Shape;
use super::{GatewayProgram, Maps, NAME, Sizes};
use crate::attach::Link;
use crate::error::{Error, Result};
use crate::{load, sys};

/// Pinned last.
const STATE: &str = "state";
const LEASE: &str = "lease";
/// Of its only entry.
const KEY: [u8; 4] = [0; 4];
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/asm-generic/errno.h#L49>
pub(super) const ENOLINK: i32 = 67;

impl GatewayProgram {
    /// Gives the maps names in `folder`, which is made if need be, in a bpffs. They outlive the process from then on, and so
    /// does what is attached with [`attach_pinned`](Self::attach_pinned).
    ///
    /// # Errors
    ///
    /// [`Error::Pin`], for instance if others are there; then nothing is left behind but the folder.
    pub fn pin(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).map_err(pin_error("making the folder", folder))?;
        pin_all(folder, self.maps.all().map(|(name, map)| (name, map.as_fd())))
    }

    /// Gives another map the name of one, in one step.
    pub(super) fn pin_again(folder: &Path, name: &'static str, map: BorrowedFd<'_>) -> Result<()> {
        let (path, new) = (folder.join(name), folder.join(format!("{name}-new")));
        // One that a process left behind which was killed.
        _ = fs::remove_file(&new);
        pin(map, &new)?;
        fs::rename(&new, &path)
            .map_err(pin_error("renaming", &new))
            .inspect_err(|_| _ = fs::remove_file(&new))
    }

    /// Takes over the maps that another process pinned in `folder`, with all that is in them and in the sizes that they have,
    /// and loads the program on them. None if none were pinned there.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`] if they are another version's, [`Error::Pin`] if some are missing or cannot be opened,
    /// [`Error::Load`] if the kernel refuses the program.
    pub fn adopt(folder: &Path) -> Result<Option<Self>> {
        if !folder.join(STATE).exists() {
            return Ok(None);
        }
        let open = |name| open(folder, name);
        // First, because a map of another layout may be another kind of map.
        let state = super::read_state(&open(STATE)?)?;
        let found = super::layout::word(&state, 0).unwrap_or(0);
        if found != LAYOUT {
            return Err(Error::Layout {
                path: folder.to_owned(),
                found,
                expected: LAYOUT,
            });
        }
        let shape = Shape::of(&state).unwrap_or_default();
        let maps = Maps::by_name(shape, open)?;
        let sizes = Sizes::of(&maps);
        Self::load_with(sizes, shape, Some(&maps)).map(Some)
    }

    /// Attaches the program natively or generically to an interface, with a name in a bpffs: it stays attached when the
    /// process ends, until the file is removed.
    ///
    /// # Errors
    ///
    /// [`Error::Attach`], [`Error::Pin`].
    pub fn attach_pinned(&self, ifindex: u32, mode: crate::XdpMode, path: &Path) -> Result<Link> {
        let link = self.attach(ifindex, mode)?;
        pin(link.as_fd(), path)?;
        Ok(link.pinned())
    }

    /// Puts this program in place of the one that another process attached and pinned. None, and the file is gone, if there is
    /// no such link any more, or it is that of another interface: then [`attach_pinned`](Self::attach_pinned) is next.
    ///
    /// # Errors
    ///
    /// [`Error::Pin`] if the kernel refuses it.
    pub fn take_over(&self, ifindex: u32, path: &Path) -> Result<Option<Link>> {
        if !path.exists() {
            return Ok(None);
        }
        let opened = libbpf_rs::Link::open(path)
            .and_then(|link| link.info().map(|info| (link, info)))
            .map_err(|error| load::os_error(&error));
        let (link, info) = opened.map_err(pin_error("opening the link", path))?;
        let is_its = matches!(info.info, LinkTypeInfo::Xdp(ref xdp) if xdp.ifindex == ifindex);
        let updated = if is_its {
            sys::update_link(link.as_fd(), self.program())
        } else {
            Err(io::Error::from_raw_os_error(ENOLINK))
        };
        match updated {
            Ok(()) => {
                let fd = link.as_fd().try_clone_to_owned();
                let fd = fd.map_err(pin_error("keeping the link", path))?;
                Ok(Some(Link::new(fd).pinned()))
            }
            // Its interface is gone, or was made anew.
            Err(error) if error.raw_os_error() == Some(ENOLINK) => {
                fs::remove_file(path).map_err(pin_error("removing the link", path))?;
                Ok(None)
            }
            Err(error) => Err(pin_error("taking over the link", path)(error)),
        }
    }

    /// Removes all names in `folder`, and it: maps and links end with the last process that has them.
    ///
    /// # Errors
    ///
    /// [`Error::Pin`]; it is no error if there is none.
    pub fn unpin(folder: &Path) -> Result<()> {
        let files = match fs::read_dir(folder) {
            Ok(files) => files,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(pin_error("reading the folder", folder)(error)),
        };
        let paths = files.map(|file| file.map(|file| file.path()));
        let mut paths: Vec<_> = paths
            .collect::<io::Result<_>>()
            .map_err(pin_error("reading the folder", folder))?;
        // First what says that all are there: who is killed before the last is gone leaves nothing that could be taken over.
        paths.sort_by_key(|path| !path.ends_with(STATE));
        for path in paths {
            fs::remove_file(&path).map_err(pin_error("removing", &path))?;
        }
        fs::remove_dir(folder).map_err(pin_error("removing the folder", folder))
    }
}

/// Until when what another process pinned goes on by itself: [`GatewayProgram::lease`], before it is taken over, which may take a while.
#[derive(Debug)]
pub struct PinnedLease(MapHandle);

impl PinnedLease {
    /// Of the maps in `folder`, of whichever version: all have this map, and it is the same in all. None if none were pinned there, or one
    /// that is too old for that.
    ///
    /// # Errors
    ///
    /// [`Error::Pin`] if they cannot be opened.
    pub fn open(folder: &Path) -> Result<Option<Self>> {
        if !folder.join(STATE).exists() {
            return Ok(None);
        }
        let map = open(folder, LEASE)?;
        let is_one = (map.key_size() as usize, map.value_size() as usize) == (KEY.len(), Lease::LEN);
        Ok(is_one.then_some(Self(map)))
    }

    /// As it is.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses the reading.
    pub fn read(&self) -> Result<Lease> {
        read_lease(&self.0)
    }

    /// That, from now on.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses the writing.
    pub fn set(&self, lease: Lease) -> Result<()> {
        write_lease(&self.0, lease)
    }
}

pub(super) fn read_lease(map: &MapHandle) -> Result<Lease> {
    let found = map.lookup(&KEY, MapFlags::ANY);
    let found = found.map_err(|error| Error::map(NAME, LEASE, "reading", load::os_error(&error)))?;
    Ok(found.and_then(|bytes| Lease::read(&bytes)).unwrap_or_default())
}

pub(super) fn write_lease(map: &MapHandle, lease: Lease) -> Result<()> {
    let mut bytes = Vec::with_capacity(Lease::LEN);
    lease.write(&mut bytes);
    let set = map.update(&KEY, &bytes, MapFlags::ANY);
    set.map_err(|error| Error::map(NAME, LEASE, "writing", load::os_error(&error)))
}

/// A map that was pinned.
fn open(folder: &Path, name: &str) -> Result<MapHandle> {
    let path = folder.join(name);
    MapHandle::from_pinned_path(&path).map_err(|error| Error::Pin {
        operation: "opening",
        path,
        source: load::os_error(&error),
    })
}

/// Gives all of these names, or none.
pub(super) fn pin_all<'a>(
    folder: &Path,
    objects: impl IntoIterator<Item = (&'static str, BorrowedFd<'a>)>,
) -> Result<()> {
    let mut pinned = Vec::new();
    for (name, object) in objects {
        let path = folder.join(name);
        if let Err(error) = pin(object, &path) {
            // The first error says more than another one would.
            pinned.iter().for_each(|path| _ = fs::remove_file(path));
            return Err(error);
        }
        pinned.push(path);
    }
    Ok(())
}

fn pin(object: BorrowedFd<'_>, path: &Path) -> Result<()> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| pin_error("pinning", path)(invalid()))?;
    sys::pin(object, &name).map_err(pin_error("pinning", path))
}

fn invalid() -> io::Error {
    io::ErrorKind::InvalidInput.into()
}

pub(super) fn pin_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Pin {
        operation,
        path,
        source,
    }
}
