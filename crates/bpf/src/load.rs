//! What loading has in common: libbpf's messages go into the error instead of to stderr.

use std::cell::RefCell;
use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapImpl, PrintLevel};

use crate::error::{Error, Result};

/// A verifier log may have thousands of lines, and its end is what says why.
const LOG_LINES: usize = 40;

thread_local! {
    static MESSAGES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// libbpf has one print function for the whole process, so captures take turns.
static CAPTURE: Mutex<()> = Mutex::new(());

fn keep(_level: PrintLevel, message: String) {
    MESSAGES.with_borrow_mut(|messages| messages.push(message));
}

/// Runs `call`, and returns libbpf's messages with its result.
fn captured<T>(call: impl FnOnce() -> T) -> (T, Vec<String>) {
    let _turn = CAPTURE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
    let result = call();
    libbpf_rs::set_print(before);
    (result, MESSAGES.take())
}

/// Runs `call` without libbpf's messages, which say no more than its error.
pub(crate) fn quietly<T>(call: impl FnOnce() -> T) -> T {
    captured(call).0
}

/// Runs `load`, and gives its error libbpf's messages to carry.
pub(crate) fn capture<T>(program: &'static str, load: impl FnOnce() -> libbpf_rs::Result<T>) -> Result<T> {
    let (result, messages) = captured(load);
    result.map_err(|error| Error::Load {
        program,
        source: os_error(&error),
        log: tail(&messages),
    })
}

fn tail(messages: &[String]) -> String {
    let lines: Vec<&str> = messages.iter().flat_map(|message| message.lines()).collect();
    let skipped = lines.len().saturating_sub(LOG_LINES);
    lines[skipped..].iter().flat_map(|line| ["\n  ", line]).collect()
}

/// A file descriptor of its own, which outlives the libbpf object that it came from.
pub(crate) fn own(program: &'static str, fd: impl AsFd) -> Result<OwnedFd> {
    fd.as_fd().try_clone_to_owned().map_err(|source| Error::Load {
        program,
        source,
        log: String::new(),
    })
}

/// A map handle of its own, which outlives the libbpf object that it came from.
pub(crate) fn own_map<T: Debug>(program: &'static str, map: &MapImpl<'_, T>) -> Result<MapHandle> {
    MapHandle::try_from(map).map_err(|error| Error::Load {
        program,
        source: os_error(&error),
        log: String::new(),
    })
}

/// Returns the bytes of kernel memory that a map takes: `memlock` of `bpf_map_show_fdinfo`.
pub(crate) fn map_memory(map: &MapHandle) -> io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", map.as_fd().as_raw_fd()))?;
    let bytes = text
        .lines()
        .find_map(|line| line.strip_prefix("memlock:")?.trim().parse().ok());
    bytes.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Texts of libbpf's own error numbers, which go on where those of the system end (`enum
/// libbpf_errno`).
const LIBBPF_ERRORS: [(i32, &str); 5] = [
    (4000, "libelf cannot read it"),
    (
        4001,
        "it is not a BPF object: compile it with clang -g -O2 -target bpf -c",
    ),
    (4003, "it is for machines of the other byte order"),
    (4005, "it refers to a symbol or a type that is not there"),
    (4008, "the program is too long"),
];

/// libbpf-rs keeps the `io::Error` inside its own to itself; only its text tells the number.
pub(crate) fn os_error(error: &libbpf_rs::Error) -> io::Error {
    let text = format!("{error:#}");
    let number = text
        .rsplit_once("(os error ")
        .and_then(|(_, rest)| rest.split_once(')'));
    match number.and_then(|(number, _)| number.parse().ok()) {
        Some(number @ 4000..) => {
            let known = LIBBPF_ERRORS.iter().find(|(other, _)| *other == number);
            io::Error::other(known.map_or(text.clone(), |(_, text)| (*text).to_owned()))
        }
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::other(text),
    }
}

/// Reads entry `index` of a per-CPU array of `N` u64, summed over all CPUs that can ever exist.
pub(crate) fn sum_per_cpu<const N: usize>(
    program: &'static str,
    name: &'static str,
    map: &MapHandle,
    index: u32,
) -> Result<[u64; N]> {
    let values = map
        .lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY)
        .map_err(|error| Error::map(program, name, "reading", os_error(&error)))?
        .unwrap_or_default();
    let mut sums = [0u64; N];
    for value in values {
        for (sum, bytes) in sums.iter_mut().zip(value.as_chunks::<8>().0) {
            *sum = sum.wrapping_add(u64::from_ne_bytes(*bytes));
        }
    }
    Ok(sums)
}
