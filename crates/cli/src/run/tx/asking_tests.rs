//! What is taken out of a packet whose checksum is left to others.

use std::net::SocketAddr;

use ringside_wire::MacAddr;
use ringside_wire::udp::{ChecksumState, checksum_state};

use super::*;

fn args() -> AskArgs {
    AskArgs {
        tx_stamps: None,
        tx_stamps_outstanding: None,
        checksum_offload: Some(ChecksumArg::Device),
        launch_time: None,
        launch_time_required: false,
    }
}

#[test]
fn the_checksum_is_the_pseudo_headers_and_where_it_is_asked_for() {
    for (src, dst, start) in [
        ("192.0.2.1:9", "192.0.2.2:9", 34),
        ("[2001:db8::1]:9", "[2001:db8::2]:9", 54),
    ] {
        let (src, dst): (SocketAddr, SocketAddr) = (src.parse().unwrap(), dst.parse().unwrap());
        let flow = UdpFlow {
            src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
            dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
            src,
            dst,
            ttl: 64,
        };
        for len in [80, 81, 1514] {
            let mut packet = vec![0; len];
            flow.write(&mut packet, len - flow.header_len()).unwrap();
            assert_eq!(
                checksum_state(&packet[start..], src.ip(), dst.ip()),
                ChecksumState::Valid
            );
            let asking = Asking::new(&args(), &flow, &mut packet).unwrap();
            let state = checksum_state(&packet[start..], src.ip(), dst.ip());
            assert_eq!(state, ChecksumState::PseudoHeaderOnly, "{src} {len}");
            assert_eq!(asking.meta, TxMeta::new().checksum(start.try_into().unwrap(), 6));
        }
    }
}

#[test]
fn nothing_is_asked_for_unless_it_is() {
    let none = AskArgs {
        checksum_offload: None,
        ..args()
    };
    assert!(none.is_empty() && !args().is_empty());
    assert_eq!(none.wanted(), TxMetadata::new());
    assert_eq!(args().wanted(), TxMetadata::new().checksum());
    let kernel = AskArgs {
        checksum_offload: Some(ChecksumArg::Kernel),
        tx_stamps: Some(4),
        tx_stamps_outstanding: Some(2),
        launch_time: Some(Duration::from_micros(1)),
        launch_time_required: true,
    };
    let expected = TxMetadata::new()
        .software_checksum()
        .timestamps(StampSampling::one_in(4).outstanding(2))
        .launch_time(LaunchTime::Required);
    assert_eq!(kernel.wanted(), expected);
}
