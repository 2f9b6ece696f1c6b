//! The structs of hints that the packets of a port may have.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use super::btf::Btf;
use super::error::LayoutError;
use super::layout::{Field, Layout, Value};
use super::typed::{Hints, Reader, SLOTS, Slot, check};

/// The structs of hints that an XDP program puts in front of packets, from one or several BTF.
///
/// Given to a port with [`QueueOptions::hints`](crate::QueueOptions::hints).
#[derive(Clone, Debug)]
pub struct Layouts {
    /// By id.
    layouts: Vec<Layout>,
    problems: Vec<LayoutError>,
    /// The id that each type of hints has here, by its slot.
    ids: [Option<u32>; SLOTS],
    /// Tells handles of fields apart.
    identity: u64,
}

impl Layouts {
    /// None.
    pub fn new() -> Self {
        Self {
            layouts: Vec::new(),
            problems: Vec::new(),
            ids: [None; SLOTS],
            identity: fresh(),
        }
    }

    /// All structs of hints of a program's own BTF, found by themselves: those with a name that end with `btf_id`. What looks
    /// like one and is none is in [`problems`](Self::problems).
    ///
    /// # Errors
    ///
    /// [`LayoutError::AmbiguousId`], which one BTF alone cannot be the cause of.
    pub fn of(btf: &Btf) -> Result<Self, LayoutError> {
        let mut layouts = Self::new();
        let (found, problems) = btf.layouts();
        layouts.problems = problems;
        found.into_iter().try_for_each(|layout| layouts.insert(layout))?;
        Ok(layouts)
    }

    /// Adds one struct of a BTF: for programs that write hints of the kernel's or a module's types
    /// (`bpf_core_type_id_kernel()`).
    ///
    /// # Errors
    ///
    /// As [`Btf::layout`], and [`LayoutError::AmbiguousId`].
    pub fn add(&mut self, btf: &Btf, name: &str) -> Result<(), LayoutError> {
        self.insert(btf.layout(name)?)
    }

    /// Adds a layout.
    ///
    /// # Errors
    ///
    /// [`LayoutError::AmbiguousId`].
    pub fn insert(&mut self, layout: Layout) -> Result<(), LayoutError> {
        match self.layouts.binary_search_by_key(&layout.id, |other| other.id) {
            Err(at) => self.layouts.insert(at, layout),
            Ok(at) if self.layouts[at] == layout => return Ok(()),
            Ok(at) => {
                return Err(LayoutError::AmbiguousId {
                    other: self.layouts[at].name.clone(),
                    id: layout.id,
                    layout: layout.name,
                });
            }
        }
        self.identity = fresh();
        Ok(())
    }

    /// A reader for a Rust type, after the type was compared with the program's struct: nothing is compared by name any
    /// more when packets come.
    ///
    /// # Errors
    ///
    /// [`LayoutError`]: the struct is not there, or of another size, or a field lies elsewhere or is another integer.
    pub fn reader<T: Hints>(&mut self) -> Result<Reader<T>, LayoutError> {
        let layout = self.layout(T::NAME)?;
        check::<T>(layout)?;
        let id = layout.id;
        let slot = Slot::of::<T>().ok_or_else(|| LayoutError::TooManyTypes {
            layout: T::NAME.to_owned(),
        })?;
        self.ids[slot.index()] = Some(id);
        Ok(Reader { slot, of: PhantomData })
    }

    /// A handle for a field by name, resolved once and read from many packets' [`RawHints`].
    ///
    /// # Errors
    ///
    /// [`LayoutError::UnknownStruct`], [`LayoutError::UnknownField`].
    pub fn field(&self, layout: &str, field: &str) -> Result<FieldHandle, LayoutError> {
        let layout = self.layout(layout)?;
        Ok(FieldHandle {
            identity: self.identity,
            id: layout.id,
            field: layout.field(field)?.clone(),
        })
    }

    /// The struct of this name.
    ///
    /// # Errors
    ///
    /// [`LayoutError::UnknownStruct`], or what is wrong with it; [`LayoutError::AmbiguousName`].
    pub fn layout(&self, name: &str) -> Result<&Layout, LayoutError> {
        let mut named = self.layouts.iter().filter(|layout| layout.name == name);
        match (named.next(), named.next()) {
            (Some(layout), None) => Ok(layout),
            (Some(first), Some(second)) => Err(LayoutError::AmbiguousName {
                layout: name.to_owned(),
                first: first.id,
                second: second.id,
            }),
            (None, _) => {
                let problem = self.problems.iter().find(|problem| problem.layout() == name);
                Err(problem.cloned().unwrap_or_else(|| LayoutError::UnknownStruct {
                    layout: name.to_owned(),
                }))
            }
        }
    }

    /// All, by their ids.
    pub fn iter(&self) -> std::slice::Iter<'_, Layout> {
        self.layouts.iter()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.layouts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.layouts.is_empty()
    }

    /// What looks like a struct of hints and is none.
    pub fn problems(&self) -> &[LayoutError] {
        &self.problems
    }

    /// The struct of a packet's id.
    pub(crate) fn by_id(&self, id: u32) -> Option<&Layout> {
        let at = self.layouts.binary_search_by_key(&id, |layout| layout.id).ok()?;
        Some(&self.layouts[at])
    }

    /// The id that a type of hints has here.
    #[inline]
    pub(crate) fn id(&self, slot: Slot) -> Option<u32> {
        self.ids[slot.index()]
    }

    /// Whether both take a packet's bytes for the same.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        self.layouts == other.layouts && self.ids == other.ids
    }
}

impl Default for Layouts {
    fn default() -> Self {
        Self::new()
    }
}

impl<'l> IntoIterator for &'l Layouts {
    type Item = &'l Layout;
    type IntoIter = std::slice::Iter<'l, Layout>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

fn fresh() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A field of one struct of hints, by [`Layouts::field`].
#[derive(Clone, Debug)]
pub struct FieldHandle {
    identity: u64,
    id: u32,
    field: Field,
}

impl FieldHandle {
    /// The field.
    pub fn field(&self) -> &Field {
        &self.field
    }
}

/// The hints of one packet, with what the BTF says about them.
#[derive(Clone, Copy, Debug)]
pub struct RawHints<'p> {
    layout: &'p Layout,
    bytes: &'p [u8],
    identity: u64,
}

impl<'p> RawHints<'p> {
    /// `bytes` are those of the layout.
    pub(crate) fn new(layouts: &'p Layouts, layout: &'p Layout, bytes: &'p [u8]) -> Self {
        Self {
            layout,
            bytes,
            identity: layouts.identity,
        }
    }

    /// The struct.
    pub fn layout(&self) -> &'p Layout {
        self.layout
    }

    /// Its bytes.
    pub fn bytes(&self) -> &'p [u8] {
        self.bytes
    }

    /// The value of a field. `None` when the packet has another struct.
    #[inline]
    pub fn value(&self, handle: &FieldHandle) -> Option<Value> {
        self.element(handle, 0)
    }

    /// As [`value`](Self::value), of an element of an array.
    #[inline]
    pub fn element(&self, handle: &FieldHandle, element: u32) -> Option<Value> {
        let mine = handle.identity == self.identity && handle.id == self.layout.id;
        mine.then(|| handle.field.value(self.bytes, element)).flatten()
    }

    /// All fields but `btf_id`, each with its values, of which only an array has several.
    pub fn values(&self) -> impl Iterator<Item = (&'p Field, impl Iterator<Item = Value> + use<'p>)> + use<'p> {
        let bytes = self.bytes;
        let fields = self.layout.fields.split_last().map_or(&[][..], |(_, fields)| fields);
        fields.iter().map(move |field| {
            let elements = 0..field.count.unwrap_or(1);
            (field, elements.filter_map(move |n| field.value(bytes, n)))
        })
    }
}
