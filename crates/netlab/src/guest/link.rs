//! The host's end of the connection to a guest's agent.

use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::message::{self, Answer, Request};

/// How long a guest may not take anything from the port before that is an error.
const WRITE_LIMIT: Duration = Duration::from_secs(30);

/// Who waits for the answers to which request.
type Waiters = HashMap<u32, Sender<(Answer, Vec<u8>)>>;

/// Sends requests, and hands answers to whoever waits for them.
#[derive(Debug)]
pub(crate) struct Link {
    port: Mutex<UnixStream>,
    next: AtomicU32,
    waiting: Arc<Mutex<Waiters>>,
    reader: Option<JoinHandle<()>>,
}

/// The answers to one request; they end when the guest does.
pub(crate) type Answers = Receiver<(Answer, Vec<u8>)>;

impl Link {
    /// Also returns where the agent says that it is ready.
    pub(crate) fn new(port: UnixStream) -> io::Result<(Self, Answers)> {
        port.set_write_timeout(Some(WRITE_LIMIT))?;
        let (ready, answers) = channel();
        let waiting = Arc::new(Mutex::new(HashMap::from([(0, ready)])));
        let (mut from, to) = (port.try_clone()?, Arc::clone(&waiting));
        let read = move || {
            // An end and an error are the same to those who wait: nothing more comes.
            while let Ok(Some((envelope, body))) = message::read::<Answer>(&mut from) {
                let waiting = to.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(waiter) = waiting.get(&envelope.id) {
                    // It may have given up.
                    _ = waiter.send((envelope.message, body));
                }
            }
            to.lock().unwrap_or_else(PoisonError::into_inner).clear();
        };
        let reader = thread::Builder::new().name("guest-link".to_owned()).spawn(read)?;
        let link = Self {
            port: Mutex::new(port),
            next: AtomicU32::new(1),
            waiting,
            reader: Some(reader),
        };
        Ok((link, answers))
    }

    /// A number for a request and what belongs to it, and where its answers come.
    pub(crate) fn open(&self) -> (u32, Answers) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (to, answers) = channel();
        self.waiting().insert(id, to);
        (id, answers)
    }

    /// Nothing more is wanted under this number.
    pub(crate) fn close(&self, id: u32) {
        self.waiting().remove(&id);
    }

    pub(crate) fn send(&self, id: u32, request: &Request, body: &[u8]) -> io::Result<()> {
        let mut port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        message::write(&mut *port, id, request, body)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiters> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let port = self.port.get_mut().unwrap_or_else(PoisonError::into_inner);
        _ = port.shutdown(Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            _ = reader.join();
        }
    }
}
