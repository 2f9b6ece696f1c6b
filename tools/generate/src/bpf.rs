//! The BPF objects and their skeletons, from `crates/bpf/src/bpf` and `examples`.
//!
//! The checked-in objects are compiled with clang 14. The test compares instructions, relocations and skeletons with that version.
//! Other versions generate other instructions: there, `scripts/test` runs all tests on rebuilt objects instead.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};
use libbpf_cargo::SkeletonBuilder;

use crate::{create, root};

/// Where the checked-in files are, relative to the repository.
pub(crate) const CHECKED_IN: &str = "crates/bpf/src/generated";

/// Name and instruction set. "v2" has no 32-bit registers, which the compiler spills to half a stack slot: without
/// CAP_PERFMON, Linux 6.1 and 6.8 refuse that for a slot that was spilled whole before.
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

/// Programs that tests load from an object file, as a user's program is loaded. They have no skeleton.
const OBJECTS: &[(&str, &str)] = &[
    ("testing_layouts", "crates/bpf/src/bpf/testing_layouts.bpf.c"),
    ("hints", "examples/hints.bpf.c"),
    ("nic", "examples/nic.bpf.c"),
];

/// The major version of clang that the checked-in objects were compiled with.
const CLANG: u32 = 14;

/// Compiles all objects into a folder and generates their skeletons.
pub(crate) fn compile(into: &Path) -> Result<()> {
    create(into)?;
    clang_version()?;
    let root = root().canonicalize().context("the repository's folder")?;
    let manifest = root.join("crates/bpf");
    let clang = clang();
    let arguments = clang_arguments(&root);
    for (name, cpu) in PROGRAMS {
        let skeleton = into.join(format!("{name}.skel.rs"));
        let object = into.join(format!("{name}.o"));
        SkeletonBuilder::new()
            .source(manifest.join(format!("src/bpf/{name}.bpf.c")))
            .clang(&clang)
            .clang_args([&arguments[..], &[format!("-mcpu={cpu}")]].concat())
            .reference_obj(true)
            .obj(&object)
            .build_and_generate(&skeleton)
            .map_err(|error| explain(&format!("{name}.bpf.c"), &error))?;
        let text = fs::read_to_string(&skeleton).with_context(|| skeleton.display().to_string())?;
        fs::write(&skeleton, relocatable(&text, name)?).with_context(|| skeleton.display().to_string())?;
    }
    for (name, source) in OBJECTS {
        SkeletonBuilder::new()
            .source(root.join(source))
            .clang(&clang)
            .clang_args(&arguments)
            .obj(into.join(format!("{name}.o")))
            .build()
            .map_err(|error| explain(source, &error))?;
    }
    Ok(())
}

/// Adds to an error of clang the package to install where a header of the kernel is missing.
fn explain(source: &str, error: &anyhow::Error) -> anyhow::Error {
    let text = format!("{error:#}");
    let hint = if text.contains("'linux/") || text.contains("'asm/") {
        "\nThe kernel's user-space headers are missing: install `linux-libc-dev`."
    } else {
        ""
    };
    anyhow!("{source}: {text}{hint}")
}

/// Replaces the object's size and absolute path in a skeleton, so that it suits any folder and any compiler's object.
fn relocatable(skeleton: &str, name: &str) -> Result<String> {
    let object = || {
        let begin = skeleton.find("#[unsafe(link_section")?;
        let length = begin + skeleton[begin..].find(';')? + 1;
        let end = length + skeleton[length..].find(';')? + 1;
        Some((begin, end))
    };
    let (begin, end) =
        object().with_context(|| format!("the skeleton of {name} has no object where libbpf-cargo puts it"))?;
    let data = format!("static DATA: &[u8] = include_bytes!(concat!(env!(\"RINGSIDE_BPF_OBJECTS\"), \"/{name}.o\"));");
    Ok(format!("{}{data}{}", &skeleton[..begin], &skeleton[end..]))
}

fn clang_arguments(root: &Path) -> Vec<String> {
    let mut arguments: Vec<String> = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-std=gnu11"]
        .map(String::from)
        .to_vec();
    // Line information names source files: the same ones wherever the clone is.
    arguments.push(format!("-ffile-prefix-map={}=.", root.display()));
    arguments.push(format!("-I{}", root.join("crates/bpf/src/bpf/include").display()));
    arguments.push(format!("-I{}", root.join("crates/bpf/include").display()));
    // `-target bpf` does not search the host's multiarch folder, where Debian and Ubuntu keep <asm/types.h>.
    for triple in [
        format!("{}-linux-gnu", env::consts::ARCH),
        "arm-linux-gnueabihf".to_owned(),
    ] {
        let folder = Path::new("/usr/include").join(triple);
        if folder.join("asm/types.h").exists() {
            arguments.push(format!("-idirafter{}", folder.display()));
            break;
        }
    }
    arguments
}

fn clang() -> PathBuf {
    env::var_os("CLANG").unwrap_or_else(|| "clang".into()).into()
}

/// Returns the major version of the compiler.
fn clang_version() -> Result<u32> {
    let clang = clang();
    let output = Command::new(&clang).arg("-dumpversion").output().with_context(|| {
        format!(
            "running `{}` to compile the BPF programs: install the package clang (scripts/setup), or name a clang in the variable CLANG",
            clang.display()
        )
    })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let major = text.split('.').next().and_then(|major| major.trim().parse().ok());
    major.ok_or_else(|| anyhow!("`{} -dumpversion` printed {text:?}, not a version", clang.display()))
}

/// Fails unless clang has the version that the checked-in objects are compiled with.
pub(crate) fn require_clang_14() -> Result<()> {
    match clang_version()? {
        CLANG => Ok(()),
        other => bail!(
            "the checked-in BPF objects are compiled with clang {CLANG}, and `{}` is version {other}: name a clang {CLANG} in the variable CLANG",
            clang().display()
        ),
    }
}

#[cfg(test)]
#[path = "bpf_tests.rs"]
mod tests;
