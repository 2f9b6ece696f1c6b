//! Nonsense and impossible wishes: each a clear error, and nothing left behind.

use std::time::Duration;

use crate::common;
use crate::common::PATIENCE;
use crate::common::{assert_clean, lab, open, try_open};
use ringside_netlab::testing::is_root;
use ringside_netlab::{Lab, VethConfig};
use ringside_xsk::{
    BusyPoll, Direction, Error, Interface, Mode, Path, Port, PortBuilder, Program, Queue, QueueOptions, Wait,
};

fn options(with: fn(QueueOptions) -> QueueOptions) -> impl Fn(PortBuilder) -> PortBuilder + Send {
    move |port| port.options(with(patient()))
}

/// Waits for a queue that was closed a moment before, instead of naming it as the error.
fn patient() -> QueueOptions {
    QueueOptions::new().busy_timeout(PATIENCE)
}

/// Opens what must not open, and checks that the text names each part and that the interface is as it was.
fn refused(lab: &Lab, with: impl FnOnce(PortBuilder) -> PortBuilder + Send, parts: &[&str]) -> Error {
    let error = lab
        .b
        .run(|| with(Port::builder(lab.b.interface.clone()).options(patient())).open())
        .expect_err(parts[0]);
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    assert!(!text.contains('\n'), "one paragraph: {text}");
    assert_clean(&lab.b);
    drop(open(&lab.b, Path::Generic, |port| port));
    error
}

fn spinning(micros: u32) -> BusyPoll {
    BusyPoll { budget: 64, micros }
}

#[test]
fn values_that_make_no_sense_are_refused_by_name() {
    if !is_root() {
        return;
    }
    let lab = lab("nonsense", 2);
    type Case<'a> = (fn(QueueOptions) -> QueueOptions, &'a [&'a str]);
    let cases: &[Case<'_>] = &[
        (|o| o.frame_size(1000), &["frame_size = 1000", "2048 to 4096"]),
        (|o| o.frame_size(0), &["frame_size = 0"]),
        (|o| o.frame_size(4097), &["frame_size = 4097"]),
        (|o| o.frames(0), &["frames = 0"]),
        (|o| o.frames(u32::MAX), &["frames = 4294967295"]),
        (|o| o.rx_ring(0), &["rx_ring = 0", "power of two"]),
        (|o| o.tx_ring(0), &["tx_ring = 0"]),
        (|o| o.fill_ring(0), &["fill_ring = 0"]),
        (|o| o.completion_ring(0), &["completion_ring = 0"]),
        (|o| o.tx_ring(u32::MAX), &["tx_ring = 4294967295", "1048576"]),
        (|o| o.batch(0), &["batch = 0", "1 to"]),
        (|o| o.batch(u32::MAX), &["batch = 4294967295"]),
        (|o| o.headroom(1800), &["headroom = 1800", "256 bytes"]),
        (|o| o.headroom(u32::MAX), &["headroom = 4294967295"]),
        (|o| o.headroom(500), &["MTU 1500", "frames of 4096 bytes"]),
        (|o| o.tx_budget(16), &["tx_budget = 16", "32 to the TX ring's size"]),
        (
            |o| o.tx_budget(512),
            &["tx_budget = 512", "32 to the TX ring's size, which is 256"],
        ),
        (
            |o| o.busy_poll(BusyPoll::with_budget(70_000)),
            &["busy_poll budget = 70000", "1 to 65535"],
        ),
        (
            |o| o.busy_poll(BusyPoll::with_budget(0)),
            &["busy_poll budget = 0", "1 to 65535"],
        ),
        (|o| o.busy_poll(spinning(0)), &["busy_poll time = 0", "1 to 2147483647"]),
        (|o| o.busy_poll(spinning(1 << 31)), &["busy_poll time = 2147483648"]),
    ];
    for (with, parts) in cases {
        refused(&lab, options(*with), parts);
    }
    // What is too much for newer kernels alone is named too.
    let options = patient().headroom(1500).direction(Direction::Transmit);
    let queue = Queue::builder(&lab.b.interface, 0).options(options);
    if let Err(error) = lab.b.run(|| queue.open()) {
        let text = error.to_string();
        assert!(text.contains("headroom = 1500") && text.contains("292 of"), "{text}");
    }
    assert_clean(&lab.b);
}

#[test]
fn queues_that_are_not_there_are_refused() {
    if !is_root() {
        return;
    }
    let lab = lab("badqueues", 2);
    let error = refused(
        &lab,
        |port| port.queues([0, 2]),
        &["no queue 2", "2 receive queue(s)", "ethtool -L veth-b"],
    );
    assert!(matches!(
        error,
        Error::NoSuchQueue {
            queue: 2,
            available: 2,
            ..
        }
    ));
    refused(
        &lab,
        |port| port.queues([1, 0, 1]),
        &["queues = [1, 0, 1]", "only once"],
    );
    refused(&lab, |port| port.queues([]), &["queues = []", "at least one"]);
    let error = lab
        .b
        .run(|| Queue::builder(&lab.b.interface, 7).open())
        .expect_err("two queues");
    assert!(
        matches!(
            error,
            Error::NoSuchQueue {
                queue: 7,
                available: 2,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn interfaces_that_cannot_serve_are_refused() {
    if !is_root() {
        return;
    }
    let lab = lab("badlink", 1);
    let unknown = lab
        .b
        .run(|| Interface::by_name("veth-none"))
        .map_err(Error::from)
        .expect_err("unknown");
    assert!(unknown.to_string().contains("veth-none"), "{unknown}");

    lab.b.set_up(false).unwrap();
    let down = try_open(&lab.b, Path::Generic, |port| port).expect_err("down");
    assert!(matches!(down, Error::InterfaceDown { .. }), "{down}");
    assert!(down.to_string().contains("ip link set dev veth-b up"), "{down}");
    let down = lab
        .b
        .run(|| Queue::builder(&lab.b.interface, 0).open())
        .expect_err("down");
    assert!(matches!(down, Error::InterfaceDown { .. }), "{down}");
    lab.b.set_up(true).unwrap();
    assert_clean(&lab.b);

    lab.delete_link().unwrap();
    let gone = try_open(&lab.b, Path::Generic, |port| port).expect_err("gone");
    assert!(
        matches!(gone, Error::Interface(_)) && gone.to_string().contains("veth-b"),
        "{gone}"
    );
}

/// A packet that fills the MTU must fit a frame: the way out depends on whether larger frames would do.
#[test]
fn an_mtu_above_the_frame_is_refused_with_the_way_out() {
    if !is_root() {
        return;
    }
    let with_mtu = |mtu| {
        Lab::veth(VethConfig {
            mtu,
            ipv6: false,
            gro: true,
            ..VethConfig::tagged("mtu")
        })
        .unwrap()
    };
    let lab = with_mtu(3000);
    let small = try_open(&lab.b, Path::NativeCopy, |port| port).expect_err("too small");
    assert!(
        matches!(
            small,
            Error::MtuTooLarge {
                mtu: 3000,
                packet: 3022,
                usable: 1792,
                ..
            }
        ),
        "{small}"
    );
    let text = small.to_string();
    assert!(
        text.contains("frames of 4096 bytes") && text.contains("ip link set dev veth-b mtu 1770"),
        "{text}"
    );
    let lone = lab.b.run(|| Queue::builder(&lab.b.interface, 0).open());
    assert!(matches!(lone, Err(Error::MtuTooLarge { mtu: 3000, .. })), "{lone:?}");
    assert_clean(&lab.b);
    drop(open(&lab.b, Path::NativeCopy, options(|o| o.frame_size(4096))));

    // The advice is good: with that MTU it opens.
    lab.b.run(|| lab.b.interface.set_mtu(1770)).unwrap();
    drop(open(&lab.b, Path::Generic, |port| port));

    let lab = with_mtu(5000);
    let large = try_open(&lab.b, Path::Generic, options(|o| o.frame_size(4096))).expect_err("too large");
    let text = large.to_string();
    assert!(
        text.contains("ip link set dev veth-b mtu 3818") && !text.contains("frames of 4096 bytes,"),
        "{text}"
    );
    // Who only sends decides about the length himself.
    drop(open(&lab.b, Path::Copy, options(|o| o.direction(Direction::Transmit))));
    assert_clean(&lab.b);
}

#[test]
fn an_interface_without_an_ethernet_header_is_refused_in_both_directions() {
    if !is_root() {
        return;
    }
    let lab = lab("tun", 1);
    for arguments in ["tuntap add dev tun0 mode tun", "link set dev tun0 up"] {
        let status = lab.b.ns.command("ip").args(arguments.split(' ')).status();
        assert!(status.expect("ip: make setup installs it").success(), "{arguments}");
    }
    let tun = lab.b.run(|| Interface::by_name("tun0")).expect("just made");
    for direction in [Direction::Both, Direction::Transmit] {
        let port = Port::builder(tun.clone()).options(QueueOptions::new().direction(direction));
        let text = lab.b.run(|| port.open()).expect_err("no Ethernet").to_string();
        let parts = ["interface = tun0", "no Ethernet header (hardware type 65534)"];
        assert!(parts.iter().all(|part| text.contains(part)), "{direction:?}: {text}");
    }
}

#[test]
fn a_mode_that_cannot_be_had_is_refused_with_the_reason() {
    if !is_root() {
        return;
    }
    let lab = lab("badmode", 2);
    let zero_copy = Mode::Require(Path::ZeroCopy);
    let error = refused(
        &lab,
        |port| port.mode(zero_copy),
        &["zero-copy was required", "bind() answered"],
    );
    // Programs in C and in Rust have no flags.
    assert!(!error.to_string().contains("--"), "{error}");
    assert!(matches!(
        error,
        Error::Mode {
            wanted: Path::ZeroCopy,
            ..
        }
    ));
    refused(
        &lab,
        |port| port.mode(Mode::Require(Path::Copy)),
        &["mode = copy", "natively or generically"],
    );
    refused(
        &lab,
        |port| port.program(Program::None),
        &["program = none", "Program::Attached"],
    );
    refused(
        &lab,
        |port| port.first_place(1),
        &["first_place = 1", "Program::Attached"],
    );
    let queue = |mode| Queue::builder(&lab.b.interface, 1).mode(mode).options(patient());
    let error = lab
        .b
        .run(|| queue(zero_copy).open())
        .expect_err("a veth has no zero-copy");
    assert!(
        matches!(
            error,
            Error::Mode {
                wanted: Path::ZeroCopy,
                ..
            }
        ),
        "{error}"
    );
    // A queue alone checks what the attached program makes of a copy.
    let port = open(&lab.b, Path::Generic, |port| port.queues([0]));
    let native = Mode::Require(Path::NativeCopy);
    let error = lab.b.run(|| queue(native).open()).expect_err("generic");
    assert!(error.to_string().contains("makes it generic"), "{error}");
    for mode in [Mode::Auto, Mode::Require(Path::Generic), Mode::Require(Path::Copy)] {
        let queue = lab.b.run(|| queue(mode).open()).unwrap();
        assert_eq!(queue.report().path, Path::Generic);
    }
    drop(port);
    assert_clean(&lab.b);
}

/// A filter that can match nothing.
#[cfg(feature = "attach")]
#[test]
fn a_filter_that_matches_nothing_is_refused() {
    if !is_root() {
        return;
    }
    use ringside_xsk::Filter;
    let lab = lab("badfilter", 1);
    refused(&lab, |port| port.filter(Filter::UdpPort(0)), &["udp:0", "UDP port"]);
    refused(&lab, |port| port.filter(Filter::EtherType(0x0806)), &["ARP"]);
    // A program in front of sockets that cannot receive.
    let transmit = QueueOptions::new().direction(Direction::Transmit);
    refused(
        &lab,
        |port| port.filter(Filter::All).options(transmit.clone()),
        &["filter = all", "only transmits"],
    );
}

#[test]
fn the_wrong_direction_is_an_error_and_costs_nothing() {
    if !is_root() {
        return;
    }
    let lab = lab("direction", 2);
    let mut sender = open(&lab.a, Path::Copy, options(|o| o.direction(Direction::Transmit)));
    let tx = sender.queues_mut().nth(1).unwrap();
    let text = tx
        .recv(Wait::Poll(Duration::from_secs(9)))
        .map(drop)
        .expect_err("no RX ring")
        .to_string();
    for part in ["direction = transmit", "veth-a queue 1", "RX ring"] {
        assert!(text.contains(part), "{text}");
    }

    let mut receiver = open(&lab.b, Path::NativeCopy, options(|o| o.direction(Direction::Receive)));
    common::send_numbers(tx, 0..20, &lab.a, &lab.b);
    let rx = receiver.queues_mut().nth(1).unwrap();
    let text = rx
        .send_with(1, |_| panic!("nothing is written"))
        .expect_err("no TX ring")
        .to_string();
    assert!(
        text.contains("direction = receive") && text.contains("TX ring"),
        "{text}"
    );

    let mut burst = rx.recv(Wait::Poll(Duration::from_secs(2))).unwrap();
    let (packets, mut kept) = (burst.len(), Vec::new());
    kept.push(burst.iter_mut().next().unwrap().keep());
    let text = burst.send_back().expect_err("no TX ring").to_string();
    assert!(text.contains("direction = receive"), "{text}");
    assert_eq!(rx.counters().tx_abandoned, packets as u64 - 1);
    let refused = rx.send(kept.pop().unwrap()).expect_err("no TX ring");
    assert!(refused.to_string().contains("TX ring"));
    assert_eq!(
        common::check(refused.frame.data()),
        Some(0),
        "the frame comes back whole"
    );
    drop(refused);
    // All frames are still there.
    for round in 0..60 {
        common::send_numbers(tx, round * 16..round * 16 + 16, &lab.a, &lab.b);
        let left = 16 + if round == 0 { 20 - packets } else { 0 };
        assert_eq!(
            common::collect(rx, left, Duration::from_secs(2)).len(),
            left,
            "round {round}"
        );
    }
}

/// Settings that are odd but not wrong are taken.
#[test]
fn odd_values_work() {
    if !is_root() {
        return;
    }
    let lab = lab("odd", 2);
    for with in [
        (|o| o.rx_ring(3).tx_ring(5).fill_ring(7).completion_ring(9)) as fn(QueueOptions) -> QueueOptions,
        |o| o.frames(3),
        |o| o.frames(1000),
        |o| o.headroom(1),
        |o| o.headroom(192).need_wakeup(false),
        |o| o.batch(1),
        |o| o.batch(100_000),
        |o| o.frames(64).fill_ring(4096),
        |o| o.busy_poll(BusyPoll::with_budget(1)),
        |o| o.frame_size(4096).headroom(2000),
    ] {
        let mut receiver = open(&lab.b, Path::NativeCopy, options(with));
        let mut sender = open(&lab.a, Path::NativeCopy, options(with));
        let (tx, rx) = (
            sender.queues_mut().nth(1).unwrap(),
            receiver.queues_mut().nth(1).unwrap(),
        );
        for n in 0..40 {
            // With all frames waiting for packets there may be none to send from.
            if tx
                .send_with(1, |slot| assert!(slot.write(&common::packet(n, lab.a.mac, lab.b.mac))))
                .unwrap()
                == 1
            {
                tx.flush().unwrap();
                assert_eq!(common::collect(rx, 1, Duration::from_secs(2)), [n], "{:?}", rx.report());
            } else {
                assert_eq!(tx.report().fill_ring, 4096);
            }
        }
    }
}
