use super::*;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::neighbour::{NeighbourMessage, NeighbourState};

#[test]
fn loopback_is_found_and_acknowledged() {
    let mut socket = Socket::route().unwrap();
    let mut message = LinkMessage::default();
    message.header.index = 1;
    let answers = socket.request(RouteNetlinkMessage::GetLink(message), 0).unwrap();
    let [RouteNetlinkMessage::NewLink(link)] = answers.as_slice() else {
        panic!("{answers:?}")
    };
    assert!(link.attributes.contains(&LinkAttribute::IfName("lo".to_owned())));
}

fn refusal(socket: &mut Socket, neighbour: NeighbourMessage) -> (Option<i32>, String) {
    match socket.request(RouteNetlinkMessage::GetNeighbour(neighbour), 0) {
        Err(NetlinkError::Refused { source, message }) => (source.raw_os_error(), message.unwrap_or_default()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refusal_carries_errno_and_the_kernels_words() {
    let mut socket = Socket::route().unwrap();
    // A state in a question about a neighbour: the kernel says what it does not like.
    let mut neighbour = NeighbourMessage::default();
    neighbour.header.family = AddressFamily::Inet;
    neighbour.header.ifindex = 1;
    neighbour.header.state = NeighbourState::Permanent;
    let (errno, words) = refusal(&mut socket, neighbour.clone());
    assert_eq!(errno, Some(libc::EINVAL));
    assert!(words.contains("neighbor") && !words.ends_with('\0'), "{words:?}");
    // No address: the kernel names the attribute that is missing, NDA_DST, by its number.
    neighbour.header.state = NeighbourState::default();
    assert_eq!(
        refusal(&mut socket, neighbour),
        (Some(libc::EINVAL), "attribute 1 is missing".to_owned())
    );
    // The socket is as good as before.
    assert!(
        !socket
            .dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_length_beyond_the_datagram_is_refused() {
    let mut header = NetlinkHeader::default();
    for (length, expected) in [
        (15, None),
        (16, Some(16)),
        (17, Some(20)),
        (40, Some(40)),
        (39, Some(40)),
        (41, None),
    ] {
        header.length = length;
        assert_eq!(aligned_length(&header, 40).ok(), expected, "length {length}");
    }
}

#[test]
fn an_error_without_attributes_has_no_explanation() {
    assert_eq!(explanation(&[]), None);
    assert_eq!(explanation(&[0; 16]), None);
    // Length 3 is below an attribute's own header: the rest is not looked at.
    assert_eq!(explanation(&[[0; 16].as_slice(), &[3, 0, 1, 0]].concat()), None);
    assert_eq!(
        explanation(&[[0; 16].as_slice(), &[7, 0, 1, 0, b'n', b'o', 0, 0]].concat()),
        Some("no".to_owned())
    );
}
