//! What a process holds that was killed a moment ago: its locks and sockets are free when the
//! kernel has taken it apart, with all its memory and XDP sockets.

use std::fs::{File, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for a process to end.
const PATIENCE: Duration = Duration::from_secs(3);

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Locks a file, and waits for a holder that may be ending.
pub(crate) fn lock(file: &File) -> Result<(), TryLockError> {
    let mut last = Ok(());
    until(|| {
        last = file.try_lock();
        !matches!(last, Err(TryLockError::WouldBlock))
    });
    last
}

/// Looks until something is free, for as long as the end of a process may take. Returns whether it
/// is.
pub(crate) fn until(mut is_free: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        if is_free() {
            return true;
        }
        if begun.elapsed() >= PATIENCE {
            return false;
        }
        thread::sleep(PAUSE);
    }
}
