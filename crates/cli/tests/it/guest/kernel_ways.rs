//! Ways to attach a guest that take modules which the machine of a test seldom has: Open vSwitch in the kernel, and vhost-net. They are made in a guest, whose
//! kernel has them, by this test binary, which runs there, too.
//!
//! ```text
//!  guest:  a 10.77.0.1 ──veth── b: ovs-system ── TAP device, whose other end the test reads
//!          a 10.77.0.1 ──veth── b: bridge ── TAP device ── vhost-net ── a machine in the guest, which need not get anywhere
//! ```

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ringside_netlab::attach::{AttachConfig, Attachment, Uplink, Way};
use ringside_netlab::guest::{Agent, Guest, GuestConfig, Kernel};
use ringside_netlab::testing::{interfaces, uplinked};
use ringside_netlab::wait_until;
use ringside_nic::process::{Thread, threads};

use super::{PATIENCE, RINGSIDE};

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const QEMU: &str = "qemu-system-x86_64";
const BIOS: &str = "/usr/share/seabios/bios-256k.bin";

/// The guest, and each of the tests below in it.
pub(super) fn are_made_in_a_guest() {
    let own = std::env::current_exe().expect("this binary");
    let mut config = GuestConfig::new(
        "ways",
        Kernel::usual().expect("a kernel for guests"),
        Agent::program(RINGSIDE),
    );
    let programs = [
        "ip",
        "ovsdb-server",
        "ovsdb-tool",
        "ovs-vswitchd",
        "ovs-vsctl",
        "ovs-appctl",
        "ovs-dpctl",
        QEMU,
    ];
    config.programs = programs.map(Into::into).to_vec();
    config.programs.extend([own.clone(), RINGSIDE.into()]);
    config.files = [SCHEMA, BIOS].map(Into::into).to_vec();
    config.modules = ["veth", "tun", "bridge", "openvswitch", "vhost_net"]
        .map(str::to_owned)
        .to_vec();
    config.memory_mib = 1536;
    let guest = Guest::start(&config).expect("a guest");
    for test in ["open_vswitch_in_the_kernel", "vhost_nets_thread_is_pinned"] {
        let name = format!("guest::kernel_ways::{test}");
        let inside = guest
            .command(own.clone())
            .args([&name, "--exact", "--ignored", "--nocapture"])
            .limit(PATIENCE * 3);
        let done = inside.output().expect("runs");
        let said = [&done.stdout, &done.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        assert!(done.status.success(), "{}", said.concat());
        assert!(said[0].contains("1 passed"), "{}", said.concat());
        eprintln!("{}", said[1]);
    }
}

/// A frame with UDP over IPv4 in it, whose checksum is left away.
fn datagram(from: [u8; 6], source: [u8; 4], to: [u8; 4], port: u16, payload: &[u8]) -> Vec<u8> {
    let length = |more: usize| u16::try_from(payload.len() + more).expect("small").to_be_bytes();
    let mut header = [&[0x45, 0][..], &length(28), &[0, 0, 0, 0, 64, 17, 0, 0], &source, &to].concat();
    let words = header
        .chunks(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    header[10..12].copy_from_slice(&(!u16::try_from(sum & 0xffff).expect("16 bits")).to_be_bytes());
    [
        &[0xff; 6][..],
        &from,
        &[8, 0],
        &header,
        &port.to_be_bytes(),
        &port.to_be_bytes(),
        &length(8),
        &[0, 0],
        payload,
    ]
    .concat()
}

/// What is in front of a packet at a TAP device that offloads are left to, `struct virtio_net_hdr`.
const NOTE: usize = 10;

/// Packets go both ways through the kernel's own datapath; a second one finds nothing of the first, nor does one
/// after a switch that was killed.
#[test]
#[ignore = "runs in a guest"]
fn open_vswitch_in_the_kernel() {
    const PACKETS: u8 = 20;
    let lab = uplinked("ovs");
    let datapaths = || {
        let mut show = lab.b.ns.command("ovs-dpctl");
        let done = show.arg("show").output().expect("ovs-dpctl");
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    // What the switch said, which is in a folder that goes with it.
    let said = || -> String {
        let folders = fs::read_dir(std::env::temp_dir()).expect("readable").flatten();
        let logs = folders.map(|folder| folder.path().join("ovs-vswitchd.out"));
        logs.filter_map(|log| fs::read_to_string(log).ok()).collect()
    };
    // Open vSwitch counts CPUs every ten seconds by a clock that begins with the machine (`count_cpu_cores`), and has none to hear of packets by until it
    // has done so once.
    let up = || -> f64 {
        let text = fs::read_to_string("/proc/uptime").expect("procfs");
        let seconds = text.split(' ').next().and_then(|seconds| seconds.parse().ok());
        seconds.expect("a number")
    };
    assert!(wait_until(PATIENCE, || up() > 11.0));
    let config = AttachConfig::new("t0");
    for is_killed in [false, true, false] {
        let attachment = Attachment::make(Way::OvsKernel, &Uplink::of(&lab), &config).expect("the module is there");
        assert_eq!(attachment.way(), Way::OvsKernel);
        assert_eq!(interfaces(&lab.b.ns), ["br-t0", "lo", "ovs-system", "tap-t0", "veth-b"]);
        let tap = attachment.tap().expect("it has one");
        let [queue] = tap.queues() else { panic!("{tap:?}") };

        let port = 7000;
        let socket = lab
            .a
            .run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)))
            .expect("socket");
        socket.set_broadcast(true).expect("set");
        let mut frame = [0; 2048];
        // The next datagram at the TAP device, if there is one.
        let mut taken = || loop {
            match rustix::io::read(queue, &mut frame) {
                Ok(length) => {
                    let frame = &frame[NOTE..length];
                    if frame[12..14] == [8, 0] && frame[23] == 17 {
                        return Some(frame[42..].to_vec());
                    }
                }
                Err(rustix::io::Errno::AGAIN) => return None,
                Err(error) => panic!("{error}"),
            }
        };
        let send = |payload: &[u8]| socket.send_to(payload, ("10.77.0.255", port)).expect("sent");
        // The switch hears of packets a moment after its ports are there; what came before is lost.
        let begin = Instant::now();
        let hears = || {
            send(b"anybody");
            thread::sleep(Duration::from_millis(20));
            taken().is_some()
        };
        assert!(wait_until(PATIENCE / 4, hears), "{}{}", datapaths(), said());
        eprintln!("the first came through after {:?}", begin.elapsed());
        (0..PACKETS).for_each(|number| _ = send(&[b't', b'o', number]));
        let mut seen = Vec::new();
        let all = || {
            seen.extend(std::iter::from_fn(&mut taken).filter(|payload| payload != b"anybody"));
            seen.len() >= usize::from(PACKETS)
        };
        assert!(wait_until(PATIENCE, all), "{}", datapaths());
        let expected: Vec<_> = (0..PACKETS).map(|number| vec![b't', b'o', number]).collect();
        assert_eq!(seen, expected, "in order");

        // To another socket: the sender's hears what it sends to all.
        let answered = lab
            .a
            .run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port + 1)))
            .expect("socket");
        answered.set_read_timeout(Some(PATIENCE)).expect("set");
        let answer = datagram(config.mac, [10, 77, 0, 9], [10, 77, 0, 255], port + 1, b"back");
        rustix::io::write(queue, &[&[0; NOTE][..], &answer].concat()).expect("sent");
        let mut payload = [0; 16];
        let (length, from) = answered.recv_from(&mut payload).expect("an answer");
        assert_eq!(
            (&payload[..length], from.to_string().as_str()),
            (&b"back"[..], "10.77.0.9:7001")
        );

        // The kernel says what it has switched without its program: all but the first of a flow.
        let shown = datapaths();
        assert!(
            shown.contains("system@ovs-system") && shown.contains("tap-t0"),
            "{shown}"
        );
        let hits = shown
            .split("hit:")
            .nth(1)
            .and_then(|rest| rest.split_whitespace().next());
        let hits: u32 = hits.and_then(|hits| hits.parse().ok()).expect("a number");
        assert!(hits >= u32::from(PACKETS) / 2, "{shown}");
        attachment.check().expect("it runs");
        if is_killed {
            kill_named("ovs-vswitchd");
            assert!(wait_until(PATIENCE, || attachment.check().is_err()), "it was killed");
        }
        drop(attachment);
        assert_eq!(interfaces(&lab.b.ns), ["lo", "veth-b"], "killed: {is_killed}");
        assert_eq!(datapaths(), "", "killed: {is_killed}");
    }
}

/// The one of this guest with such a name.
fn kill_named(name: &str) {
    let is_it = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
    let all = fs::read_dir("/proc").expect("procfs").flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let found: Vec<u32> = numbers.filter(is_it).collect();
    let [pid] = found[..] else { panic!("{found:?}") };
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).expect("small")).expect("not 0");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
}

/// A machine that stands still, killed when this is dropped.
struct Machine(Child);

impl Machine {
    fn start(attachment: &Attachment, mac: [u8; 6], console: &Path) -> Self {
        let [queue] = attachment.tap().expect("it has one").queues() else {
            panic!("one queue")
        };
        // One that a program started here has, too.
        let queue = rustix::io::dup(queue).expect("a descriptor");
        let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
        let child = Command::new(QEMU)
            .args(["-machine", "q35,usb=off,hpet=off", "-accel", "tcg", "-m", "64"])
            .args(["-name", "within,debug-threads=on", "-nodefaults", "-no-user-config"])
            .args(["-display", "none", "-bios", BIOS, "-S"])
            .args(["-netdev", &format!("tap,id=net,fd={},vhost=on", queue.as_raw_fd())])
            .args([
                "-device",
                &format!("virtio-net-pci,netdev=net,mac={mac},disable-legacy=on,romfile="),
            ])
            .stdin(Stdio::null())
            .stderr(fs::File::create(console).expect("a file"))
            .spawn()
            .expect("starts");
        Self(child)
    }

    /// Threads of it with such a name.
    fn threads(&self, name: &str) -> Vec<Thread> {
        let all = threads(self.0.id()).into_iter();
        all.filter(|thread| thread.name.starts_with(name)).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// The CPUs that a thread may run on.
fn cpus_of(thread: &Thread) -> Vec<usize> {
    let id = rustix::process::Pid::from_raw(i32::try_from(thread.id).expect("small"));
    let set = rustix::thread::sched_getaffinity(id).expect("it lives");
    (0..64).filter(|cpu| set.is_set(*cpu)).collect()
}

/// vhost's thread is there as soon as QEMU asks for it, is pinned by `ringside steer`, which says that it ran nowhere else, and is let go of again. What it
/// carries is not tried: the firmware of a machine that is emulated in an emulated one does not ask the network within minutes.
#[test]
#[ignore = "runs in a guest"]
fn vhost_nets_thread_is_pinned() {
    let lab = uplinked("vhost");
    let config = AttachConfig::new("t0");
    let attachment = Attachment::make(Way::VhostNet, &Uplink::of(&lab), &config).expect("the module is there");
    assert_eq!(attachment.way(), Way::VhostNet);
    let a = &lab.a;
    let console = std::env::temp_dir().join("within.log");
    let machine = Machine::start(&attachment, config.mac, &console);
    let said = || fs::read_to_string(&console).unwrap_or_default();
    let vhost = || machine.threads("vhost-");
    assert!(wait_until(PATIENCE, || vhost().len() == 1), "{}", said());
    let free = cpus_of(&vhost()[0]);
    assert_eq!(free, [0, 1], "before anything was set");
    let pid = machine.0.id();
    let mut pin = Command::new(RINGSIDE);
    pin.args(["steer", "run", &format!("{}@{}", a.interface.name(), a.ns.name())]);
    pin.args(["--class", "udp:7000", "--pin", &format!("{pid}:vhost=1")]);
    pin.args(["-t", "3", "--json"]);
    let run = pin.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    // Somebody has to send what is counted.
    let sender = a.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))).expect("socket");
    let pinned = wait_until(PATIENCE, || {
        _ = sender.send_to(b"counted", (a.ipv4, 7000));
        cpus_of(&vhost()[0]) == [1]
    });
    let done = run.wait_with_output().expect("ends");
    let error = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(pinned, "{error}");
    assert!(error.contains("put back") || error.contains("restored"), "{error}");
    assert_eq!(cpus_of(&vhost()[0]), free, "put back");
    drop(machine);
    drop(attachment);
    assert_eq!(interfaces(&lab.b.ns), ["lo", "veth-b"]);
}
