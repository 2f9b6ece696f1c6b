//! The archive that a kernel unpacks into its first file system: cpio, format "newc".
//!
//! <https://docs.kernel.org/driver-api/early-userspace/buffer-format.html>

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Component, Path};

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_000;
const CHARACTER_DEVICE: u32 = 0o020_600;

pub(crate) struct Archive<W> {
    to: W,
    /// What has been written, so that nothing is there twice and each folder before what is in it.
    paths: BTreeSet<String>,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(to: W) -> Self {
        let paths = BTreeSet::new();
        Self { to, paths }
    }

    /// A folder, and those above it.
    pub(crate) fn directory(&mut self, path: &Path) -> io::Result<()> {
        let mut so_far = String::new();
        for name in names(path)? {
            so_far = join(&so_far, name);
            self.entry(&so_far.clone(), DIRECTORY, (0, 0), b"")?;
        }
        Ok(())
    }

    /// A file. One that is there already stays as it is.
    pub(crate) fn file(&mut self, path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
        self.leaf(path, FILE | mode, (0, 0), content)
    }

    pub(crate) fn character_device(&mut self, path: &Path, number: (u32, u32)) -> io::Result<()> {
        self.leaf(path, CHARACTER_DEVICE, number, b"")
    }

    pub(crate) fn contains(&self, path: &Path) -> bool {
        names(path).is_ok_and(|names| self.paths.contains(&names.join("/")))
    }

    /// Ends the archive.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.entry("TRAILER!!!", 0, (0, 0), b"")?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn leaf(&mut self, path: &Path, mode: u32, device: (u32, u32), content: &[u8]) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            self.directory(folder)?;
        }
        self.entry(&names(path)?.join("/"), mode, device, content)
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) -> io::Result<()> {
        if !self.paths.insert(name.to_owned()) {
            return Ok(());
        }
        let small = |length: usize| u32::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge));
        let inode = small(self.paths.len())?;
        let fields = [
            inode,
            mode,
            0, // user
            0, // group
            1, // links
            0, // time
            small(content.len())?,
            0, // the device that it is on
            0,
            device.0,
            device.1,
            small(name.len() + 1)?,
            0, // checksum: none in this format
        ];
        let mut header = String::from("070701");
        for field in fields {
            header.push_str(&format!("{field:08x}"));
        }
        header.push_str(name);
        header.push('\0');
        self.padded(header.as_bytes())?;
        self.padded(content)
    }

    /// Header with name, and content, both fill up multiples of four bytes.
    fn padded(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)?;
        let over = bytes.len() % 4;
        self.to.write_all(&[0; 4][..(4 - over) % 4])
    }
}

/// The names of an absolute path.
fn names(path: &Path) -> io::Result<Vec<&str>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::RootDir => {}
            Component::Normal(name) => names.push(name.to_str().ok_or(io::ErrorKind::InvalidFilename)?),
            _ => return Err(io::ErrorKind::InvalidFilename.into()),
        }
    }
    Ok(names)
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
    }
}

#[cfg(test)]
#[path = "cpio_tests.rs"]
mod tests;
