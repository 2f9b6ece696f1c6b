use std::fs;
use std::io::Write as _;
use std::process::Output;

use super::*;
use crate::name;

const NAME: &str = "linux-image-amd64@trixie-backports";
const PACKAGE: &str = "linux-image-amd64/trixie-backports";

/// Stands in for apt-get: fails as often as the file `failures` has lines, and records its calls.
const APT_GET: &str = r#"#!/bin/sh
folder=${0%/*}
for word in "$@"; do
	case $word in
	Dir::Etc::sourcelist=*) cat "${word#*=}" >"$folder/sources" ;;
	indextargets) cat "$folder/targets"; exit ;;
	update)
		echo update >>"$folder/calls"
		if [ -s "$folder/failures" ]; then
			sed -i 1d "$folder/failures"
			echo "E: Failed to fetch http://a/debian 503 Service Unavailable" >&2
			exit 100
		fi
		exit ;;
	download) echo "$*" | sed 's/.* download/download/' >>"$folder/calls"; touch one.deb; exit ;;
	esac
done
exit 1
"#;
const APT_CACHE: &str = r#"#!/bin/sh
for name in "$@"; do :; done
[ "$name" != linux-image-amd64 ] ||
	echo 'Depends: linux-initramfs-tool | dracut, linux-image-7-amd64 (= 7-1) | x, python3:any'
[ "$name" != linux-image-7-amd64 ] || echo 'Depends: linux-binary-7-amd64 (= 7-1)'
"#;
const DPKG: &str = "#!/bin/sh\nmkdir -p \"$3/lib/modules/7/kernel\" && echo 7 >\"$3/lib/modules/7/vmlinuz\"\n";
const TARGETS: &str = "http://other/x/ stable contrib\nhttp://other/x/ stable main\nhttp://a/debian/ CODENAME main\n\
                       http://a/security/ trixie-security main\n";

/// A cache, and programs in the place of apt's.
struct Bed(PathBuf);

impl Bed {
    fn new() -> Self {
        let bed = Self(std::env::temp_dir().join(name::unique("cache").unwrap()));
        fs::create_dir(&bed.0).unwrap();
        bed
    }

    fn with_apt() -> Self {
        let bed = Self::new();
        let programs = [
            ("apt-get", APT_GET),
            ("apt-cache", APT_CACHE),
            ("dpkg", DPKG),
            ("sleep", "#!/bin/sh\n"),
        ];
        for (name, content) in programs {
            bed.install(name, content);
        }
        let system = fs::read_to_string("/etc/os-release").unwrap();
        let codename = super::super::package::field(&system, "VERSION_CODENAME").unwrap_or("none");
        fs::write(bed.0.join("targets"), TARGETS.replace("CODENAME", codename)).unwrap();
        bed
    }

    /// Writes a program from another process: a fork of another test's thread in between would
    /// hold the file open for writing, and the kernel executes no such file.
    fn install(&self, name: &str, content: &str) {
        let mut command = Command::new("install");
        command.args(["-m", "755", "/dev/stdin"]).arg(self.0.join(name));
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(content.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    }

    fn cache(&self) -> Cache {
        Cache::at(self.0.join("cache"))
    }

    fn fetch(&self, package: &str) -> Output {
        let mut command = Command::new("sh");
        let path = format!("{}:{}", self.0.display(), std::env::var("PATH").unwrap());
        command
            .args(["-c", FETCH, "fetch.sh", "kernel"])
            .arg(self.cache().path(""))
            .arg(package);
        command.env("PATH", path).output().unwrap()
    }

    fn calls(&self) -> String {
        fs::read_to_string(self.0.join("calls")).unwrap()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }

    fn entry(&self, name: &str) -> String {
        self.cache().entry(name).unwrap_err().to_string()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn fetches_the_packages_that_have_files_of_the_kernel_once() {
    let bed = Bed::with_apt();
    // Left by a killed process.
    fs::create_dir_all(bed.0.join("cache/fetch.abcdef/entry")).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(bed.fetch(PACKAGE).status.success()));
        }
    });
    let calls = "update\ndownload linux-image-amd64 linux-image-7-amd64 linux-binary-7-amd64\n";
    assert_eq!(bed.calls(), calls);
    let entry = bed.cache().entry(NAME).unwrap();
    assert_eq!(fs::read_to_string(entry.join("lib/modules/7/vmlinuz")).unwrap(), "7\n");
    let mut names: Vec<_> = fs::read_dir(bed.0.join("cache"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, [NAME, "lock"]);
}

#[test]
fn retries_after_a_failure_of_the_server() {
    let bed = Bed::with_apt();
    fs::write(bed.0.join("failures"), "1\n2\n").unwrap();
    let done = bed.fetch(PACKAGE);
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(
        done.status.success() && text.contains("503") && text.contains("next try"),
        "{text}"
    );
    assert_eq!(bed.calls().matches("update").count(), 3);
    bed.cache().entry(NAME).unwrap();
}

#[test]
fn the_fifth_failure_is_an_error_with_apts_own_words() {
    let bed = Bed::with_apt();
    fs::write(bed.0.join("failures"), "1\n2\n3\n4\n5\n").unwrap();
    let done = bed.fetch(PACKAGE);
    let text = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{text}");
    let last = text.lines().last().unwrap();
    for part in [PACKAGE, "http://a/debian/", "trixie-backports", "five tries failed"] {
        assert!(last.contains(part), "{part}: {last}");
    }
    assert_eq!(
        text.matches("E: Failed to fetch http://a/debian 503").count(),
        5,
        "{text}"
    );
    assert!(bed.entry(NAME).contains("run scripts/setup"));
    assert_eq!(fs::read_dir(bed.0.join("cache")).unwrap().count(), 1, "only the lock");
}

#[test]
fn the_server_is_that_of_the_suite_then_that_of_the_release() {
    let bed = Bed::with_apt();
    for (package, server, suite) in [
        (
            "linux-image-amd64/trixie-security",
            "http://a/security/",
            "trixie-security",
        ),
        (PACKAGE, "http://a/debian/", "trixie-backports"),
    ] {
        assert!(bed.fetch(package).status.success());
        let sources = bed.read("sources");
        assert!(
            sources.contains(&format!("URIs: {server}\nSuites: {suite}\n")),
            "{sources}"
        );
    }
    fs::write(bed.0.join("targets"), "").unwrap();
    let done = bed.fetch("linux-image-amd64/sid");
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(
        !done.status.success() && text.contains("no source of packages"),
        "{text}"
    );
}

/// apt-get itself succeeds where it could not read an index, and prints a line that begins with "W:".
#[test]
fn an_unreachable_server_is_an_error_of_the_real_apt() {
    let bed = Bed::new();
    bed.install("sleep", "#!/bin/sh\n");
    let config = bed.0.join("apt.conf");
    // Nobody listens on port 9 of loopback.
    let proxy = "Acquire { http::Proxy \"http://127.0.0.1:9\"; https::Proxy \"http://127.0.0.1:9\"; Retries::Delay \"false\"; };";
    fs::write(&config, proxy).unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-c", FETCH, "fetch.sh", "kernel"])
        .arg(bed.cache().path(""))
        .arg(PACKAGE);
    let path = format!("{}:{}", bed.0.display(), std::env::var("PATH").unwrap());
    let done = command.env("PATH", path).env("APT_CONFIG", &config).output().unwrap();
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success(), "{text}");
    assert!(
        text.contains("E: ") && text.contains("127.0.0.1") && text.contains("five tries failed"),
        "{text}"
    );
}

/// cargo sets `RINGSIDE_OFFLINE` for tests (`.cargo/config.toml`).
#[test]
fn tests_do_not_fetch_a_missing_kernel() {
    let bed = Bed::new();
    let package = "no-such-kernel/no-such-suite".parse().unwrap();
    let error = bed.cache().kernel(&package).unwrap_err().to_string();
    let expected = format!("it is not in {}: run scripts/setup", bed.0.join("cache").display());
    assert!(
        error.contains("no-such-kernel@no-such-suite") && error.contains(&expected),
        "{error}"
    );
    assert!(!bed.0.join("cache").exists(), "the fetch begins with this folder");
}

#[test]
fn a_damaged_entry_is_an_error_and_the_next_fetch_replaces_it() {
    let bed = Bed::with_apt();
    assert!(bed.fetch(PACKAGE).status.success());
    let image = bed.cache().path(NAME).join("lib/modules/7/vmlinuz");
    fs::write(&image, "8\n").unwrap();
    let error = bed.entry(NAME);
    assert!(
        error.contains("lib/modules/7/vmlinuz: FAILED") && error.contains("run scripts/setup"),
        "{error}"
    );
    assert!(bed.fetch(PACKAGE).status.success());
    assert_eq!(
        fs::read_to_string(bed.cache().entry(NAME).unwrap().join("lib/modules/7/vmlinuz")).unwrap(),
        "7\n"
    );
}
