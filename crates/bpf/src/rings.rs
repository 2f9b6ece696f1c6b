//! What waits in the rings of TAP devices, for guests.

use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::load;
use crate::skel::rings::RingsSkelBuilder;

const NAME: &str = "ringside_taps";

/// As in rings.bpf.c: shares of a ring in 64ths, and the whole of it.
const BUCKETS: usize = 65;

/// Counts what packets find waiting in the ring of a TAP device, of all TAP devices of this machine, from when it is started until it is
/// dropped: those that the stack sends, and those that XDP redirects there.
///
/// The kernel has no counter for that queue, in which packets wait for a guest. Each packet that any interface sends costs a little
/// more meanwhile.
///
/// Needs Linux 5.14 with BTF and a TUN driver in it (or loaded), and CAP_BPF and CAP_PERFMON, or
/// root.
#[derive(Debug)]
pub struct TapRings {
    rings: MapHandle,
    /// Each detaches its program when it is dropped.
    _links: [Link; 2],
}

/// What packets found waiting in one TAP device's rings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RingSeen {
    /// Packets that were to be put there.
    pub packets: u64,
    /// Of those, how many found no room.
    pub full: u64,
    /// The most that one found waiting.
    pub most: u64,
    /// How many there is room for, in each queue.
    pub size: u64,
    waiting: u64,
    buckets: Vec<u64>,
}

impl TapRings {
    /// Begins to count.
    ///
    /// # Errors
    ///
    /// [`Error::Load`] if the kernel refuses the programs: without BTF, without a TUN driver, and without the capabilities.
    pub fn start() -> Result<Self> {
        let mut storage = MaybeUninit::uninit();
        let skel = load::capture(NAME, || RingsSkelBuilder::default().open(&mut storage)?.load())?;
        let links = load::capture(NAME, || {
            Ok([
                skel.progs.ringside_tapskb.attach_trace()?,
                skel.progs.ringside_tapxdp.attach_trace()?,
            ])
        })?;
        Ok(Self {
            rings: load::own_map(NAME, &skel.maps.rings)?,
            _links: links,
        })
    }

    /// Returns the counts of one device so far, or `None` if no packet reached it.
    ///
    /// `namespace` is the cookie of its network namespace (`SO_NETNS_COOKIE` of a socket there).
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel refuses the reading.
    pub fn seen(&self, namespace: u64, ifindex: u32) -> Result<Option<RingSeen>> {
        let key = [namespace, ifindex.into()].map(u64::to_ne_bytes).concat();
        let values = self
            .rings
            .lookup_percpu(&key, MapFlags::ANY)
            .map_err(|error| Error::map(NAME, "rings", "reading", load::os_error(&error)))?;
        Ok(values.map(|values| RingSeen::sum(&values)))
    }
}

impl RingSeen {
    /// `struct seen` in rings.bpf.c, of each CPU.
    fn sum(values: &[Vec<u8>]) -> Self {
        let mut seen = Self {
            packets: 0,
            full: 0,
            most: 0,
            size: 0,
            waiting: 0,
            buckets: vec![0; BUCKETS],
        };
        for value in values {
            let words: Vec<u64> = value
                .as_chunks()
                .0
                .iter()
                .map(|bytes| u64::from_ne_bytes(*bytes))
                .collect();
            let [packets, waiting, full, most, size, buckets @ ..] = &words[..] else {
                continue;
            };
            seen.packets += packets;
            seen.waiting += waiting;
            seen.full += full;
            seen.most = seen.most.max(*most);
            seen.size = seen.size.max(*size);
            for (sum, count) in seen.buckets.iter_mut().zip(buckets) {
                *sum += count;
            }
        }
        seen
    }

    /// What was seen between two readings: `self` is the later one. `most` and `size` are of the whole time.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let less = |(own, before): (&u64, &u64)| own.saturating_sub(*before);
        Self {
            packets: less((&self.packets, &earlier.packets)),
            full: less((&self.full, &earlier.full)),
            most: self.most,
            size: self.size,
            waiting: less((&self.waiting, &earlier.waiting)),
            buckets: self.buckets.iter().zip(&earlier.buckets).map(less).collect(),
        }
    }

    /// How many a packet found waiting on average.
    #[must_use]
    pub fn mean(&self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "counts of packets")]
        let mean = self.waiting as f64 / self.packets.max(1) as f64;
        mean
    }

    /// How many were waiting at least for this share of the packets that found most, 0 to 1: 0.5 is the median. Exact to a 64th of the ring.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u64 {
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a count"
        )]
        let mut left = (self.packets as f64 * share.clamp(0.0, 1.0)) as u64;
        for (bucket, &count) in (0..).zip(&self.buckets) {
            if left < count {
                return bucket * self.size / (BUCKETS as u64 - 1);
            }
            left -= count;
        }
        self.most
    }
}

#[cfg(test)]
#[path = "rings_tests.rs"]
mod tests;
