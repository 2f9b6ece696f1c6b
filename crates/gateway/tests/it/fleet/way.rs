//! A way to etcd that can be closed, or go silent in the middle of an answer.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::Etcd;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// See the module.
pub(crate) struct Way {
    at: SocketAddr,
    inner: Arc<Inner>,
}

struct Inner {
    is_open: AtomicBool,
    ended: AtomicBool,
    connections: AtomicUsize,
    /// After so many bytes of a connection's answers nothing comes any more.
    silent_after: AtomicUsize,
    /// On each connection, and not on the first alone that comes so far.
    always: AtomicBool,
    was_silent: AtomicBool,
}

impl Way {
    pub(crate) fn to(etcd: &Etcd) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let to = etcd.endpoint().trim_start_matches("http://").to_owned();
        let way = Self {
            at: listener.local_addr().unwrap(),
            inner: Arc::new(Inner {
                is_open: AtomicBool::new(true),
                ended: AtomicBool::new(false),
                connections: AtomicUsize::new(0),
                silent_after: AtomicUsize::new(usize::MAX),
                always: AtomicBool::new(false),
                was_silent: AtomicBool::new(false),
            }),
        };
        let inner = Arc::clone(&way.inner);
        thread::spawn(move || {
            while !inner.ended.load(Ordering::Relaxed) {
                let Ok((stream, _)) = listener.accept() else {
                    thread::sleep(LOOK);
                    continue;
                };
                if inner.is_open.load(Ordering::Relaxed)
                    && let Ok(there) = TcpStream::connect(&to)
                {
                    let inner = Arc::clone(&inner);
                    inner.connections.fetch_add(1, Ordering::Relaxed);
                    thread::spawn(move || {
                        inner.carry([stream, there]);
                        inner.connections.fetch_sub(1, Ordering::Relaxed);
                    });
                }
            }
        });
        way
    }

    /// Where etcd seems to be.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.at)
    }

    pub(crate) fn set_open(&self, is_open: bool) {
        self.inner.is_open.store(is_open, Ordering::Relaxed);
    }

    pub(crate) fn is_used(&self) -> bool {
        self.inner.connections.load(Ordering::Relaxed) > 0
    }

    /// From now on a connection is silent from so many bytes of answers on: each one, or the first that comes so far.
    pub(crate) fn go_silent_after(&self, bytes: usize, always: bool) {
        self.inner.was_silent.store(false, Ordering::Relaxed);
        self.inner.always.store(always, Ordering::Relaxed);
        self.inner.silent_after.store(bytes, Ordering::Relaxed);
    }

    /// Some connection has come so far.
    pub(crate) fn was_silent(&self) -> bool {
        self.inner.was_silent.load(Ordering::Relaxed)
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.set_open(false);
        self.inner.ended.store(true, Ordering::Relaxed);
    }
}

impl Inner {
    /// What one says to the other, until one of them ends or the way is closed.
    fn carry(&self, ends: [TcpStream; 2]) {
        let is_over = AtomicBool::new(false);
        let goes_on = || self.is_open.load(Ordering::Relaxed) && !is_over.load(Ordering::Relaxed);
        let (is_over, goes_on) = (&is_over, &goes_on);
        let [client, server] = ends.each_ref();
        thread::scope(|scope| {
            scope.spawn(move || {
                let (mut from, mut to) = (client, server);
                _ = io::copy(&mut from, &mut to);
                is_over.store(true, Ordering::Relaxed);
            });
            scope.spawn(move || {
                let (mut from, mut to) = (server, client);
                let (mut bytes, mut passed) = (vec![0; 4096], 0);
                while let Ok(count @ 1..) = from.read(&mut bytes) {
                    passed += count;
                    // Both ends are open, and nothing comes.
                    if self.is_silent(passed) {
                        while goes_on() {
                            thread::sleep(LOOK);
                        }
                    }
                    if to.write_all(&bytes[..count]).is_err() {
                        break;
                    }
                }
                is_over.store(true, Ordering::Relaxed);
            });
            while goes_on() {
                thread::sleep(LOOK);
            }
            ends.iter().for_each(|end| _ = end.shutdown(Shutdown::Both));
        });
    }

    /// Whether nothing comes any more on a connection with so many bytes of answers.
    fn is_silent(&self, passed: usize) -> bool {
        passed > self.silent_after.load(Ordering::Relaxed)
            && (!self.was_silent.swap(true, Ordering::Relaxed) || self.always.load(Ordering::Relaxed))
    }
}
