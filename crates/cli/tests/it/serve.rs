//! `ringside serve` and those who use it, between two hosts: what works, who is not let in, and what happens when one goes.

mod losing;
mod measuring;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{Done, Running, assert_clean, assert_reconciles, lab, ringside};
use ringside_measure::control::{Client, ClientOptions, DEFAULT_PORT, SESSION_STEP, Start, Token, Work};
use ringside_measure::schema::{
    ClockBasis, Document, LatencyKind, LoadKind, Mode, Operation, Outcome, RunResult, SearchResult,
};
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

/// A test's own two hosts, with so many queues, and a server on one of them with further options. Without root: None.
fn served(tag: &str, queues: u32, more: &str) -> Option<(Lab, TokenFile, Running)> {
    if !is_root() {
        return None;
    }
    let lab = lab(&format!("serve-{tag}"), queues);
    let token = TokenFile::new(tag, TOKEN);
    let server = serve(&lab, &format!("{{}} {} --wait poll {more}", token.option()));
    Some((lab, token, server))
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
    let Some((lab, token, server)) = served("ping", 2, "") else {
        return;
    };
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
    assert_eq!(
        (there.packets.sent, there.packets.delivered()),
        (200, 200),
        "{there:#?}"
    );
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
    let counted = far.result.expect("what it counted").packets.delivered();
    let near = ping_result(document);
    assert!(
        counted > 0 && counted == near.packets.delivered(),
        "{counted}, {near:#?}"
    );

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
    let from = format!("{}:", lab.a.ipv4);
    assert!(told.lines().any(|line| line.starts_with(&from)), "{told}");
    assert!(!told.contains("::ffff:"), "{told}");
}

#[test]
fn scanners_and_strangers_do_no_harm() {
    let Some((lab, token, mut server)) = served("scan", 1, "") else {
        return;
    };
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
    let Some((lab, token, server)) = served("two", 1, "--max-sessions 2") else {
        return;
    };
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
    // A veth holds 256 packets while nobody reads.
    let line = format!("ping {host} {} --rate 100 -t 5 --json", token.option());
    let first = Running::new(command(&lab.a, &line, "client"));
    server.wait_for("a session begins");
    let line = format!(
        "ping {} {} --rate 100 -t 3 --far-via udp --json",
        link.b.ipv4,
        token.option()
    );
    let second = Running::new(command(&link.a, &line, "client"));
    server.wait_for_times("a session begins", 2);
    let third = Running::new(command(
        &link.a,
        &line.replace("-t 3", "-t 3 -m generic --from-port 7777"),
        "client",
    ))
    .end();
    assert!(!third.status.success(), "{third:#?}");
    for done in [first.end(), second.end()] {
        let document = done.good().document();
        let far = document.far.clone().expect("the far end's").result.expect("a result");
        let near = ping_result(document);
        assert_eq!(near.sequence.map(|counts| counts.lost), Some(0), "{near:#?}");
        assert_eq!(far.packets.delivered(), near.packets.sent);
    }
    server.interrupt().good();
}

#[test]
fn a_probe_without_a_session_is_not_answered() {
    let Some((lab, _token, server)) = served("closed", 1, "") else {
        return;
    };
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
    let mut wrong = pin.clone();
    wrong.replace_range(7..9, if &pin[7..9] == "00" { "11" } else { "00" });
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
    assert!(stranger.bad().contains("sha256:"), "its pin is told: {stranger:#?}");
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

/// Both sides have proven who they are.
fn proven(stream: &mut TcpStream) -> Client {
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
    client
}

fn any_session() -> Start {
    Start {
        frame_bytes: 82,
        ..Start::new(SESSION_STEP, Work::Echo)
    }
}

/// A client written by hand, which knows the token and then does as it likes.
#[test]
fn a_proven_client_that_talks_nonsense_is_let_go() {
    let Some((lab, token, mut server)) = served("mad", 1, "") else {
        return;
    };
    for nonsense in [&b"\0\0\0\x03abc"[..], b"\xff\xff\xff\xff", &[0; 64]] {
        let mut stream = dial(&lab);
        proven(&mut stream);
        _ = stream.write_all(nonsense);
        rest(stream);
    }
    // One that asks and goes in one breath.
    let mut stream = dial(&lab);
    let mut hasty = proven(&mut stream);
    hasty.start(any_session(), 0);
    hasty.bye(0);
    stream.write_all(&hasty.take_output()).unwrap();
    rest(stream);
    assert!(!server.is_over());
    client(&lab, &format!("ping {} {} --count 5", lab.b.ipv4, token.option())).good();
    server.interrupt().good();
}

/// The one test that needs no second host: the loopback address without a token.
#[test]
fn on_loopback_nobody_needs_a_token() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
    command
        .args("serve --via udp --listen 127.0.0.1:29777 -t 3".split(' '))
        .env_remove("RINGSIDE_TOKEN");
    let running = Running::new(command);
    running.wait_for("anybody on this host");
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, 29777)).is_ok());
    running.end().good();
}
