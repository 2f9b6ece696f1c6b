use std::os::unix::fs::MetadataExt as _;

use super::*;
use crate::changes::record::{Owner, Place, Record};
use crate::namespace::NamespaceId;
use crate::setting::{InterfaceFile, Setting};
use std::os::unix::fs::PermissionsExt as _;

/// A directory that is removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(tag: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ringside-store-{}-{tag}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn sheet() -> Sheet {
    let record = Record {
        order: 1,
        place: Place {
            namespace: NamespaceId::current().unwrap(),
            index: 1,
            interface: "lo".to_owned(),
        },
        setting: Setting::InterfaceFile {
            file: InterfaceFile::GroFlushTimeout,
        },
        before: "0".to_owned(),
        after: "9".to_owned(),
        abandoned: false,
        kept: false,
    };
    Sheet {
        version: VERSION,
        owner: Owner::this().unwrap(),
        records: vec![record],
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn a_sheet_is_kept_for_its_owner_alone_and_removed_when_empty() {
    let directory = Directory::new("modes");
    let store = Store::open(&directory.0.join("below")).unwrap();
    let mut sheet = sheet();
    store.save(&sheet).unwrap();
    let path = store.path(&sheet);
    assert_eq!((mode(&directory.0.join("below")), mode(&path)), (0o755, 0o600));
    assert_eq!(store.load().unwrap().0, [sheet.clone()]);
    sheet.records.clear();
    store.save(&sheet).unwrap();
    assert!(!path.exists());
    store.save(&sheet).unwrap();
    let left: Vec<_> = fs::read_dir(directory.0.join("below"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["lock"]);
}

#[test]
fn the_lock_keeps_others_out_until_it_is_dropped() {
    let directory = Directory::new("lock");
    let first = Store::open(&directory.0).unwrap();
    let path = directory.0.clone();
    let (entered, waiting) = std::sync::mpsc::channel();
    let second = thread::spawn(move || {
        let second = Store::open(&path).unwrap();
        entered.send(()).unwrap();
        drop(second);
    });
    assert!(waiting.recv_timeout(Duration::from_millis(100)).is_err());
    drop(first);
    waiting.recv_timeout(Duration::from_secs(5)).unwrap();
    second.join().unwrap();
}

#[test]
fn a_directory_that_others_may_write_to_is_not_used() {
    let directory = Directory::new("open");
    fs::create_dir(&directory.0).unwrap();
    for mode in [0o777, 0o775, 0o1777] {
        fs::set_permissions(&directory.0, fs::Permissions::from_mode(mode)).unwrap();
        let error = Store::open(&directory.0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{mode:o}");
    }
    fs::set_permissions(&directory.0, fs::Permissions::from_mode(0o700)).unwrap();
    assert!(Store::open(&directory.0).is_ok());
}

#[test]
fn files_that_are_not_understood_are_named_and_others_ignored() {
    let directory = Directory::new("strange");
    let store = Store::open(&directory.0).unwrap();
    let mut newer = sheet();
    newer.version = VERSION + 1;
    store.save(&newer).unwrap();
    let own = newer.owner.file_name();
    for (name, content) in [
        ("changes-77-88.json", "{"),
        ("changes-77.json", "{}"),
        ("changes-a-b.json", "{}"),
        ("new", "half a file"),
    ] {
        fs::write(directory.0.join(name), content).unwrap();
    }
    let (sheets, mut unreadable) = store.load().unwrap();
    assert_eq!(sheets, []);
    unreadable.sort_by_key(|file| file.pid != 77);
    let [cut, version] = unreadable.as_slice() else {
        panic!("{unreadable:?}")
    };
    assert_eq!((cut.pid, cut.start), (77, 88));
    assert!(
        version.path.ends_with(own) && version.problem.contains("version 2"),
        "{version:?}"
    );
    assert_eq!(state_files(&directory.0.join("none")).unwrap(), []);
}
