//! Ways to attach a guest (docs/attachments.md), each with a NIC of the one guest:
//!
//! ```text
//!  host A 10.77.N.1 ──veth── host B ⇢ ethN 10.77.N.2        N: 11, 12, … a way each
//! ```

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use ringside_bpf::Redirected;
use ringside_netlab::attach::{AttachConfig, Attachment, Uplink, Way};
use ringside_netlab::guest::{Guest, GuestConfig};
use ringside_netlab::{Error, Lab, VethConfig};

use super::{PATIENCE, RINGSIDE};

/// Goes to the guest and back again.
const BYTES: usize = 1 << 20;

/// Open in no guest.
const CLOSED_PORT: u16 = 33434;

pub(super) struct Attached {
    paths: Vec<OnePath>,
}

struct OnePath {
    number: u8,
    lab: Lab,
    attachment: Attachment,
}

impl Attached {
    /// All ways that a machine has without special hardware.
    pub(super) fn new() -> Self {
        let ways = [
            Way::TapBridge,
            Way::Macvtap,
            Way::Xdp,
            Way::Express,
            Way::AfXdp,
            Way::OvsUserspace,
        ];
        let paths = (11..).zip(ways).filter_map(|(number, way)| OnePath::new(number, way));
        Self { paths: paths.collect() }
    }

    pub(super) fn configure(&self, config: &mut GuestConfig) {
        let nics = self.paths.iter().map(|path| path.attachment.nic(path.interface()));
        config.nics.extend(nics);
        config.programs.push("bash".into());
    }

    /// For a shell in the guest.
    pub(super) fn script(&self) -> String {
        let one = |path: &OnePath| {
            let (number, interface) = (path.number, path.interface());
            format!("ip addr add 10.77.{number}.2/24 dev {interface}; ip link set {interface} up\n")
        };
        self.paths.iter().map(one).collect()
    }

    pub(super) fn carry_packets(&self, guest: &Guest) {
        for path in &self.paths {
            let begin = Instant::now();
            path.answers_ping();
            path.carries_bytes(guest);
            path.completes_checksums();
            path.attachment.check().expect("it runs");
            eprintln!("{}: {:?}", path.attachment.way(), begin.elapsed());
        }
    }

    /// After the guest.
    pub(super) fn leave_nothing(self) {
        for OnePath { lab, attachment, .. } in self.paths {
            let way = attachment.way();
            drop(attachment);
            let left = lab.b.run(|| fs::read_dir("/sys/class/net").expect("sysfs").flatten());
            let mut left: Vec<_> = left.filter_map(|entry| entry.file_name().into_string().ok()).collect();
            left.sort();
            // Bonding's file is there where the kernel has bonding.
            left.retain(|name| name != "bonding_masters");
            assert_eq!(left, ["lo", lab.b.interface.name()], "{way}");
            let feature = |name| lab.a.run(|| lab.a.interface.feature(name).expect("known")).active;
            assert_eq!(
                ["tx-checksum-ip-generic", "rx-gro"].map(feature),
                [true, false],
                "{way}"
            );
        }
    }
}

impl OnePath {
    fn new(number: u8, way: Way) -> Option<Self> {
        let lab = Lab::veth(VethConfig {
            hosts: [1, 0],
            subnet: number,
            ipv6: false,
            ..VethConfig::tagged(format!("attach{number}"))
        });
        let lab = lab.expect("test bed");
        let mut config = AttachConfig::new(format!("g{number}"));
        config.ringside = RINGSIDE.into();
        config.express = Redirected::Udp(CLOSED_PORT);
        match Attachment::make(way, &Uplink::of(&lab), &config) {
            Ok(attachment) => Some(Self {
                number,
                lab,
                attachment,
            }),
            Err(Error::Missing { what, advice, .. }) => {
                ringside_netlab::testing::skip(&format!("{way}: {what}; {advice}"));
                None
            }
            Err(error) => panic!("{way}: {error}"),
        }
    }

    fn interface(&self) -> String {
        format!("eth{}", self.number)
    }

    fn guest(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.number, 2)
    }

    /// Both find each other by ARP.
    fn answers_ping(&self) {
        let mut ping = self.lab.a.ns.command("ping");
        let ping = ping
            .args(["-c2", "-i0.2", "-w60", &self.guest().to_string()])
            .output()
            .expect("ping");
        let said = String::from_utf8_lossy(&ping.stdout);
        assert!(ping.status.success(), "{}: {said}", self.attachment.way());
    }

    /// In long packets where the way takes them, with checksums left to the device at this end.
    fn carries_bytes(&self, guest: &Guest) {
        let way = self.attachment.way();
        let a = &self.lab.a;
        let listener = a.run(|| TcpListener::bind((a.ipv4, 0))).expect("listens");
        let to = listener.local_addr().expect("bound");
        let script = format!("exec 3<>/dev/tcp/{}/{} && cat <&3 >&3", to.ip(), to.port());
        let mut child = guest.command("bash").args(["-c", &script]).spawn().expect("starts");
        listener.set_nonblocking(true).expect("set");
        let mut accepted = None;
        ringside_netlab::wait_until(PATIENCE, || {
            accepted = listener.accept().ok();
            accepted.is_some()
        });
        let Some((stream, _)) = accepted else {
            panic!(
                "{way}: nobody calls; {:?}",
                child.wait_for("x", Duration::from_millis(1))
            );
        };
        stream.set_nonblocking(false).expect("set");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream.set_write_timeout(Some(PATIENCE)).expect("set");
        let sent: Vec<u8> = (0..BYTES)
            .map(|at| u8::try_from(at * 7 % 251).expect("small"))
            .collect();
        let mut received = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                (&stream)
                    .write_all(&sent)
                    .unwrap_or_else(|error| panic!("{way}: {error}"));
                stream.shutdown(std::net::Shutdown::Write).expect("shut down");
            });
            (&stream)
                .read_to_end(&mut received)
                .unwrap_or_else(|error| panic!("{way}: {error}"));
        });
        assert!(received == sent, "{way}: {} of {BYTES} bytes came back", received.len());
        let done = child.wait(PATIENCE).expect("ends");
        assert!(done.status.success(), "{way}: {done:?}");
    }

    /// The guest's kernel refuses a datagram to a port that nobody has opened only if its checksum is right, which the sender leaves to a device
    /// that there is not.
    fn completes_checksums(&self) {
        let a = &self.lab.a;
        let socket = a.run(|| UdpSocket::bind((a.ipv4, 0))).expect("socket");
        socket.connect((self.guest(), CLOSED_PORT)).expect("a route");
        socket.set_read_timeout(Some(Duration::from_secs(1))).expect("set");
        // The guest says so to one sender once a second.
        let refused = ringside_netlab::wait_until(PATIENCE, || {
            let sent = socket.send(b"is anybody there?");
            let answer = sent.and_then(|_| socket.recv(&mut [0; 16]));
            answer.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
        });
        assert!(refused, "{}: no datagram was whole", self.attachment.way());
        if let Attachment::Xdp(xdp) = &self.attachment {
            let [to_guest, from_guest] = xdp.traffic().expect("counted");
            assert!(to_guest.packets > 0, "{to_guest:?}");
            // On the express lane are datagrams to that port alone, and the guest sends none.
            let all = xdp.bridge().is_none();
            assert_eq!(
                (from_guest.packets > 0, to_guest.passed == 0),
                (all, all),
                "{to_guest:?} {from_guest:?}"
            );
        }
    }
}
