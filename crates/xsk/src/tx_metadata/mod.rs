//! TX metadata: what a sender asks the driver about a packet, and when the packet left.
//!
//! The request lies right in front of the packet, in its frame; the kernel writes the answer over it:
//!
//! ```text
//!   frame   | ... | flags | checksum start, offset | launch time | packet ...     24 bytes, from the option
//!   after   | ... | flags | time of completion     | launch time | packet ...     XDP_TX_METADATA
//! ```
//!
//! [`QueueOptions::tx_metadata`](crate::QueueOptions::tx_metadata) switches it on and says what will be asked for; a
//! [`TxMeta`] asks for it, packet by packet; [`Queue::tx_stamps`](crate::Queue::tx_stamps) tells when packets left.
//!
//! ```no_run
//! use ringside_xsk::tx_metadata::{StampSampling, TxMeta, TxMetadata};
//! use ringside_xsk::{Direction, Interface, Port, QueueOptions};
//!
//! let options = QueueOptions::new()
//!     .direction(Direction::Transmit)
//!     .tx_metadata(TxMetadata::new().checksum().timestamps(StampSampling::all()));
//! let mut port = Port::builder(Interface::by_name("eth0")?).options(options).open()?;
//! let queue = port.queues_mut().next().unwrap();
//! # let packet: &[u8] = &[];
//! let mut number = 0;
//! queue.send_asking_with(64, |to| {
//!     assert!(to.write(packet));
//!     number += 1;
//!     // The UDP checksum is at byte 40 and begins at byte 34; the stamp is told with the packet's number.
//!     TxMeta::new().checksum(34, 6).timestamp(number)
//! })?;
//! for stamp in queue.tx_stamps()? {
//!     println!("packet {} left at {}", stamp.token, stamp.time);
//! }
//! # Ok::<(), ringside_xsk::Error>(())
//! ```
//!
//! # Hints and requests share the room in front of a packet
//!
//! So a packet that asks for something is out of the user's hands: [`Packet::ask`](crate::Packet::ask) and
//! [`Queue::send_asking`](crate::Queue::send_asking) take it by value, and
//! [`Queue::send_asking_with`](crate::Queue::send_asking_with) asks for what its closure returns, when that is done with the
//! packet. Hints that were read are copies, and stay; hints that are
//! borrowed keep the packet borrowed:
//!
//! ```compile_fail,E0505
//! # use ringside_xsk::{Packet, tx_metadata::TxMeta};
//! fn too_late(packet: Packet<'_>) {
//!     let hints = packet.raw_hints();
//!     let asked = packet.ask(TxMeta::new().timestamp(1)); // would overwrite what `hints` shows
//!     println!("{hints:?}");
//! }
//! ```
//!
//! ```compile_fail,E0505
//! # use ringside_xsk::{Frame, Queue, tx_metadata::TxMeta};
//! fn too_late(queue: &mut Queue, frame: Frame) {
//!     let hints = frame.raw_hints();
//!     let sent = queue.send_asking(frame, TxMeta::new().timestamp(1));
//!     println!("{hints:?}");
//! }
//! ```
//!
//! Nor can a packet be changed afterwards, so that what was checked about it stays true:
//!
//! ```compile_fail,E0382
//! # use ringside_xsk::{Packet, tx_metadata::TxMeta};
//! fn too_late(mut packet: Packet<'_>) {
//!     let asked = packet.ask(TxMeta::new().checksum(34, 6));
//!     packet.extend_front(8);
//! }
//! ```
//!
//! # Who does what is asked for
//!
//! | | copy paths | zero-copy |
//! |---|---|---|
//! | checksum | the kernel, or the device behind it where it has that offload | the device, if it offers `tx-checksum` |
//! | timestamp | the kernel: CLOCK_TAI, when the driver lets go of the packet | the device: its own clock, if it offers `tx-timestamp` |
//! | launch time | a driver that looks at it, otherwise nobody | the device, if it offers `tx-launch-time-fifo` |
//!
//! What a device lacks with zero-copy is a reason for [`Mode::Auto`](crate::Mode::Auto) to take a copy path; the report tells
//! it. Linux 6.11; a launch time Linux 6.15. <https://docs.kernel.org/networking/xsk-tx-metadata.html>

mod error;
mod obtained;
mod options;
mod request;
mod stamps;

pub use error::{AskError, NotAsked};
pub use obtained::{ChecksumBy, LaunchBy, ObtainedStamps, TxMetadataReport};
pub use options::{LaunchTime, StampSampling, TxMetadata};
pub use request::{LaunchClock, TxMeta};
pub use stamps::{HardwareTime, StampCounters, StampTime, TxStamp, TxStamps};

pub(crate) use obtained::Obtained;
pub(crate) use options::Features;
pub(crate) use request::Ask;
pub(crate) use stamps::Stamps;

/// `struct xsk_tx_metadata`, since Linux 6.15 with a launch time.
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/xsk_tx_metadata>
pub(crate) const METADATA_LEN: u32 = 24;

/// Where in it the kernel puts the time of completion, over the checksum's words.
pub(crate) const STAMP_AT: u32 = 8;

/// `XDP_TXMD_FLAGS_TIMESTAMP`, `_CHECKSUM` and `_LAUNCH_TIME`.
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/XDP_TXMD_FLAGS_TIMESTAMP>
pub(crate) const TIMESTAMP: u8 = 1 << 0;
pub(crate) const CHECKSUM: u8 = 1 << 1;
pub(crate) const LAUNCH_TIME: u8 = 1 << 2;
