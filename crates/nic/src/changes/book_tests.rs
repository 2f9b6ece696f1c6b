use super::*;
use crate::changes::record::Place;
use crate::namespace::NamespaceId;
use crate::netdev::NapiField;
use crate::setting::InterfaceFile;

const FLUSH: Setting = Setting::InterfaceFile {
    file: InterfaceFile::GroFlushTimeout,
};

fn record(order: u64, setting: Setting, before: &str, after: &str) -> Record {
    Record {
        order,
        place: Place {
            namespace: NamespaceId::current().unwrap(),
            index: 4,
            interface: "eth0".to_owned(),
        },
        setting,
        before: before.to_owned(),
        after: after.to_owned(),
        abandoned: false,
        kept: false,
    }
}

/// A book of this process (`sheets[0]`), of one that is dead, and of one that is alive: our parent.
fn book(sheets: [Vec<Record>; 3]) -> Book {
    let mut book = Book::in_memory();
    let this = book.this.clone();
    let mut dead = this.clone();
    dead.start -= 1;
    let mut other = this.clone();
    other.pid = std::os::unix::process::parent_id();
    other.start = crate::process::start_time(other.pid).unwrap();
    book.sheets = [this, dead, other]
        .into_iter()
        .zip(sheets)
        .map(|(owner, records)| Sheet {
            version: VERSION,
            owner,
            records,
        })
        .collect();
    book
}

#[test]
fn the_last_of_a_chain_is_put_back_on_the_machine() {
    let chain = [
        vec![record(2, FLUSH, "2", "8")],
        vec![record(1, FLUSH, "0", "2")],
        vec![],
    ];
    let mut book = book(chain);
    let last = book.own().records.pop().unwrap();
    match book.leave(last.clone()) {
        Work::PutBack { record, spare } => assert_eq!((record, spare), (last, vec![])),
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_within_a_chain_leaves_its_value_to_the_next() {
    let chain = [
        vec![record(1, FLUSH, "0", "2"), record(3, FLUSH, "8", "9")],
        vec![],
        vec![record(2, FLUSH, "2", "8")],
    ];
    let mut book = book(chain);
    let pid = book.sheets[2].owner.pid;
    let first = book.own().records.remove(0);
    let told = book.leave(first);
    assert!(
        matches!(&told, Work::Told(_, Outcome::HandedOver { pid: next }) if *next == pid),
        "{told:?}"
    );
    assert_eq!(book.sheets[2].records[0].before, "0");
    assert_eq!(book.sheets[0].records[0].before, "8", "only the next");
}

#[test]
fn a_chain_that_does_not_meet_was_broken_by_somebody_else() {
    let mut book = book([
        vec![record(1, FLUSH, "0", "2")],
        vec![],
        vec![record(2, FLUSH, "5", "8")],
    ]);
    let first = book.own().records.remove(0);
    let told = book.leave(first);
    assert!(
        matches!(&told, Work::Told(_, Outcome::ChangedSince { now }) if now == "5"),
        "{told:?}"
    );
    assert_eq!(book.sheets[2].records[0].before, "5", "what the other has seen stays");
}

#[test]
fn other_things_and_other_places_are_other_chains() {
    let defer = Setting::InterfaceFile {
        file: InterfaceFile::NapiDeferHardIrqs,
    };
    let mut elsewhere = record(2, FLUSH, "2", "8");
    elsewhere.place.index = 5;
    let mut book = book([
        vec![record(1, FLUSH, "0", "2")],
        vec![],
        vec![elsewhere, record(3, defer, "2", "8")],
    ]);
    let first = book.own().records.remove(0);
    assert!(matches!(book.leave(first), Work::PutBack { .. }));
}

#[test]
fn instances_with_changes_of_their_own_are_spared() {
    let napi = |id, field| Setting::Napi { id, field };
    let mut book = book([
        vec![
            record(1, napi(7, NapiField::GroFlushTimeout), "0", "2"),
            record(2, napi(8, NapiField::DeferHardIrqs), "0", "2"),
            record(3, FLUSH, "0", "2"),
        ],
        vec![],
        vec![record(4, napi(9, NapiField::GroFlushTimeout), "2", "3")],
    ]);
    let whole = book.own().records.pop().unwrap();
    match book.leave(whole) {
        Work::PutBack { spare, .. } => assert_eq!(spare, [7, 9]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_left_by_the_dead_is_taken_over() {
    let mut book = book([
        vec![],
        vec![record(1, FLUSH, "0", "2"), record(2, FLUSH, "2", "5")],
        vec![record(3, FLUSH, "5", "6")],
    ]);
    // Another value than the dead's last: that of the living is kept in between.
    let added = book.add(vec![record(0, FLUSH, "6", "7")]);
    assert_eq!((added[0].before.as_str(), book.sheets[1].records.len()), ("6", 2));
    book.sheets[2].records.clear();
    let added = book.add(vec![record(0, FLUSH, "5", "9")]);
    assert_eq!(added[0].before, "0");
    assert_eq!(book.sheets[1].records, []);
    assert_eq!(book.own().records.last(), added.first());
}

#[test]
fn numbers_grow_whatever_the_clock_says() {
    let mut book = book([vec![], vec![], vec![record(u64::MAX - 5, FLUSH, "0", "2")]]);
    let added = book.add(vec![record(0, FLUSH, "2", "3"), record(0, FLUSH, "3", "4")]);
    let orders: Vec<_> = added.iter().map(|record| record.order).collect();
    assert_eq!(orders, [u64::MAX - 4, u64::MAX - 3]);
}

#[test]
fn only_those_that_ended_are_dead_and_a_restart_forgets() {
    let mut book = book([
        vec![record(1, FLUSH, "0", "1")],
        vec![record(2, FLUSH, "1", "2")],
        vec![record(3, FLUSH, "2", "3")],
    ]);
    let left = |book: &Book| {
        let left = book.left_behind().into_iter();
        left.map(|(owner, records)| (owner.start, records)).collect::<Vec<_>>()
    };
    let dead = book.sheets[1].clone();
    assert_eq!(left(&book), [(dead.owner.start, dead.records)]);
    book.sheets[1].owner.boot = "another".to_owned();
    assert_eq!(left(&book), []);
    // What a living process has given up is left behind too, and no more of it.
    let mut given_up = record(4, FLUSH, "3", "4");
    given_up.abandoned = true;
    book.sheets[2].records.push(given_up.clone());
    assert_eq!(left(&book), [(book.sheets[2].owner.start, vec![given_up])]);
    book.sheets[2].records.pop();
    book.forget_other_boots();
    assert_eq!(book.sheets[1].records, [], "its file is dropped");
    assert_eq!((book.sheets[0].records.len(), book.sheets[2].records.len()), (1, 1));
}

#[test]
fn a_process_that_changes_its_name_keeps_its_sheet() {
    let mut book = book([vec![record(1, FLUSH, "0", "2")], vec![], vec![]]);
    book.this.command.push_str(" renamed");
    book.add(vec![record(0, FLUSH, "2", "3")]);
    assert_eq!((book.sheets.len(), book.sheets[0].records.len()), (3, 2));
    assert_eq!(book.sheets[0].owner.file_name(), book.this.file_name());
}
