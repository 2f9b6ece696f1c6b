//! Sets of named bits, as the kernel tells them.

/// Makes a type for a set of bits: constants, [`Display`](std::fmt::Display) and `Serialize` by the kernel's names.
///
/// A bit that this crate has no name for stays in the set and shows as `bit-N`, so that a newer kernel loses nothing.
macro_rules! flag_set {
    (
        $(#[$type_doc:meta])*
        $name:ident { $( $(#[$doc:meta])* $constant:ident = $bit:literal, $text:literal; )+ }
    ) => {
        $(#[$type_doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct $name(u64);

        impl $name {
            $( $(#[$doc])* pub const $constant: Self = Self(1 << $bit); )+

            /// Whether all of `flags` are in the set.
            #[must_use]
            pub fn contains(self, flags: Self) -> bool {
                self.0 & flags.0 == flags.0
            }

            /// Whether nothing is in the set.
            #[must_use]
            pub fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// The set as the kernel's mask.
            #[must_use]
            pub fn bits(self) -> u64 {
                self.0
            }

            pub(crate) fn from_bits(bits: u64) -> Self {
                Self(bits)
            }

            /// The names of what is in the set, as the kernel's netlink specification writes them.
            pub fn names(self) -> impl Iterator<Item = std::borrow::Cow<'static, str>> {
                (0..u64::BITS).filter(move |bit| self.0 >> bit & 1 == 1).map(|bit| match bit {
                    $( $bit => $text.into(), )+
                    other => format!("bit-{other}").into(),
                })
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        /// The names, with a space between; "none" if there are none.
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                if self.is_empty() {
                    return f.write_str("none");
                }
                for (n, name) in self.names().enumerate() {
                    write!(f, "{}{name}", if n == 0 { "" } else { " " })?;
                }
                Ok(())
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        /// A list of the names.
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq(self.names())
            }
        }
    };
}

pub(crate) use flag_set;
