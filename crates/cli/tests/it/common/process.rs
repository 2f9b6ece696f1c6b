//! A program that a test runs, and what it left behind. Also the gateway's tests use it.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringside_netlab::wait_until;

/// Longer than anything here takes: what is not done by then hangs.
pub const PATIENCE: Duration = Duration::from_secs(45);

/// Where each thread of a process is, for who waits for it in vain: its state, its system call, and where in the kernel it sleeps.
fn whereabouts(pid: u32) -> String {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let told = threads.flatten().map(|thread| {
        let read =
            |name: &str| std::fs::read_to_string(thread.path().join(name)).unwrap_or_else(|error| error.to_string());
        let status = read("status");
        let state = status.lines().find(|line| line.starts_with("State:")).unwrap_or("gone");
        let [name, call, stack] = ["comm", "syscall", "stack"].map(|file| read(file).trim().replace('\n', " "));
        format!("{name}: {state}, system call {call}, {stack}")
    });
    told.collect::<Vec<_>>().join("; ")
}

/// True if all threads of a process are in a state: `S` for asleep, `T` for stopped.
fn is_in_state(pid: u32, state: char) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    threads.flatten().all(|thread| {
        // A thread that has just ended has no file. Its state follows its name, which ends with the last parenthesis.
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(')')
            .is_none_or(|(_, fields)| fields.trim_start().starts_with(state))
    })
}

/// A process that was started by a test; killed when the test ends before it.
pub struct Running {
    what: String,
    child: Child,
    readers: Vec<JoinHandle<()>>,
    out: Arc<Mutex<Vec<u8>>>,
    err: Arc<Mutex<Vec<u8>>>,
    /// Packets were sent to it: [`interrupt`](Self::interrupt) comes after the last one.
    receives: bool,
}

impl Running {
    pub fn new(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let (out, err) = (Arc::default(), Arc::default());
        let readers = vec![
            collect(child.stdout.take().expect("piped"), &out),
            collect(child.stderr.take().expect("piped"), &err),
        ];
        let what = command
            .get_args()
            .map(|word| word.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" ");
        Self {
            what,
            child,
            readers,
            out,
            err,
            receives: false,
        }
    }

    pub fn receiving(mut self) -> Self {
        self.receives = true;
        self
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What standard error holds by now.
    pub fn told(&self) -> String {
        String::from_utf8_lossy(&self.err.lock().unwrap()).into_owned()
    }

    /// What standard output holds by now.
    pub fn printed(&self) -> String {
        String::from_utf8_lossy(&self.out.lock().unwrap()).into_owned()
    }

    /// Waits until standard error holds `text`.
    pub fn wait_for(&self, text: &str) {
        self.wait_for_times(text, 1);
    }

    /// Waits until standard error holds `text` so many times.
    pub fn wait_for_times(&self, text: &str, times: usize) {
        self.wait_until(&format!("{times} times {text:?}"), |err| {
            err.matches(text).count() >= times
        });
    }

    /// Waits until standard error is as wanted.
    pub fn wait_until(&self, what: &str, is_there: impl Fn(&str) -> bool) {
        assert!(
            wait_until(PATIENCE, || is_there(&self.told())),
            "{}: not {what} in: {}; {}",
            self.what,
            self.told(),
            whereabouts(self.pid())
        );
    }

    pub fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.child.id()).expect("small");
        // SAFETY: no memory is involved. The child has not been waited for, so its number is still its own.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "{}: kill", self.what);
    }

    /// Returns whether a signal mask in `/proc/PID/status` contains `signal`.
    ///
    /// `SigCgt:` is the mask of caught signals, `ShdPnd:` of pending ones.
    pub fn has_signal(&self, mask: &str, signal: i32) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix(mask));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
    }

    /// Sends SIGSTOP, and waits until all threads are stopped.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
        assert!(
            wait_until(PATIENCE, || is_in_state(self.pid(), 'T')),
            "{}: not stopped: {}",
            self.what,
            whereabouts(self.pid())
        );
    }

    /// As Ctrl-C; then waits for the end. A receiver gets time first to receive what reached its rings.
    pub fn interrupt(self) -> Done {
        if self.receives {
            self.settle();
        }
        self.signal(libc::SIGINT);
        self.end()
    }

    /// Waits until all threads sleep in three looks: nothing is left to receive. Half a second at most, because a receiver
    /// that busy-polls never sleeps.
    pub fn settle(&self) {
        let mut looks = 0;
        wait_until(Duration::from_millis(500), || {
            looks = if is_in_state(self.pid(), 'S') { looks + 1 } else { 0 };
            looks == 3
        });
    }

    pub fn is_over(&mut self) -> bool {
        self.child.try_wait().expect("waits").is_some()
    }

    /// Waits for the end.
    pub fn end(self) -> Done {
        self.end_within(PATIENCE)
    }

    /// Waits for the end of what takes longer than most.
    pub fn end_within(mut self, patience: Duration) -> Done {
        let begin = Instant::now();
        let over = wait_until(patience, || self.is_over());
        if !over {
            panic!(
                "{}: still running after {patience:?}: {}; {}",
                self.what,
                self.told(),
                whereabouts(self.pid())
            );
        }
        let status = self.child.wait().expect("is over");
        for reader in self.readers.drain(..) {
            reader.join().expect("reads");
        }
        let text = |bytes: &Mutex<Vec<u8>>| String::from_utf8(bytes.lock().unwrap().clone()).expect("UTF-8");
        Done {
            what: self.what.clone(),
            status,
            took: begin.elapsed(),
            out: text(&self.out),
            err: text(&self.err),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn collect(mut from: impl Read + Send + 'static, to: &Arc<Mutex<Vec<u8>>>) -> JoinHandle<()> {
    let to = Arc::clone(to);
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(bytes @ 1..) = from.read(&mut piece) {
            to.lock().unwrap().extend_from_slice(&piece[..bytes]);
        }
    })
}

/// What a run of the binary left behind.
#[derive(Debug)]
pub struct Done {
    pub what: String,
    pub status: ExitStatus,
    /// From the call that waited for it.
    pub took: Duration,
    pub out: String,
    pub err: String,
}

impl Done {
    /// Asserts that it ended well.
    pub fn good(self) -> Self {
        assert!(self.status.success(), "{self:#?}");
        assert!(!self.err.contains("panicked"), "{self:#?}");
        self
    }

    /// Asserts that it failed with a message for people, and returns that.
    ///
    /// That is the last paragraph of standard error; what comes before is the report of what was opened.
    pub fn bad(&self) -> String {
        assert!(!self.status.success(), "{self:#?}");
        assert_eq!(self.status.signal(), None, "{self:#?}");
        for ugly in ["panicked", "backtrace", "unwrap", "Error {", "Some("] {
            assert!(!self.err.contains(ugly), "{self:#?}");
        }
        let at = self.err.rfind("ringside: ").or_else(|| self.err.rfind("error: "));
        let message = self.err[at.unwrap_or_else(|| panic!("no message: {self:#?}"))..].trim_end();
        // The parser of the command line shows usage and help in paragraphs of their own.
        let message = match message.split_once("\n\n") {
            Some((first, more)) if message.starts_with("error: ") && more.ends_with("try '--help'.") => first,
            _ => message,
        };
        assert!(!message.contains("\n\n"), "more than a paragraph: {self:#?}");
        message.to_owned()
    }

    /// As [`Done::bad`]; and it told nothing else, because nothing was opened.
    pub fn refused(&self) -> String {
        let message = self.bad();
        // On a busy machine the kernel may still be clearing up behind the test before.
        let told = self
            .err
            .lines()
            .find(|line| !line.contains("; waiting "))
            .unwrap_or_default();
        assert!(message.starts_with(told), "more than the message: {self:#?}");
        assert_eq!(self.out, "", "{self:#?}");
        message
    }
}
