//! Programs of this machine.

use std::env;
use std::path::{Path, PathBuf};

/// The file of a program that `PATH` has.
#[must_use]
pub fn find_program(name: impl AsRef<Path>) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut files = env::split_paths(&path).map(|folder| folder.join(&name));
    files.find(|file| file.is_absolute() && file.is_file())
}
