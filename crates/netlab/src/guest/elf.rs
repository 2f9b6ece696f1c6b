//! What the headers of a program or of a kernel module tell.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::elf::FileHeader64;
use object::read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _};
use object::{Object as _, ObjectSection as _};

use super::prepare;
use crate::Result;

/// The shared libraries of a program and the loader that finds them, where they are here; nothing for a static program.
///
/// The loader itself is asked: it knows all the rules.
pub(crate) fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let failed = |reason: String| prepare("find the shared libraries of", program.display(), reason);
    let content = fs::read(program).map_err(|error| failed(error.to_string()))?;
    let Some(loader) = loader(&content).map_err(|error| failed(error.to_string()))? else {
        return Ok(Vec::new());
    };
    let listed = Command::new(&loader)
        .arg("--list")
        .arg(program)
        .output()
        .map_err(|error| failed(format!("{}: {error}", loader.display())))?;
    if !listed.status.success() {
        return Err(failed(String::from_utf8_lossy(&listed.stderr).trim().to_owned()));
    }
    let mut libraries = listed_libraries(&String::from_utf8_lossy(&listed.stdout)).map_err(failed)?;
    libraries.push(loader);
    Ok(libraries)
}

/// The program that loads this one, if it is not static. Its sections are not looked at: in a guest it has none ([`without_debug`]).
fn loader(program: &[u8]) -> object::Result<Option<PathBuf>> {
    let file = FileHeader64::<object::Endianness>::parse(program)?;
    let endian = file.endian()?;
    for header in file.program_headers(endian, program)? {
        if let Some(path) = header.interpreter(endian, program)? {
            return Ok(Some(String::from_utf8_lossy(path).as_ref().into()));
        }
    }
    Ok(None)
}

/// From lines such as `libz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f12)`.
fn listed_libraries(text: &str) -> Result<Vec<PathBuf>, String> {
    let mut libraries = Vec::new();
    for line in text.lines().map(str::trim) {
        let Some((name, place)) = line.split_once(" => ") else {
            continue;
        };
        let path = place.split(" (").next().unwrap_or(place);
        if !path.starts_with('/') {
            return Err(format!("{name}: {path}"));
        }
        libraries.push(path.into());
    }
    Ok(libraries)
}

/// A program without what only debuggers read, which lies behind everything else. It is several times as long as the rest.
///
/// What is no program of that kind, or has something else at its end, stays whole.
pub(crate) fn without_debug(program: &[u8]) -> &[u8] {
    let needed = || -> Option<usize> {
        let file = ElfFile64::<object::Endianness>::parse(program).ok()?;
        let (endian, header) = (file.endian(), file.elf_header());
        let table = usize::try_from(header.e_shoff(endian)).ok()?;
        let sections = usize::from(header.e_shnum(endian)) * usize::from(header.e_shentsize(endian));
        let mut end = 0;
        for segment in file.elf_program_headers() {
            let (offset, length) = segment.file_range(endian);
            end = end.max(usize::try_from(offset.checked_add(length)?).ok()?);
        }
        // The table of sections is the last thing that a linker writes.
        (table >= end && table + sections == program.len()).then_some(end)
    };
    needed().and_then(|end| program.get(..end)).unwrap_or(program)
}

/// A kernel module's own words about itself: `depends=udp_tunnel`, `softdep=pre: libcrc32c`, …
///
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/__MODULE_INFO>
pub(crate) fn module_information(module: &[u8]) -> Result<Vec<(String, String)>, String> {
    let file = ElfFile64::<object::Endianness>::parse(module).map_err(|error| error.to_string())?;
    let section = file.section_by_name(".modinfo").ok_or("no section .modinfo")?;
    let data = section.data().map_err(|error| error.to_string())?;
    let entries = data.split(|byte| *byte == 0);
    let pair = |entry: &[u8]| {
        let text = String::from_utf8_lossy(entry);
        let (name, value) = text.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    Ok(entries.filter_map(pair).collect())
}

#[cfg(test)]
#[path = "elf_tests.rs"]
mod tests;
