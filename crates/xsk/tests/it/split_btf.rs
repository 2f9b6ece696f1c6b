//! BTF of kernel modules: what other programs make of it is read, with the running kernel's as its base.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use libbpf_rs::libbpf_sys as sys;
use ringside_netlab::testing::{skip, skip_unsupported};
use ringside_xsk::hints::{Btf, BtfError, Hints, LayoutError, Layouts};

const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

fn fields(layouts: &Layouts, name: &str) -> Vec<(String, u32, u32, bool)> {
    let layout = layouts.layout(name).unwrap();
    let fields = layout.fields().iter();
    fields
        .map(|field| (field.name().to_owned(), field.offset(), field.size(), field.is_signed()))
        .collect()
}

fn as_fields(expected: &[(&str, u32, u32, bool)]) -> Vec<(String, u32, u32, bool)> {
    let expected = expected.iter();
    expected
        .map(|&(name, offset, size, signed)| (name.to_owned(), offset, size, signed))
        .collect()
}

/// Split BTF as another program makes it, libbpf: a module's struct with types of the kernel's.
#[test]
fn split_btf_of_libbpfs_is_read() {
    if !Path::new(VMLINUX).exists() {
        return skip_unsupported("BTF of the kernel (CONFIG_DEBUG_INFO_BTF)");
    }
    // SAFETY: libbpf's functions get what they made, names that end in NUL, and memory that it owns until it is freed.
    let (raw, id) = unsafe {
        let base = sys::btf__parse_raw(c"/sys/kernel/btf/vmlinux".as_ptr());
        assert!(!base.is_null());
        let by_name = |name: &std::ffi::CStr| sys::btf__find_by_name(base, name.as_ptr());
        let split = sys::btf__new_empty_split(base);
        assert!(!split.is_null());
        let id = sys::btf__add_struct(split, c"of_a_module".as_ptr(), 24);
        for (name, kind, bits) in [
            (c"time", c"__u64", 0),
            (c"vlan", c"__be16", 64),
            (c"delta", c"s16", 80),
            (c"mac_len", c"__u32", 96),
            (c"hash", c"__u32", 128),
            (c"btf_id", c"__u32", 160),
        ] {
            let kind = by_name(kind);
            assert!(kind > 0);
            assert_eq!(sys::btf__add_field(split, name.as_ptr(), kind, bits, 0), 0);
        }
        let mut size = 0;
        let data = sys::btf__raw_data(split, &raw mut size);
        let raw = std::slice::from_raw_parts(data.cast::<u8>(), size as usize).to_vec();
        sys::btf__free(split);
        sys::btf__free(base);
        (raw, u32::try_from(id).unwrap())
    };
    let vmlinux = Arc::new(Btf::vmlinux().unwrap());
    let module = Btf::parse_split(raw, &vmlinux).unwrap();
    let mut layouts = Layouts::new();
    layouts.add(&module, "of_a_module").unwrap();
    let layout = layouts.layout("of_a_module").unwrap();
    assert_eq!((layout.id(), layout.size()), (id, 24));
    let expected = [
        ("time", 0, 8, false),
        ("vlan", 8, 2, false),
        ("delta", 10, 2, true),
        ("mac_len", 12, 4, false),
        ("hash", 16, 4, false),
        ("btf_id", 20, 4, false),
    ];
    assert_eq!(fields(&layouts, "of_a_module"), as_fields(&expected));
}

/// What a driver that is a module could tell.
const MODULE: &str = "\
typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef signed int s32;
struct vlan { u16 proto, tci; };
struct driver_rx {
	u64 hw_time;
	struct vlan vlan[2];
	s32 offset;
	u32 btf_id;
} __attribute__((packed, aligned(4))) of_this_module;
struct driver_broken { u32 btf_id; u32 behind; } broken;
";

#[derive(Hints)]
#[repr(C)]
struct Vlan {
    proto: u16,
    tci: u16,
}

#[derive(Hints)]
#[repr(C, packed(4))]
struct DriverRx {
    hw_time: u64,
    vlan: [Vlan; 2],
    offset: i32,
    btf_id: u32,
}

/// An object file with debugging information and what pahole makes of that: as the kernel's build does it for a module
/// (scripts/Makefile.modfinal).
fn module() -> Option<Vec<u8>> {
    let folder = std::env::temp_dir().join(format!("ringside-module-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, object) = (folder.join("driver.c"), folder.join("driver.o"));
    std::fs::write(&source, MODULE).unwrap();
    let ran = |command: &mut Command| match command.output() {
        Ok(output) => {
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{command:?}: {error}");
            true
        }
        Err(_) => false,
    };
    let compiled = ran(Command::new("gcc").args(["-g", "-c", "-o"]).arg(&object).arg(&source));
    let made = compiled && ran(Command::new("pahole").args(["-J", "--btf_base", VMLINUX]).arg(&object));
    let bytes = made.then(|| std::fs::read(&object).unwrap());
    std::fs::remove_dir_all(&folder).unwrap();
    bytes
}

#[test]
fn a_modules_file_is_read() {
    if !Path::new(VMLINUX).exists() {
        return skip_unsupported("BTF of the kernel (CONFIG_DEBUG_INFO_BTF)");
    }
    let Some(file) = module() else {
        return skip("gcc and pahole (make setup installs them)");
    };
    let vmlinux = Arc::new(Btf::vmlinux().unwrap());
    let module = Btf::object_split(&file, &vmlinux).unwrap();
    // Its types and names go on where the kernel's end: alone they mean nothing.
    let alone = Btf::object(&file).unwrap();
    assert!(
        alone.layout("driver_rx").is_err(),
        "without the base its names are others"
    );

    let mut layouts = Layouts::of(&module).unwrap();
    assert!(matches!(
        layouts.layout("driver_rx").map(|layout| layout.size()),
        Ok(24)
    ));
    let expected = [
        ("hw_time", 0, 8, false),
        ("vlan[0].proto", 8, 2, false),
        ("vlan[0].tci", 10, 2, false),
        ("vlan[1].proto", 12, 2, false),
        ("vlan[1].tci", 14, 2, false),
        ("offset", 16, 4, true),
        ("btf_id", 20, 4, false),
    ];
    assert_eq!(fields(&layouts, "driver_rx"), as_fields(&expected));
    layouts.reader::<DriverRx>().unwrap();
    let broken = module.layout("driver_broken").unwrap_err();
    assert!(matches!(broken, LayoutError::IdNotLast { .. }), "{broken}");
    assert_eq!(
        layouts.layout("driver_rx").unwrap().id(),
        id_by_libbpf(&file, c"driver_rx")
    );

    // Both in one port: the kernel's and the module's ids cannot be the same.
    let own = Layouts::of(&vmlinux).unwrap();
    assert!(
        own.iter()
            .all(|layout| layout.id() < layouts.layout("driver_rx").unwrap().id())
    );
    assert!(matches!(
        Btf::object_split(b"no object", &vmlinux),
        Err(BtfError::Object { .. })
    ));
}

/// The id that libbpf has for a struct of a module.
fn id_by_libbpf(file: &[u8], name: &std::ffi::CStr) -> u32 {
    let path = std::env::temp_dir().join(format!("ringside-module-{}.o", std::process::id()));
    std::fs::write(&path, file).unwrap();
    let text = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: libbpf's functions get what they made and names that end in NUL.
    let id = unsafe {
        let base = sys::btf__parse_raw(c"/sys/kernel/btf/vmlinux".as_ptr());
        let split = sys::btf__parse_elf_split(text.as_ptr(), base);
        assert!(!base.is_null() && !split.is_null());
        let id = sys::btf__find_by_name(split, name.as_ptr());
        sys::btf__free(split);
        sys::btf__free(base);
        id
    };
    std::fs::remove_file(path).unwrap();
    u32::try_from(id).unwrap()
}
