use super::*;
use crate::netlink::generic::Message;

fn queue(kind: u32) -> Message {
    Message::new(0, 0)
        .with_u32(NETDEV_A_QUEUE_ID, 5)
        .with_u32(NETDEV_A_QUEUE_TYPE, kind)
}

#[test]
#[cfg(target_endian = "little")]
fn a_real_answer_is_understood() {
    // A virtio-net device's receive queue 0 on Linux 6.18.
    let bytes = [
        8, 0, 1, 0, 0, 0, 0, 0, 8, 0, 3, 0, 0, 0, 0, 0, 8, 0, 2, 0, 4, 0, 0, 0, 8, 0, 4, 0, 1, 1, 0, 0,
    ];
    assert_eq!(
        QueueDetail::from_attributes(Attributes(&bytes), true),
        Some(QueueDetail {
            id: 0,
            kind: QueueKind::Rx,
            napi: Some(257),
            xsk: Some(false),
            io_uring: Some(false),
        })
    );
}

#[test]
fn a_socket_that_an_old_kernel_would_not_tell_is_unknown() {
    let read = |message: &Message, known| QueueDetail::from_attributes(message.attributes(), known).unwrap();
    let plain = read(&queue(1), false);
    assert_eq!(
        (plain.kind, plain.napi, plain.xsk, plain.io_uring),
        (QueueKind::Tx, None, None, None)
    );
    let marked = queue(0).with(NETDEV_A_QUEUE_XSK, &[]);
    let bound = read(&marked, true);
    assert_eq!(
        (bound.kind, bound.xsk, bound.io_uring),
        (QueueKind::Rx, Some(true), Some(false))
    );
    // A distribution may have taken the feature over into an older kernel.
    assert_eq!(read(&marked, false).xsk, Some(true));
    // A direction of a newer kernel is no queue that this crate knows of.
    assert_eq!(QueueDetail::from_attributes(queue(2).attributes(), true), None);
}
