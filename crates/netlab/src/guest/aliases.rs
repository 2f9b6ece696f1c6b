//! Which modules drive a device: those with an alias, which is a pattern, that fits the words in which the kernel tells of the device (its modalias).
//!
//! ```text
//! modalias of an Intel 82576     pci:v00008086d000010C9sv00001AF4sd00001100bc02sc00i00
//! alias of the module igb        pci:v00008086d000010C9sv*sd*bc*sc*i*
//! ```

/// Whether a pattern fits: with `*`, `?` and `[0-9a-f]`, as modules have them.
pub(crate) fn fits(pattern: &str, text: &str) -> bool {
    glob::Pattern::new(pattern).is_ok_and(|pattern| pattern.matches(text))
}

/// The modules of whose aliases one fits, each once, by the lines of a `modules.alias` (depmod): `alias PATTERN MODULE`.
pub(crate) fn of_file(text: &str, modalias: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some("alias"), Some(pattern), Some(module)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        if fits(pattern, modalias) && !found.iter().any(|known| known == module) {
            found.push(module.to_owned());
        }
    }
    found
}

/// Whether one of those that are built in has an alias that fits, by the entries of a `modules.builtin.modinfo`: `MODULE.alias=PATTERN`.
pub(crate) fn is_built_in(entries: &[u8], modalias: &str) -> bool {
    let mut entries = entries.split(|byte| *byte == 0);
    entries.any(|entry| {
        let entry = String::from_utf8_lossy(entry);
        let pattern = entry.split_once('.').and_then(|(_, told)| told.strip_prefix("alias="));
        pattern.is_some_and(|pattern| fits(pattern, modalias))
    })
}

#[cfg(test)]
#[path = "aliases_tests.rs"]
mod tests;
