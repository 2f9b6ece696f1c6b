//! What a run watches beside its workers: its links, and the frames of zero-copy NICs.

use ringside_nic::Interface;
use ringside_xsk::Port;

use crate::progress::Progress;

/// The interfaces of a run, the queues that may leave a NIC without a frame, and what shares the
/// CPUs.
pub(crate) struct Watched {
    pub(super) interfaces: Vec<Interface>,
    /// Threads of the other end that spin on this machine.
    pub(super) spinning_beside: u32,
    pub(super) nics: NicFrames,
}

impl Watched {
    /// Watches the links and the queues of ports.
    pub(crate) fn ports<'p>(ports: impl IntoIterator<Item = &'p Port>) -> Self {
        let mut watched = Self {
            interfaces: Vec::new(),
            spinning_beside: 0,
            nics: NicFrames::default(),
        };
        for port in ports {
            watched.interfaces.push(port.interface().clone());
            for queue in port.queues() {
                let reader = queue.stats_reader();
                let starved = move || reader.counters().rx_starved;
                watched.nics.watch(port.interface().name(), queue.id(), starved);
            }
        }
        watched
    }

    /// Watches a link without XDP sockets.
    pub(crate) fn link(interface: &Interface) -> Self {
        Self {
            interfaces: vec![interface.clone()],
            spinning_beside: 0,
            nics: NicFrames::default(),
        }
    }

    /// Notes threads of the other end that spin on this machine.
    pub(crate) fn beside(self, spinning_beside: u32) -> Self {
        Self {
            spinning_beside,
            ..self
        }
    }
}

/// Reports queues whose NIC has no frame to receive into.
#[derive(Default)]
pub(super) struct NicFrames {
    /// Those that were not reported.
    queues: Vec<WatchedQueue>,
}

struct WatchedQueue {
    interface: String,
    queue: u32,
    /// Reads [`rx_starved`](ringside_xsk::OwnStats::rx_starved).
    starved: Box<dyn Fn() -> u64>,
}

impl NicFrames {
    fn watch(&mut self, interface: &str, queue: u32, starved: impl Fn() -> u64 + 'static) {
        self.queues.push(WatchedQueue {
            interface: interface.to_owned(),
            queue,
            starved: Box::new(starved),
        });
    }

    /// Reports each queue once: the result has how often it was.
    pub(super) fn report(&mut self, progress: &Progress) {
        self.notes().iter().for_each(|note| progress.note(note));
    }

    fn notes(&mut self) -> Vec<String> {
        let starved = self.queues.extract_if(.., |queue| (queue.starved)() != 0);
        starved
            .map(|WatchedQueue { interface, queue, .. }| {
                format!(
                    "{interface} queue {queue}: the NIC has no frame to receive into, because packets \
                     are taken too late or too many are kept: with zero-copy it drops packets for this host, too"
                )
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::NicFrames;

    #[test]
    fn reports_each_nic_without_a_frame_once() {
        let counts = [0, 1].map(|queue| (queue, Rc::new(Cell::new(0))));
        let mut nics = NicFrames::default();
        for (queue, count) in &counts {
            let count = Rc::clone(count);
            nics.watch("eth1", *queue, move || count.get());
        }
        assert_eq!(nics.notes(), [""; 0]);
        counts[1].1.set(1);
        let notes = nics.notes();
        assert!(notes[0].starts_with("eth1 queue 1: the NIC has no frame"), "{notes:?}");
        counts[1].1.set(2);
        assert_eq!(nics.notes(), [""; 0], "it was reported");
        counts[0].1.set(1);
        assert_eq!(nics.notes().len(), 1);
    }
}
