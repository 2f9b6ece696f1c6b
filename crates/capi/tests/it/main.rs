//! The integration tests, as one program: each module tests one subject.

mod c;
mod common;
mod header;
mod install;
mod link;
mod packets;
