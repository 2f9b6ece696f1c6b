//! The API as a client sees it, over a unix socket and over TLS.

mod pages;

use std::time::Duration;

use crate::common::{Gateway, certificate, list_all, neighbor};
use ringside_gateway::proto::fleet_service_client::FleetServiceClient;
use ringside_gateway::proto::neighbor_event::Event;
use ringside_gateway::proto::neighbor_service_client::NeighborServiceClient;
use ringside_gateway::proto::operation_service_client::OperationServiceClient;
use ringside_gateway::proto::port_service_client::PortServiceClient;
use ringside_gateway::proto::security_group_service_client::SecurityGroupServiceClient;
use ringside_gateway::proto::*;
use tokio_stream::StreamExt as _;
use tonic::Code;
use tonic::transport::Endpoint;

#[tokio::test]
async fn neighbors_are_put_found_listed_and_deleted() {
    let gateway = Gateway::start();
    let mut client = NeighborServiceClient::new(gateway.channel().await);
    let put = |neighbors| PutNeighborsRequest { neighbors };
    let all: Vec<Neighbor> = (0..25).map(|number| neighbor(number, 1)).collect();
    let outcomes = client
        .put_neighbors(put(all.clone()))
        .await
        .unwrap()
        .into_inner()
        .outcomes;
    assert_eq!(outcomes, [Outcome::Created as i32; 25]);
    let again = vec![
        neighbor(1, 1),
        neighbor(2, 0),
        neighbor(3, 2),
        Neighbor {
            mac: vec![2; 6],
            ..neighbor(4, 1)
        },
    ];
    let outcomes = client.put_neighbors(put(again)).await.unwrap().into_inner().outcomes;
    let expected = [Outcome::Unchanged, Outcome::Older, Outcome::Replaced, Outcome::Conflict];
    assert_eq!(outcomes, expected.map(i32::from));

    let get = |number, deleted| GetNeighborRequest {
        address: neighbor(number, 0).address,
        deleted,
    };
    let found = client.get_neighbor(get(3, false)).await.unwrap().into_inner().neighbor;
    assert_eq!(found, Some(neighbor(3, 2)));
    let delete = vec![
        AddressVersion {
            address: neighbor(3, 0).address,
            version: 2,
        },
        AddressVersion {
            address: neighbor(99, 0).address,
            version: 1,
        },
    ];
    let outcomes = client
        .delete_neighbors(DeleteNeighborsRequest {
            neighbors: delete,
            any_version: false,
        })
        .await
        .unwrap()
        .into_inner()
        .outcomes;
    assert_eq!(outcomes, [Outcome::Deleted, Outcome::NotFound].map(i32::from));
    let gone = client.get_neighbor(get(3, false)).await.unwrap_err();
    assert_eq!(
        (gone.code(), gone.message()),
        (Code::NotFound, "there is no neighbor 10.0.0.3 in network 3")
    );
    let gone = client.get_neighbor(get(3, true)).await.unwrap().into_inner();
    assert_eq!((gone.neighbor, gone.deleted_version), (None, Some(2)));

    let listed = list_all(&mut client, 7).await;
    assert_eq!(listed.len(), 24);
    let filter = Some(AddressFilter {
        vni: Some(5),
        prefix: Some("10.0.0.0/8".into()),
    });
    let part = client
        .list_neighbors(ListNeighborsRequest {
            filter,
            ..Default::default()
        })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(part.neighbors, [neighbor(5, 1), neighbor(15, 1)]);
    let on_host = ListNeighborsRequest {
        host_ip: vec![192, 0, 2, 7],
        ..Default::default()
    };
    assert_eq!(
        client.list_neighbors(on_host).await.unwrap().into_inner().neighbors,
        [neighbor(7, 1)]
    );
}

#[tokio::test]
async fn a_bad_request_says_what_is_wrong_and_changes_nothing() {
    let gateway = Gateway::start();
    let mut client = NeighborServiceClient::new(gateway.channel().await);
    let bad = Neighbor {
        mac: vec![2, 0],
        ..neighbor(2, 1)
    };
    let request = PutNeighborsRequest {
        neighbors: vec![neighbor(1, 1), bad],
    };
    let refused = client.put_neighbors(request).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (
            Code::InvalidArgument,
            "neighbors[1].mac: 2 bytes are no MAC address, 6 are"
        )
    );
    let many = PutNeighborsRequest {
        neighbors: vec![neighbor(1, 1); 65_537],
    };
    assert_eq!(
        client.put_neighbors(many).await.unwrap_err().code(),
        Code::ResourceExhausted
    );
    let page = |size, token: &[u8]| ListNeighborsRequest {
        page: Some(PageRequest {
            size,
            token: token.to_vec(),
        }),
        ..Default::default()
    };
    for (request, part) in [
        (page(10_001, &[]), "page.size: 10001 is above 10000"),
        (page(1, &[1, 2]), "page.token: is none that this gateway gave"),
        (
            ListNeighborsRequest {
                filter: Some(AddressFilter {
                    vni: None,
                    prefix: Some("10.0/8".into()),
                }),
                ..Default::default()
            },
            "filter.prefix: \"10.0/8\" is none",
        ),
        (
            ListNeighborsRequest {
                host_ip: vec![1],
                ..Default::default()
            },
            "host_ip: 1 bytes are no IP address",
        ),
    ] {
        let refused = client.list_neighbors(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().starts_with(part), "{refused}");
    }
    let listed = client
        .list_neighbors(ListNeighborsRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(listed.neighbors, []);
}

#[tokio::test]
async fn a_bulk_load_answers_each_batch() {
    const BATCHES: u32 = 20;
    const SIZE: u32 = 500;
    let gateway = Gateway::start();
    let mut client = NeighborServiceClient::new(gateway.channel().await);
    let batches = || {
        (0..BATCHES).map(|batch| LoadNeighborsRequest {
            neighbors: (batch * SIZE..(batch + 1) * SIZE)
                .map(|number| neighbor(number, 1))
                .collect(),
            next_version: false,
        })
    };
    for (changed, unchanged) in [(BATCHES * SIZE, 0), (0, BATCHES * SIZE)] {
        let answers = client
            .load_neighbors(tokio_stream::iter(batches()))
            .await
            .unwrap()
            .into_inner();
        let answers: Vec<_> = answers.map(Result::unwrap).collect().await;
        assert!(answers.is_sorted_by_key(|answer| answer.batches));
        let last = answers.last().unwrap();
        assert_eq!(
            (last.batches, last.changed, last.unchanged),
            (BATCHES.into(), changed.into(), unchanged.into())
        );
    }
    // What came before a batch that is wrong stays.
    let bad = LoadNeighborsRequest {
        neighbors: vec![neighbor(1, 2), Neighbor::default()],
        next_version: false,
    };
    let good = LoadNeighborsRequest {
        neighbors: vec![neighbor(0, 2)],
        next_version: false,
    };
    let answers = client
        .load_neighbors(tokio_stream::iter([good.clone(), bad, good]))
        .await
        .unwrap()
        .into_inner();
    let answers: Vec<_> = answers.collect().await;
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[0].as_ref().unwrap().changed, 1);
    let refused = answers[1].as_ref().unwrap_err();
    assert_eq!(refused.message(), "batch 1: neighbors[1].address: is missing");
    let mut operations = OperationServiceClient::new(gateway.channel().await);
    let statistics = operations
        .get_statistics(GetStatisticsRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(statistics.neighbors, u64::from(BATCHES * SIZE));
}

#[tokio::test]
async fn a_watcher_gets_what_is_there_and_then_every_change() {
    let gateway = Gateway::start();
    let mut client = NeighborServiceClient::new(gateway.channel().await);
    let all: Vec<Neighbor> = (0..2500).map(|number| neighbor(number, 1)).collect();
    client
        .put_neighbors(PutNeighborsRequest { neighbors: all.clone() })
        .await
        .unwrap();
    let start = Some(WatchStart { existing: true });
    let mut events = client
        .watch_neighbors(WatchNeighborsRequest { start, filter: None })
        .await
        .unwrap()
        .into_inner();
    let mut existing = Vec::new();
    loop {
        let answer = events.next().await.unwrap().unwrap();
        existing.extend(answer.events);
        if answer.synced {
            break;
        }
    }
    assert_eq!(existing.len(), all.len());
    client
        .put_neighbors(PutNeighborsRequest {
            neighbors: vec![neighbor(7, 2), neighbor(8, 1)],
        })
        .await
        .unwrap();
    let gone = AddressVersion {
        address: neighbor(7, 0).address,
        version: 3,
    };
    client
        .delete_neighbors(DeleteNeighborsRequest {
            neighbors: vec![gone.clone()],
            any_version: false,
        })
        .await
        .unwrap();
    let mut changes = Vec::new();
    while changes.len() < 2 {
        changes.extend(
            events
                .next()
                .await
                .unwrap()
                .unwrap()
                .events
                .into_iter()
                .map(|event| event.event.unwrap()),
        );
    }
    assert_eq!(changes, [Event::Put(neighbor(7, 2)), Event::Deleted(gone)]);
}

/// It is not waited for, and it is told: nobody takes what it has heard for all there was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_who_does_not_listen_is_told_that_it_has_missed_something() {
    let gateway = Gateway::start();
    let mut client = NeighborServiceClient::new(gateway.channel().await);
    let narrow = Endpoint::from_shared(format!("unix:{}", gateway.socket().display())).unwrap();
    let narrow = narrow.initial_stream_window_size(65_535).connect().await.unwrap();
    let mut other = NeighborServiceClient::new(narrow);
    let request = WatchNeighborsRequest::default();
    let mut events = other.watch_neighbors(request.clone()).await.unwrap().into_inner();
    // More than its connection has room for, and than is kept for who is slow.
    for version in 1..=400 {
        let neighbors = (0..50).map(|number| neighbor(number, version)).collect();
        client.put_neighbors(PutNeighborsRequest { neighbors }).await.unwrap();
    }
    let mut heard = 0;
    let told = loop {
        let next = tokio::time::timeout(Duration::from_secs(60), events.next()).await;
        match next.expect("it is told at once").expect("it is told why it ends") {
            Ok(answer) => heard += answer.events.len(),
            Err(told) => break told,
        }
    };
    assert_eq!(told.code(), Code::OutOfRange, "{told}");
    assert!(heard < 400 * 50, "{heard}");
    // From here on it knows everything again.
    let start = Some(WatchStart { existing: true });
    let mut events = (other.watch_neighbors(WatchNeighborsRequest { start, ..request }).await)
        .unwrap()
        .into_inner();
    let answer = events.next().await.unwrap().unwrap();
    assert_eq!(answer.events.len(), 50);
}

#[tokio::test]
async fn ports_and_security_groups_are_kept_and_bound() {
    let gateway = Gateway::start();
    let mut ports = PortServiceClient::new(gateway.channel().await);
    let mut groups = SecurityGroupServiceClient::new(gateway.channel().await);
    let rule = Rule {
        id: 3,
        direction: Direction::Ingress.into(),
        protocol: Some(6),
        ports: Some(PortRange { first: 80, last: 443 }),
        remote: Some(rule::Remote::RemotePrefix("10.0.0.0/8".into())),
        ..Rule::default()
    };
    let group = SecurityGroup {
        id: 1,
        name: "web".into(),
        rules: vec![rule.clone()],
        version: 1,
    };
    let put = |groups| PutSecurityGroupsRequest { groups };
    let outcomes = groups
        .put_security_groups(put(vec![group.clone()]))
        .await
        .unwrap()
        .into_inner()
        .outcomes;
    assert_eq!(outcomes, [i32::from(Outcome::Created)]);
    let backwards = Rule {
        ports: Some(PortRange { first: 443, last: 80 }),
        ..rule
    };
    let bad = SecurityGroup {
        rules: vec![backwards],
        ..group.clone()
    };
    let refused = groups.put_security_groups(put(vec![bad])).await.unwrap_err();
    assert_eq!(
        refused.message(),
        "groups[0].rules: rule 3: the ports 443 to 80 are none; give the lower one first"
    );
    let found = groups
        .get_security_group(GetSecurityGroupRequest { id: 1, deleted: false })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(found.group, Some(group));

    let port = Port {
        address: neighbor(1, 0).address,
        groups: vec![2, 1, 2],
        version: 1,
    };
    ports
        .put_ports(PutPortsRequest {
            ports: vec![port.clone()],
        })
        .await
        .unwrap();
    let found = ports
        .list_ports(ListPortsRequest::default())
        .await
        .unwrap()
        .into_inner()
        .ports;
    assert_eq!(
        found,
        [Port {
            groups: vec![1, 2],
            ..port
        }]
    );
    let gone = groups
        .delete_security_groups(DeleteSecurityGroupsRequest {
            groups: vec![SecurityGroupVersion { id: 1, version: 1 }],
            any_version: false,
        })
        .await;
    assert_eq!(gone.unwrap().into_inner().outcomes, [i32::from(Outcome::Deleted)]);
    assert_eq!(
        groups
            .list_security_groups(ListSecurityGroupsRequest::default())
            .await
            .unwrap()
            .into_inner()
            .groups,
        []
    );
}

#[tokio::test]
async fn a_drained_gateway_says_so() {
    let gateway = Gateway::start();
    let mut client = OperationServiceClient::new(gateway.channel().await);
    for (drain, status) in [(true, Status::Draining), (false, Status::Ok)] {
        client.set_drain(SetDrainRequest { drain }).await.unwrap();
        let health = client.get_health(GetHealthRequest {}).await.unwrap().into_inner();
        assert_eq!(
            (health.status(), health.read_only, health.problems),
            (status, false, vec![])
        );
    }
}

#[tokio::test]
async fn the_socket_is_its_owners_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let gateway = Gateway::start();
    gateway.channel().await;
    let mode = std::fs::metadata(gateway.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // It has another name until only its owner may use it, and for a moment both.
    let folder = gateway.socket().parent().unwrap().to_owned();
    let hidden = || {
        let names = std::fs::read_dir(&folder).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with('.')).collect::<Vec<_>>()
    };
    assert!(
        ringside_netlab::wait_until(Duration::from_secs(10), || hidden().is_empty()),
        "{:?}",
        hidden()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn over_tcp_only_clients_with_a_certificate_of_the_authority_get_in() {
    use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
    let (server_ca, certificate_of_server, key) = certificate("localhost");
    let (client_ca, certificate_of_client, client_key) = certificate("operator");
    let (host_ca, certificate_of_host, host_key) = certificate("host");
    let (_, stranger, stranger_key) = certificate("stranger");
    let tls = ringside_gateway::api::Tls {
        certificate: certificate_of_server,
        key,
        client_ca,
        host_ca: Some(host_ca),
    };
    let address = "127.0.0.1:0".parse().unwrap();
    let gateway = Gateway::with_tcp(Some(ringside_gateway::api::TcpListener { address, tls }));
    let port = gateway.tcp.unwrap().port();
    let connect = async |identity: Option<(&[u8], &[u8])>| -> Result<Channel, String> {
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&server_ca));
        if let Some((certificate, key)) = identity {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        let endpoint = Endpoint::from_shared(format!("https://localhost:{port}"))
            .unwrap()
            .tls_config(tls)
            .unwrap();
        endpoint.connect().await.map_err(|error| error.to_string())
    };
    let ask = async |identity: Option<(&[u8], &[u8])>| {
        let health = OperationServiceClient::new(connect(identity).await?)
            .get_health(GetHealthRequest {})
            .await;
        health
            .map(|health| health.into_inner().status())
            .map_err(|status| status.to_string())
    };
    assert_eq!(ask(Some((&certificate_of_client, &client_key))).await, Ok(Status::Ok));
    assert!(ask(Some((&stranger, &stranger_key))).await.is_err());
    assert!(ask(None).await.is_err());
    let plain = Endpoint::from_shared(format!("http://localhost:{port}")).unwrap();
    let answer = match plain.connect().await {
        Ok(channel) => OperationServiceClient::new(channel)
            .get_health(GetHealthRequest {})
            .await
            .map(drop)
            .map_err(drop),
        Err(_) => Err(()),
    };
    assert_eq!(answer, Err(()));

    // A host gets in, and may ask one thing: here is no fleet that it could be told of.
    let host = connect(Some((&certificate_of_host, &host_key))).await.unwrap();
    let refused = [
        NeighborServiceClient::new(host.clone())
            .put_neighbors(PutNeighborsRequest::default())
            .await
            .map(drop),
        PortServiceClient::new(host.clone())
            .list_ports(ListPortsRequest::default())
            .await
            .map(drop),
        SecurityGroupServiceClient::new(host.clone())
            .list_security_groups(ListSecurityGroupsRequest::default())
            .await
            .map(drop),
        OperationServiceClient::new(host.clone())
            .set_drain(SetDrainRequest::default())
            .await
            .map(drop),
        OperationServiceClient::new(host.clone())
            .get_health(GetHealthRequest {})
            .await
            .map(drop),
        FleetServiceClient::new(host.clone())
            .get_fleet(GetFleetRequest::default())
            .await
            .map(drop),
        FleetServiceClient::new(host.clone())
            .take_connections(tokio_stream::iter([TakeConnectionsRequest::default()]))
            .await
            .map(drop),
    ];
    for answer in refused {
        let status = answer.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{status}");
        assert!(status.message().contains("host-ca"), "{status}");
    }
    let watched = FleetServiceClient::new(host.clone())
        .watch_shards(WatchShardsRequest {})
        .await;
    let asked = FleetServiceClient::new(host)
        .get_gateway(GetGatewayRequest { vni: 42 })
        .await;
    for status in [watched.map(drop).unwrap_err(), asked.map(drop).unwrap_err()] {
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        assert!(status.message().contains("takes part in no fleet"), "{status}");
    }
}

/// Hosts that could do anything would be what nobody has asked for.
#[test]
fn the_authority_of_hosts_is_another_one() {
    let (client_ca, certificate, key) = certificate("localhost");
    let tls = ringside_gateway::api::Tls {
        certificate,
        key,
        host_ca: Some(client_ca.clone()),
        client_ca,
    };
    let address = "127.0.0.1:0".parse().unwrap();
    let tcp = ringside_gateway::api::TcpListener { address, tls };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let error = runtime
        .block_on(ringside_gateway::api::Listeners::open(None, Some(&tcp)))
        .unwrap_err();
    assert!(error.to_string().contains("host-ca"), "{error}");
}
