//! One thread that answers whoever asks, a question after the other.

use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::directory::Socket;
use super::http::{self, Asked};
use super::metrics;
use super::source::Source;

/// Who has said nothing for so long does not mean to.
const HTTP_PATIENCE: Duration = Duration::from_secs(5);

/// Who does not take an answer for so long keeps others waiting.
const WRITE_PATIENCE: Duration = Duration::from_secs(1);

/// Counters of probes wrap after an hour at the earliest.
const KEEP_UP: Duration = Duration::from_secs(600);

/// More than look at one process. One more is turned away.
const MOST: usize = 16;

/// A question for a snapshot is a line, and an empty one is enough.
const LONGEST_LINE: usize = 256;

/// Who listens, and to whom.
pub(super) struct Server {
    pub(super) source: Source,
    pub(super) local: Option<Socket>,
    pub(super) web: Option<TcpListener>,
    /// Closed at the end.
    pub(super) over: UnixStream,
}

/// A socket of whichever kind.
trait Stream: Read + Write + AsFd + Send {}
impl<S: Read + Write + AsFd + Send> Stream for S {}

/// One who may ask.
struct Guest {
    stream: Box<dyn Stream>,
    by_http: bool,
    said: Vec<u8>,
    since: Instant,
}

impl Server {
    pub(super) fn run(mut self) {
        let mut guests: Vec<Guest> = Vec::new();
        loop {
            let ready = self.wait(&guests);
            let [over, local, web, ready @ ..] = &ready[..] else {
                return;
            };
            if *over {
                return;
            }
            let mut ready = ready.iter();
            guests.retain_mut(|guest| match ready.next() {
                Some(true) => guest.listen(&mut self.source),
                _ => !guest.is_late(),
            });
            if *local && let Some(Ok((stream, _))) = self.local.as_ref().map(|socket| socket.listener.accept()) {
                let timed = stream.set_write_timeout(Some(WRITE_PATIENCE));
                welcome(&mut guests, timed, stream, false);
            }
            if *web && let Some(Ok((stream, _))) = self.web.as_ref().map(TcpListener::accept) {
                let timed = stream.set_write_timeout(Some(WRITE_PATIENCE));
                welcome(&mut guests, timed, stream, true);
            }
            self.source.keep_up();
        }
    }

    /// Sleeps until something happens, and tells where: the end, the two listeners, the guests in turn. Nothing at all when
    /// that cannot be told any more.
    fn wait(&self, guests: &[Guest]) -> Vec<bool> {
        let none = self.over.as_fd();
        let local = self.local.as_ref().map_or(none, |socket| socket.listener.as_fd());
        let web = self.web.as_ref().map_or(none, AsFd::as_fd);
        let all = [none, local, web];
        let fds = all.into_iter().chain(guests.iter().map(|guest| guest.stream.as_fd()));
        let mut fds: Vec<PollFd<'_>> = fds
            .map(|fd: BorrowedFd<'_>| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let waits_for_http = guests.iter().any(|guest| guest.by_http);
        let longest = if waits_for_http { HTTP_PATIENCE } else { KEEP_UP };
        let timeout = Timespec::try_from(longest).ok();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => fds.iter().map(|fd| !fd.revents().is_empty()).collect(),
            Err(_) => Vec::new(),
        }
    }
}

fn welcome(guests: &mut Vec<Guest>, timed: io::Result<()>, stream: impl Stream + 'static, by_http: bool) {
    if timed.is_ok() && guests.len() < MOST {
        guests.push(Guest {
            stream: Box::new(stream),
            by_http,
            said: Vec::new(),
            since: Instant::now(),
        });
    }
}

impl Guest {
    fn is_late(&self) -> bool {
        self.by_http && self.since.elapsed() >= HTTP_PATIENCE
    }

    /// Takes what has come, and answers; false when that is the end of it.
    fn listen(&mut self, source: &mut Source) -> bool {
        let mut piece = [0; 1024];
        let Ok(bytes @ 1..) = self.stream.read(&mut piece) else {
            return false;
        };
        self.said.extend_from_slice(&piece[..bytes]);
        match self.by_http {
            true => self.scrape(source),
            false => self.snapshots(source),
        }
    }

    fn scrape(&mut self, source: &mut Source) -> bool {
        let answer = match http::asked(&self.said) {
            Asked::Not => return !self.is_late(),
            Asked::Metrics(format) => http::answer(format, &metrics::text(source.snapshot(), format)),
            Asked::Answer(answer) => answer,
        };
        _ = self.stream.write_all(&answer);
        false
    }

    /// One snapshot for each line.
    fn snapshots(&mut self, source: &mut Source) -> bool {
        while let Some(end) = self.said.iter().position(|&byte| byte == b'\n') {
            self.said.drain(..=end);
            let Ok(mut line) = serde_json::to_vec(&source.snapshot()) else {
                return false;
            };
            line.push(b'\n');
            if self.stream.write_all(&line).is_err() {
                return false;
            }
        }
        self.said.len() <= LONGEST_LINE
    }
}
