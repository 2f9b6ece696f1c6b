//! A Debian package by its name, from the server that this machine has its packages from.

use std::fmt;
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
    /// Returns its name in the cache, which `fetch.sh` forms in the same way.
    pub(crate) fn file_name(&self) -> String {
        self.to_string().replace('/', "@")
    }
}

/// A line of /etc/os-release.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let of = |line: &'a str| line.strip_prefix(name)?.strip_prefix('=');
    text.lines().find_map(of).map(|value| value.trim_matches('"'))
}

#[cfg(test)]
#[path = "package_tests.rs"]
mod tests;
