//! What became of every packet that was sent over a veth pair, by the kernel's counters.
//!
//! ```text
//! sent ─┬─ tx_dropped of the sender's link: no carrier, or the receiver's ring was full. For a link
//!       │      that goes down or comes up, rx_dropped has some of them, too
//!       ├─ purged: freed with the ring of a receiver that went down or away, which the kernel counts nowhere
//!       └─ rx_packets of the receiver's link ─┬─ rx_dropped of it: went up the stack, where nobody wants it,
//!                                             │      or, in native mode, refused by the socket
//!                                             ├─ in generic mode: dropped by the socket (XDP_STATISTICS)
//!                                             ├─ received   ─┬─ xdp_redirect of the driver, in native mode
//!                                             └─ unread ─────┘ on the RX ring of a socket that was closed
//! ```

use std::time::Duration;

use ringside_netlab::{End, wait_until};
use ringside_nic::LinkStats;
use ringside_xsk::{KernelStats, Path};

/// Timeout for counters to catch up on a busy machine.
const LATE: Duration = Duration::from_millis(500);

/// The counters of a link at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    from: LinkStats,
    to: LinkStats,
    /// Packets that native XDP programs gave to sockets, by the driver's count.
    redirected: u64,
}

impl Counters {
    fn of([from, to]: &[End; 2]) -> Self {
        let statistics = to.run(|| to.interface.statistics()).expect("veth has some");
        let redirected = statistics.iter().filter(|(name, _)| name.ends_with("xdp_redirect"));
        Self {
            from: from.state().expect("interface").stats,
            to: to.state().expect("interface").stats,
            redirected: redirected.map(|(_, packets)| packets).sum(),
        }
    }
}

/// The counters of a link's two ends at the beginning.
pub struct Account {
    ends: [End; 2],
    before: Counters,
}

/// What an account leaves open.
#[derive(Debug, PartialEq, Eq)]
pub struct Balance {
    /// Freed with the ring of an interface that went down.
    pub purged: u64,
    /// Given to a socket that was closed before anybody read it.
    pub unread: u64,
}

impl Balance {
    pub const EVEN: Self = Self { purged: 0, unread: 0 };
}

impl Account {
    /// Of packets from one end to the other: before the first one is sent.
    pub fn open(from: &End, to: &End) -> Self {
        let ends = [from.clone(), to.clone()];
        Self {
            before: Counters::of(&ends),
            ends,
        }
    }

    /// From the moment when the link was made.
    pub fn of_new(from: &End, to: &End) -> Self {
        Self {
            ends: [from.clone(), to.clone()],
            before: Counters::default(),
        }
    }

    /// What the sender's link says that it was given.
    pub fn given(&self) -> u64 {
        let (now, before) = (self.ends[0].state().expect("interface").stats, self.before.from);
        now.tx_packets + now.tx_dropped - before.tx_packets - before.tx_dropped
    }

    /// When nothing is sent any more: of so many packets that the kernel took, so many were received by sockets that
    /// counted these drops, together.
    pub fn close(&self, path: Path, taken: u64, received: u64, socket: KernelStats) -> Balance {
        // Counters follow a moment after the packets, and later where a CPU is away.
        std::thread::sleep(Duration::from_millis(20));
        let mut after = Counters::default();
        wait_until(LATE, || {
            after = Counters::of(&self.ends);
            let sums = self.sums([after.from, after.to], path, taken, received, socket);
            (sums.purged, sums.unread) == (Some(0), Some(0))
        });
        let balance = self.balance([after.from, after.to], path, taken, received, socket);
        if path != Path::Generic {
            let redirected = after.redirected - self.before.redirected;
            assert_eq!(received + balance.unread, redirected, "by the driver's count");
        }
        balance
    }

    /// As [`close`](Self::close), with these last counters of the two ends.
    pub fn balance(
        &self,
        [from, to]: [LinkStats; 2],
        path: Path,
        taken: u64,
        received: u64,
        socket: KernelStats,
    ) -> Balance {
        let Sums { purged, unread, told } = self.sums([from, to], path, taken, received, socket);
        let (Some(purged), Some(unread)) = (purged, unread) else {
            panic!("more than there was: {told}");
        };
        let by_socket = socket.rx_dropped + socket.rx_ring_full;
        let refused = to.rx_dropped - self.before.to.rx_dropped;
        assert!(path == Path::Generic || by_socket <= refused, "{told}");
        println!("{told}");
        Balance { purged, unread }
    }

    fn sums(&self, [from, to]: [LinkStats; 2], path: Path, taken: u64, received: u64, socket: KernelStats) -> Sums {
        let not_sent = from.tx_dropped - self.before.from.tx_dropped;
        let carried = to.rx_packets - self.before.to.rx_packets;
        let refused = to.rx_dropped - self.before.to.rx_dropped;
        let by_socket = socket.rx_dropped + socket.rx_ring_full;
        // The driver counts a packet that a socket refused, the generic path does not.
        let lost = if path == Path::Generic {
            refused + by_socket
        } else {
            refused
        };
        let purged = taken.checked_sub(not_sent + carried);
        let accounted = lost + received;
        // A packet may pass the sender's carrier check before the receiver goes down. The receiver
        // then counts it as dropped (`____dev_forward_skb()`, `enqueue_to_backlog()`), and so does
        // the sender's veth. A receiver that comes up has a carrier before it accepts packets.
        let twice = accounted.saturating_sub(carried);
        let may_be = twice <= not_sent.min(refused);
        let unread = (carried + if may_be { twice } else { 0 }).checked_sub(accounted);
        let told = format!(
            "{path}: {taken} taken = {not_sent} not sent + {carried} carried + {purged:?} purged; \
             carried = {received} received + {refused} refused + {unread:?} unread - {twice} not sent; {by_socket} by the socket"
        );
        Sums { purged, unread, told }
    }
}

/// What an account leaves open, as far as it adds up.
struct Sums {
    purged: Option<u64>,
    unread: Option<u64>,
    /// All of it, for people.
    told: String,
}
