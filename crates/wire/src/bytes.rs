//! The few helpers by which views read and write fixed headers.
//!
//! Headers are held as `&[u8; N]`: the length was checked when the reference was made, and
//! indexing with constants below N is then checked by the compiler, not at run time.

use crate::Error;

/// The first `N` bytes and the rest, or what is missing.
pub(crate) fn split_header<'a, const N: usize>(
    layer: &'static str,
    bytes: &'a [u8],
) -> Result<(&'a [u8; N], &'a [u8]), Error> {
    bytes.split_first_chunk().ok_or(Error::Truncated {
        layer,
        need: N,
        have: bytes.len(),
    })
}

/// As [`split_header`], for edits in place of something that has to be there.
pub(crate) fn header_mut<'a, const N: usize>(
    layer: &'static str,
    bytes: &'a mut [u8],
) -> Result<&'a mut [u8; N], Error> {
    let have = bytes.len();
    bytes.first_chunk_mut().ok_or(Error::Truncated { layer, need: N, have })
}

/// The first `N` bytes of a buffer that is to be written.
pub(crate) fn room<'a, const N: usize>(layer: &'static str, buffer: &'a mut [u8]) -> Result<&'a mut [u8; N], Error> {
    let have = buffer.len();
    buffer.first_chunk_mut().ok_or(Error::NoRoom { layer, need: N, have })
}

/// Swaps the neighbours `[at, at + len)` and `[at + len, at + 2 * len)`.
///
/// Source and destination stand side by side in every header that has them, which is why a
/// reflection is three calls of this.
pub(crate) fn swap_neighbours(bytes: &mut [u8], at: usize, len: usize) -> Result<(), Error> {
    let have = bytes.len();
    let need = at.saturating_add(2 * len);
    let Some(both) = bytes.get_mut(at..need) else {
        return Err(Error::Truncated {
            layer: "address pair",
            need,
            have,
        });
    };
    let (first, second) = both.split_at_mut(len);
    first.swap_with_slice(second);
    Ok(())
}
