//! What can be wrong with the other side.

use super::message::VERSIONS;

/// Why a control connection ends. Nothing that the other side sends is more than this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Another protocol.
    #[error("it speaks {what}{}", if *what == "TLS" {
        ": give both sides TLS (`serve --tls`, and --pin or --tls here), or neither"
    } else {
        ", not Ringside's control protocol: another service is on that port, or another client came to this one"
    })]
    NotOurs {
        /// Its name.
        what: &'static str,
    },
    /// A message that is longer than any.
    #[error(
        "it announced a message of {announced} bytes, {most} are the most: that is no `ringside` of a version spoken here"
    )]
    TooLong {
        /// What it announced.
        announced: usize,
        /// What is allowed.
        most: usize,
    },
    /// Bytes that are no message.
    #[error("it sent what is no message: {why}")]
    Malformed {
        /// What is wrong with it.
        why: String,
    },
    /// A message at the wrong time.
    #[error("it sent {what} when that makes no sense")]
    OutOfOrder {
        /// Which.
        what: &'static str,
    },
    /// No version in common.
    #[error(
        "it speaks versions {theirs:?} of the control protocol, here {VERSIONS:?} are spoken: use one version of ringside on both sides"
    )]
    Version {
        /// What it speaks.
        theirs: Vec<u32>,
    },
    /// One has a token, the other has not.
    #[error("it asks for a token: give the one that `ringside serve` has, with --token-file FILE or RINGSIDE_TOKEN")]
    TokenMissing,
    /// The other way round.
    #[error(
        "it asks for no token, but one was given: whoever answers there may be anybody. Leave the token out if that is meant"
    )]
    TokenNotAsked,
    /// Not the same token, or somebody in between.
    #[error("the tokens are not the same: give both sides one file (white space at the ends does not count){}", if *.tls { ", and see that the TLS key is the server's own" } else { "" })]
    WrongToken {
        /// TLS is in use.
        tls: bool,
    },
    /// A tag that is not right.
    #[error("a message was changed on its way, or is not from where it says")]
    Forged,
    /// It took too long.
    #[error("it did not {what} within {} s", .after_ns / 1_000_000_000)]
    Slow {
        /// What it had to do.
        what: &'static str,
        /// How long it had.
        after_ns: u64,
    },
    /// Nothing came any more.
    #[error("nothing was heard from it for {:.1} s", *.after_ns as f64 / 1e9)]
    Silent {
        /// For how long.
        after_ns: u64,
    },
    /// It says no.
    #[error("it refuses: {why}")]
    Refused {
        /// Its words.
        why: String,
    },
    /// It is gone.
    #[error("it closed the connection{}", if *.halfway { " in the middle of a message" } else { "" })]
    Closed {
        /// Within a message.
        halfway: bool,
    },
}

impl Fault {
    /// What to tell the other side about it; `None` where it is no ringside, or must not learn anything.
    pub(super) fn answer(&self) -> Option<String> {
        match self {
            Self::NotOurs { .. } | Self::TooLong { .. } | Self::Closed { .. } | Self::Refused { .. } | Self::Forged => {
                None
            }
            Self::Version { theirs } => Some(format!(
                "versions {VERSIONS:?} of the control protocol are spoken here, not {theirs:?}: use one version of ringside on both \
                 sides"
            )),
            Self::WrongToken { .. } => Some("the tokens are not the same".to_owned()),
            other => Some(other.to_string().replacen("it ", "the other side ", 1)),
        }
    }
}
