//! What a port is opened with.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use ringside_bpf::UserProgram;
use ringside_nic::Interface;
use ringside_xsk::hints::Layouts;
use ringside_xsk::{BusyPoll, Direction, Filter, Mode, Path, Port, Program, QueueOptions};

use crate::boundary::{call, text, text_or_none};
use crate::error::Failure;
use crate::layout::{layout_of, layouts_of, path_of, rsd_layout};

/// Which mode to take.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub enum rsd_mode {
    /// The best that can be had: zero-copy, native copy, generic. The report tells which, and why not a better one.
    RSD_MODE_AUTO = 0,
    /// Native XDP, the NIC reads and writes the frames itself; or an error.
    RSD_MODE_ZERO_COPY = 1,
    /// Native XDP, the kernel copies; or an error.
    RSD_MODE_NATIVE = 2,
    /// Generic XDP, behind the kernel's socket buffer; or an error.
    RSD_MODE_GENERIC = 3,
    /// What a queue that only transmits got: copied by the kernel. Cannot be asked for.
    RSD_MODE_COPY = 4,
}

/// Which way packets go.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub enum rsd_direction {
    /// Receive and transmit.
    RSD_BOTH = 0,
    /// Receive only.
    RSD_RECEIVE = 1,
    /// Transmit only: no XDP program is needed.
    RSD_TRANSMIT = 2,
}

/// How rsd_receive() waits.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub enum rsd_wait {
    /// It sleeps in poll() until a packet comes.
    RSD_WAIT_POLL = 0,
    /// It looks again and again: the lowest latency, a core at 100 %.
    RSD_WAIT_SPIN = 1,
    /// It runs the driver's NAPI poll on this thread again and again (preferred busy-polling, Linux 5.11).
    RSD_WAIT_BUSY_POLL = 2,
}

/// Switches of struct rsd_options.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub enum rsd_flags {
    /// Read what the XDP program puts in front of packets.
    RSD_HINTS = 1,
    /// Packets may be in several frames, as jumbo frames are (Linux 6.6).
    RSD_MULTI_BUFFER = 2,
    /// Frames lie in 2 MiB pages; in normal ones, and the report says so, when there are none.
    RSD_HUGE_PAGES = 4,
    /// Frames of any size from 2048 to 4096 bytes, across the borders of pages.
    RSD_UNALIGNED = 8,
    /// The kernel is woken at every burst instead of when it asks for it.
    RSD_ALWAYS_WAKE = 16,
}

/// What a port is opened with. rsd_options_init() sets all to what is chosen when nothing is asked for, which is 0 or NULL for
/// all but `size`; then set what is to be otherwise. Strings and arrays are not needed any more once the port is open.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct rsd_options {
    /// Bytes of this struct, by which the library tells which version of the header the program was compiled with.
    pub size: u32,
    /// enum rsd_mode.
    pub mode: u32,
    /// The interface's name, in the calling thread's network namespace. The only one that must be given.
    pub interface: *const c_char,
    /// The numbers of the queues to open, or NULL for all that receive.
    pub queues: *const u32,
    /// How many those are.
    pub queue_count: u32,
    /// enum rsd_direction.
    pub direction: u32,
    /// enum rsd_wait.
    pub wait: u32,
    /// enum rsd_flags, or-ed.
    pub flags: u32,
    /// Packets of a burst at the most; 64.
    pub batch: u32,
    /// Bytes of a frame, 2048 to 4096; 2048.
    pub frame_size: u32,
    /// Frames of a queue; 4096, or as many as memory can be locked for; for transmitting only 256.
    /// With zero-copy more: the NIC receives into them, packets for the host too.
    pub frames: u32,
    /// Bytes to leave free in front of a packet in addition to the kernel's 256.
    pub headroom: u32,
    /// Slots of the rings, rounded up to a power of two; chosen by the frames.
    pub rx_ring: u32,
    /// As rx_ring; 256.
    pub tx_ring: u32,
    /// As rx_ring.
    pub fill_ring: u32,
    /// As rx_ring.
    pub completion_ring: u32,
    /// For RSD_WAIT_BUSY_POLL: packets that a poll handles at most, up to 65535; 64.
    pub busy_poll_budget: u32,
    /// For RSD_WAIT_BUSY_POLL: microseconds that a poll may spin for, up to 2147483647; 20.
    pub busy_poll_us: u32,
    /// Nanoseconds without any progress after which sending fails; a second.
    pub stall_timeout_ns: u64,
    /// Nanoseconds for which a queue that is in use is tried again when opening; two seconds, and 30 for one that no socket is bound to.
    pub busy_timeout_ns: u64,
    /// Which packets Ringside's own program takes: "all", "none", "udp:PORT", "echo:PORT",
    /// "ethertype:0xHEX", "wire"; NULL is all. Or terms with commas: "dst:ADDRESS", "src:ADDRESS",
    /// "tcp:PORT", "udp:PORT", "icmp" and "arp". An address may be a prefix ("192.0.2.0/24"), a
    /// port a range ("8000-8099"); terms of one kind are alternatives. ARP and IPv6 neighbour
    /// discovery go to the kernel, except with "wire", and with "arp" those about the dst
    /// addresses, which must not be the host's.
    pub filter: *const c_char,
    /// A BPF object file with an XDP program and an XSKMAP, instead of Ringside's own. A program
    /// that asks the driver about packets (ringside/nic.h) is loaded for this interface alone, and
    /// not for generic mode: Linux 6.3. rsd_port_reopen() does not load it again.
    pub program_file: *const c_char,
    /// The program's name, if that object has several.
    pub program_name: *const c_char,
    /// The descriptor of a loaded XDP program, to be attached instead of Ringside's own, with xsks_map_fd. Both stay the
    /// caller's. 0 is none.
    pub program_fd: i32,
    /// The descriptor of its XSKMAP. Without program_fd the program is one that the caller has attached.
    pub xsks_map_fd: i32,
    /// The mark in the hints of Ringside's own program.
    pub mark: u32,
    /// How many layouts those are.
    pub layout_count: u32,
    /// With RSD_HINTS: structs of hints beside those in the BTF of program_file, which are found by themselves. With program_fd
    /// and xsks_map_fd all of them.
    pub layouts: *const *const rsd_layout,
    /// Packets for which frames wait under steady load, in the copy modes; 1024. An idle or bursty
    /// queue keeps all of its frames waiting, as long as rsd_receive() is called every 10 ms. With
    /// UINT32_MAX all of them wait at all times.
    pub working_set: u32,
    /// Has to be 0.
    pub reserved: u32,
}

const _: () = assert!(size_of::<rsd_options>() == offset_of!(rsd_options, reserved) + size_of::<u32>());

/// Packets of a burst at the most when nothing is said.
const DEFAULT_BATCH: u32 = 64;

/// Sets all options to what is chosen when nothing is asked for. `size` is sizeof(struct rsd_options).
///
/// # Safety
/// `options` is NULL or has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsd_options_init(options: *mut rsd_options, size: usize) -> c_int {
    call(|| {
        if options.is_null() || !options.is_aligned() {
            return Err(Failure::invalid("options is NULL, or not aligned as its type is"));
        }
        let told = u32::try_from(size).ok().filter(|&told| told as usize >= SHORTEST);
        let told = told.ok_or_else(|| wrong_size(size))?;
        // SAFETY: the caller's promise: so many bytes, of which the size is the first.
        unsafe {
            options.cast::<u8>().write_bytes(0, size);
            (&raw mut (*options).size).write(told);
        }
        Ok(0)
    })
}

/// Bytes up to the end of the first version's last option. Later versions only append.
const SHORTEST: usize = offset_of!(rsd_options, layouts) + size_of::<*const c_void>();

/// Options of a version that is not known yet are a mistake as long as they are zero: nothing is asked for by them.
const LONGEST: usize = 4096;

fn wrong_size(size: usize) -> Failure {
    Failure::invalid(format!(
        "options.size is {size}: struct rsd_options has {SHORTEST} bytes or more, call rsd_options_init() first"
    ))
}

/// The options as this version has them.
///
/// # Safety
/// `options` is NULL, or has as many bytes as its `size` says.
pub(crate) unsafe fn read(options: *const rsd_options) -> Result<rsd_options, Failure> {
    if options.is_null() || !options.is_aligned() {
        return Err(Failure::invalid("options is NULL, or not aligned as its type is"));
    }
    // SAFETY: the size is the first of what there is in any version.
    let size = unsafe { (&raw const (*options).size).read() } as usize;
    if !(SHORTEST..=LONGEST).contains(&size) {
        return Err(wrong_size(size));
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(options.cast::<u8>(), size) };
    if let Some(at) = bytes.iter().skip(size_of::<rsd_options>()).position(|&byte| byte != 0) {
        let at = at + size_of::<rsd_options>();
        return Err(Failure::invalid(format!(
            "byte {at} of options is set, which this version of the library has no option for"
        )));
    }
    // SAFETY: zeros are a value of all its members.
    let mut known: rsd_options = unsafe { std::mem::zeroed() };
    // SAFETY: as many bytes as both have.
    unsafe {
        std::ptr::copy_nonoverlapping(
            bytes.as_ptr(),
            (&raw mut known).cast::<u8>(),
            size.min(size_of::<rsd_options>()),
        );
    }
    Ok(known)
}

impl rsd_options {
    /// Opens the port that is asked for.
    ///
    /// # Safety
    /// Each string is NULL or one; each array has as many elements as is said.
    pub(crate) unsafe fn open(&self) -> Result<(Port, Option<Arc<Layouts>>), Failure> {
        // SAFETY: the caller's promise.
        let interface = Interface::by_name(unsafe { text("options.interface", self.interface) }?)?;
        let mut builder = Port::builder(interface.clone()).mode(self.mode()?).mark(self.mark);
        if !self.queues.is_null() {
            if self.queue_count == 0 || !self.queues.is_aligned() {
                return Err(Failure::invalid("options.queues has queue_count 0, or is not aligned"));
            }
            // SAFETY: the caller's promise, and aligned.
            let queues = unsafe { std::slice::from_raw_parts(self.queues, self.queue_count as usize) };
            builder = builder.queues(queues.iter().copied());
        } else if self.queue_count != 0 {
            return Err(Failure::invalid(
                "options.queue_count is set, but options.queues is NULL",
            ));
        }
        // SAFETY: the caller's promise.
        let (program, layouts) = unsafe { self.program(&interface) }?;
        if let Some(program) = program {
            builder = builder.program(program);
        }
        let mut options = self.queue_options()?;
        let layouts = layouts.map(Arc::new);
        if let Some(layouts) = &layouts {
            options = options.hints(Arc::clone(layouts));
        }
        Ok((builder.options(options).open()?, layouts))
    }

    /// Packets of a burst at the most.
    pub(crate) fn most(&self) -> u32 {
        match self.batch {
            0 => DEFAULT_BATCH,
            batch => batch,
        }
    }

    fn mode(&self) -> Result<Mode, Failure> {
        Ok(match self.mode {
            0 => Mode::Auto,
            1 => Mode::Require(Path::ZeroCopy),
            2 => Mode::Require(Path::NativeCopy),
            3 => Mode::Require(Path::Generic),
            mode => return Err(unknown("mode", mode, "rsd_mode")),
        })
    }

    /// How the queues wait.
    pub(crate) fn wait(&self) -> Result<rsd_wait, Failure> {
        Ok(match self.wait {
            0 => rsd_wait::RSD_WAIT_POLL,
            1 => rsd_wait::RSD_WAIT_SPIN,
            2 => rsd_wait::RSD_WAIT_BUSY_POLL,
            wait => return Err(unknown("wait", wait, "rsd_wait")),
        })
    }

    fn has(&self, flag: rsd_flags) -> bool {
        self.flags & flag as u32 != 0
    }

    fn queue_options(&self) -> Result<QueueOptions, Failure> {
        if self.reserved != 0 {
            return Err(Failure::invalid("options.reserved has to be 0"));
        }
        let direction = match self.direction {
            0 => Direction::Both,
            1 => Direction::Receive,
            2 => Direction::Transmit,
            direction => return Err(unknown("direction", direction, "rsd_direction")),
        };
        if self.flags & !0x1f != 0 {
            return Err(unknown("flags", self.flags, "rsd_flags"));
        }
        let mut options = QueueOptions::new()
            .direction(direction)
            .headroom(self.headroom)
            .multi_buffer(self.has(rsd_flags::RSD_MULTI_BUFFER))
            .huge_pages(self.has(rsd_flags::RSD_HUGE_PAGES))
            .unaligned_chunks(self.has(rsd_flags::RSD_UNALIGNED))
            .need_wakeup(!self.has(rsd_flags::RSD_ALWAYS_WAKE));
        let sizes: [(u32, Setter); 8] = [
            (self.most(), QueueOptions::batch),
            (self.frame_size, QueueOptions::frame_size),
            (self.frames, QueueOptions::frames),
            (self.rx_ring, QueueOptions::rx_ring),
            (self.tx_ring, QueueOptions::tx_ring),
            (self.fill_ring, QueueOptions::fill_ring),
            (self.completion_ring, QueueOptions::completion_ring),
            (self.working_set, QueueOptions::working_set),
        ];
        for (size, set) in sizes {
            if size != 0 {
                options = set(options, size);
            }
        }
        if self.stall_timeout_ns != 0 {
            options = options.stall_timeout(Duration::from_nanos(self.stall_timeout_ns));
        }
        if self.busy_timeout_ns != 0 {
            options = options.busy_timeout(Duration::from_nanos(self.busy_timeout_ns));
        }
        let or = |value: u32, default| if value == 0 { default } else { value };
        match self.wait()? {
            rsd_wait::RSD_WAIT_BUSY_POLL => {
                options = options.busy_poll(BusyPoll {
                    budget: or(self.busy_poll_budget, 64),
                    micros: or(self.busy_poll_us, 20),
                });
            }
            _ if self.busy_poll_budget != 0 || self.busy_poll_us != 0 => {
                return Err(Failure::invalid(
                    "options.busy_poll_budget and busy_poll_us are for wait = RSD_WAIT_BUSY_POLL",
                ));
            }
            _ => {}
        }
        Ok(options)
    }

    /// The XDP program, none for the one that is taken when nothing is said, and the structs of hints in front of its packets.
    ///
    /// # Safety
    /// As [`open`](Self::open).
    unsafe fn program(&self, interface: &Interface) -> Result<(Option<Program>, Option<Layouts>), Failure> {
        // SAFETY: the caller's promise.
        let (filter, name) = unsafe {
            (
                text_or_none("options.filter", self.filter)?,
                text_or_none("options.program_name", self.program_name)?,
            )
        };
        let by_fd = self.xsks_map_fd != 0 || self.program_fd != 0;
        let by_file = !self.program_file.is_null();
        if u32::from(by_fd) + u32::from(by_file) + u32::from(filter.is_some()) > 1 {
            return Err(Failure::invalid(
                "only one of options.filter, program_file and program_fd/xsks_map_fd can be given",
            ));
        }
        if name.is_some() && !by_file {
            return Err(Failure::invalid("options.program_name is for options.program_file"));
        }
        let mut layouts = None;
        let program = if by_file {
            // SAFETY: the caller's promise.
            let file = unsafe { path_of("options.program_file", self.program_file) }?;
            let multi_buffer = self.has(rsd_flags::RSD_MULTI_BUFFER);
            let (queues, device) = (interface.rx_queues()?, interface.index());
            let loaded = UserProgram::load_on(file, name, queues, multi_buffer, device)?;
            if self.has(rsd_flags::RSD_HINTS) {
                layouts = Some(layouts_of(loaded.object())?);
            }
            let (program, xsks_map) = loaded.into_fds();
            Some(Program::Custom { program, xsks_map })
        } else if by_fd {
            let xsks_map = duplicate("options.xsks_map_fd", self.xsks_map_fd)?;
            layouts = Some(Layouts::new());
            Some(match self.program_fd {
                0 => Program::Attached { xsks_map },
                program => Program::Custom {
                    program: duplicate("options.program_fd", program)?,
                    xsks_map,
                },
            })
        } else {
            layouts = Some(Layouts::ringside().0);
            filter
                .map(|filter| filter.parse::<Filter>())
                .transpose()
                .map_err(|error| Failure::invalid(format!("options.filter: {error}")))?
                .map(Program::Ringside)
        };
        // SAFETY: the caller's promise.
        let layouts = unsafe { self.with_more(layouts) }?;
        Ok((program, layouts))
    }

    /// With the caller's own layouts; none without `RSD_HINTS`.
    ///
    /// # Safety
    /// As [`open`](Self::open).
    unsafe fn with_more(&self, layouts: Option<Layouts>) -> Result<Option<Layouts>, Failure> {
        let hints = self.has(rsd_flags::RSD_HINTS);
        if self.layout_count != 0 && (self.layouts.is_null() || !self.layouts.is_aligned() || !hints) {
            return Err(Failure::invalid(
                "options.layout_count is set, but options.layouts is NULL or flags are without RSD_HINTS",
            ));
        }
        let Some(mut layouts) = layouts.filter(|_| hints) else {
            return Ok(None);
        };
        for at in 0..self.layout_count as usize {
            // SAFETY: the caller's promise.
            let layout = unsafe { self.layouts.add(at).read() };
            layouts.insert((*layout_of(layout)?).clone())?;
        }
        if layouts.is_empty() {
            return Err(Failure::invalid(
                "RSD_HINTS: the program's BTF has no struct of hints (one ends with `__u32 btf_id`), and options.layouts names none",
            ));
        }
        Ok(Some(layouts))
    }
}

/// What takes a size in.
type Setter = fn(QueueOptions, u32) -> QueueOptions;

fn unknown(option: &str, value: u32, kind: &str) -> Failure {
    Failure::invalid(format!(
        "options.{option} = {value}: no value of enum {kind} that can be asked for"
    ))
}

/// A descriptor of our own for what the caller's stands for.
fn duplicate(option: &str, fd: i32) -> Result<OwnedFd, Failure> {
    let failed = |what: String| Failure::invalid(format!("{option} = {fd}: {what}"));
    if fd <= 0 {
        return Err(failed("no descriptor".into()));
    }
    // SAFETY: not -1; it is used for this call alone, and one that is not open is an error of it.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    fd.try_clone_to_owned().map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_first_version_and_of_this_one_are_read() {
        let bytes = u32::try_from(size_of::<rsd_options>()).unwrap();
        let first = u32::try_from(SHORTEST).unwrap();
        for (size, is_read) in [(first, false), (bytes, true)] {
            // SAFETY: zeros are a value of all members.
            let mut options: rsd_options = unsafe { std::mem::zeroed() };
            (options.size, options.working_set) = (size, 512);
            // SAFETY: a struct of this version has as many bytes as both sizes say.
            let read = unsafe { read(&raw const options) }.unwrap();
            let found = format!("{:?}", read.queue_options().unwrap());
            assert_eq!(found.contains("512"), is_read, "{found}");
        }
    }
}
