use ringside_netlab::testing::is_root;

use super::*;

#[test]
fn an_answer_tells_yes_no_or_why_not() {
    let call = Call::plain("bind()", &[Errno::INVAL]);
    assert_eq!(call.judge(Ok(7)), Ok(7));
    assert_eq!(call.judge::<()>(Err(Errno::INVAL)), Err(Support::No));
    for errno in [Errno::NETDOWN, Errno::PERM, Errno::NOBUFS] {
        let Err(Support::Unknown(reason)) = call.judge::<()>(Err(errno)) else {
            panic!("{errno}: it says nothing about the feature");
        };
        assert!(reason.starts_with("bind() was refused: "), "{reason}");
    }
}

/// What a kernel without them would answer to the tries: here asked in such a way that no kernel has it.
#[test]
fn what_the_kernel_does_not_know_is_not_there() {
    if !is_root() {
        return;
    }
    let umem = Umem::new().unwrap();
    let refused = |chunk_size, flags, len| {
        let flags = XdpUmemRegFlags::from_bits_retain(flags);
        assert_eq!(
            umem.register(chunk_size, flags, len).err(),
            Some(Support::No),
            "{flags:?}"
        );
    };
    // A flag that means nothing.
    refused(ALIGNED, 1 << 31, 0);
    // Chunks that are not aligned, without the flag: a kernel that takes no notice of it says no.
    refused(3000, 0, 0);
    // Length of TX metadata with its flag: the kernel looks at it.
    refused(ALIGNED, 1 << 2, METADATA_LEN + 1);

    let refused = |flags| LOAD.judge(sys::load_pass(flags, 0)).err();
    assert_eq!(refused(1 << 30), Some(Support::No));
    let (_, name) = sys::program_info(program().unwrap().as_fd()).unwrap();
    assert_eq!(name, "ringside_probe", "what an administrator sees meanwhile");
}
