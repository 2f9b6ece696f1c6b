//! What C cannot bring about: a fault of the library, and more threads than are good for it.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::boundary::call;
use crate::error::{rsd_error as Code, rsd_last_error};
use crate::table::Table;

fn last_error() -> String {
    // SAFETY: a string of this thread, which calls nothing meanwhile.
    let text = unsafe { std::ffi::CStr::from_ptr(rsd_last_error()) };
    text.to_str().expect("UTF-8").to_owned()
}

#[test]
fn a_panic_becomes_a_code_and_breaks_its_handle() {
    static TABLE: Table<u32, 1> = Table::new();
    let handle: *mut u8 = TABLE.insert(7).expect("room");
    let other: *mut u8 = TABLE.insert(8).expect("room");
    let code = call(|| {
        let entered = TABLE.enter(handle)?;
        panic!("value {}", *entered);
    });
    assert_eq!(code, Code::RSD_EFAULT as i32);
    assert!(last_error().ends_with("please report it: value 7"), "{}", last_error());
    let refused = TABLE.enter(handle).err().expect("broken");
    assert_eq!(refused.code, Code::RSD_EFAULT);
    assert_eq!(*TABLE.enter(other).expect("this one is whole"), 8);
    // Having looked at it to close it, and not done so, does not mend it.
    drop(TABLE.enter_to_close(handle).expect("it can be closed"));
    assert!(TABLE.enter(handle).is_err());
    assert_eq!(*TABLE.enter_to_close(handle).expect("it can be closed").remove(), 7);
    assert_eq!(TABLE.enter(handle).err().expect("closed").code, Code::RSD_ECLOSED);
}

#[test]
fn a_value_is_one_threads_at_a_time() {
    static TABLE: Table<u32, 1> = Table::new();
    static INSIDE: AtomicU32 = AtomicU32::new(0);
    const ROUNDS: u32 = 20_000;
    let handle: usize = TABLE.insert::<u8>(0).expect("room").addr();
    let start = Barrier::new(4);
    let entered: u32 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut times = 0;
                    start.wait();
                    for _ in 0..ROUNDS {
                        match TABLE.enter(std::ptr::without_provenance::<u8>(handle)) {
                            Ok(mut value) => {
                                assert_eq!(INSIDE.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                                *value += 1;
                                times += 1;
                                INSIDE.fetch_sub(1, Ordering::SeqCst);
                            }
                            Err(failure) => assert_eq!(failure.code, Code::RSD_EBUSY),
                        }
                    }
                    times
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert!(entered >= ROUNDS / 4);
    assert_eq!(
        *TABLE.enter(std::ptr::without_provenance::<u8>(handle)).expect("idle"),
        entered
    );
}

#[test]
fn of_many_threads_that_close_a_handle_one_does() {
    static TABLE: Table<u32, 1> = Table::new();
    for _ in 0..200 {
        let handle = TABLE.insert::<u8>(1).expect("room").addr();
        let start = Barrier::new(4);
        let closed: u32 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        let entered = TABLE.enter_to_close(std::ptr::without_provenance::<u8>(handle));
                        entered.map_or(0, |entered| *entered.remove())
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!(closed, 1);
    }
}
