//! Ways to attach a guest, mostly without one: what is made and removed, what this machine lacks, and what a killed process leaves. With a guest they are
//! tried by crates/cli/tests/it/guest.rs.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use ringside_bpf::{Generator, GeneratorOptions, TapRings};
use ringside_netlab::attach::{AttachConfig, Attachment, PciAddress, Uplink, VHOST_NET, Vfio, Way};
use ringside_netlab::guest::{Agent, Guest, GuestConfig, Kernel, Model};
use ringside_netlab::testing::{interfaces, is_root, skip, uplinked};
use ringside_netlab::{Device, End, Error, Lab, reap_stale, wait_until};
use ringside_nic::netlink::has_generic_family;

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Offloads that ways change: checksums and GRO of the far end, GRO of the uplink.
fn offloads(lab: &Lab) -> [bool; 3] {
    let feature = |end: &End, name| end.run(|| end.interface.feature(name).expect("known")).active;
    [
        feature(&lab.a, "tx-checksum-ip-generic"),
        feature(&lab.a, "rx-gro"),
        feature(&lab.b, "rx-gro"),
    ]
}

/// None, with a word on it, where Open vSwitch is not installed.
fn make(way: Way, lab: &Lab) -> Option<Attachment> {
    match Attachment::make(way, &Uplink::of(lab), &AttachConfig::new("t0")) {
        Ok(attachment) => Some(attachment),
        Err(Error::Missing { what, advice, .. }) => {
            skip(&format!("{way}: {what}; {advice}"));
            None
        }
        Err(error) => panic!("{way}: {error}"),
    }
}

#[test]
fn what_is_made_is_removed() {
    if !is_root() {
        return;
    }
    let lab = uplinked("made");
    for (way, devices) in [
        (Way::TapBridge, &["br-t0", "tap-t0"][..]),
        (Way::Macvtap, &["mvt-t0"]),
        (Way::Xdp, &["tap-t0"]),
        (Way::Express, &["br-t0", "tap-t0"]),
        (Way::OvsUserspace, &["br-t0", "ovs-netdev", "tap-t0"]),
    ] {
        // Twice: the second one finds nothing of the first.
        for _ in 0..2 {
            let Some(attachment) = make(way, &lab) else { continue };
            assert_eq!(attachment.way(), way);
            let mut expected = [&["lo", "veth-b"], devices].concat();
            expected.sort_unstable();
            assert_eq!(interfaces(&lab.b.ns), expected, "{way}");
            attachment.check().expect("it runs");
            let config = AttachConfig::new("t0");
            assert_eq!(attachment.nic("eth0").mac, config.mac);
            let again = Attachment::make(way, &Uplink::of(&lab), &config).expect_err("the names are taken");
            assert!(again.to_string().contains("t0"), "{way}: {again}");
            drop(attachment);
            assert_eq!(interfaces(&lab.b.ns), ["lo", "veth-b"], "{way}");
            assert_eq!(offloads(&lab), [true, false, false], "{way}");
        }
    }
}

/// Closes a listener and waits until its socket refuses connections.
///
/// A child that another thread has forked holds the listener, too, until it executes its program.
fn close(listener: UnixListener, path: &Path) {
    drop(listener);
    let is_refused = || UnixStream::connect(path).is_err();
    assert!(wait_until(PATIENCE, is_refused), "{} accepts", path.display());
}

#[test]
fn what_a_machine_lacks_is_named() {
    if !is_root() {
        return;
    }
    let lab = uplinked("lacks");
    let refused = |way, config: &AttachConfig| {
        let error = Attachment::make(way, &Uplink::of(&lab), config).expect_err("it is not there");
        assert!(
            matches!(&error, Error::Missing { way: told, .. } if *told == way),
            "{error:?}"
        );
        assert_eq!(interfaces(&lab.b.ns), ["lo", "veth-b"], "{way}");
        assert_eq!(offloads(&lab), [true, false, false], "{way}");
        error.to_string()
    };
    let mut config = AttachConfig::new("t0");
    config.program = vec!["/nowhere/testpmd".to_owned()];
    let told = refused(Way::VhostUser, &config);
    assert!(
        told.contains("there is no program '/nowhere/testpmd'") && told.contains("dpdk-dev"),
        "{told}"
    );
    config.socket = Some("/nowhere/user.sock".into());
    assert!(refused(Way::VhostUser, &config).contains("/nowhere/user.sock: No such file"));
    config.socket = Some("/dev/null".into());
    assert!(refused(Way::VhostUser, &config).contains("/dev/null: it is no socket"));
    // Its program was killed, and left it behind.
    let left = std::env::temp_dir().join(format!("{}-left.sock", std::process::id()));
    close(UnixListener::bind(&left).expect("a socket"), &left);
    config.socket = Some(left.clone());
    assert!(refused(Way::VhostUser, &config).contains("Connection refused"));
    fs::remove_file(&left).expect("removed");
    // One that ends while it is used.
    let server = UnixListener::bind(&left).expect("a socket");
    let served = Attachment::make(Way::VhostUser, &Uplink::of(&lab), &config).expect("it listens");
    served.check().expect("it still does");
    close(server, &left);
    let told = served.check().expect_err("it has ended").to_string();
    assert!(
        told.contains("left.sock") && told.contains("Connection refused"),
        "{told}"
    );
    fs::remove_file(&left).expect("removed");
    config.ringside = "/nowhere/ringside".into();
    assert!(refused(Way::AfXdp, &config).contains("make install"));
    if !fs::exists(VHOST_NET).expect("looked") {
        let told = refused(Way::VhostNet, &config);
        assert!(
            told.contains(VHOST_NET) && told.contains("modprobe vhost_net"),
            "{told}"
        );
    }
    if !has_generic_family("ovs_datapath").expect("asked") {
        assert!(refused(Way::OvsKernel, &config).contains("CONFIG_OPENVSWITCH"));
        // Something else is in the way, too: that is not the reason.
        let taken = self::uplinked("taken");
        let _other = Device::bridge(&taken.b.ns, "ovs-netdev").expect("a bridge");
        let told = Attachment::make(Way::OvsKernel, &Uplink::of(&taken), &config).expect_err("no module");
        let told = told.to_string();
        assert!(told.contains("CONFIG_OPENVSWITCH"), "{told}");
    }
}

/// Nobody reads what comes for the guest, so it piles up.
#[test]
fn what_waits_for_a_guest_is_seen() {
    const ROOM: u32 = 16;
    const SENT: u32 = 40;
    if !is_root() {
        return;
    }
    let taps = TapRings::start().expect("this kernel has BTF, and TUN in it");
    let inode = |lab: &Lab| fs::metadata(lab.b.ns.path()).expect("a file").ino();
    let mut before = None;
    for way in [Way::TapBridge, Way::Xdp] {
        // The second gets the inode of a namespace that is gone, if no other test was faster.
        let mut labs = (0..8).map(|number| {
            thread::sleep(Duration::from_millis(10 << number));
            uplinked("waits")
        });
        let lab = labs.find(|lab| before.is_none_or(|before| before == inode(lab)));
        let lab = lab.unwrap_or_else(|| uplinked("waits"));
        before = Some(inode(&lab));
        let mut config = AttachConfig::new("t0");
        config.queue_len = Some(ROOM);
        let attachment = Attachment::make(way, &Uplink::of(&lab), &config).expect("attached");
        let tap = attachment.tap().expect("it has one");
        let namespace = lab.b.ns.cookie().expect("Linux 5.14");
        let seen = || taps.seen(namespace, tap.device.interface.index()).expect("read");
        assert_eq!(seen(), None, "{way}");
        let socket = lab.a.run(|| UdpSocket::bind((lab.a.ipv4, 0))).expect("socket");
        socket.set_broadcast(true).expect("set");
        for _ in 0..SENT {
            socket.send_to(b"anybody", ("10.77.0.255", 9)).expect("sent");
        }
        assert!(
            wait_until(PATIENCE, || seen().is_some_and(|seen| seen.packets == u64::from(SENT))),
            "{way}: {:?}",
            seen()
        );
        let seen = seen().expect("packets");
        assert_eq!(
            (seen.size, seen.full),
            (ROOM.into(), (SENT - ROOM).into()),
            "{way}: {seen:?}"
        );
        // XDP's come in bursts, and one finds what was there before its first.
        if way == Way::TapBridge {
            let found: u32 = (0..SENT).map(|number| number.min(ROOM)).sum();
            assert!(
                (seen.mean() - f64::from(found) / f64::from(SENT)).abs() < 1e-9,
                "{seen:?}"
            );
            assert_eq!(
                (seen.most, seen.quantile(0.0), seen.quantile(1.0)),
                (ROOM.into(), 0, ROOM.into())
            );
        }
    }
}

/// Of a burst that finds no room the device counts one packet, and the kernel frees all.
#[test]
fn what_is_dropped_behind_a_redirect_is_counted() {
    const ROOM: u32 = 16;
    const SENT: u64 = 640;
    if !is_root() {
        return;
    }
    let lab = uplinked("drops");
    let mut config = AttachConfig::new("t0");
    config.queue_len = Some(ROOM);
    let attachment = Attachment::make(Way::Xdp, &Uplink::of(&lab), &config).expect("attached");
    let Attachment::Xdp(xdp) = &attachment else {
        panic!("{attachment:?}")
    };
    let counted = || {
        let device = &xdp.tap.device;
        let state = device.ns.run(|| device.interface.state()).expect("its counters");
        let lost = xdp.lost().expect("read").expect("this kernel has BTF");
        (state.stats.tx_dropped, lost)
    };
    assert_eq!(counted(), (0, 0));
    // To everybody, of a type for experiments: nobody answers.
    let frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 9], &[0x88, 0xb5], &[0; 50]].concat();
    let sent = lab.a.run(|| {
        let index = lab.a.interface.index();
        let mut generator = Generator::new(index, &frame, GeneratorOptions::default()).expect("a generator");
        generator.run(SENT).expect("sent")
    });
    let dropped = sent.transmitted - u64::from(ROOM);
    let is_all = || counted().0 + counted().1 == dropped;
    assert!(wait_until(PATIENCE, is_all), "{:?} of {dropped}", counted());
    let (own, lost) = counted();
    assert!(own > 0 && lost > own, "{own} and {lost}: in bursts");
    assert_eq!(xdp.traffic().expect("read")[0].packets, sent.transmitted);
}

#[test]
fn a_forwarder_that_does_not_begin_is_an_error_with_what_it_said() {
    if !is_root() {
        return;
    }
    let lab = uplinked("wrong");
    let mut config = AttachConfig::new("t0");
    config.ringside = "ls".into();
    let error = Attachment::make(Way::AfXdp, &Uplink::of(&lab), &config).expect_err("ls forwards nothing");
    assert!(matches!(error, Error::Program { .. }), "{error:?}");
    let told = error.to_string();
    assert!(told.contains("it ended with") && told.contains("--wait"), "{told}");
    assert_eq!(interfaces(&lab.b.ns), ["lo", "veth-b"]);
    assert_eq!(offloads(&lab), [true, false, false]);
}

#[test]
#[ignore = "killed by a_killed_process_leaves_nothing"]
fn victim() {
    let lab = uplinked("victim");
    let ways = [(Way::OvsUserspace, "t1"), (Way::Xdp, "t2")];
    let made = ways.map(|(way, tag)| Attachment::make(way, &Uplink::of(&lab), &AttachConfig::new(tag)));
    // The uplink is a port of the switch, which XDP does not mind.
    println!("made {:?}", made.each_ref().map(Result::is_ok));
    std::thread::sleep(PATIENCE);
    panic!("nobody has killed this: {made:?}");
}

#[test]
fn a_killed_process_leaves_nothing() {
    if !is_root() {
        return;
    }
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("attach-{}", std::process::id()));
    let mut victim = Command::new(std::env::current_exe().expect("this binary"))
        .args(["attach::victim", "--exact", "--ignored", "--nocapture"])
        .stdout(fs::File::create(&output).expect("a file"))
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let pid = victim.id();
    let said = || fs::read_to_string(&output).unwrap_or_default();
    let made = wait_until(PATIENCE, || said().contains("made ["));
    let folders = || -> Vec<String> {
        let mark = format!("rs-{pid}-");
        let entries = fs::read_dir(std::env::temp_dir()).expect("readable").flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.starts_with(&mark)).collect()
    };
    let with_switch = made && said().contains("made [true");
    let before = folders();
    let programs = || -> usize {
        let commands = fs::read_dir("/proc").expect("procfs").flatten();
        let commands = commands.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        let ours = |command: &Vec<u8>| {
            before
                .iter()
                .any(|folder| String::from_utf8_lossy(command).contains(folder.as_str()))
        };
        commands.filter(ours).count()
    };
    let running = programs();
    victim.kill().expect("killed");
    victim.wait().expect("gone");
    assert!(made, "{}", said());
    fs::remove_file(&output).expect("removed");
    if with_switch {
        assert_eq!((before.len(), running), (1, 2), "a folder, two programs");
    } else {
        skip("Open vSwitch (make setup)");
    }
    assert!(wait_until(PATIENCE, || programs() == 0), "the switch lives on");
    // The rest goes when the next one comes.
    reap_stale();
    let names = fs::read_dir("/run/netns").expect("readable").flatten();
    let mut names = names.filter_map(|entry| entry.file_name().into_string().ok());
    assert!(!names.any(|name| name.starts_with(&format!("rs-{pid}-"))));
    if let Some(next) = make(Way::OvsUserspace, &uplinked("next")) {
        drop(next);
        assert_eq!(folders(), [""; 0]);
    }
}

/// Reads only: what carries this machine's connection is not even tried.
#[test]
fn a_device_that_this_machine_needs_is_not_given_away() {
    if !is_root() {
        return;
    }
    let nobody = "ffff:ff:1f.7".parse().expect("an address");
    let told = Vfio::check(nobody).expect_err("there is none").to_string();
    assert!(
        told.contains("ffff:ff:1f.7") && told.contains("there is none"),
        "{told}"
    );
    let mut seen = 0;
    for entry in fs::read_dir("/sys/bus/pci/devices").into_iter().flatten().flatten() {
        let address: PciAddress = entry.file_name().to_string_lossy().parse().expect("the kernel's");
        let class = fs::read_to_string(entry.path().join("class")).expect("readable");
        let checked = Vfio::check(address);
        if !class.starts_with("0x02") {
            let told = checked.expect_err("no NIC").to_string();
            assert!(told.contains("no network device"), "{told}");
            seen += 1;
        }
    }
    // Of the interface that leads out of here, if it is a PCI device's.
    let routes = fs::read_to_string("/proc/net/route").unwrap_or_default();
    let default = routes.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let out = default
        .filter(|words| words.get(1) == Some(&"00000000"))
        .find_map(|words| words.first().copied());
    if let Some(out) = out
        && let Ok(device) = fs::canonicalize(format!("/sys/class/net/{out}/device"))
        && let Some(address) = device
            .ancestors()
            .find_map(|path| path.file_name()?.to_str()?.parse().ok())
    {
        let told = Vfio::check(address).expect_err("it is in use").to_string();
        assert!(told.contains(&format!("'{out}' has the address")), "{told}");
        seen += 1;
    }
    eprintln!("{seen} devices are refused");
}

#[test]
#[ignore = "make test-guests runs it"]
fn a_nic_changes_hands_and_comes_back() {
    if !is_root() {
        return;
    }
    let kernel = Kernel::usual().expect("a kernel for guests");
    let mut config = GuestConfig::new("vfio", kernel, Agent::test_binary().expect("this binary"));
    config = config.back_to_back(Model::Igb);
    config.iommu = true;
    config.modules = ["vfio-pci", "dummy"].map(str::to_owned).to_vec();
    config.programs = ["ip", "ls"].map(Into::into).to_vec();
    let guest = Guest::start(&config).expect("a guest");
    let own = std::env::current_exe().expect("this binary");
    let inside = guest
        .command(own)
        .args(["attach::inside", "--exact", "--ignored", "--nocapture"]);
    let done = inside.output().expect("runs");
    assert!(
        done.status.success(),
        "{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
}

/// The rest of the test above.
#[test]
#[ignore = "runs in a guest"]
fn inside() {
    let device = fs::canonicalize("/sys/class/net/eth0/device").expect("a PCI device");
    let address: PciAddress = device
        .file_name()
        .and_then(|name| name.to_str())
        .expect("a name")
        .parse()
        .expect("it is");
    let driver = || {
        fs::read_link(device.join("driver"))
            .ok()?
            .file_name()?
            .to_str()
            .map(str::to_owned)
    };
    let run = |words: &str| {
        let done = Command::new("ip").args(words.split(' ')).status().expect("ip");
        assert!(done.success(), "ip {words}");
    };
    assert_eq!(driver().as_deref(), Some("igb"));

    run("addr add 10.9.0.1/24 dev eth0");
    let told = Vfio::bind(address).expect_err("it has an address").to_string();
    assert!(told.contains("'eth0' has the address 10.9.0.1"), "{told}");
    run("addr flush dev eth0");
    run("netns add other");
    run("link set eth0 netns other");
    let told = Vfio::bind(address).expect_err("it is elsewhere").to_string();
    assert!(
        told.contains("igb has it") && told.contains("another one may use it"),
        "{told}"
    );
    run("-n other link set eth0 netns 1");
    assert_eq!(driver().as_deref(), Some("igb"));

    let vfio = Vfio::bind(address).expect("nobody uses it");
    assert_eq!(vfio.mac(), [2, b'r', b's', b'g', 0, 1]);
    assert_eq!(driver().as_deref(), Some("vfio-pci"));
    assert!(!fs::exists("/sys/class/net/eth0").expect("looked"));
    let group = fs::read_link(device.join("iommu_group")).expect("a group");
    let group = Path::new("/dev/vfio").join(group.file_name().expect("a number"));
    assert!(group.exists(), "{}", group.display());
    drop(vfio);
    assert_eq!(driver().as_deref(), Some("igb"));
    let is_back = || fs::exists("/sys/class/net/eth0").expect("looked");
    assert!(wait_until(PATIENCE, is_back));

    let mut victim = Command::new(std::env::current_exe().expect("this binary"))
        .args(["attach::taker", "--exact", "--ignored", "--nocapture"])
        .env("DEVICE", address.to_string())
        .spawn()
        .expect("starts");
    assert!(wait_until(PATIENCE, || driver().as_deref() == Some("vfio-pci")));
    assert_eq!(Vfio::recover(), [], "it lives");
    victim.kill().expect("killed");
    victim.wait().expect("gone");
    assert_eq!(driver().as_deref(), Some("vfio-pci"));
    assert_eq!(Vfio::recover(), [address]);
    assert_eq!(driver().as_deref(), Some("igb"));
    assert_eq!(Vfio::recover(), []);
}

#[test]
#[ignore = "killed in a guest"]
fn taker() {
    let address = std::env::var("DEVICE").expect("told").parse().expect("an address");
    let taken = Vfio::bind(address).expect("nobody uses it");
    std::thread::sleep(PATIENCE);
    panic!("nobody has killed this: {taken:?}");
}

/// By hand, for it takes Open vSwitch with DPDK (Debian's openvswitch-switch-dpdk), whose `ovs-vswitchd-dpdk` the variable names.
#[test]
#[ignore = "needs RINGSIDE_OVS_DPDK=/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"]
fn a_switch_with_dpdk_serves_a_guest() {
    if !is_root() {
        return;
    }
    let program = std::env::var("RINGSIDE_OVS_DPDK").expect("RINGSIDE_OVS_DPDK names the program");
    // "-d …/librte_mempool_ring.so" where the libraries are not in their usual place.
    let more = std::env::var("RINGSIDE_OVS_DPDK_EXTRA").unwrap_or_default();
    let lab = uplinked("dpdk");
    // It hands on what it gets from an AF_PACKET socket as it is.
    lab.a.run(|| lab.a.interface.set_tx_checksum(false)).expect("set");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("dpdk-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let path = |name: &str| folder.join(name).display().to_string();
    let run = |command: &mut Command| {
        let done = command.output().expect("runs");
        assert!(done.status.success(), "{command:?}: {done:?}");
    };
    let schema = "/usr/share/openvswitch/vswitch.ovsschema";
    run(Command::new("ovsdb-tool").args(["create", &path("db"), schema]));
    let start = |program: &str, words: &[String]| {
        let log = fs::File::create(path("log")).expect("a file");
        let mut command = lab.b.ns.command(program);
        command
            .args(words)
            .env("OVS_RUNDIR", &folder)
            .env("OVS_SYSCONFDIR", &folder);
        command
            .stdout(log.try_clone().expect("a file"))
            .stderr(log)
            .spawn()
            .expect("starts")
    };
    let control = |words: &[&str]| {
        let mut command = Command::new("ovs-vsctl");
        run(command
            .arg(format!("--db=unix:{}", path("sock")))
            .arg("--timeout=30")
            .args(words));
    };
    let mut database = start(
        "ovsdb-server",
        &[
            path("db"),
            format!("--remote=punix:{}", path("sock")),
            format!("--unixctl={}", path("db.ctl")),
        ],
    );
    assert!(wait_until(PATIENCE, || fs::exists(path("sock")).expect("looked")));
    control(&["--no-wait", "init"]);
    control(&[
        "--no-wait",
        "set",
        "Open_vSwitch",
        ".",
        "other_config:dpdk-init=true",
        &format!("other_config:dpdk-extra=--no-huge --legacy-mem --no-pci -m 768 {more}"),
    ]);
    let mut switch = start(
        &program,
        &[format!("unix:{}", path("sock")), format!("--unixctl={}", path("ctl"))],
    );
    control(&["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"]);
    control(&[
        "add-port",
        "br0",
        "veth-b",
        "--",
        "add-port",
        "br0",
        "user0",
        "--",
        "set",
        "interface",
        "user0",
        "type=dpdkvhostuser",
    ]);
    let said = || fs::read_to_string(path("log")).unwrap_or_default();
    assert!(
        wait_until(PATIENCE, || fs::exists(path("user0")).expect("looked")),
        "{}",
        said()
    );

    let mut config = AttachConfig::new("t0");
    config.socket = Some(path("user0").into());
    let attachment = Attachment::make(Way::VhostUser, &Uplink::of(&lab), &config).expect("it listens");
    let kernel = Kernel::usual().expect("a kernel for guests");
    let mut guest = GuestConfig::new("user", kernel, Agent::test_binary().expect("this binary"));
    guest.nics.push(attachment.nic("eth0"));
    guest.programs = ["sh", "ip"].map(Into::into).to_vec();
    let guest = Guest::start(&guest).expect("a guest");
    let set_up = guest
        .command("sh")
        .args(["-c", "ip addr add 10.77.0.2/24 dev eth0 && ip link set eth0 up"]);
    assert!(set_up.output().expect("runs").status.success());
    let ping = lab
        .a
        .ns
        .command("ping")
        .args(["-c3", "-i0.2", "-w30", "10.77.0.2"])
        .output()
        .expect("ping");
    let text = String::from_utf8_lossy(&ping.stdout).into_owned();
    drop(guest);
    for child in [&mut switch, &mut database] {
        child.kill().expect("killed");
        child.wait().expect("gone");
    }
    assert!(ping.status.success(), "{text}{}", said());
    eprintln!("{text}");
    fs::remove_dir_all(&folder).expect("removed");
}
