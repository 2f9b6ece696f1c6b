use super::*;

#[test]
fn families_are_found_with_their_groups_and_unknown_ones_are_absent() {
    let mut socket = Socket::generic().unwrap();
    let controller = socket.family("nlctrl").unwrap().expect("every kernel has it");
    assert_eq!(controller.id, GENL_ID_CTRL);
    // https://elixir.bootlin.com/linux/v6.18/C/ident/genl_ctrl_groups
    assert!(controller.groups.iter().any(|(name, _)| name == "notify"));
    assert_eq!(socket.family("nosuch").unwrap(), None);
    // The socket is as good as before.
    assert_eq!(socket.family("nlctrl").unwrap(), Some(controller));
}

#[test]
fn attributes_of_every_width_come_back() {
    let inside = Message::new(0, 0).with_u32(1, 7);
    let message = Message::new(20, 3)
        .with(1, b"odd")
        .with_u32(2, u32::MAX)
        .with_u64(3, u64::MAX)
        .with(4, &[1, 2])
        .with_nested(5, &inside);
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    let mut header = NetlinkHeader::default();
    header.message_type = 20;
    let Ok(back) = Message::deserialize(&header, &bytes);
    assert_eq!(back, message);
    let attributes = back.attributes();
    assert_eq!(attributes.text(1), Some("odd"));
    assert_eq!(attributes.u32(2), Some(u32::MAX));
    assert_eq!((attributes.number(3), attributes.u32(3)), (Some(u64::MAX), None));
    assert_eq!(attributes.number(4), Some(u16::from_ne_bytes([1, 2]).into()));
    assert_eq!(attributes.find(5).map(Attributes).and_then(|a| a.u32(1)), Some(7));
    assert_eq!(attributes.number(6), None);
    assert_eq!(attributes.number(1), None, "three bytes are no number");
}

#[test]
fn what_is_cut_short_has_no_attributes() {
    let header = NetlinkHeader::default();
    for bytes in [
        &[][..],
        &[1],
        &[1, 1, 0],
        &[1, 1, 0, 0, 8, 0],
        &[1, 1, 0, 0, 9, 0, 1, 0, 1],
    ] {
        let Ok(message) = Message::deserialize(&header, bytes);
        assert_eq!(message.attributes().all().count(), 0, "{bytes:?}");
    }
}
