//! A child of `fork()` has copies of all that its parent opened, and takes nothing away from it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringside_netlab::testing::is_root;
use ringside_netlab::wait_until;
use ringside_xsk::{BusyPolling, Direction, Error, Interface, Mode, Path, Port, PortBuilder};
use ringside_xsk::{QueueOptions, SharedUmem, StatsReader, Wait};

use super::common::child::{again, said};
use super::common::flow::{Flow, lanes};
use super::common::{PATIENCE, lab};

/// Few frames: traffic soon fills all that wait for packets.
const FRAMES: u32 = 64;

fn port(interface: &Interface, queue: u32) -> PortBuilder {
    let port = Port::builder(interface.clone()).queues([queue]);
    port.mode(Mode::Require(Path::NativeCopy))
        .options(QueueOptions::new().frames(FRAMES))
}

/// What the process does: its child is refused and drops what it has of burst and port, it itself
/// has the burst as it was, and receives after that.
pub(super) fn play(interface: Interface) {
    let umem = SharedUmem::builder().frames(3 * FRAMES).build().expect("a UMEM");
    let mut opened = port(&interface, 0).umem(&umem).open().expect("opens");
    let queue = opened.queues_mut().next().expect("a queue");
    let reader = queue.stats_reader();
    wait_until(PATIENCE, || {
        !queue.recv(Wait::Poll(PATIENCE)).expect("receives").is_empty()
    });
    let mut burst = queue.recv(Wait::Poll(PATIENCE)).expect("receives");
    assert!(!burst.is_empty());
    let contents = |burst: &mut ringside_xsk::Burst<'_>| -> Vec<Vec<u8>> {
        burst.iter_mut().map(|packet| packet.data().to_vec()).collect()
    };
    let before = contents(&mut burst);
    reads_while_another_thread_does(&reader);
    // SAFETY: the child calls only what works after fork(): this process has no lock held by
    // another thread that it needs, since glibc takes care of the heap's.
    match unsafe { libc::fork() } {
        0 => {
            drop(burst);
            end_child(|| {
                is_refused(&mut opened);
                touches_nothing(&mut opened, &reader);
                opens_its_own(&interface, &umem, opened);
            })
        }
        child => assert_eq!(status_of(child), 0, "the child was not refused"),
    }
    // By now the kernel has used every frame that it was given.
    let is_full = || reader.stats().expect("answers").kernel.rx_fill_ring_empty != 0;
    assert!(wait_until(PATIENCE, is_full), "too little traffic");
    assert_eq!(contents(&mut burst), before, "the child gave frames of the burst away");
    drop(burst);
    let (start, mut received) = (Instant::now(), 0);
    while received < 100 {
        assert!(
            start.elapsed() < PATIENCE,
            "only {received} packets come after the child has ended"
        );
        let queue = opened.queues_mut().next().expect("a queue");
        received += queue
            .recv(Wait::Poll(PATIENCE))
            .expect("the parent can use it")
            .iter_mut()
            .count();
        queue.ledger().expect("the frames add up");
    }
    println!("says: received");
}

/// Runs the child's part, and ends it without what the test harness does at the end.
fn end_child(part: impl FnOnce()) -> ! {
    // SAFETY: a signal that ends the child if it waits for ever.
    unsafe { libc::alarm(60) };
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(part));
    // SAFETY: ends the child.
    unsafe { libc::_exit(i32::from(done.is_err())) }
}

/// Returns how a child ended.
fn status_of(child: libc::pid_t) -> i32 {
    assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: `status` is a valid place for a number.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

/// What another thread has locked when the process forks, the child never finds unlocked.
fn reads_while_another_thread_does(reader: &StatsReader) {
    let (ends, reads) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                reader.stats().expect("answers");
                reads.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut statuses = (0..200).map(|_| {
            // It runs, and mostly has the lock.
            let before = reads.load(Ordering::Relaxed);
            while reads.load(Ordering::Relaxed) == before {
                std::hint::spin_loop();
            }
            // SAFETY: the child reads memory, and ends.
            match unsafe { libc::fork() } {
                0 => {
                    // SAFETY: a signal that ends the child if it waits for ever.
                    unsafe { libc::alarm(10) };
                    let is_open = !reader.is_closed() && reader.counters().rx_packets != 0;
                    // SAFETY: ends the child.
                    unsafe { libc::_exit(i32::from(!is_open)) }
                }
                child => status_of(child),
            }
        });
        let failed = statuses.find(|status| *status != 0);
        ends.store(true, Ordering::Relaxed);
        assert_eq!(failed, None, "the child waited for the other thread, or was wrong");
    });
}

/// In the child: calls that return no `Result` read and change its copies alone. That the parent's
/// rings are as they were, the parent finds out.
fn touches_nothing(port: &mut Port, reader: &StatsReader) {
    assert!(matches!(reader.stats(), Err(Error::Forked { .. })));
    let before = reader.counters();
    let queue = port.queues_mut().next().expect("a queue");
    for _ in 0..2 * FRAMES {
        assert!(queue.alloc().is_none());
        queue.set_batch(1);
        queue.held().hold();
        assert!(queue.held().is_empty());
        assert_eq!(queue.in_flight(), 0);
        assert!(queue.free_frames() <= FRAMES as usize);
    }
    assert_eq!((queue.counters(), reader.counters()), (before, before));
    assert_eq!(queue.busy_polling(), BusyPolling::Off);
    assert_eq!(queue.stats_reader().counters(), before);
    assert!(!reader.is_closed());
}

/// In the child: each call on the parent's port is refused.
fn is_refused(port: &mut Port) {
    let text = port.check_process().expect_err("refused").to_string();
    assert!(text.ends_with("open the port after fork() or daemon()"), "{text}");
    assert!(matches!(port.stats(), Err(Error::Forked { .. })));
    let queue = port.queues_mut().next().expect("a queue");
    assert!(matches!(queue.held().finish(), Err(Error::Forked { .. })));
    assert!(queue.alloc().is_none());
    let answers = [
        queue.recv(Wait::Spin).map(drop),
        queue.reserve(1).map(drop),
        queue.send_with(1, |_| unreachable!("no frame")).map(drop),
        queue.flush(),
        queue.drain(Duration::ZERO).map(drop),
        queue.tx_stamps().map(drop),
        queue.ledger().map(drop),
        queue.stats().map(drop),
        queue.set_busy_poll(None),
        queue.watch_link().map(drop),
        queue.sibling(&QueueOptions::new()).map(drop),
        port.reopen(Duration::ZERO),
    ];
    for (at, answer) in answers.into_iter().enumerate() {
        assert!(matches!(answer, Err(Error::Forked { .. })), "call {at}: {answer:?}");
    }
}

/// In the child: a port of its own works, but not in memory that the parent's socket is bound to.
fn opens_its_own(interface: &Interface, umem: &SharedUmem, parents: Port) {
    let own = || {
        let options = QueueOptions::new().frames(FRAMES).direction(Direction::Transmit);
        port(interface, 1).options(options).mode(Mode::Require(Path::Copy))
    };
    let refused = own().umem(umem).open().expect_err("the parent's memory").to_string();
    assert!(refused.contains("make another one, after fork()"), "{refused}");
    drop(parents);
    let mut own = own().open().expect("opens");
    let queue = own.queues_mut().next().expect("a queue");
    let sent = queue.send_with(1, |packet| assert!(packet.write(&[0xff; 60])));
    assert_eq!(sent.expect("sends"), 1);
    assert!(queue.drain(PATIENCE).expect("drains"));
}

#[test]
fn a_forked_child_is_refused_and_drops_burst_and_port_leaving_both_to_the_parent() {
    if !is_root() {
        return;
    }
    let lab = lab("fork", 2);
    let flow = Flow::start(&lab.a, &lab.b, &lanes(Path::NativeCopy, 1), 500);
    assert_eq!(said(&mut again(&lab, "fork")), "received");
    flow.stop();
}
