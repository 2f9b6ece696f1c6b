//! Compiling and running C programs with the library that cargo has built.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(unreachable_pub, reason = "shared by test binaries, not an API")]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What all C of this repository is compiled with.
pub const WARNINGS: [&str; 6] = ["-std=gnu99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g"];

pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/c")
}

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder with the libraries that this test was built beside.
pub fn built() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    test.parent().expect("a folder").to_owned()
}

/// A folder of this test's own.
pub fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("capi-{name}-{}", std::process::id()));
    _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Compiles `tests/it/c/NAME.c` with the shared library, into `folder`.
pub fn compile(name: &str, folder: &Path) -> PathBuf {
    let library = built().join("libringside.so");
    for link in [
        "libringside.so",
        concat!(
            "libringside.so.",
            env!("CARGO_PKG_VERSION_MAJOR"),
            ".",
            env!("CARGO_PKG_VERSION_MINOR")
        ),
    ] {
        let link = folder.join(link);
        if !link.exists() {
            symlink(&library, link).expect("a link");
        }
    }
    let program = folder.join(name);
    let output = Command::new("gcc")
        .args(WARNINGS)
        .arg("-I")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
        .arg(sources().join(name).with_extension("c"))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(folder)
        .arg(format!("-Wl,-rpath,{}", folder.display()))
        .args(["-lringside", "-lpthread"])
        .output()
        .expect("gcc: make setup installs it");
    succeeded(&output);
    program
}

/// Fails with what the program said.
#[track_caller]
pub fn succeeded(output: &Output) -> String {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{}\n{out}{err}", output.status);
    out.into_owned()
}

/// A command under valgrind, whose findings are failures.
pub fn valgrind(mut command: Command, program: &Path) -> Command {
    // --error-exitcode: a fault found is a failure; leaks are not asked for, for what is static stays.
    command.args(["--quiet", "--error-exitcode=99", "--num-callers=20"]);
    command.arg(program);
    command
}
