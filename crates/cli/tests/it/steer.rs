//! `ringside steer` over a veth pair of three queues: set, verified by sending and counting, wrong steering told, and put back, also after
//! a kill. What takes rules and interrupts is in `guest.rs`.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::common::{Done, Running, lab, ringside};
use ringside_measure::schema::{Outcome, SteerClass, SteerLanding, SteerResult, SteerTo};
use ringside_netlab::Lab;
use ringside_netlab::testing::is_root;
use ringside_nic::{Interface, Knob};

/// A veth pair, and a state directory of its own: the runs of other tests put back what is left behind.
struct Bed {
    lab: Lab,
    folder: PathBuf,
}

impl Bed {
    fn new(tag: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ringside-{tag}-{}", std::process::id()));
        _ = fs::remove_dir_all(&folder);
        Self {
            lab: lab(tag, 3),
            folder,
        }
    }

    /// In the namespace of the end that receives; `{}` is its interface.
    fn start(&self, arguments: &str) -> Running {
        let mut command = ringside(&self.lab.b, arguments);
        command.env("RINGSIDE_STATE_DIR", &self.folder);
        Running::new(command)
    }

    /// 100 packets of each class, sent on CPU 0 from the other end.
    fn steer(&self, options: &str) -> Done {
        let from = format!("{}@{}", self.lab.a.interface.name(), self.lab.a.ns.name());
        self.start(&format!(
            "steer run {{}} --from {from} --send-cpu 0 -t 0.1 --rate 1000 --json {options}"
        ))
        .end()
    }

    /// RPS at the end that receives, XPS at the one that sends.
    fn now(&self) -> [String; 4] {
        let [a, b] = [&self.lab.a, &self.lab.b];
        let knob = |interface: &Interface, knob| interface.knob(&knob).unwrap();
        let rps = [0, 1].map(|queue| b.run(|| knob(&b.interface, Knob::RpsCpus { queue })));
        let xps = [0, 2].map(|queue| a.run(|| knob(&a.interface, Knob::XpsCpus { queue })));
        let [first, second] = rps;
        let [third, fourth] = xps;
        [first, second, third, fourth]
    }

    fn assert_nothing_is_left(&self) {
        assert_eq!(self.now(), ["none"; 4].map(str::to_owned));
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let states = files.filter(|file| file.path().extension().is_some_and(|kind| kind == "json"));
        assert_eq!(states.count(), 0);
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.folder);
    }
}

fn result(done: &Done) -> SteerResult {
    match done.document().result {
        Outcome::Steer(result) => *result,
        other => panic!("no steering: {other:?}"),
    }
}

/// All packets of a class are in one place.
fn assert_all_in(class: &SteerClass, queue: u32, cpu: u32) {
    let packets = class.sent_packets.expect("sent by us");
    assert!(packets > 0);
    assert_eq!(
        class.landings,
        [SteerLanding {
            queue,
            cpu,
            to: SteerTo::Stack,
            packets
        }],
        "{class:#?}"
    );
}

#[test]
fn packets_land_where_they_are_steered() {
    if !is_root() {
        return;
    }
    let bed = Bed::new("steer");
    // What CPU 0 sends leaves by transmit queue 2, which the stack at the other end of a veth takes for receive queue 1: see
    // docs/steering.md. RPS has CPU 1 work on it.
    let done = bed
        .steer("--xps 2=0 --rps 1=1 --class pcp:5=1@1 --class udp:7000=1@1")
        .good();
    let right = result(&done);
    for class in &right.classes {
        assert_all_in(class, 1, 1);
    }
    assert!(right.is_right() && right.sentences.len() == 2, "{:#?}", right.sentences);
    assert_eq!(right.settings.len(), 2);
    assert!(
        right.settings.iter().all(|one| one.wanted == one.obtained),
        "{right:#?}"
    );
    let by_rps = right.cpus.iter().find(|cpu| cpu.cpu == 1).expect("CPU 1").received_rps;
    assert!(by_rps > 0, "{right:#?}");
    assert_eq!((right.rules, right.driver.as_deref()), (None, Some("veth")));
    assert!(
        done.err.contains("RPS CPUs of receive queue 1: 1, put back at the end"),
        "{}",
        done.err
    );
    assert!(
        done.err.contains("XPS CPUs of transmit queue 2 (none → 0): restored"),
        "{}",
        done.err
    );
    bed.assert_nothing_is_left();

    // The other way round, and asked for the same: it is told what is wrong, and why.
    let wrong = bed.steer("--xps 0=0 --rps 0=0 --class udp:7000=1@1 --require-right");
    assert!(!wrong.status.success());
    let told = result(&wrong);
    assert_all_in(&told.classes[0], 0, 0);
    let sent = told.classes[0].sent_packets.unwrap();
    let sentence = format!(
        "UDP port 7000: {sent} of {sent} packets arrived on queue 0, CPU 0, asked for queue 1, CPU 1: veth has no rules for queues: \
         the sender's transmit queue decides, which its CPU chooses by XPS; RPS spreads queue 0 over CPUs 0"
    );
    assert_eq!(told.sentences[0].text, sentence);
    assert!(wrong.err.contains(&sentence), "{}", wrong.err);
    bed.assert_nothing_is_left();
}

/// Nobody asks for a place, and nothing is set: what others send is counted all the same, and as text.
#[test]
fn what_others_send_is_counted() {
    if !is_root() {
        return;
    }
    let bed = Bed::new("steerlook");
    let end = &bed.lab.a;
    let socket = end.run(|| std::net::UdpSocket::bind("10.77.0.1:0").unwrap());
    let running = bed.start("steer run {} --class udp:9 -t 1 -v");
    let ended = std::sync::atomic::AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                socket.send_to(b"x", "10.77.0.2:9").unwrap();
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        let done = running.end();
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        done.good()
    });
    assert!(
        done.out.contains("UDP port 9") && done.out.contains("all else"),
        "{}",
        done.out
    );
    let none = bed.start("steer run {} --class udp:10 -t 0.1").end();
    assert!(
        !none.status.success() && none.err.contains("does somebody send?"),
        "{none:#?}"
    );
    let shown = bed.start("steer show {} -t 0.1").end().good();
    assert!(
        shown.out.contains("The driver has no rules for queues (ethtool -N)."),
        "{}",
        shown.out
    );
    bed.assert_nothing_is_left();
}

#[test]
fn that_vhost_is_not_there_is_told() {
    if !is_root() {
        return;
    }
    let bed = Bed::new("steervhost");
    let own = std::process::id();
    let done = bed.steer(&format!("--class udp:9 --pin {own}:vhost=0"));
    let has_it = fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/vhost-net")
        .is_ok();
    let why = match has_it {
        true => "vhost's are there while a guest runs whose NIC is attached with vhost=on",
        false => "Nobody has vhost's here: /dev/vhost-net cannot be opened",
    };
    assert!(
        !done.status.success()
            && done.err.contains("no thread whose name begins with \"vhost\"")
            && done.err.contains(why),
        "{}",
        done.err
    );
    bed.assert_nothing_is_left();
}

#[test]
fn what_cannot_be_had_is_an_error_and_leaves_nothing() {
    if !is_root() {
        return;
    }
    let bed = Bed::new("steernot");
    for (options, why) in [
        (
            "--rps 0=1 --rule pcp:5=1",
            "ethtool -N veth-b flow-type ether vlan 0xa000 vlan-mask 0x1fff action 1",
        ),
        ("--rps 0=1 --rss 0", "cannot read the table of receive queues"),
        ("--rps 0=1 --irq 0=1", "cannot find the interrupt of receive queue 0"),
        ("--rps 0=1 --egress 3=5", "cannot read the priorities of tags"),
        ("--rps 3=1", "has no receive queue 3"),
        ("--rps 0=1 --pin 1:no-such-thread=0", "no thread whose name begins with"),
        ("--class udp:9", "is there twice"),
    ] {
        let done = bed.steer(&format!("--class udp:9 {options}"));
        assert!(!done.status.success() && done.err.contains(why), "{options}: {done:#?}");
        bed.assert_nothing_is_left();
    }
}

/// A process with a thread to pin.
struct Sleeper(Child);

impl Sleeper {
    fn cpus(&self) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.unwrap().trim().to_owned()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[test]
fn what_a_killed_run_has_left_the_next_one_puts_back() {
    if !is_root() {
        return;
    }
    let bed = Bed::new("steerkill");
    let sleeper = Sleeper(Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap());
    let before = sleeper.cpus();
    let pid = sleeper.0.id();
    let running = bed.start(&format!(
        "steer run {{}} --rps 0=0 --rps 1=0-1 --pin {pid}:sleep=1 --class udp:9 -t 60"
    ));
    running.wait_until("its settings", |err| {
        err.contains(&format!("CPUs of thread {pid}: 1, put back at the end"))
    });
    let set = ["0", "0-1", "none", "none"].map(str::to_owned);
    assert_eq!((bed.now(), sleeper.cpus()), (set.clone(), "1".to_owned()));
    running.signal(libc::SIGKILL);
    assert!(!running.end().status.success());
    assert_eq!(bed.now(), set, "nobody has looked after it yet");
    let next = bed.start("caps {} --json").end().good();
    assert!(
        next.err.contains("left changes behind") && next.err.contains("RPS CPUs of receive queue 1"),
        "{}",
        next.err
    );
    assert_eq!(sleeper.cpus(), before);
    bed.assert_nothing_is_left();
}
