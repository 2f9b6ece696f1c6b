//! The audit finds what it is there for.

use std::sync::Arc;

use super::book::Owner;
use super::pool::Pool;
use super::{Geometry, Region, Umem};
use crate::error::Violation;

fn pool() -> (Arc<Umem>, Pool) {
    let geometry = Geometry::new(2048, 8, 0, false).expect("valid");
    let umem = Umem::new(Region::map(geometry.bytes(), false).expect("memory"), geometry, None);
    let pool = Pool::new(Arc::clone(&umem), 8).expect("its first pool");
    (umem, pool)
}

fn place(result: Result<(), Violation>) -> &'static str {
    match result {
        Err(Violation::Ledger { place, .. }) => place,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_sound_pool_passes() {
    let (umem, mut pool) = pool();
    let held = pool.take_buf().unwrap();
    pool.lend_one();
    umem.give_back(pool.take().unwrap());
    assert_eq!(pool.audit_all(), Ok(()));
    assert_eq!((0..4).map(|nth| pool.audit_sample(nth)).find(Result::is_err), None);
    assert_eq!(pool.elsewhere(), Ok(1), "{}", held.len);
}

#[test]
fn a_frame_that_is_free_twice_is_found() {
    let (_umem, mut pool) = pool();
    let frame = pool.take().unwrap();
    pool.put(frame);
    pool.put(frame);
    assert_eq!(place(pool.audit_all()), "free twice");
    assert_eq!(place(pool.elsewhere().map(drop)), "free or with the kernel", "9 of 8");
    assert_eq!(pool.take(), Some(frame), "so that it can be closed");
}

#[test]
fn a_frame_that_is_free_and_lent_is_found() {
    let (umem, mut pool) = pool();
    let frame = pool.take().unwrap();
    pool.put(frame);
    umem.book().set(frame, Owner::Fill(pool.pair()));
    assert_eq!(place(pool.audit_sample(0)), "free and with the kernel at once");
    assert_eq!(place(pool.audit_all()), "free and with the kernel at once");
    pool.zero_copy(); // It takes back nothing when it is closed.
}

#[test]
fn counts_that_are_not_those_of_the_book_are_found() {
    let (umem, mut pool) = pool();
    let frame = pool.take().unwrap();
    pool.lend_one();
    umem.book().set(frame, Owner::Fill(pool.pair()));
    assert_eq!(place(pool.audit_all()), "received into, by the book");
    umem.book().set(frame, Owner::Tx(pool.pair()));
    assert_eq!(place(pool.audit_all()), "sent, by the book");
}
