//! Who asks a gateway over TCP has to show who he is, and is told what is wrong.

use std::net::TcpListener;

use ringside_netlab::{Namespace, wait_until};

use super::Etcd;
use super::authority::Authority;
use super::common::Folder;
use super::common::daemon::{Daemon, binary};
use super::common::etcd::{IMPATIENT, configure};
use super::process::{PATIENCE, Running};

/// A gateway of a fleet with an API over TCP, and where that is.
fn gateway(etcd: &Etcd, ours: &Authority) -> (Daemon, String) {
    let folder = Folder::new();
    ours.write(&["127.0.0.1".to_owned()], &folder, "gateway");
    Authority::write_trusted(&[ours], &folder);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let file = |name: &str| folder.join(name).display().to_string();
    let more = format!(
        "[fleet]\nname = \"gateway-1\"\naddresses = [\"192.0.2.1\"]\n\
         [api.tcp]\nlisten = \"127.0.0.1:{port}\"\ncertificate = {:?}\nkey = {:?}\nclient-ca = {:?}\n",
        file("gateway.pem"),
        file("gateway.key"),
        file("ca.pem"),
    );
    configure(&folder, &etcd.endpoint(), IMPATIENT, &more);
    (Daemon::start_in(folder), format!("https://127.0.0.1:{port}"))
}

/// Options of who shows this certificate and believes this authority.
fn shows(folder: &Folder, who: &str, ca: &str) -> Vec<String> {
    let option = |name: &str, file: &str| [format!("--{name}"), folder.join(file).display().to_string()];
    [
        option("ca", ca),
        option("certificate", &format!("{who}.pem")),
        option("key", &format!("{who}.key")),
    ]
    .concat()
}

#[test]
fn agents_over_tcp_show_who_they_are_or_are_told_what_is_wrong() {
    if !ringside_netlab::testing::is_root() {
        return;
    }
    let (ours, others) = (Authority::new("ours"), Authority::new("others"));
    let etcd = Etcd::start();
    let (gateway, address) = gateway(&etcd, &ours);
    let folder = Folder::new();
    Authority::write_trusted(&[&ours], &folder);
    std::fs::rename(folder.join("ca.pem"), folder.join("ours.pem")).unwrap();
    Authority::write_trusted(&[&others], &folder);
    std::fs::rename(folder.join("ca.pem"), folder.join("others.pem")).unwrap();
    let name = ["host-1".to_owned()];
    ours.write(&name, &folder, "host");
    others.write(&name, &folder, "stranger");
    ours.write_expired(&name, &folder, "late");

    // Not where others have endpoints: it changes those that it finds.
    let empty = Namespace::create("fleet-agents").expect("a namespace");
    let agent = |options: &[String]| {
        let mut command = binary();
        command.args(["ctl", "agent", "--endpoint", &address, "--netns", empty.name()]);
        command.args(options);
        Running::new(command)
    };
    agent(&shows(&folder, "host", "ours.pem")).wait_for("generation 1 of the map");

    for (options, expected) in [
        (
            shows(&folder, "host", "others.pem"),
            "the gateway's certificate is of no authority that --ca names",
        ),
        (
            shows(&folder, "stranger", "ours.pem"),
            "the gateway does not know the authority of --certificate (its api.tcp.client-ca)",
        ),
        (
            shows(&folder, "late", "ours.pem"),
            "the gateway says that --certificate has expired",
        ),
    ] {
        // The same whatever is asked.
        let mut health = binary();
        health.args(["ctl", "health", "--address", &address]).args(&options);
        let output = health.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let whole = format!("ringside-gateway: connecting to the gateway at {address}: {expected}\n");
        assert_eq!((said.as_ref(), output.status.code()), (&*whole, Some(1)));
        let refused = || gateway.log().matches("a client was refused").count();
        let before = refused();
        let agent = agent(&options);
        agent.wait_for(&format!("{address}: connecting: {expected}\n"));
        // It goes on trying, for certificates are renewed, and says it once.
        let tries = wait_until(PATIENCE, || refused() >= before + 4);
        assert!(tries, "{}", gateway.log());
        assert_eq!(agent.told().matches(expected).count(), 1, "{}", agent.told());
    }

    for (options, expected) in [
        (vec![], "https:// takes --ca, --certificate and --key"),
        (
            [
                &shows(&folder, "host", "ours.pem")[..4],
                &shows(&folder, "late", "ours.pem")[4..],
            ]
            .concat(),
            "--key is not the key of --certificate",
        ),
        (shows(&folder, "host", "host.key"), "--ca: there is no certificate in "),
        (shows(&folder, "nobody", "ours.pem"), "--certificate: reading "),
    ] {
        let mut command = binary();
        command.args(["ctl", "agent", "--endpoint", &address]).args(options);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{said}");
        assert!(
            said.contains("--endpoint https://") && said.lines().count() == 1,
            "{said}"
        );
    }
}
