//! Entering a namespace, sysfs included.
//!
//! sysfs shows the interfaces of the network namespace it was **mounted** in, not of the one the reader is in. So a
//! thread or a process that enters a namespace also gets a mount namespace of its own with a fresh sysfs:
//!
//! ```text
//! setns(net) → unshare(mount) → all of it a slave → keep what is mounted below /sys → mount sysfs → put it back
//! ```

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change, move_mount, open_tree,
};
use rustix::process::{chroot, fchdir};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::sys;

/// All that is needed to enter a namespace, prepared so that the entering itself allocates nothing.
#[derive(Debug)]
pub(crate) struct Entrance {
    namespace: Arc<OwnedFd>,
    /// What is mounted directly below /sys, and a detached copy of it during the change.
    kept: Vec<(CString, Option<OwnedFd>)>,
}

impl Entrance {
    pub(crate) fn prepare(namespace: &Arc<OwnedFd>) -> Self {
        // Of the thread, not of the process: the caller may be inside another namespace.
        let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
        let kept = mounts_below_sys(&mounts).into_iter().map(|path| (path, None)).collect();
        Self {
            namespace: Arc::clone(namespace),
            kept,
        }
    }

    /// Moves the calling thread (or the process, if it has one thread) into the namespace.
    ///
    /// Runs between `fork` and `exec` too: nothing here may allocate, free or lock.
    pub(crate) fn enter(&mut self) -> io::Result<()> {
        move_into_link_name_space(self.namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        sys::new_mount_namespace()?;
        become_slave()?;
        for (path, tree) in &mut self.kept {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
            // A mount that cannot be carried over (a kernel before 5.2, or hidden under another one) is left out.
            *tree = open_tree(CWD, path.as_c_str(), flags).ok();
        }
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RELATIME;
        match mount(c"sysfs", c"/sys", c"sysfs", flags, None::<&CStr>) {
            // The namespace's own is there: it is entered from the inside.
            // https://elixir.bootlin.com/linux/v6.18/C/ident/graft_tree
            Err(Errno::BUSY) => return Ok(()),
            other => other?,
        }
        for (path, tree) in &mut self.kept {
            if let Some(tree) = tree.take() {
                let _ = move_mount(
                    tree.as_fd(),
                    c"",
                    CWD,
                    path.as_c_str(),
                    MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
                );
            }
        }
        Ok(())
    }
}

/// Cuts the calling thread's new mount namespace off: what is mounted in it shows nowhere else.
fn become_slave() -> io::Result<()> {
    // Slave, not private: when the owner unmounts the namespace's name, it goes away here as well.
    let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    match mount_change(c"/", flags) {
        Err(Errno::INVAL) => {}
        done => return Ok(done?),
    }
    // In a chroot "/" may be a plain directory, of a mount that no path leads to. Entering a mount namespace, even the
    // own one, leads to its root: https://elixir.bootlin.com/linux/v6.18/C/ident/mntns_install
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = open(c"/", directory, Mode::empty())?;
    let working = open(c".", directory, Mode::empty())?;
    let own = open(c"/proc/thread-self/ns/mnt", OFlags::CLOEXEC, Mode::empty())?;
    move_into_link_name_space(own.as_fd(), Some(LinkNameSpaceType::Mount))?;
    mount_change(c"/", flags)?;
    fchdir(&root)?;
    chroot(c".")?;
    Ok(fchdir(&working)?)
}

/// The mount points directly below /sys; deeper ones come with the recursive copy of these.
fn mounts_below_sys(mountinfo: &str) -> Vec<CString> {
    let mut paths: Vec<&str> = mountinfo
        .lines()
        // Field 5 is the mount point. One with a space or the like is escaped; there is none below /sys.
        .filter_map(|line| line.split(' ').nth(4))
        .filter(|path| path.starts_with("/sys/") && !path.contains('\\'))
        .collect();
    paths.sort_unstable();
    let mut outermost: Vec<&str> = Vec::new();
    for path in paths {
        let inside = |outer: &str| {
            path.strip_prefix(outer)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if !outermost.iter().any(|outer| inside(outer)) {
            outermost.push(path);
        }
    }
    outermost
        .into_iter()
        .filter_map(|path| CString::new(path).ok())
        .collect()
}

#[cfg(test)]
#[path = "enter_tests.rs"]
mod tests;
