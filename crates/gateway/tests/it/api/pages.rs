//! Lists of ports and groups: in parts, and filtered.

use ringside_gateway::proto::port_service_client::PortServiceClient;
use ringside_gateway::proto::security_group_service_client::SecurityGroupServiceClient;
use ringside_gateway::proto::*;
use tonic::Code;
use tonic::transport::Channel;

use crate::common::Gateway;

/// In three networks, of both families.
fn port(number: u8) -> Port {
    let ip = if number.is_multiple_of(2) {
        vec![10, 0, number / 20, number]
    } else {
        vec![0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, number / 20, number]
    };
    let vni = u32::from(number % 3);
    Port {
        address: Some(TenantAddress { vni, ip }),
        groups: vec![1],
        version: 1,
    }
}

fn group(id: u32) -> SecurityGroup {
    SecurityGroup {
        id,
        name: format!("group {id}"),
        rules: Vec::new(),
        version: 1,
    }
}

fn page(size: u32, token: &[u8]) -> Option<PageRequest> {
    let token = token.to_vec();
    Some(PageRequest { size, token })
}

/// Some of the ports, and what asks for the next.
async fn ports_after(
    client: &mut PortServiceClient<Channel>,
    filter: &AddressFilter,
    page: Option<PageRequest>,
) -> (Vec<Port>, Vec<u8>) {
    let filter = Some(filter.clone());
    let part = client.list_ports(ListPortsRequest { page, filter }).await;
    let part = part.unwrap().into_inner();
    (part.ports, part.next_page_token)
}

/// All of the ports that a filter lets through, by parts of this size.
async fn ports_by(client: &mut PortServiceClient<Channel>, filter: &AddressFilter, size: u32) -> Vec<Port> {
    let (mut all, mut token) = (Vec::new(), Vec::new());
    loop {
        let (some, next) = ports_after(client, filter, page(size, &token)).await;
        assert!(some.len() <= size as usize);
        all.extend(some);
        if next.is_empty() {
            return all;
        }
        assert_ne!(next, token, "it goes on");
        token = next;
    }
}

#[tokio::test]
async fn ports_come_in_parts_and_by_what_is_asked_for() {
    let gateway = Gateway::start();
    let channel = gateway.channel().await;
    let mut groups = SecurityGroupServiceClient::new(channel.clone());
    let one = PutSecurityGroupsRequest { groups: vec![group(1)] };
    groups.put_security_groups(one).await.unwrap();
    let mut client = PortServiceClient::new(channel);
    let mut all: Vec<Port> = (0..60).map(port).collect();
    let put = PutPortsRequest { ports: all.clone() };
    client.put_ports(put).await.unwrap();
    // In order: networks, then IPv4 before IPv6, then addresses.
    let order = |port: &Port| {
        let address = port.address.clone().unwrap();
        (address.vni, address.ip.len(), address.ip)
    };
    all.sort_by_key(order);
    let any = AddressFilter::default();
    for size in [1, 7, 59, 60, 61, 10_000] {
        assert_eq!(ports_by(&mut client, &any, size).await, all, "{size}");
    }
    for (vni, prefix) in [
        (Some(2), ""),
        (Some(9), ""),
        (None, "10.0.1.0/24"),
        (None, "fd00::200/120"),
        (None, "fd00::/8"),
        (Some(1), "10.0.0.0/8"),
        (Some(1), "::/0"),
        (Some(1), "10.0.0.4/32"),
    ] {
        let filter = AddressFilter {
            vni,
            prefix: (!prefix.is_empty()).then(|| prefix.to_owned()),
        };
        let is_meant = |port: &&Port| {
            let address = port.address.as_ref().unwrap();
            let ip = address.ip.as_slice();
            let is_in = match prefix {
                "" => true,
                "10.0.1.0/24" => ip.starts_with(&[10, 0, 1]),
                "10.0.0.0/8" => ip.len() == 4,
                "10.0.0.4/32" => ip == [10, 0, 0, 4],
                "fd00::200/120" => ip.len() == 16 && ip[14] == 2,
                _ => ip.len() == 16,
            };
            is_in && vni.is_none_or(|vni| vni == address.vni)
        };
        let meant: Vec<Port> = all.iter().filter(is_meant).cloned().collect();
        for size in [1, 4, 1000] {
            assert_eq!(
                ports_by(&mut client, &filter, size).await,
                meant,
                "{filter:?} by {size}"
            );
        }
    }

    // What the token stands for goes, and something comes before it and behind it: what was told is not told again, and nothing is left out.
    let (first, token) = ports_after(&mut client, &any, page(20, &[])).await;
    assert_eq!(first, all[..20]);
    let gone = [5, 19, 20].map(|at| AddressVersion {
        address: all[at].address.clone(),
        version: 1,
    });
    client
        .delete_ports(DeletePortsRequest {
            ports: gone.to_vec(),
            any_version: false,
        })
        .await
        .unwrap();
    let new = [port(200), port(201)].map(|port| Port {
        address: port.address.map(|address| TenantAddress {
            vni: if address.ip.len() == 4 { 0 } else { 2 },
            ip: if address.ip.len() == 4 {
                vec![1, 1, 1, 1]
            } else {
                address.ip
            },
        }),
        ..port
    });
    client.put_ports(PutPortsRequest { ports: new.to_vec() }).await.unwrap();
    let (mut rest, token) = ports_after(&mut client, &any, page(1000, &token)).await;
    assert!(token.is_empty());
    assert_eq!(rest.pop().as_ref(), Some(&new[1]), "which is behind it");
    assert_eq!(rest, all[21..]);

    for (request, said) in [
        (page(10_001, &[]), "page.size: 10001 is above 10000"),
        (page(1, &[1, 2]), "page.token: is none that this gateway gave"),
    ] {
        let request = ListPortsRequest {
            page: request,
            filter: None,
        };
        let refused = client.list_ports(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().starts_with(said), "{refused}");
    }
}

#[tokio::test]
async fn groups_come_in_parts() {
    let gateway = Gateway::start();
    let mut client = SecurityGroupServiceClient::new(gateway.channel().await);
    // Numbers as far apart as they can be, in another order than they are told.
    let ids = [7, 1, u32::MAX, 256, 255, 65_536, 2, 1 << 31];
    let mut all: Vec<SecurityGroup> = ids.into_iter().map(group).collect();
    let put = PutSecurityGroupsRequest { groups: all.clone() };
    client.put_security_groups(put).await.unwrap();
    all.sort_by_key(|group| group.id);
    for size in [1, 3, 8, 9] {
        let (mut listed, mut token) = (Vec::new(), Vec::new());
        loop {
            let request = ListSecurityGroupsRequest {
                page: page(size, &token),
            };
            let part = client.list_security_groups(request).await.unwrap().into_inner();
            assert!(part.groups.len() <= size as usize);
            listed.extend(part.groups);
            token = part.next_page_token;
            if token.is_empty() {
                break;
            }
            if listed.len() == 3 && size == 3 {
                // The one that the token stands for.
                let gone = SecurityGroupVersion {
                    id: listed[2].id,
                    version: 1,
                };
                let delete = DeleteSecurityGroupsRequest {
                    groups: vec![gone],
                    any_version: false,
                };
                client.delete_security_groups(delete).await.unwrap();
            }
        }
        assert_eq!(listed, all, "{size}");
        if size == 3 {
            all.remove(2);
        }
    }
    for (request, said) in [
        (page(10_001, &[]), "page.size: 10001 is above 10000"),
        (page(1, &[1, 2]), "page.token: is none that this gateway gave"),
    ] {
        let refused = client
            .list_security_groups(ListSecurityGroupsRequest { page: request })
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().starts_with(said), "{refused}");
    }
}
