use std::fs::File;
use std::os::fd::AsFd as _;

use super::{Request, ask};
use crate::clock::ptp::{Caps, SysOffsetExtended, SysOffsetPrecise};

/// As `printf("%#lx", PTP_…)` with the kernel's header shows them.
#[test]
fn numbers_are_the_kernels() {
    assert_eq!(Caps::NUMBER, 0x8050_3d01);
    assert_eq!(SysOffsetPrecise::NUMBER, 0xc040_3d08);
    assert_eq!(SysOffsetExtended::NUMBER, 0xc4c0_3d09);
}

#[test]
fn a_device_of_another_kind_does_not_know_the_question() {
    let null = File::open("/dev/null").unwrap();
    let error = ask(null.as_fd(), &mut Caps::default()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
}
