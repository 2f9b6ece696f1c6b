//! The drivers' own counters (`ethtool -S`), of which each driver names those of a queue in its own way.

use serde::Serialize;

use crate::{Interface, QueueKind, Result};

/// One of a driver's counters of one queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub struct QueueCounter {
    /// Direction of the queue.
    pub kind: QueueKind,
    /// Its number.
    pub queue: u32,
    /// What is counted, without direction and queue: "packets", "xdp_drops", ….
    pub name: String,
}

impl QueueCounter {
    /// What a driver's name stands for; `None` for one of the whole device, and for a way to name that is not known.
    ///
    /// ```
    /// use ringside_nic::{QueueCounter, QueueKind};
    ///
    /// let counter = QueueCounter::of("rx_queue_3_xdp_packets").unwrap();
    /// assert_eq!((counter.kind, counter.queue, &*counter.name), (QueueKind::Rx, 3, "xdp_packets"));
    /// assert_eq!(QueueCounter::of("peer_ifindex"), None);
    /// ```
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        // veth, virtio_net, igb, ixgbe, ice: rx_queue_0_packets
        // i40e: rx-0.packets   mlx5, virtio_net since 6.7: rx0_packets   ena: queue_0_rx_cnt   gve: rx_packets[0]
        // bnxt: [0]: rx_ucast_packets
        Self::direction_first(name)
            .or_else(|| Self::queue_first(name))
            .or_else(|| Self::queue_last(name))
    }

    fn direction_first(name: &str) -> Option<Self> {
        let (kind, rest) = direction(name)?;
        // Not "_" alone: many drivers count packets by size, as "rx_1024_to_1518".
        let rest = ["_queue_", "-", ""].iter().find_map(|between| {
            let rest = rest.strip_prefix(between)?;
            rest.starts_with(|first: char| first.is_ascii_digit()).then_some(rest)
        })?;
        let (queue, rest) = number(rest)?;
        Self::named(kind, queue, rest.strip_prefix(['_', '.'])?)
    }

    fn queue_first(name: &str) -> Option<Self> {
        let (queue, rest) = match name.strip_prefix('[') {
            Some(rest) => {
                let (queue, rest) = number(rest)?;
                (queue, rest.strip_prefix("]: ")?)
            }
            None => {
                let (queue, rest) = number(name.strip_prefix("queue_")?)?;
                (queue, rest.strip_prefix('_')?)
            }
        };
        let (kind, rest) = direction(rest)?;
        Self::named(kind, queue, rest.strip_prefix('_')?)
    }

    fn queue_last(name: &str) -> Option<Self> {
        let (kind, rest) = direction(name)?;
        let (what, queue) = rest.strip_prefix('_')?.strip_suffix(']')?.split_once('[')?;
        Self::named(kind, queue.parse().ok()?, what)
    }

    fn named(kind: QueueKind, queue: u32, name: &str) -> Option<Self> {
        // ena: cnt
        let name = match name {
            "cnt" => "packets",
            name => name,
        };
        (!name.is_empty()).then(|| Self {
            kind,
            queue,
            name: name.to_owned(),
        })
    }
}

impl Interface {
    /// The driver's own counters of each queue, in its order; empty where it has none, or names them in an unknown way:
    /// [`Interface::statistics`] has all.
    ///
    /// What a name stands for only the driver knows. In veth `xdp_packets` are packets that an XDP program has seen, `xdp_drops`
    /// those that could not be redirected or sent back among others, and `drops` those that found no room.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`](crate::Error::Kernel) if the interface was removed.
    pub fn queue_counters(&self) -> Result<Vec<(QueueCounter, u64)>> {
        let all = self.statistics()?.into_iter();
        Ok(all
            .filter_map(|(name, value)| Some((QueueCounter::of(&name)?, value)))
            .collect())
    }
}

fn direction(name: &str) -> Option<(QueueKind, &str)> {
    let rx = name.strip_prefix("rx").map(|rest| (QueueKind::Rx, rest));
    rx.or_else(|| name.strip_prefix("tx").map(|rest| (QueueKind::Tx, rest)))
}

/// The number that a text begins with, and the rest.
fn number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

#[cfg(test)]
#[path = "queue_counters_tests.rs"]
mod tests;
