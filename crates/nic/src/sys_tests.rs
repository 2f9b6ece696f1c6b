use super::*;
use std::os::fd::AsFd as _;

#[test]
fn words_are_kept_at_their_offsets() {
    let mut buffer = CommandBuffer::new(7, 20).unwrap();
    buffer.set_u32(4, u32::MAX);
    buffer.set_u64(8, 0x0102_0304_0506_0708);
    assert_eq!(
        (buffer.u32_at(0), buffer.u32_at(4), buffer.u64_at(8)),
        (7, u32::MAX, 0x0102_0304_0506_0708)
    );
    assert_eq!(buffer.u32_at(buffer.bytes().len()), 0, "outside the buffer");
}

#[test]
fn the_kernel_cannot_write_past_the_buffer() {
    // ETHTOOL_GSTRINGS of the features writes every name (more than 60 of 32 bytes each, from offset 12), whatever
    // length is announced. Put the command 64 bytes in front of the guard page and let it try.
    let mut buffer = CommandBuffer::new(0, 1).unwrap();
    let shift = buffer.writable - 64;
    buffer.set_u32(shift, 0x1b);
    buffer.set_u32(shift + 4, 4);
    // SAFETY: the moved start stays inside the mapping; `late` is forgotten, so only `buffer` unmaps.
    let start = unsafe { buffer.start.add(shift) };
    let mut late = std::mem::ManuallyDrop::new(CommandBuffer {
        start,
        writable: 64,
        page: buffer.page,
    });
    let socket = ioctl_socket().unwrap();
    let error = late.run(socket.as_fd(), "lo").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
}

#[test]
fn a_name_that_is_too_long_is_never_cut_down() {
    let mut buffer = CommandBuffer::new(3, 196).unwrap();
    let error = buffer
        .run(ioctl_socket().unwrap().as_fd(), "sixteen-letters-")
        .unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
}

#[test]
fn a_grace_period_is_waited_for() {
    let waited = wait_for_grace_period();
    let is_offered = waited.as_ref().map_err(io::Error::raw_os_error);
    assert!(
        matches!(
            is_offered,
            Ok(()) | Err(Some(libc::EINVAL | libc::ENOSYS | libc::EPERM))
        ),
        "{waited:?}"
    );
}
