//! A Debian package by its name, from the server that this machine has its packages from.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::str::FromStr;

use super::prepare;
use crate::{Error, Result};

/// A package, as apt writes it: `NAME` for the one of this machine's own release, or `NAME/SUITE` for that of another one,
/// `linux-image-amd64/trixie-backports` for instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    name: String,
    suite: Option<String>,
}

impl FromStr for Package {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, suite) = match text.split_once('/') {
            Some((name, suite)) => (name, Some(suite)),
            None => (text, None),
        };
        // They go into command lines and into a file of apt's.
        let plain = |word: &str| {
            let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"+-._".contains(&byte);
            word.bytes().all(inside) && word.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        };
        if !plain(name) || !suite.is_none_or(plain) {
            let reason = "a package is NAME or NAME/SUITE, such as linux-image-amd64/trixie-backports";
            return Err(prepare("understand", format_args!("'{text}'"), reason));
        }
        Ok(Self {
            name: name.to_owned(),
            suite: suite.map(str::to_owned),
        })
    }
}

impl fmt::Display for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.suite {
            Some(suite) => write!(f, "{}/{suite}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl Package {
    /// A name for a folder.
    pub(crate) fn file_name(&self) -> String {
        self.to_string().replace('/', "@")
    }

    /// Unpacks it, and of what it depends on whatever `also` wants, without installing anything. `folder` is empty.
    ///
    /// apt checks signature and digests. What it knows of the packages lies in `folder` too, meanwhile: the machine's own lists
    /// stay as they are, and nobody has to be root.
    pub(crate) fn unpack(&self, folder: &Path, also: impl Fn(&str) -> bool) -> Result<()> {
        let failed = |reason: String| prepare("fetch the package", self, reason);
        let io = |error: std::io::Error| failed(error.to_string());
        let work = folder.join("apt");
        for name in ["lists/partial", "cache/archives/partial", "debs"] {
            fs::create_dir_all(work.join(name)).map_err(io)?;
        }
        let mut options = vec![
            format!("Dir::State::lists={}", work.join("lists").display()),
            format!("Dir::Cache={}", work.join("cache").display()),
            // Else it becomes a user that may not write here.
            "APT::Sandbox::User=root".to_owned(),
            "Acquire::Retries=2".to_owned(),
        ];
        if let Some(suite) = &self.suite {
            let sources = work.join("ringside.sources");
            fs::write(&sources, source(suite)?).map_err(io)?;
            options.push(format!("Dir::Etc::sourcelist={}", sources.display()));
            options.push("Dir::Etc::sourceparts=/dev/null".to_owned());
        }
        let apt = |program: &str, words: &[&str]| {
            let mut command = Command::new(program);
            command.args(["-q", "-q"]).current_dir(work.join("debs"));
            for option in &options {
                command.args(["-o", option]);
            }
            command.args(words);
            finished(&mut command).map_err(failed)
        };
        apt("apt-get", &["update"])?;
        let mut wanted = vec![self.name.clone()];
        let mut found = BTreeSet::new();
        while let Some(name) = wanted.pop() {
            if found.insert(name.clone()) {
                let shown = apt("apt-cache", &["show", "--no-all-versions", &name])?;
                wanted.extend(dependencies(&shown).filter(|name| also(name)).map(str::to_owned));
            }
        }
        let names: Vec<&str> = found.iter().map(String::as_str).collect();
        apt("apt-get", &[&["download"], &names[..]].concat())?;
        for package in fs::read_dir(work.join("debs")).map_err(io)? {
            let package = package.map_err(io)?.path();
            let words = [OsStr::new("-x"), package.as_os_str(), folder.as_os_str()];
            finished(Command::new("dpkg").args(words)).map_err(failed)?;
        }
        fs::remove_dir_all(&work).map_err(io)
    }
}

/// What a program printed, or what went wrong.
fn finished(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command
        .output()
        .map_err(|error| format!("{name}: {error}; it takes a Debian or one of its kind"))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let said: Vec<&str> = said.lines().filter(|line| !line.starts_with("W:")).collect();
    let said = said.join("; ");
    Err(format!(
        "{name} said: {said}. Is there a network, and does this machine's package server have that suite?"
    ))
}

/// What the packages of `apt-cache show` depend on; of alternatives the first.
fn dependencies(shown: &str) -> impl Iterator<Item = &str> {
    shown
        .lines()
        .filter_map(|line| line.strip_prefix("Depends: "))
        .flat_map(|list| list.split(", "))
        .filter_map(|package| package.split([' ', '|', ':']).next())
}

/// A source of apt's: another suite of the server that has this machine's own release.
fn source(suite: &str) -> Result<String> {
    let failed = |reason: String| prepare("find a package server with", suite, reason);
    let mut targets = Command::new("apt-get");
    targets.args([
        "indextargets",
        "--format",
        "$(REPO_URI) $(RELEASE) $(COMPONENT)",
        "Created-By: Packages",
    ]);
    let targets = finished(&mut targets).map_err(failed)?;
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let Some(server) = server(&targets, suite, field(&system, "VERSION_CODENAME").unwrap_or("")) else {
        return Err(failed(
            "apt has no source of packages: see /etc/apt/sources.list".into(),
        ));
    };
    let keys = format!(
        "/usr/share/keyrings/{}-archive-keyring.gpg",
        field(&system, "ID").unwrap_or("debian")
    );
    let mut source = format!("Types: deb\nURIs: {server}\nSuites: {suite}\nComponents: main\n");
    if Path::new(&keys).exists() {
        source.push_str(&format!("Signed-By: {keys}\n"));
    }
    Ok(source)
}

/// Of lines "address release component", the address of this suite, or of the machine's release, or any.
fn server<'a>(targets: &'a str, suite: &str, release: &str) -> Option<&'a str> {
    let rows = || {
        targets.lines().filter_map(|line| {
            let mut words = line.split(' ');
            let (address, release, component) = (words.next()?, words.next()?, words.next()?);
            (component == "main").then_some((address, release))
        })
    };
    let of = |wanted: &str| rows().find(|(_, release)| *release == wanted);
    let row = of(suite).or_else(|| of(release)).or_else(|| rows().next())?;
    Some(row.0)
}

/// A line of /etc/os-release.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let of = |line: &'a str| line.strip_prefix(name)?.strip_prefix('=');
    text.lines().find_map(of).map(|value| value.trim_matches('"'))
}

#[cfg(test)]
#[path = "package_tests.rs"]
mod tests;
