//! What a client that runs for long shows gateways: files that are renewed while it runs.

use super::At;
use super::tls::Greeter;

/// What was good last, of the files of the command line.
pub(super) struct Credentials {
    at: At,
    last: Greeter,
    /// What is wrong with the files, as it was said.
    said: String,
}

impl Credentials {
    /// Of these files, which were read for this one.
    pub(super) fn new(at: &At, last: Greeter) -> Self {
        Self {
            at: at.clone(),
            last,
            said: String::new(),
        }
    }

    /// What the files hold now. Where they cannot be read or do not fit together: what was good last, and it is told why, once.
    pub(super) fn newest(&mut self, tell: impl FnOnce(&str)) -> &Greeter {
        match self.last.renewed(&self.at) {
            Ok(newer) => {
                self.said.clear();
                if let Some(newer) = newer {
                    self.last = newer;
                }
            }
            Err(error) => {
                let why = format!("{error:#}; what was read before is used on");
                if self.said != why {
                    tell(&why);
                    self.said = why;
                }
            }
        }
        &self.last
    }
}

#[cfg(test)]
#[path = "credentials_tests.rs"]
mod tests;
