use super::*;

/// The key and the hashes that makers of NICs verify theirs with:
/// <https://learn.microsoft.com/en-us/windows-hardware/drivers/network/verifying-the-rss-hash-calculation>
const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b,
    0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac,
    0x01, 0xfa,
];

/// Destination, source, hash of the addresses, hash with the ports.
const KNOWN: [(&str, &str, u32, u32); 8] = [
    ("161.142.100.80:1766", "66.9.149.187:2794", 0x323e_8fc2, 0x51cc_c178),
    ("65.69.140.83:4739", "199.92.111.2:14230", 0xd718_262a, 0xc626_b0ea),
    ("12.22.207.184:38024", "24.19.198.95:12898", 0xd2d0_a5de, 0x5c2b_394a),
    ("209.142.163.6:2217", "38.27.205.30:48228", 0x8298_9176, 0xafc7_327f),
    ("202.188.127.2:1303", "153.39.163.191:44251", 0x5d18_09c5, 0x10e8_28a2),
    (
        "[3ffe:2501:200:3::1]:1766",
        "[3ffe:2501:200:1fff::7]:2794",
        0x2cc1_8cd5,
        0x4020_7d3d,
    ),
    (
        "[ff02::1]:4739",
        "[3ffe:501:8::260:97ff:fe40:efab]:14230",
        0x0f0c_461c,
        0xdde5_1bbf,
    ),
    (
        "[fe80::200:f8ff:fe21:67cf]:38024",
        "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251",
        0x4b61_e985,
        0x02d1_feef,
    ),
];

fn flow(src: &str, dst: &str, tcp: bool) -> Flow {
    Flow {
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        tcp,
    }
}

fn rss(entries: u32) -> Rss {
    let both = HashedFields::from_bits(0xf0);
    Rss {
        function: Some(HashFunction::Toeplitz),
        symmetry: None,
        key: KEY.to_vec(),
        table: (0..entries).collect(),
        fields: BTreeMap::from([
            (FlowKind::Udp4, HashedFields::from_bits(0x30)),
            (FlowKind::Tcp4, both),
            (FlowKind::Tcp6, both),
        ]),
    }
}

#[test]
fn hashes_are_those_that_are_published() {
    for (dst, src, of_addresses, with_ports) in KNOWN {
        let flow = flow(src, dst, true);
        let mut input = toeplitz::Input::default();
        input.addresses(&flow, None).unwrap();
        assert_eq!(toeplitz(&KEY, input.bytes()), of_addresses, "{src} {dst}");
        input.ports(&flow, None).unwrap();
        assert_eq!(toeplitz(&KEY, input.bytes()), with_ports, "{src} {dst}");
    }
}

#[test]
fn the_queue_is_that_of_the_last_bits() {
    for (dst, src, of_addresses, with_ports) in KNOWN {
        let tcp = rss(128).queue(&flow(src, dst, true));
        assert_eq!(tcp, Ok(with_ports & 127), "{src} {dst}");
        let udp = rss(128).queue(&flow(src, dst, false));
        match src.starts_with('[') {
            true => assert!(udp.unwrap_err().contains("does not tell which fields"), "{src}"),
            // Of UDP the ports are not hashed here.
            false => assert_eq!(udp, Ok(of_addresses & 127), "{src} {dst}"),
        }
    }
    let mut two = rss(0);
    two.table = vec![7, 5];
    let (dst, src, _, with_ports) = KNOWN[0];
    assert_eq!(with_ports & 1, 0);
    assert_eq!(two.queue(&flow(src, dst, true)), Ok(7));
}

#[test]
fn what_cannot_be_known_is_not_guessed() {
    let (dst, src, ..) = KNOWN[0];
    let flow = flow(src, dst, true);
    let why = |change: fn(&mut Rss)| {
        let mut rss = rss(8);
        change(&mut rss);
        rss.queue(&flow).unwrap_err()
    };
    assert!(why(|rss| rss.function = None).contains("hash function"));
    assert!(why(|rss| rss.function = Some(HashFunction::Xor)).contains("not Toeplitz"));
    assert!(why(|rss| rss.key.truncate(15)).contains("its key"));
    assert!(why(|rss| rss.table.clear()).contains("no table"));
    assert!(why(|rss| rss.symmetry = Some(Symmetry::Other)).contains("symmetric"));
    // One port only; the VLAN tag in addition.
    assert!(why(|rss| _ = rss.fields.insert(FlowKind::Tcp4, HashedFields::from_bits(0x70))).contains("one side only"));
    assert!(
        why(|rss| _ = rss.fields.insert(FlowKind::Tcp4, HashedFields::from_bits(0xf4)))
            .contains("more of such packets")
    );
    let mixed = Flow {
        dst: "[::1]:1".parse().unwrap(),
        ..flow
    };
    assert!(rss(8).queue(&mixed).unwrap_err().contains("one family"));
}

#[test]
fn a_symmetric_hash_is_the_same_for_both_directions() {
    for symmetry in [Symmetry::Xor, Symmetry::OrXor] {
        let symmetric = Rss {
            symmetry: Some(symmetry),
            ..rss(128)
        };
        let mut differ = 0;
        for (dst, src, ..) in KNOWN {
            let (there, back) = (flow(src, dst, true), flow(dst, src, true));
            assert_eq!(symmetric.queue(&there), symmetric.queue(&back), "{symmetry:?} {src}");
            differ += usize::from(rss(128).queue(&there) != rss(128).queue(&back));
        }
        assert!(differ > 4, "without it they differ: {differ}");
    }
}

/// What a NIC with four entries and a key of eight bytes answers.
#[test]
fn an_answer_of_the_kernel_is_read() {
    let words: [u32; 10] = [ETHTOOL_GRSSH, 0, 4, 8, 0, 0, 2, 0, 1, 3];
    let mut answer: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    (answer[16], answer[17]) = (1, 1);
    answer.extend([1, 2, 3, 4, 5, 6, 7, 8, 99]);
    let rss = parse(&answer, 4, 8);
    assert_eq!(rss.table, [2, 0, 1, 3]);
    assert_eq!(rss.key, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(
        (rss.function, rss.symmetry),
        (Some(HashFunction::Toeplitz), Some(Symmetry::Xor))
    );
    let json = serde_json::to_value(&rss).unwrap();
    assert_eq!(json["key"], "01:02:03:04:05:06:07:08");
    // Cut short: no entry is made up.
    assert_eq!(parse(&answer[..30], 4, 8).table, [2]);
}

#[test]
fn veth_has_none() {
    if !ringside_netlab::testing::is_root() {
        return;
    }
    let lab = ringside_netlab::Lab::veth(ringside_netlab::VethConfig::tagged("rss")).unwrap();
    assert_eq!(lab.a.run(|| lab.a.interface.rss()).unwrap(), None);
}

#[test]
fn a_table_as_text_is_the_table_again() {
    let halves: Vec<u32> = (0..128).map(|entry| entry / 64).collect();
    assert_eq!(table_text(&halves), "0*64 1*64");
    for table in [halves, vec![3], vec![0, 1, 0, 1]] {
        assert_eq!(parse_table(&table_text(&table)), Some(table));
    }
    for wrong in ["", "1", "1*", "a*2", "1*70000"] {
        assert_eq!(parse_table(wrong), None, "{wrong}");
    }
}
