//! Making packets in the kernel, faster than any socket can send.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::error::{Error, Result, interface_name};
use crate::skel::generate::GenerateSkelBuilder;
use crate::{load, sys};

mod template;

use template::Plan;

const NAME: &str = "ringside_gen";

/// A run should have many frames, since about 24 ms pass between two; but once it is told to
/// stop, the kernel still steps through the rest of them, at some 20 ns each.
const FRAMES_PER_RUN: u32 = 1 << 20;

/// How many frames are tried before the rate is known.
const FIRST_RUN: u32 = 1 << 17;

/// How often the stop flag of [`Generator::run_for`] is looked at.
const STOP_POLL: Duration = Duration::from_millis(10);

/// How frames differ from the template, and from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GeneratorOptions {
    /// Where in the frame, in bytes from the start of the Ethernet header, each frame has its
    /// number as 64 bits, big endian. A UDP checksum that covers it is kept right; over IPv4 a
    /// checksum of 0 stays 0. `None`: all frames are the template.
    pub sequence_offset: Option<usize>,
    /// Where a checksum is, in bytes from the start of the Ethernet header, that covers the number
    /// and is kept right in place of UDP's: one of a tunnel's inner packet. It has to be right in
    /// the template.
    pub checksum_offset: Option<usize>,
    /// The first frame's number.
    pub first_sequence: u64,
    /// The lowest so many bits of the numbers jump about, through all their values before one comes again, instead of counting;
    /// the others stay what they are in the first. For frames to many receivers. 0: numbers count.
    pub scattered_bits: u32,
    /// How many bytes at the frame's start are written anew for each frame, at most 128. Frames
    /// are recycled with what a receiver in the kernel has written into them, for instance with
    /// swapped addresses.
    pub rewrite: usize,
}

impl Default for GeneratorOptions {
    fn default() -> Self {
        Self {
            sequence_offset: None,
            checksum_offset: None,
            first_sequence: 0,
            scattered_bits: 0,
            rewrite: 64,
        }
    }
}

/// What became of the frames of one or more runs.
/// `offered = transmitted + dropped + refused`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Sent {
    /// Frames handed over to be sent out of the interface.
    pub offered: u64,
    /// Frames that the driver took. On a veth they are then in the peer's receive ring.
    pub transmitted: u64,
    /// Frames that the driver was given and did not take, mostly because its ring was full.
    pub dropped: u64,
    /// Frames that never came to the driver: the interface was down, or could not take them.
    pub refused: u64,
    /// Time spent sending, with what the kernel needs to begin and to end.
    pub elapsed: Duration,
}

impl Sent {
    /// Frames transmitted per second of elapsed time.
    pub fn rate(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 {
            self.transmitted as f64 / seconds
        } else {
            0.0
        }
    }
}

impl std::ops::Add for Sent {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            offered: self.offered + other.offered,
            transmitted: self.transmitted + other.transmitted,
            dropped: self.dropped + other.dropped,
            refused: self.refused + other.refused,
            elapsed: self.elapsed + other.elapsed,
        }
    }
}

/// Sends frames out of an interface from inside the kernel: no socket, no copy.
///
/// The calling thread does the work, on the CPU that it runs on; pin it. A veth puts the frames in
/// the receive queue of its peer that has the number of this CPU, modulo the number of queues.
/// The peer takes frames only while it has an XDP program attached natively, or GRO on.
///
/// Needs kernel 5.18 and BTF of the running kernel, and CAP_BPF, CAP_NET_ADMIN and
/// CAP_PERFMON, or root.
///
/// ```no_run
/// use std::sync::atomic::AtomicBool;
/// use std::time::Duration;
/// use ringside_bpf::{Generator, GeneratorOptions};
///
/// # let frame = [0; 60];
/// let mut generator = Generator::new(7, &frame, GeneratorOptions::default())?;
/// let sent = generator.run_for(Duration::from_secs(1), &AtomicBool::new(false))?;
/// println!("{} of {} frames taken", sent.transmitted, sent.offered);
/// # Ok::<(), ringside_bpf::Error>(())
/// ```
#[derive(Debug)]
#[doc(alias = "BPF_F_TEST_XDP_LIVE_FRAMES")]
pub struct Generator {
    program: OwnedFd,
    progress: MapHandle,
    stop: MapHandle,
    template: Vec<u8>,
    /// Name of the interface, by the namespace in which the generator was made.
    interface: String,
    sequence: u64,
    /// Counts what leaves; detached with the generator.
    _observer: Link,
}

impl Generator {
    /// Prepares sending copies of `template`, which begins with its Ethernet header, out of the
    /// interface `out_ifindex` of the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the template is shorter than 14 bytes or longer than 3400, or the
    /// options do not fit it; [`Error::Load`] if the kernel refuses the programs;
    /// [`Error::Attach`] if there is no such interface.
    pub fn new(out_ifindex: u32, template: &[u8], options: GeneratorOptions) -> Result<Self> {
        let plan = Plan::new(template, &options).map_err(|what| Error::invalid(NAME, what))?;
        let mut storage = MaybeUninit::uninit();
        let skel = load::capture(NAME, || {
            let mut open = GenerateSkelBuilder::default().open(&mut storage)?;
            let constants = open
                .maps
                .rodata_data
                .as_deref_mut()
                .expect("generate.bpf.c has constants");
            constants.out_ifindex = out_ifindex;
            constants.head = plan.head;
            constants.head_words = plan.head_words;
            constants.sequence_offset = plan.sequence_offset;
            let scattered = (1_u64.checked_shl(options.scattered_bits)).map_or(u64::MAX, |bit| bit - 1);
            constants.scattered_bits = scattered;
            constants.scattered_base = options.first_sequence & !scattered;
            constants.checksum_offset = plan.checksum_offset;
            constants.base_sum = plan.base_sum;
            open.load()
        })?;
        skel.maps
            .out
            .update(&0u32.to_ne_bytes(), &out_ifindex.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| Error::Attach {
                program: NAME,
                hook: "frames sent to it",
                interface: interface_name(out_ifindex),
                source: load::os_error(&error),
            })?;
        Ok(Self {
            program: load::own(NAME, &skel.progs.ringside_gen)?,
            progress: load::own_map(NAME, &skel.maps.progress)?,
            stop: load::own_map(NAME, &skel.maps.stop)?,
            template: template.to_vec(),
            interface: interface_name(out_ifindex),
            sequence: options.first_sequence,
            _observer: load::capture(NAME, || skel.progs.ringside_sent.attach())?,
        })
    }

    /// The number that the next frame will have.
    pub fn next_sequence(&self) -> u64 {
        self.sequence
    }

    /// Sends `packets` frames as fast as the interface is offered them, and returns when that is
    /// done: millions a second on a veth, up to some ten.
    ///
    /// # Errors
    ///
    /// [`Error::NotTaken`] if the interface took none of them, [`Error::Run`] if the kernel refuses
    /// to run the generator.
    pub fn run(&mut self, packets: u64) -> Result<Sent> {
        self.release()?;
        let mut sent = Sent::default();
        while sent.offered < packets {
            let frames = u32::try_from(packets - sent.offered).unwrap_or(u32::MAX);
            sent = sent + self.step(frames.min(FRAMES_PER_RUN), None)?.0;
        }
        Ok(sent)
    }

    /// Sends frames until `duration` is over or `stop` is set, and returns within about 50 ms of
    /// that.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_for(&mut self, duration: Duration, stop: &AtomicBool) -> Result<Sent> {
        self.release()?;
        let deadline = Instant::now() + duration;
        let ended = AtomicBool::new(false);
        let stop_map = MapHandle::try_from(&self.stop)
            .map_err(|error| Error::map(NAME, "stop", "writing", load::os_error(&error)))?;
        // The thread below is in the kernel all the time: somebody else has to carry the message.
        thread::scope(|scope| {
            let messenger = scope.spawn(|| {
                while !ended.load(Ordering::Acquire) {
                    if stop.load(Ordering::Acquire) {
                        return write_stop(&stop_map, true);
                    }
                    thread::park_timeout(STOP_POLL);
                }
                Ok(())
            });
            let result = self.run_until(deadline, stop);
            ended.store(true, Ordering::Release);
            messenger.thread().unpark();
            let told = messenger.join().unwrap_or(Ok(()));
            result.and_then(|sent| told.map(|()| sent))
        })
    }

    fn run_until(&mut self, deadline: Instant, stop: &AtomicBool) -> Result<Sent> {
        let mut sent = Sent::default();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || stop.load(Ordering::Acquire) {
                return Ok(sent);
            }
            let (more, over) = self.step(frames_until(left, sent), Some(left))?;
            sent = sent + more;
            if over {
                return Ok(sent);
            }
        }
    }

    fn release(&self) -> Result<()> {
        write_stop(&self.stop, false)
    }

    /// One call into the kernel. Also tells whether the program saw the deadline or the stop.
    fn step(&mut self, frames: u32, left: Option<Duration>) -> Result<(Sent, bool)> {
        let begin = Instant::now();
        let deadline = match left {
            Some(left) => monotonic_ns().saturating_add(nanoseconds(left)).max(1),
            None => 0,
        };
        Progress {
            sequence: self.sequence,
            deadline,
            ..Default::default()
        }
        .write(&self.progress)?;
        let run = sys::TestRun {
            packet: &self.template,
            repeat: frames,
            flags: BPF_F_TEST_XDP_LIVE_FRAMES,
            batch: BATCH,
            ..Default::default()
        };
        let ran = sys::test_run(self.program.as_fd(), run);
        let after = Progress::read(&self.progress)?;
        self.sequence = after.sequence;
        let complete = match ran {
            Ok(_) => true,
            // A signal ends the run early; what was sent until then is counted, and the caller goes on.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => false,
            Err(source) => {
                let what = format!("{frames} live frames");
                return Err(Error::Run { what, source });
            }
        };
        let taken = after.transmitted + after.dropped;
        let sent = Sent {
            offered: after.redirected,
            transmitted: after.transmitted,
            dropped: after.dropped,
            refused: after.redirected.saturating_sub(taken),
            elapsed: begin.elapsed(),
        };
        let over = after.over != 0;
        // A driver with a full ring drops without an error, which is no reason to give up.
        let unwilling = sent.transmitted == 0 && (sent.dropped == 0 || after.error != 0);
        if unwilling && complete && !over {
            return Err(Error::NotTaken {
                interface: self.interface.clone(),
                offered: u64::from(frames),
                errno: i32::try_from(after.error).ok().filter(|&errno| errno != 0),
            });
        }
        Ok((sent, over))
    }
}

/// Frames that the kernel prepares at a time; 256 is its limit.
/// <https://elixir.bootlin.com/linux/v6.18/source/net/bpf/test_run.c#L97>
const BATCH: u32 = 64;

/// About as many frames as can be sent in the time `left`, so that few are stepped through in vain.
fn frames_until(left: Duration, sent: Sent) -> u32 {
    let seconds = sent.elapsed.as_secs_f64();
    if seconds <= 0.0 {
        return FIRST_RUN;
    }
    let expected = sent.offered as f64 / seconds * left.as_secs_f64() * 1.1;
    // `as` saturates, and there is no negative rate.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "see above")]
    let frames = expected as u32;
    frames.clamp(BATCH, FRAMES_PER_RUN)
}

/// `struct progress` of generate.bpf.c.
#[derive(Debug, Default)]
struct Progress {
    sequence: u64,
    redirected: u64,
    deadline: u64,
    over: u64,
    transmitted: u64,
    dropped: u64,
    error: u64,
}

impl Progress {
    fn write(&self, map: &MapHandle) -> Result<()> {
        let words = [self.sequence, 0, 0, self.deadline, 0, 0, 0, 0, 0, 0];
        let bytes: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_ne_bytes()).collect();
        map.update(&0u32.to_ne_bytes(), &bytes, MapFlags::ANY)
            .map_err(|error| Error::map(NAME, "progress", "writing", load::os_error(&error)))
    }

    fn read(map: &MapHandle) -> Result<Self> {
        let bytes = map
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| Error::map(NAME, "progress", "reading", load::os_error(&error)))?
            .unwrap_or_default();
        let mut words = [0; 10];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        let [
            sequence,
            redirected,
            _skipped,
            deadline,
            over,
            _task,
            transmitted,
            dropped,
            _failed,
            error,
        ] = words;
        Ok(Self {
            sequence,
            redirected,
            deadline,
            over,
            transmitted,
            dropped,
            error,
        })
    }
}

fn write_stop(map: &MapHandle, stopped: bool) -> Result<()> {
    map.update(&0u32.to_ne_bytes(), &u64::from(stopped).to_ne_bytes(), MapFlags::ANY)
        .map_err(|error| Error::map(NAME, "stop", "writing", load::os_error(&error)))
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The clock of `bpf_ktime_get_ns()`.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is ever negative: the clock starts at 0 with the machine.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
