//! BTF, and structs of hints in it.

use std::ffi::{OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use ringside_xsk::hints::{Btf, Layout, Layouts};

use crate::boundary::{call, copy_text, count, given, room, text, text_or_none};
use crate::error::{Failure, rsd_error as Code};
use crate::field::{rsd_field, rsd_field_read};
use crate::table::{BTF, LAYOUT, Table};

/// Type information: of a BPF object, of the kernel or of a kernel module.
pub struct rsd_btf {
    _opaque: (),
}

/// A struct of hints: what an XDP program puts in front of a packet.
pub struct rsd_layout {
    _opaque: (),
}

static BTFS: Table<Arc<Btf>, BTF> = Table::new();
static LAYOUTS: Table<Arc<Layout>, LAYOUT> = Table::new();

/// Makes a handle, or leaves NULL where it would be.
///
/// # Safety
/// `to` is NULL or can be written.
pub(crate) unsafe fn hand_out<H>(
    name: &str,
    to: *mut *mut H,
    make: impl FnOnce() -> Result<*mut H, Failure>,
) -> Result<c_int, Failure> {
    // SAFETY: the caller's promise.
    let to = unsafe { room(name, to) }?;
    let place = to.write(std::ptr::null_mut());
    *place = make()?;
    Ok(0)
}

/// The layout of a handle.
pub(crate) fn layout_of(layout: *const rsd_layout) -> Result<Arc<Layout>, Failure> {
    Ok(Arc::clone(&*LAYOUTS.enter_soon(layout)?))
}

/// A handle for a layout.
pub(crate) fn new_layout(layout: Layout) -> Result<*mut rsd_layout, Failure> {
    LAYOUTS.insert(Arc::new(layout))
}

/// Reads the BTF of a file: a BPF object (clang -g -target bpf), or raw BTF.
///
/// RSD_ENOENT: it cannot be read. RSD_EBTF: it has none, or a broken one.
///
/// # Safety
/// `path` is NULL or a string; `btf` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_btf_open_file(path: *const c_char, btf: *mut *mut rsd_btf) -> c_int {
    call(|| {
        let make = || {
            // SAFETY: the caller's promise.
            let path = unsafe { path_of("path", path) }?;
            BTFS.insert(Arc::new(Btf::from_file(path)?))
        };
        // SAFETY: the caller's promise.
        unsafe { hand_out("btf", btf, make) }
    })
}

/// As rsd_btf_open_file(), of `size` bytes that are in memory. They are not needed any more afterwards.
///
/// # Safety
/// `bytes` is NULL or has `size` bytes; `btf` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_btf_open_memory(bytes: *const c_void, size: usize, btf: *mut *mut rsd_btf) -> c_int {
    call(|| {
        let make = || {
            // SAFETY: as below; that it is no NULL is looked at.
            _ = unsafe { given::<u8>("bytes", bytes.cast()) }?;
            // SAFETY: the caller's promise.
            let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), size) };
            let read = match bytes.starts_with(b"\x7fELF") {
                true => Btf::object(bytes),
                false => Btf::parse(bytes),
            };
            BTFS.insert(Arc::new(read?))
        };
        // SAFETY: the caller's promise.
        unsafe { hand_out("btf", btf, make) }
    })
}

/// Reads the running kernel's BTF, or that of one of its modules; NULL for the kernel itself. Linux 5.4, of modules 5.11.
///
/// # Safety
/// `module` is NULL or a string; `btf` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_btf_open_kernel(module: *const c_char, btf: *mut *mut rsd_btf) -> c_int {
    call(|| {
        let make = || {
            let kernel = Btf::vmlinux()?;
            // SAFETY: the caller's promise.
            let read = match unsafe { text_or_none("module", module) }? {
                None => kernel,
                Some(module) => Btf::module(module, &Arc::new(kernel))?,
            };
            BTFS.insert(Arc::new(read))
        };
        // SAFETY: the caller's promise.
        unsafe { hand_out("btf", btf, make) }
    })
}

/// The BTF of Ringside's own XDP program, with struct ringside_rx.
///
/// # Safety
/// `btf` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_btf_open_ringside(btf: *mut *mut rsd_btf) -> c_int {
    call(|| {
        let make = || BTFS.insert(Arc::new(Btf::object(ringside_bpf::XSK_OBJECT)?));
        // SAFETY: the caller's promise.
        unsafe { hand_out("btf", btf, make) }
    })
}

/// Closes a BTF. Layouts that were found in it stay open.
#[unsafe(no_mangle)]
pub extern "C" fn rsd_btf_close(btf: *mut rsd_btf) -> c_int {
    call(|| {
        BTFS.enter_to_close(btf)?.remove();
        Ok(0)
    })
}

/// Finds the struct of hints of this name: one whose last member is `__u32 btf_id`.
///
/// RSD_ENOENT: there is no such struct. RSD_EBTF: it cannot hold hints; rsd_last_error() says why not.
///
/// # Safety
/// `name` is NULL or a string; `layout` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_layout_open(
    btf: *mut rsd_btf,
    name: *const c_char,
    layout: *mut *mut rsd_layout,
) -> c_int {
    call(|| {
        let make = || {
            // SAFETY: the caller's promise.
            let name = unsafe { text("name", name) }?;
            let btf = Arc::clone(&*BTFS.enter_soon(btf)?);
            new_layout(btf.layout(name)?)
        };
        // SAFETY: the caller's promise.
        unsafe { hand_out("layout", layout, make) }
    })
}

/// Closes a layout. What was found out about its fields stays valid.
#[unsafe(no_mangle)]
pub extern "C" fn rsd_layout_close(layout: *mut rsd_layout) -> c_int {
    call(|| {
        // Another thread looks up a field for a moment only.
        LAYOUTS.close_soon(layout)?.remove();
        Ok(0)
    })
}

/// Whether the struct has a field of this name: 1 or 0, or an error. Members of a struct in it are named as in C
/// (`vlan.tci`, `steps[2].time`).
///
/// # Safety
/// `field` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_layout_has_field(layout: *const rsd_layout, field: *const c_char) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { text("field", field) }?;
        Ok(layout_of(layout)?.field(name).is_ok().into())
    })
}

/// Looks a field up by its name, to be read from many packets.
///
/// RSD_ENOENT: there is none of that name; rsd_last_error() lists those that there are.
///
/// # Safety
/// `name` is NULL or a string; `field` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_layout_field(
    layout: *const rsd_layout,
    name: *const c_char,
    field: *mut rsd_field,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let (name, to) = unsafe { (text("name", name)?, room("field", field)?) };
        let to = to.write(rsd_field::default());
        let layout = layout_of(layout)?;
        *to = rsd_field::of(&layout, layout.field(name)?);
        Ok(0)
    })
}

/// The whole struct as one field, to be read into a C struct that is the program's: only the size is compared. A member that
/// the program's compiler lays elsewhere (packed, aligned) shows as nonsense, so share the definition with the program.
///
/// # Safety
/// `field` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_layout_whole(layout: *const rsd_layout, field: *mut rsd_field) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let to = unsafe { room("field", field) }?;
        let to = to.write(rsd_field::default());
        *to = rsd_field::whole(&*layout_of(layout)?);
        Ok(0)
    })
}

/// Number of the struct's fields, `btf_id` included.
#[unsafe(no_mangle)]
pub extern "C" fn rsd_layout_fields(layout: *const rsd_layout) -> c_int {
    call(|| Ok(count(layout_of(layout)?.fields().len())))
}

/// The field of this number, from 0 on in the order of the struct, and its name in the `size` bytes of `name`; returns the
/// name's length.
///
/// RSD_ENOENT: there are not so many.
///
/// # Safety
/// `name` has room for `size` bytes, or may be NULL if that is 0; `field` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_layout_field_at(
    layout: *const rsd_layout,
    index: u32,
    name: *mut c_char,
    size: usize,
    field: *mut rsd_field,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let to = unsafe { room("field", field) }?;
        let to = to.write(rsd_field::default());
        let layout = layout_of(layout)?;
        let found = layout.fields().get(index as usize).ok_or_else(|| {
            let fields = layout.fields().len();
            Failure::new(
                Code::RSD_ENOENT,
                format!("struct {} has {fields} fields, numbered from 0", layout.name()),
            )
        })?;
        *to = rsd_field::of(&layout, found);
        // SAFETY: the caller's promise.
        unsafe { copy_text(found.name(), name, size) }
    })
}

/// The name of the struct, in the `size` bytes of `name`; returns its length.
///
/// # Safety
/// `name` has room for `size` bytes, or may be NULL if that is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_layout_name(layout: *const rsd_layout, name: *mut c_char, size: usize) -> c_int {
    // SAFETY: the caller's promise.
    call(|| unsafe { copy_text(layout_of(layout)?.name(), name, size) })
}

/// Reads a field by its name: as rsd_layout_field() and rsd_field_read() in one, with a look-up for each packet. See also the
/// macro RSD_READ_INTO().
///
/// # Safety
/// `name` is NULL or a string; otherwise as rsd_field_read().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_layout_read(
    layout: *const rsd_layout,
    name: *const c_char,
    packet: *const c_void,
    front: usize,
    dest: *mut c_void,
    size: usize,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { text("name", name) }?;
        let layout = layout_of(layout)?;
        let field = rsd_field::of(&layout, layout.field(name)?);
        // SAFETY: the caller's promise.
        Ok(unsafe { rsd_field_read(&raw const field, packet, front, dest, size) })
    })
}

/// The path of an argument.
///
/// # Safety
/// NULL, or a string that stays as it is for `'p`.
pub(crate) unsafe fn path_of<'p>(name: &str, path: *const c_char) -> Result<&'p Path, Failure> {
    if path.is_null() {
        return Err(Failure::invalid(format!("{name} is NULL")));
    }
    // SAFETY: the caller's promise.
    let path = unsafe { std::ffi::CStr::from_ptr(path) };
    Ok(Path::new(OsStr::from_bytes(path.to_bytes())))
}

/// The layouts of a program's own BTF.
pub(crate) fn layouts_of(object: &[u8]) -> Result<Layouts, Failure> {
    Ok(Layouts::of(&Btf::object(object)?)?)
}
