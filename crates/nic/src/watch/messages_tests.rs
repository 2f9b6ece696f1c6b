use super::*;
use netlink_packet_core::NetlinkHeader;

fn bytes(message: RouteNetlinkMessage) -> Vec<u8> {
    let mut message = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

fn link(family: AddressFamily, attributes: &[LinkAttribute]) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.interface_family = family;
    message.header.index = 7;
    message.attributes = attributes.to_vec();
    message
}

fn gone(attributes: &[LinkAttribute]) -> Option<Moved> {
    match decode(&bytes(RouteNetlinkMessage::DelLink(link(
        AddressFamily::Unspec,
        attributes,
    )))) {
        Ok(Some(Message::Gone { index: 7, moved })) => moved,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_removal_and_a_move_are_told_apart() {
    assert_eq!(gone(&[LinkAttribute::IfName("eth0".to_owned())]), None);
    let [id, index] = [LinkAttribute::NewNetnsId(3), LinkAttribute::NewIfIndex(11)];
    let moved = |namespace, index| Some(Moved { namespace, index });
    assert_eq!(gone(&[index.clone(), id.clone()]), moved(Some(3), Some(11)));
    // Linux 4.15 to 4.20 do not tell the index, and a namespace may have no id.
    assert_eq!(gone(&[id]), moved(Some(3), None));
    assert_eq!(gone(&[LinkAttribute::NewNetnsId(-1), index]), moved(None, Some(11)));
}

#[test]
fn a_bridges_words_about_its_port_are_not_the_links() {
    let port = [LinkAttribute::IfName("eth0".to_owned())];
    for message in [RouteNetlinkMessage::DelLink, RouteNetlinkMessage::NewLink] {
        let about_port = bytes(message(link(AddressFamily::Bridge, &port)));
        assert!(matches!(decode(&about_port), Ok(None)));
    }
    let about_link = bytes(RouteNetlinkMessage::NewLink(link(AddressFamily::Unspec, &port)));
    assert!(matches!(decode(&about_link), Ok(Some(Message::Link(state))) if state.index == 7));
}

#[test]
fn what_is_not_understood_is_an_error() {
    let whole = bytes(RouteNetlinkMessage::NewLink(link(
        AddressFamily::Unspec,
        &[LinkAttribute::IfName("eth0".to_owned())],
    )));
    assert!(decode(&whole[..whole.len() - 5]).is_err());
    assert!(decode(&[]).is_err());
    let nameless = bytes(RouteNetlinkMessage::NewLink(link(AddressFamily::Unspec, &[])));
    assert!(decode(&nameless).is_err());
}
