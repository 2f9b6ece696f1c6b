use proptest::prelude::*;

use super::*;

const PROBE: Probe = Probe {
    kind: Kind::Request,
    clock: Clock::Tai,
    session: 0x0102_0304,
    sequence: 0x1112_1314_1516_1718,
    intended_ns: 0x2122_2324_2526_2728,
    sent_ns: 0x3132_3334_3536_3738,
};

#[test]
fn layout_byte_by_byte() {
    let mut bytes = [0xffu8; HEADER_LEN + 2];
    PROBE.encode(&mut bytes).unwrap();
    #[rustfmt::skip]
    let expected = [
        b'R', b'S', b'D', b'P', 1, 1, 11, 0,
        0x01, 0x02, 0x03, 0x04, 0, 0, 0, 0,
        0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
        0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28,
        0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38,
        0xff, 0xff,
    ];
    assert_eq!(bytes, expected);
}

#[test]
fn reasons_are_told_apart() {
    let mut good = [0u8; HEADER_LEN];
    PROBE.encode(&mut good).unwrap();
    let with = |at: usize, value: u8| {
        let mut bytes = good;
        bytes[at] = value;
        Probe::decode(&bytes)
    };
    assert_eq!(
        Probe::decode(&good[..39]),
        Err(ProbeError::TooShort {
            have: 39,
            need: HEADER_LEN
        })
    );
    assert_eq!(
        Probe::decode(&good[..7]),
        Err(ProbeError::TooShort { have: 7, need: 8 })
    );
    assert_eq!(with(0, b'X'), Err(ProbeError::NotOurs { found: 0x5853_4450 }));
    assert_eq!(with(4, 2), Err(ProbeError::OtherVersion { found: 2 }));
    assert_eq!(with(5, 3), Err(ProbeError::Kind { found: 3 }));
    assert_eq!(with(6, 2), Err(ProbeError::Clock { found: 2 }));
    // Reserved bytes are for the future: not an error today.
    assert_eq!(with(7, 9), Ok(PROBE));
    assert_eq!(with(13, 9), Ok(PROBE));
    assert_eq!(
        PROBE.encode(&mut [0; 39]),
        Err(ProbeError::TooShort {
            have: 39,
            need: HEADER_LEN
        })
    );
}

#[test]
fn only_requests_are_answered() {
    let mut payload = [0u8; HEADER_LEN];
    PROBE.encode(&mut payload).unwrap();
    payload[6] = 77; // a clock that only who asked knows
    let before = payload;
    assert_eq!(
        make_reply_in_place(&mut payload[..39]),
        Err(ProbeError::TooShort {
            have: 39,
            need: HEADER_LEN
        })
    );
    assert_eq!(payload, before);
    let change = make_reply_in_place(&mut payload).unwrap();
    assert_eq!(change.offset, 4);
    assert_eq!(payload[4..6], change.new.to_be_bytes());
    assert_eq!(before[4..6], change.old.to_be_bytes());
    assert_eq!(payload[6..], before[6..]);
    assert_eq!(make_reply_in_place(&mut payload), Err(ProbeError::Kind { found: 2 }));
}

fn clocks() -> impl Strategy<Value = Clock> {
    prop::sample::select(vec![
        Clock::Realtime,
        Clock::Monotonic,
        Clock::MonotonicRaw,
        Clock::Boottime,
        Clock::Tai,
        Clock::Phc,
    ])
}

proptest! {
    #[test]
    fn encode_then_decode(
        reply: bool, clock in clocks(), session: u32, sequence: u64, intended_ns: u64, sent_ns: u64,
    ) {
        let kind = if reply { Kind::Reply } else { Kind::Request };
        let probe = Probe { kind, clock, session, sequence, intended_ns, sent_ns };
        let mut bytes = [0u8; HEADER_LEN];
        probe.encode(&mut bytes).unwrap();
        prop_assert_eq!(Probe::decode(&bytes), Ok(probe));
    }

    #[test]
    fn never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..60), ours: bool) {
        if ours {
            for (to, from) in bytes.iter_mut().zip(b"RSDP\x01") {
                *to = *from;
            }
        }
        let _ = Probe::decode(&bytes);
        let _ = make_reply_in_place(&mut bytes);
    }
}
