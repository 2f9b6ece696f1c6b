//! When each packet of a schedule came, kept for a lab that knows the talker's clock better than the listener does.

use std::path::Path;

use anyhow::{Context as _, Result};
use ringside_measure::schedule::Received;
use serde::{Deserialize, Serialize};

/// Packets that are kept: of more only the number is told. 14 MiB, none of which is touched before it is needed.
const MOST: usize = 1 << 18;

/// What a listener has kept.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Arrivals {
    /// See [`Received::row`]; times of arrival are of the listener's CLOCK_TAI.
    rows: Vec<[u64; 7]>,
    /// Packets that came when there were too many.
    left_out: u64,
}

impl Arrivals {
    /// With room for so many, so that nothing has to be found while packets come.
    pub(crate) fn new() -> Self {
        Self {
            rows: Vec::with_capacity(MOST),
            left_out: 0,
        }
    }

    /// One more came.
    pub(crate) fn keep(&mut self, packet: &Received) {
        match self.rows.len() < MOST {
            true => self.rows.push(packet.row()),
            false => self.left_out += 1,
        }
    }

    /// Writes them into a file.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let json = serde_json::to_vec(self).context("writing arrivals as JSON")?;
        crate::files::write(path, json).with_context(|| format!("writing {}", path.display()))
    }

    /// Reads what a listener wrote: the packets of a session.
    pub(crate) fn read(json: &[u8], session: u32) -> Result<Vec<Received>> {
        let kept: Self = serde_json::from_slice(json).context("reading when packets came")?;
        anyhow::ensure!(
            kept.left_out == 0,
            "{} packets came and {} of them are kept at the most: a shorter turn, or a longer cycle",
            kept.rows.len() as u64 + kept.left_out,
            MOST
        );
        let all = kept.rows.iter().filter_map(Received::of_row);
        Ok(all.filter(|packet| packet.probe.session == session).collect())
    }
}
