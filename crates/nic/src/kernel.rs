//! The running kernel's version, for the few facts that cannot be probed.

/// Whether the running kernel is of that version or a later one.
pub(crate) fn at_least(major: u32, minor: u32) -> bool {
    version(&rustix::system::uname().release().to_string_lossy()) >= Some((major, minor))
}

/// "6.18.44-something" → (6, 18).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release
        .split(|character: char| !character.is_ascii_digit())
        .map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        for (release, expected) in [
            ("6.18.44-fc-v657", Some((6, 18))),
            ("6.8.0-31-generic", Some((6, 8))),
            ("7.3", Some((7, 3))),
            ("6.10-rc1", Some((6, 10))),
            ("six", None),
            ("", None),
        ] {
            assert_eq!(version(release), expected, "{release}");
        }
        assert!(at_least(2, 6) && !at_least(u32::MAX, 0));
    }
}
