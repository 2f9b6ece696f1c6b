use super::*;
use crate::netlink::generic::Message;

#[test]
fn rings_are_told_from_other_mappings() {
    let maps = "\
7f00-7f01 rw-s 100000000 00:08 4711                       socket:[4711]
7f01-7f02 rw-s 180000000 00:08 4711                       socket:[4711]
7f02-7f03 rw-s 00000000 00:08 4711                       socket:[4711]
7f03-7f04 rw-s 80000000 00:08 12                       socket:[12]
7f04-7f05 rw-s 00000000 00:08 99                       socket:[99]
7f05-7f06 r--p 80000000 08:01 5                       /usr/lib/large
7f06-7f07 rw-p 00000000 00:00 0
ffff-ffff r-xp 00000000 00:00 0                       [vsyscall]
";
    assert_eq!(in_maps(maps), [12, 4711]);
    assert!(in_maps("").is_empty());
}

#[test]
fn processes_are_found_with_their_names() {
    let root = std::env::temp_dir().join(format!("ringside-nic-sockets-{}", std::process::id()));
    for (pid, maps) in [
        ("30", "a-b rw-s 100000000 00:08 7 socket:[7]\n"),
        ("8", ""),
        ("self", ""),
    ] {
        fs::create_dir_all(root.join(pid)).unwrap();
        fs::write(root.join(pid).join("maps"), maps).unwrap();
        fs::write(root.join(pid).join("comm"), "xdpsock\n").unwrap();
    }
    let found = holders_in(&root);
    fs::remove_dir_all(&root).unwrap();
    let expected = SocketHolder {
        pid: 30,
        comm: "xdpsock".to_owned(),
        sockets: vec![7],
        same_namespace: false,
    };
    assert_eq!(found, [expected]);
    assert_eq!(by_inode(&found)[&7].pid, 30);
}

#[test]
fn an_answer_of_the_diagnostics() {
    let mut bytes = vec![AF_XDP, 3, 0, 0];
    bytes.extend(4711_u32.to_ne_bytes());
    bytes.extend([0; 8]);
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
    let info: Vec<u8> = [5_u32, 2].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let attributes = Message::new(0, 0)
        .with(XDP_DIAG_INFO, &info)
        .with(XDP_DIAG_STATS, &words(&[1, 2, 3, 4, 5, 6]));
    bytes.extend(attributes.attributes().0);
    let socket = XdpSocket::from_answer(&Diag(bytes.clone())).unwrap();
    let drops = SocketDrops {
        rx_dropped: 1,
        rx_invalid_descs: 2,
        rx_ring_full: 3,
        rx_fill_ring_empty: 4,
        tx_invalid_descs: 5,
        tx_ring_empty: 6,
    };
    assert_eq!(
        (socket.inode, socket.interface, socket.queue, socket.drops),
        (4711, 5, 2, Some(drops))
    );
    // One that is not bound has no interface; and nothing is read beyond the end.
    assert_eq!(XdpSocket::from_answer(&Diag(bytes[..16].to_vec())), None);
    assert_eq!(XdpSocket::from_answer(&Diag(bytes[..9].to_vec())), None);
    assert_eq!(SocketDrops::from_bytes(&[0; 47]), None);
}

/// A kernel with the diagnostics lists, one without says so; neither is an error.
#[test]
fn the_kernel_answers() {
    let listed = list().unwrap();
    let built_in = fs::read_to_string("/proc/net/protocols").is_ok_and(|text| text.contains("XDP"));
    if !built_in {
        assert_eq!(listed, None);
    }
}
