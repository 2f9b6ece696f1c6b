use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ringside_measure::control::{ClockFacts, FarVia, Server, ServerEvent, ServerOptions};

use super::*;
use crate::system;

/// What cannot be undone here.
const LEFT: &str = "eth0: RPS: not restored";

/// How long undoing takes here.
const TAKES: Duration = Duration::from_millis(300);

fn ready() -> Ready {
    Ready {
        via: FarVia::Udp,
        port: 1,
        mac: None,
        most_ns: 1,
        most_pps: None,
        clock: ClockFacts::default(),
        spinning_threads: 0,
        far: FarEnd {
            tool_version: "1".to_owned(),
            via: "udp".to_owned(),
            authenticated_by: "nothing".to_owned(),
            system: system::system(),
            ..FarEnd::default()
        },
        guests: None,
        guest: None,
    }
}

/// A server of one client, that takes its time when that goes.
fn serve(listener: &TcpListener, is_undone: &AtomicBool) {
    let mut wire = Wire::plain(listener.accept().expect("a client").0).expect("a connection");
    let options = ServerOptions {
        token: None,
        nonce: secret::random().expect("random"),
        binding: None,
    };
    let mut server = Server::new(options, now_ns());
    loop {
        wire.wait(LOOK);
        let Came::Bytes(bytes) = wire.read().expect("bytes") else {
            panic!("it goes without a word")
        };
        for event in server.receive(&bytes, now_ns()).expect("a client") {
            match event {
                ServerEvent::Start(_) => server.ready(ready(), now_ns()),
                ServerEvent::Bye => {
                    thread::sleep(TAKES);
                    is_undone.store(true, Ordering::SeqCst);
                    server.refuse_leaving("not all of it", vec![LEFT.to_owned()], now_ns());
                    wire.write(&server.take_output()).expect("written");
                    return;
                }
                _ => {}
            }
        }
        wire.write(&server.take_output()).expect("written");
    }
}

/// What is done for a lab elsewhere, and ended by `end` and not in order: whoever goes on would meet it.
fn is_undone_and_told(end: impl FnOnce(Dialled, Start, &AtomicBool)) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let is_undone = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| serve(&listener, &is_undone));
        let remote = RemoteArgs {
            server: Some(address.to_string()),
            ..RemoteArgs::default()
        };
        let dialled = remote.dial().expect("a server").expect("a server");
        let start = Start::new(SESSION_STEP, Work::Errand);
        let left = Left::default();
        let dialled = dialled.telling(left.at("the host far"));
        end(dialled, start, &is_undone);
        assert!(is_undone.load(Ordering::SeqCst), "it was waited for");
        assert_eq!(left.take(), [format!("the host far: {LEFT}")]);
    });
}

#[test]
fn what_is_done_there_is_undone_when_its_handle_is_gone() {
    is_undone_and_told(|dialled, start, is_undone| {
        let mut far = dialled.start(start).expect("it begins");
        far.go(&Stop::default()).expect("a connection");
        assert!(!is_undone.load(Ordering::SeqCst));
    });
}

#[test]
fn what_begins_there_is_undone_when_nobody_waits_for_it() {
    is_undone_and_told(|dialled, start, _| {
        let why = dialled.start_while(start, || bail!("interrupted")).err().expect("why");
        assert_eq!(format!("{why:#}"), "interrupted");
    });
}

#[test]
fn who_does_not_close_is_not_waited_for_for_ever() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let mut wire = Wire::plain(TcpStream::connect(address).expect("a connection")).expect("a connection");
    let (other, _) = listener.accept().expect("a client");
    assert!(!wire.ends_within(Duration::from_millis(50), |_| {}));
    drop(other);
    assert!(wire.ends_within(Duration::from_secs(30), |_| {}));
}
