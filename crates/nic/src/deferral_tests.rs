use super::*;

fn queue(id: u32, kind: QueueKind, napi: Option<u32>) -> QueueDetail {
    let mut detail = QueueDetail::default();
    (detail.id, detail.kind, detail.napi) = (id, kind, napi);
    detail
}

#[test]
fn queues_find_their_instances() {
    let details = [
        queue(0, QueueKind::Rx, Some(30)),
        queue(1, QueueKind::Rx, Some(20)),
        queue(2, QueueKind::Rx, Some(20)),
        queue(3, QueueKind::Rx, None),
        queue(0, QueueKind::Tx, Some(99)),
        queue(3, QueueKind::Tx, Some(98)),
    ];
    let per = |napis: &[u32]| Applied::PerNapi { napis: napis.to_vec() };
    assert_eq!(which_napis(&details, &[0]), per(&[30]));
    assert_eq!(which_napis(&details, &[2, 0, 1]), per(&[20, 30]), "each once");
    assert_eq!(which_napis(&details, &[]), per(&[]));
    for queues in [&[0, 3][..], &[4]] {
        let Applied::InterfaceWide { reason } = which_napis(&details, queues) else {
            panic!("{queues:?}")
        };
        assert!(
            reason.contains(&format!("queue {}", queues.last().unwrap())),
            "{reason}"
        );
    }
    assert_eq!(per(&[1, 2]).to_string(), "per NAPI instance (1, 2)");
}
