use ringside_nic::{QueueDetail, XdpMode};

use super::super::super::facts::{Brief, Offload};
use super::super::testing::{Check, device, kernel, nic};
use super::*;
use crate::caps::Attached;

fn check(change: impl FnOnce(&mut Nic)) -> Check {
    let mut nic = nic();
    change(&mut nic);
    Check::of(|findings| judge(&nic, &kernel(), findings))
}

fn holder() -> Holder {
    Holder {
        pid: 42,
        command: "daemon".into(),
    }
}

#[test]
fn a_nic_for_it_is_fine() {
    check(|_| {}).is_fine();
}

#[test]
fn a_link_that_is_down_is_an_error_and_one_without_a_carrier_a_warning() {
    let down = check(|nic| (nic.state.up, nic.state.carrier) = (false, false)).only("interface.link", "error");
    assert_eq!(down.mend.as_deref(), Some("ip link set dev eth0 up"));
    check(|nic| nic.state.carrier = false).only("interface.link", "warning");
}

#[test]
fn a_program_of_somebody_is_told_with_who_holds_it_and_how_it_goes() {
    let attached = |holders: Vec<Holder>| {
        check(|nic| {
            nic.state.xdp_program = Some(Attached {
                id: 7,
                name: Some("theirs".into()),
                mode: XdpMode::Native,
                holders,
            });
            nic.state.xdp_removal = Some("xdp-loader unload eth0 --all (package xdp-tools)".into());
        })
        .only("interface.program", "error")
    };
    let finding = attached(Vec::new());
    assert_eq!(finding.mend.as_deref(), Some("xdp-loader unload eth0 --all"));
    let finding = attached(vec![holder()]);
    assert_eq!(finding.mend.as_deref(), Some("kill 42"));
    assert!(
        finding.what.contains("theirs (id 7), held by process 42 (daemon)"),
        "{finding:?}"
    );
}

#[test]
fn a_veth_is_told_what_its_peer_sends_uncut() {
    let veth = check(|nic| nic.driver.get_or_insert_default().name = "veth".into());
    let finding = veth.only("interface.peer-segmentation", "note");
    assert!(finding.mend.is_some_and(|command| command.contains("tso off")));
}

#[test]
fn queues_with_sockets_are_named() {
    let queue = |id, xsk| {
        let mut queue = QueueDetail::default();
        (queue.id, queue.xsk) = (id, xsk);
        queue
    };
    let with =
        |xsk| check(move |nic| nic.state.queues = Some(vec![queue(0, Some(false)), queue(1, xsk), queue(1, xsk)]));
    assert!(
        with(Some(true))
            .only("interface.bound", "warning")
            .what
            .ends_with("queue 1")
    );
    with(Some(false)).is_fine();
    with(None).is_fine();
    let held = check(|nic| {
        nic.state.queues = Some(vec![queue(0, Some(true))]);
        nic.socket_owners = vec![holder()];
    });
    let finding = held.only("interface.bound", "warning");
    assert!(
        finding
            .what
            .ends_with("queue 0; such sockets are held by process 42 (daemon)"),
        "{finding:?}"
    );
}

#[test]
fn modes_are_those_of_the_driver() {
    let with = |features| check(move |nic| nic.device = device(features));
    let both = XdpFeatures::BASIC | XdpFeatures::REDIRECT;
    with(both).only("interface.zero-copy", "note");
    with(XdpFeatures::BASIC).only("interface.native", "warning");
    with(XdpFeatures::default()).only("interface.native", "warning");
    check(|nic| nic.device.xdp_features = None).only("interface.modes", "note");
    let above = check(|nic| {
        nic.device = device(XdpFeatures::default());
        nic.kind = Some("vlan".into());
    });
    assert!(
        above
            .only("interface.native", "warning")
            .why
            .contains("a vlan stands above others")
    );
}

#[test]
fn packets_that_do_not_fit_are_told_by_the_mtu() {
    let all = XdpFeatures::BASIC | XdpFeatures::REDIRECT | XdpFeatures::XSK_ZEROCOPY;
    let with = |mtu, features| {
        check(move |nic| {
            nic.state.mtu_bytes = mtu;
            nic.device = device(features);
        })
    };
    with(1770, all).is_fine();
    let frames = with(1771, all).only("interface.mtu", "note");
    assert!(frames.why.contains("--frame-size 4096"), "{frames:?}");
    with(3498, all).only("interface.mtu", "note");
    let refused = with(3499, all).only("interface.mtu", "warning");
    assert!(refused.why.contains("rx-sg"), "{refused:?}");
    let jumbo = with(9000, all | XdpFeatures::RX_SG).only("interface.mtu", "note");
    assert!(jumbo.why.contains("--multi-buffer"), "{jumbo:?}");
    assert_eq!(jumbo.mend.as_deref(), Some("ip link set dev eth0 mtu 1500"));
    // What no driver does the kernel does, in generic mode: that there is no other is another finding.
    let generic = with(9000, XdpFeatures::default());
    generic.finding("interface.mtu", "note");
    let mut old = kernel();
    old.multi_buffer = Support::No;
    let mut nic = nic();
    (nic.state.mtu_bytes, nic.device) = (9000, device(all | XdpFeatures::RX_SG));
    let finding = Check::of(|findings| judge(&nic, &old, findings)).only("interface.mtu", "warning");
    assert!(finding.why.contains("Linux 6.6"), "{finding:?}");
}

#[test]
fn offloads_that_hide_something_are_told() {
    let with = |name: &'static str, fixed| {
        check(move |nic| _ = nic.offloads.insert(name.to_owned(), Offload { on: true, fixed }))
    };
    let vlan = with("rx-vlan-hw-parse", false).only("interface.rxvlan", "warning");
    assert_eq!(vlan.mend.as_deref(), Some("ethtool -K eth0 rxvlan off"));
    assert_eq!(
        with("rx-vlan-hw-parse", true).only("interface.rxvlan", "warning").mend,
        None
    );
    // Where the driver tells the tag, it can be had.
    let hint = check(|nic| {
        nic.device.rx_metadata = Some(RxMetadata::VLAN_TAG | RxMetadata::HASH);
        nic.offloads.get_mut("rx-vlan-hw-parse").unwrap().on = true;
    });
    assert!(hint.only("interface.rxvlan", "note").why.contains("rx --hints"));
    let lro = with("rx-lro", false).only("interface.lro", "warning");
    assert_eq!(lro.mend.as_deref(), Some("ethtool -K eth0 lro off"));
    let fixed = with("rx-gro-hw", true).only("interface.gro-hw", "warning");
    assert!(
        fixed.mend.is_none() && fixed.why.contains("does not let it"),
        "{fixed:?}"
    );
}

#[test]
fn interfaces_are_told_in_a_line_each() {
    let both = XdpFeatures::BASIC | XdpFeatures::REDIRECT;
    let told = |features, driver: Option<&str>| {
        let brief = Brief {
            name: "eth7".into(),
            driver: driver.map(str::to_owned),
            up: true,
            rx_queues: 2,
            device: device(features),
        };
        let check = Check::of(|findings| judge_all(&[brief], findings));
        check.is_fine();
        check.ok("interfaces").to_owned()
    };
    assert_eq!(
        told(both | XdpFeatures::XSK_ZEROCOPY, Some("ice")),
        "eth7: driver ice, up, 2 receive queue(s), native XDP and zero-copy"
    );
    assert!(told(both, Some("veth")).ends_with("native XDP, no zero-copy"));
    assert!(told(XdpFeatures::BASIC, None).ends_with("driver none, up, 2 receive queue(s), generic XDP only"));
}
