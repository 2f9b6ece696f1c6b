//! A child of `fork()` has copies of all that its parent opened, and takes nothing away from it.

use std::time::Instant;

use ringside_netlab::testing::is_root;
use ringside_xsk::{Error, Interface, Mode, Path, Port, Wait};

use super::common::child::{again, said};
use super::common::flow::{Flow, lanes};
use super::common::{PATIENCE, lab};

/// What the process does: its child tries to receive and drops the port, it itself receives after
/// that.
pub(super) fn play(interface: Interface) {
    let port = Port::builder(interface)
        .queues([0])
        .mode(Mode::Require(Path::NativeCopy));
    let mut port = port.open().expect("opens");
    // SAFETY: the child calls only what works after fork(): this process has no lock held by
    // another thread that it needs, since glibc takes care of the heap's.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            // Found out in debug builds alone.
            let queue = port.queues_mut().next().expect("a queue");
            let refused = !cfg!(debug_assertions)
                || matches!(queue.recv(Wait::Spin), Err(Error::Forked { .. })) && queue.alloc().is_none();
            drop(port);
            // SAFETY: ends the child without what the test harness does at the end.
            unsafe { libc::_exit(i32::from(!refused)) }
        }
        child => {
            let mut status = 0;
            // SAFETY: `status` is a valid place for a number.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the child was not refused");
        }
    }
    let (queue, start, mut received) = (port.queues_mut().next().expect("a queue"), Instant::now(), 0);
    while received < 100 {
        assert!(
            start.elapsed() < PATIENCE,
            "only {received} packets come after the child has ended"
        );
        received += queue
            .recv(Wait::Poll(PATIENCE))
            .expect("the parent can use it")
            .iter_mut()
            .count();
    }
    println!("says: received");
}

#[test]
fn a_forked_child_that_drops_its_port_leaves_it_to_the_parent() {
    if !is_root() {
        return;
    }
    let lab = lab("fork", 1);
    let flow = Flow::start(&lab.a, &lab.b, &lanes(Path::NativeCopy, 1), 500);
    assert_eq!(said(&mut again(&lab, "fork")), "received");
    flow.stop();
}
