//! What `#[derive(Hints)]` refuses: the messages of the compiler beside each case in `tests/refused`.
//!
//! The cases are compiled with the library that cargo has built for this program. A crate for such
//! tests (trybuild, ui_test) compiles the library and all its dependencies again, for a minute.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The library in the folder of this program. The newest is of the current sources.
fn library() -> PathBuf {
    let program = std::env::current_exe().expect("a path");
    let folder = program.parent().expect("a folder").read_dir().expect("readable");
    let libraries = folder.map(|entry| entry.expect("an entry").path()).filter(|path| {
        let name = path.file_name().expect("a name").to_string_lossy();
        name.starts_with("libringside_xsk-") && name.ends_with(".rlib")
    });
    let built = |path: &PathBuf| path.metadata().and_then(|data| data.modified()).expect("a time");
    libraries.max_by_key(built).expect("cargo has built the library")
}

/// The compiler's messages for a program.
fn messages(library: &Path, case: &Path) -> String {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .current_dir(package)
        .args([
            "--edition=2024",
            "--emit=metadata",
            "--color=never",
            "-o",
            "/dev/null",
            "--extern",
        ])
        .arg(format!("ringside_xsk={}", library.display()))
        .args([
            "-L",
            &format!("dependency={}", library.parent().expect("a folder").display()),
        ])
        .arg(case.strip_prefix(package).expect("of this package"))
        .output()
        .expect("rustc");
    assert_eq!(output.status.code(), Some(1), "{} compiles", case.display());
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    let (messages, _) = text.split_once("\nerror: aborting").expect("the last message");
    // Positions in the library change with it.
    let lines = messages.lines().map(|line| match line.find("--> crates/") {
        Some(_) => line.split(':').next().unwrap_or(line),
        None => line,
    });
    lines.fold(String::new(), |text, line| text + line + "\n")
}

/// With `RINGSIDE_REFUSED=write` in the environment the messages are written instead.
#[test]
fn nonsense_does_not_compile() {
    let library = library();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/refused");
    let mut cases: Vec<PathBuf> = folder
        .read_dir()
        .expect("the cases")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    cases.sort();
    assert!(cases.len() >= 17, "{cases:?}");
    for case in cases {
        let (new, file) = (messages(&library, &case), case.with_extension("stderr"));
        if std::env::var_os("RINGSIDE_REFUSED").is_some_and(|value| value == "write") {
            std::fs::write(file, new).expect("written");
            continue;
        }
        let old = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(
            new,
            old,
            "{} differs: RINGSIDE_REFUSED=write cargo test -p ringside-xsk --test it refused",
            file.display()
        );
    }
}
