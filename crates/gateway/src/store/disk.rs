//! Whether it is the file that is wrong, or the disk that does not tell what it holds.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rusqlite::ErrorCode;

use super::{StoreError, with_suffix};
use crate::model::Working;

/// True if it is the file that is wrong; or its disk: a statement makes that of EIO
/// (<https://github.com/sqlite/sqlite/blob/version-3.50.0/src/vdbe.c>, `SQLITE_IOERR_CORRUPTFS`).
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}

/// True if it is the disk, for sure, that does not tell what is in the file.
pub(super) fn is_unreadable(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi;
    // EIO of a read is the second one; an opening says the third: https://sqlite.org/rescode.html#ioerr_corruptfs
    let of_reads = [ffi::SQLITE_IOERR_READ, ffi::SQLITE_IOERR_CORRUPTFS, ffi::SQLITE_IOERR];
    error
        .sqlite_error()
        .is_some_and(|error| of_reads.contains(&error.extended_code))
}

/// Reads all of the file and its log, to know whether the disk tells what they hold.
pub(super) fn read_through(path: &Path, working: &Working) -> Result<(), StoreError> {
    let read = |path: &Path| {
        let file = File::open(path)?;
        let (mut part, mut at) = (vec![0; 1 << 20], 0);
        loop {
            match file.read_at(&mut part, at) {
                Ok(0) => return Ok(()),
                Ok(read) => at += read as u64,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            working.sign();
        }
    };
    let unreadable = |error: io::Error| StoreError::Unreadable {
        path: path.to_owned(),
        action: "reading it",
        reason: error.to_string(),
    };
    for suffix in ["", "-wal"] {
        match read(&with_suffix(path, suffix)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(unreadable(error)),
            _ => {}
        }
    }
    Ok(())
}
