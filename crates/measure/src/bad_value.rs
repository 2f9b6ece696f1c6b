//! Values of the command line, and of files that it names, that only a command can judge.

use std::error::Error;
use std::fmt;

/// A value that makes no sense, with what would. The exit status is 2, as for what the parser
/// refuses.
#[derive(Debug)]
pub struct BadValue(pub String);

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for BadValue {}

/// Leaves the function with a [`BadValue`].
#[macro_export]
macro_rules! bad_value {
    ($($text:tt)*) => {
        return Err($crate::BadValue(format!($($text)*)).into())
    };
}
