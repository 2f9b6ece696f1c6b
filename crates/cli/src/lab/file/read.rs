//! Readers that say what is expected, in words of the lab file, where something else stands.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

/// A text in quotes.
pub(super) fn text<'de, D: Deserializer<'de>>(from: D, expected: &'static str) -> Result<String, D::Error> {
    from.deserialize_str(Text(expected))
}

struct Text(&'static str);

impl Visitor<'_> for Text {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
}

/// A whole number.
pub(super) fn number<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    from.deserialize_i64(Number)
}

struct Number;

impl Visitor<'_> for Number {
    type Value = i64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number, without quotes")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<i64, E> {
        Ok(number)
    }
}

/// Tables of one name: `[[host]]`.
pub(super) fn tables<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    from.deserialize_seq(Tables(PhantomData))
}

struct Tables<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Tables<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one or more, each with its name in double brackets, as [[host]]")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut tables: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(table) = tables.next_element()? {
            all.push(table);
        }
        Ok(all)
    }
}

/// Two of a kind, no more: an array of the language would take the first two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::lab) struct Pair<T>(pub(in crate::lab) [T; 2]);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Pair<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let all = Vec::<T>::deserialize(from)?;
        let count = all.len();
        let pair = <[T; 2]>::try_from(all).map(Self);
        pair.map_err(|_| D::Error::custom(format_args!("two are wanted, one for each end; there are {count}")))
    }
}
