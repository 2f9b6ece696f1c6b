//! Values of the command line, and of files that it names, that only a command can judge.

use std::error::Error;
use std::fmt;

/// A value that makes no sense, with what would. The exit status is 2, as for what the parser
/// refuses.
#[derive(Debug)]
pub(crate) struct BadValue(pub(crate) String);

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for BadValue {}

/// Leaves the function with a [`BadValue`].
macro_rules! bad_value {
    ($($text:tt)*) => {
        return Err($crate::args::BadValue(format!($($text)*)).into())
    };
}
pub(crate) use bad_value;

/// Returns whether an error is about a value of the command line, or of a file that it names.
pub(crate) fn is_about_a_value(error: &anyhow::Error) -> bool {
    use ringside_measure::Error::{Impairment, Period, Rate, Schedule, Search};
    error.downcast_ref::<BadValue>().is_some()
        || matches!(
            error.downcast_ref(),
            Some(ringside_xsk::Error::Setting { .. } | ringside_xsk::Error::NoSuchQueue { .. })
        )
        || matches!(
            error.downcast_ref(),
            Some(Impairment(_) | Period | Rate { .. } | Schedule(_) | Search(_))
        )
}
