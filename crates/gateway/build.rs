//! Rust from `proto/`, by a compiler that is a crate: nobody has to install `protoc`.

use std::error::Error;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let package = root.join("ringside/gateway/v1");
    println!("cargo::rerun-if-changed={}", package.display());
    let mut files: Vec<PathBuf> = std::fs::read_dir(&package)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "proto"));
    files.sort();
    let descriptors = protox::compile(&files, [&root])?;
    tonic_prost_build::configure()
        .emit_rerun_if_changed(false)
        .compile_fds(descriptors)?;
    Ok(())
}
