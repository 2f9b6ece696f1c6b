//! Hints in front of a packet: the id of their struct, and single fields by what was found out about them before.

use std::ffi::{c_int, c_void};
use std::ptr;

use ringside_xsk::hints::{Field, LONGEST, Layout};

use crate::boundary::{given, room};
use crate::error::{Failure, rsd_error as Code};

/// Where a field lies and what it is: filled in by rsd_layout_field() and its like once, then read from many packets. It is
/// the caller's, needs no closing, may be copied, and may be used by many threads. One of zeros only is no field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct rsd_field {
    /// The struct's id, which packets with it carry.
    pub btf_id: u32,
    /// Bytes of the struct.
    pub struct_size: u16,
    /// Bytes from the struct's start.
    pub offset: u16,
    /// Bytes of the integer, or of one element of the array.
    pub size: u16,
    /// Elements of the array; 1 for what is none.
    pub count: u16,
    /// 1 for integers with a sign.
    pub is_signed: u8,
    /// 1 for an array.
    pub is_array: u8,
    /// 0.
    pub reserved: u16,
}

impl rsd_field {
    pub(crate) fn of(layout: &Layout, field: &Field) -> Self {
        // Nothing of a struct of hints is longer than LONGEST, which is 252 bytes.
        let short = |number: u32| u16::try_from(number).unwrap_or(0);
        Self {
            btf_id: layout.id(),
            struct_size: short(layout.size()),
            offset: short(field.offset()),
            size: short(field.size()),
            count: short(field.count().unwrap_or(1)),
            is_signed: field.is_signed().into(),
            is_array: field.count().is_some().into(),
            reserved: 0,
        }
    }

    /// The whole struct.
    pub(crate) fn whole(layout: &Layout) -> Self {
        Self {
            btf_id: layout.id(),
            struct_size: u16::try_from(layout.size()).unwrap_or(0),
            size: u16::try_from(layout.size()).unwrap_or(0),
            count: 1,
            ..Self::default()
        }
    }

    /// Whether it can be a field of a struct of hints, so that nothing is read but what is in front of the packet.
    #[inline]
    fn is_field(&self) -> bool {
        let (struct_size, bytes) = (u32::from(self.struct_size), self.bytes());
        let fits = u32::from(self.offset).wrapping_add(bytes) <= struct_size;
        self.btf_id != 0 && bytes != 0 && fits && struct_size.wrapping_sub(4) <= LONGEST - 4
    }

    /// Bytes of all elements; two numbers of 16 bits do not leave 32.
    #[inline]
    fn bytes(&self) -> u32 {
        u32::from(self.size) * u32::from(self.count)
    }

    /// Copies what it says out of the bytes in front of a packet.
    ///
    /// # Safety
    /// It is a field (`is_field`); the `front` bytes in front of `packet` can be read; `to` has room for all of the field.
    #[inline]
    unsafe fn read(&self, packet: *const u8, front: usize, to: *mut u8) -> Code {
        let struct_size = usize::from(self.struct_size);
        // SAFETY: the struct has four bytes at least, and so many are in front of the packet. They need not be aligned.
        if front < struct_size || unsafe { packet.sub(4).cast::<u32>().read_unaligned() } != self.btf_id {
            // SAFETY: the caller's promise.
            return unsafe { self.not_read(packet, front) };
        }
        // SAFETY: the field lies in its struct, and that in the `front` bytes. It may be copied to where it is, so this is no
        // copy of what does not overlap; as most are, it is done without a call.
        unsafe {
            let from = packet.sub(struct_size).add(self.offset.into());
            match self.bytes() {
                8 => to.cast::<[u8; 8]>().write(from.cast::<[u8; 8]>().read()),
                4 => to.cast::<[u8; 4]>().write(from.cast::<[u8; 4]>().read()),
                bytes => ptr::copy(from, to, bytes as usize),
            }
        }
        Code::RSD_OK
    }

    /// Why there is no such field in front of the packet.
    ///
    /// # Safety
    /// The `front` bytes in front of `packet` can be read.
    #[cold]
    unsafe fn not_read(&self, packet: *const u8, front: usize) -> Code {
        // SAFETY: the caller's promise.
        match unsafe { id_of(packet, front) } {
            Some(id) if id != self.btf_id => Code::RSD_EOTHER,
            _ => Code::RSD_ENOHINTS,
        }
    }
}

/// The id in front of a packet; 0 is none.
///
/// # Safety
/// The `front` bytes in front of `packet` can be read.
#[inline]
unsafe fn id_of(packet: *const u8, front: usize) -> Option<u32> {
    if front < 4 {
        return None;
    }
    // SAFETY: four bytes of those. They need not be aligned.
    let id = unsafe { packet.sub(4).cast::<u32>().read_unaligned() };
    (id != 0).then_some(id)
}

/// Tells which struct of hints is in front of a packet: its id in the BTF of the XDP program, which is in the four bytes in
/// front of the packet's first.
///
/// `packet` is its first byte, `front` the number of bytes in front of it that may be read: those of a struct rsd_packet, or
/// for a packet that was not received through this library, the part of its frame in front of it.
///
/// RSD_ENOHINTS: there is none, which is 0, or no room for one.
///
/// For the id alone nothing says that the bytes are an id. This library clears them before the kernel gets a frame, so
/// what is in front of its own packets is.
///
/// # Safety
/// The `front` bytes in front of `packet` can be read; `id` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_hints_id(packet: *const c_void, front: usize, id: *mut u32) -> c_int {
    // SAFETY: the caller's promise.
    let to = match unsafe { room("id", id) } {
        Ok(to) => to,
        Err(failure) => return failure.tell(),
    };
    if packet.is_null() {
        to.write(0);
        return Failure::invalid("packet is NULL").tell();
    }
    // SAFETY: the caller's promise.
    let found = unsafe { id_of(packet.cast(), front) };
    to.write(found.unwrap_or(0));
    (if found.is_some() {
        Code::RSD_OK
    } else {
        Code::RSD_ENOHINTS
    }) as c_int
}

/// Reads a field of the hints in front of a packet into `dest`, which has `size` bytes: those of the integer, or of all
/// elements of an array, or of the whole struct (rsd_layout_whole()); see also the macro RSD_READ().
///
/// RSD_ENOHINTS: there are none. RSD_EOTHER: they are of another struct. RSD_ESIZE: `size` is not the field's. `dest` is left
/// as it was then.
///
/// # Safety
/// `field` is NULL or can be read, the `front` bytes in front of `packet` can be read, `dest` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_field_read(
    field: *const rsd_field,
    packet: *const c_void,
    front: usize,
    dest: *mut c_void,
    size: usize,
) -> c_int {
    // Without a Result of this size on the way: it is called for each packet.
    if !field.is_null() && field.is_aligned() && !packet.is_null() && !dest.is_null() {
        // SAFETY: the caller's promise, and neither NULL nor misaligned.
        let field = unsafe { &*field };
        if field.is_field() && size == field.bytes() as usize {
            // SAFETY: the caller's promise; `dest` has as many bytes as the field.
            return (unsafe { field.read(packet.cast(), front, dest.cast()) }) as c_int;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { unreadable(field, packet, dest, size) }
}

/// Reads a field of any size, 1, 2, 4 or 8 bytes, as 64 bits: for what is found by itself and printed. With a sign the value
/// is that of (int64_t)*value. Of an array rsd_field_element() tells an element.
///
/// RSD_ENOHINTS, RSD_EOTHER: as rsd_field_read(). RSD_ESIZE: the field is an array or a struct.
///
/// # Safety
/// As rsd_field_read().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_field_value(
    field: *const rsd_field,
    packet: *const c_void,
    front: usize,
    value: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let (field, to) = match unsafe { checked(field, packet).and_then(|field| Ok((field, room("value", value)?))) } {
        Ok(both) => both,
        Err(failure) => return failure.tell(),
    };
    if field.is_array != 0 || !matches!(field.bytes(), 1 | 2 | 4 | 8) {
        return wrong_size(field, 8).tell();
    }
    let mut bytes = [0_u8; 8];
    // SAFETY: the caller's promise; at most eight bytes were just seen.
    let code = unsafe { field.read(packet.cast(), front, bytes.as_mut_ptr()) };
    if code == Code::RSD_OK {
        let [a, b, c, d, e, f, g, h] = bytes;
        to.write(match (field.bytes(), field.is_signed != 0) {
            (1, false) => a.into(),
            (1, true) => i64::from(a.cast_signed()).cast_unsigned(),
            (2, false) => u16::from_ne_bytes([a, b]).into(),
            (2, true) => i64::from(i16::from_ne_bytes([a, b])).cast_unsigned(),
            (4, false) => u32::from_ne_bytes([a, b, c, d]).into(),
            (4, true) => i64::from(i32::from_ne_bytes([a, b, c, d])).cast_unsigned(),
            _ => u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
        });
    }
    code as c_int
}

/// One element of an array as a field of its own, from 0 on.
///
/// RSD_ENOENT: there is no such element; an integer is its own element 0.
///
/// # Safety
/// `field` is NULL or can be read, `element` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_field_element(field: *const rsd_field, index: u32, element: *mut rsd_field) -> c_int {
    // SAFETY: the caller's promise.
    let (field, to) = match unsafe { given("field", field).and_then(|field| Ok((*field, room("element", element)?))) } {
        Ok(both) => both,
        Err(failure) => return failure.tell(),
    };
    if !field.is_field() {
        return no_field().tell();
    }
    let index = match u16::try_from(index) {
        Ok(index) if index < field.count => index,
        _ => {
            return Failure::new(
                Code::RSD_ENOENT,
                format!("the field has {} element(s), numbered from 0", field.count),
            )
            .tell();
        }
    };
    to.write(rsd_field {
        offset: field.offset + index * field.size,
        count: 1,
        is_array: 0,
        ..field
    });
    Code::RSD_OK as c_int
}

/// # Safety
/// `field` is NULL or can be read for `'f`.
#[inline]
unsafe fn checked<'f>(field: *const rsd_field, packet: *const c_void) -> Result<&'f rsd_field, Failure> {
    // SAFETY: the caller's promise.
    let field = unsafe { given("field", field) }?;
    if packet.is_null() {
        return Err(Failure::invalid("packet is NULL"));
    }
    if !field.is_field() {
        return Err(no_field());
    }
    Ok(field)
}

/// Why a field cannot be read.
///
/// # Safety
/// `field` is NULL or can be read.
#[cold]
unsafe fn unreadable(field: *const rsd_field, packet: *const c_void, dest: *mut c_void, size: usize) -> c_int {
    // SAFETY: the caller's promise.
    let failure = match unsafe { checked(field, packet) } {
        Err(failure) => failure,
        Ok(_) if dest.is_null() => Failure::invalid("dest is NULL"),
        Ok(field) => wrong_size(field, size),
    };
    failure.tell()
}

#[cold]
fn no_field() -> Failure {
    Failure::invalid("this struct rsd_field is no field: rsd_layout_field() fills one in")
}

#[cold]
fn wrong_size(field: &rsd_field, size: usize) -> Failure {
    Failure::new(
        Code::RSD_ESIZE,
        format!(
            "the field has {} element(s) of {} byte(s), and is to be read into {size} byte(s)",
            field.count, field.size
        ),
    )
}
