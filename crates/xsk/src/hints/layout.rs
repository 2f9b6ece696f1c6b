//! A struct of hints as the program has it: its id, its bytes, its fields.

use std::fmt;

use serde::Serialize;

use super::btf::{Btf, Kind, Member, Type};
use super::error::LayoutError;

/// The member that ends every struct of hints: its own id in the BTF.
pub(super) const ID: &str = "btf_id";

/// Bytes of metadata that the kernel allows in front of a packet: a u8 counts them, in steps of four. 32 before Linux 6.8.
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/xdp_metalen_invalid>
pub const LONGEST: u32 = 252;

/// Structs in structs, and aliases of types: deeper than any that a compiler makes of code that people write.
const DEEPEST: u32 = 32;
/// Looks at members of one struct: with members of no size a few types can stand for any number of fields.
const MOST_STEPS: u32 = 4096;

/// One field of a [`Layout`], down to an integer or an array of integers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    pub(super) name: String,
    pub(super) offset: u32,
    pub(super) size: u32,
    pub(super) signed: bool,
    pub(super) count: Option<u32>,
}

impl Field {
    /// Its name, with those of the structs around it: `vlan.tci`, `steps[2].time`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes from the start of the struct.
    pub fn offset(&self) -> u32 {
        self.offset
    }

    /// Bytes of the integer, or of one element: 1, 2, 4 or 8.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Whether the integer has a sign.
    pub fn is_signed(&self) -> bool {
        self.signed
    }

    /// The byte behind it.
    fn end(&self) -> u32 {
        self.offset + self.size * self.count.unwrap_or(1)
    }

    /// Elements, if it is an array.
    pub fn count(&self) -> Option<u32> {
        self.count
    }

    /// Reads the integer, or this element of the array (an integer is its own element 0), out of the bytes of the struct.
    /// None beyond the last element, and for bytes that are too few.
    #[inline]
    pub fn value(&self, hints: &[u8], element: u32) -> Option<Value> {
        if element >= self.count.unwrap_or(1) {
            return None;
        }
        let start = (self.offset + element * self.size) as usize;
        let bytes = hints.get(start..start + self.size as usize)?;
        Some(match (self.signed, bytes) {
            (false, &[a]) => Value::Unsigned(a.into()),
            (true, &[a]) => Value::Signed(i8::from_ne_bytes([a]).into()),
            (false, &[a, b]) => Value::Unsigned(u16::from_ne_bytes([a, b]).into()),
            (true, &[a, b]) => Value::Signed(i16::from_ne_bytes([a, b]).into()),
            (false, &[a, b, c, d]) => Value::Unsigned(u32::from_ne_bytes([a, b, c, d]).into()),
            (true, &[a, b, c, d]) => Value::Signed(i32::from_ne_bytes([a, b, c, d]).into()),
            (false, &[a, b, c, d, e, f, g, h]) => Value::Unsigned(u64::from_ne_bytes([a, b, c, d, e, f, g, h])),
            (true, &[a, b, c, d, e, f, g, h]) => Value::Signed(i64::from_ne_bytes([a, b, c, d, e, f, g, h])),
            _ => return None,
        })
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.signed { 's' } else { 'u' };
        write!(f, "{sign}{}", self.size * 8)?;
        if let Some(count) = self.count {
            write!(f, "[{count}]")?;
        }
        write!(f, " at byte {}", self.offset)
    }
}

/// A field's value, or an element's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Of an integer without a sign.
    Unsigned(u64),
    /// Of one with a sign.
    Signed(i64),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(value) => value.fmt(f),
            Self::Signed(value) => value.fmt(f),
        }
    }
}

/// A struct of hints: what an XDP program puts in front of a packet.
///
/// ```text
///  | rx_ktime | rx_cpu | btf_id | packet ...
///  '------- the struct --------'
/// ```
///
/// It ends with `__u32 btf_id`, the id of the struct in the BTF that it is defined in
/// (`bpf_core_type_id_local()`), by which packets with different structs are told apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Layout {
    pub(super) name: String,
    pub(super) id: u32,
    pub(super) size: u32,
    pub(super) fields: Vec<Field>,
}

impl Layout {
    /// The struct's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The id that packets with it carry; never 0.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its bytes: a multiple of 4, up to [`LONGEST`].
    pub fn size(&self) -> u32 {
        self.size
    }

    /// All fields in the order of the struct, `btf_id` included. Those of a union overlap.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The field of this name.
    ///
    /// # Errors
    ///
    /// [`LayoutError::UnknownField`], which lists those that there are.
    pub fn field(&self, name: &str) -> Result<&Field, LayoutError> {
        let found = self.fields.iter().find(|field| field.name == name);
        found.ok_or_else(|| LayoutError::UnknownField {
            layout: self.name.clone(),
            field: name.to_owned(),
            fields: self.fields.iter().map(|field| field.name.clone()).collect(),
        })
    }
}

impl Btf {
    /// The struct of hints of this name, of this BTF itself and not of its base.
    ///
    /// # Errors
    ///
    /// [`LayoutError`]: one variant for each thing that can be wrong with it.
    pub fn layout(&self, name: &str) -> Result<Layout, LayoutError> {
        let mut found: Option<Layout> = None;
        for (id, kind) in self.structs().filter(|(_, kind)| kind.name() == Some(name)) {
            if let Some(first) = &found {
                return Err(LayoutError::AmbiguousName {
                    layout: name.to_owned(),
                    first: first.id,
                    second: id,
                });
            }
            found = Some(self.layout_of(name, id, kind)?);
        }
        found.ok_or_else(|| LayoutError::UnknownStruct {
            layout: name.to_owned(),
        })
    }

    /// Bytes of the struct of this name, of hints or not.
    pub(crate) fn size_of(&self, name: &str) -> Option<u32> {
        let mut found = self.structs().filter(|(_, kind)| kind.name() == Some(name));
        found.next().map(|(_, kind)| kind.size())
    }

    /// All structs of hints in this BTF itself: those with a name whose last member is `btf_id`. With them those that look
    /// like ones, and are none, for a reason.
    pub fn layouts(&self) -> (Vec<Layout>, Vec<LayoutError>) {
        let (mut layouts, mut errors) = (Vec::new(), Vec::new());
        for (id, kind) in self.structs() {
            let last = kind.members().next_back();
            if last.is_none_or(|last| last.name != Some(ID)) {
                continue;
            }
            let Some(name) = kind.name() else { continue };
            match self.layout_of(name, id, kind) {
                Ok(layout) => layouts.push(layout),
                Err(error) => errors.push(error),
            }
        }
        (layouts, errors)
    }

    fn structs(&self) -> impl Iterator<Item = (u32, Type<'_>)> {
        self.own_ids()
            .filter_map(|id| Some((id, self.by_id(id)?)))
            .filter(|(_, kind)| kind.kind == Kind::Struct)
    }

    fn layout_of(&self, name: &str, id: u32, kind: Type<'_>) -> Result<Layout, LayoutError> {
        let layout = || name.to_owned();
        let size = kind.size();
        let own: Vec<Member<'_>> = kind.members().collect();
        let Some(at) = own.iter().position(|member| member.name == Some(ID)) else {
            return Err(LayoutError::NoId { layout: layout() });
        };
        let is_last = at + 1 == own.len();
        let end = (own[at].offset / 8).saturating_add(4);
        if !is_last || end != size {
            return Err(LayoutError::IdNotLast {
                layout: layout(),
                end,
                size,
                padded: is_last && end < size,
            });
        }
        if size > LONGEST {
            return Err(LayoutError::TooLong { layout: layout(), size });
        }
        if !size.is_multiple_of(4) {
            return Err(LayoutError::Misaligned { layout: layout(), size });
        }
        let mut walk = Walk {
            btf: self,
            layout: name,
            size,
            fields: Vec::new(),
            steps: 0,
        };
        walk.members(kind, "", 0, 0)?;
        let mut fields = walk.fields;
        if fields
            .last()
            .is_none_or(|id| id.name != ID || id.size != 4 || id.signed || id.count.is_some())
        {
            return Err(LayoutError::IdType { layout: layout() });
        }
        // Nothing else may lie where the id does.
        let others = &fields[..fields.len() - 1];
        if let Some(over) = others.iter().find(|field| field.end() > size - 4) {
            return Err(LayoutError::Nonsense {
                layout: layout(),
                field: over.name.clone(),
            });
        }
        fields.sort_by_key(|field| field.offset);
        Ok(Layout {
            name: layout(),
            id,
            size,
            fields,
        })
    }
}

/// The way through a struct, down to its integers.
struct Walk<'b> {
    btf: &'b Btf,
    layout: &'b str,
    size: u32,
    fields: Vec<Field>,
    steps: u32,
}

impl<'b> Walk<'b> {
    fn nonsense(&self, field: &str) -> LayoutError {
        LayoutError::Nonsense {
            layout: self.layout.to_owned(),
            field: field.to_owned(),
        }
    }

    fn members(&mut self, of: Type<'_>, path: &str, start: u32, depth: u32) -> Result<(), LayoutError> {
        for member in of.members() {
            // Those of an anonymous struct or union are, as in C, those of the one around it.
            let name = match (path, member.name) {
                (path, None) => path.to_owned(),
                ("", Some(name)) => name.to_owned(),
                (path, Some(name)) => format!("{path}.{name}"),
            };
            if member.bits != 0 || !member.offset.is_multiple_of(8) {
                return Err(LayoutError::Bitfield {
                    layout: self.layout.to_owned(),
                    field: name,
                });
            }
            let Some(offset) = start.checked_add(member.offset / 8) else {
                return Err(self.nonsense(&name));
            };
            self.field(member.type_id, name, offset, depth)?;
        }
        Ok(())
    }

    fn field(&mut self, type_id: u32, name: String, offset: u32, depth: u32) -> Result<(), LayoutError> {
        self.steps += 1;
        let kind = self.resolve(type_id);
        let (Some(kind), true) = (kind, self.steps <= MOST_STEPS && depth < DEEPEST) else {
            return Err(self.nonsense(&name));
        };
        match kind.kind {
            Kind::Struct | Kind::Union => self.members(kind, &name, offset, depth + 1),
            Kind::Array => {
                let (element, count) = kind.array();
                match self.resolve(element) {
                    Some(element)
                        if element.kind != Kind::Struct
                            && element.kind != Kind::Union
                            && element.kind != Kind::Array =>
                    {
                        let (size, signed) = self.integer(element, &name)?;
                        self.push(name, offset, size, signed, Some(count))
                    }
                    Some(inner) => {
                        // More elements than bytes have no size, and no value.
                        let size = self.size_of(inner, 0).filter(|&size| size != 0 && count <= self.size);
                        let Some(size) = size else {
                            return match count {
                                0 => Ok(()),
                                _ => Err(self.nonsense(&name)),
                            };
                        };
                        for n in 0..count {
                            let at = n.checked_mul(size).and_then(|at| at.checked_add(offset));
                            let Some(at) = at.filter(|&at| at < self.size) else {
                                return Err(self.nonsense(&name));
                            };
                            self.field(element, format!("{name}[{n}]"), at, depth + 1)?;
                        }
                        Ok(())
                    }
                    None => Err(self.nonsense(&name)),
                }
            }
            _ => {
                let (size, signed) = self.integer(kind, &name)?;
                self.push(name, offset, size, signed, None)
            }
        }
    }

    fn push(
        &mut self,
        name: String,
        offset: u32,
        size: u32,
        signed: bool,
        count: Option<u32>,
    ) -> Result<(), LayoutError> {
        let end = count
            .unwrap_or(1)
            .checked_mul(size)
            .and_then(|bytes| bytes.checked_add(offset));
        if end.is_none_or(|end| end > self.size) {
            return Err(self.nonsense(&name));
        }
        self.fields.push(Field {
            name,
            offset,
            size,
            signed,
            count,
        });
        Ok(())
    }

    /// Bytes and sign of what is an integer.
    fn integer(&self, kind: Type<'_>, name: &str) -> Result<(u32, bool), LayoutError> {
        let (size, signed) = match kind.kind {
            Kind::Int => {
                let (encoding, offset, bits) = kind.integer();
                // A bitfield as compilers told it before there was a flag for it.
                if offset != 0 || kind.size().checked_mul(8) != Some(bits) {
                    return Err(LayoutError::Bitfield {
                        layout: self.layout.to_owned(),
                        field: name.to_owned(),
                    });
                }
                (kind.size(), encoding & 1 != 0)
            }
            Kind::Enum | Kind::Enum64 => (kind.size(), kind.flag()),
            Kind::Float => return Err(self.kind(name, "a floating point number")),
            Kind::Ptr => return Err(self.kind(name, "a pointer")),
            _ => return Err(self.kind(name, "of an incomplete type")),
        };
        match size {
            1 | 2 | 4 | 8 => Ok((size, signed)),
            _ => Err(self.kind(name, "an integer of another size than 1, 2, 4 or 8 bytes")),
        }
    }

    fn kind(&self, field: &str, kind: &'static str) -> LayoutError {
        LayoutError::FieldKind {
            layout: self.layout.to_owned(),
            field: field.to_owned(),
            kind,
        }
    }

    /// The type behind its aliases.
    fn resolve(&self, mut id: u32) -> Option<Type<'b>> {
        for _ in 0..DEEPEST {
            let kind = self.btf.by_id(id)?;
            if kind.kind != Kind::Alias {
                return Some(kind);
            }
            id = kind.target();
        }
        None
    }

    fn size_of(&self, kind: Type<'_>, depth: u32) -> Option<u32> {
        match kind.kind {
            Kind::Array if depth < DEEPEST => {
                let (element, count) = kind.array();
                self.size_of(self.resolve(element)?, depth + 1)?.checked_mul(count)
            }
            Kind::Struct | Kind::Union | Kind::Int | Kind::Enum | Kind::Enum64 | Kind::Float => Some(kind.size()),
            _ => None,
        }
    }
}
