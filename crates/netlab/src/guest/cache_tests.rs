use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        Self(std::env::temp_dir().join(name::unique("cache").unwrap()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn an_entry_is_made_once_by_whoever_is_first() {
    let folder = Folder::new();
    let made = AtomicU32::new(0);
    let fetch = || {
        let entry = Cache::at(&folder.0).entry("kernel", |path| {
            made.fetch_add(1, Ordering::Relaxed);
            fs::write(path.join("vmlinuz"), "x").unwrap();
            Ok(())
        });
        assert_eq!(fs::read_to_string(entry.unwrap().join("vmlinuz")).unwrap(), "x");
    };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(fetch);
        }
    });
    assert_eq!(made.into_inner(), 1);
}

#[test]
fn what_could_not_be_made_leaves_nothing_and_is_tried_again() {
    let folder = Folder::new();
    let cache = Cache::at(&folder.0);
    let half = |path: &Path| {
        fs::write(path.join("half"), "").unwrap();
        Err(prepare("fetch", "it", "the server is away"))
    };
    assert!(
        cache
            .entry("kernel", half)
            .unwrap_err()
            .to_string()
            .contains("the server is away")
    );
    let left: Vec<_> = fs::read_dir(&folder.0)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["lock"]);
    assert!(cache.entry("kernel", |_| Ok(())).unwrap().exists());
}

#[test]
fn what_a_killed_process_left_is_removed() {
    let folder = Folder::new();
    // No process has a number that large.
    let left = folder.0.join("rs-4194999-abc-0-fetch");
    fs::create_dir_all(left.join("usr")).unwrap();
    Cache::at(&folder.0).entry("kernel", |_| Ok(())).unwrap();
    assert!(!left.exists());
}

#[test]
fn a_damaged_entry_is_removed() {
    let folder = Folder::new();
    let cache = Cache::at(&folder.0);
    let files = ["vmlinuz", "modules/a.ko"];
    let make = |path: &Path| {
        fs::create_dir(path.join("modules")).unwrap();
        for file in files {
            fs::write(path.join(file), file).unwrap();
        }
        Ok(())
    };
    let damages: [fn(&Path); 4] = [
        |file| fs::write(file, "other").unwrap(),
        |file| fs::remove_file(file).unwrap(),
        |file| File::options().append(true).open(file).unwrap().set_len(1).unwrap(),
        |file| fs::remove_file(file.ancestors().find_map(digests_in).unwrap()).unwrap(),
    ];
    for damage in damages {
        for file in files {
            let entry = cache.entry("kernel", make).unwrap();
            cache.remove_damaged("kernel").unwrap();
            assert!(entry.exists(), "a sound entry stays");
            damage(&entry.join(file));
            cache.remove_damaged("kernel").unwrap();
            assert!(!entry.exists(), "{file}");
        }
    }
    cache.remove_damaged("never-fetched").unwrap();
}

fn digests_in(folder: &Path) -> Option<PathBuf> {
    Some(folder.join(DIGESTS)).filter(|file| file.exists())
}
