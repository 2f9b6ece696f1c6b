//! Takes the place of `tls` in a build without the feature `full`: TLS is an error there.

use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;

use super::pin::Pin;
use super::wire::Wire;
use crate::args::bad_value;

/// Fails: this build has no TLS.
///
/// # Errors
/// Always.
pub(super) fn connect(_: &Path, _: Option<Pin>, _: TcpStream, _: Instant) -> Result<(Wire, Pin)> {
    bad_value!("--tls and --pin need a ringside that was built with the cargo feature `full`")
}

/// Describes the error of a connection that was open.
pub(super) fn broken(error: &io::Error, _: Option<Pin>) -> String {
    format!("the connection is broken: {error}")
}
