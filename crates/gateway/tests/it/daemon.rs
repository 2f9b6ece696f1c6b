//! The program as an operator runs it: configuration, signals, service manager, metrics, and its client.

mod applied;
mod attach_pass;
mod bulk;
mod csv;
mod huge_pages;
mod memory;
mod sockets;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use crate::common;
use crate::common::daemon::{Daemon, binary, complaint, configure, free_port, put_neighbor, refusal};
use crate::common::{Folder, certificate};
use crate::peers::uninterrupted;
use ringside_gateway::proto::GetHealthRequest;
use ringside_gateway::proto::operation_service_client::OperationServiceClient;
use ringside_netlab::testing::copy_program;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

#[test]
fn a_configuration_is_checked_whole() {
    let folder = Folder::new();
    let check = |text: &str| {
        let path = folder.join("gateway.toml");
        std::fs::write(&path, text).unwrap();
        let mut command = binary();
        command.arg("--check").arg("--config").arg(path);
        command
    };
    assert!(check("[log]\nlevel = \"debug\"").status().unwrap().success());
    let said = refusal(check("[api]\nmode = \"7777\"\nowner = \"no-such-user-here\""));
    assert!(
        said.contains("api.mode: \"7777\" is none") && said.contains("there is no user"),
        "{said}"
    );
    let said = refusal(check("[api.tcp]\nlisten = \"127.0.0.1:7443\""));
    assert!(said.contains("only with TLS in both directions"), "{said}");
    let said = refusal(check("[api]\nsoket = \"/x\""));
    assert!(
        said.contains("line 2: unknown field `soket`") && said.contains("did you mean `socket`?"),
        "{said}"
    );
    let mut command = binary();
    command.args(["--config", "/nonexistent.toml"]);
    assert!(refusal(command).contains("the configuration /nonexistent.toml: No such file"));
}

#[test]
fn a_second_one_on_the_same_store_is_refused() {
    let daemon = Daemon::start("");
    let mut second = binary();
    second.arg("--config").arg(daemon.folder.join("gateway.toml"));
    let said = refusal(second);
    assert!(said.contains("is in use by another process"), "{said}");
    // The first one still has its socket.
    daemon.ok(&["health"]);
    daemon.stop();
}

#[test]
fn a_start_without_any_of_its_interfaces_ends_with_the_error_alone() {
    let folder = Folder::new();
    configure(&folder, "store.db", "[path]\ninterface = [\"none0\", \"none1\"]");
    let said = refusal(common::etcd::program(&folder.join("")));
    assert!(
        said.contains("no interface named 'none0'") && !said.contains("waited for"),
        "{said}"
    );
}

/// The kernel takes a killed process apart for a while, and its locks with it.
#[test]
fn a_start_waits_for_the_end_of_a_process_that_was_killed() {
    let folder = Daemon::start("").kill();
    let held = std::fs::File::options()
        .write(true)
        .open(folder.join("store.db.lock"))
        .expect("its lock");
    held.try_lock().expect("the killed one is gone");
    let ending = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(1500));
        drop(held);
    });
    let daemon = Daemon::start_in(folder);
    ending.join().expect("no panic");
    daemon.ok(&["health"]);
    daemon.stop();
}

#[test]
fn sighup_reads_the_configuration_again_or_changes_nothing() {
    let mut daemon = Daemon::start("");
    configure(&daemon.folder, "store.db", "[log]\nlevel = \"loud\"");
    daemon.signal("HUP");
    daemon.wait("a refusal", |daemon| daemon.log().contains("unknown variant `loud`"));
    configure(&daemon.folder, "store.db", "mode = \"0660\"\n[log]\nlevel = \"debug\"");
    daemon.signal("HUP");
    daemon.wait("a reload", |daemon| {
        daemon.log().contains("the configuration was read again")
    });
    assert!(
        daemon.log().contains("these changes take a restart keys=\"api\""),
        "{}",
        daemon.log()
    );
    daemon.ok(&["health"]);
    daemon.stop();
}

/// A client, for whom the files of a gateway are made anew.
struct Client {
    server_ca: Vec<u8>,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Client {
    fn new(folder: &Folder) -> Self {
        let (server_ca, server, server_key) = certificate("localhost");
        let (client_ca, certificate, key) = certificate("operator");
        for (name, text) in [
            ("server.pem", &server),
            ("server.key", &server_key),
            ("clients.pem", &client_ca),
        ] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        Self {
            server_ca,
            certificate,
            key,
        }
    }

    async fn connect(&self, port: u16) -> Option<OperationServiceClient<Channel>> {
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&self.server_ca))
            .identity(Identity::from_pem(&self.certificate, &self.key));
        let endpoint = Endpoint::from_shared(format!("https://localhost:{port}")).unwrap();
        let channel = endpoint.tls_config(tls).unwrap().connect().await.ok()?;
        let mut client = OperationServiceClient::new(channel);
        // Who is refused learns it with the first request.
        client.get_health(GetHealthRequest {}).await.ok()?;
        Some(client)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn sighup_reads_certificates_again_and_connections_stay() {
    let folder = Folder::new();
    let before = Client::new(&folder);
    let files = [
        ("certificate", "server.pem"),
        ("key", "server.key"),
        ("client-ca", "clients.pem"),
    ];
    let files = files.map(|(key, name)| format!("{key} = \"{}\"\n", folder.join(name).display()));
    let tcp = format!("[api.tcp]\nlisten = \"127.0.0.1:0\"\n{}", files.concat());
    configure(&folder, "store.db", &tcp);
    let mut daemon = Daemon::start_in(folder);
    let mut port = None;
    daemon.wait("its port", |daemon| {
        let log = daemon.log();
        let told = log
            .split_once("tcp=127.0.0.1:")
            .and_then(|(_, rest)| rest.split_once('\n'));
        port = told.and_then(|(told, _)| told.parse().ok());
        port.is_some()
    });
    let port = port.unwrap();
    let mut client = before.connect(port).await.expect("let in");
    // A key that is not the certificate's.
    let key = std::fs::read(daemon.folder.join("server.key")).unwrap();
    std::fs::write(daemon.folder.join("server.key"), certificate("localhost").2).unwrap();
    daemon.signal("HUP");
    daemon.wait("a refusal", |daemon| {
        daemon.log().contains("nothing was changed: the configuration")
    });
    std::fs::write(daemon.folder.join("server.key"), key).unwrap();
    assert!(before.connect(port).await.is_some());
    let after = Client::new(&daemon.folder);
    daemon.signal("HUP");
    daemon.wait("a reload", |daemon| {
        daemon.log().contains("the certificates of api.tcp were read again")
    });
    assert!(after.connect(port).await.is_some());
    assert!(before.connect(port).await.is_none());
    client.get_health(GetHealthRequest {}).await.expect("it stays");
    assert!(!daemon.log().contains("take a restart"), "{}", daemon.log());
    drop(client);
    daemon.stop();
}

#[test]
fn the_service_manager_is_told() {
    let folder = Folder::new();
    let socket = UnixDatagram::bind(folder.join("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    configure(&folder, "store.db", "");
    let daemon = Daemon::start_in(folder);
    daemon.ok(&put_neighbor(
        ["42", "10.0.0.7", "02:00:00:00:00:07", "192.0.2.1"],
        None,
    ));
    let folder = daemon.stop();
    let mut command = binary();
    command
        .arg("--config")
        .arg(folder.join("gateway.toml"))
        .env("NOTIFY_SOCKET", folder.join("notify"));
    let daemon = Daemon::spawn(folder, command);
    let expect = |wanted: &str| {
        let mut buffer = [0; 512];
        for _ in 0..100 {
            let length = uninterrupted(|| socket.recv(&mut buffer)).expect(wanted);
            if String::from_utf8_lossy(&buffer[..length]).contains(wanted) {
                return;
            }
        }
        panic!("never told: {wanted}");
    };
    // What it knows takes its time.
    expect("EXTEND_TIMEOUT_USEC=120000000");
    expect("READY=1");
    expect("WATCHDOG=1");
    daemon.signal("HUP");
    expect("RELOADING=1");
    expect("READY=1");
    daemon.signal("TERM");
    expect("STOPPING=1");
}

#[test]
fn metrics_are_offered_without_a_tenants_address() {
    let port = free_port();
    let mut daemon = Daemon::start(&format!("[metrics]\nlisten = \"127.0.0.1:{port}\""));
    daemon.ok(&put_neighbor(
        ["4242", "10.99.0.7", "02:00:00:00:00:07", "192.0.2.77"],
        None,
    ));
    let scrape_as = |path: &str, accept: &str| {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        Some(answer)
    };
    let mut answer = None;
    daemon.wait("metrics", |_| {
        answer = scrape_as("/metrics", "application/openmetrics-text; version=1.0.0");
        answer.is_some()
    });
    let answer = answer.unwrap();
    for line in [
        "ringside_gateway_objects{kind=\"neighbors\"} 1",
        "ringside_gateway_store_read_only 0",
        "ringside_gateway_packets_total{path=\"fast\",verdict=\"forwarded\"} 0",
        "ringside_gateway_connections{state=\"established\"} 0",
        "ringside_gateway_store_commit_seconds_count 1",
        "ringside_gateway_map_programming_seconds_count 1",
        "# TYPE ringside_gateway_packets counter",
        "# EOF",
    ] {
        assert!(answer.contains(line), "{line:?} is missing in {answer}");
    }
    let plain = scrape_as("/metrics", "text/plain").unwrap();
    for line in [
        "# TYPE ringside_gateway_build_info gauge",
        "# TYPE ringside_gateway_packets_total counter",
        "ringside_gateway_packets_total{path=\"fast\",verdict=\"forwarded\"} 0",
    ] {
        assert!(plain.contains(line), "{line:?} is missing in {plain}");
    }
    assert!(!plain.contains("# EOF") && !plain.contains("# UNIT"), "{plain}");
    for tenant in ["10.99.0.7", "4242", "192.0.2.77", "02:00:00:00:00:07"] {
        assert!(!answer.contains(tenant), "{tenant}: {answer}");
    }
    assert!(scrape_as("/", "*/*").unwrap().starts_with("HTTP/1.1 404"));
    daemon.stop();
}

#[test]
fn objects_are_put_shown_and_deleted_by_hand() {
    let daemon = Daemon::start("");
    let put = put_neighbor(["42", "10.0.0.7", "02:00:00:00:00:07", "192.0.2.1"], None);
    assert_eq!(daemon.ok(&put), "neighbor 10.0.0.7 in network 42 is new (version 1)\n");
    assert_eq!(
        daemon.ok(&put),
        "neighbor 10.0.0.7 in network 42 is changed (version 2)\n"
    );
    let older: Vec<&str> = put.iter().copied().chain(["--version", "1"]).collect();
    assert!(daemon.fails(&older).contains("something newer than version 1 is known"));
    assert!(
        daemon
            .ok(&["put", "port", "42", "10.0.0.7", "--groups", "2,1"])
            .contains("port 10.0.0.7 in network 42 is new")
    );
    let listed = daemon.ok(&["list", "neighbors", "--vni", "42"]);
    assert!(
        listed.contains("02:00:00:00:00:07") && listed.lines().count() == 2,
        "{listed}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&daemon.ok(&["get", "port", "42", "10.0.0.7", "--json"])).unwrap();
    assert_eq!(json["groups"], serde_json::json!([1, 2]));
    assert!(daemon.ok(&["stats"]).contains("neighbors"));
    assert!(
        daemon
            .ok(&["delete", "neighbor", "42", "10.0.0.7"])
            .contains("is deleted (version 2)")
    );
    assert!(
        daemon
            .fails(&["get", "neighbor", "42", "10.0.0.7"])
            .contains("was deleted, in version 2")
    );
    assert!(
        daemon
            .fails(&["get", "group", "5"])
            .contains("there is no security group 5")
    );
    assert!(
        daemon
            .rejects(&["list", "groups", "--vni", "1"])
            .contains("belong to no network")
    );
    daemon.stop();
}

#[test]
fn a_client_without_a_gateway_says_what_to_do() {
    let mut command = binary();
    command.args(["ctl", "--socket", "/nonexistent/api.sock", "health"]);
    let said = refusal(command);
    assert!(
        said.contains("connecting to the gateway at /nonexistent/api.sock: ")
            && said.contains("does ringside-gateway run here"),
        "{said}"
    );
    let mut command = binary();
    command.args(["ctl", "--address", "http://127.0.0.1:1", "health"]);
    assert!(complaint(command, 2).contains("only https://"));
}

#[test]
fn a_csv_file_is_loaded() {
    let daemon = Daemon::start("");
    let file = daemon.folder.join("neighbors.csv");
    let name = file.to_str().unwrap();
    let mut text = "vni,ip,mac,host-ip,host-mac,encapsulation\n".to_owned();
    for number in 0..2000_u32 {
        let [_, _, c, d] = number.to_be_bytes();
        text.push_str(&format!(
            "7,10.0.{c}.{},02:00:00:00:{c:02x}:{d:02x},192.0.2.1,,{}\n",
            d,
            if d % 2 == 0 { "vxlan" } else { "" }
        ));
    }
    std::fs::write(&file, &text).unwrap();
    let said = daemon.ok(&["load", name, "--version", "3", "--batch", "300", "--json"]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["neighbors"], 2000);
    std::fs::write(&file, text.replace("10.0.3.9,", "10.0.3.999,")).unwrap();
    let said = daemon.rejects(&["load", name, "--version", "4", "--batch", "100"]);
    assert!(
        said.contains("700 neighbours before that are known, and stay so; --skip 700 goes on behind them")
            && said.contains("line 779: invalid IP address"),
        "{said}"
    );
    std::fs::write(&file, &text).unwrap();
    let said = daemon.ok(&[
        "load",
        name,
        "--version",
        "4",
        "--batch",
        "100",
        "--skip",
        "700",
        "--json",
    ]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!([&said["neighbors"], &said["changed"]], [1300, 1300]);
    let said = daemon.rejects(&["load", name, "--version", "4", "--skip", "2000"]);
    assert!(said.contains("there are no neighbours behind the first 2000"), "{said}");
    let said = daemon.ok(&["load", name, "--version", "4", "--json"]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["unchanged"], 2000, "none was left out");
    std::fs::write(&file, "vni,ip,mac,host-ip,host-mac\n").unwrap();
    assert!(
        daemon
            .rejects(&["load", name, "--version", "4"])
            .contains("there are no neighbours in it")
    );
    daemon.stop();
}

#[test]
fn changes_are_watched() {
    let daemon = Daemon::start("");
    daemon.ok(&["put", "port", "42", "10.0.0.7", "--groups", "1"]);
    let mut command = binary();
    command
        .args(["ctl", "--json", "--socket"])
        .arg(daemon.folder.join("api.sock"))
        .args(["watch", "ports", "--existing"]);
    let mut watch = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(watch.stdout.take().unwrap()));
    let mut next = || lines.next().unwrap().unwrap();
    assert!(next().contains("\"put\""));
    assert_eq!(next(), "{\"synced\":true}");
    daemon.ok(&["delete", "port", "42", "10.0.0.7"]);
    assert_eq!(next(), "{\"deleted\":\"10.0.0.7 in network 42\",\"version\":1}");
    daemon.stop();
    assert_eq!(watch.wait().unwrap().code(), Some(1));
}

/// What `ctl COMMAND --help` says, as one types it, without the name of the program.
fn examples(command: &[&str]) -> Vec<Vec<String>> {
    let mut asked = binary();
    let output = asked.arg("ctl").args(command).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let (_, lines) = help.split_once("Examples:\n").expect("each command has some");
    let lines = lines
        .lines()
        .filter_map(|line| line.trim().strip_prefix("ringside gateway "));
    // Behind two spaces is what it is about.
    let typed = lines.map(|line| line.split("  ").next().unwrap_or(line));
    typed.map(|line| line.split(' ').map(str::to_owned).collect()).collect()
}

/// Each example of each command does what it says, in the order in which one would come by them.
#[test]
fn the_examples_of_the_help() {
    let daemon = Daemon::start("");
    let tenants = "neighbors:\n  - {vni: 42, ip: 10.0.0.7, mac: \"02:00:00:00:00:07\", host: {ip: 192.0.2.1}}\n\
                   ports:\n  - {vni: 42, ip: 10.0.0.7, groups: [1]}\n\
                   groups:\n  - {id: 1, name: web, rules: [{id: 1, direction: ingress}]}\n";
    std::fs::write(daemon.folder.join("tenants.yaml"), tenants).unwrap();
    let neighbors = "vni,ip,mac,host-ip\n42,10.0.0.9,02:00:00:00:00:09,192.0.2.1\n";
    for name in ["neighbors.csv", "gone.csv"] {
        std::fs::write(daemon.folder.join(name), neighbors).unwrap();
    }
    let ctl = |words: &[String]| {
        let mut command = binary();
        command.arg("ctl").arg("--socket").arg(daemon.folder.join("api.sock"));
        command.args(words).current_dir(daemon.folder.join(""));
        command
    };
    let commands = [
        "apply",
        "put neighbor",
        "put port",
        "get",
        "list",
        "load",
        "stats",
        "health",
        "drain",
        "repaired",
    ];
    let mut run = 0;
    for command in commands.into_iter().chain(["delete"]) {
        for words in examples(&command.split(' ').collect::<Vec<_>>()) {
            let output = ctl(&words).output().unwrap();
            assert!(output.status.success(), "{words:?}: {output:?}");
            run += 1;
        }
    }
    let said: serde_json::Value = serde_json::from_str(&daemon.ok(&["drain", "--off", "--json"])).unwrap();
    assert_eq!(said, serde_json::json!({ "draining": false, "drained": false }));
    // There is nothing to be seen in a gateway without packets.
    for words in examples(&["trace"]) {
        let output = ctl(&words).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("path.interface is not configured"), "{words:?}: {said}");
        run += 1;
    }
    // These go on until somebody ends them.
    for words in examples(&["watch"]) {
        let mut watch = ctl(&words).stdout(std::process::Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(watch.try_wait().unwrap(), None, "{words:?}");
        watch.kill().unwrap();
        watch.wait().unwrap();
        run += 1;
    }
    assert!(run > 20, "{run}");
    let folder = daemon.stop();
    assert!(!folder.join("api.sock").exists(), "its socket stays");
}

/// `make install` puts program and unit where they belong, and takes them away again.
#[test]
fn installed_and_taken_away() {
    let folder = Folder::new();
    let (built, root) = (folder.join("built"), folder.join("root"));
    std::fs::create_dir(&built).unwrap();
    copy_program(env!("CARGO_BIN_EXE_ringside-gateway"), built.join("ringside-gateway"));
    let install = |arguments: &[&str]| {
        let mut command = std::process::Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/install"));
        command.args(arguments).env("DESTDIR", &root).env("PREFIX", "/usr");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    install(&["--from", built.to_str().unwrap()]);
    let program = root.join("usr/bin/ringside-gateway");
    let said = std::process::Command::new(&program).arg("--version").output().unwrap();
    assert!(String::from_utf8(said.stdout).unwrap().starts_with("ringside-gateway "));
    let units = [
        ("ringside-gateway", "--config /etc/ringside-gateway.toml\n"),
        ("ringside-gateway-agent", "ctl agent $OPTIONS\n"),
    ]
    .map(|(name, starts)| {
        let unit = root.join(format!("usr/lib/systemd/system/{name}.service"));
        let text = std::fs::read_to_string(&unit).unwrap();
        let starts = format!("\nExecStart=/usr/bin/ringside-gateway {starts}");
        assert!(text.contains(&starts), "{text}");
        assert!(!text.contains("/usr/local"), "{text}");
        // systemd's own reading of it, of a program that is there. It fails for some faults, and for others only says so.
        let looked_at = folder.join(&format!("{name}.service"));
        let of_this = text.replace("/usr/bin/ringside-gateway ", &format!("{} ", program.display()));
        std::fs::write(&looked_at, of_this).unwrap();
        let mut command = std::process::Command::new("systemd-analyze");
        let output = command.args(["verify", "--man=no"]).arg(&looked_at).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        unit
    });
    install(&["--uninstall"]);
    assert!(!program.exists() && units.iter().all(|unit| !unit.exists()));
}

#[test]
fn its_log_is_json_if_it_is_asked_for() {
    let daemon = Daemon::start("[log]\nformat = \"json\"");
    daemon.ok(&put_neighbor(
        ["42", "10.0.0.7", "02:00:00:00:00:07", "192.0.2.1"],
        None,
    ));
    let log = daemon.log();
    assert!(log.lines().count() > 0);
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(line["timestamp"].is_string() && line["level"].is_string(), "{line}");
        assert!(line["fields"]["message"].is_string(), "{line}");
    }
    daemon.stop();
}
