//! For those who bring their own: XDP program, XSKMAP, socket, frame memory.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::time::Duration;

use crate::common;
use crate::common::{
    MODES, PATIENCE, assert_clean, collect, kernel_socket, lab, leading_to, open, open_once, send_numbers, send_one,
    sender, try_open, udp,
};
use ringside_bpf::{Filter, XskProgram};
use ringside_netlab::testing::is_root;
use ringside_xsk::{
    AttachMode, Direction, Error, FrameMemory, Mode, Pages, Path, Program, Queue, QueueOptions, Wait, XdpLink, XskMap,
};

fn own(fd: impl AsFd) -> OwnedFd {
    fd.as_fd().try_clone_to_owned().unwrap()
}

/// A loaded program of the caller's is attached and detached by the port, its map filled.
#[test]
fn a_program_of_the_callers() {
    if !is_root() {
        return;
    }
    let lab = lab("custom", 4);
    for path in MODES {
        let program = XskProgram::load(4, Filter::All).unwrap();
        let custom = Program::Custom {
            program: own(program.program()),
            xsks_map: own(program.xsks_map()),
        };
        let mut port = open_once(&lab.b, path, |port| port.program(custom));
        let report = port.report().program.clone().unwrap();
        assert_eq!((report.id, report.name.as_str()), (program.id(), "ringside_xsk"));
        assert_eq!(
            report.attached,
            if path == Path::Generic { "generic" } else { "native" }
        );
        assert!(port.program_counters().unwrap().is_empty(), "only of our own program");
        let mut sender = sender(&lab.a);
        let tx = sender.queues_mut().nth(leading_to(2, path)).unwrap();
        send_numbers(tx, 0..10, &lab.a, &lab.b);
        let got = collect(port.queues_mut().nth(2).unwrap(), 10, PATIENCE);
        assert!(got.into_iter().eq(0..10), "{path}");
        assert_eq!(program.counters(2).unwrap().redirected, 10);
        drop(port);
        assert_clean(&lab.b);
    }
}

/// A program that the caller has attached stays attached; the port fills the map and empties it again.
#[test]
fn a_program_that_is_attached_already() {
    if !is_root() {
        return;
    }
    let lab = lab("attached", 4);
    for (path, mode) in [
        (Path::NativeCopy, AttachMode::Native),
        (Path::Generic, AttachMode::Generic),
    ] {
        let program = XskProgram::load(4, Filter::All).unwrap();
        let link = lab
            .b
            .run(|| XdpLink::attach(program.program(), &lab.b.interface, mode))
            .unwrap();
        let attached = Program::Attached {
            xsks_map: own(program.xsks_map()),
        };
        let mut port = open_once(&lab.b, path, |port| port.program(attached).queues([1, 2]));
        let report = port.report().program.clone().unwrap();
        assert_eq!((report.id, report.attached), (program.id(), "by the caller"));
        let mut sender = sender(&lab.a);
        let tx = sender.queues_mut().nth(leading_to(1, path)).unwrap();
        send_numbers(tx, 0..10, &lab.a, &lab.b);
        assert_eq!(
            collect(port.queues_mut().next().unwrap(), 10, PATIENCE).len(),
            10,
            "{path}"
        );
        drop(port);
        // Its sockets are gone from the map, so packets go up; the program is not ours to detach.
        assert_eq!(lab.b.state().unwrap().xdp.map(|xdp| xdp.prog_id), Some(program.id()));
        let socket = kernel_socket(&lab.b, 5005);
        send_one(tx, &udp(&lab.a, &lab.b, 5005, &[3; 30]));
        assert_eq!(socket.recv(&mut [0; 64]).unwrap(), 30, "{path}");
        drop(link);
        assert_clean(&lab.b);
    }
}

/// In a map that several interfaces have, queues begin at a place of their own.
#[test]
fn queues_begin_where_they_are_told() {
    if !is_root() {
        return;
    }
    let lab = lab("place", 2);
    let program = XskProgram::load(2, Filter::All).unwrap();
    let link = lab
        .b
        .run(|| XdpLink::attach(program.program(), &lab.b.interface, AttachMode::Native))
        .unwrap();
    let from = |place, queue| {
        let attached = Program::Attached {
            xsks_map: own(program.xsks_map()),
        };
        try_open(&lab.b, Path::NativeCopy, |port| {
            port.program(attached)
                .queues([queue])
                .first_place(place)
                .options(QueueOptions::new().busy_timeout(PATIENCE))
        })
    };
    let error = from(1, 1).expect_err("places 0 and 1").to_string();
    assert!(error.contains("the map must have an entry"), "{error}");
    let mut ours = from(0, 1).expect("place 1");
    let mut sender = sender(&lab.a);
    let tx = sender.queues_mut().nth(leading_to(1, Path::NativeCopy)).unwrap();
    send_numbers(tx, 0..10, &lab.a, &lab.b);
    assert_eq!(collect(ours.queues_mut().next().unwrap(), 10, PATIENCE).len(), 10);
    // Queue 0 takes that place and leaves it: there is nobody for queue 1 any more.
    drop(from(1, 0).expect("place 1"));
    let socket = kernel_socket(&lab.b, 5005);
    send_one(tx, &udp(&lab.a, &lab.b, 5005, &[3; 30]));
    assert_eq!(socket.recv(&mut [0; 64]).unwrap(), 30);
    drop((ours, link));
    assert_clean(&lab.b);
}

/// Only XSKMAPs are taken for XSKMAPs: with another map the kernel would read past our key and value.
#[test]
fn only_an_xskmap_is_taken() {
    if !is_root() {
        return;
    }
    let lab = lab("badmap", 1);
    let program = XskProgram::load(1, Filter::All).unwrap();
    let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as libbpf_rs::libbpf_sys::size_t,
        ..Default::default()
    };
    let array = |value_size| {
        let kind = libbpf_rs::MapType::Array;
        own(libbpf_rs::MapHandle::create(kind, Some("wide"), 4, value_size, 8, &options).unwrap())
    };
    for (fd, part) in [
        (own(program.program()), "descriptor"),
        (file, "descriptor"),
        (array(4096), "descriptor"),
        (array(4), "a map of type 2"),
    ] {
        let error = XskMap::from_fd(own(&fd)).expect_err("no XSKMAP").to_string();
        assert!(error.contains("xsks_map = ") && error.contains(part), "{error}");
        let attached = Program::Attached { xsks_map: fd };
        let error = try_open(&lab.b, Path::NativeCopy, |port| port.program(attached)).expect_err("no XSKMAP");
        assert!(
            matches!(
                error,
                Error::Setting {
                    setting: "xsks_map",
                    ..
                }
            ),
            "{error}"
        );
    }
    // An XSKMAP that is too small for the queue.
    let lab = common::lab("smallmap", 4);
    let small = Program::Custom {
        program: own(program.program()),
        xsks_map: own(program.xsks_map()),
    };
    let error = try_open(&lab.b, Path::NativeCopy, |port| port.program(small).queues([2])).expect_err("too small");
    assert!(error.to_string().contains("an entry for the queue"), "{error}");
    assert_clean(&lab.b);
    // Something that is no program.
    let nonsense = Program::Custom {
        program: own(program.xsks_map()),
        xsks_map: own(program.xsks_map()),
    };
    let error = try_open(&lab.b, Path::NativeCopy, |port| port.program(nonsense)).expect_err("no program");
    assert!(matches!(error, Error::Attach { .. }), "{error}");
    assert_clean(&lab.b);
}

/// Queue, XSKMAP and link put together by hand.
#[test]
fn a_queue_without_a_port() {
    if !is_root() {
        return;
    }
    let lab = lab("byhand", 4);
    let program = XskProgram::load(4, Filter::All).unwrap();
    let map = XskMap::from_fd(own(program.xsks_map())).unwrap();
    for (path, mode) in [
        (Path::NativeCopy, AttachMode::Native),
        (Path::Generic, AttachMode::Generic),
    ] {
        let (mut queue, _link) = lab.b.run(|| {
            let link = XdpLink::attach(program.program(), &lab.b.interface, mode).unwrap();
            let queue = Queue::builder(&lab.b.interface, 3).mode(Mode::Require(path));
            // No transmit queue leads to the last one in generic mode.
            let queue = if path == Path::Generic {
                Queue::builder(&lab.b.interface, 1).mode(Mode::Require(path))
            } else {
                queue
            };
            (queue.open().unwrap(), link)
        });
        assert_eq!(queue.report().path, path);
        let q = queue.id() as usize;
        let mut sender = sender(&lab.a);
        let tx = sender.queues_mut().nth(leading_to(q, path)).unwrap();
        send_numbers(tx, 0..3, &lab.a, &lab.b);
        assert!(
            queue.recv(Wait::Poll(Duration::from_millis(50))).unwrap().is_empty(),
            "not in the map yet"
        );
        map.insert(&queue).unwrap();
        send_numbers(tx, 3..6, &lab.a, &lab.b);
        assert_eq!(collect(&mut queue, 3, PATIENCE), [3, 4, 5], "{path}");
        map.remove(queue.id());
        map.remove(queue.id());
        send_numbers(tx, 6..9, &lab.a, &lab.b);
        assert!(
            queue.recv(Wait::Poll(Duration::from_millis(50))).unwrap().is_empty(),
            "out of the map again"
        );
        assert_eq!(program.counters(queue.id()).unwrap().passed_unbound, 6, "{path}");
        drop(queue);
        drop(_link);
    }
}

/// A socket that is handed over waits for its queue too (K7), although it cannot be made anew.
#[test]
fn a_socket_that_is_handed_over_waits_for_its_queue() {
    if !is_root() {
        return;
    }
    let lab = lab("handover", 2);
    let mut receiver = open(&lab.b, Path::NativeCopy, |port| port);
    let patient = QueueOptions::new().busy_timeout(PATIENCE);
    lab.a.run(|| {
        for n in 0..5 {
            let fd = xdp_socket();
            let mut queue = Queue::builder(&lab.a.interface, 1)
                .options(patient.clone().direction(Direction::Transmit))
                .socket(fd)
                .open()
                .unwrap();
            send_numbers(&mut queue, n..n + 1, &lab.a, &lab.b);
            assert_eq!(collect(receiver.queues_mut().nth(1).unwrap(), 1, PATIENCE), [n]);
        }
        // One that is in use already, or no XDP socket at all.
        let queue = Queue::builder(&lab.a.interface, 1).options(patient).open().unwrap();
        let used = Queue::builder(&lab.a.interface, 0)
            .socket(own(&queue))
            .open()
            .expect_err("in use");
        assert!(used.to_string().contains("must be fresh"), "{used}");
        let file = std::fs::File::open("/dev/null").unwrap();
        let wrong = Queue::builder(&lab.a.interface, 0)
            .socket(file.into())
            .open()
            .expect_err("no socket");
        assert!(
            matches!(
                wrong,
                Error::Socket {
                    call: "setsockopt(XDP_UMEM_REG)",
                    ..
                }
            ),
            "{wrong}"
        );
        // A busy queue is told, with the time that was waited.
        let options = QueueOptions::new().busy_timeout(Duration::from_millis(30));
        let busy = Queue::builder(&lab.a.interface, 1)
            .options(options)
            .socket(xdp_socket())
            .open();
        assert!(matches!(busy, Err(Error::QueueBusy { queue: 1, .. })), "{busy:?}");
    });
}

fn xdp_socket() -> OwnedFd {
    // SAFETY: no pointers; the descriptor is new and ours.
    unsafe {
        let fd = libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(fd)
    }
}

/// Packets arrive in memory of the caller's, here a memfd that can be looked at from outside.
#[test]
fn frame_memory_of_the_callers() {
    if !is_root() {
        return;
    }
    let lab = lab("memfd", 2);
    let program = XskProgram::load(2, Filter::All).unwrap();
    let map = XskMap::from_fd(own(program.xsks_map())).unwrap();
    let memory = Memfd::new(64 * 2048);
    let file = own(&memory.fd);
    let options = QueueOptions::new().frames(64);
    let (mut queue, _link) = lab.b.run(|| {
        let link = XdpLink::attach(program.program(), &lab.b.interface, AttachMode::Native).unwrap();
        let queue = Queue::builder(&lab.b.interface, 1)
            .options(options.clone())
            .memory(Box::new(memory));
        (queue.open().unwrap(), link)
    });
    assert_eq!(queue.report().pages, Pages::Custom);
    assert!(
        queue.report().to_string().contains("caller's pages"),
        "{}",
        queue.report()
    );
    assert_eq!(queue.report().memory_bytes, 64 * 2048);
    map.insert(&queue).unwrap();
    let mut sender = sender(&lab.a);
    send_one(
        sender.queues_mut().nth(1).unwrap(),
        &udp(&lab.a, &lab.b, 1, b"a needle in a memfd"),
    );
    let mut burst = queue.recv(Wait::Poll(PATIENCE)).unwrap();
    assert!(
        burst
            .iter_mut()
            .next()
            .unwrap()
            .data()
            .ends_with(b"a needle in a memfd")
    );
    let mut bytes = vec![0; 64 * 2048];
    std::os::unix::fs::FileExt::read_exact_at(&std::fs::File::from(own(&file)), &mut bytes, 0).unwrap();
    assert!(bytes.windows(19).any(|window| window == b"a needle in a memfd"));
    // The memory lives as long as a frame of it, and no longer.
    let frame = burst.iter_mut().next().unwrap().keep();
    drop(burst);
    drop(queue);
    assert!(frame.data().ends_with(b"a needle in a memfd"));
    assert_eq!(UNMAPPED.load(std::sync::atomic::Ordering::SeqCst), 0);
    drop(frame);
    assert_eq!(UNMAPPED.load(std::sync::atomic::Ordering::SeqCst), 1);

    lab.b.run(|| {
        let open = |memory: Memfd| {
            Queue::builder(&lab.b.interface, 0)
                .options(options.clone())
                .memory(Box::new(memory))
                .open()
        };
        let error = open(Memfd::new(63 * 2048)).expect_err("too small").to_string();
        assert!(
            error.contains("memory = 129024 bytes") && error.contains("need 131072 bytes"),
            "{error}"
        );
        let mut crooked = Memfd::new(80 * 2048);
        crooked.skip = 8;
        let error = open(crooked).expect_err("crooked").to_string();
        assert!(error.contains("start on a page"), "{error}");
    });
}

static UNMAPPED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

struct Memfd {
    fd: OwnedFd,
    at: NonNull<u8>,
    len: usize,
    skip: usize,
}

impl Memfd {
    fn new(len: usize) -> Self {
        // SAFETY: a new file and a new mapping of it, at an address of the kernel's choice.
        unsafe {
            let fd = OwnedFd::from_raw_fd(libc::memfd_create(c"frames".as_ptr(), libc::MFD_CLOEXEC));
            assert_eq!(libc::ftruncate(fd.as_raw_fd(), i64::try_from(len).unwrap()), 0);
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, fd.as_raw_fd(), 0);
            assert_ne!(at, libc::MAP_FAILED);
            Self {
                fd,
                at: NonNull::new(at.cast()).unwrap(),
                len,
                skip: 0,
            }
        }
    }
}

impl Drop for Memfd {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped, once.
        assert_eq!(unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) }, 0);
        UNMAPPED.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

// SAFETY: the mapping belongs to the process, and only the library touches it.
unsafe impl Send for Memfd {}
// SAFETY: as above.
unsafe impl Sync for Memfd {}

// SAFETY: `len` bytes are mapped readable and writable until `drop`, page-aligned unless a test wants it otherwise,
// which the library must refuse; other parts of the test only read the file.
unsafe impl FrameMemory for Memfd {
    fn as_ptr(&self) -> NonNull<u8> {
        // SAFETY: inside the mapping.
        unsafe { self.at.add(self.skip) }
    }

    fn len(&self) -> usize {
        self.len - self.skip
    }
}
