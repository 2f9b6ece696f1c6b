//! Who may ask, and how that is changed while a gateway runs.

use std::process::Command;
use std::time::Duration;

use ringside_netlab::wait_until;

use super::Etcd;
use super::common::daemon::{Daemon, binary, free_port, put_neighbor};
use super::common::etcd::{IMPATIENT, configure, gateway, program};
use super::common::metrics::scrape;
use super::common::{Folder, certificate, certificate_until};

const PATIENCE: Duration = Duration::from_secs(30);

fn put(gateway: &Daemon, version: &str) {
    gateway.ok(&put_neighbor(
        ["42", "10.0.0.7", "02:00:00:00:00:07", "192.0.2.1"],
        Some(version),
    ));
}

fn is_well(gateway: &mut Daemon) {
    gateway.wait("health", |gateway| gateway.ctl(&["health"]).status.success());
}

#[test]
fn certificates_are_changed_while_it_runs() {
    let (server_ca, server, server_key) = certificate("127.0.0.1");
    let clients = [certificate("first"), certificate("second")];
    let write = |folder: &Folder, name: &str, text: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let options = |folder: &Folder, authorities: &[u8]| {
        let option = |name: &str, value: String| [format!("--{name}"), value];
        let mut options = vec!["--client-cert-auth".to_owned()];
        options.extend(option("cert-file", write(folder, "server.pem", &server)));
        options.extend(option("key-file", write(folder, "server.key", &server_key)));
        options.extend(option("trusted-ca-file", write(folder, "clients.pem", authorities)));
        options
    };
    let both = [clients[0].0.clone(), clients[1].0.clone()].concat();
    let run = || Command::new("setpriv");
    let mut etcd = Etcd::with("https", |folder| options(folder, &both), run);
    let folder = Folder::new();
    let of_etcd = format!(
        "{IMPATIENT}\nca = \"{}\"\ncertificate = \"{}\"\nkey = \"{}\"",
        write(&folder, "etcd-ca.pem", &server_ca),
        write(&folder, "client.pem", &clients[0].1),
        write(&folder, "client.key", &clients[0].2),
    );
    configure(&folder, &etcd.endpoint(), &of_etcd, "");
    let mut gateway = Daemon::start_in(folder);
    put(&gateway, "1");
    // Those of another authority, and from then on etcd takes no others.
    write(&gateway.folder, "client.pem", &clients[1].1);
    write(&gateway.folder, "client.key", &clients[1].2);
    gateway.signal("HUP");
    gateway.wait("the new credentials", |gateway| {
        gateway.log().contains("credentials of store.etcd were read again")
    });
    is_well(&mut gateway);
    put(&gateway, "2");
    etcd.kill();
    let folder = Folder::new();
    etcd.set_options(options(&folder, &clients[1].0));
    etcd.start_again(run());
    is_well(&mut gateway);
    put(&gateway, "3");
    // With the first ones it is cut off.
    write(&gateway.folder, "client.pem", &clients[0].1);
    write(&gateway.folder, "client.key", &clients[0].2);
    gateway.signal("HUP");
    gateway.wait("that it is cut off", |gateway| {
        String::from_utf8_lossy(&gateway.ctl(&["health"]).stdout).contains("etcd cannot be reached")
    });
    // With an expired one it starts with its copy, and says so.
    let (_, expired, key) = certificate_until("expired", 2021);
    write(&gateway.folder, "client.pem", &expired);
    write(&gateway.folder, "client.key", &key);
    let text = "store.etcd.certificate expired on Jan  1 00:00:00 2021 +00:00: renew it";
    gateway.signal("HUP");
    gateway.wait("a refusal", |gateway| {
        gateway.log().contains(&format!("nothing was changed: {text}"))
    });
    let folder = gateway.stop();
    // The unit's ExecStartPre.
    let mut check = binary();
    check.arg("--check").arg("--config").arg(folder.join("gateway.toml"));
    let checked = check.output().unwrap();
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success() && said.contains(text), "{checked:?}");
    let mut gateway = Daemon::start_in(folder);
    assert!(gateway.log().contains(text), "{}", gateway.log());
    gateway.wait("why it is cut off", |gateway| {
        String::from_utf8_lossy(&gateway.ctl(&["health"]).stdout).contains(text)
    });
    // It reads its configuration again all the same.
    gateway.signal("HUP");
    gateway.wait("a reload", |gateway| {
        gateway.log().contains("the configuration was read again")
    });
    // No key or name of a certificate is in the log.
    assert!(!gateway.log().contains("PRIVATE"), "{}", gateway.log());
}

#[test]
fn a_user_may_have_no_more_than_the_prefix() {
    let mut etcd = Etcd::start();
    let endpoint = etcd.endpoint();
    for words in [
        "role add gateway",
        "role grant-permission gateway --prefix=true readwrite /ringside/gateway/",
        "user add gateway:secret-1",
        "user grant-role gateway gateway",
        "user add root:root",
        "user grant-role root root",
        "auth enable",
    ] {
        etcd.ctl(&words.split(' ').collect::<Vec<_>>());
    }
    let start = |prefix: &str, password: &str| {
        let folder = Folder::new();
        let file = folder.join("password");
        std::fs::write(&file, password).unwrap();
        let more = format!(
            "{IMPATIENT}\nprefix = \"{prefix}\"\nuser = \"gateway\"\npassword-file = \"{}\"",
            file.display()
        );
        configure(&folder, &endpoint, &more, "");
        folder
    };
    let mut gateway = Daemon::start_in(start("/ringside/gateway/", "secret-1\n"));
    put(&gateway, "1");
    is_well(&mut gateway);
    // What is not below the prefix it may not have.
    let folder = start("/another/", "secret-1");
    let log = folder.join("log");
    let mut command = program(&folder.join(""));
    let mut child = command.stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    let is_said = wait_until(PATIENCE, || read().contains("permission denied"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_said, "{}", read());
    // etcd's tokens are gone when it was started anew, and the old password when there is another.
    etcd.kill();
    etcd.start_again(Command::new("setpriv"));
    is_well(&mut gateway);
    put(&gateway, "2");
    for words in ["delete gateway", "add gateway:secret-2", "grant-role gateway gateway"] {
        let words = format!("--user root:root user {words}");
        etcd.ctl(&words.split(' ').collect::<Vec<_>>());
    }
    std::fs::write(gateway.folder.join("password"), "secret-2").unwrap();
    gateway.signal("HUP");
    gateway.wait("the new password", |gateway| {
        gateway.log().contains("credentials of store.etcd were read again")
    });
    etcd.kill();
    etcd.start_again(Command::new("setpriv"));
    is_well(&mut gateway);
    put(&gateway, "3");
    assert!(!gateway.log().contains("secret"), "{}", gateway.log());
}

/// Where tenants are is in no line of the log, whatever is logged, and in no metric; health, which is asked by who may, names a key that is damaged.
#[test]
fn what_is_known_of_tenants_is_neither_logged_nor_measured() {
    let etcd = Etcd::start();
    let port = free_port();
    let folder = Folder::new();
    let more = format!("[log]\nlevel = \"trace\"\n[metrics]\nlisten = \"127.0.0.1:{port}\"");
    configure(&folder, &etcd.endpoint(), IMPATIENT, &more);
    let mut gateway = Daemon::start_in(folder);
    let mac = "02:99:98:97:96:95";
    for ip in ["10.99.98.97", "fd99:9897::96"] {
        gateway.ok(&put_neighbor(["4242424", ip, mac, "192.0.2.99"], Some("3")));
        let older = gateway.refuses(&put_neighbor(["4242424", ip, mac, "192.0.2.98"], Some("2")));
        assert!(older.contains("something newer"), "{older}");
    }
    let groups = gateway.folder.join("groups.yaml");
    let rule = "{id: 1, direction: ingress, remote-prefix: 10.99.98.0/24}";
    std::fs::write(&groups, format!("groups:\n  - {{id: 424, rules: [{rule}]}}\n")).unwrap();
    gateway.ok(&["apply", "-f", groups.to_str().unwrap()]);
    gateway.ok(&["put", "port", "4242424", "10.99.98.97", "--groups", "424"]);
    let key = "/ringside/gateway/v1/ports/40bbf8/0a63626";
    assert!(
        etcd.ctl(&["get", key, "--keys-only"]).contains(key),
        "{}",
        etcd.ctl(&["get", "--prefix", "/", "--keys-only"])
    );
    etcd.ctl(&["put", key, "damaged"]);
    let health = |gateway: &Daemon| String::from_utf8_lossy(&gateway.ctl(&["health"]).stdout).into_owned();
    gateway.wait("the damage", |gateway| {
        health(gateway).contains("v1/ports/40bbf8/0a63626")
    });
    let log = gateway.log();
    assert!(
        log.contains("a value in etcd cannot be read") && log.contains("kind=\"v1/ports/\""),
        "{log}"
    );
    gateway.ok(&["delete", "neighbor", "4242424", "10.99.98.97"]);
    gateway.ok(&["list", "neighbors", "--vni", "4242424"]);
    let shown = scrape(port);
    assert!(shown.contains("ringside_gateway_fleet_damaged_values 1"), "{shown}");
    for (what, text) in [("log", gateway.log()), ("metrics", shown)] {
        for private in ["10.99.98", "0a6362", "fd99", "4242424", "40bbf8", mac, "02999897"] {
            let told: Vec<&str> = text.lines().filter(|line| line.contains(private)).collect();
            assert!(told.is_empty(), "{private} is in the {what}: {told:#?}");
        }
    }
}

/// A gateway of today beside one of a later version, which writes what today's cannot read: nothing is lost, and nobody is told to delete it.
#[test]
fn what_a_newer_version_has_written_is_left_alone() {
    let etcd = Etcd::start();
    let mut gateway = gateway(&etcd);
    put(&gateway, "1");
    let key = "v1/neighbors/00002a/0a00000";
    let mut value = vec![2, 1, 2, 3];
    let mut sum = crc32fast::Hasher::new();
    [key.as_bytes(), &value].iter().for_each(|bytes| sum.update(bytes));
    value.extend_from_slice(&sum.finalize().to_le_bytes());
    let file = gateway.folder.join("value");
    std::fs::write(&file, &value).unwrap();
    let mut by_hand = Command::new("etcdctl");
    by_hand.env("ETCDCTL_API", "3").args(["--endpoints", &etcd.endpoint()]);
    by_hand.args(["put", &format!("/ringside/gateway/{key}")]);
    let done = by_hand.stdin(std::fs::File::open(&file).unwrap()).status().unwrap();
    assert!(done.success());
    let health = |gateway: &Daemon| String::from_utf8_lossy(&gateway.ctl(&["health"]).stdout).into_owned();
    gateway.wait("the newer value", |gateway| {
        health(gateway).contains("1 values in etcd were written by a newer version of this program")
    });
    assert!(!health(&gateway).contains("delete"), "{}", health(&gateway));
    assert!(
        gateway.ok(&["get", "neighbor", "42", "10.0.0.7"]).contains("192.0.2.1"),
        "it is still known"
    );
    let words = ["42", "10.0.0.7", "02:00:00:00:00:07", "192.0.2.9"];
    let refused = gateway.refuses(&put_neighbor(words, Some("5")));
    assert!(
        refused.contains("a newer program has written it") && refused.contains("tell it a gateway of that version"),
        "{refused}"
    );
    // As that one has it read by all again.
    etcd.ctl(&["del", &format!("/ringside/gateway/{key}")]);
    is_well(&mut gateway);
    gateway.ok(&put_neighbor(words, Some("5")));
}
