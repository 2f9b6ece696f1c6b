//! Packets that wait for the MAC address of their host.

use std::collections::VecDeque;

use ringside_gateway_core::table::HostId;

/// Packets of one host that wait at the most: as many as a TCP connection begins with.
const OF_A_HOST: usize = 16;

/// A packet that waits, with the time until which it may.
#[derive(Debug)]
pub(super) struct Waiting<P> {
    packets: VecDeque<(HostId, u64, P)>,
    most: usize,
    patience_ns: u64,
}

impl<P> Waiting<P> {
    /// For so many packets together, each for so long. Memory is taken now.
    pub(super) fn new(most: usize, patience_ns: u64) -> Self {
        Self {
            packets: VecDeque::with_capacity(most),
            most,
            patience_ns,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// True if there is room for a packet to this host.
    pub(super) fn has_room(&self, host: HostId) -> bool {
        self.packets.len() < self.most && self.packets.iter().filter(|(of, ..)| *of == host).count() < OF_A_HOST
    }

    pub(super) fn push(&mut self, now: u64, host: HostId, packet: P) {
        self.packets
            .push_back((host, now.saturating_add(self.patience_ns), packet));
    }

    /// The oldest packet that need not wait any longer: its host is known, or its time is over (then true).
    pub(super) fn next(&mut self, now: u64, mut is_known: impl FnMut(HostId) -> bool) -> Option<(P, bool)> {
        let at = self
            .packets
            .iter()
            .position(|(host, until, _)| *until <= now || is_known(*host))?;
        let (host, until, packet) = self.packets.remove(at)?;
        Some((packet, until <= now && !is_known(host)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_wait_until_their_host_is_known_or_their_time_is_over() {
        let mut waiting = Waiting::new(20, 100);
        let [a, b] = [HostId(1), HostId(2)];
        waiting.push(0, a, "a1");
        waiting.push(5, b, "b1");
        waiting.push(7, a, "a2");
        assert_eq!(waiting.next(10, |_| false), None);
        assert_eq!(waiting.next(10, |host| host == b), Some(("b1", false)));
        assert_eq!(waiting.next(100, |_| false), Some(("a1", true)));
        assert_eq!(waiting.next(100, |_| false), None);
        assert_eq!(
            waiting.next(200, |_| true),
            Some(("a2", false)),
            "known in time is known"
        );
        assert!(waiting.is_empty());
    }

    #[test]
    fn no_host_takes_all_the_room() {
        let mut waiting = Waiting::new(20, 100);
        let mut taken = 0;
        while waiting.has_room(HostId(1)) {
            waiting.push(0, HostId(1), ());
            taken += 1;
        }
        assert_eq!(taken, OF_A_HOST);
        while waiting.has_room(HostId(2)) {
            waiting.push(0, HostId(2), ());
            taken += 1;
        }
        assert_eq!((taken, waiting.has_room(HostId(3))), (20, false));
    }
}
