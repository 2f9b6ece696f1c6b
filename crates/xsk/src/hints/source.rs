//! Where BTF comes from: object files, and the kernel's own.

use std::path::Path;
use std::sync::Arc;

use object::read::elf::{FileHeader, SectionHeader};
use object::{Endianness, FileKind, elf};

use super::btf::Btf;
use super::error::BtfError;

/// Where the kernel shows its BTF, and that of its modules (`CONFIG_DEBUG_INFO_BTF`). Linux 5.4, of modules 5.11.
const KERNEL: &str = "/sys/kernel/btf";

impl Btf {
    /// Reads a file: a BPF object (`clang -g -target bpf`), or raw BTF that is no split one.
    ///
    /// # Errors
    ///
    /// [`BtfError::File`], or as [`object`](Self::object) and [`parse`](Self::parse).
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, BtfError> {
        let bytes = read(path.as_ref())?;
        match bytes.starts_with(&elf::ELFMAG) {
            true => Self::object(&bytes),
            false => Self::parse(bytes),
        }
    }

    /// The BTF of a BPF object that is in memory: its section `.BTF`.
    ///
    /// # Errors
    ///
    /// [`BtfError::Object`] for what is no object file, or has no such section; as [`parse`](Self::parse) for what is in it.
    pub fn object(file: &[u8]) -> Result<Self, BtfError> {
        let wrong = |what: &str| BtfError::Object { what: what.into() };
        let section = match FileKind::parse(file) {
            Ok(FileKind::Elf64) => section::<elf::FileHeader64<Endianness>>(file),
            Ok(FileKind::Elf32) => section::<elf::FileHeader32<Endianness>>(file),
            _ => return Err(wrong("the file is no ELF object")),
        };
        match section {
            Ok(Some(bytes)) => Self::parse(bytes),
            Ok(None) => Err(wrong("the object has no section .BTF")),
            Err(error) => Err(wrong(&format!("the object is broken ({error})"))),
        }
    }

    /// The running kernel's. Linux 5.4.
    ///
    /// # Errors
    ///
    /// [`BtfError::File`] where the kernel has none.
    pub fn vmlinux() -> Result<Self, BtfError> {
        Self::parse(read(&Path::new(KERNEL).join("vmlinux"))?)
    }

    /// That of a loaded kernel module, on the kernel's. Linux 5.11.
    ///
    /// # Errors
    ///
    /// [`BtfError::File`] where the module is not loaded, or was built without.
    pub fn module(name: &str, vmlinux: &Arc<Self>) -> Result<Self, BtfError> {
        // A module's name has no slash; with one this would be another file.
        let file = Path::new(name).file_name().unwrap_or_default();
        Self::parse_split(read(&Path::new(KERNEL).join(file))?, vmlinux)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, BtfError> {
    std::fs::read(path).map_err(|error| BtfError::File {
        path: path.display().to_string(),
        reason: error.to_string(),
    })
}

/// The bytes of the section `.BTF`.
fn section<H: FileHeader<Endian = Endianness>>(file: &[u8]) -> object::Result<Option<&[u8]>> {
    let header = H::parse(file)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, file)?;
    match sections.section_by_name(endian, b".BTF") {
        Some((_, section)) => section.data(endian, file).map(Some),
        None => Ok(None),
    }
}
