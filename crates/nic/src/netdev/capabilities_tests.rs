use super::*;
use crate::netlink::generic::Message;

/// What a virtio-net device answers on Linux 6.18: basic, redirect, zero-copy, multi-buffer; one zero-copy buffer.
const VIRTIO: &[u8] = &[
    8, 0, 1, 0, 4, 0, 0, 0, 12, 0, 3, 0, 0x2b, 0, 0, 0, 0, 0, 0, 0, 12, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 0, 6, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 4, 0, 1, 0, 0, 0,
];

#[test]
#[cfg(target_endian = "little")]
fn a_real_answer_is_understood() {
    let found = DeviceCapabilities::from_attributes(Attributes(VIRTIO));
    let xdp = found.xdp_features.unwrap();
    assert!(xdp.contains(XdpFeatures::BASIC | XdpFeatures::XSK_ZEROCOPY));
    assert!(!xdp.contains(XdpFeatures::BASIC | XdpFeatures::NDO_XMIT));
    assert_eq!(
        (found.xdp_zc_max_segs, found.rx_metadata, found.xsk_features),
        (Some(1), Some(RxMetadata::default()), Some(XskFeatures::default()))
    );
    assert_eq!(
        found.to_string(),
        "XDP: basic redirect xsk-zerocopy rx-sg (zero-copy up to 1 buffer a packet); RX metadata: none; TX metadata: none"
    );
    assert_eq!(
        serde_json::to_value(found).unwrap(),
        serde_json::json!({
            "xdp_features": ["basic", "redirect", "xsk-zerocopy", "rx-sg"],
            "xdp_zc_max_segs": 1, "rx_metadata": [], "xsk_features": [],
        })
    );
}

#[test]
fn what_an_old_kernel_does_not_tell_is_unknown_and_not_missing() {
    // Linux 6.3 to 6.5: no more than the XDP features.
    let old = Message::new(0, 0).with_u64(NETDEV_A_DEV_XDP_FEATURES, 3);
    let found = DeviceCapabilities::from_attributes(old.attributes());
    assert_eq!(found.xdp_features, Some(XdpFeatures::BASIC | XdpFeatures::REDIRECT));
    assert_eq!((found.rx_metadata, found.xsk_features), (None, None));
    assert_eq!(
        found.to_string(),
        "XDP: basic redirect; RX metadata: unknown (Linux 6.7 tells); TX metadata: unknown (Linux 6.8 tells)"
    );
    assert_eq!(
        serde_json::to_value(DeviceCapabilities::UNKNOWN).unwrap()["rx_metadata"],
        serde_json::Value::Null
    );
}

#[test]
fn a_bit_of_a_newer_kernel_is_kept() {
    let newer = XskFeatures::from_bits(1 | 1 << 63);
    assert_eq!(newer.to_string(), "tx-timestamp bit-63");
    assert_eq!(newer.bits(), 1 | 1 << 63);
    assert!(!newer.is_empty() && newer != XskFeatures::TX_TIMESTAMP);
}
