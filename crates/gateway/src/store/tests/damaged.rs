//! Files with damaged pages: what is salvaged, what is noted, and kills in the middle of it.

use std::cell::RefCell;
use std::rc::Rc;

use super::*;
use crate::fleet::FleetName;
use crate::fleet::sync::Mark;
use crate::store::salvage::AT_STEP;

const PAGE: usize = 4096;
/// So many that its table has pages below its root.
const PORTS: u32 = 2000;

fn port(number: u32) -> Change {
    put(Port {
        address: address(number),
        groups: (0..6).map(|group| GroupId(100_000 + number * 10 + group)).collect(),
        version: 3,
    })
}

/// Groups, ports and neighbours.
fn everything() -> Vec<Change> {
    let neighbors = (0..PORTS).map(|number| put(neighbor(number, 1)));
    (0..40)
        .map(|id| put(group(id, 2)))
        .chain((0..PORTS).map(port))
        .chain(neighbors)
        .collect()
}

fn fill(path: &Path) {
    let mut store = Store::open(path).unwrap();
    store.commit(everything().iter(), 1).unwrap();
}

/// Where the page is that holds this text.
fn page_with(bytes: &[u8], text: &str) -> usize {
    let found = bytes.windows(text.len()).position(|window| window == text.as_bytes());
    found.unwrap_or_else(|| panic!("{text} is nowhere")) / PAGE * PAGE
}

/// The page with a port in the middle of its table.
fn page_of_ports(bytes: &[u8]) -> usize {
    page_with(bytes, &(100_000 + PORTS / 2 * 10).to_string())
}

fn root(path: &Path, table: &str) -> usize {
    let file = Connection::open(path).unwrap();
    let query = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let page: u32 = file.query_row(query, [table], |row| row.get(0)).unwrap();
    (page as usize - 1) * PAGE
}

fn change_bytes(path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, &bytes).unwrap();
    bytes
}

fn overwrite(path: &Path, page: usize) -> Vec<u8> {
    change_bytes(path, |bytes| bytes[page..page + PAGE].fill(0xa5))
}

fn count<O: Object>(changes: &[Change]) -> usize {
    changes.iter().filter(|change| O::of(change).is_some()).count()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn ports_that_are_lost_with_their_pages_are_noted_until_somebody_says_that_they_are_there() {
    let folder = Folder::new();
    fill(&folder.store());
    let bytes = std::fs::read(folder.store()).unwrap();
    overwrite(&folder.store(), page_of_ports(&bytes));
    let (all, _, problems) = load(&folder.store());
    assert_eq!(count::<Neighbor>(&all), PORTS as usize);
    let ports = count::<Port>(&all);
    assert!(ports > 100 && ports < PORTS as usize, "{ports}");
    assert!(problems.concat().contains("ports above all"), "{problems:?}");
    // Another damage does not make it forgotten, and is noted, too.
    for _ in 0..2 {
        assert!(may_lack_ports(&folder.store()));
    }
    let neighbors = root(&folder.store(), "neighbors");
    overwrite(&folder.store(), neighbors);
    assert!(may_lack_ports(&folder.store()));
    assert_eq!(load(&folder.store()).2.len(), 2);
    Store::open(&folder.store()).unwrap().repaired().unwrap();
    assert!(!may_lack_ports(&folder.store()) && load(&folder.store()).2.is_empty());
}

/// A page that says that it has a row less is read to its end without an error.
#[test]
fn a_page_that_hides_a_port_is_found_out() {
    let folder = Folder::new();
    fill(&folder.store());
    change_bytes(&folder.store(), |bytes| {
        let page = page_of_ports(bytes);
        let rows = u16::from_be_bytes([bytes[page + 3], bytes[page + 4]]);
        bytes[page + 3..page + 5].copy_from_slice(&(rows - 1).to_be_bytes());
    });
    let (all, loaded, _) = load(&folder.store());
    assert_eq!((count::<Port>(&all), loaded.quarantined), (PORTS as usize - 1, 0));
    assert!(may_lack_ports(&folder.store()));
}

#[test]
fn what_is_noted_cannot_be_lost_with_the_page_that_it_is_on() {
    let folder = Folder::new();
    fill(&folder.store());
    let meta = root(&folder.store(), "meta");
    overwrite(&folder.store(), meta);
    let (all, ..) = load(&folder.store());
    assert_eq!(all.len(), everything().len());
    assert!(may_lack_ports(&folder.store()), "it may have said so");
}

/// The files of a folder, with what is in them.
type Files = Vec<(String, Vec<u8>)>;

fn files(folder: &Path) -> Files {
    let all = names(folder).into_iter().filter(|name| !name.ends_with(".lock"));
    all.map(|name| (name.clone(), std::fs::read(folder.join(name)).unwrap()))
        .collect()
}

fn has(files: &Files, suffix: &str) -> bool {
    files.iter().any(|(name, _)| *name == format!("store.db{suffix}"))
}

/// What a kill leaves at each step of what is done meanwhile.
fn kills(folder: &Path, meanwhile: impl FnOnce()) -> Vec<Files> {
    let kills = Rc::new(RefCell::new(Vec::new()));
    let (seen, folder) = (Rc::clone(&kills), folder.to_owned());
    AT_STEP.set(Some(Box::new(move || seen.borrow_mut().push(files(&folder)))));
    meanwhile();
    AT_STEP.set(None);
    kills.take()
}

fn again(files: &Files) -> Folder {
    let folder = Folder::new();
    for (name, bytes) in files {
        std::fs::write(folder.0.join(name), bytes).unwrap();
    }
    folder
}

fn assert_tidy(folder: &Folder) {
    let left = names(&folder.0);
    assert!(left.iter().any(|name| name.contains(".damaged-")), "{left:?}");
    let is_left = |name: &String| name.contains(".new") || name.contains(".whole");
    assert!(!left.iter().any(is_left), "{left:?}");
}

/// At each step a kill leaves either the damaged file, whole, or the new one; and what was only in the log is never lost.
#[test]
fn a_kill_at_any_step_loses_nothing_that_could_be_read() {
    let folder = Folder::new();
    fill(&folder.store());
    let bytes = std::fs::read(folder.store()).unwrap();
    let mut store = Store::open(&folder.store()).unwrap();
    let in_the_log = put(neighbor(PORTS + 1, 1));
    store.commit(std::iter::once(&in_the_log), 1).unwrap();
    // Who looks into it keeps the log from being written back.
    let operator = Connection::open(folder.store()).unwrap();
    let look = || operator.query_row("SELECT count(*) FROM meta", [], |row| row.get::<_, i64>(0));
    assert!(look().unwrap() > 0);
    drop(store);
    overwrite(&folder.store(), page_of_ports(&bytes));

    let mut expected = Vec::new();
    let kills = kills(&folder.0, || expected = load(&folder.store()).0);
    expected.sort_by_key(|change| format!("{change:?}"));
    assert!(expected.contains(&in_the_log));
    drop(operator);

    let (mut with_log, mut partial, mut whole) = (0, 0, 0);
    for files in &kills {
        partial += u32::from(has(files, ".new"));
        whole += u32::from(has(files, ".whole"));
        with_log += u32::from(has(files, "-wal") && !has(files, ".whole"));
        let folder = again(files);
        // The second start finds a sound file.
        for _ in 0..2 {
            let (mut all, _, problems) = load(&folder.store());
            all.sort_by_key(|change| format!("{change:?}"));
            assert!(all == expected, "{} of {}: {problems:?}", all.len(), expected.len());
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(may_lack_ports(&folder.store()));
        }
        assert_tidy(&folder);
    }
    assert!(with_log > 3 && partial > 3 && whole > 1, "{with_log} {partial} {whole}");
}

/// Of a copy nothing is noted in the file, and what happened is told all the same.
#[test]
fn a_kill_at_any_step_leaves_a_copy_that_tells_what_was_wrong() {
    let folder = Folder::new();
    copy(&folder.store());
    let bytes = std::fs::read(folder.store()).unwrap();
    overwrite(&folder.store(), page_of_ports(&bytes));
    let kills = kills(&folder.0, || drop(Store::open_mirror(&folder.store()).unwrap()));
    assert!(kills.len() > 5);
    for files in &kills {
        let folder = again(files);
        let store = Store::open_mirror(&folder.store()).unwrap();
        assert_eq!(store.mark().unwrap(), Some(mark(None)));
        // At the last step it is in its place already.
        let is_done = has(files, "") && !has(files, ".new") && !has(files, ".whole");
        let problems = store.problems();
        assert!(
            is_done || problems.len() == 1 && problems[0].contains("its file was damaged"),
            "{problems:?}"
        );
        assert_tidy(&folder);
    }
    assert!(kills.iter().any(|files| has(files, ".whole")));
}

fn mark(revision: Option<u64>) -> Mark {
    Mark {
        cluster: 7,
        fleet: FleetName::read(b"this one"),
        revision,
        has_unread: false,
    }
}

fn copy(path: &Path) {
    fill(path);
    Store::open(path).unwrap().set_mark(Some(&mark(Some(9)))).unwrap();
}

#[test]
fn a_damaged_copy_stays_a_copy_and_is_read_anew() {
    let folder = Folder::new();
    copy(&folder.store());
    let bytes = std::fs::read(folder.store()).unwrap();
    let damaged = overwrite(&folder.store(), page_of_ports(&bytes));
    let refused = Store::open(&folder.store()).unwrap_err();
    assert!(matches!(refused, StoreError::OfFleet { .. }), "{refused}");
    assert_eq!(std::fs::read(folder.store()).unwrap(), damaged, "it is left alone");
    // Not only the first time.
    for is_first in [true, false] {
        let mut store = Store::open_mirror(&folder.store()).unwrap();
        assert_eq!(store.mark().unwrap(), Some(mark(None)), "everything is listed");
        let mut all = Vec::new();
        store.load(|changes, _| all.extend_from_slice(changes)).unwrap();
        assert_eq!(count::<Neighbor>(&all), PORTS as usize);
        let problems = store.problems().concat();
        assert_eq!(problems.contains("read anew from etcd"), is_first, "{problems}");
        assert!(store.missing().unwrap().is_empty() && !store.may_lack_ports().unwrap());
    }
    let refused = Store::open(&folder.store()).unwrap_err();
    assert!(matches!(refused, StoreError::OfFleet { .. }), "{refused}");
}

/// Whose state it was is on a page of its own, which may be gone, as may all of it.
#[test]
fn a_copy_that_cannot_say_of_what_begins_with_nothing() {
    for all in [false, true] {
        let folder = Folder::new();
        copy(&folder.store());
        let meta = root(&folder.store(), "meta");
        overwrite(&folder.store(), if all { 0 } else { meta });
        if !all {
            let refused = Store::open(&folder.store()).unwrap_err();
            assert!(matches!(refused, StoreError::OfFleet { .. }), "{refused}");
        }
        for _ in 0..2 {
            let mut store = Store::open_mirror(&folder.store()).unwrap();
            assert_eq!(store.mark().unwrap(), None);
            assert_eq!(store.load(|_, _| ()).unwrap(), Loaded::default());
        }
    }
}

#[test]
fn a_damaged_truth_is_not_overwritten_with_what_etcd_holds() {
    let folder = Folder::new();
    fill(&folder.store());
    let bytes = std::fs::read(folder.store()).unwrap();
    let damaged = overwrite(&folder.store(), page_of_ports(&bytes));
    let refused = Store::open_mirror(&folder.store()).unwrap_err();
    assert!(matches!(refused, StoreError::NotOfFleet { .. }), "{refused}");
    assert_eq!(std::fs::read(folder.store()).unwrap(), damaged);
    assert!(
        !names(&folder.0)
            .iter()
            .any(|name| name.contains(".new") || name.contains(".damaged"))
    );
}

/// As programs before this one made them: only `meta` says so.
#[test]
fn an_old_copy_says_what_it_is_from_its_next_start_on() {
    let folder = Folder::new();
    copy(&folder.store());
    let id = |set: Option<i64>| {
        let file = Connection::open(folder.store()).unwrap();
        set.into_iter()
            .for_each(|id| file.pragma_update(None, "application_id", id).unwrap());
        file.query_row("PRAGMA application_id", [], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    let (new, old) = (
        i64::from(u32::from_be_bytes(*b"Rinc")),
        i64::from(u32::from_be_bytes(*b"Ring")),
    );
    assert_eq!(id(None), new);
    id(Some(old));
    drop(Store::open_mirror(&folder.store()).unwrap());
    assert_eq!(id(None), new);
    // Also where somebody has taken the other note away: what it holds is listed and compared.
    let file = Connection::open(folder.store()).unwrap();
    file.execute("DELETE FROM meta WHERE name = 'fleet'", []).unwrap();
    drop(file);
    assert_eq!(Store::open_mirror(&folder.store()).unwrap().mark().unwrap(), None);
    let refused = Store::open(&folder.store()).unwrap_err();
    assert!(matches!(refused, StoreError::OfFleet { .. }), "{refused}");
    // And back, when it is the truth.
    Store::open_mirror(&folder.store()).unwrap().set_mark(None).unwrap();
    assert_eq!(id(None), old);
    drop(Store::open(&folder.store()).unwrap());
}

/// The next start, of who was killed before etcd had told anything, finds no damaged row any more: it has to know all the same.
#[test]
fn a_copy_with_a_damaged_row_is_read_anew_by_the_next_start_too() {
    let folder = Folder::new();
    copy(&folder.store());
    let file = Connection::open(folder.store()).unwrap();
    file.execute("UPDATE ports SET ip = x'0aff0000' WHERE ip = x'0a000001'", [])
        .unwrap();
    drop(file);
    for quarantined in [1, 0] {
        let mut store = Store::open_mirror(&folder.store()).unwrap();
        assert_eq!(store.load(|_, _| ()).unwrap().quarantined, quarantined);
        assert_eq!(store.mark().unwrap(), Some(mark(None)));
    }
}
