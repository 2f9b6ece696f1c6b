//! The fingerprint of a certificate, by which two hosts that use TLS know each other.

use std::fmt;
use std::str::FromStr;

use ringside_measure::control::fingerprint;

use super::secret::hex;

/// The fingerprint of somebody's certificate: `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pin([u8; 32]);

impl Pin {
    pub(super) fn of(certificate: &[u8]) -> Self {
        Self(fingerprint(certificate))
    }

    pub(super) fn bytes(self) -> [u8; 32] {
        self.0
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex(&self.0))
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Pin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("{text:?} is no pin: it is what `ringside serve --tls` prints, sha256: and 64 hexadecimal digits")
        };
        let digits = text
            .strip_prefix("sha256:")
            .filter(|digits| digits.len() == 64 && digits.is_ascii());
        let digits = digits.ok_or_else(wrong)?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}
