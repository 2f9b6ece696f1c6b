//! A copy whose file is damaged: its gateway starts with what etcd has.

use super::Etcd;
use super::common::daemon::{Daemon, binary, configure, put_neighbor, refusal};
use super::common::etcd::gateway;
use super::common::{Folder, overwrite};

/// All that a gateway answers.
fn answers(gateway: &Daemon) -> [String; 3] {
    ["neighbors", "ports", "groups"].map(|kind| gateway.ok(&["list", kind, "--json"]))
}

fn fill(gateway: &Daemon) {
    let mut text =
        "groups:\n  - {id: 1, rules: [{id: 1, direction: ingress, protocol: tcp, ports: 80}]}\nneighbors:\n".to_owned();
    for number in 1..=200 {
        text.push_str(&format!(
            "  - {{vni: 42, ip: 10.0.0.{number}, mac: \"02:00:00:00:00:07\", host: {{ip: 192.0.2.1}}}}\n"
        ));
    }
    text.push_str("ports:\n");
    for number in 1..=200 {
        text.push_str(&format!("  - {{vni: 42, ip: 10.0.0.{number}, groups: [1]}}\n"));
    }
    let file = gateway.folder.join("objects.yaml");
    std::fs::write(&file, text).unwrap();
    gateway.ok(&["apply", "-f", file.to_str().unwrap()]);
}

#[test]
fn a_gateway_whose_copy_is_damaged_has_all_that_etcd_has() {
    let etcd = Etcd::start();
    let (mut one, two) = (gateway(&etcd), gateway(&etcd));
    fill(&two);
    // Where ports are; whose state it is; all of it.
    for table in ["ports", "meta", "sqlite_schema"] {
        one.wait("what the other was told", |one| answers(one) == answers(&two));
        let folder = one.stop();
        overwrite(&folder.join("store.db"), table);
        // What it could not know from the rest of the file.
        two.ok(&["delete", "neighbor", "42", "10.0.0.7"]);
        two.ok(&put_neighbor(
            ["43", "10.0.0.8", "02:00:00:00:00:07", "192.0.2.2"],
            None,
        ));
        one = Daemon::start_in(folder);
        let stats: serde_json::Value = serde_json::from_str(&one.ok(&["stats", "--json"])).unwrap();
        let known = |kind: &str| stats[kind].as_u64().unwrap();
        assert_eq!(
            [known("neighbors"), known("ports"), known("security-groups")],
            [200, 200, 1],
            "{table}: as soon as it answers: {}",
            one.log()
        );
        assert_eq!(answers(&one), answers(&two), "{table}");
        one.wait("its complaint", |one| {
            let said = one.health();
            said.contains("its file was damaged") && said.contains("read anew from etcd")
        });
        assert!(one.ok(&["repaired"]).contains("nothing was missing"));
        // The next start begins with a sound copy.
        one = Daemon::start_in(one.stop());
        one.wait("health", |one| one.ctl(&["health"]).status.success());
        two.ok(&put_neighbor(
            ["42", "10.0.0.7", "02:00:00:00:00:07", "192.0.2.2"],
            None,
        ));
        two.ok(&["delete", "neighbor", "43", "10.0.0.8"]);
    }
    // It has stayed a copy.
    let folder: Folder = one.stop();
    overwrite(&folder.join("store.db"), "ports");
    let file = configure(&folder, "store.db", "");
    let mut alone = binary();
    alone.arg("--config").arg(file);
    let said = refusal(alone);
    assert!(said.contains("is a copy of a fleet's state"), "{said}");
}
