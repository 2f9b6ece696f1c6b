//! BTF as bytes: the kernel's type information, with ids and names, and no more of it than a struct's layout takes.
//!
//! ```text
//!  header | types: 12 bytes each, and behind some kinds more | strings, each ended by NUL
//!         '- id 1, id 2, ... (0 is void)                      '- names are offsets into them
//! ```
//!
//! A split BTF, as kernel modules have it, goes on where its base ends: its first type has the id behind the base's last,
//! and an offset into the strings counts from the start of the base's.
//!
//! Written for input that nobody vouches for: all offsets are checked, nothing is allocated by a length that is only
//! claimed, nothing recurses by the input's will. That, and the ids, are why it is not one of the crates for BTF: those that
//! are safe Rust (btf-rs) add unchecked offsets and allocate per type, libbpf's is C.
//!
//! The format: <https://docs.kernel.org/bpf/btf.html>

use std::sync::Arc;

use super::error::BtfError;

/// `BTF_MAGIC`
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/btf.h#L10>
const MAGIC: u16 = 0xeb9f;
/// `struct btf_header`: what of it everybody has.
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/btf.h#L13>
const HEADER: usize = 24;
/// `struct btf_type`
const TYPE: usize = 12;
/// `BTF_MAX_TYPE`
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/btf.h#L26>
const MOST_TYPES: usize = 0x000f_ffff;

/// Type information of a BPF object, of the kernel or of a kernel module.
///
/// [`Btf::layout`] finds a struct of hints by name, [`Btf::layouts`] all that there are.
pub struct Btf {
    bytes: Vec<u8>,
    /// Where each type starts in `bytes`, the first of this BTF first.
    types: Vec<u32>,
    /// Start and end of the strings in `bytes`.
    strings: (usize, usize),
    base: Option<Arc<Btf>>,
    /// The id of the first type, and the offset of the first string, that are not the base's.
    first: u32,
    first_string: u32,
}

impl std::fmt::Debug for Btf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Btf")
            .field("bytes", &self.bytes.len())
            .field("ids", &(self.first..self.end()))
            .finish_non_exhaustive()
    }
}

impl Btf {
    /// Reads raw BTF: the section `.BTF` of an object, or the file `/sys/kernel/btf/vmlinux`.
    ///
    /// # Errors
    ///
    /// [`BtfError`] for what is no BTF of this machine's byte order, or contradicts itself.
    pub fn parse(bytes: impl Into<Vec<u8>>) -> Result<Self, BtfError> {
        Self::parse_on(bytes.into(), None)
    }

    /// Reads raw split BTF, such as the file of a module in `/sys/kernel/btf`, with the one that it continues.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse). That a base is another one than was meant does not always show.
    pub fn parse_split(bytes: impl Into<Vec<u8>>, base: &Arc<Self>) -> Result<Self, BtfError> {
        Self::parse_on(bytes.into(), Some(Arc::clone(base)))
    }

    fn parse_on(bytes: Vec<u8>, base: Option<Arc<Self>>) -> Result<Self, BtfError> {
        let short = BtfError::Truncated { what: "the header" };
        let head = bytes.get(..HEADER).ok_or(short)?;
        match u16::from_ne_bytes([head[0], head[1]]) {
            MAGIC => {}
            magic if magic.swap_bytes() == MAGIC => return Err(BtfError::Endianness),
            magic => return Err(BtfError::Magic { magic }),
        }
        if head[2] != 1 {
            return Err(BtfError::Version { version: head[2] });
        }
        let field = |at| word(&bytes, at).map(|word| word as usize);
        let (Some(header), Some(type_off), Some(type_len), Some(str_off), Some(str_len)) =
            (field(4), field(8), field(12), field(16), field(20))
        else {
            return Err(BtfError::Truncated { what: "the header" });
        };
        let section = |off: usize, len: usize, what| {
            let start = header.checked_add(off).filter(|_| header >= HEADER);
            let end = start.and_then(|start| start.checked_add(len));
            match (start, end) {
                (Some(start), Some(end)) if end <= bytes.len() => Ok((start, end)),
                _ => Err(BtfError::Truncated { what }),
            }
        };
        let (start, end) = section(type_off, type_len, "the types")?;
        let strings = section(str_off, str_len, "the strings")?;
        // So that a name always has an end.
        if strings.1 > strings.0 && bytes[strings.1 - 1] != 0 {
            return Err(BtfError::Truncated {
                what: "the last string",
            });
        }
        let (first, first_string) = match &base {
            Some(base) => (base.end(), base.end_of_strings()?),
            None => (1, 0),
        };
        let mut types = Vec::new();
        let mut at = start;
        while at < end {
            let id = first as usize + types.len();
            if id > MOST_TYPES {
                return Err(BtfError::TooManyTypes);
            }
            let next =
                Kind::of(&bytes, at).and_then(|(kind, vlen)| Some((kind.is_known(), at + TYPE + kind.rest(vlen)?)));
            match next {
                Some((true, next)) if next <= end => {
                    types.push(u32::try_from(at).map_err(|_| BtfError::TooManyTypes)?);
                    at = next;
                }
                Some((false, _)) => return Err(BtfError::UnknownKind { id }),
                _ => return Err(BtfError::Truncated { what: "the last type" }),
            }
        }
        Ok(Self {
            bytes,
            types,
            strings,
            base,
            first,
            first_string,
        })
    }

    /// The id behind the last.
    #[allow(clippy::cast_possible_truncation, reason = "at most MOST_TYPES, and the base's")]
    pub(super) fn end(&self) -> u32 {
        self.first + self.types.len() as u32
    }

    fn end_of_strings(&self) -> Result<u32, BtfError> {
        let own = u32::try_from(self.strings.1 - self.strings.0).ok();
        own.and_then(|own| self.first_string.checked_add(own))
            .ok_or(BtfError::TooManyTypes)
    }

    /// Ids of the types that are not the base's.
    pub(super) fn own_ids(&self) -> std::ops::Range<u32> {
        self.first..self.end()
    }

    /// The type with this id, of the base too. None for void, and for an id that there is not.
    pub(super) fn by_id(&self, id: u32) -> Option<Type<'_>> {
        if id < self.first {
            return self.base.as_ref()?.by_id(id);
        }
        let at = *self.types.get((id - self.first) as usize)? as usize;
        let (kind, vlen) = Kind::of(&self.bytes, at)?;
        Some(Type {
            btf: self,
            at,
            kind,
            vlen,
        })
    }

    /// The name at an offset; none where it has none, or is no text.
    fn name(&self, offset: u32) -> Option<&str> {
        if offset < self.first_string {
            return self.base.as_ref()?.name(offset);
        }
        let own = self.bytes.get(self.strings.0..self.strings.1)?;
        let rest = own.get((offset - self.first_string) as usize..)?;
        let end = rest.iter().position(|&byte| byte == 0)?;
        std::str::from_utf8(&rest[..end]).ok().filter(|name| !name.is_empty())
    }
}

/// `BTF_KIND_*`, as far as they matter.
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/btf.h#L63>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Int,
    Ptr,
    Array,
    Struct,
    Union,
    Enum,
    /// Typedef, volatile, const, restrict, type tag: another name, or another quality, of a type.
    Alias,
    Float,
    Enum64,
    /// With so many bytes behind the type, and for each of its members.
    Other(usize, usize),
    /// Newer than this program: nobody knows where the next one starts.
    Unknown,
}

impl Kind {
    /// Of the type at `at`, with its number of members.
    fn of(bytes: &[u8], at: usize) -> Option<(Self, u16)> {
        let info = word(bytes, at + 4)?;
        let kind = match info >> 24 & 0x1f {
            1 => Self::Int,
            2 => Self::Ptr,
            3 => Self::Array,
            4 => Self::Struct,
            5 => Self::Union,
            6 => Self::Enum,
            // Forward declaration and function
            7 | 12 => Self::Other(0, 0),
            8..=11 | 18 => Self::Alias,
            // Function prototype
            13 => Self::Other(0, 8),
            // Variable, and declaration tag
            14 | 17 => Self::Other(4, 0),
            // Section
            15 => Self::Other(0, 12),
            16 => Self::Float,
            19 => Self::Enum64,
            _ => Self::Unknown,
        };
        #[allow(clippy::cast_possible_truncation, reason = "the lower half is meant")]
        let vlen = info as u16;
        Some((kind, vlen))
    }

    fn is_known(self) -> bool {
        self != Self::Unknown
    }

    /// Bytes behind `struct btf_type`.
    fn rest(self, vlen: u16) -> Option<usize> {
        let (once, each) = match self {
            Self::Int => (4, 0),
            Self::Array => (12, 0),
            Self::Struct | Self::Union | Self::Enum64 => (0, 12),
            Self::Enum => (0, 8),
            Self::Other(once, each) => (once, each),
            Self::Ptr | Self::Alias | Self::Float | Self::Unknown => (0, 0),
        };
        usize::from(vlen).checked_mul(each)?.checked_add(once)
    }
}

/// One type. Everything about it was found to lie in the bytes when they were parsed; that its references lead somewhere
/// was not.
#[derive(Clone, Copy)]
pub(super) struct Type<'b> {
    btf: &'b Btf,
    at: usize,
    pub(super) kind: Kind,
    vlen: u16,
}

/// A member of a struct or union.
#[derive(Clone, Copy)]
pub(super) struct Member<'b> {
    pub(super) name: Option<&'b str>,
    pub(super) type_id: u32,
    /// Bits from the start of the struct.
    pub(super) offset: u32,
    /// Bits of a bitfield; 0 where it is none, or the struct does not tell (then its integer does).
    pub(super) bits: u32,
}

impl<'b> Type<'b> {
    fn word(&self, index: usize) -> u32 {
        word(&self.btf.bytes, self.at + 4 * index).unwrap_or(0)
    }

    pub(super) fn name(&self) -> Option<&'b str> {
        self.btf.name(self.word(0))
    }

    /// The flag whose meaning depends on the kind: offsets with sizes of bitfields, signed values of an enum.
    pub(super) fn flag(&self) -> bool {
        self.word(1) >> 31 != 0
    }

    /// Bytes, of those kinds that say it.
    pub(super) fn size(&self) -> u32 {
        self.word(2)
    }

    /// The type that it refers to, of those kinds that do.
    pub(super) fn target(&self) -> u32 {
        self.word(2)
    }

    /// Of an integer: encoding (1 signed, 2 char, 4 bool), offset in bits, bits.
    pub(super) fn integer(&self) -> (u32, u32, u32) {
        let data = self.word(3);
        (data >> 24 & 0xf, data >> 16 & 0xff, data & 0xff)
    }

    /// Of an array: its element's type, and how many.
    pub(super) fn array(&self) -> (u32, u32) {
        (self.word(3), self.word(5))
    }

    /// Of a struct or union.
    pub(super) fn members(&self) -> impl DoubleEndedIterator<Item = Member<'b>> + ExactSizeIterator + use<'b> {
        let this = *self;
        let count = match self.kind {
            Kind::Struct | Kind::Union => this.vlen,
            _ => 0,
        };
        (0..usize::from(count)).map(move |n| {
            let (name, offset) = (this.word(3 + 3 * n), this.word(5 + 3 * n));
            let (bits, offset) = match this.flag() {
                true => (offset >> 24, offset & 0x00ff_ffff),
                false => (0, offset),
            };
            Member {
                name: this.btf.name(name),
                type_id: this.word(4 + 3 * n),
                offset,
                bits,
            }
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}
