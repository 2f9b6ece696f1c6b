//! A guest's first and only file system: programs of this machine, kernel modules, and what the agent has to do with them.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::agent::{PLAN, Plan};
use super::arguments::slot;
use super::config::{GuestConfig, Wire};
use super::cpio::Archive;
use super::elf::{libraries, without_debug};
use super::modules::Modules;
use super::prepare;
use crate::{Result, find_program};

/// Mount points, and folders that programs take for granted.
const FOLDERS: [&str; 8] = ["/dev", "/proc", "/sys", "/run", "/tmp", "/root", "/var/tmp", "/etc"];

/// Files that programs take for granted.
const FILES: [(&str, &str); 3] = [
    (
        "/etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    ),
    ("/etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    ("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
];

/// Modules without which there is no way to the agent, where they are not built in.
const OWN: [&str; 2] = ["virtio_pci", "virtio_console"];

pub(crate) fn write(config: &GuestConfig, to: impl Write) -> Result<()> {
    let mut archive = Archive::new(to);
    let whole = |error: io::Error| prepare("write", format_args!("the files of the guest '{}'", config.name), error);
    for folder in FOLDERS {
        archive.directory(Path::new(folder)).map_err(whole)?;
    }
    // Where the kernel opens the first process's output, before anything is mounted.
    archive
        .character_device(Path::new("/dev/console"), (5, 1))
        .map_err(whole)?;
    for (path, content) in FILES {
        archive
            .file(Path::new(path), 0o644, content.as_bytes())
            .map_err(whole)?;
    }
    // Where libraries are that lie in none of the loader's own folders.
    let cache = Path::new("/etc/ld.so.cache");
    if cache.exists() {
        copy(&mut archive, cache)?;
    }
    for program in std::iter::once(&config.agent.program).chain(&config.programs) {
        let program = found(program)?;
        copy(&mut archive, &program)?;
        for library in libraries(&program)? {
            copy(&mut archive, &library)?;
        }
    }
    for file in &config.files {
        copy(&mut archive, file)?;
    }
    let mut optional = OWN.to_vec();
    let mut asked = config.modules.clone();
    for nic in &config.nics {
        match &nic.wire {
            // What it looks like is what it is.
            Wire::Vfio(vfio) => asked.extend(vfio.drivers_in(&config.kernel, &config.modules)?),
            _ => optional.push(nic.model.driver()),
        }
    }
    let mut plan = Plan::default();
    let asked = asked.iter().map(String::as_str);
    for module in Modules::of(&config.kernel)?.in_order(asked, &optional)? {
        let path = format!("/lib/modules/{}.ko", module.name);
        archive.file(Path::new(&path), 0o644, &module.content).map_err(whole)?;
        plan.modules.push(path);
    }
    for (number, nic) in config.nics.iter().enumerate() {
        match &nic.wire {
            Wire::Vfio(_) => {
                let slot = slot(&config.nics[..number]);
                plan.devices.push((format!("0000:00:{slot:02x}.0"), nic.name.clone()));
            }
            _ => plan.interfaces.push((nic.mac, nic.name.clone())),
        }
    }
    let plan = serde_json::to_vec(&plan).map_err(|error| whole(error.into()))?;
    archive.file(Path::new(PLAN), 0o644, &plan).map_err(whole)?;
    archive.finish().map_err(whole)?;
    Ok(())
}

/// A program's path, from the top.
pub(crate) fn found(program: &Path) -> Result<PathBuf> {
    if program.is_absolute() {
        return Ok(program.to_owned());
    }
    let of_system = || {
        let mut files = ["/usr/sbin", "/sbin"]
            .map(|folder| Path::new(folder).join(program))
            .into_iter();
        files.find(|file| file.is_file())
    };
    find_program(program)
        .or_else(of_system)
        .ok_or_else(|| prepare("find the program", program.display(), "it is not in PATH"))
}

fn copy(archive: &mut Archive<impl Write>, path: &Path) -> Result<()> {
    if archive.contains(path) {
        return Ok(());
    }
    let failed = |error| prepare("copy into the guest", path.display(), error);
    let mode = fs::metadata(path).map_err(failed)?.permissions().mode() & 0o777;
    let content = fs::read(path).map_err(failed)?;
    archive.file(path, mode, without_debug(&content)).map_err(failed)
}
