use ringside_netlab::testing::is_root;
use ringside_netlab::{Device, Lab, Namespace, VethConfig};

use crate::Interface;

#[test]
fn finds_the_other_end_in_another_namespace() {
    if !is_root() {
        return;
    }
    let lab = Lab::veth(VethConfig::tagged("peer")).unwrap();
    for [end, other] in [[&lab.a, &lab.b], [&lab.b, &lab.a]] {
        let peer = end.run(|| end.interface.veth_peer()).unwrap().expect("a veth");
        assert_eq!(peer.index, other.interface.index());
        let state = peer.state.expect("root may ask");
        assert_eq!((&*state.name, state.xdp), (other.interface.name(), None));
        let namespace = peer.namespace.expect("another one");
        assert_eq!(namespace.name.as_deref(), Some(other.ns.name()));
    }
}

#[test]
fn finds_the_other_end_in_the_same_namespace() {
    if !is_root() {
        return;
    }
    let ns = Namespace::create("peer-same").unwrap();
    let lab = Lab::join(&ns, &ns, VethConfig::named("one", "two")).unwrap();
    let peer = ns.run(|| lab.a.interface.veth_peer()).unwrap().expect("a veth");
    assert_eq!((peer.index, peer.namespace), (lab.b.interface.index(), None));
    assert_eq!(peer.state.expect("it is there").name, "two");
    let bridge = Device::bridge(&ns, "bridge").unwrap();
    assert_eq!(ns.run(|| bridge.interface.veth_peer()).unwrap(), None);
    let loopback = ns.run(|| Interface::by_name("lo")).unwrap();
    assert_eq!(ns.run(|| loopback.veth_peer()).unwrap(), None);
}
