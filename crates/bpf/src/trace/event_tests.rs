use super::*;

#[test]
fn an_event_has_the_layout_of_the_c_struct() {
    let mut bytes = Vec::new();
    for long in [11u64, 22, 33, 44] {
        bytes.extend(long.to_ne_bytes());
    }
    for word in [55u32, 66, 77] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(88u16.to_ne_bytes());
    bytes.extend([9, 1]);
    let expected = TraceEvent {
        ns: 11,
        sequence: 22,
        extra: [33, 44],
        session: 55,
        namespace: 66,
        interface: 77,
        cpu: 88,
        point: 9,
        kind: 1,
    };
    assert_eq!(TraceEvent::from_bytes(&bytes), Some(expected));
    assert_eq!(TraceEvent::from_bytes(&bytes[..47]), None);
}

#[test]
fn a_disturber_has_the_layout_of_the_c_struct() {
    let mut bytes = Vec::new();
    bytes.extend(11u64.to_ne_bytes());
    bytes.extend(22u64.to_ne_bytes());
    bytes.extend(33u32.to_ne_bytes());
    bytes.extend(4u16.to_ne_bytes());
    bytes.extend([3, 0]);
    bytes.extend(*b"kworker/0:1\0\0\0\0\0");
    let disturber = TraceDisturber::from_bytes(&bytes).unwrap();
    assert_eq!((disturber.from_ns, disturber.to_ns, disturber.id), (11, 22, 33));
    assert_eq!(
        (disturber.cpu, disturber.kind, disturber.name.as_str()),
        (4, 3, "kworker/0:1")
    );
    assert_eq!(TraceDisturber::from_bytes(&bytes[..39]), None);
}
