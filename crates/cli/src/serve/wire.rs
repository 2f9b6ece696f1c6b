//! A stream of bytes to the other side, plain or under TLS, that never waits by itself.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Bytes that are read at a time.
const PIECE: usize = 16 << 10;

/// What waits to be written, at the most: who does not read its results is let go.
const MOST_PENDING: usize = 64 << 20;

/// A stream that encrypts what is written to a TCP socket and decrypts what comes from it.
pub(super) trait EncryptedStream: Read + Write + Send {
    /// Returns the socket below.
    fn socket(&self) -> &TcpStream;

    /// Returns the certificate of the other side, if that is a server.
    fn certificate(&self) -> Option<&[u8]>;
}

enum Stream {
    Plain(TcpStream),
    Encrypted(Box<dyn EncryptedStream>),
}

/// One connection.
pub(super) struct Wire {
    stream: Stream,
    pending: Vec<u8>,
    piece: Box<[u8]>,
}

/// What reading gave.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// These bytes; none: nothing has come.
    Bytes(Vec<u8>),
    /// The other side has closed it.
    End,
}

impl Wire {
    pub(super) fn plain(stream: TcpStream) -> io::Result<Self> {
        prepare(&stream)?;
        Ok(Self::new(Stream::Plain(stream)))
    }

    /// Uses an encrypted stream whose handshake is complete.
    pub(super) fn encrypted(stream: Box<dyn EncryptedStream>) -> Self {
        Self::new(Stream::Encrypted(stream))
    }

    fn new(stream: Stream) -> Self {
        Self {
            stream,
            pending: Vec::new(),
            piece: vec![0; PIECE].into_boxed_slice(),
        }
    }

    /// Returns the certificate of a TLS server.
    pub(super) fn certificate(&self) -> Option<&[u8]> {
        match &self.stream {
            Stream::Plain(_) => None,
            Stream::Encrypted(stream) => stream.certificate(),
        }
    }

    fn socket(&self) -> &TcpStream {
        match &self.stream {
            Stream::Plain(stream) => stream,
            Stream::Encrypted(stream) => stream.socket(),
        }
    }

    fn inner(&mut self) -> &mut dyn ReadWrite {
        match &mut self.stream {
            Stream::Plain(stream) => stream,
            Stream::Encrypted(stream) => stream,
        }
    }

    /// All that has come, up to a mebibyte at a time.
    pub(super) fn read(&mut self) -> io::Result<Came> {
        let mut all = Vec::new();
        while all.len() < 1 << 20 {
            let mut piece = std::mem::take(&mut self.piece);
            let read = self.inner().read(&mut piece);
            let taken = read.as_ref().map_or(0, |&bytes| bytes);
            all.extend_from_slice(&piece[..taken]);
            self.piece = piece;
            match read {
                Ok(0) if all.is_empty() => return Ok(Came::End),
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // What came before counts; the error comes again.
                Err(_) if !all.is_empty() => break,
                // TLS without a farewell is an end like any other: what matters has been said by messages.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(Came::End),
                Err(error) => return Err(error),
            }
        }
        Ok(Came::Bytes(all))
    }

    /// Sends bytes, now or with the next call.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() > MOST_PENDING {
            return Err(io::Error::other("it does not read what it is sent"));
        }
        let pending = std::mem::take(&mut self.pending);
        let mut rest = &pending[..];
        while !rest.is_empty() {
            match self.inner().write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.pending = rest.to_vec();
        match self.inner().flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    /// Sleeps until something comes, or there is room for what waits to be sent.
    pub(super) fn wait(&self, longest: Duration) {
        wait_for(self.as_fd(), !self.pending.is_empty(), longest);
    }

    /// Sends what is left, for so long at the most.
    pub(super) fn finish(&mut self, longest: Duration) {
        let end = Instant::now() + longest;
        while self.write(&[]).is_ok() && !self.pending.is_empty() && Instant::now() < end {
            wait_for(self.as_fd(), true, Duration::from_millis(20));
        }
    }
}

impl Wire {
    /// Says that nothing more comes, and reads what is still on its way: a socket that is closed before it has read everything
    /// throws away also what it has sent and the other side has not read yet.
    pub(super) fn linger(&mut self, longest: Duration) {
        _ = self.socket().shutdown(Shutdown::Write);
        self.ends_within(longest, |_| {});
    }

    /// Reads what still comes. Whether the other side closes the connection in that time.
    pub(super) fn ends_within(&mut self, longest: Duration, mut take: impl FnMut(&[u8])) -> bool {
        let end = Instant::now() + longest;
        while Instant::now() < end {
            match self.read() {
                Ok(Came::Bytes(bytes)) => {
                    take(&bytes);
                    self.wait(Duration::from_millis(20));
                }
                Ok(Came::End) => return true,
                Err(_) => return false,
            }
        }
        false
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

trait ReadWrite: Read + Write {}

impl<T: Read + Write> ReadWrite for T {}

/// Has small messages sent at once, and no call block.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)
}

/// Waits for the socket if the handshake stopped there, for 100 ms at most.
#[cfg(feature = "full")]
pub(super) fn poll_until(
    done: io::Result<()>,
    socket: &TcpStream,
    to_write: bool,
    deadline: Instant,
) -> io::Result<()> {
    match done {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(ErrorKind::TimedOut, "the TLS handshake takes too long"));
            }
            wait_for(socket.as_fd(), to_write, left.min(Duration::from_millis(100)));
            Ok(())
        }
        other => other,
    }
}

fn wait_for(fd: BorrowedFd<'_>, to_write: bool, longest: Duration) {
    let wanted = if to_write {
        PollFlags::IN | PollFlags::OUT
    } else {
        PollFlags::IN
    };
    // Whatever it answers, the next call on the stream tells.
    let timeout = Timespec::try_from(longest).ok();
    _ = poll(&mut [PollFd::from_borrowed_fd(fd, wanted)], timeout.as_ref());
}
