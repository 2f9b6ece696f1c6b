//! The token, from a file or the environment, never from the command line: that is there for everybody to see.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use ringside_measure::control::{Nonce, Token};

use crate::output::note;

/// The environment variable.
pub(super) const VARIABLE: &str = "RINGSIDE_TOKEN";

/// The token of `--token-file`, or else of the environment; `None` where there is neither.
pub(super) fn token(file: Option<&Path>) -> Result<Option<Token>> {
    let (text, from) = match (file, std::env::var(VARIABLE)) {
        (Some(file), _) => {
            let from = format!("--token-file {}", file.display());
            let text = fs::read_to_string(file).with_context(|| format!("{from}: reading it"))?;
            warn(file);
            (text, from)
        }
        (None, Ok(text)) => (text, VARIABLE.to_owned()),
        (None, Err(_)) => return Ok(None),
    };
    Token::new(&text).map(Some).with_context(|| from)
}

/// As [`token`], but a file that is not there is made.
pub(super) fn token_or_new(file: Option<&Path>) -> Result<Option<Token>> {
    if let Some(file) = file.filter(|file| !file.exists()) {
        let text = hex(&random()?) + "\n";
        write_private(file, &text).with_context(|| format!("--token-file {}: making it", file.display()))?;
        note(format_args!(
            "made a token in {} (readable by its owner only): copy it to the other host",
            file.display()
        ));
    }
    token(file)
}

fn warn(file: &Path) {
    let mode = fs::metadata(file).map(|about| about.mode()).unwrap_or(0);
    if mode & 0o077 != 0 {
        note(format_args!(
            "{} can be read by others (mode {:o}): chmod 600 {0}",
            file.display(),
            mode & 0o777
        ));
    }
}

/// Writes a file that nobody else can read, all of it or nothing.
///
/// # Errors
/// `AlreadyExists`, where it is there already: it stays as it is.
pub(super) fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".{}", std::process::id()));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&unfinished)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| fs::hard_link(&unfinished, path));
    _ = fs::remove_file(&unfinished);
    written
}

/// Where this user's keys are.
pub(super) fn key_folder() -> PathBuf {
    let of = |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty());
    match (of("XDG_CONFIG_HOME"), of("HOME")) {
        (Some(config), _) => PathBuf::from(config).join("ringside"),
        (None, Some(home)) => PathBuf::from(home).join(".config/ringside"),
        (None, None) => PathBuf::from("/etc/ringside"),
    }
}

/// A number for one use.
pub(super) fn random() -> Result<Nonce> {
    let mut nonce = [0; 32];
    let mut filled = 0;
    while filled < nonce.len() {
        match rustix::rand::getrandom(&mut nonce[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(more) => filled += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => bail!("drawing random numbers: {error}"),
        }
    }
    Ok(nonce)
}

/// A token for one use.
pub(crate) fn random_token() -> Result<String> {
    Ok(hex(&random()?))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
