//! What is possible with how little, and what is left when a process is killed: K12 and K14.
//!
//! The processes with less are this very binary, started once more: the test [`child`] then plays the part that the
//! environment names.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::conformance::{Case, lacks, passed, row, row_once};
use common::traffic::{only, queue};
use common::{MODES, assert_clean, collect, lab, open, send_numbers, within};
use ringside_bpf::{Filter, XskProgram};
use ringside_netlab::testing::is_root;
use ringside_netlab::{Lab, wait_until};
use ringside_xsk::{AttachMode, Error, Interface, Mode, Path, Port, Queue, QueueOptions, Wait, XdpLink, XskMap};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

const PART: &str = "RINGSIDE_TEST_PART";
const CASE: &str = "RINGSIDE_TEST_CASE";
const PATIENCE: Duration = Duration::from_secs(2);

/// This binary once more, in the namespace of an end, with no other capabilities than those named, playing a part.
fn play(lab: &Lab, part: &str, capabilities: &str, memlock: Option<u64>) -> Command {
    let mut command = lab.b.ns.command("setpriv");
    // Root gets all that its bounding set has on exec: so the bounding set is what counts.
    command
        .arg(format!("--bounding-set={capabilities}"))
        .arg("--inh-caps=-all");
    if let Some(bytes) = memlock {
        command.args(["prlimit", &format!("--memlock={bytes}:{bytes}")]);
    }
    command
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(PART, part)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

/// As [`play`], for a variant of a row.
fn play_case(lab: &Lab, case: Case, part: &str, capabilities: &str, memlock: Option<u64>) -> Command {
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

/// What a child said after "says: ".
fn said(command: &mut Command) -> String {
    let output = command.output().expect("runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said: Vec<&str> = text
        .lines()
        .filter_map(|line| Some(line.split_once("says: ")?.1))
        .collect();
    assert!(output.status.success() && !said.is_empty(), "{}\n{text}", output.status);
    said.join("\n")
}

/// Ends a child in any case.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Not a test by itself: what the other processes do.
#[test]
fn child() {
    let Ok(part) = std::env::var(PART) else { return };
    let interface = Interface::by_name("veth-b").expect("in the namespace");
    match part.as_str() {
        "open-port" => say_outcome(Port::builder(interface).open().map(drop)),
        "open-queue" => say_outcome(Queue::builder(&interface, 1).open().map(drop)),
        "open-small-queue" => {
            let options = QueueOptions::new().frames(16).tx_ring(16);
            say_outcome(Queue::builder(&interface, 1).options(options).open().map(drop));
        }
        "open-two-queues" => {
            let options = QueueOptions::new().frames(16).tx_ring(16);
            let open = |queue| Queue::builder(&interface, queue).options(options.clone()).open();
            // The limit is the user's, so that another process may take its part of it.
            say_outcome(open(0).and_then(|first| open(1).map(|second| drop((first, second)))));
        }
        "serve" => serve(interface, case()),
        "work" => work(&interface, case()),
        other => panic!("{other}"),
    }
}

fn say_outcome(outcome: Result<(), Error>) {
    match outcome {
        Ok(()) => println!("says: opened"),
        Err(error) => {
            let debug = format!("{error:?}");
            println!("says: {} / {error}", debug.split([' ', '(']).next().unwrap());
        }
    }
}

/// Receives and sends back until killed.
fn serve(interface: Interface, case: Case) {
    let options = case.options(QueueOptions::new());
    let port = Port::builder(interface).mode(Mode::Require(case.path)).options(options);
    let mut port = port.queues([case.queue]).open().unwrap();
    println!("says: ready");
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
fn work(interface: &Interface, case: Case) {
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

/// K14: without any capability it is told which one is missing, at each step.
#[test]
fn without_capabilities_the_missing_ones_are_named() {
    row_once("K14, MISSING_CAPABILITIES", || {
        let lab = lab("k14none", 2);
        // Not so little memory that this would be the first thing to fail.
        let said_port = said(&mut play(&lab, "open-port", "-all", None));
        assert!(said_port.starts_with("Permission / "), "{said_port}");
        assert!(
            said_port.contains("CAP_BPF and CAP_NET_ADMIN") && said_port.contains("setcap"),
            "{said_port}"
        );

        let said_queue = said(&mut play(&lab, "open-small-queue", "-all", None));
        assert!(said_queue.starts_with("Permission / "), "{said_queue}");
        assert!(
            said_queue.contains("opening an XDP socket on veth-b was refused"),
            "{said_queue}"
        );
        assert!(said_queue.contains("needs CAP_NET_RAW"), "{said_queue}");

        // The program can be loaded and attached, but not the sockets opened.
        let some = "-all,+bpf,+perfmon,+net_admin,+ipc_lock";
        let said_port = said(&mut play(&lab, "open-port", some, None));
        assert!(
            said_port.starts_with("Permission / ") && said_port.contains("needs CAP_NET_RAW"),
            "{said_port}"
        );
        assert_clean(&lab.b);

        // Neither half of what loading needs is enough.
        for half in ["-all,+net_raw,+bpf,+perfmon", "-all,+net_raw,+net_admin,+perfmon"] {
            let said_port = said(&mut play(&lab, "open-port", half, None));
            assert!(said_port.starts_with("Permission / "), "{said_port}");
            assert!(said_port.contains("CAP_BPF and CAP_NET_ADMIN"), "{said_port}");
        }

        // And these are enough.
        let enough = "-all,+net_raw,+net_admin,+bpf,+perfmon,+ipc_lock";
        assert_eq!(said(&mut play(&lab, "open-port", enough, Some(4096))), "opened");
        // Without CAP_PERFMON the verifier lets no packet pointer move by a length that was read, and it is named.
        let less = "-all,+net_raw,+net_admin,+bpf,+ipc_lock";
        let told = said(&mut play(&lab, "open-port", less, None));
        assert!(
            told.starts_with("Permission / ") && told.contains("CAP_PERFMON"),
            "{told}"
        );
        assert_clean(&lab.b);
    });
}

/// K14: with CAP_NET_RAW alone the locked memory is limited, and the error has the exact number of bytes.
#[test]
fn too_little_locked_memory_is_told_to_the_byte() {
    if !is_root() {
        return;
    }
    let lab = lab("k14memory", 2);
    let told = said(&mut play(&lab, "open-queue", "-all,+net_raw", Some(256 * 1024)));
    assert!(told.starts_with("Memory / "), "{told}");
    assert!(
        told.contains("1048576 bytes of memory are needed")
            && told.contains("RLIMIT_MEMLOCK is 262144 bytes and CAP_IPC_LOCK is missing"),
        "{told}"
    );
    assert!(
        told.contains("CAP_IPC_LOCK") && told.contains("ulimit -l") && told.contains("veth-b queue 1"),
        "{told}"
    );
    let told = said(&mut play(&lab, "open-small-queue", "-all,+net_raw", Some(256 * 1024)));
    assert_eq!(told, "opened", "32 KiB are within the limit");
    // Within the limit by itself, but not together with what is locked already: the kernel tells.
    let told = said(&mut play(&lab, "open-two-queues", "-all,+net_raw", Some(48 * 1024)));
    assert!(
        told.starts_with("Memory / ") && told.contains("32768 bytes of memory are needed"),
        "{told}"
    );
    assert!(
        told.contains("refused to pin") && told.contains("49152 bytes"),
        "{told}"
    );
    // With the capability the limit does not count.
    let told = said(&mut play(&lab, "open-queue", "-all,+net_raw,+ipc_lock", Some(4096)));
    assert_eq!(told, "opened");
    assert_clean(&lab.b);
}

/// A socket made by a privileged process works in one without any capability, memory and bind included.
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
        let mut command = play_case(&lab, case, "work", "-all", Some(256 * 1024));
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
            assert!(
                said.contains("SO_PREFER_BUSY_POLL") && said.contains("CAP_NET_ADMIN"),
                "{said}"
            );
            let (_, why) = said.split_once("SO_PREFER").expect("its name");
            return lacks(format!(
                "busy-polling is not to be had without capabilities: SO_PREFER{why}"
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

/// K12: kill -9 under traffic: no program stays, the queue is free, and the next one receives at once.
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
        let gone = wait_until(Duration::from_secs(1), || lab.b.state().unwrap().xdp.is_none());
        assert!(gone, "a program is still attached after {:?}", start.elapsed());
        // On a machine that is short of processors the kernel's worker that frees the queue waits its turn.
        let options = QueueOptions::new().busy_timeout(Duration::from_secs(5));
        let mut port = case.port(&lab.b, options, |port| port);
        let received = wait_until(PATIENCE, || !only(&mut port).recv(case.wait()).unwrap().is_empty());
        assert!(received, "the new port receives");
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(traffic.join().unwrap() > 0);
        drop(port);
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
