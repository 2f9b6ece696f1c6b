//! Edits in place: any frame, any room around it, any way to go.

use std::net::IpAddr;

use ringside_wire::MacAddr;

use super::world::a_frame;
use super::{Choices, underlay};
use crate::answer::{Trouble, complain, i_have};
use crate::rewrite::{Route, forward};
use crate::table::Encapsulation;
use crate::testing::corpus::{gateway, host};
use crate::{Buffer, Class, Content, DropReason, Packet, Roomy};

/// Answers, refuses or forwards a packet with as much room around it as the input says. Whatever there is: what is sent is as
/// long as its headers say and for whom it was to be, and where the packet is refused for another reason than room it is what it was.
///
/// # Panics
/// When one of these does not hold.
pub fn answer(input: &[u8]) {
    let mut choices = Choices(input);
    let what = choices.below(4);
    let (front, back) = (choices.below(80), usize::from(choices.byte()) * 8);
    let route = a_route(&mut choices);
    let mac = choices.of(&[MacAddr([2, 0xaa, 0, 0, 0, 2]), MacAddr([2, 0xaa, 0, 0, 0, 9])]);
    let mtu = choices.word();
    let frame = if choices.one_in(2) {
        choices.0.to_vec()
    } else {
        a_frame(&mut choices)
    };
    let Class::Tenant(packet) = Packet::classify(&frame, &underlay()) else {
        return;
    };
    let mut buffer = Roomy::new(&frame, front, back);
    let is_question = matches!(packet.content, Content::WhoHas { .. });
    let done = match what {
        0 if is_question => i_have(&mut buffer, &packet, &route, mac),
        1 if !is_question => complain(&mut buffer, &packet, &route, Trouble::TooBig(mtu)).ok_or(DropReason::TooBig),
        2 if !is_question => complain(&mut buffer, &packet, &route, Trouble::TimeExceeded).ok_or(DropReason::InnerTtl),
        _ if !is_question => forward(&mut buffer, &packet, &route, mac),
        _ => return,
    };
    if let Err(reason) = done {
        let has_room = front >= 80 - 14 && back >= 1400;
        let may_be_edited = matches!(reason, DropReason::NoRoom | DropReason::TooBig | DropReason::InnerTtl);
        assert!(
            reason != DropReason::NoRoom || !has_room,
            "there was room for {packet:?}"
        );
        assert!(
            buffer.bytes() == frame || (may_be_edited && !has_room),
            "{reason} of {packet:?}"
        );
        return;
    }
    // As its receiver reads it.
    let mut receiver = underlay();
    receiver.addresses = vec![route.to.1];
    match route.encapsulation {
        Encapsulation::Vxlan => receiver.vxlan_port = route.port,
        Encapsulation::Geneve => receiver.geneve_port = route.port,
    }
    let got = Packet::classify(buffer.bytes(), &receiver);
    if is_question {
        // Which is no question any more, and may be to many.
        assert!(
            !matches!(got, Class::NotOurs | Class::Drop(DropReason::OuterMalformed)),
            "{got:?}"
        );
        return;
    }
    let Class::Tenant(got) = got else {
        panic!("{got:?} of {packet:?}");
    };
    assert_eq!((got.from, got.to), (route.from.1, route.to.1));
    assert_eq!((got.vni, got.encapsulation), (packet.vni, route.encapsulation));
    match what {
        1 | 2 => {
            let turned = matches!((got.content, packet.content), (Content::Ip { src, dst }, Content::Ip { src: from, dst: to }) if (src, dst) == (to, from));
            assert!(turned, "{got:?} of {packet:?}");
        }
        _ => {
            assert_eq!(
                (got.end - got.inner, got.content),
                (packet.end - packet.inner, packet.content)
            );
            assert_eq!(got.inner_destination(buffer.bytes()), mac);
        }
    }
}

fn a_route(choices: &mut Choices<'_>) -> Route {
    let v6 = choices.one_in(3);
    let to: IpAddr = host(2, v6);
    let encapsulation = choices.of(&[Encapsulation::Vxlan, Encapsulation::Geneve]);
    Route {
        from: (MacAddr([2, 0, 0, 0, 1, 0xfe]), gateway(v6)),
        to: (MacAddr([2, 0, 0, 0, 1, 2]), to),
        encapsulation,
        port: match encapsulation {
            Encapsulation::Vxlan => 4789,
            Encapsulation::Geneve => 6081,
        },
        source_port: choices.of(&[None, Some(0xc123)]),
        ttl: choices.of(&[64, 1, 255]),
    }
}
