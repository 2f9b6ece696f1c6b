//! Devices on top of others, which this kernel may lack: in a guest whose kernel has them as
//! modules.
//!
//! ```text
//!  namespace a: stack0 on veth-a ────── veth-b under stack0 :namespace b, where a port opens stack0
//! ```

use std::fs::File;
use std::time::Duration;

use ringside_netlab::guest::{Agent, Guest, GuestConfig, Kernel};
use ringside_netlab::testing::is_root;
use ringside_netlab::{End, Lab, VethConfig, wait_until};
use ringside_xsk::{Error, Interface, Mode, Path, Port, Wait};
use rustix::ioctl;

use crate::common::PATIENCE;

/// Kinds of devices with the commands that make `stack0` on the device `DEV`, whose addresses are
/// `OWN` and `OWN6` and whose peer's are `PEER`, `PEER6` and, of its hardware, `HARDWARE`. A command
/// without a program's name is one of `ip`.
const KINDS: [(&str, &str); 41] = [
    ("vlan", "link add link DEV name stack0 type vlan id 5"),
    ("qinq", "link add link DEV name stack0 type vlan proto 802.1ad id 5"),
    ("macvlan", "link add link DEV name stack0 type macvlan mode private"),
    ("macvtap", "link add link DEV name stack0 type macvtap mode private"),
    ("ipvlan", "link add link DEV name stack0 type ipvlan mode l2"),
    (
        "ipvlan-l3",
        "link add link DEV name stack0 type ipvlan mode l3; \
         neigh add 10.88.0.2 lladdr HARDWARE dev DEV",
    ),
    ("ipvtap", "link add link DEV name stack0 type ipvtap mode l2"),
    ("bridge", "link add stack0 type bridge; link set DEV master stack0"),
    (
        "team",
        "link add stack0 type team; link set DEV down; link set DEV master stack0",
    ),
    // Its own port has number 0, and DEV number 1.
    (
        "openvswitch",
        "ovs-dpctl add-dp stack0; ovs-dpctl add-if stack0 DEV; \
         ovs-dpctl add-flow stack0 in_port(0),eth(),eth_type(0x0806),arp() 1; \
         ovs-dpctl add-flow stack0 in_port(1),eth(),eth_type(0x0806),arp() 0; \
         ovs-dpctl add-flow stack0 in_port(0),eth(),eth_type(0x0800),ipv4(frag=no) 1; \
         ovs-dpctl add-flow stack0 in_port(1),eth(),eth_type(0x0800),ipv4(frag=no) 0",
    ),
    ("bond-rr", BOND),
    ("bond-backup", BOND),
    ("bond-xor", BOND),
    ("bond-broadcast", BOND),
    ("bond-802.3ad", BOND),
    ("bond-tlb", BOND),
    ("bond-alb", BOND),
    ("vrf", "link add stack0 type vrf table 7; link set DEV master stack0"),
    ("hsr", RING),
    ("prp", RING),
    ("batadv", "link add stack0 type batadv; link set DEV master stack0"),
    (
        "vxlan",
        "link add stack0 type vxlan id 7 local OWN remote PEER dstport 4789 dev DEV",
    ),
    ("geneve", "link add stack0 type geneve id 7 remote PEER"),
    ("gretap", "link add stack0 type gretap local OWN remote PEER dev DEV"),
    (
        "erspan",
        "link add stack0 type erspan seq key 7 local OWN remote PEER dev DEV erspan_ver 1 erspan 7",
    ),
    (
        "ip6gretap",
        "link add stack0 type ip6gretap local OWN6 remote PEER6 dev DEV",
    ),
    (
        "ip6erspan",
        "link add stack0 type ip6erspan seq key 7 local OWN6 remote PEER6 dev DEV \
         erspan_ver 1 erspan 7",
    ),
    (
        "l2tp",
        "l2tp add tunnel tunnel_id 1 peer_tunnel_id 1 encap ip local OWN remote PEER; \
         l2tp add session name stack0 tunnel_id 1 session_id 1 peer_session_id 1",
    ),
    ("gre", "link add stack0 type gre local OWN remote PEER dev DEV"),
    ("ip6gre", "link add stack0 type ip6gre local OWN6 remote PEER6 dev DEV"),
    ("ipip", "link add stack0 type ipip local OWN remote PEER dev DEV"),
    ("sit", "link add stack0 type sit mode any local OWN remote PEER dev DEV"),
    (
        "ip6tnl",
        "link add stack0 type ip6tnl mode any local OWN6 remote PEER6 dev DEV",
    ),
    ("vti", "link add stack0 type vti key 7 local OWN remote PEER dev DEV"),
    (
        "vti6",
        "link add stack0 type vti6 key 7 local OWN6 remote PEER6 dev DEV",
    ),
    ("ppp", "link set ppp0 name stack0"),
    ("xfrm", "link add stack0 type xfrm dev DEV if_id 7"),
    ("wireguard", "link add stack0 type wireguard"),
    ("gtp", "link add stack0 type gtp role sgsn"),
    ("ovpn", "link add stack0 type ovpn"),
    (
        "macsec",
        "link add link DEV name stack0 type macsec port 1 encrypt on; \
         macsec add stack0 tx sa 0 pn 1 on key 01 0123456789abcdef0123456789abcdef; \
         macsec add stack0 rx port 1 address HARDWARE; \
         macsec add stack0 rx port 1 address HARDWARE sa 0 pn 1 on key 01 0123456789abcdef0123456789abcdef",
    ),
];

/// A bond in the mode `MODE`.
const BOND: &str = "link add stack0 type bond mode MODE; link set DEV down; \
                    link set DEV master stack0";

/// A redundant ring of the protocol `MODE`, whose second link carries nothing.
const RING: &str = "link add spare0 type dummy; link set spare0 up; \
                    link add stack0 type hsr slave1 DEV slave2 spare0 proto MODE";

/// Kinds whose packets begin with the IP header.
const WITHOUT_ETHERNET: [&str; 12] = [
    "gre",
    "ip6gre",
    "ipip",
    "sit",
    "ip6tnl",
    "vti",
    "vti6",
    "ppp",
    "xfrm",
    "wireguard",
    "gtp",
    "ovpn",
];

/// Returns what a kind's `MODE` is.
fn mode(kind: &str) -> &str {
    match kind {
        "hsr" => "0",
        "prp" => "1",
        "bond-rr" => "balance-rr",
        "bond-backup" => "active-backup",
        "bond-xor" => "balance-xor",
        "bond-tlb" => "balance-tlb",
        "bond-alb" => "balance-alb",
        bond => bond.trim_start_matches("bond-"),
    }
}

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
        "veth",
        "dummy",
        "8021q",
        "macvlan",
        "macvtap",
        "ipvlan",
        "ipvtap",
        "bridge",
        "team",
        "openvswitch",
        "ppp_generic",
        "bonding",
        "vrf",
        "hsr",
        "batman-adv",
        "vxlan",
        "geneve",
        "l2tp_ip",
        "l2tp_netlink",
        "l2tp_eth",
        "ip_gre",
        "ip6_gre",
        "ipip",
        "sit",
        "ip6_tunnel",
        "ip_vti",
        "ip6_vti",
        "xfrm_interface",
        "wireguard",
        "gtp",
        "ovpn",
        "macsec",
        "gcm",
        "xsk_diag",
    ];
    config.modules = modules.map(str::to_owned).to_vec();
    config.programs = ["ip".into(), "ovs-dpctl".into(), own.clone()].to_vec();
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

/// Why a device could not be made.
type Made = Result<(), String>;

/// Runs commands of `ip`, or of the program that they begin with, in the namespace of an end.
fn run(end: &End, commands: &str) -> Made {
    for command in commands.split("; ") {
        let mut words: Vec<&str> = command.split_whitespace().collect();
        if words[0] != "ovs-dpctl" {
            words.insert(0, "ip");
        }
        let done = end.ns.command(words[0]).args(&words[1..]).output().expect("it runs");
        if !done.status.success() {
            return Err(format!("{words:?}: {done:?}"));
        }
    }
    Ok(())
}

/// Makes `ppp0` on an end, where it stays as long as this is open.
fn ppp(end: &End) -> File {
    // PPPIOCNEWUNIT of linux/ppp-ioctl.h.
    const NEW_UNIT: ioctl::Opcode = ioctl::opcode::read_write::<i32>(b't', 62);
    let open = || {
        let unit = File::options().read(true).write(true).open("/dev/ppp").expect("ppp");
        let mut any: i32 = -1;
        // SAFETY: The kernel reads and writes the number.
        unsafe { ioctl::ioctl(&unit, ioctl::Updater::<NEW_UNIT, i32>::new(&mut any)) }.expect("a unit");
        unit
    };
    end.run(open)
}

/// Makes `stack0` on an end.
fn stack(end: &End, peer: &End, (kind, commands): (&str, &str), address: &str) -> Made {
    let commands = commands
        .replace("MODE", mode(kind))
        .replace("OWN6", &end.ipv6.to_string())
        .replace("PEER6", &peer.ipv6.to_string())
        .replace("DEV", end.interface.name())
        .replace("OWN", &end.ipv4.to_string())
        .replace("PEER", &peer.ipv4.to_string())
        .replace("HARDWARE", &peer.mac.map(|byte| format!("{byte:02x}")).join(":"));
    run(end, &commands)?;
    run(end, &format!("link set stack0 up; addr add {address}/24 dev stack0"))
}

/// Returns whether a datagram to the port's side comes out of one of its queues.
fn receives(lab: &Lab, port: &mut Port, patience: Duration) -> bool {
    const PAYLOAD: [u8; 100] = [7; 100];
    let from = lab
        .a
        .run(|| std::net::UdpSocket::bind(("10.88.0.1", 0)).expect("a socket"));
    wait_until(patience, || {
        _ = from.send_to(&PAYLOAD, ("10.88.0.2", 9));
        port.queues_mut().any(|queue| {
            let wait = Wait::Poll(Duration::from_millis(5));
            let mut burst = queue.recv(wait).expect("usable");
            burst.iter_mut().any(|packet| packet.data().ends_with(&PAYLOAD))
        })
    })
}

fn open(lab: &Lab, mode: Mode) -> Result<Port, Error> {
    lab.b.run(|| {
        let interface = Interface::by_name("stack0").expect("just made");
        Port::builder(interface).mode(mode).open()
    })
}

/// Returns what became of a port on this kind of device.
fn try_kind(kind: &str, commands: &str) -> Result<String, String> {
    let config = VethConfig {
        queues: 2,
        tx_checksum: false,
        gro: true,
        ..VethConfig::tagged(format!("st-{kind}"))
    };
    let lab = Lab::veth(config).expect("test bed");
    let _units = (kind == "ppp").then(|| [&lab.a, &lab.b].map(ppp));
    stack(&lab.a, &lab.b, (kind, commands), "10.88.0.1")?;
    stack(&lab.b, &lab.a, (kind, commands), "10.88.0.2")?;
    let is_bond = kind.starts_with("bond");
    if is_bond {
        for path in [Path::ZeroCopy, Path::NativeCopy] {
            let error = open(&lab, Mode::Require(path)).expect_err("not on a bond").to_string();
            assert!(error.contains("runs on its members"), "{error}");
        }
    }
    let refused = match kind {
        "vrf" => Some("use the interfaces in it"),
        kind if WITHOUT_ETHERNET.contains(&kind) => Some("no Ethernet header"),
        _ => None,
    };
    let mut port = match (open(&lab, Mode::Auto), refused) {
        (Ok(port), None) => port,
        (Err(Error::Setting { reason, .. }), Some(why)) if reason.contains(why) => {
            return Ok(format!("refused: {why}"));
        }
        (opened, _) => return Err(format!("{:?}", opened.map(|port| port.report().to_string()))),
    };
    let report = port.report().to_string();
    match (is_bond, report.contains("runs on its members")) {
        (true, false) | (false, true) => return Err(report),
        _ => {}
    }
    // A team has no mode without teamd, and carries nothing.
    // A mesh takes no ARP for its first 30 s where its nodes may be joined by a bridge as well
    // (bridge_loop_avoidance.c, BATADV_BLA_WAIT_PERIODS).
    let patience = if kind == "batadv" { 3 * PATIENCE } else { PATIENCE };
    match kind == "team" || receives(&lab, &mut port, patience) {
        true => Ok(port.queues()[0].report().path.to_string()),
        false => Err(format!("nothing comes: {report}")),
    }
}

#[test]
#[ignore = "devices_on_top_of_others runs it in a guest"]
fn each_kind_receives_or_is_refused() {
    let mut failures = Vec::new();
    for (kind, commands) in KINDS {
        match try_kind(kind, commands) {
            Ok(outcome) => println!("{kind}: {outcome}"),
            Err(failure) => failures.push(format!("{kind}: {failure}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
