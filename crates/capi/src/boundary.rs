//! What every call from C goes through: no panic leaves it, and what it was given is looked at first.

use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::Failure;

/// Runs a call. What its handles hold is marked as broken when a panic goes through ([`crate::table`]).
pub(crate) fn call(body: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(number)) => number,
        Ok(Err(failure)) => failure.tell(),
        Err(panic) => Failure::internal(&*panic).tell(),
    }
}

/// A number of things that C gets as an int.
pub(crate) fn count(number: impl TryInto<c_int>) -> c_int {
    number.try_into().unwrap_or(c_int::MAX)
}

/// The text of an argument.
///
/// # Safety
/// NULL, or a string that ends with a NUL and stays as it is for `'t`.
pub(crate) unsafe fn text<'t>(name: &str, text: *const c_char) -> Result<&'t str, Failure> {
    // SAFETY: the caller's promise.
    match unsafe { text_or_none(name, text) }? {
        Some(text) => Ok(text),
        None => Err(Failure::invalid(format!("{name} is NULL"))),
    }
}

/// As [`text`]; NULL is none.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn text_or_none<'t>(name: &str, text: *const c_char) -> Result<Option<&'t str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) }.to_str();
    text.map(Some)
        .map_err(|_| Failure::invalid(format!("{name} is no UTF-8")))
}

/// Whether something of type `T` can be where an argument points to.
fn check<T>(name: &str, place: *const T) -> Result<(), Failure> {
    if place.is_null() {
        return Err(Failure::invalid(format!("{name} is NULL")));
    }
    if !place.is_aligned() {
        return Err(Failure::invalid(format!("{name} is not aligned as its type is")));
    }
    Ok(())
}

/// What an argument points to.
///
/// # Safety
/// NULL, or a `T` that nobody changes for `'t`.
pub(crate) unsafe fn given<'t, T>(name: &str, place: *const T) -> Result<&'t T, Failure> {
    check(name, place)?;
    // SAFETY: neither NULL nor misaligned; otherwise the caller's promise.
    Ok(unsafe { &*place })
}

/// Where a result goes.
///
/// # Safety
/// NULL, or room for a `T` that nobody else uses for `'t`.
pub(crate) unsafe fn room<'t, T>(name: &str, place: *mut T) -> Result<&'t mut MaybeUninit<T>, Failure> {
    check(name, place)?;
    // SAFETY: neither NULL nor misaligned; otherwise the caller's promise, and nothing is read from it.
    Ok(unsafe { &mut *place.cast() })
}

/// Where several results go, or what several arguments are. Nothing, for a `count` of 0, may be NULL.
///
/// # Safety
/// NULL, or room for `count` values that nobody else uses for `'t`.
#[inline]
pub(crate) unsafe fn rooms<'t, T>(name: &str, place: *mut T, count: u32) -> Result<&'t mut [MaybeUninit<T>], Failure> {
    if count == 0 {
        return Ok(&mut []);
    }
    check(name, place)?;
    if count > MOST {
        return Err(Failure::invalid(format!(
            "{count} of {name} are more than the {MOST} that a burst has at the most"
        )));
    }
    // SAFETY: neither NULL nor misaligned; otherwise the caller's promise, and nothing is read from it.
    Ok(unsafe { std::slice::from_raw_parts_mut(place.cast(), count as usize) })
}

/// Packets of a burst at the most.
const MOST: u32 = 1 << 20;

/// Copies a text to where C wants it, shortened to its room and always ended with a NUL, and is the text's whole length.
/// With no room nothing is written, and `place` may be NULL.
///
/// # Safety
/// `place` is NULL, or room for `size` bytes.
pub(crate) unsafe fn copy_text(text: &str, place: *mut c_char, size: usize) -> Result<c_int, Failure> {
    if size != 0 {
        check("text", place)?;
        let len = text.len().min(size - 1);
        // SAFETY: at most `size` bytes, which the caller promises room for.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), place.cast(), len);
            place.add(len).write(0);
        }
    }
    Ok(count(text.len()))
}

/// Copies a struct of ours to where C has one of `size` bytes, of an older or a newer version of the header: what theirs has
/// and ours not is zero.
///
/// # Safety
/// `place` is NULL, or room for `size` bytes; `T` has no padding.
pub(crate) unsafe fn copy_struct<T: Copy>(value: &T, place: *mut T, size: usize) -> Result<(), Failure> {
    check("the struct", place)?;
    let both = size.min(size_of::<T>());
    // SAFETY: `both` bytes are ours, `size` bytes theirs.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast::<u8>(), place.cast::<u8>(), both);
        place.cast::<u8>().add(both).write_bytes(0, size - both);
    }
    Ok(())
}
