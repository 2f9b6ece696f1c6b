//! libringside: `ringside-xsk` for C and C++.
//!
//! What there is to know for its users is in the header, `include/ringside/ringside.h`, which cbindgen makes of this crate
//! (`cargo test -p ringside-capi --test it header`), and in `docs/c-api.md`.
//!
//! Nothing that C gives is believed where it can be looked at. Handles are numbers, looked up in a table (`table`); packets
//! carry tokens, which end with their burst (`packet`) or name a cell of a slab (`slab`); structs say their size
//! (`options`); no panic leaves a call (`boundary`). What cannot be looked at is whether a pointer leads to as much memory
//! as is said.
#![allow(non_camel_case_types, reason = "the names are those of the header")]

mod boundary;
mod burst;
mod error;
mod field;
mod info;
mod layout;
mod options;
mod packet;
mod port;
mod queue;
mod slab;
mod table;
#[cfg(test)]
mod tests;

#[cfg(feature = "testing")]
#[doc(hidden)]
pub use queue::adopt;

pub use burst::*;
pub use error::{rsd_error, rsd_last_error, rsd_strerror, rsd_version};
pub use field::{rsd_field, rsd_field_element, rsd_field_read, rsd_field_value, rsd_hints_id};
pub use info::{rsd_queue_info, rsd_queue_query, rsd_queue_stats, rsd_stats};
pub use layout::*;
pub use options::{rsd_direction, rsd_flags, rsd_mode, rsd_options, rsd_options_init, rsd_wait};
pub use packet::{rsd_fate, rsd_packet, rsd_packet_copy, rsd_packet_part, rsd_packet_write, rsd_part};
pub use port::*;
pub use queue::{rsd_event, rsd_queue};
