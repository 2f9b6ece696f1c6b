//! Ports: an interface with its queues.

use std::ffi::{c_char, c_int};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use ringside_xsk::Port;
use ringside_xsk::hints::Layouts;

use crate::boundary::{call, copy_text, count, text};
use crate::error::{Failure, rsd_error as Code};
use crate::layout::{hand_out, new_layout, rsd_layout};
use crate::options::{self, rsd_options, rsd_wait};
use crate::queue::{self, QUEUES, rsd_queue};
use crate::table::{Entered, PORT, Table};

/// An interface with all its queues, and the XDP program that feeds them.
pub struct rsd_port {
    _opaque: (),
}

static PORTS: Table<Entry, PORT> = Table::new();

struct Entry {
    port: Port,
    layouts: Option<Arc<Layouts>>,
    wait: rsd_wait,
    batch: u32,
    /// The handles of the queues, as numbers: of pointers the compiler would say that they belong to a thread.
    queues: Vec<usize>,
}

impl Entry {
    /// Gives each queue a handle. The port's queues are the handles' alone from here on.
    fn hand_out_queues(&mut self) -> Result<(), Failure> {
        for queue in self.port.queues_mut() {
            // So that a packet of an earlier port is none of this one's bursts, though the handle has the same slot.
            static BURSTS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
            let first = BURSTS.fetch_add(0x9e37_79b9, std::sync::atomic::Ordering::Relaxed);
            // SAFETY: the port moves and touches its queues only in `take_queues_back` and when it is dropped, behind that.
            let entry = unsafe { queue::Entry::new(NonNull::from(queue), self.wait, self.batch, first) };
            let handle: *mut rsd_queue = QUEUES.insert(entry)?;
            self.queues.push(handle.addr());
        }
        Ok(())
    }

    /// Closes the queues' handles, all or, when a thread is in a call with one, none.
    fn take_queues_back(&mut self) -> Result<(), Failure> {
        let entered: Vec<Entered<queue::Entry>> = (self.queues.iter())
            .map(|&handle| QUEUES.enter_to_close(handle_of(handle)))
            .collect::<Result<_, Failure>>()
            .map_err(|failure| match failure.code {
                Code::RSD_EBUSY => Failure::new(
                    Code::RSD_EBUSY,
                    "a thread is in a call with a queue of this port: end it first; nothing was closed",
                ),
                _ => failure,
            })?;
        entered.into_iter().for_each(|entered| drop(entered.remove()));
        self.queues.clear();
        Ok(())
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // There are handles only where opening has failed half-way, and then nobody has seen them.
        _ = self.take_queues_back();
    }
}

/// Returns the port of a handle, for this thread alone until the result is dropped; an error in a
/// child of fork().
fn enter(port: *mut rsd_port) -> Result<Entered<Entry>, Failure> {
    let entry = PORTS.enter(port)?;
    entry.port.check_process()?;
    Ok(entry)
}

fn handle_of(handle: usize) -> *mut rsd_queue {
    ptr::without_provenance_mut(handle)
}

/// Opens a port: loads and attaches the XDP program, and binds a socket with frames of its own to each queue. On an error
/// everything that was done is undone, and `*port` is NULL.
///
/// After fork() or daemon() the port works in the parent alone: calls in the child return
/// RSD_EFORKED. Open it behind them.
///
/// Needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF; CAP_IPC_LOCK where `ulimit -l` is small, before Linux 5.18 CAP_PERFMON.
/// Linux 5.9.
///
/// # Safety
/// `options` is NULL or was made by rsd_options_init(), its strings and arrays are what they say; `port` is NULL or can be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_port_open(options: *const rsd_options, port: *mut *mut rsd_port) -> c_int {
    call(|| {
        let make = || {
            // SAFETY: the caller's promise.
            let options = unsafe { options::read(options) }?;
            // SAFETY: the caller's promise.
            let (opened, layouts) = unsafe { options.open() }?;
            let mut entry = Entry {
                port: opened,
                layouts,
                wait: options.wait()?,
                batch: options.most(),
                queues: Vec::new(),
            };
            entry.hand_out_queues()?;
            PORTS.insert(entry)
        };
        // SAFETY: the caller's promise.
        unsafe { hand_out("port", port, make) }
    })
}

/// Closes a port and its queues. Nothing of it is left on the interface, as when the process ends in any other way. Kept
/// packets stay valid until they are freed.
///
/// In a child of fork() it closes what the child has of its parent's port, which stays as it is.
///
/// RSD_EBUSY: a thread is in a call with one of the queues; nothing was closed.
#[unsafe(no_mangle)]
pub extern "C" fn rsd_port_close(port: *mut rsd_port) -> c_int {
    call(|| {
        let mut entry = PORTS.enter_to_close(port)?;
        entry.take_queues_back()?;
        drop(entry.remove());
        Ok(0)
    })
}

/// Closes the port's sockets and opens them again as they were, on the interface that has its name now: after RSD_EGONE, or
/// when the interface has other queues. Tried again for `patience_ns`. The handles of the queues are closed; rsd_port_queue()
/// gives new ones. After an error there are none, and it may be tried once more.
///
/// RSD_EBUSY: as rsd_port_close().
#[unsafe(no_mangle)]
pub extern "C" fn rsd_port_reopen(port: *mut rsd_port, patience_ns: u64) -> c_int {
    call(|| {
        let mut entry = enter(port)?;
        entry.take_queues_back()?;
        entry.port.reopen(Duration::from_nanos(patience_ns))?;
        entry.hand_out_queues()?;
        Ok(0)
    })
}

/// Number of the port's queues.
#[unsafe(no_mangle)]
pub extern "C" fn rsd_port_queues(port: *mut rsd_port) -> c_int {
    call(|| Ok(count(enter(port)?.queues.len())))
}

/// The port's queue number `index`, from 0 on: those that were opened, in their order. It needs no closing, and is the same
/// each time.
///
/// RSD_ENOENT: there are not so many.
///
/// # Safety
/// `queue` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_port_queue(port: *mut rsd_port, index: u32, queue: *mut *mut rsd_queue) -> c_int {
    call(|| {
        let make = || {
            let entry = enter(port)?;
            let handle = entry.queues.get(index as usize).ok_or_else(|| {
                let queues = entry.queues.len();
                Failure::new(
                    Code::RSD_ENOENT,
                    format!("the port has {queues} queue(s), numbered from 0"),
                )
            })?;
            Ok(handle_of(*handle))
        };
        // SAFETY: the caller's promise.
        unsafe { hand_out("queue", queue, make) }
    })
}

/// What was obtained, for people: program, and for each queue its mode and sizes, and why it is not a better one. Copied into
/// the `size` bytes of `text`; returns the length of all of it, as snprintf() does.
///
/// # Safety
/// `text` has room for `size` bytes, or may be NULL if that is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_port_report(port: *mut rsd_port, text: *mut c_char, size: usize) -> c_int {
    call(|| {
        // Not the queues, which threads may be using.
        let report = enter(port)?.port.report().to_string();
        // SAFETY: the caller's promise.
        unsafe { copy_text(&report, text, size) }
    })
}

/// A struct of hints that the port's packets may have, by its name: of Ringside's own program "ringside_rx". For ports with
/// RSD_HINTS. Closed with rsd_layout_close(); it outlives the port.
///
/// RSD_ENOENT: there is none of that name.
///
/// # Safety
/// `name` is NULL or a string; `layout` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_port_layout(
    port: *mut rsd_port,
    name: *const c_char,
    layout: *mut *mut rsd_layout,
) -> c_int {
    call(|| {
        let make = || {
            // SAFETY: the caller's promise.
            let name = unsafe { text("name", name) }?;
            let layouts = enter(port)?.layouts.clone();
            let layouts = layouts
                .ok_or_else(|| Failure::new(Code::RSD_ENOENT, "the port was opened without RSD_HINTS in its flags"))?;
            new_layout(layouts.layout(name)?.clone())
        };
        // SAFETY: the caller's promise.
        unsafe { hand_out("layout", layout, make) }
    })
}
