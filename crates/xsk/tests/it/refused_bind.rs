//! A queue that the kernel does not bind although it has bound those before: the reports name it.
//!
//! No virtual device does so. A seccomp filter hands each `bind()` of the thread that opens the
//! port to another one, which refuses some and lets the kernel do the others.

use std::cell::Cell;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc;
use std::thread;

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W};
use libc::{seccomp_notif, seccomp_notif_resp, sock_filter, sock_fprog, sockaddr_xdp};

use super::common::lab;
use ringside_netlab::testing::is_root;
use ringside_xsk::{Path, Port};

/// Installs a filter on this thread. Returns the descriptor at which another one gets its calls of
/// `bind()`.
fn intercept_bind() -> OwnedFd {
    let instruction = |code: u32, jf: u8, k: u32| sock_filter {
        code: u16::try_from(code).expect("16 bits"),
        jt: 0,
        jf,
        k,
    };
    let bind = u32::try_from(libc::SYS_bind).expect("a small number");
    let mut filter = [
        // The number of the system call is the first word of `struct seccomp_data`.
        instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0),
        instruction(BPF_JMP | BPF_JEQ | BPF_K, 1, bind),
        instruction(BPF_RET | BPF_K, 0, libc::SECCOMP_RET_USER_NOTIF),
        instruction(BPF_RET | BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = sock_fprog {
        len: u16::try_from(filter.len()).expect("four"),
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: `program` leads to four instructions; the kernel copies both.
    let listener = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    assert!(listener >= 0, "seccomp(): {}", io::Error::last_os_error());
    // SAFETY: a new descriptor that nobody else has.
    unsafe { OwnedFd::from_raw_fd(i32::try_from(listener).expect("a descriptor")) }
}

/// Answers with `EOPNOTSUPP` to each `bind()` of an XDP socket that is to be refused, until the
/// thread with the filter has ended.
fn refuse(listener: &OwnedFd, is_refused: impl Fn(&sockaddr_xdp) -> bool) {
    let fd = listener.as_raw_fd();
    loop {
        let mut ready = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry, which is valid.
        assert_eq!(unsafe { libc::poll(&raw mut ready, 1, -1) }, 1);
        if ready.revents & libc::POLLIN == 0 {
            return;
        }
        // SAFETY: numbers, of which all may be zero; the kernel demands that they are.
        let mut call: seccomp_notif = unsafe { mem::zeroed() };
        // SAFETY: `call` is a valid place for what the kernel writes.
        let got = unsafe { libc::ioctl(fd, libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call) };
        assert_eq!(got, 0, "{}", io::Error::last_os_error());
        let [_, address, length, ..] = call.data.args;
        let fits = length == mem::size_of::<sockaddr_xdp>() as u64;
        // SAFETY: the argument of a thread of this process, which waits in the call meanwhile.
        let address = fits.then(|| unsafe { &*(address as *const sockaddr_xdp) });
        let refused = address.is_some_and(|address| {
            let is_xdp = i32::from(address.sxdp_family) == libc::AF_XDP;
            is_xdp && is_refused(address)
        });
        let answer = seccomp_notif_resp {
            id: call.id,
            val: 0,
            error: if refused { -libc::EOPNOTSUPP } else { 0 },
            flags: match refused {
                true => 0,
                false => u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).expect("a flag"),
            },
        };
        // SAFETY: `answer` is a valid answer to this call.
        let sent = unsafe { libc::ioctl(fd, libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const answer) };
        assert_eq!(sent, 0, "{}", io::Error::last_os_error());
    }
}

#[test]
fn a_refused_queue_behind_the_first_one_is_named() {
    if !is_root() {
        return;
    }
    let lab = lab("refused-bind", 3);
    let reports = lab.b.run(|| {
        thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let interface = lab.b.interface.clone();
            let opener = scope.spawn(move || {
                tell.send(intercept_bind()).expect("the other thread waits");
                let port = Port::builder(interface).open().expect("opens");
                port.report().queues.clone()
            });
            // The first step that gets as far as queue 1 is native copy.
            let refused = Cell::new(false);
            refuse(&told.recv().expect("the filter"), |address| {
                address.sxdp_queue_id == 1 && !refused.replace(true)
            });
            opener.join().expect("no panic")
        })
    });
    assert_eq!(reports.len(), 3);
    for report in reports {
        assert_eq!(report.path, Path::Generic, "{report:?}");
        let [zero_copy, native] = &report.refused_modes[..] else {
            panic!("{report:?}");
        };
        assert!(
            zero_copy.starts_with("zero-copy refused: bind() answered "),
            "{zero_copy}"
        );
        let named = "native copy refused: bind() of queue 1 answered Operation not supported";
        assert!(native.starts_with(named), "{native}");
    }
}
