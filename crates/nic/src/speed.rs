//! How fast a link is.

use crate::sysfs::Sysfs;
use crate::{Interface, Result};

impl Interface {
    /// The link's rate in bits a second, as its driver tells it; `None` where it does not, and while there is no carrier. That of a
    /// veth is made up: 10 Gbit/s.
    ///
    /// # Errors
    ///
    /// [`Error::File`](crate::Error::File) if sysfs cannot be read.
    #[doc(alias = "speed")]
    pub fn speed_bps(&self) -> Result<Option<u64>> {
        match Sysfs::of_this_thread().read(self, "speed") {
            // -1 is SPEED_UNKNOWN: <https://elixir.bootlin.com/linux/v6.18/C/ident/SPEED_UNKNOWN>
            Ok(text) => Ok(text
                .trim()
                .parse::<u64>()
                .ok()
                .filter(|&mbit| mbit > 0)
                .map(|mbit| mbit * 1_000_000)),
            // No carrier, or a driver that has no such thing.
            Err(error) if matches!(error.errno(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
