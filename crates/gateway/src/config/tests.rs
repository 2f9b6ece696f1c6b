//! Files that can be used, and what is said about those that cannot.

use super::*;

fn parse(text: &str) -> Result<Config, Vec<String>> {
    Config::parse(text, Path::new("/etc/ringside-gateway.toml"), false)
}

/// The example at the top of the file, but for the names of this host.
fn example() -> String {
    let doc = include_str!("../config.rs");
    let lines = doc.lines().skip_while(|line| !line.contains("```toml")).skip(1);
    let lines = lines.take_while(|line| !line.contains("```"));
    let text: Vec<&str> = lines.map(|line| line.trim_start_matches("//!")).collect();
    // Not everywhere is a BPF file system, either.
    text.join("\n").replace("netops", "root").replace("pins =", "# pins =")
}

#[test]
fn nothing_at_all_is_a_configuration() {
    let config = parse("").unwrap();
    assert_eq!(
        (config.socket.mode, config.tcp, config.level),
        (0o600, None, Level::Info)
    );
    assert_eq!(config.metrics.unwrap().to_string(), "127.0.0.1:9465");
    assert_eq!(config.limits, Limits::default());
}

#[test]
fn the_documented_example_is_one_but_for_its_files() {
    // Of this host, which may have but one CPU.
    let problems = parse(&example().replace("cpus = [2, 3]", "")).unwrap_err();
    let names = [
        "api.tcp.certificate",
        "api.tcp.key",
        "api.tcp.client-ca",
        "api.tcp.host-ca",
        "store.etcd.ca",
        "store.etcd.certificate",
        "store.etcd.key",
        "store.etcd.password-file",
        "path.direct.key-file",
    ];
    assert_eq!(problems.len(), names.len(), "{problems:?}");
    for (problem, name) in problems.iter().zip(names) {
        assert!(
            problem.starts_with(&format!("{name}: /etc/ringside-gateway/")),
            "{problem}"
        );
    }
}

#[test]
fn what_is_wrong_is_told_with_what_to_do() {
    for (text, part) in [
        (
            "[api]\nsockte = \"/x\"",
            "line 2: unknown field `sockte`, expected one of `socket`, `owner`, `mode`, `tcp` (did you mean `socket`?)",
        ),
        ("[stor]", "line 1: unknown field `stor`"),
        ("[log]\nlevel = \"loud\"", "line 2: unknown variant `loud`"),
        ("[log]\nlevel = \"inf\"", "(did you mean `info`?)"),
        (
            "[api]\nmode = \"0666\"",
            "api.mode: \"0666\" lets everybody on this host change everything",
        ),
        ("[api]\nmode = \"rw\"", "api.mode: \"rw\" is none"),
        (
            "[api]\nowner = \"no-such-user-here\"",
            "api.owner: there is no user \"no-such-user-here\" on this host",
        ),
        ("[api]\nsocket = \"x\"", "api.socket: x does not begin with /"),
        (
            "[path]\nmode = \"fast\"",
            "path.mode: \"fast\" is no mode; one of: auto,",
        ),
        (
            "[path]\ncpus = [4711]",
            "path.cpus: 4711 is none that this process may use; those are [0",
        ),
        (
            "[path]\ncached-neighbors = 4294967295",
            "path.cached-neighbors: half of this host's memory holds",
        ),
        ("[path]\nvxlan-port = 0", "path.vxlan-port: 0 is no port"),
        (
            "[path]\npins = \"/proc\"",
            "path.pins: /proc is a whole file system; name a folder of its own",
        ),
        ("[path]\ninterface = []", "path.interface: an empty list"),
        ("[path]\ninterface = 7", "the name of an interface, or a list of names"),
        (
            "[path]\ninterface = [\"eth1\", \"eth1\"]",
            "path.interface: \"eth1\" is there twice",
        ),
        (
            "[path]\ninterface = \"eth1\"\n[path.direct]\nport = 0",
            "path.direct.port: 0 is none",
        ),
        (
            "[path]\ninterface = \"eth1\"\n[path.direct]\nport = 4789",
            "path.direct.port: 4789 is path.vxlan-port",
        ),
        (
            "[path]\ninterface = \"eth1\"\ngeneve-port = 7\n[path.direct]\nport = 7",
            "path.direct.port: 7 is path.geneve-port",
        ),
        (
            "[path]\ninterface = \"eth1\"\n[path.direct]\nlifetime-seconds = 86401",
            "path.direct.lifetime-seconds: 86401 is above 86400",
        ),
        ("[path]\ncpus = [0, 0]", "path.cpus: 0 is there twice"),
        ("[path]\npatience-ms = 60001", "path.patience-ms: 60001 is above 60000"),
        (
            "[connections]\nidle-seconds = 18446744073709551615",
            "connections.idle-seconds: 18446744073709551615 is above",
        ),
        (
            "[store]\ntombstone-seconds = 3153600001",
            "store.tombstone-seconds: 3153600001 is above 3153600000",
        ),
        (
            "[path]\ninterface = \"eth1\"\nsource-check = true\n[path.direct]",
            "path.direct: what goes from host to host is not checked as path.source-check asks",
        ),
        ("[path]\nworkers = 0", "path.workers: 0 workers are none"),
        ("[path]\nworkers = 100000", "path.workers: 100000 are more than 1024"),
        (
            "[connections]\nlimit = 4294967295",
            "connections.limit: half of this host's memory holds",
        ),
        (
            "[path]\ninterface = [\"eth1\", \"sixteen-letters.\"]",
            "path.interface: \"sixteen-letters.\" cannot be the name of an interface",
        ),
        ("[path]\ninterface = \"a/b\"", "\"a/b\" cannot be"),
        ("[path]\npins = \"pins\"", "path.pins: pins does not begin with /"),
        (
            "[path]\npins = \"/sys/fs/bpf/a.b/c\"",
            "path.pins: /sys/fs/bpf/a.b/c: a BPF file system takes no names with dots",
        ),
        (
            "[path]\npins = \"/tmp/pins\"",
            "path.pins: /tmp/pins is not in a BPF file system; mount one",
        ),
        (
            "[path]\ncached-neighbors = 0",
            "path.cached-neighbors: there has to be room for 1",
        ),
        (
            "[path]\ngeneve-options = [\"1\"]",
            "path.geneve-options: \"1\" is none; write CLASS:TYPE",
        ),
        ("[path]\ngeneve-port = 4789", "path.geneve-port: 4789 is that of VXLAN"),
        (
            "[api.tcp]\nlisten = \"0.0.0.0:7443\"",
            "api.tcp: certificate, key, client-ca missing: the API is offered over TCP only with TLS",
        ),
        (
            "[api.tcp]\nlisten = \"127.0.0.1:9465\"",
            "metrics.listen: 127.0.0.1:9465 is api.tcp.listen; give another port",
        ),
        ("[api.tcp]\nlisten = \"7443\"", "line 2: invalid socket address"),
        ("[connections]\nlimit = 0", "connections.limit: 0"),
        (
            "[connections.tenants]\n16777216 = 5",
            "connections.tenants: 16777216 is no number of a network, 0 to 16777215",
        ),
        (
            "[connections.timeout-seconds]\nestablishd = 5",
            "establishd is no state (did you mean `established`?)",
        ),
        (
            "[connections.timeout-seconds]\nestablished = 0",
            "connections.timeout-seconds.established: 0 is not within 1 to",
        ),
        (
            "[connections.timeout-seconds]\nudp-replied = 3",
            "connections.timeout-seconds.udp-replied: 3 is less than 4, within which is known",
        ),
        (
            "[connections]\nidle-seconds = 0",
            "connections.idle-seconds: 0 is less than 4",
        ),
        ("[store", "line 1: "),
    ] {
        let problems = parse(text).unwrap_err();
        assert!(
            problems.iter().any(|problem| problem.contains(part)),
            "{text}: {problems:?} lacks {part:?}"
        );
    }
    let two = parse("[api]\nmode = \"1\"\nowner = \"no-such-user-here\"").unwrap_err();
    assert_eq!(two.len(), 2, "all that is wrong at once: {two:?}");
}

#[test]
fn an_empty_list_of_cpus_pins_no_worker() {
    for (lines, workers) in [("", 1), ("workers = 3", 3)] {
        let config = parse(&format!("[path]\ninterface = \"lo\"\ncpus = []\n{lines}"));
        let path = config.unwrap().path.unwrap();
        assert_eq!((path.cpus, path.workers), (vec![], workers));
    }
}

#[test]
fn takes_values_that_are_repeated_or_large() {
    let most = i64::MAX;
    let text = format!(
        "[path]\ninterface = \"lo\"\nunowned-seconds = {most}\n\
         geneve-options = [\"0102:80\", \"102:80\", \"0102:81\"]"
    );
    let settings = parse(&text).unwrap().path.unwrap().settings;
    assert_eq!(settings.unowned, Duration::from_secs(most.unsigned_abs()));
    assert_eq!(settings.known_options, [(0x102, 0x80), (0x102, 0x81)]);
    // The kernel gives each another port.
    let ports = "[metrics]\nlisten = \"127.0.0.1:0\"\n[api.tcp]\nlisten = \"127.0.0.1:0\"";
    let problems = parse(ports).unwrap_err();
    assert!(
        problems.len() == 1 && problems[0].contains("missing: the API is offered over TCP"),
        "{problems:?}"
    );
}

#[test]
fn what_the_fast_path_never_has_may_end_sooner() {
    let config = parse("[connections.timeout-seconds]\nudp-unreplied = 1\nudp-replied = 4").unwrap();
    let timeouts = &config.limits.timeouts;
    assert_eq!(timeouts.of(State::UdpUnreplied), Duration::from_secs(1));
    assert_eq!(timeouts.of(State::UdpReplied), Duration::from_secs(4));
}

#[test]
fn there_is_room_for_sixteen_of_each() {
    let text = |count: u8| {
        let names: Vec<String> = (0..count).map(|number| format!("eth{number}")).collect();
        let options: Vec<String> = (0..count).map(|number| format!("0102:{number:02x}")).collect();
        format!("[path]\ninterface = {names:?}\ngeneve-options = {options:?}")
    };
    let path = parse(&text(16)).unwrap().path.unwrap();
    assert_eq!((path.interfaces.len(), path.settings.known_options.len()), (16, 16));
    let problems = parse(&text(17)).unwrap_err();
    assert_eq!(
        problems,
        [
            "path.geneve-options: 17 are more than 16",
            "path.interface: 17 are more than 16"
        ]
    );
}

#[test]
fn a_reload_knows_what_takes_a_restart() {
    let before = parse("").unwrap();
    let after =
        parse("[log]\nlevel = \"debug\"\n[store]\ntombstone-seconds = 1\n[connections.tenants]\n42 = 7").unwrap();
    assert!(before.takes_restart(&after).is_empty());
    let path = "[path]\ninterface = \"eth0\"\n";
    let more = "unowned-seconds = 7\ngeneve-options = [\"0102:80\"]\nsource-check = true\nderive-source-port = true\n\
                errors-per-second = 7\npatience-ms = 7\n[connections]\nper-tenant = 7\ntimeout-seconds = { established = 7 }";
    let [before_path, after_path] = ["", more].map(|more| parse(&format!("{path}{more}")).unwrap());
    assert!(before_path.takes_restart(&after_path).is_empty());
    assert_eq!(before_path.running(&after_path), after_path);
    let other = parse(&format!("{path}workers = 1\nvxlan-port = 7\npatience-ms = 7")).unwrap();
    assert_eq!(before_path.takes_restart(&other), ["path"]);
    assert_eq!(
        before_path.running(&other).path.unwrap().settings.patience.as_millis(),
        7
    );
    // Who is told of direct paths is not checked by them.
    let direct = parse(&format!("{path}[path.direct]\nport = 7")).unwrap();
    assert_eq!(direct.takes_restart(&after_path), ["path"]);
    assert!(!direct.running(&after_path).path.unwrap().settings.source_check);
    let after = parse("[connections]\nlimit = 5\n[api]\nsocket = \"/run/x\"").unwrap();
    assert_eq!(before.takes_restart(&after), ["api", "connections"]);
}

#[test]
fn the_packaged_examples_are_some_but_for_files() {
    let alone = parse(include_str!("../../../../packaging/ringside-gateway.toml")).unwrap();
    assert!(
        alone.path.is_some_and(|path| path.pins.is_some()),
        "it goes on over restarts"
    );
    let text = include_str!("../../../../packaging/ringside-gateway-fleet.toml");
    let problems = parse(text).unwrap_err();
    assert!(
        problems
            .iter()
            .all(|problem| problem.contains(": /etc/ringside-gateway/") && problem.contains("No such file")),
        "{problems:?}"
    );
    let of = |table: &str| problems.iter().filter(|problem| problem.starts_with(table)).count();
    assert_eq!(
        (of("store.etcd."), of("api.tcp."), problems.len()),
        (3, 4, 7),
        "{problems:?}"
    );
}

/// With `[store.etcd]` around lines.
fn of_etcd(lines: &str) -> Result<Config, Vec<String>> {
    parse(&format!("[store]\nkind = \"etcd\"\n[store.etcd]\n{lines}"))
}

#[test]
fn etcd_on_this_host_needs_an_endpoint_alone() {
    for endpoint in ["http://127.0.0.1:2379", "http://localhost:2379", "http://[::1]:2379"] {
        let config = of_etcd(&format!("endpoints = [{endpoint:?}]")).unwrap();
        let etcd = config.etcd.unwrap();
        assert_eq!((&*etcd.prefix, etcd.tls, etcd.user), ("/ringside/gateway/", None, None));
    }
    let repeated = [
        "http://localhost:1",
        "http://localhost:2",
        "http://localhost:1/",
        "http://localhost:1",
    ];
    let etcd = of_etcd(&format!("endpoints = {repeated:?}")).unwrap().etcd.unwrap();
    assert_eq!(etcd.endpoints, repeated[..2]);
    // Elsewhere it is only looked at.
    let config = parse("[store.etcd]\nendpoints = [\"http://127.0.0.1:2379\"]").unwrap();
    assert_eq!(config.etcd, None);
}

#[test]
fn what_is_wrong_about_etcd_is_told_with_what_to_do() {
    let here = "endpoints = [\"http://127.0.0.1:1\"]";
    for (lines, part) in [
        ("", "store.etcd.endpoints: give at least one"),
        (
            "endpoints = [\"127.0.0.1:2379\"]",
            "store.etcd.endpoints: \"127.0.0.1:2379\"",
        ),
        (
            "endpoints = [\"http://192.0.2.1:2379\"]",
            "leaves this host without TLS",
        ),
        ("endpoints = [\"https://192.0.2.1\"]", "has no port"),
        ("endpoints = [\"https://192.0.2.1:0\"]", "has port 0"),
        ("endpoints = [\"https://192.0.2.1:1/x\"]", "has more than host and port"),
        (
            "endpoints = [\"https://192.0.2.1:1\"]",
            "store.etcd.ca: the authority of etcd's servers is needed",
        ),
        (
            "endpoints = [\"https://192.0.2.1:1\", \"http://127.0.0.1:1\"]",
            "all of them with https://, or none",
        ),
        (
            &format!("{here}\nca = \"/x\""),
            "ca, certificate and key are for endpoints with https://",
        ),
        (
            &format!("{here}\nprefix = \"x\""),
            "store.etcd.prefix: \"x\" does not begin and end with one /",
        ),
        (&format!("{here}\nprefix = \"//\""), "store.etcd.prefix"),
        (&format!("{here}\nuser = \"x\""), "user and password-file go together"),
        (
            &format!("{here}\nsilence-ms = 1"),
            "store.etcd.silence-ms: 1 is not within 100 to 60000",
        ),
        (&format!("{here}\ncompare-seconds = 0"), "store.etcd.compare-seconds: 0"),
        (
            &format!("{here}\nforward-stale-seconds = 4"),
            "store.etcd.forward-stale-seconds: 4 is neither 0, for no limit, nor from silence-ms",
        ),
        (&format!("{here}\nendpoint = 1"), "(did you mean `endpoints`?)"),
    ] {
        let problems = of_etcd(lines).unwrap_err();
        assert!(
            problems.iter().any(|problem| problem.contains(part)),
            "{lines}: {problems:?} lacks {part:?}"
        );
    }
    let problems = parse("[store]\nkind = \"etcd\"").unwrap_err();
    assert!(problems[0].contains("store.etcd: endpoints are needed"), "{problems:?}");
    let problems = parse("[store]\nkind = \"ectd\"").unwrap_err();
    assert!(problems[0].contains("did you mean `etcd`?"), "{problems:?}");
}

/// Other gateways may forward some of a connection's packets.
#[test]
fn numbers_are_checked_by_default_where_one_gateway_has_all_packets() {
    let path = "[path]\ninterface = \"lo\"";
    let checks = |config: Config| config.path.unwrap().check_windows;
    for (option, expected) in [
        ("", true),
        ("check-windows = true", true),
        ("check-windows = false", false),
    ] {
        assert_eq!(
            checks(parse(&format!("{path}\n{option}")).unwrap()),
            expected,
            "{option}"
        );
    }
    let here = "endpoints = [\"http://127.0.0.1:1\"]";
    let fleet = "[fleet]\nname = \"one\"\naddresses = [\"192.0.2.1\"]";
    for more in ["", fleet] {
        let problems = of_etcd(&format!("{here}\n{path}\ncheck-windows = true\n{more}")).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("path.check-windows: true is not possible with store.kind"));
        assert!(!checks(of_etcd(&format!("{here}\n{path}\n{more}")).unwrap()));
    }
}

#[test]
fn another_etcd_takes_a_restart() {
    let one = of_etcd("endpoints = [\"http://127.0.0.1:1\"]").unwrap();
    let other = of_etcd("endpoints = [\"http://127.0.0.1:2\"]").unwrap();
    assert_eq!(one.takes_restart(&other), ["store.etcd"]);
    assert_eq!(one.takes_restart(&parse("").unwrap()), ["store.etcd"]);
}

/// With `[fleet]` around lines.
fn of_fleet(lines: &str) -> Result<Config, Vec<String>> {
    of_etcd(&format!("endpoints = [\"http://127.0.0.1:1\"]\n[fleet]\n{lines}"))
}

#[test]
fn a_member_of_a_fleet_says_where_hosts_send_to() {
    let config = of_fleet("name = \"one\"\naddresses = [\"192.0.2.1\", \"2001:db8::1\"]").unwrap();
    let fleet = config.fleet.unwrap();
    assert_eq!((&*fleet.name, fleet.weight, fleet.lease.as_secs()), ("one", 100, 5));
    assert!(!fleet.stays && fleet.api.is_none());
    assert_eq!(fleet.without_link, Some(Duration::from_secs(1)));
    let keeps = of_fleet("name = \"one\"\naddresses = [\"192.0.2.1\"]\nwithout-link-ms = 0").unwrap();
    assert_eq!(keeps.fleet.unwrap().without_link, None);
    assert_eq!(fleet.addresses.len(), 2);
    assert!(of_fleet("name = \"one\"\naddresses = [\"240.0.0.1\"]").is_ok());
    let refused = [
        ("name = \"one\"", "fleet.addresses: give the address"),
        (
            "addresses = [\"192.0.2.1\", \"192.0.2.2\"]",
            "fleet.addresses: give the address that hosts send to, one of each family",
        ),
        (
            "addresses = [\"127.0.0.1\"]",
            "fleet.addresses: 127.0.0.1 is not the address of one host",
        ),
        (
            "addresses = [\"255.255.255.255\"]",
            "255.255.255.255 is not the address of one host",
        ),
        (
            "addresses = [\"::ffff:192.0.2.1\"]",
            "fleet.addresses: ::ffff:192.0.2.1 is an IPv4 address; write it as 192.0.2.1",
        ),
        (
            "name = \"a b\"\naddresses = [\"192.0.2.1\"]",
            "fleet.name: \"a b\" is longer",
        ),
        (
            "addresses = [\"192.0.2.1\"]\nlease-seconds = 0",
            "fleet.lease-seconds: 0 is not within 1 to 300",
        ),
        (
            "addresses = [\"192.0.2.1\"]\nlease-seconds = 4",
            "silence-ms (5000): the others would have this gateway's networks while it still takes etcd for reachable; set \
             lease-seconds to 5 or more, or silence-ms to 4000 or less",
        ),
        (
            "addresses = [\"192.0.2.1\"]\nwithout-link-ms = 99",
            "fleet.without-link-ms: 99 is neither 0",
        ),
        (
            "addresses = [\"192.0.2.1\"]\nweight = 10001",
            "fleet.weight: 10001 is more than",
        ),
        (
            "addresses = [\"192.0.2.1\"]\napi = \"http://192.0.2.1:1\"",
            "fleet.api: \"http://192.0.2.1:1\" is none; write it as",
        ),
        (
            "addresses = [\"192.0.2.1\"]\napi = \"https://192.0.2.1:0\"",
            "fleet.api: \"https://192.0.2.1:0\" is none; write it as",
        ),
    ];
    for (lines, expected) in refused {
        let problems = of_fleet(lines).unwrap_err();
        assert!(
            problems.iter().any(|problem| problem.contains(expected)),
            "{lines}: {problems:?}"
        );
    }
    let problems = parse("[fleet]\nname = \"one\"\naddresses = [\"192.0.2.1\"]").unwrap_err();
    assert!(problems.concat().contains("fleet: needs store.etcd"), "{problems:?}");
}

#[test]
fn a_path_that_is_written_is_nothing_else() {
    for (text, said) in [
        (
            "[store]\npath = \"/x/store.db\"\n[api]\nsocket = \"/x/store.db\"",
            "store.path (/x/store.db) and api.socket (/x/store.db) are the same",
        ),
        (
            "[store]\npath = \"/x/store.db\"\n[api]\nsocket = \"/x/../x/store.db.lock\"",
            "store.path.lock (/x/store.db.lock) and api.socket (/x/store.db.lock)",
        ),
        (
            "[store]\npath = \"/x/.api/store.db\"\n[api]\nsocket = \"/x/api\"",
            "and the folder that api.socket is made in (/x/.api) are the same, or one is within \
             the other",
        ),
        (
            "[api]\nsocket = \"/etc/ringside-gateway.toml\"",
            "api.socket (/etc/ringside-gateway.toml) and the configuration \
             (/etc/ringside-gateway.toml)",
        ),
        (
            "[store]\npath = \"/x/server.key\"\n[api.tcp]\nlisten = \"127.0.0.1:1\"\nkey = \
             \"/x/server.key\"",
            "store.path (/x/server.key) and api.tcp.key (/x/server.key)",
        ),
        (
            "[store]\npath = \"/x/ca.pem\"\n[store.etcd]\nendpoints = \
             [\"https://192.0.2.1:2379\"]\nca = \"/x/ca.pem\"",
            "store.path (/x/ca.pem) and store.etcd.ca (/x/ca.pem)",
        ),
        (
            "[store]\npath = \"/x/seal\"\n[path.direct]\nkey-file = \"/x/seal\"",
            "store.path (/x/seal) and path.direct.key-file (/x/seal)",
        ),
        (
            "[api]\nsocket = \"/sys/fs/bpf/gateway/api\"\n[path]\npins = \"/sys/fs/bpf/gateway\"",
            "api.socket (/sys/fs/bpf/gateway/api) and path.pins (/sys/fs/bpf/gateway)",
        ),
    ] {
        let problems = parse(text).unwrap_err();
        assert!(
            problems.iter().any(|problem| problem.contains(said)),
            "{text}: {problems:?}"
        );
    }
}
