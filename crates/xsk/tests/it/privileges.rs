//! What is possible with how little, and what is left when a process is killed: K12 and K14.
//!
//! The processes with less are this very binary, started once more; see `common/child.rs`.

use std::io::{BufRead, BufReader, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common;
use crate::common::account::{Account, Balance};
use crate::common::child::{Guard, part, play, said, say_outcome};
use crate::common::conformance::{Case, lacks, passed, row, row_once};
use crate::common::flow::Flow;
use crate::common::traffic::{only, queue};
use crate::common::{MODES, PATIENCE, assert_clean, collect, lab, leading_to, open, send_numbers, within};
use libbpf_rs::{Xdp, XdpFlags};
use ringside_bpf::{Filter, XskProgram};
use ringside_netlab::testing::is_root;
use ringside_netlab::{Lab, wait_until};
use ringside_xsk::{
    AttachMode, Error, Interface, KernelStats, Mode, Path, Port, Queue, QueueOptions, Wait, XdpLink, XskMap,
};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// Not a test by itself: what the other processes do.
#[test]
#[ignore = "other tests run it in a process of its own"]
fn child() {
    let (part, interface) = part();
    match part.as_str() {
        "open-port" => {
            let port = Port::builder(interface).mode(Mode::Require(case().path));
            say_outcome(port.open().map(drop));
        }
        "open-small-queue" => {
            let options = QueueOptions::new().frames(16).tx_ring(16);
            say_outcome(Queue::builder(&interface, 1).options(options).open().map(drop));
        }
        "serve" => serve(interface),
        "attach-by-netlink" => attach_by_netlink(&interface),
        "work" => work(&interface),
        other => panic!("{other}"),
    }
}

const CASE: &str = "RINGSIDE_TEST_CASE";

/// Where the variant does not matter.
const CASE_0: Case = Case {
    path: Path::NativeCopy,
    queue: 0,
    busy_poll: false,
    wired: false,
};

/// As [`play`], for a variant of a row.
fn play_case(lab: &Lab, case: Case, part: &str, capabilities: &str, memlock: Option<(u64, u64)>) -> Command {
    let mut command = play(lab, part, capabilities, memlock);
    command.env(CASE, format!("{} {} {}", case.path.name(), case.queue, case.busy_poll));
    command
}

/// The variant that a child plays its part in.
fn case() -> Case {
    let text = std::env::var(CASE).expect("a case");
    let [path, queue, busy_poll] = text.split(' ').collect::<Vec<_>>().try_into().expect("three words");
    let path = MODES.into_iter().find(|mode| mode.name() == path);
    Case {
        path: path.expect("a mode"),
        queue: queue.parse().expect("a number"),
        busy_poll: busy_poll.parse().expect("true or false"),
        wired: false,
    }
}

/// Attaches a program as `ip link set … xdp` does, and waits to be killed.
fn attach_by_netlink(interface: &Interface) {
    let flags = match case().path {
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
    let case = case();
    let options = case.options(QueueOptions::new()).busy_timeout(PATIENCE);
    let port = Port::builder(interface).mode(Mode::Require(case.path)).options(options);
    let mut port = port.open().unwrap();
    println!("says: ready {:?}", port.report());
    let end = Instant::now() + Duration::from_secs(30);
    while Instant::now() < end {
        for queue in port.queues_mut() {
            let mut burst = queue.recv(case.wait()).unwrap();
            for mut packet in &mut burst {
                packet.data_mut()[..12].rotate_left(6);
            }
            burst.send_back().unwrap();
        }
    }
    panic!("nobody killed me");
}

/// The worker of a broker: takes a socket over standard input, sets it up and binds it, answers packets.
fn work(interface: &Interface) {
    let case = case();
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

    let options = case.options(QueueOptions::new().frames(16).tx_ring(16));
    let queue = Queue::builder(interface, case.queue).options(options).socket(socket);
    let mut queue = match queue.open() {
        Ok(queue) => queue,
        Err(error) => {
            println!("says: refused: {error}");
            return;
        }
    };
    println!("says: bound {}", queue.report());
    let end = Instant::now() + Duration::from_mins(1);
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

/// K14: without any capability, and with each one missing in turn, it is told which one and at which step. The packets
/// that come meanwhile notice nothing: all go up the kernel's stack, as before.
#[test]
fn without_capabilities_the_missing_ones_are_named() {
    row_once("K14, MISSING_CAPABILITIES", || {
        for path in MODES {
            let lab = lab("k14none", 2);
            let account = Account::open(&lab.a, &lab.b);
            let flow = Flow::start(&lab.a, &lab.b, &[0, 1], 500);
            for (held, missing, action) in [
                ("-all", "CAP_BPF and CAP_NET_ADMIN", "loading the XDP program"),
                ("-all,+bpf,+net_admin,+ipc_lock", "CAP_NET_RAW", "opening an XDP socket"),
                (
                    "-all,+net_raw,+net_admin,+ipc_lock",
                    "CAP_BPF in addition to CAP_NET_ADMIN",
                    "loading the XDP program",
                ),
                (
                    "-all,+net_raw,+bpf,+ipc_lock",
                    "CAP_NET_ADMIN in addition to CAP_BPF",
                    "loading the XDP program",
                ),
                // What takes the place of none of them.
                (
                    "-all,+net_raw,+net_admin,+perfmon,+ipc_lock",
                    "CAP_BPF in addition to CAP_NET_ADMIN",
                    "loading the XDP program",
                ),
            ] {
                let case = Case { path, ..CASE_0 };
                let told = said(&mut play_case(&lab, case, "open-port", held, None));
                // It, and nothing but it.
                assert!(
                    told.starts_with("Permission / ") && told.contains(&format!("it needs {missing};")),
                    "{held}: {told}"
                );
                assert!(
                    told.contains(action) && told.contains("veth-b") && told.contains("setcap"),
                    "{held}: {told}"
                );
                assert_clean(&lab.b);
            }
            // A single queue needs no program.
            let told = said(&mut play(&lab, "open-small-queue", "-all", None));
            assert!(
                told.starts_with("Permission / ")
                    && told.contains("opening an XDP socket on veth-b was refused")
                    && told.contains("needs CAP_NET_RAW"),
                "{told}"
            );
            let sent = flow.stop();
            assert!(sent.taken() > 0);
            let balance = account.close(Path::Generic, sent.taken(), 0, KernelStats::default());
            assert_eq!(balance, Balance::EVEN);
        }
    });
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
            let case = Case { path, ..CASE_0 };
            let mut command = play_case(&lab, case, "serve", held, Some((memlock, memlock)));
            let mut server = Guard(command.spawn().unwrap());
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
    row("DROPPED_CAPABILITIES", |case| {
        let lab = case.lab("k14broker");
        let mode = match case.path {
            Path::Generic => AttachMode::Generic,
            _ => AttachMode::Native,
        };
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
        let mut command = play_case(&lab, case, "work", "-all", Some((256 * 1024, 256 * 1024)));
        let mut worker = Guard(command.stdin(Stdio::from(OwnedFd::from(theirs))).spawn().unwrap());
        hand_over(&ours, socket.as_fd());
        let mut lines = BufReader::new(worker.0.stdout.take().unwrap()).lines();
        let mut says = || {
            let said = lines.by_ref().map(Result::unwrap).find(|line| line.contains("says: "));
            said.and_then(|line| Some(line.split_once("says: ")?.1.to_owned()))
                .expect("it says something")
        };
        let said = says();
        if case.busy_poll {
            // https://elixir.bootlin.com/linux/v6.18/C/ident/sk_setsockopt
            assert!(said.contains("BUSY_POLL") && said.contains("CAP_NET_ADMIN"), "{said}");
            let (_, why) = said.split_once("SO_BUSY_POLL_BUDGET").expect("its name");
            return lacks(format!(
                "busy-polling is not to be had without capabilities: SO_BUSY_POLL_BUDGET{why}"
            ));
        }
        assert!(said.contains(&format!("bound queue {}", case.queue)), "{said}");
        map.insert_socket("veth-b", case.queue, socket.as_fd()).unwrap();

        let mut client = open(&lab.a, Path::NativeCopy, |port| port);
        for n in 0..100 {
            send_numbers(queue(&mut client, case.from()), n..n + 1, &lab.a, &lab.b);
            let got = collect(queue(&mut client, case.queue), 1, PATIENCE);
            assert_eq!(got, [n], "answered");
        }
        let said = says();
        assert!(said.contains("answered 100"), "{said}");
        assert!(worker.0.wait().unwrap().success());
        passed()
    });
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

/// K12: kill -9 under traffic: no program stays, the queues are free, and the next one receives at once.
#[test]
fn a_killed_process_leaves_nothing_behind() {
    row("K12, KILL_UNDER_TRAFFIC", |case| {
        let lab = case.lab("k12");
        let mut server = Guard(play_case(&lab, case, "serve", "+all", None).spawn().unwrap());
        let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
        assert!(lines.by_ref().any(|line| line.unwrap().contains("says: ready")));
        assert!(lab.b.state().unwrap().xdp.is_some(), "attached");
        // Traffic that keeps going while the process dies.
        let mut client = case.sender(&lab.a, QueueOptions::new());
        let (a, b) = (lab.a.clone(), lab.b.clone());
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let stopped = stop.clone();
        let traffic = std::thread::spawn(move || {
            let mut n = 0;
            while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
                send_numbers(&mut client, n..n + 8, &a, &b);
                n += 8;
            }
            n
        });
        std::thread::sleep(Duration::from_millis(50));
        server.0.kill().unwrap();
        let start = Instant::now();
        server.0.wait().unwrap();
        let gone = wait_until(PATIENCE, || lab.b.state().unwrap().xdp.is_none());
        assert!(gone, "a program is still attached after {:?}", start.elapsed());
        let mut port = case.port(&lab.b, QueueOptions::new(), |port| port);
        let received = wait_until(PATIENCE, || !only(&mut port).recv(case.wait()).unwrap().is_empty());
        assert!(received, "the new port receives");
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(traffic.join().unwrap() > 0);
        drop(port);
        assert_clean(&lab.b);
    });
}

/// K12, the other half: what was attached by netlink belongs to nobody and survives kill -9. A port leaves it alone, and
/// names it and the command that removes it, which does.
#[test]
fn a_netlink_attachment_survives_its_maker() {
    row("K12", |case| {
        let lab = case.lab("k12netlink");
        let mut maker = Guard(
            play_case(&lab, case, "attach-by-netlink", "+all", None)
                .spawn()
                .unwrap(),
        );
        let mut lines = BufReader::new(maker.0.stdout.take().unwrap()).lines();
        let id = lines.find_map(|line| Some(line.unwrap().split_once("says: ")?.1.parse::<u32>().unwrap()));
        let id = id.expect("attached");
        let attached = || lab.b.state().unwrap().xdp.map(|xdp| xdp.prog_id);
        let refusal = || {
            let error =
                common::try_open(&lab.b, Path::NativeCopy, |port| port.queues([case.queue])).expect_err("in the way");
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
        assert!(!wait_until(Duration::from_millis(300), || attached().is_none()), "gone");
        assert_eq!(refusal(), told, "the maker makes no difference");
        assert!(
            told.contains("ringside_xsk") && told.contains(&format!("id {id}")),
            "{told}"
        );
        assert!(!told.contains("held by"), "{told}");
        let (_, command) = told.split_once("To remove it: ").expect("how to");
        let status = lab.b.ns.command("sh").args(["-c", command]).status().unwrap();
        assert!(status.success(), "{command}");
        assert_eq!(attached(), None, "{command}");
        drop(case.port(&lab.b, QueueOptions::new(), |port| port));
        assert_clean(&lab.b);
    });
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
    within(Duration::from_secs(30), {
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
