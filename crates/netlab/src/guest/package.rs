//! A Debian package by its name, from the server that this machine has its packages from.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
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
        let io = |error: io::Error| failed(error.to_string());
        let work = folder.join("apt");
        let sources = self.suite.as_deref().map(source).transpose()?;
        let apt = Apt::new(&work, sources.as_deref()).map_err(io)?;
        apt.update().map_err(failed)?;
        let mut wanted = vec![self.name.clone()];
        let mut found = BTreeSet::new();
        while let Some(name) = wanted.pop() {
            if found.insert(name.clone()) {
                let shown = apt
                    .run("apt-cache", &["show", "--no-all-versions", &name])
                    .map_err(failed)?;
                wanted.extend(dependencies(&shown).filter(|name| also(name)).map(str::to_owned));
            }
        }
        let names: Vec<&str> = found.iter().map(String::as_str).collect();
        apt.run("apt-get", &[&["download"], &names[..]].concat())
            .map_err(failed)?;
        for package in fs::read_dir(apt.packages()).map_err(io)? {
            let package = package.map_err(io)?.path();
            let words = [OsStr::new("-x"), package.as_os_str(), folder.as_os_str()];
            finished(Command::new("dpkg").args(words)).map_err(failed)?;
        }
        fs::remove_dir_all(&work).map_err(io)
    }
}

/// apt with package lists and a cache of its own, in one folder.
struct Apt {
    folder: PathBuf,
    options: Vec<String>,
}

impl Apt {
    /// Creates the folder. `sources` replaces the machine's own sources, in deb822 format.
    fn new(folder: &Path, sources: Option<&str>) -> io::Result<Self> {
        for name in ["lists/partial", "cache/archives/partial", "debs"] {
            fs::create_dir_all(folder.join(name))?;
        }
        let mut options = vec![
            format!("Dir::State::lists={}", folder.join("lists").display()),
            format!("Dir::Cache={}", folder.join("cache").display()),
            // Otherwise apt runs as a user that may not write here.
            "APT::Sandbox::User=root".to_owned(),
            "Acquire::Retries=5".to_owned(),
            // Without it apt-get reports an index that it could not fetch as a warning, and succeeds.
            "APT::Update::Error-Mode=any".to_owned(),
        ];
        if let Some(sources) = sources {
            let file = folder.join("ringside.sources");
            fs::write(&file, sources)?;
            options.push(format!("Dir::Etc::sourcelist={}", file.display()));
            options.push("Dir::Etc::sourceparts=/dev/null".to_owned());
        }
        Ok(Self {
            folder: folder.to_owned(),
            options,
        })
    }

    /// Fetches the package lists. Fails if any of them cannot be fetched.
    fn update(&self) -> Result<(), String> {
        self.run("apt-get", &["update"]).map(drop)
    }

    /// The folder that `apt-get download` writes to.
    fn packages(&self) -> PathBuf {
        self.folder.join("debs")
    }

    fn run(&self, program: &str, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new(program);
        command.args(["-q", "-q"]).current_dir(self.packages());
        for option in &self.options {
            command.args(["-o", option]);
        }
        finished(command.args(words))
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
    Err(format!(
        "{name} failed ({}) and printed:\n{}\nCheck the network and that this machine's package server has that suite, then try again",
        done.status,
        said.trim_end()
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
