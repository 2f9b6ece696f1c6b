//! Chooses the folder of the compiled BPF objects: `src/generated`, or the one that
//! RINGSIDE_BPF_OBJECTS names by its absolute path.
//!
//! `scripts/generate` compiles the objects in `src/generated` from `src/bpf`. The tests of
//! `tools/generate` check that they match their sources. Neither clang nor libbpf-cargo is needed.

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

const VARIABLE: &str = "RINGSIDE_BPF_OBJECTS";

fn main() -> ExitCode {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed={VARIABLE}");
    let checked_in = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("src/generated");
    let chosen = env::var_os(VARIABLE).map(PathBuf::from);
    if chosen.is_none() && env::var("CARGO_CFG_TARGET_ENDIAN").is_ok_and(|endian| endian == "big") {
        eprintln!(
            "error: the BPF objects in {} are little-endian, and this target is big-endian. \
             Compile them with `scripts/generate --bpf FOLDER` on such a machine and set {VARIABLE}=FOLDER.",
            checked_in.display()
        );
        return ExitCode::FAILURE;
    }
    if let Some(relative) = chosen.as_ref().filter(|folder| folder.is_relative()) {
        eprintln!(
            "error: {VARIABLE}={} is a relative path, and cargo runs this in another folder. \
             Name the absolute path.",
            relative.display()
        );
        return ExitCode::FAILURE;
    }
    let folder = chosen.unwrap_or(checked_in);
    if !folder.join("xsk.o").exists() {
        eprintln!(
            "error: there are no BPF objects in {} (no file xsk.o). \
             Compile them with `scripts/generate --bpf {}`{}.",
            folder.display(),
            folder.display(),
            if env::var_os(VARIABLE).is_some() {
                format!(", or unset {VARIABLE}")
            } else {
                String::new()
            }
        );
        return ExitCode::FAILURE;
    }
    println!("cargo:rustc-env={VARIABLE}={}", folder.display());
    ExitCode::SUCCESS
}
