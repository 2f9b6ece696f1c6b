//! A way from a namespace's loopback to a server of the namespace that the test runs in, which can be cut.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringside_netlab::Namespace;

/// How soon it is noticed that the way is cut, or that the test is over.
const LOOK: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
struct State {
    is_cut: AtomicBool,
    is_over: AtomicBool,
}

/// While it is cut nothing goes along, and nothing is lost: what was sent is there when it is whole again, as with TCP over a broken wire.
#[derive(Debug)]
pub(crate) struct Way {
    near: SocketAddr,
    state: Arc<State>,
}

impl Way {
    /// From a namespace to `http://ADDRESS:PORT`.
    pub(crate) fn start(from: &Namespace, to: &str) -> Self {
        let to: SocketAddr = to.trim_start_matches("http://").parse().expect("an address");
        let listener = from.run(|| TcpListener::bind("127.0.0.1:0")).expect("listens");
        listener.set_nonblocking(true).expect("set");
        let near = listener.local_addr().expect("an address");
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        std::thread::spawn(move || accept(&listener, to, &shared));
        Self { near, state }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.near)
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.state.is_cut.load(Ordering::Relaxed)
    }

    pub(crate) fn set_cut(&self, cut: bool) {
        self.state.is_cut.store(cut, Ordering::Relaxed);
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
    }
}

fn accept(listener: &TcpListener, to: SocketAddr, state: &Arc<State>) {
    while !state.is_over.load(Ordering::Relaxed) {
        let Ok((near, _)) = listener.accept() else {
            std::thread::sleep(LOOK);
            continue;
        };
        // A server that is away refuses, and so does this.
        let Ok(far) = TcpStream::connect(to) else { continue };
        for (from, to) in [(&near, &far), (&far, &near)] {
            let (from, to) = (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
            let state = Arc::clone(state);
            std::thread::spawn(move || carry(from, to, &state));
        }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, state: &State) {
    from.set_nonblocking(false).expect("set");
    from.set_read_timeout(Some(LOOK)).expect("set");
    let mut bytes = [0; 1 << 14];
    let is_over = || state.is_over.load(Ordering::Relaxed);
    while !is_over() {
        let length = match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut | std::io::ErrorKind::Interrupted
                ) =>
            {
                continue;
            }
            Err(_) => break,
        };
        while state.is_cut.load(Ordering::Relaxed) && !is_over() {
            std::thread::sleep(LOOK);
        }
        if to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    _ = to.shutdown(Shutdown::Both);
    _ = from.shutdown(Shutdown::Both);
}
