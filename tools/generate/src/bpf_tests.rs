use std::collections::BTreeMap;

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, SectionFlags, elf};

use super::*;

#[test]
fn checked_in_objects_match_their_sources() {
    let differences = crate::in_temporary_folder("bpf", |rebuilt| {
        compile(rebuilt).expect("compiles");
        if clang_version().expect("clang") == CLANG {
            compare(rebuilt)
        } else {
            Vec::new()
        }
    });
    assert!(
        differences.is_empty(),
        "these differ from what clang {CLANG} makes of the sources; run scripts/generate and commit the result: {differences:?}"
    );
}

/// Returns the file names under `src/generated` that do not match those in `rebuilt`.
fn compare(rebuilt: &Path) -> Vec<String> {
    let checked_in = root().join(CHECKED_IN);
    let mut differences = Vec::new();
    let names = PROGRAMS.iter().chain(OBJECTS).map(|(name, _)| *name);
    for name in names {
        let object = format!("{name}.o");
        let read = |folder: &Path| fs::read(folder.join(&object)).unwrap_or_default();
        if instructions(&read(&checked_in)) != instructions(&read(rebuilt)) {
            differences.push(object);
        }
    }
    for (name, _) in PROGRAMS {
        let skeleton = format!("{name}.skel.rs");
        let read = |folder: &Path| fs::read_to_string(folder.join(&skeleton)).unwrap_or_default();
        if read(&checked_in) != read(rebuilt) {
            differences.push(skeleton);
        }
    }
    differences
}

/// Instructions and relocations of each section that holds a program. Empty for a file that is no object.
fn instructions(file: &[u8]) -> BTreeMap<String, (Vec<u8>, Vec<u8>)> {
    let Ok(parsed) = ElfFile64::<Endianness>::parse(file) else {
        return BTreeMap::new();
    };
    let executable = |flags: SectionFlags| match flags {
        SectionFlags::Elf { sh_flags, .. } => sh_flags.0 & elf::SHF_EXECINSTR.0 != 0,
        _ => false,
    };
    let mut found = BTreeMap::new();
    for section in parsed.sections().filter(|section| executable(section.flags())) {
        let name = section.name().expect("section name").to_owned();
        let data = section.data().expect("section data").to_vec();
        let relocations = parsed
            .section_by_name(&format!(".rel{name}"))
            .map(|section| section.data().expect("relocations").to_vec())
            .unwrap_or_default();
        found.insert(name, (data, relocations));
    }
    found
}
