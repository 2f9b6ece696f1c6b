//! Frame memory: our own mapping, or memory that the caller brings.

use std::ptr::NonNull;

use rustix::io::Errno;

use super::budget::Mapped;
use crate::error::Error;
use crate::mmap::{Mapping, Pages};

/// Memory that the caller brings for frames, for example a `memfd` shared with another process.
///
/// # Safety
/// `as_ptr` must lead to `len` bytes that are mapped readable and writable, page-aligned, and stay so, at the same
/// address, for as long as the value lives; and nobody but the library and the kernel may touch them meanwhile.
pub unsafe trait FrameMemory: Send + Sync {
    /// First byte.
    fn as_ptr(&self) -> NonNull<u8>;
    /// Length in bytes.
    fn len(&self) -> usize;
    /// True when there are no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

enum Backing {
    Mapping(Mapping),
    Custom(Box<dyn FrameMemory>),
}

/// The bytes behind a UMEM.
pub(crate) struct Region {
    backing: Backing,
    pages: Pages,
    /// Why the pages are not the ones asked for.
    note: Option<String>,
    /// Of normal pages, which a control group counts.
    _mapped: Option<Mapped>,
}

impl Region {
    /// Maps `bytes`; huge pages fall back to normal ones, which [`Region::note`] then tells.
    pub(crate) fn map(bytes: usize, huge: bool) -> Result<Self, Errno> {
        let mut note = None;
        if huge {
            match Mapping::anonymous(bytes, Pages::Huge) {
                Ok(mapping) => {
                    return Ok(Self {
                        backing: Backing::Mapping(mapping),
                        pages: Pages::Huge,
                        note,
                        _mapped: None,
                    });
                }
                Err(errno) => {
                    note = Some(format!(
                        "huge pages were asked for and could not be had ({errno}): reserve some with: sysctl vm.nr_hugepages={}",
                        bytes.div_ceil(crate::mmap::HUGE_PAGE)
                    ));
                }
            }
        }
        Ok(Self {
            backing: Backing::Mapping(Mapping::anonymous(bytes, Pages::Normal)?),
            pages: Pages::Normal,
            note,
            _mapped: Some(Mapped::new(bytes)),
        })
    }

    /// Takes memory of the caller's, which must be page-aligned and hold `bytes`.
    pub(crate) fn custom(memory: Box<dyn FrameMemory>, bytes: usize) -> Result<Self, Error> {
        let reason = if memory.len() < bytes {
            format!("the frames need {bytes} bytes")
        } else if !(memory.as_ptr().as_ptr() as usize).is_multiple_of(rustix::param::page_size()) {
            "it must start on a page".into()
        } else {
            return Ok(Self {
                backing: Backing::Custom(memory),
                pages: Pages::Custom,
                note: None,
                _mapped: None,
            });
        };
        Err(Error::Setting {
            setting: "memory",
            value: format!("{} bytes at {:p}", memory.len(), memory.as_ptr()),
            reason,
        })
    }

    pub(crate) fn as_ptr(&self) -> NonNull<u8> {
        match &self.backing {
            Backing::Mapping(mapping) => mapping.as_ptr(),
            Backing::Custom(memory) => memory.as_ptr(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match &self.backing {
            Backing::Mapping(mapping) => mapping.len(),
            Backing::Custom(memory) => memory.len(),
        }
    }

    pub(crate) fn pages(&self) -> Pages {
        self.pages
    }

    pub(crate) fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }
}
