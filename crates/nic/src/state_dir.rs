//! The directory that running processes leave word in, for others and for later ones.
//!
//! `/run/ringside`, or what the environment variable [`VARIABLE`] names. It is in memory (tmpfs) and gone after a restart
//! of the machine.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Environment variable with the directory to keep state files in.
pub const VARIABLE: &str = "RINGSIDE_STATE_DIR";

const DEFAULT: &str = "/run/ringside";

/// Which directory it is; it may not be there.
#[must_use]
pub fn path() -> PathBuf {
    let named = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    named.unwrap_or_else(|| DEFAULT.into()).into()
}

/// Makes it with mode 0755 if it does not exist.
///
/// # Errors
///
/// When it cannot be made, or others than its owner, who is root or the caller, may write to it: what is in it decides what
/// root writes into the kernel, and is believed by who looks at a run.
pub fn make(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    let metadata = fs::metadata(directory)?;
    let own = [0, rustix::process::geteuid().as_raw()].contains(&metadata.uid());
    if own && metadata.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "others than its owner may write to it",
    ))
}
