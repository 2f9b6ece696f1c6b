//! What two hosts say to each other before, during and after a run: messages, who they are from, and in which order.
//!
//! Knows no socket and no clock. Bytes that came and the time go in, bytes to be sent and events come out, so that all of it
//! can be tested, and fed with rubbish.
//!
//! ```text
//!   client                                            server
//!     │ Hello     versions, nonce ─────────────────────▶ │
//!     │ ◀───────────────────────── Welcome  version, nonce │   at most 5 s, at most 4 KiB a message
//!     │ Proof     HMAC by the token ───────────────────▶ │
//!     │ ◀──────────────────────────── Proof  the server's │   from here on each message has a tag
//!     │                                                   │
//!     │ Start     session, work, rate, time ───────────▶ │   opens its end
//!     │ ◀──────────────────── Ready  mode, port, system  │   (or Refused: why)
//!     │ Go ────────────────────────────────────────────▶ │
//!     │ ◀──── Alive, Tally (feedback) ────  Alive ──────▶ │   silence of 1.5 s is the end of it
//!     │ Stop ──────────────────────────────────────────▶ │
//!     │ ◀─────────────────────────────────────── Outcome │   and again, or Bye
//! ```
//!
//! Frames are a length of four bytes, big-endian, and so many bytes: a message as JSON and, once both have proven that they
//! have the token, a tag of 32 bytes. The token itself never travels. See `docs/serve.md` for what that protects from.
//!
//! ```
//! use ringside_measure::control::{Client, ClientOptions, Server, ServerOptions, Token};
//!
//! let token = || Token::new("a token of sixteen letters or more").ok();
//! let mut client = Client::new(ClientOptions { token: token(), nonce: [1; 32], binding: None }, 0);
//! let mut server = Server::new(ServerOptions { token: token(), nonce: [2; 32], binding: None }, 0);
//! while !(client.is_open() && server.is_open()) {
//!     server.receive(&client.take_output(), 0)?;
//!     client.receive(&server.take_output(), 0)?;
//! }
//! # Ok::<(), ringside_measure::control::Fault>(())
//! ```

mod auth;
mod client;
mod errand;
mod fault;
mod frame;
mod guest;
mod message;
mod pipe;
mod server;

pub use auth::{Nonce, Token, TokenError, fingerprint};
pub use client::{Client, ClientEvent, ClientOptions};
pub use errand::{Errand, LoadsEnd, ScheduleEnd, SteerEnd, Talk};
pub use fault::Fault;
pub use frame::{MOST_AFTER, MOST_BEFORE, MOST_FROM_SERVER};
pub use guest::{GuestEnd, GuestNic, GuestUp, GuestUplink, GuestsAllowed};
pub use message::{
    ClockFacts, ContestStart, FarVia, Hello, Message, Proof, Ready, Refused, SESSION_STEP, Start, Stop, Tally,
    VERSIONS, Welcome, Work,
};
pub use server::{Server, ServerEvent, ServerOptions};

/// TCP port of the control connection, unless told otherwise: that of the probes, one protocol above.
pub const DEFAULT_PORT: u16 = crate::probe::DEFAULT_PORT;

/// Who has not proven itself after so many nanoseconds is shut out.
pub const HANDSHAKE_NS: u64 = 5_000_000_000;
/// How long opening an end may take: a NIC that gets its first XDP program may renegotiate its link.
pub const SETUP_NS: u64 = 20_000_000_000;
/// The same of a guest ([`Errand::Guest`]), whose CPUs may be emulated. So long both sides say that they are there, and who has said nothing for
/// [`SETUP_NS`] is gone.
pub const BOOT_NS: u64 = 600_000_000_000;
/// After so long without a word during a run the other side is gone. With the time until that is noticed it is below the two
/// seconds within which packets have to stop.
pub const SILENCE_NS: u64 = 1_500_000_000;
/// As long as a client may ask for instead ([`Start::silence_ns`]), with hosts that are slow by nature: emulated guests.
pub const MOST_SILENCE_NS: u64 = 60_000_000_000;
/// How often one says that it is there, during a run and between two.
pub const ALIVE_NS: u64 = 250_000_000;
/// Who asks for nothing for so long is let go.
pub const IDLE_NS: u64 = 60_000_000_000;

#[cfg(test)]
mod tests;

/// Feeds both sides with what somebody without the token can send them: pieces of what was said before, changed, repeated,
/// shuffled, cut off, random bytes, other messages, and leaps of time. `draw` gives a number below its argument, which is where
/// the randomness, or a fuzzer's input, comes from.
///
/// # Panics
/// When one of the two says that it is open. That it does not panic otherwise is what is tested.
#[doc(hidden)]
pub fn rubbish(draw: &mut dyn FnMut(u64) -> u64) {
    fuzz::rubbish(draw);
}

/// The same with a fuzzer's input as what is drawn; nothing but zeros behind its end.
///
/// # Panics
/// As [`rubbish`].
#[doc(hidden)]
pub fn rubbish_of(input: &[u8]) {
    let mut bytes = input.iter();
    rubbish(&mut |most| {
        let mut number = 0_u64;
        let mut left = most.saturating_sub(1);
        while left != 0 {
            number = number << 8 | u64::from(bytes.next().copied().unwrap_or(0));
            left >>= 8;
        }
        number % most.max(1)
    });
}

mod fuzz;
