//! Where BTF comes from: object files, and the kernel's own.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use object::read::elf::{FileHeader, SectionHeader};
use object::{Endianness, FileKind, elf};
use rustix::io::Errno;

use super::btf::Btf;
use super::error::BtfError;
use crate::sys;

/// Where the kernel shows its BTF, and that of its modules (`CONFIG_DEBUG_INFO_BTF`). Linux 5.4, of modules 5.11.
const KERNEL: &str = "/sys/kernel/btf";

impl Btf {
    /// Reads a file: a BPF object (`clang -g -target bpf`), or raw BTF that is no split one.
    ///
    /// # Errors
    ///
    /// [`BtfError::File`] if the file cannot be read; [`BtfError::InFile`], with an error of
    /// [`object`](Self::object) or [`parse`](Self::parse), for what is in it.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, BtfError> {
        let path = path.as_ref();
        let bytes = read(path)?;
        let parsed = match bytes.starts_with(&elf::ELFMAG) {
            true => Self::object(&bytes),
            false => Self::parse(bytes),
        };
        parsed.map_err(|error| BtfError::InFile {
            path: path.display().to_string(),
            source: Box::new(error),
        })
    }

    /// The BTF of a BPF object that is in memory: its section `.BTF`.
    ///
    /// # Errors
    ///
    /// [`BtfError::Object`] for what is no object file, or has no such section; as [`parse`](Self::parse) for what is in it.
    pub fn object(file: &[u8]) -> Result<Self, BtfError> {
        Self::parse(btf_in(file)?)
    }

    /// The BTF of a kernel module's file (`.ko`) that is in memory: its section `.BTF`, which goes on where the kernel's ends.
    /// Of a module that is loaded [`module`](Self::module) needs no file.
    ///
    /// # Errors
    ///
    /// As [`object`](Self::object) and [`parse_split`](Self::parse_split).
    pub fn object_split(file: &[u8], vmlinux: &Arc<Self>) -> Result<Self, BtfError> {
        Self::parse_split(btf_in(file)?, vmlinux)
    }

    /// That of a program that is loaded, by whomever: the kernel keeps what it was loaded with. So the layouts of a program
    /// are known without its object file. Linux 5.0; needs CAP_SYS_ADMIN.
    ///
    /// ```no_run
    /// use ringside_xsk::hints::Layouts;
    /// use ringside_xsk::{AttachedProgram, Interface, Port, QueueOptions};
    ///
    /// let interface = Interface::by_name("eth0")?;
    /// let attached = AttachedProgram::of(&interface)?;           // somebody else's
    /// let layouts = Layouts::of(&attached.btf()?)?;
    /// let port = Port::builder(interface)
    ///     .program(attached.into_program())
    ///     .options(QueueOptions::new().hints(layouts))
    ///     .open()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`BtfError::Program`] for a program without BTF, for what is no program, and without the capability; as
    /// [`parse`](Self::parse) for what is in it.
    #[doc(alias = "BPF_BTF_GET_FD_BY_ID")]
    pub fn of_program(program: BorrowedFd<'_>) -> Result<Self, BtfError> {
        let wrong = |reason: String| BtfError::Program { reason };
        match sys::btf_of(program) {
            Ok(Some(bytes)) => Self::parse(bytes),
            Ok(None) => Err(wrong("it was loaded without: compile it with clang -g".into())),
            Err(Errno::PERM) => Err(wrong("that needs CAP_SYS_ADMIN".into())),
            Err(errno) => Err(wrong(errno.to_string())),
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

/// The section `.BTF` of an object file.
fn btf_in(file: &[u8]) -> Result<&[u8], BtfError> {
    let wrong = |what: &str| BtfError::Object { what: what.into() };
    let section = match FileKind::parse(file) {
        Ok(FileKind::Elf64) => section::<elf::FileHeader64<Endianness>>(file),
        Ok(FileKind::Elf32) => section::<elf::FileHeader32<Endianness>>(file),
        _ => return Err(wrong("the file is no ELF object")),
    };
    match section {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err(wrong("the object has no section .BTF")),
        Err(error) => Err(wrong(&format!("the object is broken ({error})"))),
    }
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
