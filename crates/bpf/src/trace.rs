//! When probes pass the points of their way through the kernel, and what else the CPUs do meanwhile.

mod event;
mod hooks;

use std::cell::RefCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;

use libbpf_rs::libbpf_sys::{BPF_TRACE_FENTRY, BPF_TRACE_RAW_TP, bpf_attach_type};
use libbpf_rs::skel::{OpenSkel, Skel as _, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, RingBuffer, RingBufferBuilder};

use crate::Link;
use crate::error::{Error, Result};
use crate::skel::trace::TraceSkelBuilder;
use crate::skel::trace_fentry::TraceFentrySkelBuilder;
use crate::{load, sys};

pub use self::event::{TraceDisturber, TraceEvent};
pub use self::hooks::MissingHook;
use self::hooks::{Hook, Kernel};

const NAME: &str = "ringside_trace";

/// Which probes are traced, and what is told of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceOptions {
    /// Those of one session (`ringside_measure::probe`); `None`: all.
    pub session: Option<u32>,
    /// Those whose number is a multiple of it; 0 and 1: all.
    pub one_of: u32,
    /// Also what else the CPUs do: interrupts, soft interrupts, tasks, sleep.
    pub disturbers: bool,
    /// Also when tasks are woken up and get a CPU that are watched ([`Tracer::watch`]), and when who reads a TAP device takes what XDP has put in its ring: each system
    /// call of the machine costs a little more then.
    pub tasks: bool,
}

/// The tracing programs, loaded. They cost nothing until they are attached.
///
/// Each is one hook: a tracepoint, or the entry of a function. A kernel that does not offer one, or not to us, has that point
/// less, which [`missing`](Self::missing) tells.
///
/// A probe is found in Ethernet frames, with a VLAN tag or without, with UDP over IPv4 (without fragments) or IPv6 (without
/// extension headers), whose probe lies in the packet's linear part, as it does on veth and with most drivers for packets that
/// small.
///
/// Needs a kernel with BTF and ring buffers (Linux 5.8), and CAP_BPF and CAP_PERFMON, or root.
///
/// ```no_run
/// use ringside_bpf::{TraceOptions, Tracer};
///
/// let mut tracer = Tracer::load(TraceOptions { session: None, one_of: 1, disturbers: false, tasks: false })?;
/// let reader = tracer.reader()?;
/// tracer.attach()?;
/// std::thread::sleep(std::time::Duration::from_millis(100));
/// let (events, _) = reader.read()?;
/// println!("{} points passed, {} hooks missing", events.len(), tracer.missing().len());
/// # Ok::<(), ringside_bpf::Error>(())
/// ```
#[derive(Debug)]
pub struct Tracer {
    programs: Vec<Loaded>,
    missing: Vec<MissingHook>,
    /// Each detaches its program when it is dropped.
    links: Vec<Link>,
    events: MapHandle,
    disturbers: MapHandle,
    cpus: MapHandle,
    awaited: MapHandle,
    watched: MapHandle,
}

#[derive(Debug)]
struct Loaded {
    hook: &'static Hook,
    program: OwnedFd,
}

impl Tracer {
    /// Loads what this kernel has hooks for.
    ///
    /// # Errors
    ///
    /// [`Error::Load`] if the kernel refuses the programs: without BTF, and without the capabilities; [`Error::Invalid`] if it
    /// has none of the hooks.
    pub fn load(options: TraceOptions) -> Result<Self> {
        let kernel = Kernel::read(NAME)?;
        let mut missing = Vec::new();
        let mut programs = Vec::new();
        let mut storage = MaybeUninit::uninit();
        let skel = load::capture(NAME, || {
            let mut open = TraceSkelBuilder::default().open(&mut storage)?;
            if let Some(data) = open.maps.rodata_data.as_mut() {
                data.any_session = u32::from(options.session.is_none());
                data.wanted_session = options.session.unwrap_or(0);
                data.one_of = options.one_of;
            }
            for mut program in open.open_object_mut().progs_mut() {
                let wanted = Hook::of_program(&program.name().to_string_lossy()).filter(|hook| hook.is_wanted(options));
                let reason = wanted.and_then(|hook| kernel.lacks(hook));
                program.set_autoload(wanted.is_some() && reason.is_none());
                missing.extend(wanted.zip(reason).map(|(hook, reason)| hook.missing(reason)));
            }
            open.load()
        })?;
        for program in skel.object().progs().filter(|program| program.autoload()) {
            if let Some(hook) = Hook::of_program(&program.name().to_string_lossy()) {
                let program = load::own(NAME, program.as_fd())?;
                programs.push(Loaded { hook, program });
            }
        }
        let mut tracer = Self {
            programs,
            missing,
            links: Vec::new(),
            events: load::own_map(NAME, &skel.maps.events)?,
            disturbers: load::own_map(NAME, &skel.maps.disturbers)?,
            cpus: load::own_map(NAME, &skel.maps.cpus)?,
            awaited: load::own_map(NAME, &skel.maps.awaited)?,
            watched: load::own_map(NAME, &skel.maps.watched)?,
        };
        if tracer.programs.is_empty() {
            return Err(Error::invalid(
                NAME,
                "this kernel has none of the tracepoints that it needs",
            ));
        }
        tracer.programs.sort_by_key(|loaded| loaded.hook.rank());
        for hook in hooks::functions() {
            let loaded = match kernel.lacks(hook) {
                Some(reason) => Err(reason.to_owned()),
                None => tracer.function(hook, options).map_err(|error| hooks::refused(&error)),
            };
            match loaded {
                Ok(program) => {
                    if let Some(replaced) = hook.replaces() {
                        tracer.programs.retain(|loaded| loaded.hook != replaced);
                        let name = replaced.missing("").hook;
                        tracer.missing.retain(|missing| missing.hook != name);
                    }
                    tracer.programs.push(Loaded { hook, program });
                }
                Err(reason) => tracer.missing.push(hook.missing(reason)),
            }
        }
        Ok(tracer)
    }

    /// Loads the program of one function, so that a kernel that refuses it may take the others.
    fn function(&self, hook: &'static Hook, options: TraceOptions) -> Result<OwnedFd> {
        let mut storage = MaybeUninit::uninit();
        let skel = load::capture(NAME, || {
            let mut open = TraceFentrySkelBuilder::default().open(&mut storage)?;
            if let Some(data) = open.maps.rodata_data.as_mut() {
                data.any_session = u32::from(options.session.is_none());
                data.wanted_session = options.session.unwrap_or(0);
                data.one_of = options.one_of;
            }
            open.maps.events.reuse_fd(self.events.as_fd())?;
            open.maps.cpus.reuse_fd(self.cpus.as_fd())?;
            open.maps.awaited.reuse_fd(self.awaited.as_fd())?;
            for mut program in open.open_object_mut().progs_mut() {
                let is_it = program.name().to_string_lossy() == hook.program();
                program.set_autoload(is_it);
            }
            open.load()
        })?;
        let mut programs = skel.object().progs();
        let program = programs.find(|program| program.name().to_string_lossy() == hook.program());
        let program = program.ok_or_else(|| Error::invalid(NAME, "libbpf has lost a program"))?;
        load::own(NAME, program.as_fd())
    }

    /// Begins to trace. Takes some milliseconds.
    ///
    /// # Errors
    ///
    /// [`Error::Load`] if not one program can be attached; of those that cannot, [`missing`](Self::missing) tells.
    pub fn attach(&mut self) -> Result<()> {
        let mut refused = None;
        // Against the packets' way: nobody shall be seen to get a packet whose end is missed, for then the order in the queue of
        // its socket would be wrong for ever.
        for Loaded { hook, program } in self.programs.iter().rev() {
            let kind: bpf_attach_type = match hook.is_function() {
                true => BPF_TRACE_FENTRY,
                false => BPF_TRACE_RAW_TP,
            };
            match sys::link(program.as_fd(), 0, kind, 0) {
                Ok(link) => self.links.push(Link::new(link)),
                Err(error) => {
                    let missing = hook.missing(format!("attaching it: {error}"));
                    if !self.missing.contains(&missing) {
                        self.missing.push(missing);
                    }
                    refused = Some(error);
                }
            }
        }
        match refused {
            Some(source) if self.links.is_empty() => Err(Error::Load {
                program: NAME,
                source,
                log: String::new(),
            }),
            _ => Ok(()),
        }
    }

    /// Whether it tells what is done with tasks that are watched: all of it, with [`TraceOptions::tasks`] on a kernel that has both hooks for that, or nothing.
    #[must_use]
    pub fn watches(&self) -> bool {
        let is_there = |hook: &Hook| self.programs.iter().any(|loaded| loaded.hook == hook);
        hooks::of_tasks().all(is_there)
    }

    /// Has it told when a task is woken up, gets a CPU and is off it again, by its number: with [`TraceOptions::tasks`]. 1024 tasks at the most.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if there are too many.
    pub fn watch(&self, task: u32) -> Result<()> {
        let put = self.watched.update(&task.to_ne_bytes(), &[1], MapFlags::ANY);
        put.map_err(|error| Error::map(NAME, "watched", "writing", load::os_error(&error)))
    }

    /// Stops tracing: nothing costs anything any more. What was told before can still be read.
    pub fn detach(&mut self) {
        // In the order of the packets' way.
        while let Some(link) = self.links.pop() {
            drop(link);
        }
    }

    /// Hooks that are not there, and what is not known without them.
    #[must_use]
    pub fn missing(&self) -> &[MissingHook] {
        &self.missing
    }

    /// Who reads what was traced, for the calling thread. There is one stream: of two readers each would get some.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses a mapping of the rings.
    pub fn reader(&self) -> Result<TraceReader> {
        let failed = |error: libbpf_rs::Error| Error::map(NAME, "events", "reading", load::os_error(&error));
        let read = Rc::new(RefCell::new((Vec::new(), Vec::new())));
        let mut builder = RingBufferBuilder::new();
        let (events, disturbers) = (Rc::clone(&read), Rc::clone(&read));
        builder
            .add(&self.events, move |bytes: &[u8]| {
                events.borrow_mut().0.extend(TraceEvent::from_bytes(bytes));
                0
            })
            .map_err(failed)?;
        builder
            .add(&self.disturbers, move |bytes: &[u8]| {
                disturbers.borrow_mut().1.extend(TraceDisturber::from_bytes(bytes));
                0
            })
            .map_err(failed)?;
        let ring = builder.build().map_err(failed)?;
        Ok(TraceReader { ring, read })
    }

    /// Events that were lost because the rings were full, since loading.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses the reading.
    pub fn lost(&self) -> Result<u64> {
        let values = self
            .cpus
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| Error::map(NAME, "cpus", "reading", load::os_error(&error)))?
            .unwrap_or_default();
        let lost = |value: &Vec<u8>| {
            let bytes = value.get(event::LOST_AT..event::LOST_AT + 8)?;
            Some(u64::from_ne_bytes(bytes.try_into().ok()?))
        };
        Ok(values.iter().filter_map(lost).sum())
    }
}

/// Reads what was traced.
pub struct TraceReader {
    ring: RingBuffer<'static>,
    read: Rc<RefCell<(Vec<TraceEvent>, Vec<TraceDisturber>)>>,
}

impl fmt::Debug for TraceReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceReader").finish_non_exhaustive()
    }
}

impl TraceReader {
    /// What is there now: points in about the order of time, and what else had a CPU, by its end.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if libbpf refuses the reading.
    pub fn read(&self) -> Result<(Vec<TraceEvent>, Vec<TraceDisturber>)> {
        let count = self.ring.consume_raw();
        if count < 0 {
            let source = std::io::Error::from_raw_os_error(-count);
            return Err(Error::map(NAME, "events", "reading", source));
        }
        Ok(std::mem::take(&mut self.read.borrow_mut()))
    }
}
