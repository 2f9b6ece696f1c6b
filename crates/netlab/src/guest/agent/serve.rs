//! Does what the host says.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use ringside_nic::clock::{Monotonic, Timestamp};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::time::{ClockId, Timespec, clock_settime};

use crate::guest::message::{self, Answer, PIECE, Request};
use crate::wait_until;

/// How long the port may take until it is there.
const PATIENCE: Duration = Duration::from_secs(20);

struct Agent {
    port: Mutex<File>,
    /// Process groups of the programs that run.
    running: Mutex<HashMap<u32, Pid>>,
}

pub(super) fn serve() -> io::Result<()> {
    let mut port = None;
    wait_until(PATIENCE, || {
        port = port_path();
        port.is_some()
    });
    let path = port.ok_or_else(|| io::Error::other(format!("there is no virtio-serial port {}", message::PORT)))?;
    let mut port = OpenOptions::new().read(true).write(true).open(path)?;
    let agent = Arc::new(Agent {
        port: Mutex::new(port.try_clone()?),
        running: Mutex::default(),
    });
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let version = message::VERSION;
    // Waits until the host is there.
    agent.say(0, Answer::Ready { version, release }, b"")?;
    while let Some((envelope, body)) = message::read::<Request>(&mut port)? {
        let id = envelope.id;
        match envelope.message {
            Request::PowerOff => {
                agent.say(id, Answer::Done, b"")?;
                return Ok(());
            }
            Request::Run { .. } | Request::Read { .. } => {
                let agent = Arc::clone(&agent);
                let work = move || agent.answer(id, envelope.message, &body);
                thread::Builder::new().spawn(work)?;
            }
            // Pieces of a file have an order.
            _ => agent.answer(id, envelope.message, &body),
        }
    }
    Ok(())
}

fn port_path() -> Option<String> {
    let ports = fs::read_dir("/sys/class/virtio-ports").ok()?;
    let mut names = ports.flatten().filter_map(|port| {
        let name = fs::read_to_string(port.path().join("name")).ok()?;
        (name.trim() == message::PORT).then(|| format!("/dev/{}", port.file_name().to_string_lossy()))
    });
    names.next()
}

impl Agent {
    fn say(&self, id: u32, answer: Answer, body: &[u8]) -> io::Result<()> {
        let mut port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        message::write(&mut *port, id, answer, body)
    }

    fn answer(self: &Arc<Self>, id: u32, request: Request, body: &[u8]) {
        let (what, done) = match request {
            Request::Run {
                program,
                arguments,
                environment,
                directory,
            } => {
                let mut command = Command::new(&program);
                command.args(arguments).envs(environment);
                command.current_dir(directory.as_deref().unwrap_or("/"));
                (format!("start {program}"), self.run(id, command))
            }
            Request::Signal { signal } => (format!("send signal {signal}"), self.signal(id, signal)),
            Request::Write { path, mode, append } => (format!("write {path}"), write(&path, mode, append, body)),
            Request::Read { path } => (format!("read {path}"), self.send(id, &path)),
            Request::SetClock { ns } => ("set the clock".to_owned(), set_clock(ns)),
            Request::Time => ("tell the time".to_owned(), self.time(id)),
            // The loop has ended with it.
            Request::PowerOff => (String::new(), Ok(Answer::Done)),
        };
        let answer = done.unwrap_or_else(|error| Answer::Failed {
            what: format!("{what}: {error}"),
            errno: error.raw_os_error(),
        });
        // Without a host there is nobody to tell, and the reader ends the guest.
        _ = self.say(id, answer, b"");
    }

    fn run(self: &Arc<Self>, id: u32, mut command: Command) -> io::Result<Answer> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.process_group(0).spawn()?;
        let group = Pid::from_child(&child);
        self.groups().insert(id, group);
        let outputs = (child.stdout.take(), child.stderr.take());
        thread::scope(|scope| {
            scope.spawn(|| self.forward(id, false, outputs.0));
            scope.spawn(|| self.forward(id, true, outputs.1));
        });
        let status = child.wait();
        self.groups().remove(&id);
        Ok(Answer::Ended {
            status: status?.into_raw(),
        })
    }

    fn groups(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Pid>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forward(&self, id: u32, error: bool, from: Option<impl Read>) {
        let Some(mut from) = from else { return };
        let mut piece = vec![0; PIECE];
        while let Ok(length @ 1..) = from.read(&mut piece) {
            if self.say(id, Answer::Output { error }, &piece[..length]).is_err() {
                return;
            }
        }
    }

    fn signal(&self, id: u32, signal: i32) -> io::Result<Answer> {
        let group = self.groups().get(&id).copied();
        let signal = Signal::from_named_raw(signal).ok_or(io::ErrorKind::InvalidInput)?;
        // One that has ended meanwhile needs none.
        match group.map(|group| kill_process_group(group, signal)) {
            Some(Err(error)) if error != rustix::io::Errno::SRCH => Err(error.into()),
            _ => Ok(Answer::Done),
        }
    }

    fn time(&self, id: u32) -> io::Result<Answer> {
        let now = Timestamp::<Monotonic>::now().as_nanos();
        self.say(id, Answer::Piece, &now.to_le_bytes())?;
        Ok(Answer::Done)
    }

    fn send(&self, id: u32, path: &str) -> io::Result<Answer> {
        let mut file = File::open(path)?;
        let mut piece = vec![0; PIECE];
        loop {
            match file.read(&mut piece)? {
                0 => return Ok(Answer::Done),
                length => self.say(id, Answer::Piece, &piece[..length])?,
            }
        }
    }
}

fn write(path: &str, mode: u32, append: bool, body: &[u8]) -> io::Result<Answer> {
    if let Some(folder) = Path::new(path).parent() {
        fs::create_dir_all(folder)?;
    }
    let mut options = OpenOptions::new();
    options.create(true).mode(mode).append(append);
    if !append {
        options.write(true).truncate(true);
    }
    let mut file = options.open(path)?;
    file.write_all(body)?;
    // Whatever the umask took away, and also where it was there before.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    Ok(Answer::Done)
}

fn set_clock(ns: i64) -> io::Result<Answer> {
    let time = Timespec {
        tv_sec: ns.div_euclid(1_000_000_000),
        tv_nsec: ns.rem_euclid(1_000_000_000),
    };
    clock_settime(ClockId::Realtime, time)?;
    Ok(Answer::Done)
}
