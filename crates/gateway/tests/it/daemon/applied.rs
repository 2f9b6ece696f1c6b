//! What `apply` makes of a file.

use super::common::daemon::{Daemon, put_neighbor};

const TENANTS: &str = "\
neighbors:
  - {vni: 42, ip: 10.0.0.7, mac: \"02:00:00:00:00:07\", host: {ip: 192.0.2.1}}
  - {vni: 42, ip: \"fd00::7\", mac: \"02:00:00:00:00:07\", host: {ip: 192.0.2.1, encapsulation: geneve}}
ports:
  - {vni: 42, ip: 10.0.0.7, groups: [1]}
groups:
  - id: 1
    name: web
    rules:
      - {id: 1, direction: ingress, protocol: tcp, ports: 80-443}
      - {id: 2, direction: ingress, protocol: icmp, remote-group: 1}
";

#[test]
fn a_file_is_applied_shown_first_and_again_changes_nothing() {
    let daemon = Daemon::start("");
    let file = daemon.folder.join("tenants.yaml");
    let name = file.to_str().unwrap();
    std::fs::write(&file, TENANTS).unwrap();
    let shown = daemon.ok(&["apply", "-f", name, "--dry-run"]);
    assert!(shown.ends_with("4 would change, 0 unchanged\n"), "{shown}");
    assert!(
        shown.contains("+ neighbor 10.0.0.7 in network 42 (version 1): host.ip 192.0.2.1, mac 02:00:00:00:00:07"),
        "{shown}"
    );
    assert!(daemon.ok(&["list", "neighbors", "--json"]).is_empty());
    daemon.ok(&["apply", "-f", name]);
    assert_eq!(daemon.ok(&["apply", "-f", name]), "0 to change, 4 unchanged\n");
    // What somebody else put is told, and put right; with --prune what is too much goes.
    daemon.ok(&put_neighbor(
        ["42", "10.0.0.7", "02:00:00:00:00:09", "192.0.2.1"],
        None,
    ));
    daemon.ok(&put_neighbor(
        ["42", "10.0.0.9", "02:00:00:00:00:09", "192.0.2.1"],
        None,
    ));
    daemon.ok(&put_neighbor(
        ["43", "10.0.0.9", "02:00:00:00:00:09", "192.0.2.1"],
        None,
    ));
    let changed = TENANTS.replace("80-443", "80").replace(
        "ports:\n  - {vni: 42, ip: 10.0.0.7, groups: [1]}\n",
        "absent:\n  ports: [{vni: 42, ip: 10.0.0.7}]\n",
    );
    std::fs::write(&file, changed).unwrap();
    let shown = daemon.ok(&["apply", "-f", name, "--prune"]);
    for line in [
        "~ neighbor 10.0.0.7 in network 42 (version 3): mac 02:00:00:00:00:09 -> 02:00:00:00:00:07",
        "~ security group 1 (version 2): rules.0.ports 80-443 -> 80",
        "- port 10.0.0.7 in network 42 (version 1)",
        "- neighbor 10.0.0.9 in network 42 (version 1)",
        "4 to change, 1 unchanged",
    ] {
        assert!(shown.contains(line), "{line:?} is missing in {shown}");
    }
    let left = daemon.ok(&["list", "neighbors", "--json"]);
    assert_eq!(left.lines().count(), 3, "{left}");
    daemon.ok(&["delete", "neighbor", "42", "10.0.0.7"]);
    assert!(
        daemon
            .ok(&["apply", "-f", name])
            .contains("+ neighbor 10.0.0.7 in network 42 (version 4)")
    );
    for (text, part) in [
        ("neighbours: []", "unknown field"),
        (
            "groups:\n  - {id: 1, rules: [{direction: ingress, protocol: tcp, ports: 90-80}]}",
            "the ports 90 to 80 are none",
        ),
        (
            "groups:\n  - {id: 1, rules: []}\n  - {id: 1, rules: []}",
            "security group 1 is there twice",
        ),
        (
            "groups:\n  - {id: 1, rules: [], version: 1}",
            "is known in version 2; a change takes a higher one than 1",
        ),
        (
            "ports:\n  - {vni: 42, ip: 10.0.0.300, groups: []}",
            "invalid IP address",
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let words = ["apply", "-f", name];
        let is_value = !part.starts_with("is known");
        let said = if is_value {
            daemon.rejects(&words)
        } else {
            daemon.fails(&words)
        };
        assert!(said.contains(part) && said.contains(name), "{text}: {said}");
    }
    daemon.stop();
}

/// A file that has no ports says nothing of them, also where it says all there is of neighbours: without its port an address would be open.
#[test]
fn what_is_pruned_is_of_a_kind_that_the_file_has() {
    let daemon = Daemon::start("");
    let file = daemon.folder.join("tenants.yaml");
    let apply = |text: &str, more: &[&str]| {
        std::fs::write(&file, text).unwrap();
        daemon.ok(&[&["apply", "-f", file.to_str().unwrap()], more].concat())
    };
    let neighbors = TENANTS.split("ports:").next().unwrap();
    let ports = "ports:\n  - {vni: 42, ip: 10.0.0.7, groups: [1]}\n";
    apply(TENANTS, &[]);
    apply(
        "ports:\n  - {vni: 42, ip: 10.0.0.8, groups: [1]}\n  - {vni: 43, ip: 10.0.0.8, groups: [1]}\n",
        &[],
    );
    assert_eq!(apply(neighbors, &["--prune"]), "0 to change, 2 unchanged\n");
    let shown = apply(ports, &["--prune"]);
    assert!(shown.contains("- port 10.0.0.8 in network 42"), "{shown}");
    assert!(shown.ends_with("1 to change, 1 unchanged\n"), "{shown}");
    assert_eq!(daemon.ok(&["list", "neighbors", "--json"]).lines().count(), 2);
    daemon.stop();
}
