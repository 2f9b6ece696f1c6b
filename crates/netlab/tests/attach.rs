//! Ways to attach a guest, without one: what is made and removed, what this machine lacks, and what a killed process leaves. With a guest they are
//! tried by crates/cli/tests/guest.rs.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use ringside_netlab::attach::{AttachConfig, Attachment, Uplink, VHOST_NET, Way};
use ringside_netlab::testing::{is_root, skip};
use ringside_netlab::{Error, Lab, VethConfig, reap_stale, wait_until};

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A host, and one that a guest could be attached to.
fn lab(tag: &str) -> Lab {
    Lab::veth(VethConfig {
        hosts: [1, 0],
        ipv6: false,
        ..VethConfig::tagged(tag)
    })
    .expect("test bed")
}

fn interfaces(lab: &Lab) -> Vec<String> {
    let entries = lab.b.run(|| fs::read_dir("/sys/class/net").expect("sysfs").flatten());
    let mut names: Vec<_> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.retain(|name| name != "bonding_masters");
    names.sort();
    names
}

/// Offloads that ways change.
fn offloads(lab: &Lab) -> [bool; 2] {
    let feature = |name| lab.a.run(|| lab.a.interface.feature(name).expect("known")).active;
    ["tx-checksum-ip-generic", "rx-gro"].map(feature)
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
    let lab = lab("made");
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
            assert_eq!(interfaces(&lab), expected, "{way}");
            attachment.check().expect("it runs");
            let config = AttachConfig::new("t0");
            assert_eq!(attachment.nic("eth0").mac, config.mac);
            let again = Attachment::make(way, &Uplink::of(&lab), &config).expect_err("the names are taken");
            assert!(again.to_string().contains("t0"), "{way}: {again}");
            drop(attachment);
            assert_eq!(interfaces(&lab), ["lo", "veth-b"], "{way}");
            assert_eq!(offloads(&lab), [true, false], "{way}");
        }
    }
}

#[test]
fn what_a_machine_lacks_is_named() {
    if !is_root() {
        return;
    }
    let lab = lab("lacks");
    let refused = |way, config: &AttachConfig| {
        let error = Attachment::make(way, &Uplink::of(&lab), config).expect_err("it is not there");
        assert!(
            matches!(&error, Error::Missing { way: told, .. } if *told == way),
            "{error:?}"
        );
        assert_eq!(interfaces(&lab), ["lo", "veth-b"], "{way}");
        assert_eq!(offloads(&lab), [true, false], "{way}");
        error.to_string()
    };
    let mut config = AttachConfig::new("t0");
    assert!(refused(Way::VhostUser, &config).contains("no socket is named"));
    config.socket = Some("/nowhere/user.sock".into());
    assert!(refused(Way::VhostUser, &config).contains("/nowhere/user.sock: No such file"));
    config.socket = Some("/dev/null".into());
    assert!(refused(Way::VhostUser, &config).contains("/dev/null is no socket"));
    config.ringside = "/nowhere/ringside".into();
    assert!(refused(Way::AfXdp, &config).contains("make install"));
    if !fs::exists(VHOST_NET).expect("looked") {
        let told = refused(Way::VhostNet, &config);
        assert!(
            told.contains(VHOST_NET) && told.contains("modprobe vhost_net"),
            "{told}"
        );
    }
    if !fs::exists("/sys/module/openvswitch").expect("looked") {
        let told = refused(Way::OvsKernel, &config);
        assert!(
            told.contains("openvswitch-switch") || told.contains("CONFIG_OPENVSWITCH"),
            "{told}"
        );
    }
}

#[test]
fn a_forwarder_that_does_not_begin_is_an_error_with_what_it_said() {
    if !is_root() {
        return;
    }
    let lab = lab("wrong");
    let mut config = AttachConfig::new("t0");
    config.ringside = "ls".into();
    let error = Attachment::make(Way::AfXdp, &Uplink::of(&lab), &config).expect_err("ls forwards nothing");
    assert!(matches!(error, Error::Program { .. }), "{error:?}");
    let told = error.to_string();
    assert!(told.contains("it ended with") && told.contains("--wait"), "{told}");
    assert_eq!(interfaces(&lab), ["lo", "veth-b"]);
    assert_eq!(offloads(&lab), [true, false]);
}

#[test]
#[ignore = "killed by a_killed_process_leaves_nothing"]
fn victim() {
    let lab = lab("victim");
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
    let output = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("attach-{}", std::process::id()));
    let mut victim = Command::new(std::env::current_exe().expect("this binary"))
        .args(["victim", "--exact", "--ignored", "--nocapture"])
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
    if let Some(next) = make(Way::OvsUserspace, &lab("next")) {
        drop(next);
        assert_eq!(folders(), [""; 0]);
    }
}
