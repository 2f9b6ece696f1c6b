use super::queue_of;

#[test]
fn interrupts_are_named_after_their_queues() {
    for (name, queue) in [
        ("eth0-TxRx-1", Some(1)),
        ("eth0-rx-3", Some(3)),
        ("eth0-rx-0", Some(0)),
        ("virtio3-input.12", Some(12)),
        ("virtio3-output.1", None),
        ("eth0-tx-1", None),
        ("eth0", None),
        ("virtio3-config", None),
    ] {
        assert_eq!(queue_of(name), queue, "{name}");
    }
}
