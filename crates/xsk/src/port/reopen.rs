//! Opening a port again after its interface went away or changed.

use std::time::{Duration, Instant};

use ringside_nic::Interface;

use super::Port;
use crate::error::Error;

/// The pauses between attempts: soon at first, for an interface that is back at once, then rarely.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

impl Port {
    /// Closes the port and opens it again as it was built, on the interface that has the name now: after
    /// [`Error::LinkGone`], or when the interface has other queues ([`LinkEvent::QueuesChanged`](crate::LinkEvent)) and
    /// all of them are wanted. Tries again and again, with growing pauses, for as long as `patience`.
    ///
    /// Frames that were kept stay valid and belong to the old UMEM; counters start anew. After an error the port has no
    /// queues, and may be opened once more.
    ///
    /// # Errors
    ///
    /// Those of [`PortBuilder::open`](super::PortBuilder::open): of the last attempt, or at once where another one would
    /// not help. [`Error::Forked`] in a child of `fork()`, which leaves the port as it is.
    pub fn reopen(&mut self, patience: Duration) -> Result<(), Error> {
        self.guard.check_process()?;
        self.close();
        let start = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let mut recipe = self.recipe.try_clone()?;
            let attempt = Interface::by_name(self.interface().name())
                .map_err(Error::from)
                .and_then(|interface| {
                    recipe.interface = interface;
                    recipe.open()
                });
            match attempt {
                Ok(port) => {
                    *self = port;
                    return Ok(());
                }
                Err(error) if is_final(&error) || start.elapsed() >= patience => return Err(error),
                Err(_) => {
                    std::thread::sleep(pause.min(patience.saturating_sub(start.elapsed())));
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }
}

/// Whether time alone mends nothing.
fn is_final(error: &Error) -> bool {
    matches!(
        error,
        Error::Setting { .. } | Error::Permission { .. } | Error::Unsupported { .. } | Error::Load { .. }
    )
}
