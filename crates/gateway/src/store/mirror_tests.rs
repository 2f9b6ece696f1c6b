use ringside_gateway_core::table::Host;
use ringside_gateway_core::{TenantAddress, Vni};
use ringside_wire::MacAddr;

use super::*;
use crate::object::Object as _;

fn folder(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("ringside-mirror-{name}-{}", std::process::id()));
    _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    folder
}

fn neighbor(low: u8, version: u64) -> Neighbor {
    Neighbor {
        address: TenantAddress::new(Vni::new(1).unwrap(), [10, 0, 0, low].into()),
        mac: MacAddr::ZERO,
        host: Host::at([192, 0, 2, 1].into()),
        version,
    }
}

fn put(low: u8, version: u64) -> Change {
    Neighbor::into_change(Statement::Put(neighbor(low, version)))
}

fn mark(revision: Option<u64>) -> Mark {
    Mark {
        cluster: u64::MAX - 1,
        fleet: FleetName::read(b"this one"),
        revision,
        has_unread: false,
    }
}

#[test]
fn it_holds_what_it_is_told_whatever_the_versions() {
    let folder = folder("versions");
    let path = folder.join("store.db");
    let mut store = Store::open_mirror(&path).unwrap();
    assert_eq!(store.mark().unwrap(), None);
    let first = [Made::Said(put(1, 5), 0), Made::Said(put(2, 5), 0)];
    store.mirror(&first, Some(&mark(Some(7)))).unwrap();
    let Change::Neighbor(gone) = put(2, 5) else {
        unreachable!()
    };
    let forgotten = Made::Forgotten(Neighbor::into_change(Statement::Delete(gone.key(), 5)), true);
    store
        .mirror(&[Made::Said(put(1, 3), 0), forgotten], Some(&mark(None)))
        .unwrap();
    assert_eq!(store.mark().unwrap(), Some(mark(None)));
    let page = store
        .reader()
        .unwrap()
        .list::<Neighbor>(&crate::store::Filter::default(), None, 10)
        .unwrap();
    assert_eq!(page.objects, [neighbor(1, 3)]);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_mirror_is_not_taken_for_the_truth_nor_the_truth_for_a_mirror() {
    let folder = folder("roles");
    let (mirror, truth) = (folder.join("mirror.db"), folder.join("truth.db"));
    let mut store = Store::open_mirror(&mirror).unwrap();
    store.mirror(&[], Some(&mark(Some(7)))).unwrap();
    drop(store);
    let refused = Store::open(&mirror).unwrap_err();
    assert!(matches!(refused, StoreError::OfFleet { .. }), "{refused}");
    let mut store = Store::open(&truth).unwrap();
    store.commit([put(1, 1)].iter(), 0).unwrap();
    drop(store);
    let refused = Store::open_mirror(&truth).unwrap_err();
    assert!(matches!(refused, StoreError::NotOfFleet { .. }), "{refused}");
    // And when it is said that it is now.
    let mut store = Store::open(&truth).unwrap();
    store.set_mark(Some(&mark(Some(3)))).unwrap();
    drop(store);
    assert_eq!(Store::open_mirror(&truth).unwrap().mark().unwrap(), Some(mark(Some(3))));
    std::fs::remove_dir_all(folder).unwrap();
}
