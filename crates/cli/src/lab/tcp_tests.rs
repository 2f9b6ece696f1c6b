//! Streams over the loopback interface.

use std::net::IpAddr;
use std::process::Command;

use ringside_netlab::testing::wait_until;

use super::*;

/// A sink, and where it is.
fn open() -> (Sink, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let at = listener.local_addr().expect("its address");
    (Sink::open(listener, &[]).expect("a sink"), at)
}

/// Runs one stream for `time`, and longer if its counts are not `enough` by then.
///
/// Returns the counts and the duration of the run.
fn run_for<F>(stream: Stream, at: SocketAddr, time: Duration, enough: F) -> ([u64; 4], Duration)
where
    F: Fn([u64; 4]) -> bool,
{
    let begin = Instant::now();
    let counts = run_during(stream, at, |_, counts| {
        thread::sleep(time);
        wait_until(Duration::from_secs(10), || enough(read_all(counts)));
    });
    (read_all(&counts), begin.elapsed())
}

/// Runs one stream while `body` runs, which gets the sender's port and its counts.
fn run_during(stream: Stream, at: SocketAddr, body: impl FnOnce(u16, &Counts)) -> Counts {
    let connection = TcpStream::connect(at).expect("connected");
    let port = connection.local_addr().expect("an address").port();
    let (end, counts) = (AtomicBool::new(false), Counts::default());
    thread::scope(|scope| {
        let done = scope.spawn(|| run(connection, stream, &end, &counts));
        body(port, &counts);
        end.store(true, Ordering::Relaxed);
        done.join().expect("no panic").expect("a whole stream");
    });
    counts
}

fn read_all(counts: &Counts) -> [u64; 4] {
    [
        &counts.sent_bytes,
        &counts.received_bytes,
        &counts.answers,
        &counts.silent,
    ]
    .map(|count| count.load(Ordering::Relaxed))
}

#[test]
fn bulk_keeps_its_rate_and_the_sink_says_what_came() {
    let (_sink, at) = open();
    let stream = Stream::Bulk {
        bits_per_s: Some(8e6),
        window: None,
    };
    let time = Duration::from_millis(300);
    let (counts, took) = run_for(stream, at, time, |[sent, ..]| sent >= 10_000);
    let [sent, received, answers, silent] = counts;
    assert_eq!((received, answers, silent), (sent, 0, 0));
    // A piece at once, and one every 10 ms. A busy machine sends fewer and does not make up for it.
    let limit = (took.as_millis() / 10 + 2) * 10_000;
    assert!((10_000..=limit).contains(&u128::from(sent)), "{sent} in {took:?}");
}

/// Window that the receiver offers to the sender at this port, as `ss` shows it.
fn offered(port: u16) -> Option<u64> {
    let port = port.to_string();
    let sockets = Command::new("ss")
        .args(["-tinHO", "sport", "=", &port])
        .output()
        .expect("ss");
    let sockets = String::from_utf8(sockets.stdout).expect("text");
    let window = sockets
        .split_whitespace()
        .find_map(|word| word.strip_prefix("snd_wnd:"));
    window.map(|bytes| bytes.parse().expect("bytes"))
}

#[test]
fn a_window_stays_as_small_as_it_is_set() {
    const WINDOW: u32 = 128 << 10;
    /// For many windows: the kernel raises them while data arrives.
    const BYTES: u64 = 64 << 20;
    let (_sink, at) = open();
    let largest = |window, enough: u64| {
        let stream = Stream::Bulk {
            bits_per_s: None,
            window,
        };
        let (mut largest, mut is_seen) = (0, false);
        let counts = run_during(stream, at, |port, counts| {
            is_seen = wait_until(Duration::from_secs(20), || {
                largest = largest.max(offered(port).unwrap_or(0));
                let is_limited = window.is_some() && read_all(counts)[0] > BYTES && largest > 0;
                largest > enough || is_limited
            });
        });
        assert!(is_seen, "{counts:?}");
        let [sent, received, _, silent] = read_all(&counts);
        assert_eq!((received, silent), (sent, 0));
        largest
    };
    // The kernel may raise it to the size of the receive buffer until the next read.
    let limit = 2 * u64::from(WINDOW);
    let (limited, whole) = (largest(Some(WINDOW), limit), largest(None, limit));
    assert!(limited <= limit && whole > limit, "{limited} of {whole}");
}

#[test]
fn requests_are_answered_one_after_the_other() {
    let (_sink, at) = open();
    let stream = Stream::Requests {
        request: 100,
        answer: 70_000,
        per_s: None,
    };
    let counts = run_during(stream, at, |_, counts| {
        wait_until(Duration::from_secs(10), || read_all(counts)[2] > 0);
    });
    let [sent, received, answers, silent] = read_all(&counts);
    assert!(answers > 0 && silent == 0);
    assert_eq!(received, answers * 100);
    // One may be under way when it ends.
    assert!(sent == received || sent == received + 100, "{sent} {received}");
    let rare = Stream::Requests {
        request: 1,
        answer: 1,
        per_s: Some(20),
    };
    let time = Duration::from_millis(220);
    let (counts, took) = run_for(rare, at, time, |[_, _, answers, _]| answers > 0);
    let answers = u128::from(counts[2]);
    // One at once, and one every 50 ms.
    assert!(
        (1..=took.as_millis() / 50 + 2).contains(&answers),
        "{answers} in {took:?}"
    );
}

#[test]
fn a_sink_that_goes_is_told_and_ends_its_connections() {
    let (sink, at) = open();
    assert!(matches!(at.ip(), IpAddr::V4(_)));
    let connection = TcpStream::connect(at).expect("connected");
    let stream = Stream::Requests {
        request: 10,
        answer: 10,
        per_s: None,
    };
    let (end, counts) = (AtomicBool::new(false), Counts::default());
    thread::scope(|scope| {
        let done = scope.spawn(|| run(connection, stream, &end, &counts));
        thread::sleep(Duration::from_millis(50));
        drop(sink);
        done.join().expect("no panic").expect_err("nobody answers any more");
    });
    // A child process forked by another test shares the listener until it calls exec.
    assert!(wait_until(Duration::from_secs(10), || TcpStream::connect(at).is_err()));
}

#[test]
fn what_is_no_stream_of_ours_is_closed() {
    let (_sink, at) = open();
    let mut connection = TcpStream::connect(at).expect("connected");
    connection.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
    connection.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("written");
    let mut told = Vec::new();
    // Closed, by whatever word.
    _ = connection.read_to_end(&mut told);
    assert!(told.is_empty());
}

#[test]
fn a_rate_is_cut_into_pieces_of_ten_milliseconds() {
    assert_eq!(paced(8e6), (10_000, Duration::from_millis(10)));
    let (piece, pause) = paced(8e9);
    assert_eq!(piece, PIECE);
    assert!((pause.as_secs_f64() - 65_536e-9).abs() < 1e-9);
    assert_eq!(paced(8.0), (1, Duration::from_secs(1)));
}
