//! `scripts/install` puts the tool, its man pages and its completions where people look for them, and takes them away again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ringside_netlab::testing;

/// A folder of the test's own, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("install-tool-{}", std::process::id()));
        fs::create_dir_all(path.join("built")).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        match entry.path() {
            path if path.is_dir() => all.extend(files(&path)),
            path => all.push(path),
        }
    }
    all
}

#[test]
fn the_tool_its_pages_and_completions() {
    let folder = Folder::new();
    let (built, root) = (folder.0.join("built"), folder.0.join("root"));
    let install = |arguments: &[&str]| -> Output {
        Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/install"))
            .args(arguments)
            .env("DESTDIR", &root)
            .env("PREFIX", "/usr")
            .output()
            .unwrap()
    };
    let from = built.to_str().unwrap();
    let refused = install(&["--from", from]);
    assert!(!refused.status.success());
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(told.contains("neither ringside nor libringside.so"), "{told}");

    testing::copy_program(env!("CARGO_BIN_EXE_ringside"), built.join("ringside"));
    let done = install(&["--from", from]);
    assert!(done.status.success(), "{done:?}");
    let version = Command::new(root.join("usr/bin/ringside"))
        .arg("--version")
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8(version.stdout).unwrap().trim(),
        concat!("ringside ", env!("CARGO_PKG_VERSION"))
    );

    // Symbols are in a file of their own, which the program names.
    let has_symbols = |file: &Path| {
        let sections = Command::new("readelf").args(["-SW"]).arg(file).output().unwrap();
        assert!(sections.status.success(), "{sections:?}");
        String::from_utf8(sections.stdout).unwrap().contains(".symtab")
    };
    let bin = root.join("usr/bin");
    assert!(!has_symbols(&bin.join("ringside")));
    assert!(has_symbols(&bin.join(".debug/ringside.debug")));
    let link = Command::new("readelf")
        .args(["-p", ".gnu_debuglink"])
        .arg(bin.join("ringside"))
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&link.stdout).contains("ringside.debug"));

    // The pages are read by what reads them on the user's machine.
    let page = root.join("usr/share/man/man1/ringside-ping.1");
    let read = Command::new("man")
        .args(["--warnings", "-P", "cat", "-l"])
        .arg(&page)
        .env("LC_ALL", "C.UTF-8")
        .output();
    let read = read.unwrap();
    assert!(read.status.success() && read.stderr.is_empty(), "{read:?}");
    let text = String::from_utf8_lossy(&read.stdout);
    for part in ["ringside-ping(1)", "under-load", "Examples:", "192.0.2.7"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    let bash = Command::new("bash")
        .args(["-c", "source $1 && complete -p ringside", "-"])
        .arg(root.join("usr/share/bash-completion/completions/ringside"))
        .output()
        .unwrap();
    assert!(
        String::from_utf8(bash.stdout)
            .unwrap()
            .contains("-F _ringside ringside")
    );
    assert!(root.join("usr/share/fish/vendor_completions.d/ringside.fish").exists());
    assert!(root.join("usr/share/zsh/site-functions/_ringside").exists());

    assert!(install(&["--uninstall"]).status.success());
    let left = files(&root);
    assert!(left.is_empty(), "{left:?} stays");
}
