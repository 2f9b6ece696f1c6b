//! The workers' sockets: each worker has some queues of each interface.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ringside_bpf::XdpMode;
use ringside_bpf::gateway::GatewayProgram;
use ringside_nic::Interface;
use ringside_xsk::{Error, Mode, Path as Way, Port, Program, QueueOptions, SharedUmem};

use super::BURST;
use super::options::PathOptions;
use super::ports::Ports;

/// What one worker has: of each interface some queues, with the interface's number. With several interfaces all of them are on
/// one UMEM, so that a packet leaves by another one without a copy.
pub(super) type Share = Vec<(u8, Port)>;

/// Frames of a queue at the least. More than fit the CPU's cache, and they cost a few hundredths of the packets that a worker can
/// take; but whoever shares its CPU keeps it waiting for milliseconds, and what finds no frame by then is lost: with the
/// library's 512, up to a quarter of a TCP sender's segments.
const LEAST_FRAMES: u32 = 4096;

/// What the frames of a UMEM are like.
#[derive(Debug, Clone, Copy)]
struct Frames {
    /// Bytes; none for what the library takes: 2048, or 4096 where the NIC needs them for zero-copy.
    size: Option<u32>,
    /// A packet may be in several.
    several: bool,
}

/// The smallest first, for they have to fit the CPU's cache.
const FRAMES: [Frames; 3] = [
    Frames {
        size: None,
        several: false,
    },
    Frames {
        size: Some(4096),
        several: false,
    },
    Frames {
        size: None,
        several: true,
    },
];

/// Opens all queues of the interfaces that are up, shared out among the workers. By their numbers, in which modes the program is attached.
///
/// Retries a busy queue for `busy_timeout`, or for the library's default.
pub(super) fn open(
    options: &PathOptions,
    ports: &Ports,
    modes: &[Option<XdpMode>],
    program: &GatewayProgram,
    busy_timeout: Option<Duration>,
) -> Result<Vec<Share>> {
    let ports = &ports.up()?;
    let mode = |(number, _)| *modes.get(usize::from(number))?;
    let attached: Vec<XdpMode> = ports.iter().filter_map(mode).collect();
    let room = program.sizes().queues;
    let queues = ports.all().map(|(_, _, interface)| match interface {
        Some(interface) => Ok(interface.rx_queues()?.min(room)),
        None => Ok(0),
    });
    let queues: Vec<u32> = queues.collect::<Result<_>>()?;
    // Each worker has to be able to send by each interface.
    let most = queues.iter().copied().filter(|queues| *queues != 0).min().unwrap_or(0);
    let wanted = u32::try_from(options.workers).unwrap_or(u32::MAX);
    if wanted > most && ports.len() > 1 {
        tracing::warn!(wanted, workers = most, "each worker needs a queue of each interface");
    }
    let opening = Opening {
        ports,
        attached: &attached,
        program,
        queues,
        workers: wanted.min(most),
        busy_timeout,
    };
    let modes: &[Mode] = match options.mode {
        // What shares a UMEM is zero-copy or copies, all of it.
        Mode::Auto if ports.len() > 1 => &[Mode::Auto, Mode::Require(Way::NativeCopy)],
        _ => &[options.mode],
    };
    let mut failed = None;
    for &mode in modes {
        for frames in FRAMES {
            match opening.all(mode, frames) {
                Ok(shares) => {
                    tell(&shares);
                    return Ok(shares);
                }
                // A busy queue is busy in every mode.
                Err(error) if matches!(error.downcast_ref(), Some(Error::QueueBusy { .. })) => return Err(error),
                Err(error) => {
                    let is_too_large = matches!(error.downcast_ref(), Some(Error::MtuTooLarge { .. }));
                    failed = Some(error);
                    if !is_too_large {
                        break;
                    }
                }
            }
        }
    }
    Err(failed.expect("at least one way was tried"))
}

struct Opening<'a> {
    ports: &'a Ports,
    attached: &'a [XdpMode],
    program: &'a GatewayProgram,
    /// Of each port.
    queues: Vec<u32>,
    workers: u32,
    busy_timeout: Option<Duration>,
}

impl Opening<'_> {
    fn all(&self, mode: Mode, frames: Frames) -> Result<Vec<Share>> {
        let mut options = frames.options().batch(BURST);
        if let Some(timeout) = self.busy_timeout {
            options = options.busy_timeout(timeout);
        }
        (0..self.workers)
            .map(|worker| self.share(worker, mode, frames, &options))
            .collect()
    }

    fn share(&self, worker: u32, mode: Mode, frames: Frames, options: &QueueOptions) -> Result<Share> {
        let umem = match self.ports.len() {
            1 => None,
            _ => Some(self.umem(worker, mode, frames, options)?),
        };
        let mut share = Share::new();
        for ((number, interface), attached) in self.ports.iter().zip(self.attached) {
            let mode = match attached {
                XdpMode::Generic => Mode::Require(Way::Generic),
                XdpMode::Native => mode,
            };
            let program = Program::Attached {
                xsks_map: self.program.workers().try_clone_to_owned()?,
            };
            let mut builder = Port::builder(interface.clone())
                .queues(self.of(worker, number))
                .mode(mode)
                .options(options.clone().frames(frames_of(options, interface, mode)))
                .first_place(u32::from(number) * self.program.sizes().queues)
                .program(program);
            if let Some(umem) = &umem {
                builder = builder.umem(umem);
            }
            let port = builder
                .open()
                .with_context(|| format!("opening {}", interface.name()))?;
            tracing::debug!(worker, report = %port.report(), "opened");
            share.push((number, port));
        }
        Ok(share)
    }

    /// The queues of an interface that a worker has.
    fn of(&self, worker: u32, number: u8) -> impl ExactSizeIterator<Item = u32> + use<> {
        let queues = self.queues.get(usize::from(number)).copied().unwrap_or(0);
        (worker..queues.max(worker)).step_by(self.workers as usize)
    }

    fn umem(&self, worker: u32, mode: Mode, frames: Frames, options: &QueueOptions) -> Result<SharedUmem> {
        let needs = |(number, interface): (u8, &Interface)| {
            let queues = u32::try_from(self.of(worker, number).len()).unwrap_or(u32::MAX);
            frames_of(options, interface, mode).saturating_mul(queues)
        };
        let umem = SharedUmem::builder()
            .frames(self.ports.iter().map(needs).sum())
            .frame_size(self.frame_size(mode, options))
            .multi_buffer(frames.several);
        Ok(umem.build()?)
    }

    /// Large enough for each of the interfaces.
    fn frame_size(&self, mode: Mode, options: &QueueOptions) -> u32 {
        let sizes = (self.ports.iter().zip(self.attached)).map(|((_, interface), attached)| match attached {
            XdpMode::Generic => options.frame_size_on(interface, Mode::Require(Way::Generic)),
            XdpMode::Native => options.frame_size_on(interface, mode),
        });
        sizes.max().unwrap_or(QueueOptions::DEFAULT_FRAME_SIZE)
    }
}

impl Frames {
    fn options(self) -> QueueOptions {
        // Tenants' packets are not to be lost for the sake of the cache.
        let options = QueueOptions::default().multi_buffer(self.several).working_set(u32::MAX);
        match self.size {
            Some(size) => options.frame_size(size),
            None => options,
        }
    }
}

fn ports(shares: &[Share]) -> impl Iterator<Item = &Port> {
    shares.iter().flatten().map(|(_, port)| port)
}

/// Returns the bytes of each UMEM. Of queues that share one, each reports all of it.
fn umems(shares: &[Share]) -> BTreeMap<u64, u64> {
    let queues = ports(shares).flat_map(Port::queues);
    queues
        .map(|queue| (queue.report().umem, queue.report().memory_bytes))
        .collect()
}

/// Returns the bytes that all frames take.
pub(super) fn frame_bytes(shares: &[Share]) -> u64 {
    umems(shares).values().sum()
}

/// What was obtained, and the memory that frames take: a NIC that needs larger ones takes more.
fn tell(shares: &[Share]) {
    for queue in ports(shares).filter_map(|port| port.queues().first()) {
        let report = queue.report();
        tracing::info!(
            interface = %report.interface,
            mode = %report.path,
            frame_bytes = report.frame_size,
            "the workers' sockets are open"
        );
    }
    let memory_mib = frame_bytes(shares) >> 20;
    tracing::info!(memory_mib, umems = umems(shares).len(), "frames of the workers");
}

/// Frames of a queue: half of them wait for packets.
fn frames_of(options: &QueueOptions, interface: &Interface, mode: Mode) -> u32 {
    options.frames_on(interface, mode).max(LEAST_FRAMES)
}
