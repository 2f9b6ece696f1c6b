use ringside_netlab::testing::is_root;
use rustix::io::Errno;

use super::*;
use crate::sys;

/// Loopback as this kernel tells of it, beside a kernel about which all is made up.
fn made_up(kernel: KernelCapabilities) -> Capabilities {
    let lo = Interface::by_name("lo").unwrap();
    Capabilities {
        interface: "lo".into(),
        driver: None,
        device: lo.device_capabilities().unwrap(),
        kernel,
    }
}

fn old_kernel() -> KernelCapabilities {
    let mut kernel = KernelCapabilities::probe();
    kernel.release = "5.4.0".into();
    kernel.af_xdp = Support::Yes;
    kernel.tx_budget = Support::No;
    kernel.multi_buffer = Support::Unknown("it needs CAP_SYS_ADMIN".into());
    kernel.shared_umem = kernel.multi_buffer.clone();
    kernel
}

/// The names, and what is beside them, are what programs rely on.
#[test]
fn json_has_stable_names() {
    let mut json = serde_json::to_value(made_up(old_kernel())).unwrap();
    json.sort_all_objects();
    let names = |value: &serde_json::Value| Vec::from_iter(value.as_object().unwrap().keys().cloned());
    assert_eq!(names(&json), ["device", "driver", "interface", "kernel"]);
    let device = ["rx_metadata", "xdp_features", "xdp_zc_max_segs", "xsk_features"];
    assert_eq!(names(&json["device"]), device);
    let kernel = [
        "af_xdp",
        "device_bound_programs",
        "frags_programs",
        "multi_buffer",
        "need_wakeup",
        "preferred_busy_poll",
        "release",
        "shared_umem",
        "six_statistics",
        "tx_budget",
        "tx_launch_time",
        "tx_metadata",
        "tx_metadata_len_flag",
        "tx_software_checksum",
        "unaligned_chunks",
        "xdp_link",
    ];
    assert_eq!(names(&json["kernel"]), kernel);
    let entry = |name: &str| json["kernel"][name].to_string();
    assert_eq!(json["kernel"]["release"], "5.4.0");
    assert_eq!(entry("af_xdp"), r#"{"available":true,"reason":null,"since":"4.18"}"#);
    assert_eq!(
        entry("tx_budget"),
        r#"{"available":false,"reason":null,"since":"6.17"}"#
    );
    assert_eq!(
        entry("multi_buffer"),
        r#"{"available":null,"reason":"it needs CAP_SYS_ADMIN","since":"6.6"}"#
    );
}

#[test]
fn the_text_has_a_line_a_feature() {
    let mut capabilities = made_up(old_kernel());
    capabilities.device.xdp_features = Some(XdpFeatures::BASIC | XdpFeatures::XSK_ZEROCOPY);
    capabilities.device.xdp_zc_max_segs = Some(8);
    capabilities.device.rx_metadata = None;
    let text = capabilities.to_string();
    let line = |what: &str| {
        let mut lines = text.lines().filter(|line| line.trim_start().starts_with(what));
        let line = lines.next().unwrap_or_else(|| panic!("{what}: {text}"));
        Vec::from_iter(line.trim_start()[what.len()..].split_whitespace())
    };
    assert_eq!(line("The device lo, no driver"), ["told", "since"]);
    assert_eq!(line("native XDP: drop, pass, send back"), ["yes", "Linux", "6.3"]);
    assert_eq!(line("native XDP: redirect, as to sockets"), ["no", "Linux", "6.3"]);
    assert_eq!(line("AF_XDP with zero-copy"), ["yes", "Linux", "6.3"]);
    assert_eq!(line("buffers of a packet"), ["8", "Linux", "6.6"]);
    assert_eq!(line("RX metadata: hash"), ["unknown", "Linux", "6.7"]);
    assert_eq!(line("The kernel, Linux 5.4.0"), ["there", "since"]);
    assert_eq!(line("AF_XDP sockets"), ["yes", "Linux", "4.18"]);
    assert_eq!(line("packets per wake-up call, to be set"), ["no", "Linux", "6.17"]);
    assert_eq!(
        line("packets in several frames (XDP_USE_SG)"),
        ["unknown", "Linux", "6.6"]
    );
    let reasons = text.matches("unknown because: it needs CAP_SYS_ADMIN").count();
    assert_eq!(reasons, 1, "{text}");
    for feature in capabilities.kernel.features() {
        assert!(
            text.contains(&format!("\n  {} ", feature.what)),
            "{}: {text}",
            feature.what
        );
    }
    assert!(text.lines().all(|line| line == line.trim_end()), "{text}");
}

/// What the try with a device-bound program rests on: for a driver that can, it loads; loopback is another case than a
/// flag that the kernel does not know.
#[test]
fn a_device_bound_program_is_refused_for_loopback_in_a_way_of_its_own() {
    if !is_root() {
        return;
    }
    let lab = ringside_netlab::Lab::veth(ringside_netlab::VethConfig::tagged("devbound")).unwrap();
    lab.a.run(|| {
        let veth = lab.a.interface.index();
        let lo = Interface::by_name("lo").unwrap().index();
        sys::load_pass(sys::DEV_BOUND_ONLY, veth).unwrap();
        assert_eq!(sys::load_pass(sys::DEV_BOUND_ONLY, lo).unwrap_err(), Errno::OPNOTSUPP);
        const NO_SUCH_FLAG: u32 = 1 << 30;
        for interface in [0, lo, veth] {
            let refused = sys::load_pass(NO_SUCH_FLAG, interface).unwrap_err();
            assert_eq!(refused, Errno::INVAL, "{interface}");
        }
    });
}
