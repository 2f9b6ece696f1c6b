//! Changes are put back in order: on drop, on panic, and whoever else changes the same.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use crate::common::{Bed, assert_restored, deferral, outcomes};
use ringside_netlab::testing;
use ringside_nic::changes::{Outcome, Protection};
use ringside_nic::{Error, NapiSetting};

#[test]
fn everything_is_as_it_was_after_a_drop() {
    if !testing::is_root() {
        return;
    }
    let bed = Bed::new("chdrop");
    // One instance has a value of its own, which the interface's overwrites.
    bed.run(|interface| {
        let newest = interface.napis().unwrap()[0].id;
        interface.set_napi(newest, &[NapiSetting::DeferHardIrqs(5)]).unwrap();
    });
    let all = || bed.run(|interface| (interface.napi().unwrap(), interface.napis().unwrap()));
    let before = all();
    assert_eq!(bed.polls(), (0, vec![5, 0]));

    let undo = bed.defer(3);
    assert_eq!(bed.polls(), (3, vec![3, 3]));
    let [file] = bed.files().try_into().unwrap();
    assert_eq!(*undo.protection(), Protection::StateFile(file.clone()));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&file), mode(&bed.directory)), (0o600, 0o755));
    let changes = undo.changes();
    assert_eq!(changes.len(), 8, "two of the interface, three of each instance");
    let last = changes.last().unwrap().to_string();
    assert_eq!(last, "veth-a: gro_flush_timeout (0 → 3000)");
    // Here it is dropped in another network namespace than the one it belongs to.
    drop(undo);
    assert_eq!(all(), before);
    assert!(bed.files().is_empty(), "nothing is left to be written down");

    let undo = bed.run(|interface| {
        let id = interface.napis().unwrap()[0].id;
        bed.changes.set_napi(interface, id, &[NapiSetting::DeferHardIrqs(6)])
    });
    let undo = undo.unwrap();
    assert_eq!(bed.polls(), (0, vec![6, 0]));
    let restored = undo.restore();
    assert_restored(&restored);
    assert!(
        restored[0].to_string().ends_with("(5 → 6): restored"),
        "{}",
        restored[0]
    );
    assert_eq!(all(), before);
}

#[test]
fn everything_is_as_it_was_after_a_panic() {
    if !testing::is_root() {
        return;
    }
    let bed = Bed::new("chpanic");
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _undo = bed.defer(3);
        assert_eq!(bed.polls().0, 3);
        std::panic::resume_unwind(Box::new("on purpose"));
    }));
    assert!(panicked.is_err());
    assert_eq!(bed.polls(), (0, vec![0, 0]));
    assert!(bed.files().is_empty());
}

#[test]
fn guards_of_one_process_end_in_any_order() {
    if !testing::is_root() {
        return;
    }
    let bed = Bed::new("chnest");
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1]] {
        // The last value is one that is there already.
        let mut guards = [3, 4, 4].map(|polls| Some(bed.defer(polls)));
        for n in order {
            drop(guards[n].take());
        }
        assert_eq!(bed.polls(), (0, vec![0, 0]), "{order:?}");
    }
    // An instance's and the interface's.
    let one = |polls| {
        bed.run(|interface| {
            let id = interface.napis().unwrap()[0].id;
            let settings = [NapiSetting::DeferHardIrqs(polls)];
            bed.changes.set_napi(interface, id, &settings).unwrap()
        })
    };
    for instance_first in [true, false] {
        for instance_ends_first in [true, false] {
            let (instance, whole) = if instance_first {
                let instance = one(5);
                (instance, bed.defer(3))
            } else {
                let whole = bed.defer(3);
                (one(5), whole)
            };
            let which = format!("{instance_first} {instance_ends_first}");
            if instance_ends_first {
                drop(instance);
                assert_eq!(bed.polls(), (3, vec![3, 3]), "{which}");
                drop(whole);
            } else {
                drop(whole);
                assert_eq!(bed.polls(), (0, vec![5, 0]), "{which}");
                drop(instance);
            }
            assert_eq!(bed.polls(), (0, vec![0, 0]), "{which}");
        }
    }
}

#[test]
fn what_somebody_else_changed_is_left_alone() {
    if !testing::is_root() {
        return;
    }
    let bed = Bed::new("chelse");
    let undo = bed.defer(3);
    bed.run(|interface| interface.set_napi_defer_hard_irqs(9)).unwrap();
    let restored = undo.restore();
    let polls: Vec<_> = restored
        .iter()
        .filter(|one| one.change.what.contains("defer"))
        .collect();
    assert_eq!(polls.len(), 3);
    let now = || Outcome::ChangedSince { now: "9".to_owned() };
    assert!(polls.iter().all(|one| one.outcome == now()), "{polls:?}");
    assert!(
        polls[0].to_string().ends_with("somebody has set it to 9"),
        "{}",
        polls[0]
    );
    assert_eq!(bed.polls(), (9, vec![9, 9]));
    let others: Vec<_> = restored
        .iter()
        .filter(|one| !one.change.what.contains("defer"))
        .cloned()
        .collect();
    assert_restored(&others);
    assert!(bed.files().is_empty());

    // Between two of ours: what the second has seen is what it restores.
    let first = bed.defer(3);
    bed.run(|interface| interface.set_napi_defer_hard_irqs(4)).unwrap();
    let second = bed.defer(5);
    drop(first);
    assert_eq!(bed.polls(), (5, vec![5, 5]));
    drop(second);
    assert_eq!(bed.polls(), (4, vec![4, 4]));

    // Somebody else may also have put it back.
    let undo = bed.defer(3);
    bed.run(|interface| interface.set_napi_defer_hard_irqs(4)).unwrap();
    let restored = undo.restore();
    assert!(outcomes(&restored).contains(&&Outcome::AsBefore), "{restored:?}");
    assert_eq!(bed.polls(), (4, vec![4, 4]));
}

#[test]
fn threads_and_their_cpus_are_put_back() {
    if !testing::is_root() {
        return;
    }
    let bed = Bed::new("chthread");
    let threads = || bed.run(|interface| interface.napi_threads()).unwrap();
    let threaded = bed
        .run(|interface| bed.changes.set_napi_threaded(interface, true))
        .unwrap();
    let before = threads();
    assert_eq!(before.len(), 2);
    let (pinned, undo) = bed
        .run(|interface| bed.changes.pin_napi_threads(interface, &[0]))
        .unwrap();
    assert_eq!(pinned.len(), 2);
    assert!(pinned.iter().all(|thread| thread.cpus == [0]), "{pinned:?}");
    let restored = undo.restore();
    assert_restored(&restored);
    assert_eq!(threads(), before);
    assert_restored(&threaded.restore());
    assert_eq!(threads(), []);
    // The threads end first here: their CPUs need nothing any more.
    let threaded = bed
        .run(|interface| bed.changes.set_napi_threaded(interface, true))
        .unwrap();
    let (_, undo) = bed
        .run(|interface| bed.changes.pin_napi_threads(interface, &[0]))
        .unwrap();
    drop(threaded);
    let restored = undo.restore();
    assert_eq!(outcomes(&restored), [&Outcome::Gone; 2]);
}

#[test]
fn without_a_directory_changes_are_made_and_put_back_all_the_same() {
    if !testing::is_root() {
        return;
    }
    let bed = Bed::new("chnodir");
    fs::write(&bed.directory, "a file").unwrap();
    let first = bed.defer(3);
    let Protection::None { reason } = first.protection() else {
        panic!("{:?}", first.protection())
    };
    assert!(reason.contains("ringside-chnodir"), "{reason}");
    let second = bed.defer(4);
    assert_eq!(bed.polls(), (4, vec![4, 4]));
    let handed = first.restore();
    let own = Outcome::HandedOver {
        pid: std::process::id(),
    };
    assert_eq!(handed[0].outcome, own);
    drop(second);
    assert_eq!(bed.polls(), (0, vec![0, 0]));
    fs::remove_file(&bed.directory).unwrap();

    // A directory that others may write to is not used, and one that goes later is no harm.
    fs::create_dir(&bed.directory).unwrap();
    fs::set_permissions(&bed.directory, fs::Permissions::from_mode(0o777)).unwrap();
    let undo = bed.defer(3);
    assert!(matches!(undo.protection(), Protection::None { .. }));
    drop(undo);
    fs::set_permissions(&bed.directory, fs::Permissions::from_mode(0o755)).unwrap();
    let undo = bed.defer(3);
    assert!(matches!(undo.protection(), Protection::StateFile(_)));
    fs::remove_dir_all(&bed.directory).unwrap();
    assert_restored(&undo.restore());
    assert_eq!(bed.polls(), (0, vec![0, 0]));
    assert!(bed.files().is_empty());
}

#[test]
fn a_change_that_fails_leaves_nothing() {
    if !testing::is_root() {
        return;
    }
    let bed = Bed::new("chfail");
    // The kernel's limit: the first value is set by then, the second is refused.
    let error = bed
        .run(|interface| {
            let id = interface.napis().unwrap()[0].id;
            let settings = [
                NapiSetting::IrqSuspendTimeout(Duration::from_secs(1)),
                NapiSetting::DeferHardIrqs(u32::MAX),
            ];
            bed.changes.set_napi(interface, id, &settings)
        })
        .unwrap_err();
    assert_eq!(error.errno(), Some(libc::ERANGE), "{error}");
    let suspended = bed.run(|interface| interface.napis()).unwrap();
    assert!(
        suspended
            .iter()
            .all(|napi| napi.irq_suspend_timeout == Some(Duration::ZERO)),
        "{suspended:?}"
    );
    assert_eq!(bed.polls(), (0, vec![0, 0]));
    assert!(bed.files().is_empty());
    let error = bed
        .run(|interface| bed.changes.set_deferral(interface, &[7], deferral(1)))
        .unwrap_err();
    assert!(matches!(error, Error::UnknownQueue { queue: 7, .. }), "{error}");
}
