//! Name of a fleet's state: what the key `v1/fleet` holds.

use std::fmt;

use super::key::FLEET;

/// What each name begins with. The number of the schema follows, a comma, and [`DIGITS`] digits.
const BEGIN: &str = "ringside-gateway fleet, schema ";
/// The schema of keys and values that this program reads and writes.
const SCHEMA: u32 = 1;
/// Hexadecimal digits by which names differ.
const DIGITS: usize = 16;
/// Characters of a wrong value that are shown.
const MAX_SHOWN: usize = 80;

/// Name of a fleet's state, without white space at its ends.
///
/// Who puts the key by hand may leave some there: `echo NAME | etcdctl put KEY` adds a newline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetName(Vec<u8>);

impl FleetName {
    /// Returns a name that no other fleet has.
    pub(crate) fn random() -> Self {
        let number = super::random();
        Self(format!("{BEGIN}{SCHEMA}, {number:0DIGITS$x}").into_bytes())
    }

    /// Reads what the key holds, whatever that is: see [`FleetName::check`].
    #[must_use]
    pub fn read(value: &[u8]) -> Self {
        Self(value.trim_ascii().to_vec())
    }

    /// Returns what etcd and the copy hold.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Checks the form and the number of the schema.
    ///
    /// # Errors
    /// Which value is there, and which ones this program takes.
    pub fn check(&self) -> Result<(), String> {
        let rest = self.0.strip_prefix(BEGIN.as_bytes()).unwrap_or_default();
        let schema = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (schema, digits) = rest.split_at(schema);
        let digits = digits.strip_prefix(b", ").unwrap_or_default();
        let is_number = digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit);
        if schema.is_empty() || !is_number {
            return Err(format!(
                "its key {FLEET}, which says whose state this is, holds {}; expected: \
                 \"{BEGIN}{SCHEMA}, \" and {DIGITS} hexadecimal digits",
                self.shown()
            ));
        }
        if schema != SCHEMA.to_string().as_bytes() {
            return Err(format!(
                "its key {FLEET} holds {}: this version of the program reads and writes schema \
                 {SCHEMA} only; start a version that knows the other one, or put the name that was \
                 there before",
                self.shown()
            ));
        }
        Ok(())
    }

    /// Returns the value in quotation marks and on one line, cut off where it is long.
    pub(crate) fn shown(&self) -> String {
        let text = self.to_string();
        match text.char_indices().nth(MAX_SHOWN) {
            None => format!("\"{text}\""),
            Some((end, _)) => format!("\"{}…\" ({} bytes)", &text[..end], self.0.len()),
        }
    }
}

impl fmt::Display for FleetName {
    /// On one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_names_of_this_schema_alone() {
        let name = FleetName::random();
        assert_eq!(name.check(), Ok(()));
        let text = name.to_string();
        let with = |from: &str, to: &str| FleetName::read(text.replace(from, to).as_bytes());
        for end in ["\n", "\r\n", " ", "\t\n"] {
            let padded = FleetName::read(format!("{end}{name}{end}").as_bytes());
            assert_eq!((&padded, padded.check()), (&name, Ok(())), "{end:?}");
        }
        for other in [
            with("schema 1", "schema 2"),
            with("schema 1", "schema 10"),
            with("schema 1", "schema 01"),
        ] {
            let why = other.check().unwrap_err();
            assert!(why.contains("reads and writes schema 1 only"), "{why}");
        }
        let short = name.to_string();
        let short = &short[..short.len() - 1];
        let capital = FleetName::read(format!("{short}A").as_bytes());
        assert_eq!(capital.check(), Ok(()));
        let words = [
            "",
            "garbage",
            short,
            &format!("{name}0"),
            &format!("{short}g"),
            &format!("{name}\n{name}"),
            "ringside-gateway fleet, schema , 0123456789abcdef",
            "ringside-gateway fleet, schema 1,0123456789abcdef",
        ];
        for word in words {
            let why = FleetName::read(word.as_bytes()).check().unwrap_err();
            assert!(why.contains("16 hexadecimal digits"), "{word:?}: {why}");
        }
    }

    #[test]
    fn shows_wrong_values_on_one_short_line() {
        let shown = |value: &[u8]| FleetName::read(value).shown();
        assert_eq!(shown(b"one\ntwo\xff\""), r#""one\ntwo\xff\"""#);
        let long = shown(&[b'a'; 100_000]);
        assert!(long.len() < 120 && long.ends_with("…\" (100000 bytes)"), "{long}");
    }
}
