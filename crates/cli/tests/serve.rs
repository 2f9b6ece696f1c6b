//! `ringside serve` and those who use it, between two hosts: what works, who is not let in, and what happens when one goes.

mod common;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Done, Running, assert_clean, assert_reconciles, lab, ringside};
use ringside_measure::control::{Client, ClientOptions, DEFAULT_PORT, Token};
use ringside_measure::schema::{ClockBasis, Document, LatencyKind, Mode, Operation, Outcome, RunResult, SearchResult};
use ringside_netlab::testing::is_root;
use ringside_netlab::{End, Lab};
use ringside_nic::clock::Discipline;

const TOKEN: &str = "a token that no test but these has";

/// A file with a token, gone with the value.
struct TokenFile(PathBuf);

impl TokenFile {
    fn new(tag: &str, token: &str) -> Self {
        let name = format!("ringside-{tag}-{}.token", std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::write(&path, token).expect("token");
        Self(path)
    }

    fn option(&self) -> String {
        format!("--token-file {}", self.0.display())
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.0);
    }
}

/// With a folder of its own for keys.
fn command(end: &End, arguments: &str, home: &str) -> Command {
    let mut command = ringside(end, arguments);
    let home = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("ringside-home-{home}"));
    command.env("XDG_CONFIG_HOME", home).env_remove("RINGSIDE_TOKEN");
    command
}

fn serve(lab: &Lab, arguments: &str) -> Running {
    let running = Running::new(command(&lab.b, &format!("serve {arguments}"), "server"));
    running.wait_for("on TCP port");
    running
}

fn client(lab: &Lab, arguments: &str) -> Done {
    Running::new(command(&lab.a, arguments, "client")).end()
}

fn ping_result(document: Document) -> RunResult {
    match document.result {
        Outcome::Run(run) => *run,
        other => panic!("{other:?}"),
    }
}

/// A connection from the near host, as anybody can make one.
fn dial(lab: &Lab) -> TcpStream {
    let to = SocketAddr::from((lab.b.ipv4, DEFAULT_PORT));
    let stream = lab.a.run(|| TcpStream::connect(to)).expect("connects");
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("time-out");
    stream
}

/// What comes until the other side closes.
fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    _ = stream.read_to_end(&mut all);
    all
}

#[test]
fn ping_a_host_by_its_name_alone() {
    if !is_root() {
        return;
    }
    let lab = lab("serve-ping", 2);
    let token = TokenFile::new("ping", TOKEN);
    let server = serve(&lab, &format!("{{}} {} --wait poll", token.option()));
    let host = lab.b.ipv4;
    let line = format!("ping {host} {} --count 200 --json", token.option());
    let document = client(&lab, &line).good().document();
    let far = document.far.clone().expect("the far end's");
    assert_eq!((far.via.as_str(), far.authenticated_by.as_str()), ("af_xdp", "token"));
    assert_eq!(far.interfaces[0].name, lab.b.interface.name());
    assert!(
        far.interfaces[0]
            .queues
            .iter()
            .all(|queue| queue.mode == Mode::NativeCopy),
        "{far:#?}"
    );
    let there = far.result.expect("what it counted");
    assert_eq!(there.operation, Operation::Echo);
    assert_eq!((there.packets.sent, there.packets.received), (200, 200), "{there:#?}");
    assert_reconciles(&there);
    let near = ping_result(document);
    assert_eq!(
        near.sequence.map(|counts| (counts.sent, counts.received)),
        Some((200, 200))
    );
    assert_reconciles(&near);

    // The same server, again, with the interface named, by a rate, over a UDP socket of the kernel's.
    let line = format!(
        "ping {{}} --server {host}:{DEFAULT_PORT} {} --rate 500 -t 0.5 --far-via udp --json",
        token.option()
    );
    let document = client(&lab, &line).good().document();
    let far = document.far.clone().expect("the far end's");
    assert_eq!(far.via, "udp");
    let counted = far.result.expect("what it counted").packets.received;
    let near = ping_result(document);
    assert!(counted > 0 && counted == near.packets.received, "{counted}, {near:#?}");

    let told = server.interrupt().good().err;
    assert_eq!(
        told.matches("the session ends: 200 of 200 packets came").count(),
        1,
        "{told}"
    );
    assert!(!told.contains(TOKEN));
    assert_clean(&lab.a);
    assert_clean(&lab.b);
}

#[test]
fn who_is_not_let_in_is_told_why() {
    if !is_root() {
        return;
    }
    let lab = lab("serve-token", 1);
    let (token, other) = (
        TokenFile::new("right", TOKEN),
        TokenFile::new("wrong", "another one, as long as it has to be"),
    );
    let mut server = serve(
        &lab,
        &format!("{{}} {} --wait poll --max-rate 5000 --max-time 2", token.option()),
    );
    let host = lab.b.ipv4;
    for (options, part) in [
        (String::new(), "asks for a token"),
        (other.option(), "the tokens are not the same"),
        (
            format!("{} --pin sha256:{}", token.option(), "0".repeat(64)),
            "does not speak TLS",
        ),
        (format!("{} --rate 5001", token.option()), "allows 5000 (--max-rate)"),
        (format!("{} -t 3", token.option()), "allows 2 s (--max-time)"),
        (
            format!("{} --far-mode zero-copy", token.option()),
            "zero-copy is asked for",
        ),
        (format!("{} --server {host}:1", token.option()), "Connection refused"),
    ] {
        let line = match options.contains("--server") {
            true => format!("ping {{}} {options} --count 5"),
            false => format!("ping {host} {options} --count 5"),
        };
        let message = client(&lab, &line).bad();
        assert!(message.contains(part), "{line}: {message}");
    }
    assert!(!server.is_over());
    // And it still serves.
    client(&lab, &format!("ping {host} {} --count 5", token.option())).good();
    let told = server.interrupt().good().err;
    assert!(told.contains("did not come in: the tokens are not the same"), "{told}");
}

#[test]
fn scanners_and_strangers_do_no_harm() {
    if !is_root() {
        return;
    }
    let lab = lab("serve-scan", 1);
    let token = TokenFile::new("scan", TOKEN);
    let mut server = serve(&lab, &format!("{{}} {} --wait poll", token.option()));
    // Connected and gone.
    drop(dial(&lab));
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\xff\xff\xff\xff",
        b"\0\0\0\x02{}",
        b"\0\0\0\x01",
        &[0x5a; 70_000],
    ] {
        let mut stream = dial(&lab);
        _ = stream.write_all(bytes);
        if bytes.len() > 4 {
            // Closed by the server, who tells none of these what it is.
            let answer = rest(stream);
            assert!(answer.len() < 200, "{answer:?}");
        }
    }
    // A ringside of a version to come is told.
    let hello = format!(
        r#"{{"type":"hello","versions":[7],"tool_version":"9.9","nonce":"{}"}}"#,
        "0".repeat(64)
    );
    let mut stream = dial(&lab);
    stream
        .write_all(&u32::try_from(hello.len()).unwrap().to_be_bytes())
        .unwrap();
    stream.write_all(hello.as_bytes()).unwrap();
    let answer = String::from_utf8_lossy(&rest(stream)).into_owned();
    assert!(answer.contains("use one version of ringside on both sides"), "{answer}");

    // Who says nothing is let go after five seconds, and does not keep others out meanwhile.
    let begun = Instant::now();
    let slow: Vec<TcpStream> = (0..6).map(|_| dial(&lab)).collect();
    let host = lab.b.ipv4;
    client(&lab, &format!("ping {host} {} --count 5", token.option())).good();
    for stream in slow {
        rest(stream);
    }
    assert!(begun.elapsed() >= Duration::from_secs(4), "{:?}", begun.elapsed());
    assert!(!server.is_over());
    client(&lab, &format!("ping {host} {} --count 5", token.option())).good();
    server.interrupt().good();
}

#[test]
fn two_clients_at_once_and_one_too_many() {
    if !is_root() {
        return;
    }
    let lab = lab("serve-two", 1);
    let token = TokenFile::new("two", TOKEN);
    let server = serve(&lab, &format!("{{}} {} --wait poll --max-sessions 2", token.option()));
    let host = lab.b.ipv4;
    // One host has one XDP socket a queue: the second client takes what the interface has of another.
    let second = ringside_netlab::Namespace::create("serve-two-c").expect("namespace");
    let config = ringside_netlab::VethConfig {
        subnet: 9,
        ipv6: false,
        gro: true,
        ..ringside_netlab::VethConfig::named("c0", "c1")
    };
    let link = Lab::join(&second, &lab.b.ns, config).expect("link");
    let line = format!("ping {host} {} --rate 500 -t 3 --json", token.option());
    let first = Running::new(command(&lab.a, &line, "client"));
    server.wait_for("a session begins");
    let line = format!(
        "ping {} {} --rate 500 -t 1 --far-via udp --json",
        link.b.ipv4,
        token.option()
    );
    let second = Running::new(command(&link.a, &line, "client"));
    server.wait_for_times("a session begins", 2);
    let third = Running::new(command(
        &link.a,
        &line.replace("-t 1", "-t 1 -m generic --from-port 7777"),
        "client",
    ))
    .end();
    assert!(!third.status.success(), "{third:#?}");
    for done in [first.end(), second.end()] {
        let document = done.good().document();
        let far = document.far.clone().expect("the far end's").result.expect("a result");
        let near = ping_result(document);
        assert_eq!(near.sequence.map(|counts| counts.lost), Some(0), "{near:#?}");
        assert_eq!(far.packets.received, near.packets.sent);
    }
    server.interrupt().good();
}

/// Packets that have left an interface.
fn sent_by(end: &End) -> u64 {
    end.state().expect("state").stats.tx_packets
}

/// Waits until nothing leaves an interface any more, and tells how long that took.
fn quiet_after(end: &End, begun: Instant) -> Duration {
    let mut before = sent_by(end);
    let mut last = begun.elapsed();
    let end_at = begun + Duration::from_secs(6);
    while Instant::now() < end_at {
        std::thread::sleep(Duration::from_millis(50));
        let now = sent_by(end);
        // A stray packet of the kernel's own (ARP, TCP's repeats) is no stream of probes.
        if now > before + 2 {
            last = begun.elapsed();
        }
        before = now;
    }
    last
}

#[test]
fn a_killed_server_stops_the_client_within_two_seconds() {
    if !is_root() {
        return;
    }
    let lab = lab("serve-kill", 1);
    let token = TokenFile::new("kill", TOKEN);
    let server = serve(&lab, &format!("{{}} {} --wait poll", token.option()));
    let host = lab.b.ipv4;
    let line = format!("ping {host} {} --rate 2000 --timeout 0.2 --json", token.option());
    let near = Running::new(command(&lab.a, &line, "client"));
    server.wait_for("a session begins");
    std::thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    drop(server);
    let took = quiet_after(&lab.a, begun);
    assert!(took < Duration::from_secs(2), "{took:?}");
    let done = near.end();
    let message = done.bad();
    assert!(message.contains("measured until then"), "{message}");
    // What was measured is told all the same.
    let document = done.document();
    assert!(
        document
            .far
            .as_ref()
            .is_some_and(|far| far.lost.is_some() && far.result.is_none())
    );
    assert!(ping_result(document).packets.received > 0);
    assert_clean(&lab.a);
}

#[test]
fn a_cut_line_stops_both_within_two_seconds_and_the_server_takes_the_next() {
    if !is_root() {
        return;
    }
    let lab = lab("serve-cut", 1);
    let token = TokenFile::new("cut", TOKEN);
    let server = serve(&lab, &format!("{{}} {} --wait poll", token.option()));
    let host = lab.b.ipv4;
    // The connection goes over another link than the probes, so that only it is cut.
    let config = ringside_netlab::VethConfig {
        subnet: 9,
        ipv6: false,
        gro: true,
        ..ringside_netlab::VethConfig::named("m0", "m1")
    };
    let aside = Lab::join(&lab.a.ns, &lab.b.ns, config).expect("link");
    let line = format!(
        "ping {{}} --server {} --to {host} {} --rate 2000 --timeout 0.2 --json",
        aside.b.ipv4,
        token.option()
    );
    let near = Running::new(command(&lab.a, &line, "client"));
    server.wait_for("a session begins");
    std::thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    aside.delete_link().expect("cut");
    let took = quiet_after(&lab.a, begun);
    assert!(took < Duration::from_secs(2), "{took:?}");
    let message = near.end().bad();
    assert!(
        message.contains("nothing was heard") || message.contains("broken"),
        "{message}"
    );
    server.wait_until("the end of the session", |err| {
        err.contains("nothing was heard") || err.contains("broken")
    });
    // The next one.
    client(&lab, &format!("ping {host} {} --count 5", token.option())).good();
    server.interrupt().good();
}

#[test]
fn a_killed_client_is_forgotten() {
    if !is_root() {
        return;
    }
    let lab = lab("serve-gone", 1);
    let token = TokenFile::new("gone", TOKEN);
    let server = serve(&lab, &format!("{{}} {} --wait poll --max-sessions 1", token.option()));
    let host = lab.b.ipv4;
    let line = format!("ping {host} {} --rate 1000", token.option());
    let near = Running::new(command(&lab.a, &line, "client"));
    server.wait_for("a session begins");
    drop(near);
    server.wait_for("during a session");
    // Its place is free.
    client(&lab, &format!("ping {host} {} --count 5", token.option())).good();
    server.interrupt().good();
}

#[test]
fn a_probe_without_a_session_is_not_answered() {
    if !is_root() {
        return;
    }
    let lab = lab("serve-closed", 1);
    let token = TokenFile::new("closed", TOKEN);
    let server = serve(&lab, &format!("{{}} {} --wait poll", token.option()));
    let line = format!("ping {{}} --to {} --count 5 --timeout 0.2", lab.b.ipv4);
    let message = client(&lab, &line).bad();
    assert!(message.contains("none answered"), "{message}");
    server.interrupt().good();
}

#[test]
fn tls_by_pin_by_token_and_by_the_clients_key() {
    if !is_root() {
        return;
    }
    let lab = lab("serve-tls", 1);
    let token = TokenFile::new("tls", TOKEN);
    let host = lab.b.ipv4;
    let pin_in = |told: &str| -> String {
        let at = told.find("sha256:").expect("a pin");
        told[at..at + 71].to_owned()
    };
    // The token proves who the server is, without a pin; and the pin is the same next time.
    let server = serve(&lab, &format!("{{}} {} --tls --wait poll", token.option()));
    client(&lab, &format!("ping {host} {} --tls --count 5", token.option())).good();
    let message = client(&lab, &format!("ping {host} {} --count 5", token.option())).bad();
    assert!(
        message.contains("it speaks TLS") || message.contains("closed the connection"),
        "{message}"
    );
    let message = client(&lab, &format!("ping {host} --tls --count 5")).bad();
    assert!(message.contains("add the server's --pin, or a token"), "{message}");
    let pin = pin_in(&server.interrupt().good().err);

    let server = serve(&lab, &format!("{{}} {} --tls --wait poll", token.option()));
    let done = client(
        &lab,
        &format!("ping {host} {} --pin {pin} --count 5 --json", token.option()),
    )
    .good();
    assert_eq!(done.document().far.expect("far").authenticated_by, "token and tls");
    let wrong = pin.replace(&pin[7..9], if &pin[7..9] == "00" { "11" } else { "00" });
    let message = client(&lab, &format!("ping {host} {} --pin {wrong} --count 5", token.option())).bad();
    assert!(message.contains("is not the pinned one"), "{message}");
    let own = pin_in(&message[message.find("own key").expect("its own")..]);
    server.interrupt().good();

    // Without a token: each by its key.
    let server = serve(&lab, &format!("{{}} --tls --allow {own} --wait poll"));
    let done = client(&lab, &format!("ping {host} --pin {pin} --count 5 --json")).good();
    assert_eq!(done.document().far.expect("far").authenticated_by, "tls");
    let stranger = Running::new(command(
        &lab.a,
        &format!("ping {host} --pin {pin} --count 5"),
        "stranger",
    ))
    .end();
    assert!(stranger.bad().contains("--allow"), "{stranger:#?}");
    server.interrupt().good();
}

#[test]
fn an_open_door_has_to_be_asked_for() {
    let refused = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
        command.args(line.split_whitespace()).env_remove("RINGSIDE_TOKEN");
        Running::new(command).end().bad()
    };
    for line in [
        "serve --via udp",
        "serve --via udp --listen 192.0.2.1",
        "serve --via udp --tls --listen 198.51.100.1",
    ] {
        let message = refused(line);
        assert!(message.contains("--insecure"), "{line}: {message}");
    }
    let message = refused("serve --via af-xdp --listen 127.0.0.1");
    assert!(message.contains("on which interface"), "{message}");
    let short = TokenFile::new("short", "short");
    let message = refused(&format!("serve --via udp {}", short.option()));
    assert!(message.contains("can be guessed"), "{message}");
    let message = refused("ping lo --to 192.0.2.1 --pin sha256:00");
    assert!(message.contains("is no pin"), "{message}");
    let message = refused("ping lo --to 192.0.2.1 --tls");
    assert!(message.contains("about a `ringside serve`"), "{message}");
    let message = refused("ping no-such-host.invalid --count 1");
    assert!(
        message.contains("no-such-host.invalid") && message.contains("neither"),
        "{message}"
    );
    let message = refused("ping 127.0.0.1 --count 1");
    assert!(message.contains("is an address of this host"), "{message}");
}

/// A client written by hand, which knows the token and then does as it likes.
#[test]
fn a_proven_client_that_talks_nonsense_is_let_go() {
    if !is_root() {
        return;
    }
    let lab = lab("serve-mad", 1);
    let token = TokenFile::new("mad", TOKEN);
    let mut server = serve(&lab, &format!("{{}} {} --wait poll", token.option()));
    for nonsense in [&b"\0\0\0\x03abc"[..], b"\xff\xff\xff\xff", &[0; 64]] {
        let mut stream = dial(&lab);
        let options = ClientOptions {
            token: Token::new(TOKEN).ok(),
            nonce: [9; 32],
            binding: None,
        };
        let mut client = Client::new(options, 0);
        let mut piece = [0; 4096];
        while !client.is_open() {
            stream.write_all(&client.take_output()).unwrap();
            let bytes = stream.read(&mut piece).unwrap();
            assert_ne!(bytes, 0);
            client.receive(&piece[..bytes], 0).unwrap();
        }
        _ = stream.write_all(nonsense);
        rest(stream);
    }
    assert!(!server.is_over());
    client(&lab, &format!("ping {} {} --count 5", lab.b.ipv4, token.option())).good();
    server.interrupt().good();
}

/// The one test that needs no second host: the loopback address without a token.
#[test]
fn on_loopback_nobody_needs_a_token() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
    command
        .args("serve --via udp --listen 127.0.0.1:29777 -t 0.5".split(' '))
        .env_remove("RINGSIDE_TOKEN");
    let running = Running::new(command);
    running.wait_for("anybody on this host");
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, 29777)).is_ok());
    running.end().good();
}

/// Short enough for a test, and content with little on a busy machine.
const SHORT: &str =
    "--quick --trial 50ms --first-trial 20ms --sum 200ms --to-rate 5000 --exceed 90 --even-if-unstable --json";

fn search_result(document: &Document) -> &SearchResult {
    match &document.result {
        Outcome::Search(result) => result,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_search_through_a_server_there_and_back_and_there_only() {
    if !is_root() {
        return;
    }
    let lab = lab("serve-search", 1);
    let token = TokenFile::new("search", TOKEN);
    let server = serve(&lab, &format!("{{}} {} --wait poll --max-rate 100000", token.option()));
    let host = lab.b.ipv4;
    let line = format!("search {host} {} {SHORT}", token.option());
    let document = client(&lab, &line).good().document();
    let result = search_result(&document);
    assert_eq!(result.kind, LatencyKind::RoundTrip);
    let goals = &result.tables[0].goals;
    assert!(goals.iter().all(|goal| goal.finished), "{goals:#?}");
    assert!(goals.iter().any(|goal| !goal.latency.is_empty()), "{goals:#?}");
    let far = document
        .far
        .as_ref()
        .expect("the far end's")
        .result
        .as_ref()
        .expect("a result");
    assert_eq!(far.operation, Operation::Echo);

    let document = client(&lab, &format!("{line} --count-there --far-via udp"))
        .good()
        .document();
    let result = search_result(&document);
    assert_eq!(result.kind, LatencyKind::OneWay);
    let goals = &result.tables[0].goals;
    assert!(goals.iter().any(|goal| goal.lower_pps.is_some()), "{goals:#?}");
    assert!(
        goals.iter().all(|goal| goal.finished && goal.latency.is_empty()),
        "{goals:#?}"
    );
    let far = document
        .far
        .as_ref()
        .expect("the far end's")
        .result
        .as_ref()
        .expect("a result");
    assert_eq!(far.operation, Operation::Rx);

    // What the server does not allow is known before anything is sent.
    let message = client(&lab, &line.replace("--to-rate 5000", "--to-rate 200000")).bad();
    assert!(message.contains("allows 100000 (--max-rate)"), "{message}");
    let message = client(&lab, &format!("search {{}} --to {host} --count-there")).bad();
    assert!(message.contains("who counts there"), "{message}");
    server.interrupt().good();
    assert_clean(&lab.a);
}

/// Three hosts in a row, the one in the middle a router of the kernel's, with so many Mbit/s on its way out.
fn routed(tag: &str, mbit: Option<u32>) -> Option<common::Row> {
    let row = common::row(tag);
    let ip = |end: &End, arguments: &str| {
        let mut command = end.ns.command("ip");
        let done = command.args(arguments.split_whitespace()).output().expect("ip");
        assert!(done.status.success(), "ip {arguments}: {done:?}");
    };
    row.left
        .b
        .run(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("forwarding"));
    ip(&row.left.a, &format!("route add default via {}", row.left.b.ipv4));
    ip(&row.right.b, &format!("route add default via {}", row.right.a.ipv4));
    if let Some(mbit) = mbit {
        let limit = format!("qdisc add dev out root tbf rate {mbit}mbit burst 16kb latency 20ms");
        let done = row.right.a.ns.command("tc").args(limit.split(' ')).output();
        if !done.is_ok_and(|done| done.status.success()) {
            eprintln!("left out: this kernel has no queueing discipline tbf");
            return None;
        }
    }
    Some(row)
}

#[test]
fn a_host_behind_a_router_is_found_by_its_route() {
    if !is_root() {
        return;
    }
    let Some(row) = routed("serve-route", None) else { return };
    let token = TokenFile::new("route", TOKEN);
    let server = Running::new(command(
        &row.right.b,
        &format!("serve {{}} {} --wait poll", token.option()),
        "server",
    ));
    server.wait_for("on TCP port");
    let line = format!("ping {} {} --count 50 --json", row.right.b.ipv4, token.option());
    let done = Running::new(command(&row.left.a, &line, "client")).end().good();
    assert!(done.err.contains("is behind the router"), "{}", done.err);
    assert_eq!(ping_result(done.document()).packets.received, 50);
    server.interrupt().good();
}

/// A link whose rate is known, and nothing else.
#[test]
fn the_capacity_of_an_unknown_path_is_found() {
    if !is_root() {
        return;
    }
    let Some(row) = routed("serve-capacity", Some(40)) else {
        return;
    };
    let token = TokenFile::new("capacity", TOKEN);
    let server = Running::new(command(
        &row.right.b,
        &format!("serve {{}} {} --wait poll", token.option()),
        "server",
    ));
    server.wait_for("on TCP port");
    let line = format!(
        "search {} {} --method rfc9097 --pieces 5 --json",
        row.right.b.ipv4,
        token.option()
    );
    let document = Running::new(command(&row.left.a, &line, "client"))
        .end()
        .good()
        .document();
    let table = &search_result(&document).tables[0];
    let found = table.capacity.as_ref().expect("a capacity");
    let most = found.capacity_bps.expect("a whole second");
    // tbf's rate is that of frames; a busy machine may be slower, but nothing is faster than the link and its burst.
    assert!((20e6..=41.5e6).contains(&most), "{found:#?}");
    assert_eq!(found.frame_bytes, 1514);
    assert!(
        !found.pieces_bps.is_empty() && found.received_packets <= found.sent_packets,
        "{found:#?}"
    );
    server.interrupt().good();
}

#[test]
fn one_way_times_by_one_clock() {
    if !is_root() {
        return;
    }
    let lab = lab("serve-one-way", 1);
    let token = TokenFile::new("one-way", TOKEN);
    let server = serve(&lab, &format!("{{}} {} --wait poll", token.option()));
    for via in ["af-xdp", "udp"] {
        let line = format!(
            "ping {} {} --count 100 --one-way --far-via {via} --json",
            lab.b.ipv4,
            token.option()
        );
        let document = client(&lab, &line).good().document();
        let far = document.far.clone().expect("the far end's");
        let clock = far.clock.expect("its clock");
        assert_eq!((clock.basis, clock.offset_ns), (ClockBasis::SameKernel, 0));
        assert!(
            clock.seen_offset_ns.unsigned_abs() <= clock.seen_uncertainty_ns,
            "{clock:?}"
        );
        let near = ping_result(document);
        assert_eq!(near.payload_bytes, Some(56), "with room for the far end's stamps");
        let rtt = near.latency.expect("timed").raw.expect("samples");
        let [there, back] = [far.there, far.back].map(|way| way.expect("one way"));
        for way in [&there, &back] {
            assert_eq!((way.kind, way.impossible_packets), (LatencyKind::OneWay, 0));
            let times = way.raw.expect("samples");
            assert_eq!(times.samples, 100);
            assert!(times.max_ns <= rtt.max_ns + clock.uncertainty_ns, "{times:?} {rtt:?}");
        }
        // There, being turned round, and back make the whole.
        let sum = there.raw.unwrap().mean_ns + back.raw.unwrap().mean_ns;
        assert!(sum <= rtt.mean_ns + clock.uncertainty_ns as f64, "{sum} {rtt:?}");
    }
    let message = client(&lab, &format!("ping {{}} --to {} --one-way --count 5", lab.b.ipv4)).bad();
    assert!(message.contains("take a `ringside serve`"), "{message}");
    server.interrupt().good();
}

/// A server that reads another CLOCK_MONOTONIC, a thousand seconds ahead, as another host's would be.
#[test]
fn one_way_times_by_clocks_that_nobody_synchronises_are_refused() {
    if !is_root() {
        return;
    }
    let lab = lab("serve-clocks", 1);
    let token = TokenFile::new("clocks", TOKEN);
    let mut elsewhere = lab.b.ns.command("unshare");
    elsewhere
        .args("--time --monotonic 1000 --kill-child=SIGKILL".split(' '))
        .arg(env!("CARGO_BIN_EXE_ringside"))
        .args(common::words(
            &lab.b,
            &format!("serve {{}} {} --wait poll", token.option()),
        ))
        .env_remove("SSH_CONNECTION");
    let server = Running::new(elsewhere);
    server.wait_for("on TCP port");
    let line = format!("ping {} {} --count 50 --json", lab.b.ipv4, token.option());
    let done = client(&lab, &format!("{line} --one-way"));
    if Discipline::read().is_ok_and(|discipline| discipline.is_synchronised) {
        let clock = done.good().document().far.expect("far").clock.expect("its clock");
        assert_eq!(clock.basis, ClockBasis::Synchronised);
        assert!(
            clock.offset_ns.abs_diff(1_000_000_000_000) <= clock.uncertainty_ns,
            "{clock:?}"
        );
    } else {
        let message = done.bad();
        assert!(
            message.contains("synchronised") && message.contains("chrony"),
            "{message}"
        );
        // By how much it is ahead was seen all the same.
        assert!(
            message.contains("seen 1000000") || message.contains("seen 999999"),
            "{message}"
        );
        assert_eq!(done.out, "", "nothing is told");
    }
    // Round trips take one clock.
    client(&lab, &line).good();
    drop(server);
}

/// Everything that takes turns on a test bed does so between two hosts, and the connection lives on the same interface.
#[test]
fn a_comparison_with_a_far_end() {
    if !is_root() {
        return;
    }
    let lab = lab("serve-compare", 1);
    let token = TokenFile::new("compare", TOKEN);
    let mut server = serve(&lab, &format!("{{}} {} --wait poll", token.option()));
    let host = lab.b.ipv4;
    let line = |operation: &str| {
        format!(
            "compare {host} {} --rounds 1 --slot-ms 60 --operations {operation} --json \
             --variants udp-blocking,af-packet,af-xdp-native,xdp-limit",
            token.option()
        )
    };
    for (name, operation) in [
        ("rx", Operation::Rx),
        ("tx", Operation::Tx),
        ("fwd", Operation::Fwd),
        ("ping", Operation::Ping),
    ] {
        let done = client(&lab, &line(name));
        if !done.status.success() {
            // A machine on which not one of four had its CPU for 60 ms.
            assert!(done.bad().contains("nothing was sampled"), "{done:#?}");
            continue;
        }
        let document = done.good().document();
        let far = document.far.as_ref().expect("the far end");
        assert_eq!((far.via.as_str(), &far.lost), ("af_xdp", &None));
        let Outcome::Compare(compare) = &document.result else {
            panic!("{document:#?}")
        };
        assert_eq!(compare.tables[0].operation, operation);
        for variant in &compare.tables[0].variants {
            match &variant.failure {
                None => assert!(variant.packets_pps.is_some(), "{variant:#?}"),
                // A busy machine may take the CPU away in the one round.
                Some(failure) => assert!(
                    ["CPU steal", "too few", "stopped", "no packet", "a packet arrived"]
                        .iter()
                        .any(|known| failure.contains(known)),
                    "{}: {failure}",
                    variant.name
                ),
            }
        }
    }
    // The server has its interface back.
    server.wait_for_times("XDP program ringside_xsk", 1);
    let ping = format!("ping {host} {} --count 20 --json", token.option());
    let again = || client(&lab, &ping).status.success();
    assert!(ringside_netlab::wait_until(common::PATIENCE, again), "it answers again");
    assert!(!server.is_over());
    // One that is without an interface cannot.
    server.interrupt().good();
    let server = serve(&lab, &format!("--via udp {}", token.option()));
    let done = client(&lab, &line("rx"));
    assert!(done.bad().contains("takes an interface"), "{done:#?}");
    drop(server);
    assert_clean(&lab.a);
    assert_clean(&lab.b);
}
