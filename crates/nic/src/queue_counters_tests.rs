use super::*;

#[test]
fn the_ways_of_the_drivers() {
    use QueueKind::{Rx, Tx};
    for (name, kind, queue, what) in [
        ("rx_queue_0_xdp_packets", Rx, 0, "xdp_packets"), // veth
        ("tx_queue_11_xdp_xmit_errors", Tx, 11, "xdp_xmit_errors"),
        ("rx_queue_2_drops", Rx, 2, "drops"),          // virtio_net, ixgbe, igb, ice
        ("rx0_xdp_redirects", Rx, 0, "xdp_redirects"), // virtio_net, mlx5
        ("tx15_packets", Tx, 15, "packets"),
        ("rx-7.packets", Rx, 7, "packets"),   // i40e
        ("queue_3_rx_cnt", Rx, 3, "packets"), // ena
        ("queue_3_tx_bytes", Tx, 3, "bytes"),
        ("rx_packets[4]", Rx, 4, "packets"), // gve
        ("tx_dropped_pkt[12]", Tx, 12, "dropped_pkt"),
        ("[1]: rx_ucast_packets", Rx, 1, "ucast_packets"), // bnxt
        ("[0]: tx_errors", Tx, 0, "errors"),
    ] {
        let expected = QueueCounter {
            kind,
            queue,
            name: what.to_owned(),
        };
        assert_eq!(QueueCounter::of(name), Some(expected), "{name}");
    }
}

#[test]
fn counters_of_the_device_are_of_no_queue() {
    for name in [
        "",
        "rx",
        "rx_packets",
        "tx_queue_",
        "rx_queue_x_packets",
        "rx_queue_0",
        "rx_queue_0_",
        "peer_ifindex",
        "rx_1024_to_1518",
        "rx_99999999999_packets",
        "queue_1_up",
        "[1]: hw",
        "rx_packets[",
        "rx_packets[]",
    ] {
        assert_eq!(QueueCounter::of(name), None, "{name}");
    }
}
