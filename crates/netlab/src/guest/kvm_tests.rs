use std::fs;

use super::Note;
use crate::name;

#[test]
fn a_note_holds_until_the_machine_is_started_anew() {
    let folder = std::env::temp_dir().join(name::unique("kvm").expect("a name"));
    let of = |boot: &str| Note {
        folder: folder.clone(),
        boot: boot.to_owned(),
    };
    let (before, now) = (of("0-1"), of("0-2"));
    assert!(!before.is_there());
    before.write("it hangs");
    assert!(before.is_there() && !now.is_there(), "another boot, another machine");
    assert_eq!(fs::read_to_string(before.path()).expect("written"), "it hangs");
    now.write("still");
    assert!(now.is_there() && !before.is_there(), "one is enough");
    fs::remove_dir_all(folder).expect("removed");
}
