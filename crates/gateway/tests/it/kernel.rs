//! The gateway's job done by the kernel: for each network a bridge whose only port, a VXLAN endpoint, sends what comes out of
//! it back into it. Who lives where stands in the endpoint's forwarding database; questions go to all hosts.

use std::collections::BTreeSet;

use ringside_netlab::{Device, End, VxlanConfig};

use crate::bed::{Card, Place, Tunnel, outer};

pub(crate) struct KernelGateway {
    _devices: Vec<[Device; 2]>,
}

impl KernelGateway {
    /// All hosts have to speak the same.
    pub(crate) fn start(end: &End, place: Place, cards: &[Card]) -> Self {
        let networks: BTreeSet<u32> = cards.iter().map(|card| card.vni).collect();
        let make = |vni: u32| {
            let local = outer(end, place);
            let name = format!("vxlan{vni}");
            let config = VxlanConfig {
                mac: [2, 0, 0, 1, 0, vni.to_le_bytes()[0]],
                name: name.clone(),
                mtu: place.mtu(),
                vni,
                port: 4789,
                local,
                remote: None,
                checksum: place.tunnel == Tunnel::Vxlan,
            };
            let port = Device::vxlan(&end.ns, &end.ns, &config).expect("VXLAN");
            let bridge = Device::bridge(&end.ns, &format!("bridge{vni}")).expect("bridge");
            bridge.attach(&port.interface).expect("a port of the bridge");
            run(end, &format!("link set dev {name} hairpin on"));
            let hosts: BTreeSet<_> = cards.iter().map(|card| card.host).collect();
            for host in hosts {
                run(end, &format!("fdb append 00:00:00:00:00:00 dev {name} dst {host}"));
            }
            for card in cards.iter().filter(|card| card.vni == vni) {
                let mac = ringside_wire::MacAddr(card.mac);
                run(end, &format!("fdb append {mac} dev {name} dst {}", card.host));
            }
            [port, bridge]
        };
        Self {
            _devices: networks.into_iter().map(make).collect(),
        }
    }
}

fn run(end: &End, words: &str) {
    let output = end
        .ns
        .command("bridge")
        .args(words.split(' '))
        .output()
        .expect("bridge");
    assert!(output.status.success(), "bridge {words}: {output:?}");
}
