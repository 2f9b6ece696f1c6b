//! What can be wrong with type information, with a struct of hints, and with the two together.

use super::layout::LONGEST;

/// Bytes that are no BTF.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BtfError {
    /// Something else.
    #[error("this is not BTF: it starts with {magic:#06x} instead of 0xeb9f; a BPF object starts with \"\\x7fELF\"")]
    Magic {
        /// The first two bytes.
        magic: u16,
    },
    /// For machines of the other byte order.
    #[error("the BTF has the other byte order than this machine: compile with -target bpf, not bpfeb or bpfel")]
    Endianness,
    /// Of a version that did not exist when this was written.
    #[error("the BTF has version {version}, only 1 is known")]
    Version {
        /// That version.
        version: u8,
    },
    /// A part is not there, or not whole.
    #[error("the BTF contradicts itself: {what} lies outside of it, or has no end")]
    Truncated {
        /// Which part.
        what: &'static str,
    },
    /// A kind of type that did not exist when this was written; where the next one starts cannot be known then.
    #[error("type {id} of the BTF is of an unknown kind")]
    UnknownKind {
        /// Its id.
        id: usize,
    },
    /// More than the format has ids for.
    #[error("the BTF has more types than ids")]
    TooManyTypes,
    /// An object file without type information.
    #[error("{what}: compile the program with clang -g -target bpf")]
    Object {
        /// What is wrong with the file.
        what: String,
    },
    /// A loaded program whose type information cannot be had.
    #[error("the BTF of the loaded program cannot be had: {reason}")]
    Program {
        /// Why not.
        reason: String,
    },
    /// A file in which something is wrong.
    #[error("{path}: {source}")]
    InFile {
        /// The file.
        path: String,
        /// The error in it.
        source: Box<Self>,
    },
    /// A file that cannot be read.
    #[error("{path} cannot be read: {reason}")]
    File {
        /// The file.
        path: String,
        /// Why not.
        reason: String,
    },
}

/// A struct that cannot hold hints, or not those that were asked for. `layout` is always its name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// There is none of that name.
    #[error("struct {layout} is in no BTF of the program: does the program use it (bpf_core_type_id_local() counts)?")]
    UnknownStruct {
        /// The name.
        layout: String,
    },
    /// There are several of that name.
    #[error("there are two structs {layout}, with ids {first} and {second}: give each a name of its own")]
    AmbiguousName {
        /// The name.
        layout: String,
        /// The id of one.
        first: u32,
        /// The id of the other.
        second: u32,
    },
    /// Two structs of different BTF have the same id, so that a packet does not tell which of them it has.
    #[error(
        "struct {layout} has the id {id}, and so has struct {other} of another BTF: a packet's id does not tell them apart; define both in one object"
    )]
    AmbiguousId {
        /// One struct.
        layout: String,
        /// The other.
        other: String,
        /// Their id.
        id: u32,
    },
    /// Its last member is not the id, and no other is.
    #[error("struct {layout} has no member btf_id: it must be its last, of type __u32")]
    NoId {
        /// The struct.
        layout: String,
    },
    /// The id is there, but it does not end the struct, so that it is not found in front of the packet.
    #[error("btf_id of struct {layout} must be its last member: it ends at byte {end} of {size}{}", if *.padded { " (padding follows: add __attribute__((packed)) and aligned(4))" } else { "" })]
    IdNotLast {
        /// The struct.
        layout: String,
        /// Where the id ends, in bytes.
        end: u32,
        /// Bytes of the struct.
        size: u32,
        /// It is the last member, with padding behind it.
        padded: bool,
    },
    /// The id is not 32 bits without a sign.
    #[error("btf_id of struct {layout} must be a __u32")]
    IdType {
        /// The struct.
        layout: String,
    },
    /// A member that is not whole bytes.
    #[error("struct {layout}: {field} is a bitfield; use a whole integer")]
    Bitfield {
        /// The struct.
        layout: String,
        /// The member.
        field: String,
    },
    /// A member that is no integer, nor a struct, union or array of some.
    #[error("struct {layout}: {field} is {kind}; hints are integers, and structs, unions and arrays of them")]
    FieldKind {
        /// The struct.
        layout: String,
        /// The member.
        field: String,
        /// What it is.
        kind: &'static str,
    },
    /// The kernel moves the start of metadata in steps of four bytes.
    #[error("struct {layout} has {size} bytes: metadata in front of a packet is a multiple of 4 (bpf_xdp_adjust_meta)")]
    Misaligned {
        /// The struct.
        layout: String,
        /// Its bytes.
        size: u32,
    },
    /// More than the kernel lets lie in front of a packet.
    #[error("struct {layout} has {size} bytes: the kernel allows {LONGEST} in front of a packet (32 before Linux 6.8)")]
    TooLong {
        /// The struct.
        layout: String,
        /// Its bytes.
        size: u32,
    },
    /// A member that leaves its struct, a struct in itself, an array beyond any size: BTF that no compiler made.
    #[error("struct {layout} contradicts itself at {field}")]
    Nonsense {
        /// The struct.
        layout: String,
        /// The member.
        field: String,
    },
    /// There is no field of that name.
    #[error("struct {layout} has no field {field}; it has: {}", .fields.join(", "))]
    UnknownField {
        /// The struct.
        layout: String,
        /// The name that was asked for.
        field: String,
        /// Those that there are.
        fields: Vec<String>,
    },
    /// The Rust struct is longer or shorter.
    #[error("struct {layout} has {size} bytes, the Rust type that is to read it has {expected}")]
    Size {
        /// The struct.
        layout: String,
        /// Its bytes.
        size: u32,
        /// Those of the Rust type.
        expected: usize,
    },
    /// A field of the Rust struct lies elsewhere, or is another integer.
    #[error("struct {layout}: {field} is {found}, the Rust type that is to read it has {expected}")]
    Field {
        /// The struct.
        layout: String,
        /// The field.
        field: String,
        /// What the program writes.
        found: String,
        /// What would be read.
        expected: String,
    },
    /// A process reads at most so many different types of hints.
    #[error("struct {layout}: this process reads 64 other types of hints already, which is the most")]
    TooManyTypes {
        /// The struct.
        layout: String,
    },
}

impl LayoutError {
    /// Name of the struct.
    pub fn layout(&self) -> &str {
        match self {
            Self::UnknownStruct { layout }
            | Self::AmbiguousName { layout, .. }
            | Self::AmbiguousId { layout, .. }
            | Self::NoId { layout }
            | Self::IdNotLast { layout, .. }
            | Self::IdType { layout }
            | Self::Bitfield { layout, .. }
            | Self::FieldKind { layout, .. }
            | Self::Misaligned { layout, .. }
            | Self::TooLong { layout, .. }
            | Self::Nonsense { layout, .. }
            | Self::UnknownField { layout, .. }
            | Self::Size { layout, .. }
            | Self::Field { layout, .. }
            | Self::TooManyTypes { layout } => layout,
        }
    }
}
