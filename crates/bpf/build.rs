//! Compiles `src/bpf/*.bpf.c` with clang and turns each object into a Rust skeleton in `OUT_DIR`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use libbpf_cargo::SkeletonBuilder;

/// Name and instruction set. "v2" has no 32-bit registers, which the compiler spills to half a stack slot: without
/// CAP_PERFMON Linux 6.1 and 6.8 refuse that for a slot that was spilled whole before.
const PROGRAMS: &[(&str, &str)] = &[
    ("events", "v3"),
    ("gateway", "v3"),
    ("gateway_cost", "v3"),
    ("generate", "v3"),
    ("landing", "v3"),
    ("landing_xsk", "v3"),
    ("losses", "v3"),
    ("redirect", "v3"),
    ("redirect_lost", "v3"),
    ("reflect", "v3"),
    ("rings", "v3"),
    ("sink", "v3"),
    ("tag", "v3"),
    ("tc_drop", "v3"),
    ("testing", "v3"),
    ("trace", "v3"),
    ("trace_fentry", "v3"),
    ("xsk", "v2"),
    ("xsk_nic", "v2"),
];

/// Programs that are loaded as a user's are, from an object file: for tests.
const OBJECTS: &[&str] = &[
    "testing_layouts.bpf.c",
    "../../../../examples/hints.bpf.c",
    "../../../../examples/nic.bpf.c",
];

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    let sources = Path::new(&variable("CARGO_MANIFEST_DIR")?).join("src/bpf");
    let out = PathBuf::from(variable("OUT_DIR")?);
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());

    println!("cargo:rerun-if-env-changed=CLANG");
    // A directory is watched with everything in it, headers included.
    println!("cargo:rerun-if-changed={}", sources.display());
    println!("cargo:rerun-if-changed={}", headers(&sources).display());
    println!("cargo:rerun-if-changed=build.rs");

    Command::new(&clang)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(|error| {
            format!(
                "`{}` cannot be run ({error}). The BPF programs are compiled with clang: \
                 install the package `clang` (Debian, Ubuntu: apt-get install clang llvm \
                 libelf-dev zlib1g-dev; or run `make setup` in the repository), or name a \
                 compiler in the variable CLANG.",
                clang.to_string_lossy()
            )
        })?;

    let arguments = clang_arguments(&sources);
    for (name, cpu) in PROGRAMS {
        let source = sources.join(format!("{name}.bpf.c"));
        SkeletonBuilder::new()
            .source(&source)
            .clang(&clang)
            .clang_args([&arguments[..], &[format!("-mcpu={cpu}")]].concat())
            .obj(out.join(format!("{name}.o")))
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .map_err(|error| explain(&source, &format!("{error:#}")))?;
    }
    for source in OBJECTS {
        let source = sources.join(source);
        // The examples are the repository's, not the crate's.
        if !source.exists() {
            continue;
        }
        println!("cargo:rerun-if-changed={}", source.display());
        let name = source.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        SkeletonBuilder::new()
            .source(&source)
            .clang(&clang)
            .clang_args(&arguments)
            .obj(out.join(name.replace(".bpf.c", "_object.o")))
            .build()
            .map_err(|error| explain(&source, &format!("{error:#}")))?;
    }
    Ok(())
}

fn clang_arguments(sources: &Path) -> Vec<String> {
    let mut arguments: Vec<String> = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-std=gnu11"]
        .map(String::from)
        .to_vec();
    arguments.push(format!("-I{}", sources.join("include").display()));
    arguments.push(format!("-I{}", headers(sources).display()));
    // `-target bpf` forgets the host's multiarch folder, which is where Debian and Ubuntu keep
    // <asm/types.h>; other distributions have no such folder and need nothing.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    for triple in [format!("{arch}-linux-gnu"), "arm-linux-gnueabihf".to_owned()] {
        let folder = Path::new("/usr/include").join(triple);
        if folder.join("asm/types.h").exists() {
            arguments.push(format!("-idirafter{}", folder.display()));
            break;
        }
    }
    arguments
}

/// What users' programs include.
fn headers(sources: &Path) -> PathBuf {
    sources.join("../../include")
}

fn explain(source: &Path, error: &str) -> String {
    let hint = if error.contains("'linux/") || error.contains("'asm/") {
        "\nThe kernel's user-space headers are missing: install `linux-libc-dev`."
    } else {
        ""
    };
    format!("{}: {error}{hint}", source.display())
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|_| format!("{name} is not set: run through cargo"))
}
