//! Frames that lie across the borders of pages, which a NIC sees side by side only where the pages lie so in its memory.
//!
//! With zero-copy the kernel asks for that: it passes over such a frame on the fill ring for good, and refuses a packet in one on
//! the TX ring, unless the next page follows. When it copies, it sees the UMEM as the process does, and nothing is in the way.
//! <https://elixir.bootlin.com/linux/v6.18/C/ident/xp_desc_crosses_non_contig_pg>,
//! <https://elixir.bootlin.com/linux/v6.18/C/ident/xp_check_unaligned>

use super::{Geometry, Region};
use crate::mmap::{HUGE_PAGE, Pages};

/// What zero-copy makes of a UMEM's frames.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Across {
    /// All can be used.
    Nothing,
    /// Some may be of no use: what is to be told.
    Told(String),
    /// Most may be of no use, and what to do instead.
    Refused(String),
}

impl Across {
    pub(crate) fn of(geometry: &Geometry, region: &Region) -> Self {
        Self::with(geometry, region.pages(), region.note())
    }

    /// `note`: why the pages are not the ones asked for.
    fn with(geometry: &Geometry, pages: Pages, note: Option<&str>) -> Self {
        let page = rustix::param::page_size();
        let across = |page| frames_across(geometry.bytes(), geometry.frame_size() as usize, page);
        let all = geometry.frames();
        match pages {
            _ if across(page) == 0 => Self::Nothing,
            Pages::Huge => match across(HUGE_PAGE) {
                0 => Self::Nothing,
                few => Self::Told(format!(
                    "{few} of {all} frames lie across the borders of huge pages: with zero-copy the kernel uses one only where the next page follows in the NIC's memory"
                )),
            },
            Pages::Custom => Self::Told(format!(
                "{} of {all} frames lie across the borders of pages: with zero-copy the kernel uses one only where the next page follows in the NIC's memory, as inside of a huge page",
                across(page)
            )),
            Pages::Normal => {
                let note = note.map_or(String::new(), |note| format!("; {note}"));
                Self::Refused(format!(
                    "{} of {all} frames of {} bytes lie across the borders of pages, which a NIC takes only where the pages follow each other in its memory: ask for huge pages, or for frames of 2048 or 4096 bytes{note}",
                    across(page),
                    geometry.frame_size()
                ))
            }
        }
    }
}

/// Of frames side by side, those that lie across a border of pages; a frame is no longer than a page.
fn frames_across(bytes: usize, frame: usize, page: usize) -> usize {
    let borders = bytes.saturating_sub(1) / page;
    // At each such border a frame begins.
    let shared = frame / greatest_common_divisor(frame, page);
    borders - borders / shared
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
#[path = "across_tests.rs"]
mod tests;
