use super::*;
use crate::netlink::generic::Message;

fn of_queue(kind: u32) -> Message {
    Message::new(0, 0)
        .with_u32(NETDEV_A_QSTATS_QUEUE_TYPE, kind)
        .with_u32(NETDEV_A_QSTATS_QUEUE_ID, 3)
}

/// Numbers have four bytes or eight, whichever they need.
#[test]
fn each_direction_has_counters_of_its_own() {
    let read = |message: &Message| QueueStatistics::from_attributes(message.attributes());
    let both = |message: Message| {
        message
            .with_u32(NETDEV_A_QSTATS_RX_PACKETS, 7)
            .with_u64(NETDEV_A_QSTATS_RX_BYTES, 1 << 40)
            .with_u32(NETDEV_A_QSTATS_RX_HW_DROPS, 5)
            .with_u32(NETDEV_A_QSTATS_TX_PACKETS, 9)
            .with_u32(NETDEV_A_QSTATS_TX_HW_DROP_ERRORS, 2)
    };
    let rx = read(&both(of_queue(0))).unwrap();
    assert_eq!(
        (rx.kind, rx.id, rx.packets, rx.bytes),
        (QueueKind::Rx, 3, Some(7), Some(1 << 40))
    );
    assert_eq!(
        (rx.alloc_failures, rx.hw_drops, rx.hw_drops_overrun),
        (None, Some(5), None)
    );
    let tx = read(&both(of_queue(1))).unwrap();
    assert_eq!((tx.kind, tx.packets, tx.bytes), (QueueKind::Tx, Some(9), None));
    assert_eq!((tx.hw_drops, tx.hw_drops_overrun), (None, Some(2)));
    assert_eq!(read(&of_queue(7)), None);
    assert_eq!(
        read(&Message::new(0, 0).with_u32(NETDEV_A_QSTATS_RX_PACKETS, 1)),
        None,
        "of the device"
    );
}
