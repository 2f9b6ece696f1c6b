//! A port that only transmits has zero-copy only with frames for the host's packets. Without room
//! for these it copies, and its report says why. That is decided before `bind()`, which a veth
//! refuses for another reason.

use crate::common::child::{part, play, said, say_outcome};
use crate::common::{PATIENCE, lab};
use ringside_netlab::testing::is_root;
use ringside_netlab::{End, Lab, VethConfig};
use ringside_xsk::{Direction, Error, Interface, Mode, Path, Port, Queue, QueueOptions, SharedUmem};

/// Bytes of the frames that are sent, without any for the host.
const FRAMES: u64 = 256 * 2048;

fn options() -> QueueOptions {
    let options = QueueOptions::new().direction(Direction::Transmit);
    options.busy_timeout(PATIENCE)
}

fn open(interface: &Interface, mode: Mode, umem: Option<&SharedUmem>) -> Result<Port, Error> {
    let builder = Port::builder(interface.clone()).queues([0]).mode(mode);
    let builder = match umem {
        Some(umem) => builder.umem(umem),
        None => builder,
    };
    builder.options(options()).open()
}

/// Checks that the queue copies for this reason, and sends.
fn copies(queue: &mut Queue, why: &str) {
    let report = queue.report();
    assert_eq!((report.path, report.host_frames), (Path::Copy, 0), "{report:?}");
    let [refused] = &report.refused_modes[..] else {
        panic!("{report:?}");
    };
    let is_why = refused.starts_with("zero-copy ") && refused.contains(why);
    assert!(is_why && !refused.contains("bind()"), "{refused}");
    let sent = queue.send_with(1, |packet| assert!(packet.write(&[0xff; 60])));
    assert_eq!(sent.expect("sends"), 1);
    assert!(queue.drain(PATIENCE).expect("drains"));
}

/// Opens by itself, and with zero-copy required.
fn falls_back(interface: &Interface, umem: Option<&SharedUmem>, why: &str) {
    let mut port = open(interface, Mode::Auto, umem).expect("copies");
    port.queues_mut().for_each(|queue| copies(queue, why));
    drop(port);
    let zero_copy = Mode::Require(Path::ZeroCopy);
    let error = open(interface, zero_copy, umem).expect_err("no room").to_string();
    assert!(error.contains(why) && !error.contains("bind()"), "{error}");
}

fn on(end: &End, check: impl FnOnce(&Interface) + Send) {
    end.run(|| check(&end.interface));
}

#[test]
fn a_sender_copies_where_its_frames_are_too_small_for_the_hosts_packets() {
    if !is_root() {
        return;
    }
    let lab = Lab::veth(VethConfig {
        mtu: 3000,
        ..VethConfig::tagged("fall-mtu")
    })
    .expect("test bed");
    on(&lab.b, |interface| falls_back(interface, None, "MTU 3000"));
}

#[test]
fn a_sender_copies_where_a_shared_umem_has_no_frames_for_the_host() {
    if !is_root() {
        return;
    }
    let lab = lab("fall-shared", 1);
    on(&lab.b, |interface| {
        let frames = QueueOptions::DEFAULT_TRANSMIT_FRAMES;
        let umem = SharedUmem::builder().frames(frames).build().expect("a UMEM");
        falls_back(interface, Some(&umem), "the shared UMEM has 256");
        let builder = Queue::builder(interface, 0).options(options()).umem(&umem);
        copies(&mut builder.open().expect("copies"), "the shared UMEM has 256");
    });
}

#[test]
fn a_sender_copies_where_memory_for_the_hosts_frames_cannot_be_locked() {
    if !is_root() {
        return;
    }
    let lab = lab("fall-memory", 1);
    let capabilities = "-all,+net_raw,+net_admin,+bpf";
    let told = said(&mut play(&lab, "open", capabilities, Some((FRAMES, FRAMES))));
    assert_eq!(told, "opened");
}

/// Not a test by itself: the process that may lock less memory.
#[test]
#[ignore = "other tests run it in a process of its own"]
fn child() {
    let (_, interface) = part();
    falls_back(&interface, None, "RLIMIT_MEMLOCK is 524288 bytes");
    say_outcome(open(&interface, Mode::Auto, None).map(drop));
}
