//! Packets in several frames, and frames of any size: every command with `--multi-buffer` and `--unaligned`.

use crate::common::frames::{frame_of, receive, spread};
use crate::common::{
    Done, MODES, assert_clean, assert_reconciles, lab_with, losses, port, row_with, run, start_receiver,
};
use ringside_measure::schema::RunResult;
use ringside_netlab::testing::is_root;
use ringside_netlab::{End, Lab, VethConfig};
use ringside_xsk::{Direction, Port, QueueOptions};

const MTU: u32 = 9216;
/// With the Ethernet header.
const LONGEST: usize = 9230;

/// Frames that hold a packet of 9216 bytes in six, four and three parts.
const SIZES: [&str; 3] = [
    "--multi-buffer",
    "--multi-buffer --unaligned --frame-size 3000",
    "--multi-buffer --frame-size 4096",
];

fn lab(tag: &str, queues: u32) -> Lab {
    lab_with(VethConfig {
        queues,
        mtu: MTU,
        ipv6: false,
        ..VethConfig::tagged(tag)
    })
}

/// The library's end of a test.
fn jumbo_port(end: &End, direction: Direction) -> Port {
    let options = QueueOptions::new().direction(direction).frames(4096).multi_buffer(true);
    port(end, |port| port.options(options))
}

/// What the result tells of all queues: frame size, and whether packets may be in several frames.
fn told(done: &Done) -> (u32, bool) {
    let interfaces = done.document().interfaces;
    let queues = interfaces.iter().flat_map(|interface| &interface.queues);
    let mut told = queues.map(|queue| {
        assert!(queue.umem.is_some() && queue.frames.is_some(), "{queue:?}");
        (queue.frame_size_bytes.expect("told"), queue.multi_buffer.expect("told"))
    });
    let first = told.next().expect("a queue");
    assert!(told.all(|other| other == first), "{interfaces:?}");
    first
}

/// The frame size that a command line asks for.
fn frame_size(options: &str) -> u32 {
    let mut words = options.split(' ').skip_while(|word| *word != "--frame-size");
    words.nth(1).map_or(2048, |size| size.parse().expect("a number"))
}

fn mean_size(result: &RunResult) -> f64 {
    let rates = result.received.expect("received");
    rates.frame_bps / rates.packets_pps / 8.0
}

#[test]
fn tx_to_rx() {
    if !is_root() {
        return;
    }
    let lab = lab("jumbo-tx", 1);
    for mode in MODES {
        for options in SIZES {
            for size in [64, 9216, LONGEST] {
                let rx = start_receiver(
                    &lab.b,
                    &format!("rx {{}} --touch -m {mode} {options} --frames 4096 --json"),
                );
                let to = lab.b.ipv4;
                let tx = format!("tx {{}} --to {to} --size {size} --rate 5000 --count 500 {options} --json");
                let sent = run(&lab.a, &tx).good();
                let got = rx.interrupt().good();
                assert_eq!(told(&sent), (frame_size(options), true));
                assert_eq!(told(&got), (frame_size(options), true));
                let (sent, got) = (sent.result(), got.result());
                assert_reconciles(&sent);
                assert_reconciles(&got);
                assert_eq!((sent.packets.delivered(), sent.frame_bytes), (500, Some(size as u64)));
                assert_eq!(got.packets.delivered(), 500, "{mode} {options} {size}: {got:#?}");
                #[allow(clippy::cast_precision_loss, reason = "small")]
                let expected = size as f64;
                assert!((mean_size(&got) - expected).abs() < 1.0, "{mode} {options}: {got:#?}");
            }
        }
    }
    assert_clean(&lab.b);
}

/// Frames of an odd size alone, with packets that fit one.
#[test]
fn unaligned_frames_of_one_packet() {
    if !is_root() {
        return;
    }
    let lab = lab_with(VethConfig {
        mtu: 2500,
        ipv6: false,
        ..VethConfig::tagged("odd")
    });
    for mode in MODES {
        let options = format!("-m {mode} --unaligned --frame-size 3000");
        let echo = start_receiver(&lab.b, &format!("echo {{}} {options} --json"));
        let ping = format!("ping {{}} --to {} --size 2514 --count 200 {options} --json", lab.b.ipv4);
        let ping = run(&lab.a, &ping).good();
        let echo = echo.interrupt().good();
        assert_eq!((told(&ping), told(&echo)), ((3000, false), (3000, false)));
        assert_eq!(ping.result().sequence.unwrap().received, 200, "{ping:#?}");
        assert_reconciles(&echo.result());
    }
}

#[test]
fn ping_and_echo() {
    if !is_root() {
        return;
    }
    let lab = lab("jumbo-ping", 2);
    for mode in MODES {
        for options in SIZES {
            let echo = start_receiver(&lab.b, &format!("echo {{}} -m {mode} {options} --wait poll --json"));
            for (size, headroom) in [(82, 0), (9216, 0), (LONGEST, 0), (5000, 1300)] {
                let ping = format!(
                    "ping {{}} --to {} --size {size} --headroom {headroom} --count 100 --depth 4 --frames 2048 -m {mode} \
                     {options} --json",
                    lab.b.ipv4
                );
                let done = run(&lab.a, &ping).good();
                let result = done.result();
                assert_eq!(told(&done), (frame_size(options), true));
                let counts = result.sequence.unwrap();
                assert_eq!((counts.sent, counts.received), (100, 100), "{ping}: {result:#?}");
                assert!(!done.err.contains("wrong UDP checksum"), "{ping}: {done:#?}");
                assert!((mean_size(&result) - size as f64).abs() < 1.0, "{ping}: {result:#?}");
            }
            // The kernel looks at every byte that comes back to it.
            let mut asked = lab.a.ns.command("ping");
            asked.args(["-M", "do", "-s", "9188", "-c", "5", "-l", "5", "-W", "10"]);
            let output = asked.arg(lab.b.ipv4.to_string()).output().expect("runs");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(
                text.contains("5 received") && !text.contains("wrong data"),
                "{options}: {text}"
            );
            let result = echo.interrupt().good().result();
            assert_reconciles(&result);
            assert_eq!(result.packets.delivered(), 405, "{mode} {options}: {result:#?}");
        }
    }
    assert_clean(&lab.b);
}

#[test]
fn fwd_sends_all_of_a_packet_back() {
    if !is_root() {
        return;
    }
    let lab = lab("jumbo-fwd", 2);
    for mode in MODES {
        for options in SIZES {
            let fwd = start_receiver(
                &lab.b,
                &format!("fwd {{}} -m {mode} {options} --frames 4096 --wait poll --json"),
            );
            let mut client = jumbo_port(&lab.a, Direction::Both);
            let mut frames = long_frames(&lab.a, &lab.b);
            spread(&mut client, &frames);
            let mut back = receive(&mut client, frames.len());
            for frame in &mut frames {
                frame[..12].rotate_left(6);
            }
            back.sort();
            frames.sort();
            assert!(back == frames, "{mode} {options}: {} of {}", back.len(), frames.len());
            let done = fwd.interrupt().good();
            assert_eq!(told(&done), (frame_size(options), true));
            assert_reconciles(&done.result());
        }
    }
    assert_clean(&lab.b);
}

/// From the shortest to the longest, so that the borders of frames of every size lie everywhere in them.
fn long_frames(from: &End, to: &End) -> Vec<Vec<u8>> {
    let lengths = (60..LONGEST).step_by(131).chain([LONGEST]);
    (0..).zip(lengths).map(|(n, len)| frame_of(len, n, from, to)).collect()
}

#[test]
fn fwd_to_a_second_interface() {
    if !is_root() {
        return;
    }
    let row = row_with("jfwd", [2, 1], MTU);
    for mode in MODES {
        for options in SIZES {
            for (command, note, times) in [
                ("fwd {} --out out", "one UMEM for both", 1),
                ("fwd {} --out out --copy-between", "packets are copied", 1),
                (
                    "impair in,out --delay 1ms --duplicate there=every:1",
                    "this host itself",
                    2,
                ),
            ] {
                let mut receiver = jumbo_port(&row.right.b, Direction::Receive);
                let fwd = format!("{command} -m {mode} {options} --frames 4096 --wait poll --json");
                let fwd = start_receiver(&row.left.b, &fwd);
                fwd.wait_for(note);
                let mut sender = jumbo_port(&row.left.a, Direction::Transmit);
                let mut frames = long_frames(&row.left.a, &row.right.b);
                spread(&mut sender, &frames);
                frames = std::iter::repeat_n(frames, times).flatten().collect();
                let mut got = receive(&mut receiver, frames.len());
                let done = fwd.interrupt().good();
                let result = done.result();
                got.sort();
                frames.sort();
                assert!(
                    got == frames,
                    "{mode} {options} {command}: {} of {}",
                    got.len(),
                    frames.len()
                );
                assert_eq!(told(&done), (frame_size(options), true));
                assert_eq!((result.packets.delivered(), losses(&result)), (frames.len() as u64, 0));
                assert_reconciles(&result);
            }
        }
    }
    assert_clean(&row.left.b);
    assert_clean(&row.right.a);
}

/// What is too long for the second link is counted as lost, and the others go on.
#[test]
fn fwd_to_a_link_with_a_smaller_mtu() {
    if !is_root() {
        return;
    }
    let row = row_with("jmtu", [1, 1], MTU);
    row.right.a.run(|| row.right.a.interface.set_mtu(1500)).unwrap();
    for with in ["", "--copy-between"] {
        let fwd = format!("fwd {{}} --out out --multi-buffer {with} --frames 4096 --wait poll --json");
        let fwd = start_receiver(&row.left.b, &fwd);
        fwd.wait_for("one UMEM");
        let to = row.left.b.ipv4;
        for size in [1514, 9216, 1514] {
            let tx = format!("tx {{}} --to {to} --size {size} --rate 5000 --count 100 --multi-buffer");
            run(&row.left.a, &tx).good();
        }
        let result = fwd.interrupt().good().result();
        assert_reconciles(&result);
        assert_eq!(
            (result.packets.delivered(), losses(&result)),
            (200, 100),
            "{with}: {result:#?}"
        );
    }
}

/// What cannot be is refused with the way out, before anything is touched.
#[test]
fn impossible_combinations() {
    if !is_root() {
        return;
    }
    let lab = lab("jumbo-no", 1);
    let to = format!("--to {}", lab.b.ipv4);
    let cases = [
        ("rx {}".to_owned(), "without --multi-buffer: veth-a has MTU 9216"),
        (format!("ping {{}} {to}"), "without --multi-buffer"),
        ("fwd {} --frame-size 4096".into(), "without --multi-buffer"),
        ("echo {} --unaligned --frame-size 3000".into(), "without --multi-buffer"),
        (
            format!("tx {{}} {to} --size 9216"),
            "60 to 1792 bytes, from the Ethernet header on, without FCS; that is what a frame of 2048 bytes holds: take larger \
             ones with --frame-size, or let a packet be in several with --multi-buffer",
        ),
        (
            format!("tx {{}} {to} --size 9231 --multi-buffer"),
            "60 to 9230 bytes, from the Ethernet header on, without FCS; the MTU of veth-a is 9216",
        ),
        (
            format!("ping {{}} {to} --size 9231 --multi-buffer"),
            "82 to 9230 bytes, from the Ethernet header on, without FCS; the MTU of veth-a is 9216",
        ),
        (
            "rx {} --multi-buffer --frames 5".into(),
            "one packet of the interface's MTU 9216 takes 6 frames, and 5 of these wait for packets",
        ),
        (
            "fwd {} --multi-buffer --frames 10".into(),
            "takes 6 frames, and 5 of these wait for packets",
        ),
        (
            format!("tx {{}} {to} --multi-buffer --frames 5"),
            "one packet of the interface's MTU 9216 takes 6 frames",
        ),
        (
            format!("ping {{}} {to} --multi-buffer --frames 11"),
            "--frames 11: all of them wait for packets",
        ),
        (format!("tx {{}} {to} --multi-buffer --ring 4"), "needs 6 slots"),
        (
            "rx {} --multi-buffer --frame-size 3000".into(),
            "--frame-size 3000: no power of two",
        ),
    ];
    for (arguments, expected) in &cases {
        let message = run(&lab.a, arguments).refused();
        assert!(message.contains(expected), "{arguments}: {message}");
    }
    assert_clean(&lab.a);
}

/// The kernel makes a packet of 17 frames for every driver, whatever the MTU is.
#[test]
fn more_frames_than_the_kernel_sends_as_one() {
    if !is_root() {
        return;
    }
    let lab = lab_with(VethConfig {
        mtu: 60_000,
        ipv6: false,
        ..VethConfig::tagged("jumbo-17")
    });
    let most = |words: &str| {
        let tx = format!("tx {{}} --to {} --multi-buffer {words}", lab.b.ipv4);
        let message = run(&lab.a, &format!("{tx} --size 60014")).refused();
        assert!(message.contains("no more frames as one packet"), "{message}");
        let room = message.split("60 to ").nth(1).and_then(|rest| rest.split(' ').next());
        let room: u32 = room.and_then(|room| room.parse().ok()).expect("a number");
        let rx = start_receiver(&lab.b, "rx {} --touch --multi-buffer --frames 4096 --json");
        run(&lab.a, &format!("{tx} --size {room} --count 20 --rate 1000")).good();
        let result = rx.interrupt().good().result();
        assert_eq!(result.packets.delivered(), 20, "{result:#?}");
        assert!((mean_size(&result) - f64::from(room)).abs() < 1.0, "{result:#?}");
        room
    };
    let frags = std::fs::read_to_string("/proc/sys/net/core/max_skb_frags").unwrap();
    let frames = frags.trim().parse::<u32>().unwrap();
    assert_eq!(most(""), frames * 1792);
    assert_eq!(most("--frame-size 3000 --unaligned --headroom 100"), frames * 2644);
}
