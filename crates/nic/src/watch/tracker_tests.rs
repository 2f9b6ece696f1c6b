use super::*;
use crate::OperState;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage, State};

fn state(index: u32, name: &str, flags: LinkFlags, operstate: State) -> LinkState {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.header.flags = flags;
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    message.attributes.push(LinkAttribute::OperState(operstate));
    LinkState::from_message(message).unwrap()
}

fn up(index: u32, name: &str) -> LinkState {
    state(index, name, LinkFlags::Up | LinkFlags::LowerUp, State::Up)
}

fn down(index: u32, name: &str) -> LinkState {
    state(index, name, LinkFlags::empty(), State::Down)
}

/// A tracker of eth0, and what each step told.
struct Told(Tracker);

impl Told {
    fn link(&mut self, state: &LinkState) -> Vec<LinkEvent> {
        let mut events = VecDeque::new();
        self.0.link(state, &mut events);
        events.into()
    }

    fn gone(&mut self, index: u32, moved: Option<Moved>) -> Vec<LinkEvent> {
        let mut events = VecDeque::new();
        self.0.gone(index, moved, &mut events);
        events.into()
    }

    fn queues(&mut self, rx: u32, tx: u32) -> Vec<LinkEvent> {
        let mut events = VecDeque::new();
        self.0.queues(rx, tx, &mut events);
        events.into()
    }
}

#[test]
fn a_status_needs_switch_carrier_and_operational_state() {
    let carrier = LinkFlags::Up | LinkFlags::LowerUp;
    for (flags, operstate, expected) in [
        (LinkFlags::empty(), State::Down, LinkStatus::Down),
        (LinkFlags::LowerUp, State::Up, LinkStatus::Down),
        (LinkFlags::Up, State::LowerLayerDown, LinkStatus::NoCarrier),
        // The carrier comes a moment before the queues are activated.
        (carrier, State::Down, LinkStatus::NoCarrier),
        (carrier, State::Dormant, LinkStatus::NoCarrier),
        (carrier, State::Up, LinkStatus::Up),
        (carrier, State::Unknown, LinkStatus::Up),
        (LinkFlags::Up, State::Unknown, LinkStatus::NoCarrier),
    ] {
        let state = state(1, "eth0", flags, operstate);
        assert_eq!(LinkStatus::of(&state), expected, "{flags:?} {operstate:?}");
    }
    assert_eq!(OperState::from(State::Dormant), OperState::Dormant);
}

#[test]
fn only_differences_are_told() {
    let mut eth0 = Told(Tracker::new("eth0", None));
    assert_eq!(eth0.link(&up(1, "lo")), []);
    assert_eq!(
        eth0.link(&up(4, "eth0")),
        [LinkEvent::Appeared { index: 4 }, LinkEvent::Up]
    );
    assert_eq!(eth0.link(&up(4, "eth0")), []);
    assert_eq!(eth0.link(&down(5, "eth1")), []);
    assert_eq!(eth0.link(&down(4, "eth0")), [LinkEvent::Down]);
    assert_eq!(eth0.queues(4, 4), [], "the first numbers are no change");
    assert_eq!(eth0.queues(4, 4), []);
    assert_eq!(eth0.queues(2, 4), [LinkEvent::QueuesChanged { rx: 2, tx: 4 }]);
}

#[test]
fn a_renamed_link_is_followed_and_waited_for_under_its_last_name() {
    let mut eth0 = Told(Tracker::new("eth0", Some(9)));
    eth0.link(&up(4, "eth0"));
    assert_eq!(
        eth0.link(&down(4, "wan")),
        [LinkEvent::Renamed { name: "wan".to_owned() }, LinkEvent::Down]
    );
    assert_eq!(eth0.0.interface().map(Interface::name), Some("wan"));
    // The old name is somebody else's now.
    assert_eq!(eth0.link(&up(7, "eth0")), []);
    assert_eq!(eth0.gone(7, None), []);
    assert_eq!(eth0.gone(4, None), [LinkEvent::Removed]);
    assert_eq!(eth0.gone(4, None), [], "told once");
    assert_eq!((eth0.0.interface(), eth0.0.status()), (None, None));
    assert_eq!(eth0.queues(1, 1), []);
    assert_eq!(eth0.link(&up(8, "eth0")), []);
    assert_eq!(eth0.link(&down(9, "wan")), [LinkEvent::Appeared { index: 9 }]);
    assert_eq!(eth0.queues(1, 1), [], "those of the old one do not count");
}

#[test]
fn a_link_that_moves_says_where_to() {
    let mut eth0 = Told(Tracker::new("eth0", None));
    eth0.link(&down(4, "eth0"));
    let moved = Moved {
        namespace: Some(3),
        index: Some(11),
    };
    assert_eq!(
        eth0.gone(4, Some(moved)),
        [LinkEvent::Moved {
            namespace: Some(3),
            index: Some(11)
        }]
    );
    assert_eq!(
        eth0.link(&down(4, "eth0")),
        [LinkEvent::Appeared { index: 4 }],
        "and back again"
    );
}

#[test]
fn events_are_told_to_people_and_machines() {
    let event = LinkEvent::QueuesChanged { rx: 2, tx: 4 };
    assert_eq!(event.to_string(), "now 2 receive and 4 transmit queues");
    assert_eq!(
        serde_json::to_value(event).unwrap(),
        serde_json::json!({ "event": "queues_changed", "rx": 2, "tx": 4 })
    );
    assert_eq!(LinkStatus::NoCarrier.to_string(), "no carrier");
    assert_eq!(
        serde_json::to_value(LinkEvent::Down).unwrap(),
        serde_json::json!({ "event": "down" })
    );
}
