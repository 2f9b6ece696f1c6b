use super::*;

/// Ethernet, IPv4, UDP and 16 bytes; the UDP checksum is `check`.
fn udp4(check: u16) -> Vec<u8> {
    let mut frame = vec![0; 58];
    frame[12..14].copy_from_slice(&ETH_P_IP.to_be_bytes());
    frame[14] = 0x45;
    frame[23] = IPPROTO_UDP;
    frame[40..42].copy_from_slice(&check.to_be_bytes());
    frame
}

fn numbered(offset: usize) -> GeneratorOptions {
    GeneratorOptions {
        sequence_offset: Some(offset),
        ..Default::default()
    }
}

#[test]
fn whole_words_of_the_head_are_rewritten_and_no_more() {
    let frame: Vec<u8> = (0..30).collect();
    let plan = |rewrite| {
        Plan::new(
            &frame,
            &GeneratorOptions {
                rewrite,
                ..Default::default()
            },
        )
        .unwrap()
    };
    assert_eq!(plan(0).head_words, 0);
    assert_eq!(plan(15).head_words, 1);
    assert_eq!(plan(128).head_words, 3, "30 bytes have three whole words");
    assert_eq!(plan(128).head[2].to_ne_bytes(), [16, 17, 18, 19, 20, 21, 22, 23]);
}

/// The tenant's own, in a tunnel without one.
#[test]
fn another_checksum_is_kept_right_in_its_place() {
    let kept = |at| GeneratorOptions {
        checksum_offset: Some(at),
        ..numbered(42)
    };
    for check in [0, 0x1234] {
        let plan = Plan::new(&udp4(check), &kept(52)).unwrap();
        assert_eq!((plan.checksum_offset, plan.base_sum), (52, 0xffff), "{check:#x}");
    }
    let refused = Plan::new(&udp4(0), &kept(57)).unwrap_err();
    assert!(refused.contains("a checksum at offset 57"), "{refused}");
}

#[test]
fn a_checksum_is_kept_right_only_where_there_is_one() {
    assert_eq!(Plan::new(&udp4(0), &numbered(42)).unwrap().checksum_offset, NO_OFFSET);
    assert_eq!(Plan::new(&udp4(0x1234), &numbered(42)).unwrap().checksum_offset, 40);
    let mut raw = vec![0; 60];
    raw[12..14].copy_from_slice(&[0x88, 0xb5]);
    assert_eq!(Plan::new(&raw, &numbered(15)).unwrap().checksum_offset, NO_OFFSET);
}

#[test]
fn the_udp_header_is_found_behind_two_tags() {
    let mut frame = udp4(0x1234);
    frame.splice(12..12, [0x88, 0xa8, 0, 1, 0x81, 0, 0, 2]);
    assert_eq!(Plan::new(&frame, &numbered(50)).unwrap().checksum_offset, 48);
}

#[test]
fn what_cannot_be_is_refused_with_the_numbers() {
    let refused = |frame: &[u8], options| Plan::new(frame, &options).unwrap_err();
    assert!(refused(&[0; 13], GeneratorOptions::default()).contains("13 bytes"));
    assert!(refused(&[0; 3401], GeneratorOptions::default()).contains("3401 bytes"));
    let rewrite = GeneratorOptions {
        rewrite: 129,
        ..Default::default()
    };
    assert!(refused(&[0; 60], rewrite).contains("129"));
    for offset in [0, 41, 51, usize::MAX] {
        assert!(
            refused(&udp4(1), numbered(offset)).contains("headers end at 42"),
            "{offset}"
        );
    }
    assert!(refused(&udp4(1), numbered(43)).contains("even distance"));
    assert!(refused(&[0; 20], numbered(14)).contains("headers end at 14"));

    let mut udp6 = vec![0; 80];
    udp6[12..14].copy_from_slice(&ETH_P_IPV6.to_be_bytes());
    udp6[20] = IPPROTO_UDP;
    assert!(refused(&udp6, numbered(62)).contains("IPv6 without a checksum"));
}
