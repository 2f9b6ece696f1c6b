use std::os::fd::AsFd as _;

use super::*;
use crate::sys::{attach_queue, set_queue};

/// As QEMU does when it starts, and is killed and started again.
#[test]
fn a_queue_that_a_program_has_detached_is_attached_again() {
    if !crate::testing::is_root() {
        return;
    }
    let ns = Namespace::create("tap-queues").unwrap();
    let tap = GuestTap::create(&ns, "tap0", 2).unwrap();
    let queue = tap.queues()[1].as_fd();
    let detach = || set_queue(queue, libc::IFF_DETACH_QUEUE);
    detach().unwrap();
    assert_eq!(detach().unwrap_err().raw_os_error(), Some(libc::EINVAL));
    for _ in 0..2 {
        attach_queue(queue).unwrap();
    }
    detach().unwrap();
}
