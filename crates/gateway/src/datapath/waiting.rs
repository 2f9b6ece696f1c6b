//! Packets that wait for the MAC address of their host.

use std::collections::VecDeque;

use ringside_gateway_core::table::HostId;

/// Packets of one host that wait at the most: as many as a TCP connection begins with.
const OF_A_HOST: usize = 16;

/// A packet that waits for its host, with the time until which it may.
#[derive(Debug)]
struct Waits<P> {
    host: HostId,
    until: u64,
    /// Somebody asks for the host.
    is_asked_for: bool,
    packet: P,
}

/// Packets that wait.
#[derive(Debug)]
pub(super) struct Waiting<P> {
    packets: VecDeque<Waits<P>>,
    most: usize,
}

impl<P> Waiting<P> {
    /// For so many packets together. Memory is taken now.
    pub(super) fn new(most: usize) -> Self {
        Self {
            packets: VecDeque::with_capacity(most),
            most,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// True if there is room for a packet to this host.
    pub(super) fn has_room(&self, host: HostId) -> bool {
        self.packets.len() < self.most && self.packets.iter().filter(|waits| waits.host == host).count() < OF_A_HOST
    }

    /// A packet for a host, which somebody asks for, or could not be told to. It may wait until then.
    pub(super) fn push(&mut self, until: u64, (host, is_asked_for): (HostId, bool), packet: P) {
        self.packets.push_back(Waits {
            host,
            until,
            is_asked_for,
            packet,
        });
    }

    /// Has somebody ask for the hosts that nobody asks for yet, until there is no more room: then `ask` is false.
    pub(super) fn ask_again(&mut self, mut ask: impl FnMut(HostId) -> bool) {
        for waits in self.packets.iter_mut().filter(|waits| !waits.is_asked_for) {
            waits.is_asked_for = ask(waits.host);
            if !waits.is_asked_for {
                break;
            }
        }
    }

    /// The oldest packet that need not wait any longer: its host is known, or its time is over (then true).
    pub(super) fn next(&mut self, now: u64, mut is_known: impl FnMut(HostId) -> bool) -> Option<(P, bool)> {
        let at = self
            .packets
            .iter()
            .position(|waits| waits.until <= now || is_known(waits.host))?;
        let Waits {
            host, until, packet, ..
        } = self.packets.remove(at)?;
        Some((packet, until <= now && !is_known(host)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::counters::{Full, WorkerCounters};

    #[test]
    fn packets_wait_until_their_host_is_known_or_their_time_is_over() {
        let mut waiting = Waiting::new(20);
        let [a, b] = [HostId(1), HostId(2)];
        waiting.push(100, (a, true), "a1");
        waiting.push(105, (b, true), "b1");
        waiting.push(107, (a, true), "a2");
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

    /// A lone packet, to whose host no other follows: its question is asked as soon as there is room, and once.
    #[test]
    fn who_found_no_room_to_ask_asks_again() {
        let [a, b, c] = [1, 2, 3].map(HostId);
        let mut waiting = Waiting::new(20);
        let (ask, asked) = crossbeam_channel::bounded(1);
        let counters = WorkerCounters::default();
        for host in [a, b, c] {
            let is_asked_for = counters.tell(Full::Hosts, &ask, host);
            waiting.push(100, (host, is_asked_for), host);
        }
        assert_eq!(counters.read().full, [2, 0, 0]);
        let mut all = Vec::new();
        for _ in 0..10 {
            waiting.ask_again(|host| ask.try_send(host).is_ok());
            all.extend(asked.try_iter());
        }
        assert_eq!(all, [a, b, c]);
        // It is known then, in time.
        assert_eq!(waiting.next(50, |host| host == c), Some((c, false)));
        assert_eq!(waiting.next(100, |_| false), Some((a, true)));
    }

    #[test]
    fn no_host_takes_all_the_room() {
        let mut waiting = Waiting::new(20);
        let mut taken = 0;
        while waiting.has_room(HostId(1)) {
            waiting.push(100, (HostId(1), true), ());
            taken += 1;
        }
        assert_eq!(taken, OF_A_HOST);
        while waiting.has_room(HostId(2)) {
            waiting.push(100, (HostId(2), true), ());
            taken += 1;
        }
        assert_eq!((taken, waiting.has_room(HostId(3))), (20, false));
    }
}
