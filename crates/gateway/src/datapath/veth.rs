//! Checks that the other end of a veth takes what the fast path sends.
//!
//! A veth delivers what an XDP program sends back (`XDP_TX`) only while its other end has an XDP
//! program in native mode. Without one it drops the packets, or, where the other end has GRO,
//! leaves up to 256 of each queue in a ring and wakes nobody:
//! <https://elixir.bootlin.com/linux/v6.18/C/ident/veth_xdp_flush>,
//! <https://elixir.bootlin.com/linux/v6.18/C/ident/veth_xdp_xmit>.

use ringside_nic::{Interface, VethPeer, XdpFeatures, XdpMode};

/// The command that attaches such a program.
const COMMAND: &str = "ringside-gateway attach-pass";

/// Returns why what the fast path sends by an interface does not arrive, and what to do. None if it
/// arrives, as far as is known.
pub(super) fn problem(interface: &Interface) -> Option<String> {
    // One that has just gone: the next look sees it.
    let peer = interface.veth_peer().ok().flatten()?;
    let has_program = match &peer.state {
        Some(state) => state.xdp.is_some_and(|xdp| xdp.mode != XdpMode::Generic),
        // Not known here. A veth without this has neither a program nor GRO at the other end.
        None => interface
            .device_capabilities()
            .ok()?
            .xdp_features
            .is_none_or(|all| all.contains(XdpFeatures::NDO_XMIT)),
    };
    (!has_program).then(|| text(interface.name(), &peer))
}

fn text(interface: &str, peer: &VethPeer) -> String {
    let name = match &peer.state {
        Some(state) => state.name.clone(),
        None => format!("the interface with index {}", peer.index),
    };
    let named = peer.state.as_ref().map_or("NAME", |state| &state.name);
    let (place, before) = match &peer.namespace {
        None => (String::new(), String::new()),
        Some(namespace) => match &namespace.name {
            Some(name) => (
                format!(" in the network namespace {name}"),
                format!("ip netns exec {name} "),
            ),
            None => (
                format!(
                    " in another network namespace (number {} of `ip netns list-id`)",
                    namespace.id
                ),
                "in that namespace: ".to_owned(),
            ),
        },
    };
    let attach = format!("{before}{COMMAND} {named}");
    // The kernel takes no program in native mode beside one in generic mode.
    let (has, command) = match peer.state.as_ref().and_then(|state| state.xdp) {
        Some(_) => (
            "has its XDP program in generic mode",
            format!("{before}ip link set dev {named} xdpgeneric off, then {attach}"),
        ),
        None => ("has no XDP program in native mode", attach),
    };
    format!(
        "the interface {interface} is a veth whose other end, {name}{place}, {has}: \
         what the fast path sends by {interface} does not arrive (transmit-lost \
         counts it, unless that end has GRO); {command}"
    )
}

#[cfg(test)]
#[path = "veth_tests.rs"]
mod tests;
