//! What the tracing programs tell: the layouts of `include/trace.h` and `trace.bpf.c`.

/// A probe passed a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceEvent {
    /// When, in nanoseconds of CLOCK_MONOTONIC.
    pub ns: u64,
    /// Number of the probe; of a packet that nobody looked into ([`kind`](Self::kind) 0) the time when it was given to an XDP
    /// socket, or 0.
    pub sequence: u64,
    /// Of queue and transmit: when it was to be sent, and when it was. Of driver, stack, socket, and what XDP has put in a TAP device's ring: when the soft interrupt was
    /// asked for, and when it began. Of waking and running, and of tasks that are watched: the task's number. Of ready, and of copy with [`kind`](Self::kind)
    /// 0: which socket, a number that is its own while it is open. 0 where it is not known.
    pub extra: [u64; 2],
    /// Session of the probe.
    pub session: u32,
    /// Inode of the interface's network namespace; 0 where it is not known.
    pub namespace: u32,
    /// The interface's index in it; 0 where it is not known.
    pub interface: u32,
    /// The CPU.
    pub cpu: u16,
    /// Which point: `ringside_measure::trace::Point` counted from 0; or what was done with a task that is watched:
    /// [`TASK_WOKEN`](Self::TASK_WOKEN) and the others.
    pub point: u8,
    /// 1 for a request, 2 for a reply; 0: a packet that nobody looked into.
    pub kind: u8,
}

/// Something had a CPU for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceDisturber {
    /// Since then, in nanoseconds of CLOCK_MONOTONIC.
    pub from_ns: u64,
    /// Until then.
    pub to_ns: u64,
    /// The interrupt's number, the soft interrupt's, the task's; the idle state.
    pub id: u32,
    /// The CPU.
    pub cpu: u16,
    /// 0: an interrupt; 1: one that is no device's; 2: a soft interrupt; 3: a task; 4: the CPU slept.
    pub kind: u8,
    /// The task's name or the interrupt's; empty for the others.
    pub name: String,
}

/// Where `lost` stands in `struct here`.
pub(super) const LOST_AT: usize = 0;

impl TraceEvent {
    /// A task that is watched is to run.
    pub const TASK_WOKEN: u8 = 64;
    /// It gets a CPU.
    pub const TASK_ON: u8 = 65;
    /// It is off its CPU.
    pub const TASK_OFF: u8 = 66;

    /// `struct event`
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 48] = bytes.get(..48)?.try_into().ok()?;
        Some(Self {
            ns: long(bytes, 0)?,
            sequence: long(bytes, 8)?,
            extra: [long(bytes, 16)?, long(bytes, 24)?],
            session: word(bytes, 32)?,
            namespace: word(bytes, 36)?,
            interface: word(bytes, 40)?,
            cpu: u16::from_ne_bytes([bytes[44], bytes[45]]),
            point: bytes[46],
            kind: bytes[47],
        })
    }
}

impl TraceDisturber {
    /// `struct disturber`
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 40] = bytes.get(..40)?.try_into().ok()?;
        let name = bytes[24..].split(|byte| *byte == 0).next().unwrap_or_default();
        Some(Self {
            from_ns: long(bytes, 0)?,
            to_ns: long(bytes, 8)?,
            id: word(bytes, 16)?,
            cpu: u16::from_ne_bytes([bytes[20], bytes[21]]),
            kind: bytes[22],
            name: String::from_utf8_lossy(name).into_owned(),
        })
    }
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;
