//! Who it is: a token that both have, proven without telling it.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// A number that is used once, drawn by each side for each connection.
pub type Nonce = [u8; 32];

/// Bytes of a proof and of a tag.
pub(super) const TAG_LEN: usize = 32;

/// What both sides know and nobody else does.
#[derive(Clone)]
pub struct Token(Vec<u8>);

/// Why a text is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// It could be guessed.
    #[error(
        "a token of {have} letters can be guessed: it takes {} at least, such as from `head -c 32 /dev/urandom | base64`",
        Token::LEAST
    )]
    Short {
        /// How many it has.
        have: usize,
    },
    /// It is no token but a file of something else.
    #[error(
        "a token has {} bytes at the most, this one {have}: is it another file?",
        Token::MOST
    )]
    Long {
        /// How many it has.
        have: usize,
    },
}

impl Token {
    /// A proof that somebody has overheard can be compared with that of each guess, as fast as a computer can: so many letters
    /// it takes.
    pub const LEAST: usize = 16;
    /// The longest.
    pub const MOST: usize = 4096;

    /// White space around it does not count.
    ///
    /// # Errors
    /// [`TokenError`] for fewer than 16 letters or more than 4096 bytes.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        match text.len() {
            have @ ..Self::LEAST => Err(TokenError::Short { have }),
            have if have > Self::MOST => Err(TokenError::Long { have }),
            _ => Ok(Self(text.as_bytes().to_vec())),
        }
    }

    fn mac(&self, purpose: &[u8], transcript: &[u8; 32]) -> [u8; TAG_LEN] {
        let mut mac = keyed(&self.0);
        mac.update(purpose);
        mac.update(transcript);
        mac.finalize().into_bytes().into()
    }
}

/// Says nothing.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

/// SHA-256 of a certificate, by which a key is pinned.
#[must_use]
pub fn fingerprint(certificate: &[u8]) -> [u8; 32] {
    Sha256::digest(certificate).into()
}

/// One of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

impl Side {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    fn prove(self) -> &'static [u8] {
        match self {
            Self::Client => b"ringside control, proof of the client",
            Self::Server => b"ringside control, proof of the server",
        }
    }

    fn seal(self) -> &'static [u8] {
        match self {
            Self::Client => b"ringside control, key of the client",
            Self::Server => b"ringside control, key of the server",
        }
    }
}

/// What was said before anybody proved anything, and over which TLS key: a proof is about all of it, so that nobody in between
/// can have changed a word, or can use it anywhere else.
#[derive(Debug, Clone)]
pub(super) struct Transcript(Sha256);

impl Transcript {
    pub(super) fn new(binding: Option<[u8; 32]>) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"ringside control");
        // Always as long, so that no two transcripts are of the same bytes.
        hash.update([u8::from(binding.is_some())]);
        hash.update(binding.unwrap_or_default());
        Self(hash)
    }

    pub(super) fn add(&mut self, message: &[u8]) {
        self.0.update((message.len() as u64).to_be_bytes());
        self.0.update(message);
    }

    pub(super) fn prove(&self, token: &Token, side: Side) -> [u8; TAG_LEN] {
        token.mac(side.prove(), &self.hash())
    }

    /// In a time that does not depend on how much of it is right.
    pub(super) fn is_proven(&self, token: &Token, side: Side, proof: &[u8]) -> bool {
        let mut mac = keyed(&token.0);
        mac.update(side.prove());
        mac.update(&self.hash());
        mac.verify_slice(proof).is_ok()
    }

    pub(super) fn seal(&self, token: &Token, side: Side) -> Seal {
        Seal {
            key: token.mac(side.seal(), &self.hash()),
            count: 0,
        }
    }

    fn hash(&self) -> [u8; 32] {
        self.0.clone().finalize().into()
    }
}

/// The tags of one direction: none can be left out, repeated, or put elsewhere.
#[derive(Clone)]
pub(super) struct Seal {
    key: [u8; TAG_LEN],
    count: u64,
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seal(…, {})", self.count)
    }
}

impl Seal {
    fn mac(&mut self, message: &[u8]) -> Hmac<Sha256> {
        let mut mac = keyed(&self.key);
        mac.update(&self.count.to_be_bytes());
        mac.update(message);
        self.count += 1;
        mac
    }

    /// The tag of the next message.
    pub(super) fn tag(&mut self, message: &[u8]) -> [u8; TAG_LEN] {
        self.mac(message).finalize().into_bytes().into()
    }

    /// The next message without its tag; `None` if that is not the right one.
    pub(super) fn open<'a>(&mut self, body: &'a [u8]) -> Option<&'a [u8]> {
        let (message, tag) = body.split_at_checked(body.len().checked_sub(TAG_LEN)?)?;
        self.mac(message).verify_slice(tag).ok()?;
        Some(message)
    }
}
