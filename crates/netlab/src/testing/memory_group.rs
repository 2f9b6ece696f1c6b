//! Control groups with little memory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::wait_until;

/// A control group of its own with a memory limit, removed on drop.
#[derive(Debug)]
pub struct MemoryGroup {
    path: PathBuf,
    /// The file with the limit.
    limit: &'static str,
}

impl MemoryGroup {
    /// Makes one below the group of this process; with version 2, which allows no limits below a
    /// group with processes, below one of the groups around it. Returns `None` where no such group
    /// can be made.
    #[must_use]
    pub fn with_limit(bytes: u64) -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        // "ID:controllers:path"
        groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (id, controllers, own) = (fields.next()?, fields.next()?, fields.next()?);
            let (mount, limit) = if controllers.split(',').any(|name| name == "memory") {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            } else if id == "0" {
                ("/sys/fs/cgroup", "memory.max")
            } else {
                return None;
            };
            let name = format!("ringside-test-{}", std::process::id());
            Path::new(own).ancestors().find_map(|around| {
                let path = Path::new(mount).join(around.strip_prefix("/").ok()?).join(&name);
                fs::create_dir(&path).ok()?;
                let group = Self { path, limit };
                group.set_limit(bytes).ok()?;
                Some(group)
            })
        })
    }

    /// Returns its folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sets another limit, in bytes.
    ///
    /// # Errors
    ///
    /// What the kernel reports, for instance if more memory is in use.
    pub fn set_limit(&self, bytes: u64) -> io::Result<()> {
        fs::write(self.path.join(self.limit), bytes.to_string())
    }

    /// Returns the bytes of memory that it has in use.
    #[must_use]
    pub fn usage(&self) -> Option<u64> {
        let file = match self.limit {
            "memory.max" => "memory.current",
            _ => "memory.usage_in_bytes",
        };
        let text = fs::read_to_string(self.path.join(file)).ok()?;
        text.trim().parse().ok()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Busy until the kernel is done with the last process.
        if !wait_until(Duration::from_secs(5), || fs::remove_dir(&self.path).is_ok()) {
            eprintln!("the control group {} could not be removed", self.path.display());
        }
    }
}

/// Moves this process to the control group in a folder.
///
/// # Panics
///
/// If the kernel refuses it.
pub fn join_group(folder: &Path) {
    // 0: the process that writes.
    fs::write(folder.join("cgroup.procs"), "0").expect("joins the group");
}
