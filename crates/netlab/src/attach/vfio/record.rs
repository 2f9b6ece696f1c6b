//! What a device was before it was given away, for whoever has to put it back.

use std::fs;
use std::io;
use std::path::PathBuf;

use ringside_nic::state_dir;
use serde::{Deserialize, Serialize};

use super::PciAddress;
use crate::name;

const ENDING: &str = ".vfio";

/// A file of the state directory, named after the process (see `name.rs`).
#[derive(Debug)]
pub(super) struct Record {
    path: PathBuf,
    address: PciAddress,
    was: Was,
}

#[derive(Debug, Serialize, Deserialize)]
struct Was {
    address: String,
    driver: Option<String>,
    overridden: Option<String>,
}

impl Record {
    pub(super) fn write(address: PciAddress, driver: Option<String>, overridden: Option<String>) -> io::Result<Self> {
        let folder = state_dir::path();
        state_dir::make(&folder)?;
        let was = Was {
            address: address.to_string(),
            driver,
            overridden,
        };
        let path = folder.join(name::unique("vfio")? + ENDING);
        // Whole or not at all, should the process end here.
        let draft = path.with_extension("draft");
        fs::write(&draft, serde_json::to_vec(&was)?)?;
        fs::rename(&draft, &path)?;
        Ok(Self { path, address, was })
    }

    /// Those of processes that are gone.
    pub(super) fn stale() -> Vec<Self> {
        let Ok(entries) = fs::read_dir(state_dir::path()) else {
            return Vec::new();
        };
        let read = |entry: fs::DirEntry| {
            let file = entry.file_name().into_string().ok()?;
            if !name::is_stale(file.strip_suffix(ENDING)?) {
                return None;
            }
            let was: Was = serde_json::from_slice(&fs::read(entry.path()).ok()?).ok()?;
            Some(Self {
                path: entry.path(),
                address: was.address.parse().ok()?,
                was,
            })
        };
        entries.flatten().filter_map(read).collect()
    }

    pub(super) fn address(&self) -> PciAddress {
        self.address
    }

    pub(super) fn driver(&self) -> Option<&str> {
        self.was.driver.as_deref()
    }

    pub(super) fn overridden(&self) -> Option<&str> {
        self.was.overridden.as_deref()
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
