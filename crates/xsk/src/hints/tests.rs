//! BTF made by hand, so that each thing that can be wrong with it is.

use std::sync::Arc;

use super::btf::Btf;
use super::{BtfError, HintValue, Hints, LayoutError, Layouts, Shape, Value};

/// Puts BTF together. Ids count from `first`.
struct Builder {
    types: Vec<u8>,
    strings: Vec<u8>,
    next: u32,
    /// Bytes of the strings of the base.
    base: u32,
}

const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const CONST: u32 = 10;
const FLOAT: u32 = 16;
const FLAG: u32 = 1 << 31;

impl Builder {
    fn new() -> Self {
        Self {
            types: Vec::new(),
            strings: vec![0],
            next: 1,
            base: 0,
        }
    }

    fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = self.base + u32::try_from(self.strings.len()).unwrap();
        self.strings.extend_from_slice(name.as_bytes());
        self.strings.push(0);
        at
    }

    fn words(&mut self, words: &[u32]) {
        self.types.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    }

    fn add(&mut self, name: &str, info: u32, size: u32, rest: &[u32]) -> u32 {
        let name = self.name(name);
        self.words(&[name, info, size]);
        self.words(rest);
        self.next += 1;
        self.next - 1
    }

    fn int(&mut self, name: &str, size: u32, signed: bool) -> u32 {
        self.add(name, INT << 24, size, &[(u32::from(signed) << 24) | (size * 8)])
    }

    fn array(&mut self, of: u32, count: u32) -> u32 {
        self.add("", ARRAY << 24, 0, &[of, 1, count])
    }

    /// Members: name, type, offset in bits.
    fn composite(&mut self, kind: u32, name: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        let rest: Vec<u32> = members
            .iter()
            .flat_map(|&(name, of, offset)| [self.name(name), of, offset])
            .collect();
        self.add(name, kind | u32::try_from(members.len()).unwrap(), size, &rest)
    }

    fn structure(&mut self, name: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        self.composite(STRUCT << 24, name, size, members)
    }

    fn bytes(&self) -> Vec<u8> {
        let (types, strings) = (self.types.len(), self.strings.len());
        let mut bytes = 0xeb9f_u16.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        for word in [24, 0, types, types, strings] {
            bytes.extend(u32::try_from(word).unwrap().to_ne_bytes());
        }
        bytes.extend(&self.types);
        bytes.extend(&self.strings);
        bytes
    }

    fn btf(&self) -> Btf {
        Btf::parse(self.bytes()).unwrap()
    }
}

/// A builder that has the usual integers: u32, u64, s16.
fn usual() -> (Builder, u32, u32, u32) {
    let mut builder = Builder::new();
    let (u32_, u64_, s16) = (
        builder.int("unsigned int", 4, false),
        builder.int("unsigned long long", 8, false),
        builder.int("short", 2, true),
    );
    (builder, u32_, u64_, s16)
}

#[test]
fn fields_of_all_kinds_are_found_by_name() {
    let (mut b, u32_, u64_, s16) = usual();
    let alias = b.add("__be16", TYPEDEF << 24, s16, &[]);
    let quality = b.add("", CONST << 24, alias, &[]);
    let name = b.name("A");
    let kinds = b.add("kinds", FLAG | ENUM << 24 | 1, 4, &[name, 0]);
    let inner = b.structure(
        "inner",
        8,
        &[("tci", quality, 0), ("proto", s16, 16), ("kind", kinds, 32)],
    );
    let either = b.composite(UNION << 24, "", 8, &[("wide", u64_, 0), ("low", u32_, 0)]);
    let (numbers, inners) = (b.array(s16, 4), b.array(inner, 2));
    let deep = b.array(numbers, 2);
    let id = b.structure(
        "everything",
        60,
        &[
            ("time", u64_, 0),
            ("", either, 64),
            ("vlan", inner, 128),
            ("steps", inners, 192),
            ("numbers", numbers, 320),
            ("deep", deep, 384),
            ("btf_id", u32_, 448),
        ],
    );
    // deep has 16 bytes: 48 to 64, and btf_id would lie in it.
    assert!(
        matches!(
            b.btf().layout("everything"),
            Err(LayoutError::IdNotLast { end: 60, .. })
        ) || id > 0
    );
    let id = b.structure(
        "right",
        68,
        &[
            ("time", u64_, 0),
            ("", either, 64),
            ("vlan", inner, 128),
            ("steps", inners, 192),
            ("numbers", numbers, 320),
            ("deep", deep, 384),
            ("btf_id", u32_, 512),
        ],
    );
    let layout = b.btf().layout("right").unwrap();
    assert_eq!((layout.id(), layout.size(), layout.name()), (id, 68, "right"));
    let found: Vec<_> = layout
        .fields()
        .iter()
        .map(|f| (f.name(), f.offset(), f.size(), f.is_signed(), f.count()))
        .collect();
    assert_eq!(
        found,
        [
            ("time", 0, 8, false, None),
            ("wide", 8, 8, false, None),
            ("low", 8, 4, false, None),
            ("vlan.tci", 16, 2, true, None),
            ("vlan.proto", 18, 2, true, None),
            ("vlan.kind", 20, 4, true, None),
            ("steps[0].tci", 24, 2, true, None),
            ("steps[0].proto", 26, 2, true, None),
            ("steps[0].kind", 28, 4, true, None),
            ("steps[1].tci", 32, 2, true, None),
            ("steps[1].proto", 34, 2, true, None),
            ("steps[1].kind", 36, 4, true, None),
            ("numbers", 40, 2, true, Some(4)),
            ("deep[0]", 48, 2, true, Some(4)),
            ("deep[1]", 56, 2, true, Some(4)),
            ("btf_id", 64, 4, false, None),
        ]
    );
    let mut bytes = [0; 68];
    bytes[18..20].copy_from_slice(&(-2_i16).to_ne_bytes());
    bytes[46..48].copy_from_slice(&7_i16.to_ne_bytes());
    assert_eq!(
        layout.field("vlan.proto").unwrap().value(&bytes, 0),
        Some(Value::Signed(-2))
    );
    let numbers = layout.field("numbers").unwrap();
    assert_eq!(numbers.value(&bytes, 3), Some(Value::Signed(7)));
    assert_eq!(numbers.value(&bytes, 4), None, "behind its last element");
    assert_eq!(numbers.value(&bytes[..46], 3), None, "too few bytes");
    let unknown = layout.field("vlan").unwrap_err();
    assert!(matches!(&unknown, LayoutError::UnknownField { field, .. } if field == "vlan"));
    assert!(unknown.to_string().contains("vlan.tci"), "{unknown}");
}

/// One struct for each way to be wrong.
#[test]
fn each_fault_of_a_struct_is_its_own_error() {
    let (mut b, u32_, u64_, s16) = usual();
    let (u8_, u128_) = (b.int("char", 1, false), b.int("__int128", 16, false));
    let pointer = b.add("", PTR << 24, u32_, &[]);
    let float = b.add("double", FLOAT << 24, 8, &[]);
    let old_bits = b.add("old", INT << 24, 4, &[7]);
    let three = b.array(u8_, 3);
    let many = b.array(u32_, 1000);
    let forward = b.add("unknown", 7 << 24, 0, &[]);
    b.structure("no_id", 8, &[("a", u64_, 0)]);
    b.structure("not_last", 8, &[("btf_id", u32_, 0), ("a", u32_, 32)]);
    b.structure("padded", 16, &[("a", u64_, 0), ("btf_id", u32_, 64)]);
    b.structure("signed_id", 4, &[("a", s16, 0), ("btf_id", s16, 16)]);
    b.structure("long_id", 12, &[("a", u64_, 0), ("btf_id", u64_, 64)]);
    b.composite(
        FLAG | STRUCT << 24,
        "bits",
        8,
        &[("a", u32_, 7 << 24), ("btf_id", u32_, 32)],
    );
    b.structure("old_bits", 8, &[("a", old_bits, 0), ("btf_id", u32_, 32)]);
    b.structure("odd_bit", 8, &[("a", u8_, 3), ("btf_id", u32_, 32)]);
    b.structure("pointer", 12, &[("a", pointer, 0), ("btf_id", u32_, 64)]);
    b.structure("float", 12, &[("a", float, 0), ("btf_id", u32_, 64)]);
    b.structure("wide", 20, &[("a", u128_, 0), ("btf_id", u32_, 128)]);
    b.structure("forward", 8, &[("a", forward, 0), ("btf_id", u32_, 32)]);
    b.structure("misaligned", 7, &[("a", three, 0), ("btf_id", u32_, 24)]);
    b.structure("long", 4004, &[("a", many, 0), ("btf_id", u32_, 32000)]);
    b.structure("outside", 8, &[("a", many, 0), ("btf_id", u32_, 32)]);
    b.structure("over", 8, &[("a", u64_, 0), ("btf_id", u32_, 32)]);
    b.structure("dangling", 8, &[("a", 4711, 0), ("btf_id", u32_, 32)]);
    b.structure("twice", 4, &[("btf_id", u32_, 0)]);
    b.structure("twice", 4, &[("btf_id", u32_, 0)]);
    b.structure("good", 12, &[("a", u64_, 0), ("btf_id", u32_, 64)]);
    let btf = b.btf();
    let error = |name: &str| btf.layout(name).unwrap_err();
    macro_rules! is {
        ($name:literal, $pattern:pat) => {
            let error = error($name);
            assert!(matches!(&error, $pattern), "{}: {error:?}", $name);
            assert_eq!(error.layout(), $name);
            assert!(error.to_string().contains($name), "{error}");
        };
    }
    is!("no_id", LayoutError::NoId { .. });
    is!(
        "not_last",
        LayoutError::IdNotLast {
            end: 4,
            size: 8,
            padded: false,
            ..
        }
    );
    is!(
        "padded",
        LayoutError::IdNotLast {
            end: 12,
            size: 16,
            padded: true,
            ..
        }
    );
    is!("signed_id", LayoutError::IdNotLast { .. });
    is!("long_id", LayoutError::IdType { .. } | LayoutError::Nonsense { .. });
    is!("bits", LayoutError::Bitfield { .. });
    is!("old_bits", LayoutError::Bitfield { .. });
    is!("odd_bit", LayoutError::Bitfield { .. });
    is!("pointer", LayoutError::FieldKind { .. });
    is!("float", LayoutError::FieldKind { .. });
    is!("wide", LayoutError::FieldKind { .. });
    is!("forward", LayoutError::FieldKind { .. });
    is!("misaligned", LayoutError::Misaligned { size: 7, .. });
    is!("long", LayoutError::TooLong { size: 4004, .. });
    is!("outside", LayoutError::Nonsense { .. });
    is!("over", LayoutError::Nonsense { .. });
    is!("dangling", LayoutError::Nonsense { .. });
    is!("twice", LayoutError::AmbiguousName { .. });
    is!("missing", LayoutError::UnknownStruct { .. });
    assert!(btf.layout("good").is_ok());

    // All by themselves: the good ones, and a reason for each that looks like one.
    let layouts = Layouts::of(&btf).unwrap();
    let names: Vec<_> = layouts.iter().map(super::Layout::name).collect();
    assert_eq!(names, ["twice", "twice", "good"]);
    assert!(
        layouts
            .problems()
            .iter()
            .any(|problem| problem.layout() == "misaligned")
    );
    assert!(
        !layouts.problems().iter().any(|problem| problem.layout() == "no_id"),
        "looks like none"
    );
    assert!(matches!(layouts.layout("bits"), Err(LayoutError::Bitfield { .. })));
    assert!(matches!(
        layouts.layout("twice"),
        Err(LayoutError::AmbiguousName { .. })
    ));
}

/// BTF that no compiler makes ends with an error, soon.
#[test]
fn types_in_themselves_end() {
    let (mut b, u32_, ..) = usual();
    let own = b.next;
    b.structure("itself", 8, &[("a", own, 0), ("btf_id", u32_, 32)]);
    let alias = b.next;
    b.add("alias", TYPEDEF << 24, alias, &[]);
    b.structure("of_alias", 8, &[("a", alias, 0), ("btf_id", u32_, 32)]);
    let array = b.next;
    b.add("", ARRAY << 24, 0, &[array, 1, 4]);
    b.structure("of_array", 8, &[("a", array, 0), ("btf_id", u32_, 32)]);
    // Structs of no size: twice as many in each step, 2^30 in all.
    let mut inner = b.structure("empty", 0, &[]);
    for _ in 0..30 {
        inner = b.structure("more", 0, &[("a", inner, 0), ("b", inner, 0)]);
    }
    b.structure("many", 4, &[("a", inner, 0), ("btf_id", u32_, 0)]);
    for name in ["itself", "of_alias", "of_array", "many"] {
        let error = b.btf().layout(name).unwrap_err();
        assert!(matches!(error, LayoutError::Nonsense { .. }), "{name}: {error:?}");
    }
}

#[test]
fn broken_bytes_are_told_apart() {
    let (b, ..) = usual();
    let good = b.bytes();
    assert!(Btf::parse(&good[..]).is_ok());
    let parse = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        Btf::parse(bytes).unwrap_err()
    };
    assert!(matches!(parse(&|b| b.truncate(23)), BtfError::Truncated { .. }));
    assert!(matches!(parse(&|b| b[0] = 1), BtfError::Magic { .. }));
    assert_eq!(parse(&|b| b.swap(0, 1)), BtfError::Endianness);
    assert_eq!(parse(&|b| b[2] = 2), BtfError::Version { version: 2 });
    assert!(matches!(
        parse(&|b| b.truncate(b.len() - 1)),
        BtfError::Truncated { .. }
    ));
    assert!(matches!(
        parse(&|b| *b.last_mut().unwrap() = b'x'),
        BtfError::Truncated { .. }
    ));
    // Header and lengths that overflow.
    for at in [4, 8, 12, 16, 20] {
        let error = parse(&|b| b[at..at + 4].fill(0xff));
        assert!(matches!(error, BtfError::Truncated { .. }), "{at}: {error:?}");
    }
    assert_eq!(parse(&|b| b[24 + 7] = 31), BtfError::UnknownKind { id: 1 });
    // As many members as there are no bytes for.
    assert!(matches!(
        parse(&|b| b[24 + 4..24 + 8].copy_from_slice(&(STRUCT << 24 | 0xffff).to_ne_bytes())),
        BtfError::Truncated { .. }
    ));
    assert!(matches!(Btf::object(&good), Err(BtfError::Object { .. })));
    assert!(matches!(Btf::from_file("/nonexistent"), Err(BtfError::File { .. })));
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let error = Btf::from_file(manifest).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{manifest}: this is not BTF")), "{error}");
}

/// Ids and names of a split BTF go on behind the base's, and lead into it.
#[test]
fn split_btf_continues_its_base() {
    let (mut base, u32_, u64_, _) = usual();
    base.structure("of_base", 4, &[("btf_id", u32_, 0)]);
    let btf = Arc::new(base.btf());
    let mut split = Builder {
        types: Vec::new(),
        strings: vec![0],
        next: base.next,
        base: u32::try_from(base.strings.len()).unwrap(),
    };
    let id = split.structure("of_module", 12, &[("time", u64_, 0), ("btf_id", u32_, 64)]);
    let module = Btf::parse_split(split.bytes(), &btf).unwrap();
    let layout = module.layout("of_module").unwrap();
    assert_eq!((layout.id(), layout.fields()[0].name()), (id, "time"));
    assert_eq!(id, 5);
    assert!(matches!(
        module.layout("of_base"),
        Err(LayoutError::UnknownStruct { .. })
    ));
    // Alone its references lead nowhere.
    assert!(Btf::parse(split.bytes()).unwrap().layout("of_module").is_err());

    // Both in one set; an id of two meanings is refused.
    let mut layouts = Layouts::new();
    layouts.add(&btf, "of_base").unwrap();
    layouts.add(&module, "of_module").unwrap();
    layouts.add(&module, "of_module").unwrap();
    assert_eq!(layouts.len(), 2);
    let (mut other, u32_, ..) = usual();
    other.structure("of_other", 4, &[("btf_id", u32_, 0)]);
    let clash = layouts.add(&other.btf(), "of_other").unwrap_err();
    assert!(
        matches!(&clash, LayoutError::AmbiguousId { id: 4, other, .. } if other == "of_base"),
        "{clash:?}"
    );
}

#[derive(Hints, Clone, Copy, Debug, PartialEq)]
#[repr(C)]
struct Inner {
    tci: u16,
    flags: [i8; 2],
}

#[derive(Hints, Debug, PartialEq)]
#[hints(name = "all_of_it")]
#[repr(C, packed(4))]
struct Whole {
    #[hints(name = "rx_ktime")]
    time: u64,
    vlan: [Inner; 2],
    seen: bool,
    r#type: u8,
    delta: i16,
    btf_id: u32,
}

/// Changes the members: name, type, offset in bits.
type Change<'c> = &'c dyn Fn(&mut [(&'static str, u32, u32)]);

fn whole(change: Change, size: u32) -> Btf {
    let (mut b, u32_, u64_, s16) = usual();
    let (u16_, u8_, s8) = (b.int("u16", 2, false), b.int("u8", 1, false), b.int("s8", 1, true));
    let flags = b.array(s8, 2);
    let inner = b.structure("inner", 4, &[("tci", u16_, 0), ("flags", flags, 16)]);
    let vlan = b.array(inner, 2);
    let mut members = [
        ("rx_ktime", u64_, 0),
        ("vlan", vlan, 64),
        ("seen", u8_, 128),
        ("type", u8_, 136),
        ("delta", s16, 144),
        ("btf_id", u32_, 160),
    ];
    change(&mut members);
    b.structure("all_of_it", size, &members);
    b.btf()
}

#[test]
fn rust_structs_are_compared_field_by_field() {
    assert_eq!(Whole::NAME, "all_of_it");
    assert_eq!(Whole::SHAPE.size(), 24);
    assert!(matches!(Inner::SHAPE, Shape::Struct { size: 4, .. }));
    let mut layouts = Layouts::of(&whole(&|_| (), 24)).unwrap();
    layouts.reader::<Whole>().unwrap();
    let refused = |change: Change| Layouts::of(&whole(change, 24)).unwrap().reader::<Whole>().unwrap_err();
    assert!(matches!(refused(&|m| m[0].0 = "ktime"), LayoutError::UnknownField { field, .. } if field == "rx_ktime"));
    assert!(
        matches!(refused(&|m| m[4].1 = 4), LayoutError::Field { field, .. } if field == "delta"),
        "sign"
    );
    assert!(
        matches!(refused(&|m| m[2].1 = 1), LayoutError::Field { field, .. } if field == "seen"),
        "size"
    );
    let swapped = refused(&|m| (m[2].2, m[3].2) = (136, 128));
    assert!(
        matches!(&swapped, LayoutError::Field { field, .. } if field == "seen"),
        "{swapped:?}"
    );
    assert!(swapped.to_string().contains("u8 at byte 17"), "{swapped}");
    let longer = Layouts::of(&whole(&|m| m[5].2 += 32, 28))
        .unwrap()
        .reader::<Whole>()
        .unwrap_err();
    assert!(matches!(
        longer,
        LayoutError::Size {
            size: 28,
            expected: 24,
            ..
        }
    ));
    assert!(matches!(
        Layouts::new().reader::<Whole>(),
        Err(LayoutError::UnknownStruct { .. })
    ));
}

#[test]
fn values_are_decoded_where_they_lie() {
    let mut bytes = Vec::new();
    bytes.extend(0x0102_0304_0506_0708_u64.to_ne_bytes());
    bytes.extend(1_u16.to_ne_bytes());
    bytes.extend([0xff, 2]);
    bytes.extend(3_u16.to_ne_bytes());
    bytes.extend([4, 0x80]);
    bytes.extend([2, 9]);
    bytes.extend((-300_i16).to_ne_bytes());
    bytes.extend(77_u32.to_ne_bytes());
    let value = Whole::decode(&bytes);
    let expected = Whole {
        time: 0x0102_0304_0506_0708,
        vlan: [
            Inner { tci: 1, flags: [-1, 2] },
            Inner {
                tci: 3,
                flags: [4, -128],
            },
        ],
        seen: true,
        r#type: 9,
        delta: -300,
        btf_id: 77,
    };
    assert_eq!(value, expected);
}

/// The running kernel's, with structs that everybody's has.
#[test]
fn vmlinux_is_read() {
    if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        return ringside_netlab::testing::skip_unsupported("BTF of the kernel (CONFIG_DEBUG_INFO_BTF)");
    }
    let btf = Arc::new(Btf::vmlinux().unwrap());
    assert!(btf.end() > 10_000, "{btf:?}");
    // No hints, for the reason that it has no id: so it was found.
    assert!(matches!(btf.layout("xdp_md"), Err(LayoutError::NoId { .. })));
    assert!(matches!(
        Btf::module("no_such_module", &btf),
        Err(BtfError::File { .. })
    ));
}
