//! What is in no log: where tenants are, and the numbers of networks, whatever is logged while they talk.

use std::time::Duration;

use ringside_netlab::wait_until;

use super::cluster::{Cluster, How};
use super::hosts::Hosts;
use super::process::PATIENCE;
use super::table::PLAIN;
use super::traffic::Traffic;

/// Every line that there is, of a gateway that tells all.
const TALKATIVE: How = How { talks: true, ..PLAIN };

/// What a line must not have, however it is written.
fn private(hosts: &Hosts) -> Vec<String> {
    let networks = hosts.networks.iter().map(|network| network.vni);
    let mut all: Vec<String> = networks
        .flat_map(|vni| {
            [
                format!("vni={vni} "),
                format!("network {vni} "),
                format!("Vni({vni})"),
                format!("/{vni:06x}/"),
            ]
        })
        .collect();
    all.extend(["10.0.0.21", "10.0.0.22", "0a00001"].map(str::to_owned));
    let cards = hosts.networks.iter().flat_map(|network| &network.tenants);
    all.extend(cards.map(|tenant| tenant.card.mac.map(|byte| format!("{byte:02x}")).join(":")));
    all
}

/// Tenants' packets go and are dropped, connections are handed over and come back, agents follow: none of it is said of anybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_tenants_is_said_while_they_talk_and_are_handed_over() {
    if !ringside_netlab::testing::is_root() {
        return;
    }
    let mut cluster = Cluster::start("ft-unsaid", TALKATIVE);
    let traffic = Traffic::start(cluster.hosts());
    // Nobody has this address, and the rules of the second tenant allow nothing of this.
    let network = &cluster.hosts().networks[0];
    for (to, port) in [("10.0.0.99", "9"), ("10.0.0.22", "7001")] {
        let word = format!("timeout 1 bash -c 'echo word > /dev/tcp/{to}/{port}'; echo word > /dev/udp/{to}/{port}");
        let mut said = network.tenants[0].ns.command("bash");
        said.args(["-c", &word]).output().unwrap();
    }
    let gateway = &mut cluster.gateways[0];
    assert!(gateway.daemon().ok(&["drain"]).contains("drained"));
    assert_eq!(gateway.metrics().count("draining"), 1);
    std::thread::sleep(Duration::from_millis(300));
    gateway.daemon().ok(&["drain", "--off"]);
    assert!(wait_until(PATIENCE, || gateway.metrics().count("draining") == 0));
    let hosts = cluster.hosts();
    _ = traffic.end(hosts);
    let mut logs = vec![("agents".to_owned(), hosts.told())];
    let private = private(hosts);
    for gateway in &mut cluster.gateways {
        let log = gateway.daemon().log();
        assert!(
            log.contains("TRACE") && log.contains("DEBUG"),
            "it does not tell all: {log}"
        );
        logs.push((gateway.name.to_owned(), log));
    }
    assert!(logs[0].1.contains(": its network to "), "{}", logs[0].1);
    for (who, log) in &logs {
        for private in &private {
            let told: Vec<&str> = log.lines().filter(|line| line.contains(private.as_str())).collect();
            assert!(told.is_empty(), "{who} says {private}: {told:#?}");
        }
    }
}
