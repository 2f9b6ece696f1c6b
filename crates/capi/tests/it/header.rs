//! The header is what cbindgen makes of the sources, and compiles everywhere.

use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn header() -> PathBuf {
    folder().join("include/ringside/ringside.h")
}

/// What `unsafe` functions have to say to Rust, C knows without.
fn without_safety(text: &str) -> String {
    let mut lines = Vec::new();
    let mut in_safety = false;
    for line in text.lines() {
        if line.trim_start() == "// # Safety" {
            in_safety = true;
            // The empty line in front of it.
            if lines.last().is_some_and(|last: &&str| last.trim() == "//") {
                lines.pop();
            }
        }
        in_safety &= line.trim_start().starts_with("//");
        if !in_safety {
            lines.push(line);
        }
    }
    lines.join("\n") + "\n"
}

fn generated() -> String {
    let config = cbindgen::Config::from_file(folder().join("cbindgen.toml")).expect("its configuration");
    let bindings = cbindgen::Builder::new()
        .with_crate(folder())
        .with_config(config)
        .generate()
        .expect("a header");
    let mut text = Vec::new();
    bindings.write(&mut text);
    without_safety(&String::from_utf8(text).expect("UTF-8"))
}

/// With `RINGSIDE_HEADER=write` in the environment it is written instead.
#[test]
fn the_header_is_up_to_date() {
    let new = generated();
    if std::env::var_os("RINGSIDE_HEADER").is_some_and(|value| value == "write") {
        std::fs::create_dir_all(header().parent().expect("a folder")).expect("a folder");
        std::fs::write(header(), new).expect("written");
        return;
    }
    let old = std::fs::read_to_string(header()).unwrap_or_default();
    assert!(
        old == new,
        "{} is not what the sources say: RINGSIDE_HEADER=write cargo test -p ringside-capi --test it header",
        header().display()
    );
}

/// Compiles a file that does nothing but include the header, twice.
#[track_caller]
fn compiles(compiler: &str, name: &str, arguments: &[&str]) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join(name);
    std::fs::write(
        &source,
        "#include <ringside/ringside.h>\n#include <ringside/ringside.h>\n",
    )
    .expect("written");
    let output = Command::new(compiler)
        .args(arguments)
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"])
        .arg("-I")
        .arg(self::folder().join("include"))
        .arg(&source)
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}; make setup installs it"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn it_is_c99_and_c11() {
    for compiler in ["gcc", "clang"] {
        for standard in ["-std=c99", "-std=c11"] {
            compiles(
                compiler,
                &format!("header{standard}-{compiler}.c"),
                &[standard, "-Wstrict-prototypes"],
            );
        }
    }
}

#[test]
fn it_is_cpp() {
    for compiler in ["g++", "clang++"] {
        for standard in ["-std=c++11", "-std=c++20"] {
            compiles(compiler, &format!("header{standard}-{compiler}.cpp"), &[standard]);
        }
    }
}
