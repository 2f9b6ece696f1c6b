//! What the command line may ask for.

use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};

/// One AF_XDP operation over one crate, in native copy mode.
#[derive(Debug, Parser)]
#[command(name = "peer", version)]
pub(crate) struct Options {
    /// The crate that does the work.
    #[arg(value_enum)]
    pub(crate) library: Crate,
    /// What to do.
    #[arg(value_enum)]
    pub(crate) operation: Operation,
    /// The interface, in the namespace that the program was started in.
    pub(crate) interface: String,
    /// The queue to bind.
    #[arg(long, default_value_t = 0)]
    pub(crate) queue: u32,
    /// Stop after this many seconds; without it, on SIGINT or SIGTERM.
    #[arg(long, value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,
    /// Descriptors handled at a time.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) batch: u16,
    /// Frames in the UMEM, a power of two.
    #[arg(long, default_value_t = 4096, value_parser = power_of_two)]
    pub(crate) frames: u32,
    /// Bytes in a frame: 2048 or 4096.
    #[arg(long, default_value_t = 4096, value_parser = frame_size)]
    pub(crate) frame_size: u32,
    /// Bytes in a transmitted packet, without the checksum of the wire.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(60..=1514))]
    pub(crate) packet_size: u16,
    /// Receive only: sleep when no packet is there.
    #[arg(long)]
    pub(crate) poll: bool,
}

impl Options {
    /// Entries of the fill ring: room for every frame, as the kernel's sample program has it.
    pub(crate) fn fill_ring(&self) -> u32 {
        self.frames
    }

    /// Entries of the three other rings.
    pub(crate) fn ring(&self) -> u32 {
        self.frames.min(2048)
    }

    /// Frames set aside for transmission by the operations that also receive.
    pub(crate) fn transmit_frames(&self) -> u32 {
        match self.operation {
            Operation::Rxdrop | Operation::L2fwd => 0,
            Operation::Txonly => self.frames,
            Operation::Ping => 64.min(self.frames / 2),
        }
    }
}

/// The crates under measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Crate {
    /// `xsk-rs`, which wraps libxdp.
    XskRs,
    /// `xdp`, which has its own rings.
    Xdp,
}

/// The operations, named as the kernel's sample program names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Operation {
    /// Receive and drop.
    Rxdrop,
    /// Transmit as fast as it goes.
    Txonly,
    /// Swap the MAC addresses and send back; also the answering side of ping-pong.
    L2fwd,
    /// One packet in flight, spinning for its return.
    Ping,
}

fn seconds(text: &str) -> Result<Duration> {
    let value: f64 = text.parse().context("not a number of seconds")?;
    Duration::try_from_secs_f64(value).context("not a duration")
}

fn power_of_two(text: &str) -> Result<u32> {
    let value: u32 = text.parse().context("not a number")?;
    anyhow::ensure!(
        value.is_power_of_two() && value >= 128,
        "frames: a power of two from 128"
    );
    Ok(value)
}

fn frame_size(text: &str) -> Result<u32> {
    match text {
        "2048" => Ok(2048),
        "4096" => Ok(4096),
        _ => anyhow::bail!("frame size: 2048 or 4096"),
    }
}
