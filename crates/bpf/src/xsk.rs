//! Steering packets into AF_XDP sockets.

mod variant;

use std::io;
use std::ops::{Add, AddAssign, Sub};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::MapHandle;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::filter::Filter;
use crate::load;

pub(crate) use self::variant::DEVICE_BOUND;
use self::variant::{Access, NAME, NIC_NAME, Wanted};

/// The XDP program that steers packets into the sockets of an interface, loaded.
///
/// It works attached natively and generically. Packets that the [`Filter`] does not want, that
/// contradict themselves, or whose queue has no socket go up to the kernel's stack and are counted;
/// ARP and IPv6 neighbour discovery go up, except with [`Filter::Wire`] and
/// [`PacketMatch::arp`](crate::PacketMatch::arp).
///
/// Attaching it and filling the XSKMAP is the owner's work, through the two descriptors. Packets in
/// several frames (multi-buffer, Linux 6.6) need a program that was loaded for them
/// ([`load_multi_buffer`](Self::load_multi_buffer)). With another one the kernel refuses to attach
/// it, or clamps the MTU, where a frame may exceed a page.
///
/// Needs kernel 5.9 or newer and CAP_BPF with CAP_NET_ADMIN, or root; before kernel 5.18 CAP_PERFMON too. With
/// CAP_PERFMON it is some nanoseconds per packet faster, for without it the kernel puts speculation barriers into every
/// program: [`name`](Self::name) tells which it is. Both treat each packet alike.
///
/// ```no_run
/// use ringside_bpf::{Filter, XskProgram};
///
/// let program = XskProgram::load(4, Filter::UdpPort(4789))?;
/// println!("program {} ({})", program.id(), program.name());
/// println!("{:?}", program.counters(0)?);
/// # Ok::<(), ringside_bpf::Error>(())
/// ```
#[derive(Debug)]
pub struct XskProgram {
    program: OwnedFd,
    xsks_map: OwnedFd,
    counters: MapHandle,
    id: u32,
    name: &'static str,
    queues: u32,
    filter: Filter,
    multi_buffer: bool,
    hints: Option<XskHints>,
    device: Option<u32>,
}

/// The object file of [`XskProgram`]: in its BTF is `struct ringside_rx`, the hints of
/// [`load_with_hints`](XskProgram::load_with_hints).
pub const XSK_OBJECT: &[u8] = include_bytes!(concat!(env!("RINGSIDE_BPF_OBJECTS"), "/xsk.o"));

/// The object file of [`XskProgram::load_for_device`]: in its BTF are both `struct ringside_rx` and `struct ringside_nic`.
pub const XSK_NIC_OBJECT: &[u8] = include_bytes!(concat!(env!("RINGSIDE_BPF_OBJECTS"), "/xsk_nic.o"));

/// The hints that [`XskProgram`] puts in front of packets for sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XskHints {
    /// The id that each has: that of `struct ringside_rx` in the BTF of [`XSK_OBJECT`]. Not 0.
    pub id: u32,
    /// The mark that each has.
    pub mark: u32,
}

/// The hints of a NIC's driver, which [`XskProgram::load_for_device`] puts in front of packets for sockets, with what
/// [`XskHints`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NicHints {
    /// The index of the device, in the calling thread's network namespace.
    pub device: u32,
    /// The id that each has: that of `struct ringside_nic` in the BTF of [`XSK_NIC_OBJECT`]. Not 0.
    pub id: u32,
}

/// `BPF_F_XDP_HAS_FRAGS`
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/bpf.h#L1247>
pub(crate) const HAS_FRAGS: u32 = 1 << 5;

impl XskProgram {
    /// Loads the program for an interface with `queues` receive queues.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if `queues` is 0 or the filter can never match anything,
    /// [`Error::Load`] if the kernel refuses the program or its maps.
    pub fn load(queues: u32, filter: Filter) -> Result<Self> {
        Self::load_for(&Wanted::any(queues, filter))
    }

    /// As [`load`](Self::load), for packets that may be in several buffers (`BPF_F_XDP_HAS_FRAGS`): jumbo frames. The
    /// sockets have to be bound with `XDP_USE_SG`. Linux 6.6.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    pub fn load_multi_buffer(queues: u32, filter: Filter) -> Result<Self> {
        Self::load_for(&Wanted {
            multi_buffer: true,
            ..Wanted::any(queues, filter)
        })
    }

    /// As [`load`](Self::load) or [`load_multi_buffer`](Self::load_multi_buffer), and with hints in front of the packets that
    /// go to sockets: time (CLOCK_MONOTONIC), number, CPU, queue and a mark, 32 bytes. Where the driver has no room for
    /// metadata, packets go without.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load); [`Error::Invalid`] for an id of 0.
    pub fn load_with_hints(queues: u32, filter: Filter, multi_buffer: bool, hints: XskHints) -> Result<Self> {
        if hints.id == 0 {
            return Err(Error::invalid(NAME, "an id of 0 stands for no hints"));
        }
        Self::load_for(&Wanted {
            multi_buffer,
            hints: Some(hints),
            ..Wanted::any(queues, filter)
        })
    }

    /// As [`load_with_hints`](Self::load_with_hints), for one device alone, whose driver is asked about each packet for a
    /// socket: [`NicHints`], or where the driver has less room the usual hints. It can only be attached to that device, and
    /// natively. Linux 6.8.
    ///
    /// # Errors
    ///
    /// As [`load_with_hints`](Self::load_with_hints); the kernel also refuses drivers that tell nothing.
    #[doc(alias = "BPF_F_XDP_DEV_BOUND_ONLY")]
    pub fn load_for_device(
        queues: u32,
        filter: Filter,
        multi_buffer: bool,
        hints: XskHints,
        nic: NicHints,
    ) -> Result<Self> {
        if hints.id == 0 || nic.id == 0 || nic.id == hints.id {
            return Err(Error::invalid(
                NIC_NAME,
                "each struct of hints needs an id of its own, not 0",
            ));
        }
        Self::load_for(&Wanted {
            queues,
            filter,
            multi_buffer,
            hints: Some(hints),
            nic: Some(nic),
            maps: None,
        })
    }

    /// The same for any device, with the same maps: what was counted goes on, and the sockets in the XSKMAP are reached by
    /// both. With the hints of [`load_with_hints`](Self::load_with_hints), if it had any.
    ///
    /// # Errors
    ///
    /// As [`load_with_hints`](Self::load_with_hints).
    pub fn for_any_device(&self) -> Result<Self> {
        Self::load_for(&Wanted {
            queues: self.queues,
            filter: self.filter,
            multi_buffer: self.multi_buffer,
            hints: self.hints,
            nic: None,
            maps: Some((self.xsks_map.as_fd(), self.counters.as_fd())),
        })
    }

    fn load_for(wanted: &Wanted<'_>) -> Result<Self> {
        let Wanted { queues, filter, .. } = *wanted;
        // The counters have one entry more than there are queues.
        if queues == 0 || queues == u32::MAX {
            return Err(Error::invalid(
                NAME,
                format!("an interface cannot have {queues} queues"),
            ));
        }
        filter
            .check()
            .map_err(|why| Error::invalid(NAME, format!("filter {filter}: {why}")))?;

        // The helpers see a packet's buffers as one.
        if wanted.multi_buffer {
            return wanted.load(Access::ByHelper);
        }
        // Which one the kernel takes, only the kernel knows: capabilities, its version and its mitigations decide.
        wanted.load(Access::ByPointer).or_else(|first| match first {
            Error::Load { program, source, log } if source.kind() == io::ErrorKind::PermissionDenied => {
                wanted.load(Access::ByHelper).map_err(|second| Error::Load {
                    program,
                    source,
                    log: format!("{log}\n  {second}"),
                })
            }
            other => Err(other),
        })
    }

    /// The program, to be attached to an interface as an XDP program.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// The XSKMAP: key queue index, value socket, both 32 bits; as many entries as queues.
    pub fn xsks_map(&self) -> BorrowedFd<'_> {
        self.xsks_map.as_fd()
    }

    /// The program's id, as `bpftool prog` shows it.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The program's name in the kernel: "ringside_xsk", or for one device "ringside_xsk_n"; without CAP_PERFMON, and for
    /// packets in several buffers, "ringside_xsk_h" or "ringside_xsk_nh".
    pub fn name(&self) -> &str {
        self.name
    }

    /// The index of the device that it was loaded for, if it was for one.
    pub fn device(&self) -> Option<u32> {
        self.device
    }

    /// The number of queues that it was loaded for.
    pub fn queues(&self) -> u32 {
        self.queues
    }

    /// What it steers into sockets.
    pub fn filter(&self) -> Filter {
        self.filter
    }

    /// What happened to the packets of one queue since loading, summed over the CPUs.
    ///
    /// The CPUs are read one after the other while packets come in, so the fields of one reading
    /// may be a few packets apart.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the interface had no such queue when the program was loaded,
    /// [`Error::Map`] if the kernel refuses the reading.
    pub fn counters(&self, queue: u32) -> Result<QueueCounters> {
        counters(self.name, &self.counters, self.queues, queue)
    }

    /// The counters by themselves, for who looks at them from another thread. They may outlive the program, and then say what
    /// it had counted.
    ///
    /// # Errors
    ///
    /// [`Error::Load`] when the process may open no more files.
    pub fn counter_reader(&self) -> Result<XskCounters> {
        let counters = MapHandle::try_from(&self.counters).map_err(|error| Error::Load {
            program: self.name,
            source: load::os_error(&error),
            log: String::new(),
        })?;
        Ok(XskCounters {
            name: self.name,
            counters,
            queues: self.queues,
        })
    }

    /// What happened to packets on queues that appeared after loading. They have no place in the
    /// XSKMAP, so all of them went up to the kernel.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses the reading.
    pub fn counters_elsewhere(&self) -> Result<QueueCounters> {
        load::sum_per_cpu(self.name, "counters", &self.counters, self.queues).map(QueueCounters::from_words)
    }
}

/// The counters of an [`XskProgram`], to be read from wherever one likes.
#[derive(Debug)]
pub struct XskCounters {
    name: &'static str,
    counters: MapHandle,
    queues: u32,
}

impl XskCounters {
    /// The number of queues that the program was loaded for.
    pub fn queues(&self) -> u32 {
        self.queues
    }

    /// As [`XskProgram::counters`].
    ///
    /// # Errors
    ///
    /// As [`XskProgram::counters`].
    pub fn of(&self, queue: u32) -> Result<QueueCounters> {
        counters(self.name, &self.counters, self.queues, queue)
    }
}

fn counters(name: &'static str, map: &MapHandle, queues: u32, queue: u32) -> Result<QueueCounters> {
    if queue >= queues {
        return Err(Error::invalid(
            name,
            format!("there is no queue {queue}, only 0 to {}", queues - 1),
        ));
    }
    load::sum_per_cpu(name, "counters", map, queue).map(QueueCounters::from_words)
}

/// What an [`XskProgram`] did with the packets of one queue. All are packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct QueueCounters {
    /// Handed to the socket of the queue. Whether the socket had room is in its own statistics.
    pub redirected: u64,
    /// Passed up because the filter does not want them.
    pub passed_filter: u64,
    /// Passed up because they are ARP or IPv6 neighbour discovery.
    pub passed_neighbour: u64,
    /// Passed up although wanted, because the queue has no socket.
    pub passed_unbound: u64,
    /// Passed up because they are too short for what they claim to be, or contradict themselves.
    pub passed_malformed: u64,
}

impl QueueCounters {
    /// All packets that the program saw.
    pub fn packets(&self) -> u64 {
        self.redirected + self.passed()
    }

    /// All packets that went up to the kernel's stack.
    pub fn passed(&self) -> u64 {
        self.passed_filter + self.passed_neighbour + self.passed_unbound + self.passed_malformed
    }

    /// In the order of `struct queue_counters` in xsk.bpf.c.
    fn from_words(words: [u64; 5]) -> Self {
        let [
            redirected,
            passed_filter,
            passed_neighbour,
            passed_unbound,
            passed_malformed,
        ] = words;
        Self {
            redirected,
            passed_filter,
            passed_neighbour,
            passed_unbound,
            passed_malformed,
        }
    }

    fn words(self) -> [u64; 5] {
        [
            self.redirected,
            self.passed_filter,
            self.passed_neighbour,
            self.passed_unbound,
            self.passed_malformed,
        ]
    }

    fn zip(self, other: Self, operation: impl Fn(u64, u64) -> u64) -> Self {
        let (a, b) = (self.words(), other.words());
        Self::from_words(std::array::from_fn(|i| operation(a[i], b[i])))
    }
}

impl Add for QueueCounters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.zip(other, u64::wrapping_add)
    }
}

impl AddAssign for QueueCounters {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// What was counted between two readings: `later - earlier`.
impl Sub for QueueCounters {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        self.zip(earlier, u64::wrapping_sub)
    }
}

impl std::iter::Sum for QueueCounters {
    fn sum<I: Iterator<Item = Self>>(counters: I) -> Self {
        counters.fold(Self::default(), Self::add)
    }
}
