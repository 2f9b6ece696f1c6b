//! What is possible with how little, and what is left when a process is killed: K12 and K14.
//!
//! The processes with less are this very binary, started once more; see `common/child.rs`.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::child::{Guard, part, play};
use common::{MODES, assert_clean, collect, lab, leading_to, open, send_numbers, within};
use libbpf_rs::{Xdp, XdpFlags};
use ringside_bpf::{Filter, XskProgram};
use ringside_netlab::testing::is_root;
use ringside_netlab::wait_until;
use ringside_xsk::{AttachMode, Error, Interface, Mode, Path, Port, Queue, QueueOptions, Wait, XdpLink, XskMap};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

const PATIENCE: Duration = Duration::from_secs(2);

/// Not a test by itself: what the other processes do.
#[test]
fn child() {
    let Some((part, interface)) = part() else { return };
    match part.as_str() {
        "serve" => serve(interface),
        "attach-by-netlink" => attach_by_netlink(&interface),
        "work" => work(&interface),
        other => panic!("{other}"),
    }
}

/// The path that the environment names.
fn path() -> Path {
    match std::env::var("RINGSIDE_TEST_PATH").unwrap().as_str() {
        "generic" => Path::Generic,
        _ => Path::NativeCopy,
    }
}

/// Attaches a program as `ip link set … xdp` does, and waits to be killed.
fn attach_by_netlink(interface: &Interface) {
    let flags = match path() {
        Path::Generic => XdpFlags::SKB_MODE,
        _ => XdpFlags::DRV_MODE,
    };
    let program = XskProgram::load(1, Filter::None).unwrap();
    let index = i32::try_from(interface.index()).unwrap();
    Xdp::new(program.program()).attach(index, flags).unwrap();
    println!("says: {}", program.id());
    std::thread::sleep(Duration::from_secs(30));
    panic!("nobody killed me");
}

/// Receives and sends back until killed.
fn serve(interface: Interface) {
    let path = path();
    let mut port = Port::builder(interface).mode(Mode::Require(path)).open().unwrap();
    println!("says: ready {:?}", port.report());
    let end = Instant::now() + Duration::from_secs(30);
    while Instant::now() < end {
        for queue in port.queues_mut() {
            let mut burst = queue.recv(Wait::Spin).unwrap();
            for mut packet in &mut burst {
                packet.data_mut()[..12].rotate_left(6);
            }
            burst.send_back().unwrap();
        }
    }
    panic!("nobody killed me");
}

/// The worker of a broker: takes a socket over standard input, sets it up and binds it, answers one packet.
fn work(interface: &Interface) {
    let caps = std::fs::read_to_string("/proc/self/status").unwrap();
    let effective = caps.lines().find_map(|line| line.strip_prefix("CapEff:\t")).unwrap();
    assert_eq!(u64::from_str_radix(effective, 16).unwrap(), 0, "no capability at all");

    let stdin = std::io::stdin();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut buffer = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0_u8; 1];
    let mut parts = [rustix::io::IoSliceMut::new(&mut byte)];
    recvmsg(stdin.as_fd(), &mut parts, &mut buffer, RecvFlags::CMSG_CLOEXEC).unwrap();
    let socket = buffer
        .drain()
        .find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        })
        .expect("a socket");

    let options = QueueOptions::new().frames(16).tx_ring(16);
    let mut queue = Queue::builder(interface, 1)
        .options(options)
        .socket(socket)
        .open()
        .unwrap();
    println!("says: bound {}", queue.report());
    let end = Instant::now() + Duration::from_secs(10);
    let mut answered = 0;
    while answered < 100 && Instant::now() < end {
        let mut burst = queue.recv(Wait::Poll(Duration::from_millis(50))).unwrap();
        for mut packet in &mut burst {
            packet.data_mut()[..12].rotate_left(6);
        }
        answered += burst.send_back().unwrap();
    }
    assert!(queue.drain(PATIENCE).unwrap());
    println!("says: answered {answered}");
}

/// K14: these are enough, with CAP_IPC_LOCK or memory within the limit: a port with our program receives and sends.
#[test]
fn the_least_set_of_capabilities_receives_and_sends() {
    if !is_root() {
        return;
    }
    // Generic mode leads to two of the queues from three.
    let lab = lab("k14least", 3);
    for (held, memlock, program) in [
        ("-all,+net_raw,+net_admin,+bpf,+ipc_lock", 4096, "ringside_xsk_h"),
        ("-all,+net_raw,+net_admin,+bpf", 4 << 20, "ringside_xsk_h"),
        // With one more the other program is loaded, which is faster.
        ("-all,+net_raw,+net_admin,+bpf,+perfmon,+ipc_lock", 4096, "ringside_xsk"),
    ] {
        for path in MODES {
            let mut command = play(&lab, "serve", held, Some((memlock, memlock)));
            let mut server = Guard(command.env("RINGSIDE_TEST_PATH", path.name()).spawn().unwrap());
            let lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
            let ready = lines.map(Result::unwrap).find(|line| line.contains("says: ready"));
            let ready = ready.unwrap_or_else(|| panic!("{held}, {path}: no port"));
            assert!(ready.contains(&format!("name: {program:?}")), "{held}: {ready}");

            let mut client = open(&lab.a, Path::NativeCopy, |port| port);
            for queue in 0..2 {
                let tx = client.queues_mut().nth(leading_to(queue, path)).unwrap();
                send_numbers(tx, 0..200, &lab.a, &lab.b);
                // On each queue the program has passed it, a socket received it, and sent it back.
                let answers = collect(client.queues_mut().nth(queue).unwrap(), 200, PATIENCE);
                assert_eq!(answers, Vec::from_iter(0..200), "{held}, {path}, queue {queue}");
            }
            drop(server);
            let gone = wait_until(PATIENCE, || lab.b.state().unwrap().xdp.is_none());
            assert!(gone, "{held}, {path}: a program is still attached");
        }
    }
    assert_clean(&lab.b);
}

/// K14: a socket made by a privileged process works in one without any capability, memory and bind included.
#[test]
fn a_socket_that_was_handed_over_needs_no_capability() {
    if !is_root() {
        return;
    }
    let lab = lab("k14broker", 4);
    for (path, mode) in [
        (Path::NativeCopy, AttachMode::Native),
        (Path::Generic, AttachMode::Generic),
    ] {
        // The broker: program, map and socket.
        let program = XskProgram::load(4, Filter::All).unwrap();
        let map = XskMap::from_fd(program.xsks_map().try_clone_to_owned().unwrap()).unwrap();
        let (socket, _link) = lab.b.run(|| {
            let family = rustix::net::AddressFamily::XDP;
            let socket = rustix::net::socket(family, rustix::net::SocketType::RAW, None).unwrap();
            (
                socket,
                XdpLink::attach(program.program(), &lab.b.interface, mode).unwrap(),
            )
        });
        // The worker.
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut command = play(&lab, "work", "-all", Some((256 * 1024, 256 * 1024)));
        let mut worker = Guard(command.stdin(Stdio::from(OwnedFd::from(theirs))).spawn().unwrap());
        hand_over(&ours, socket.as_fd());
        let mut lines = BufReader::new(worker.0.stdout.take().unwrap()).lines();
        let mut says = |what: &str| {
            let said = lines.by_ref().map(Result::unwrap).find(|line| line.contains("says: "));
            assert!(
                said.as_ref().is_some_and(|said| said.contains(what)),
                "{what}: {said:?}"
            );
        };
        says("bound queue 1");
        map.insert_socket("veth-b", 1, socket.as_fd()).unwrap();

        let mut client = open(&lab.a, Path::NativeCopy, |port| port);
        for n in 0..100 {
            send_numbers(
                client.queues_mut().nth(leading_to(1, path)).unwrap(),
                n..n + 1,
                &lab.a,
                &lab.b,
            );
            assert_eq!(
                collect(client.queues_mut().nth(1).unwrap(), 1, PATIENCE),
                [n],
                "{path}: answered"
            );
        }
        says("answered 100");
        assert!(worker.0.wait().unwrap().success());
    }
}

fn hand_over(stream: &UnixStream, socket: BorrowedFd<'_>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut buffer = SendAncillaryBuffer::new(&mut space);
    let sockets = [socket];
    assert!(buffer.push(SendAncillaryMessage::ScmRights(&sockets)));
    sendmsg(
        stream,
        &[rustix::io::IoSlice::new(&[1])],
        &mut buffer,
        SendFlags::empty(),
    )
    .unwrap();
}

/// K12: what was attached by netlink belongs to nobody and survives kill -9. A port leaves it alone, and
/// names it and the command that removes it, which does.
#[test]
fn a_netlink_attachment_survives_its_maker() {
    if !is_root() {
        return;
    }
    let lab = lab("k12netlink", 1);
    for path in MODES {
        let mut command = play(&lab, "attach-by-netlink", "+all", None);
        let mut maker = Guard(command.env("RINGSIDE_TEST_PATH", path.name()).spawn().unwrap());
        let mut lines = BufReader::new(maker.0.stdout.take().unwrap()).lines();
        let id = lines.find_map(|line| Some(line.unwrap().split_once("says: ")?.1.parse::<u32>().unwrap()));
        let id = id.expect("attached");
        let attached = || lab.b.state().unwrap().xdp.map(|xdp| xdp.prog_id);
        let refusal = || {
            let error = common::try_open(&lab.b, Path::NativeCopy, |port| port).expect_err("in the way");
            assert!(
                matches!(&error, Error::ProgramAttached { id: named, .. } if *named == id),
                "{error}"
            );
            assert_eq!(attached(), Some(id), "left alone");
            error.to_string()
        };
        let told = refusal();
        maker.0.kill().unwrap();
        maker.0.wait().unwrap();
        // An attachment by a link goes within a moment of its holder.
        assert!(
            !wait_until(Duration::from_millis(300), || attached().is_none()),
            "{path}"
        );
        assert_eq!(refusal(), told, "the maker makes no difference");
        assert!(
            told.contains("ringside_xsk") && told.contains(&format!("id {id}")),
            "{told}"
        );
        assert!(!told.contains("held by"), "{told}");
        let (_, command) = told.split_once("To remove it: ").expect("how to");
        let status = lab.b.ns.command("sh").args(["-c", command]).status().unwrap();
        assert!(status.success(), "{path}: {command}");
        assert_eq!(attached(), None, "{path}: {command}");
        drop(open(&lab.b, path, |port| port));
        assert_clean(&lab.b);
    }
}

/// A child that was started meanwhile inherits nothing that keeps the program attached or the queue bound.
#[test]
fn a_child_process_keeps_nothing_open() {
    if !is_root() {
        return;
    }
    let lab = lab("inherit", 2);
    let port = open(&lab.b, Path::NativeCopy, |port| port);
    let mut sleeper = Guard(
        Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    within(Duration::from_secs(3), {
        let lab = lab.b.clone();
        move || {
            drop(port);
            assert_clean(&lab);
        }
    });
    // It was alive all the time.
    sleeper.0.stdin.take().unwrap().write_all(b"alive").unwrap();
    let mut text = String::new();
    sleeper.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "alive");
}
