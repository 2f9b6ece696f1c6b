//! What both sides of a connection have: frames in and out, tags, and when something was heard.

use super::auth::{Seal, Side, Transcript};
use super::frame::{self, Frames};
use super::{Fault, Message, Nonce, Token};

/// Longer than any list of versions that makes sense, and what an error shows of one.
pub(super) const MOST_VERSIONS: usize = 16;

#[derive(Debug)]
pub(super) struct Pipe {
    side: Side,
    token: Option<Token>,
    tls: bool,
    frames: Frames,
    out: Vec<u8>,
    transcript: Transcript,
    /// Of what is sent and of what comes, once both have proven who they are.
    seals: Option<[Seal; 2]>,
    pub(super) heard_ns: u64,
    pub(super) said_ns: u64,
}

impl Pipe {
    pub(super) fn new(side: Side, token: Option<Token>, binding: Option<[u8; 32]>, now_ns: u64) -> Self {
        Self {
            side,
            token,
            tls: binding.is_some(),
            frames: Frames::default(),
            out: Vec::new(),
            transcript: Transcript::new(binding),
            seals: None,
            heard_ns: now_ns,
            said_ns: now_ns,
        }
    }

    pub(super) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    pub(super) fn add(&mut self, bytes: &[u8], now_ns: u64) {
        if !bytes.is_empty() {
            self.heard_ns = now_ns;
        }
        self.frames.add(bytes);
    }

    /// The next message, of `most` bytes at the most. Those before the proofs are noted for them.
    pub(super) fn next(&mut self, most: usize) -> Result<Option<Message>, Fault> {
        let Some(body) = self.frames.next(most)? else {
            return Ok(None);
        };
        let text = match &mut self.seals {
            Some([_, seal]) => seal.open(body).ok_or(Fault::Forged)?,
            None => body,
        };
        let message = serde_json::from_slice(text).map_err(|error| Fault::Malformed { why: error.to_string() })?;
        if matches!(message, Message::Hello(_) | Message::Welcome(_)) {
            self.transcript.add(text);
        }
        Ok(Some(message))
    }

    pub(super) fn put(&mut self, message: &Message, now_ns: u64) {
        // Numbers, strings and lists of them: there is nothing that JSON has not.
        let text = serde_json::to_vec(message).expect("a message is JSON");
        if matches!(message, Message::Hello(_) | Message::Welcome(_)) {
            self.transcript.add(&text);
        }
        match &mut self.seals {
            Some([seal, _]) => frame::put(&mut self.out, &text, &seal.tag(&text)),
            None => frame::put(&mut self.out, &text, &[]),
        }
        self.said_ns = now_ns;
    }

    pub(super) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// The proof of this side; empty without a token.
    pub(super) fn prove(&self) -> String {
        let proof = self.token.as_ref().map(|token| self.transcript.prove(token, self.side));
        proof.map(|proof| to_hex(&proof)).unwrap_or_default()
    }

    /// Checks that of the other.
    pub(super) fn check(&self, proof: &str) -> Result<(), Fault> {
        let Some(token) = &self.token else { return Ok(()) };
        let wrong = Fault::WrongToken { tls: self.tls };
        let bytes = from_hex(proof).ok_or_else(|| wrong.clone())?;
        match self.transcript.is_proven(token, self.side.other(), &bytes) {
            true => Ok(()),
            false => Err(wrong),
        }
    }

    /// From here on messages have tags, where there is a token to make them with.
    pub(super) fn seal(&mut self) {
        self.seals = self
            .token
            .as_ref()
            .map(|token| [self.side, self.side.other()].map(|side| self.transcript.seal(token, side)));
    }

    /// The stream has ended.
    pub(super) fn closed(&self) -> Fault {
        Fault::Closed {
            halfway: self.frames.is_halfway(),
        }
    }
}

pub(super) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// A nonce of the other side has to be one: two connections with the same would have the same tags.
pub(super) fn check_nonce(theirs: &str, own: &Nonce) -> Result<(), Fault> {
    match from_hex(theirs) {
        Some(theirs) if theirs != *own => Ok(()),
        Some(_) => Err(Fault::Malformed {
            why: "it sent the nonce back that it was sent".to_owned(),
        }),
        None => Err(Fault::Malformed {
            why: "a nonce is 64 hexadecimal digits".to_owned(),
        }),
    }
}
