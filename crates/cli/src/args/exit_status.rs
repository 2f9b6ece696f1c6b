//! The exit status where a value makes no sense.

use ringside_measure::BadValue;

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
