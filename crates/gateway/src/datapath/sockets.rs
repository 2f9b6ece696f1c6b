//! The workers' sockets: each worker has some queues of each interface.

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

/// What the frames of a UMEM are like.
#[derive(Debug, Clone, Copy)]
struct Frames {
    size: u32,
    /// A packet may be in several.
    several: bool,
}

/// The smallest first, for they have to fit the CPU's cache.
const FRAMES: [Frames; 3] = [
    Frames {
        size: 2048,
        several: false,
    },
    Frames {
        size: 4096,
        several: false,
    },
    Frames {
        size: 2048,
        several: true,
    },
];

/// Opens all queues of all interfaces, to which the program is attached in these modes, shared out among the workers.
pub(super) fn open(
    options: &PathOptions,
    ports: &Ports,
    attached: &[XdpMode],
    program: &GatewayProgram,
) -> Result<Vec<Share>> {
    let queues = ports.iter().map(|(_, interface)| interface.rx_queues());
    let queues: Vec<u32> = queues.collect::<Result<_, _>>()?;
    // Each worker has to be able to send by each interface.
    let most = queues.iter().min().map_or(1, |&queues| queues.max(1));
    let wanted = u32::try_from(options.workers).unwrap_or(u32::MAX);
    if wanted > most && ports.len() > 1 {
        tracing::warn!(wanted, workers = most, "each worker needs a queue of each interface");
    }
    let opening = Opening {
        ports,
        attached,
        program,
        queues,
        workers: wanted.clamp(1, most),
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
                Ok(shares) => return Ok(shares),
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
}

impl Opening<'_> {
    fn all(&self, mode: Mode, frames: Frames) -> Result<Vec<Share>> {
        let options = QueueOptions::default()
            .batch(BURST)
            .frame_size(frames.size)
            .multi_buffer(frames.several);
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
                .options(options.clone())
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
            options.frames_on(interface, mode).saturating_mul(queues)
        };
        let umem = SharedUmem::builder()
            .frames(self.ports.iter().map(needs).sum())
            .frame_size(frames.size)
            .multi_buffer(frames.several);
        Ok(umem.build()?)
    }
}
