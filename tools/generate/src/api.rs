//! The Rust of the gateway's API, from `proto/`. The protobuf compiler is a crate.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{create, root};

/// Where the checked-in file is, relative to the repository.
pub(crate) const CHECKED_IN: &str = "crates/gateway/src/generated";

/// Writes `ringside.gateway.v1.rs` to a folder.
pub(crate) fn generate(folder: &Path) -> Result<()> {
    create(folder)?;
    let protos = root().join("proto");
    let package = protos.join("ringside/gateway/v1");
    let entries = fs::read_dir(&package).with_context(|| format!("reading {}", package.display()))?;
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "proto"));
    files.sort();
    let descriptors = protox::compile(&files, [&protos])?;
    tonic_prost_build::configure()
        .emit_rerun_if_changed(false)
        .out_dir(folder)
        .compile_fds(descriptors)
        .context("generating Rust from proto/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checked_in_api_matches_its_protos() {
        const FILE: &str = "ringside.gateway.v1.rs";
        let generated = crate::in_temporary_folder("api", |folder| {
            generate(folder).expect("generates");
            fs::read_to_string(folder.join(FILE)).expect("generated file")
        });
        let checked_in = fs::read_to_string(root().join(CHECKED_IN).join(FILE)).expect("checked-in file");
        assert!(
            generated == checked_in,
            "{CHECKED_IN}/{FILE} differs from what proto/ gives: run scripts/generate and commit the result"
        );
    }
}
