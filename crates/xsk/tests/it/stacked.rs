//! Devices on top of others, which this kernel may lack: in a guest whose kernel has them as
//! modules.
//!
//! ```text
//!  namespace a: stack0 on veth-a ────── veth-b under stack0 :namespace b, where a port opens stack0
//! ```

use std::time::Duration;

use ringside_netlab::guest::{Agent, Guest, GuestConfig, Kernel};
use ringside_netlab::testing::is_root;
use ringside_netlab::{End, Lab, wait_until};
use ringside_xsk::{Error, Interface, Mode, Path, Port, Wait};

use crate::common::{PATIENCE, lab};

/// Kinds of devices with the `ip` commands that make `stack0` on the device `DEV`, whose address is
/// `OWN` and whose peer's are `PEER` and, of its hardware, `HARDWARE`. A team carries nothing
/// without teamd.
const KINDS: [(&str, &str); 11] = [
    ("vlan", "link add link DEV name stack0 type vlan id 5"),
    ("macvlan", "link add link DEV name stack0 type macvlan mode private"),
    ("ipvlan", "link add link DEV name stack0 type ipvlan mode l2"),
    ("bridge", "link add stack0 type bridge; link set DEV master stack0"),
    (
        "bond",
        "link add stack0 type bond mode balance-rr; link set DEV down; link set DEV master stack0",
    ),
    (
        "vxlan",
        "link add stack0 type vxlan id 7 local OWN remote PEER dstport 4789 dev DEV",
    ),
    ("geneve", "link add stack0 type geneve id 7 remote PEER"),
    ("gretap", "link add stack0 type gretap local OWN remote PEER dev DEV"),
    ("gre", "link add stack0 type gre local OWN remote PEER dev DEV"),
    ("ipip", "link add stack0 type ipip local OWN remote PEER dev DEV"),
    (
        "macsec",
        "link add link DEV name stack0 type macsec port 1 encrypt on; \
         macsec add stack0 tx sa 0 pn 1 on key 01 0123456789abcdef0123456789abcdef; \
         macsec add stack0 rx port 1 address HARDWARE; \
         macsec add stack0 rx port 1 address HARDWARE sa 0 pn 1 on key 01 0123456789abcdef0123456789abcdef",
    ),
];

/// Kinds whose packets begin with the IP header.
const WITHOUT_ETHERNET: [&str; 2] = ["gre", "ipip"];

#[test]
#[ignore = "make test-guests runs it"]
fn devices_on_top_of_others() {
    if !is_root() {
        return;
    }
    let kernel = Kernel::usual().expect("a kernel for guests");
    let agent = Agent::test_binary().expect("this binary");
    let own = agent.program.clone();
    let mut config = GuestConfig::new("stacked", kernel, agent);
    let modules = [
        "veth", "8021q", "macvlan", "ipvlan", "bridge", "bonding", "vxlan", "geneve", "ip_gre", "ipip", "macsec",
        "gcm", "xsk_diag",
    ];
    config.modules = modules.map(str::to_owned).to_vec();
    config.programs = ["ip".into(), own.clone()].to_vec();
    let guest = Guest::start(&config).expect("a guest");
    let done = guest
        .command(&own)
        .args([
            "--exact",
            "stacked::each_kind_receives_or_is_refused",
            "--ignored",
            "--nocapture",
        ])
        .env("RINGSIDE_STRICT", "1")
        .limit(Duration::from_mins(10))
        .output()
        .expect("ends");
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && text.contains("1 passed"), "{done:#?}");
    eprintln!("{text}");
}

/// Runs `ip` commands in the namespace of an end.
fn ip(end: &End, commands: &str) {
    for command in commands.split("; ") {
        let done = end
            .ns
            .command("ip")
            .args(command.split_whitespace())
            .output()
            .expect("ip runs");
        assert!(done.status.success(), "ip {command}: {done:?}");
    }
}

fn stack(end: &End, peer: &End, commands: &str, address: &str) {
    let commands = commands
        .replace("DEV", end.interface.name())
        .replace("OWN", &end.ipv4.to_string())
        .replace("PEER", &peer.ipv4.to_string())
        .replace("HARDWARE", &peer.mac.map(|byte| format!("{byte:02x}")).join(":"));
    ip(end, &commands);
    ip(end, &format!("link set stack0 up; addr add {address}/24 dev stack0"));
}

/// Whether a datagram to the port's side comes out of one of its queues.
fn receives(lab: &Lab, port: &mut Port) -> bool {
    let from = lab
        .a
        .run(|| std::net::UdpSocket::bind(("10.88.0.1", 0)).expect("a socket"));
    wait_until(PATIENCE, || {
        _ = from.send_to(&[7; 100], ("10.88.0.2", 9));
        port.queues_mut().any(|queue| {
            let wait = Wait::Poll(Duration::from_millis(5));
            queue.recv(wait).expect("usable").iter_mut().count() != 0
        })
    })
}

#[test]
#[ignore = "devices_on_top_of_others runs it in a guest"]
fn each_kind_receives_or_is_refused() {
    for (kind, commands) in KINDS {
        let lab = lab(&format!("st-{kind}"), 2);
        stack(&lab.a, &lab.b, commands, "10.88.0.1");
        stack(&lab.b, &lab.a, commands, "10.88.0.2");
        let open = |mode| {
            lab.b.run(|| {
                let interface = Interface::by_name("stack0").expect("just made");
                Port::builder(interface).mode(mode).open()
            })
        };
        match open(Mode::Auto) {
            Ok(mut port) => {
                assert!(!WITHOUT_ETHERNET.contains(&kind), "{kind}: has an Ethernet header");
                let report = port.report().to_string();
                assert!(receives(&lab, &mut port), "{kind}: nothing comes: {report}");
                println!("{kind}: {}", port.queues()[0].report().path);
                if kind == "bond" {
                    assert!(report.contains("runs on its members"), "{report}");
                }
            }
            Err(Error::Setting { reason, .. }) if WITHOUT_ETHERNET.contains(&kind) => {
                assert!(reason.contains("no Ethernet header"), "{kind}: {reason}");
                println!("{kind}: refused");
            }
            Err(error) => panic!("{kind}: {error}"),
        }
        if kind == "bond" {
            for path in [Path::ZeroCopy, Path::NativeCopy] {
                let error = open(Mode::Require(path)).expect_err("not on a bond").to_string();
                assert!(error.contains("runs on its members"), "{error}");
            }
        }
    }
}
