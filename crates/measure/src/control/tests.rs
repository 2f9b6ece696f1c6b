use super::*;
use crate::random::SplitMix64;
use crate::schema::FarEnd;

const MS: u64 = 1_000_000;
const SECRET: &str = "correct horse battery staple";

fn token(text: &str) -> Option<Token> {
    Some(Token::new(text).unwrap())
}

fn client(token: Option<Token>) -> Client {
    let options = ClientOptions {
        token,
        nonce: [1; 32],
        binding: None,
    };
    Client::new(options, 0)
}

fn server(token: Option<Token>) -> Server {
    let options = ServerOptions {
        token,
        nonce: [2; 32],
        binding: None,
    };
    Server::new(options, 0)
}

fn start() -> Start {
    Start {
        rate_pps: Some(1_000),
        frame_bytes: 82,
        ..Start::new(SESSION_STEP, Work::Echo)
    }
}

fn far() -> FarEnd {
    FarEnd {
        tool_version: "1".into(),
        via: "udp".into(),
        authenticated_by: "token".into(),
        ..FarEnd::default()
    }
}

fn ready() -> Ready {
    Ready {
        via: FarVia::Udp,
        port: 29_620,
        mac: None,
        most_ns: 1,
        most_pps: None,
        clock: ClockFacts::default(),
        spinning_threads: 2,
        far: far(),
        guests: None,
        guest: None,
    }
}

/// Both, open.
fn opened(token: Option<Token>) -> (Client, Server) {
    let (mut client, mut server) = (client(token.clone()), server(token));
    for _ in 0..2 {
        server.receive(&client.take_output(), 0).unwrap();
        client.receive(&server.take_output(), 0).unwrap();
    }
    assert!(client.is_open() && server.is_open());
    (client, server)
}

/// Both, with packets under way.
fn running() -> (Client, Server) {
    running_as(start())
}

fn running_as(start: Start) -> (Client, Server) {
    let (mut client, mut server) = opened(token(SECRET));
    client.start(start.clone(), 0);
    assert_eq!(
        server.receive(&client.take_output(), 0).unwrap(),
        [ServerEvent::Start(start)]
    );
    server.ready(ready(), 0);
    assert!(matches!(
        &client.receive(&server.take_output(), 0).unwrap()[..],
        [ClientEvent::Ready(_)]
    ));
    client.go(0);
    assert_eq!(server.receive(&client.take_output(), 0).unwrap(), [ServerEvent::Go]);
    (client, server)
}

#[test]
fn a_session_from_greeting_to_farewell() {
    let (mut client, mut server) = running();
    client.count(SESSION_STEP + 1, 0);
    client.ask(7, 0);
    let events = server.receive(&client.take_output(), 0).unwrap();
    assert_eq!(
        events,
        [
            ServerEvent::Count {
                session: SESSION_STEP + 1
            },
            ServerEvent::Ask { number: 7 }
        ]
    );
    server.tally(
        Tally {
            received_packets: 9,
            ..Tally::default()
        },
        0,
    );
    server.time(7, 1, 2, 3);
    let events = client.receive(&server.take_output(), 0).unwrap();
    assert!(matches!(events[0], ClientEvent::Tally(tally) if tally.received_packets == 9));
    assert!(matches!(
        events[1],
        ClientEvent::Time {
            number: 7,
            monotonic_came_ns: 1,
            ..
        }
    ));

    client.stop(Stop { sent_packets: 5 }, 0);
    let events = server.receive(&client.take_output(), 0).unwrap();
    assert_eq!(events, [ServerEvent::Stop(Stop { sent_packets: 5 })]);
    server.outcome(far(), 0);
    let events = client.receive(&server.take_output(), 0).unwrap();
    assert_eq!(events, [ClientEvent::Outcome(Box::new(far()))]);

    // And once more, on the same connection.
    client.start(start(), 0);
    server.receive(&client.take_output(), 0).unwrap();
    server.refuse("no", 0);
    let events = client.receive(&server.take_output(), 0).unwrap();
    assert_eq!(events, [ClientEvent::Refused("no".into())]);
    client.start(start(), 0);
    client.bye(0);
    let events = server.receive(&client.take_output(), 0).unwrap();
    assert_eq!(events, [ServerEvent::Start(start()), ServerEvent::Bye]);
}

#[test]
fn bytes_may_come_one_by_one() {
    let (mut client, mut server) = (client(token(SECRET)), server(token(SECRET)));
    while !(client.is_open() && server.is_open()) {
        for byte in client.take_output() {
            server.receive(&[byte], 0).unwrap();
        }
        for byte in server.take_output() {
            client.receive(&[byte], 0).unwrap();
        }
    }
}

#[test]
fn the_token_never_travels_and_no_other_will_do() {
    let (mut client, mut server) = (client(token(SECRET)), server(token(SECRET)));
    let mut all = Vec::new();
    for _ in 0..2 {
        let said = client.take_output();
        server.receive(&said, 0).unwrap();
        let answered = server.take_output();
        client.receive(&answered, 0).unwrap();
        all.extend(said.into_iter().chain(answered));
    }
    assert!(client.is_open() && server.is_open());
    assert!(
        !all.windows(8)
            .any(|part| SECRET.as_bytes().windows(8).any(|secret| secret == part))
    );
    assert_eq!(format!("{:?}", token(SECRET)), "Some(Token(…))");

    // Each side finds out, and the client is told.
    let (mut client, mut server) = (
        self::client(token("another token altogether")),
        self::server(token(SECRET)),
    );
    server.receive(&client.take_output(), 0).unwrap();
    client.receive(&server.take_output(), 0).unwrap();
    let fault = server.receive(&client.take_output(), 0).unwrap_err();
    assert_eq!(fault, Fault::WrongToken { tls: false });
    let fault = client.receive(&server.take_output(), 0).unwrap_err();
    assert!(
        matches!(&fault, Fault::Refused { why } if why.contains("tokens are not the same")),
        "{fault}"
    );
    assert!(!client.is_open() && !server.is_open() || server.take_output().is_empty());

    // One without.
    let (mut client, mut server) = (self::client(None), self::server(token(SECRET)));
    server.receive(&client.take_output(), 0).unwrap();
    assert_eq!(client.receive(&server.take_output(), 0), Err(Fault::TokenMissing));
    // A server that does not ask for it may be anybody.
    let (mut client, mut server) = (self::client(token(SECRET)), self::server(None));
    server.receive(&client.take_output(), 0).unwrap();
    assert_eq!(client.receive(&server.take_output(), 0), Err(Fault::TokenNotAsked));
}

/// Somebody in between with a key of their own: each side sees another one.
#[test]
fn a_proof_is_good_for_one_tls_key_only() {
    let binding = |key: u8| Some([key; 32]);
    let options = ClientOptions {
        token: token(SECRET),
        nonce: [1; 32],
        binding: binding(1),
    };
    let mut client = Client::new(options, 0);
    let options = ServerOptions {
        token: token(SECRET),
        nonce: [2; 32],
        binding: binding(2),
    };
    let mut server = Server::new(options, 0);
    server.receive(&client.take_output(), 0).unwrap();
    client.receive(&server.take_output(), 0).unwrap();
    assert_eq!(
        server.receive(&client.take_output(), 0),
        Err(Fault::WrongToken { tls: true })
    );
}

#[test]
fn a_message_that_was_changed_repeated_or_left_out_is_seen() {
    for tamper in [0, 1, 2] {
        let (mut client, mut server) = opened(token(SECRET));
        client.ask(1, 0);
        let first = client.take_output();
        client.ask(2, 0);
        let second = client.take_output();
        let fault = match tamper {
            0 => {
                let mut changed = first.clone();
                let at = changed.iter().position(|&byte| byte == b'1').unwrap();
                changed[at] = b'9';
                server.receive(&changed, 0)
            }
            1 => {
                server.receive(&first, 0).unwrap();
                server.receive(&first, 0)
            }
            _ => server.receive(&second, 0),
        };
        assert_eq!(fault, Err(Fault::Forged), "{tamper}");
        assert!(server.take_output().is_empty(), "whoever it is learns nothing");
    }
    // Sent back to where it came from it is not right either.
    let (mut client, _) = opened(token(SECRET));
    client.ask(1, 0);
    let own = client.take_output();
    assert_eq!(client.receive(&own, 0), Err(Fault::Forged));
}

fn said(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    frame::put(&mut out, &serde_json::to_vec(message).unwrap(), &[]);
    out
}

#[test]
fn versions_have_to_meet() {
    let hello = |versions: &[u32]| {
        said(&Message::Hello(Hello {
            versions: versions.to_vec(),
            tool_version: "99".into(),
            nonce: "0a".repeat(32),
        }))
    };
    let mut server = server(None);
    let fault = server.receive(&hello(&[7, 9]), 0).unwrap_err();
    assert_eq!(fault, Fault::Version { theirs: vec![7, 9] });
    let told = String::from_utf8_lossy(&server.take_output()).into_owned();
    assert!(told.contains("use one version of ringside on both sides"), "{told}");
    // One in common is enough, and the list may be longer than it makes sense.
    let mut server = self::server(None);
    server.receive(&hello(&[9, VERSIONS[0]]), 0).unwrap();
    let mut server = self::server(None);
    let many: Vec<u32> = (3..500).collect();
    assert!(matches!(server.receive(&hello(&many), 0), Err(Fault::Version { theirs }) if theirs.len() == 16));

    let welcome = Message::Welcome(Welcome {
        version: 3,
        tool_version: "99".into(),
        nonce: "0a".repeat(32),
        wants_token: false,
    });
    let fault = client(None).receive(&said(&welcome), 0).unwrap_err();
    assert_eq!(fault, Fault::Version { theirs: vec![3] });
}

#[test]
fn others_at_the_door_are_known_by_their_first_word() {
    for (bytes, what) in [
        (&b"\x16\x03\x01\x02\x00\x01\x00"[..], "TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
    ] {
        let mut server = server(None);
        assert_eq!(server.receive(bytes, 0), Err(Fault::NotOurs { what }));
        assert!(server.take_output().is_empty(), "nothing that a scanner could learn");
        assert_eq!(client(None).receive(bytes, 0), Err(Fault::NotOurs { what }));
    }
    // A length alone is enough: nothing is waited for, and nothing kept.
    for announced in [4097_u32, u32::MAX] {
        let fault = server(None).receive(&announced.to_be_bytes(), 0).unwrap_err();
        assert!(matches!(fault, Fault::TooLong { most: MOST_BEFORE, .. }), "{fault}");
    }
    // A proven client may say more, and a server most.
    let (mut client, mut server) = opened(None);
    let long = u32::try_from(MOST_AFTER + 1).unwrap().to_be_bytes();
    assert!(matches!(server.receive(&long, 0), Err(Fault::TooLong { .. })));
    assert_eq!(client.receive(&long, 0), Ok(Vec::new()));
}

#[test]
fn each_message_has_its_time() {
    let out_of_order = |server: &mut Server, message: &Message| {
        let fault = server.receive(&said(message), 0).unwrap_err();
        assert!(matches!(fault, Fault::OutOfOrder { .. }), "{message:?}: {fault}");
        assert!(!server.take_output().is_empty(), "a ringside is told");
    };
    for message in [
        Message::Start(start()),
        Message::Go,
        Message::Stop(Stop::default()),
        Message::Alive,
        Message::Bye,
        Message::Outcome(Box::new(far())),
        Message::Ask { number: 1 },
    ] {
        out_of_order(&mut server(None), &message);
    }
    for message in [
        Message::Go,
        Message::Count { session: 1 },
        Message::Stop(Stop::default()),
        Message::Proof(Proof { proof: String::new() }),
        Message::Tally(Tally::default()),
    ] {
        out_of_order(&mut opened(None).1, &message);
    }
    for message in [
        Message::Ready(Box::new(ready())),
        Message::Tally(Tally::default()),
        Message::Outcome(Box::new(far())),
        Message::Go,
    ] {
        let fault = opened(None).0.receive(&said(&message), 0).unwrap_err();
        assert!(matches!(fault, Fault::OutOfOrder { .. }), "{message:?}: {fault}");
    }
}

#[test]
fn nonsense_in_a_message_is_told() {
    let (_, mut server) = opened(None);
    for (wrong, part) in [
        (Start { session: 7, ..start() }, "multiple of 4096"),
        (
            Start {
                rate_pps: Some(0),
                ..start()
            },
            "rate or a time of 0",
        ),
        (
            Start {
                feedback_ns: Some(1),
                ..start()
            },
            "feedback",
        ),
        (
            Start {
                silence_ns: Some(MOST_SILENCE_NS + 1),
                ..start()
            },
            "silence of more than a minute",
        ),
    ] {
        let fault = server.receive(&said(&Message::Start(wrong)), 0).unwrap_err();
        assert!(fault.to_string().contains(part), "{fault}");
        server = opened(None).1;
    }
    let fault = opened(None).1.receive(b"\0\0\0\x05hello", 0).unwrap_err();
    assert!(matches!(fault, Fault::Malformed { .. }));
    // A list in a list in a list …
    let deep = "[".repeat(4000);
    let mut frame = Vec::new();
    frame::put(&mut frame, deep.as_bytes(), &[]);
    assert!(matches!(
        self::server(None).receive(&frame, 0),
        Err(Fault::Malformed { .. })
    ));
    // Its own nonce back.
    let hello = Message::Hello(Hello {
        versions: VERSIONS.to_vec(),
        tool_version: String::new(),
        nonce: "02".repeat(32),
    });
    assert!(matches!(
        self::server(None).receive(&said(&hello), 0),
        Err(Fault::Malformed { .. })
    ));
}

#[test]
fn who_is_slow_or_silent_is_let_go() {
    // A byte now and then gains no time.
    let mut server = server(None);
    let hello = client(None).take_output();
    for (second, byte) in (0..5).zip(&hello) {
        server.receive(&[*byte], second * 1_000 * MS).unwrap();
        server.tick(second * 1_000 * MS).unwrap();
    }
    assert!(matches!(server.tick(5_001 * MS), Err(Fault::Slow { .. })));
    assert!(matches!(client(None).tick(5_001 * MS), Err(Fault::Slow { .. })));

    let (mut client, mut server) = running();
    client.tick(1_500 * MS).unwrap();
    server.tick(1_500 * MS).unwrap();
    assert!(matches!(client.tick(1_501 * MS), Err(Fault::Silent { .. })));
    assert!(matches!(server.tick(1_501 * MS), Err(Fault::Silent { .. })));

    // Who asks for patience gets it from both, for this session.
    let patient = Start {
        silence_ns: Some(10_000 * MS),
        ..start()
    };
    let (mut client, mut server) = running_as(patient);
    client.tick(10_000 * MS).unwrap();
    server.tick(10_000 * MS).unwrap();
    assert!(matches!(client.tick(10_001 * MS), Err(Fault::Silent { .. })));
    assert!(matches!(server.tick(10_001 * MS), Err(Fault::Silent { .. })));

    // Signs of life keep it up for as long as wanted.
    let (mut client, mut server) = running();
    for at in (0..120_000).step_by(50) {
        let at = at * MS;
        client.tick(at).unwrap();
        server.tick(at).unwrap();
        server.receive(&client.take_output(), at).unwrap();
        client.receive(&server.take_output(), at).unwrap();
    }

    let (mut client, mut server) = opened(None);
    server.tick(59_000 * MS).unwrap();
    assert!(matches!(server.tick(60_001 * MS), Err(Fault::Silent { .. })));
    client.start(start(), 0);
    client.tick(19_000 * MS).unwrap();
    assert!(matches!(client.tick(20_001 * MS), Err(Fault::Slow { .. })));
}

/// A guest boots for minutes, and nobody takes the other side for gone; but who says nothing is.
#[test]
fn what_takes_long_is_waited_for_while_both_are_there() {
    let guest = GuestEnd {
        name: "vm".into(),
        nics: Vec::new(),
        kernel: None,
        cpus: 1,
        memory_mib: 256,
        acceleration: "any".into(),
        qdiscs: Vec::new(),
        iperf3: false,
        token: "x".repeat(16),
    };
    let asked = || {
        let (mut client, mut server) = opened(None);
        let start = Start {
            errand: Some(Box::new(Errand::Guest(guest.clone()))),
            ..Start::new(SESSION_STEP, Work::Errand)
        };
        client.start(start, 0);
        server.receive(&client.take_output(), 0).unwrap();
        (client, server)
    };
    let (mut client, mut server) = asked();
    for at in (0..300_000).step_by(250) {
        let at = at * MS;
        client.tick(at).unwrap();
        server.tick(at).unwrap();
        server.receive(&client.take_output(), at).unwrap();
        client.receive(&server.take_output(), at).unwrap();
    }
    let up = GuestUp {
        accelerator: Some("tcg".into()),
        kernel_release: Some("7".into()),
        lacks: vec![None],
    };
    let told = Ready {
        guest: Some(up),
        ..ready()
    };
    server.ready(told.clone(), 300_000 * MS);
    let events = client.receive(&server.take_output(), 300_000 * MS).unwrap();
    assert_eq!(events, [ClientEvent::Ready(Box::new(told))]);

    let (mut client, mut server) = asked();
    server.tick(19_000 * MS).unwrap();
    client.tick(19_000 * MS).unwrap();
    assert!(matches!(server.tick(20_001 * MS), Err(Fault::Silent { .. })));
    assert!(matches!(client.tick(20_001 * MS), Err(Fault::Silent { .. })));
}

#[test]
fn tokens_that_can_be_guessed_are_none() {
    assert_eq!(Token::new(" short \n").unwrap_err(), TokenError::Short { have: 5 });
    assert!(matches!(Token::new(&"x".repeat(5000)), Err(TokenError::Long { .. })));
    // White space around it is no difference.
    let (mut client, mut server) = (client(token(SECRET)), server(token(&format!("\n {SECRET} \n"))));
    for _ in 0..2 {
        server.receive(&client.take_output(), 0).unwrap();
        client.receive(&server.take_output(), 0).unwrap();
    }
    assert!(client.is_open() && server.is_open());
}

/// A client may ask for something and go, in one breath: what is answered then is said to nobody.
#[test]
fn who_goes_before_the_answer_gets_none() {
    let (mut client, mut server) = opened(token(SECRET));
    client.start(start(), 0);
    client.bye(0);
    server.receive(&client.take_output(), 0).unwrap();
    server.ready(ready(), 0);
    assert!(server.take_output().is_empty());

    let (mut client, mut server) = running();
    client.count(SESSION_STEP, 0);
    client.stop(Stop::default(), 0);
    client.bye(0);
    let events = server.receive(&client.take_output(), 0).unwrap();
    assert_eq!(events.len(), 3);
    server.tally(Tally::default(), 0);
    server.outcome(far(), 0);
    server.refuse("no", 0);
}

/// Whatever comes, in whatever pieces, at whatever time: an answer or a fault, never a panic, and never an opened door.
#[test]
fn rubbish_never_opens_it_and_never_breaks_it() {
    let rounds = match std::env::var("RINGSIDE_FUZZ_ROUNDS") {
        Ok(rounds) => rounds.parse().expect("a number"),
        Err(_) => 3_000,
    };
    for seed in 0..rounds {
        let mut random = SplitMix64(seed);
        super::rubbish(&mut |most| random.below(most));
    }
}

/// What fuzzers have found, and what reaches all of the code.
#[test]
fn kept_inputs_never_open_it_and_never_break_it() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../xsk/fuzz/corpus/control");
    let mut files = 0;
    for file in std::fs::read_dir(folder).expect("the corpus") {
        super::rubbish_of(&std::fs::read(file.unwrap().path()).unwrap());
        files += 1;
    }
    assert!(files > 10, "{files} files in {folder}");
}

#[test]
fn what_could_not_be_undone_is_told_also_to_a_client_that_goes() {
    let left = || vec!["eth0: RPS: not restored".to_owned()];
    let (mut client, mut server) = running();
    client.bye(0);
    server.receive(&client.take_output(), 0).unwrap();
    server.refuse_leaving("not undone", left(), 0);
    let told = client.receive(&server.take_output(), 0);
    assert!(matches!(told, Err(Fault::Refused { why }) if why == "not undone"));
    assert_eq!(client.take_left(), left());
    assert_eq!(client.take_left(), [""; 0]);
    // To one that asks for something, too; the connection is as before.
    let (mut client, mut server) = opened(token(SECRET));
    client.start(start(), 0);
    server.receive(&client.take_output(), 0).unwrap();
    server.refuse_leaving("no", left(), 0);
    let told = client.receive(&server.take_output(), 0).unwrap();
    assert_eq!(told, [ClientEvent::Refused("no".into())]);
    assert_eq!(client.take_left(), left());
    // A side that does not know of it says nothing of it.
    let told: Refused = serde_json::from_str("{\"why\":\"no\"}").unwrap();
    assert_eq!(told.left, [""; 0]);
}
