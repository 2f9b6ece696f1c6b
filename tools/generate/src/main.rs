//! Makes the generated sources that are checked in, so that a build needs neither clang nor a protobuf compiler.
//!
//! The generator depends on no other crate of the workspace: it works while those do not compile.
//! Its tests compare the checked-in files with what their sources give. `scripts/generate` runs it.
#![forbid(unsafe_code)]

mod api;
mod bpf;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

fn main() -> ExitCode {
    match generate(env::args().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("generate: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn generate(arguments: Vec<String>) -> Result<()> {
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            bpf::require_clang_14()?;
            bpf::compile(&root().join(bpf::CHECKED_IN))?;
            api::generate(&root().join(api::CHECKED_IN))
        }
        ["--bpf", folder] => bpf::compile(Path::new(folder)),
        _ => bail!("expected no argument, or --bpf FOLDER"),
    }
}

/// Returns the root of the repository.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Creates a folder and all its parents.
fn create(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("creating the folder {}", folder.display()))
}

/// Runs `check` on a new temporary folder and removes the folder afterwards, also on panic.
#[cfg(test)]
fn in_temporary_folder<T>(name: &str, check: impl FnOnce(&Path) -> T) -> T {
    struct Folder(PathBuf);
    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
    let folder = Folder(env::temp_dir().join(format!("ringside-{name}-{}", std::process::id())));
    fs::create_dir(&folder.0).expect("temporary folder");
    check(&folder.0)
}
