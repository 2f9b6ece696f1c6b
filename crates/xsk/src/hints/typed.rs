//! Structs of hints as Rust types.

use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

use super::error::LayoutError;
use super::layout::Layout;

/// A Rust struct that an XDP program's struct of hints is read as: `#[derive(Hints)]`.
///
/// The struct is `#[repr(C)]` (or packed, as the program's), its fields are integers, arrays, and structs with the same
/// derive, and the last of them is `btf_id: u32`. The program's struct has its name in `snake_case`, or the one of
/// `#[hints(name = "...")]`; fields may have such an attribute too. Nothing is trusted to be the same: names, offsets, sizes
/// and signs are compared when a [`Reader`] is made.
///
/// ```
/// use ringside_xsk::hints::Hints;
///
/// #[derive(Hints)]
/// #[hints(name = "xdp_hints_rx_time")]
/// #[repr(C, packed(4))]
/// struct RxTime {
///     rx_ktime: u64,
///     xdp_rx_cpu: u32,
///     btf_id: u32,
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no struct of hints",
    note = "derive `Hints` for a #[repr(C)] struct whose last field is `btf_id: u32`"
)]
pub trait Hints: HintValue + 'static {
    /// Name of the program's struct.
    const NAME: &'static str;
}

/// What a field of [`Hints`] may be: an integer, `bool`, an array of these, or a struct that derives [`Hints`] too.
pub trait HintValue: Sized {
    /// What is compared with the program's BTF.
    const SHAPE: &'static Shape;

    /// Reads the value from so many bytes as its shape has, in the host's byte order.
    fn decode(bytes: &[u8]) -> Self;
}

/// How a value lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// An integer.
    Integer {
        /// Its bytes.
        size: usize,
        /// Whether it has a sign.
        signed: bool,
    },
    /// An array.
    Array {
        /// Its elements.
        element: &'static Self,
        /// How many.
        count: usize,
    },
    /// A struct.
    Struct {
        /// Its bytes, padding included.
        size: usize,
        /// Name, offset in bytes, and shape of each field.
        fields: &'static [(&'static str, usize, &'static Self)],
    },
}

impl Shape {
    /// Bytes.
    pub const fn size(&self) -> usize {
        match self {
            Self::Integer { size, .. } | Self::Struct { size, .. } => *size,
            Self::Array { element, count } => element.size() * *count,
        }
    }
}

macro_rules! integers {
    ($($type:ty: $signed:literal),*) => {
        $(impl HintValue for $type {
            const SHAPE: &'static Shape = &Shape::Integer { size: size_of::<Self>(), signed: $signed };

            #[inline(always)]
            fn decode(bytes: &[u8]) -> Self {
                let mut value = [0; size_of::<Self>()];
                value.copy_from_slice(bytes);
                Self::from_ne_bytes(value)
            }
        })*
    };
}
integers!(u8: false, u16: false, u32: false, u64: false, i8: true, i16: true, i32: true, i64: true);

impl HintValue for bool {
    const SHAPE: &'static Shape = u8::SHAPE;

    #[inline(always)]
    fn decode(bytes: &[u8]) -> Self {
        u8::decode(bytes) != 0
    }
}

impl<T: HintValue, const N: usize> HintValue for [T; N] {
    const SHAPE: &'static Shape = &Shape::Array {
        element: T::SHAPE,
        count: N,
    };

    #[inline(always)]
    fn decode(bytes: &[u8]) -> Self {
        let size = T::SHAPE.size();
        std::array::from_fn(|n| T::decode(&bytes[n * size..][..size]))
    }
}

/// Compares a Rust type with the program's struct.
pub(super) fn check<T: Hints>(layout: &Layout) -> Result<(), LayoutError> {
    if T::SHAPE.size() != layout.size as usize {
        return Err(LayoutError::Size {
            layout: layout.name.clone(),
            size: layout.size,
            expected: T::SHAPE.size(),
        });
    }
    compare(layout, T::SHAPE, String::new(), 0)
}

fn compare(layout: &Layout, shape: &Shape, name: String, offset: usize) -> Result<(), LayoutError> {
    let (size, signed, count) = match shape {
        Shape::Struct { fields, .. } => {
            for (field, at, shape) in *fields {
                let path = match name.as_str() {
                    "" => (*field).to_owned(),
                    name => format!("{name}.{field}"),
                };
                compare(layout, shape, path, offset + at)?;
            }
            return Ok(());
        }
        Shape::Array {
            element: Shape::Integer { size, signed },
            count,
        } => (*size, *signed, Some(*count)),
        Shape::Array { element, count } => {
            for n in 0..*count {
                compare(layout, element, format!("{name}[{n}]"), offset + n * element.size())?;
            }
            return Ok(());
        }
        Shape::Integer { size, signed } => (*size, *signed, None),
    };
    let found = layout.field(&name)?;
    let same = found.offset as usize == offset
        && found.size as usize == size
        && found.signed == signed
        && found.count.map(|count| count as usize) == count;
    if same {
        return Ok(());
    }
    let sign = if signed { 's' } else { 'u' };
    let many = count.map_or_else(String::new, |count| format!("[{count}]"));
    Err(LayoutError::Field {
        layout: layout.name.clone(),
        field: name,
        found: found.to_string(),
        expected: format!("{sign}{}{many} at byte {offset}", size * 8),
    })
}

/// Types of hints that a process reads.
pub(crate) const SLOTS: usize = 64;

/// The number of a type of hints, the same for all ports of the process; below [`SLOTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u8);

impl Slot {
    /// None when too many other types have one.
    pub(super) fn of<T: 'static>() -> Option<Self> {
        static TYPES: Mutex<Vec<TypeId>> = Mutex::new(Vec::new());
        let mut types = TYPES.lock().unwrap_or_else(PoisonError::into_inner);
        let this = TypeId::of::<T>();
        let at = types.iter().position(|&other| other == this).unwrap_or(types.len());
        if at == types.len() {
            if at == SLOTS {
                return None;
            }
            types.push(this);
        }
        u8::try_from(at).ok().map(Self)
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0) % SLOTS
    }
}

/// Reads hints of one type; made by [`Layouts::reader`](super::Layouts::reader).
///
/// It reads the packets of every port that was opened with layouts for this type, each by the id that the port's program
/// has for it, and has `None` for all others.
pub struct Reader<T> {
    pub(super) slot: Slot,
    pub(super) of: PhantomData<fn() -> T>,
}

impl<T> Reader<T> {
    #[inline]
    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }
}

impl<T> Clone for Reader<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Reader<T> {}

impl<T: Hints> fmt::Debug for Reader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("layout", &T::NAME)
            .finish_non_exhaustive()
    }
}
