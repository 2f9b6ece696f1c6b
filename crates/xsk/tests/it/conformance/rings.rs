//! The smallest and the largest rings, of the NIC and of the socket.

use ringside_netlab::Lab;
use ringside_nic::Rings;
use ringside_xsk::QueueOptions;

use crate::common::conformance::{Case, Outcome, lacks, passed, row_on, usual};
use crate::common::traffic::{exchange_in, only};

/// The NIC's rings on both ends, as they were when it is dropped.
struct NicRings<'l> {
    lab: &'l Lab,
    before: Vec<Rings>,
}

impl<'l> NicRings<'l> {
    /// Sets them to what `wanted` makes of those that there are.
    fn set(lab: &'l Lab, wanted: impl Fn(&mut Rings) + Sync) -> Result<Self, ringside_nic::Error> {
        let mut set = Self {
            lab,
            before: Vec::new(),
        };
        for end in lab.ends() {
            let mut rings = end.run(|| end.interface.rings())?;
            set.before.push(rings);
            wanted(&mut rings);
            end.run(|| end.interface.set_rings(rings))?;
        }
        for end in lab.ends() {
            end.wait_ready().expect("the link comes back");
        }
        Ok(set)
    }

    /// Packets that the receiving end's holds.
    fn holds(&self) -> u32 {
        self.lab.b.run(|| self.lab.b.interface.rings()).expect("readable").rx
    }
}

impl Drop for NicRings<'_> {
    fn drop(&mut self) {
        for (end, &rings) in self.lab.ends().into_iter().zip(&self.before) {
            _ = end.run(|| end.interface.set_rings(rings));
        }
    }
}

/// Bursts of these sizes through sockets of these options; and the outcome, which is up to the NIC.
fn bursts(
    lab: &Lab,
    case: Case,
    nic: Result<NicRings<'_>, ringside_nic::Error>,
    sizes: [(QueueOptions, u64, u64); 2],
) -> Outcome {
    for (options, batch, count) in sizes {
        let options = options.batch(u32::try_from(batch).expect("small"));
        let mut port = case.port(&lab.b, options.clone(), |port| port);
        let mut tx = case.sender(&lab.a, options);
        let at_once = match &nic {
            // What comes while its ring is full is lost, and this test reads when all is sent.
            Ok(nic) => batch.min(u64::from(nic.holds() / 2)),
            // Without rings of its own it is a veth, which has one of 256 packets after all. Busy-polling empties that when the
            // receiver says so, not while the sender is at it.
            Err(_) if case.busy_poll => batch.min(128),
            Err(_) => batch,
        };
        exchange_in(at_once, lab, &mut tx, only(&mut port), case.wait(), (count, 64));
    }
    match nic {
        Ok(_) => passed(),
        Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => lacks(format!(
            "that of the socket's rings passed; the NIC's cannot be set: {error}"
        )),
        Err(error) => panic!("{error}"),
    }
}

/// A ring of 64: packets one by one, and a burst that leaves one place.
#[test]
fn hw_sw_min_ring_size() {
    row_on("HW_SW_MIN_RING_SIZE", usual("minrings"), |lab, case| {
        let nic = NicRings::set(lab, |rings| (rings.rx, rings.tx) = (128, 64));
        let options = QueueOptions::new().frames(256).tx_ring(64).rx_ring(128).fill_ring(128);
        bursts(lab, case, nic, [(options.clone(), 1, 1024), (options, 63, 1024)])
    });
}

/// The NIC's largest, and bursts of a quarter of the socket's and of all but eight places of it.
#[test]
fn hw_sw_max_ring_size() {
    row_on("HW_SW_MAX_RING_SIZE", usual("maxrings"), |lab, case| {
        let nic = NicRings::set(lab, |rings| (rings.rx, rings.tx) = (rings.max_rx, rings.max_tx));
        let slots = 8192;
        let options = QueueOptions::new()
            .frames(4 * slots)
            .tx_ring(slots)
            .rx_ring(slots)
            .fill_ring(slots)
            .completion_ring(slots);
        let (quarter, most) = (u64::from(slots / 4), u64::from(slots - 8));
        bursts(
            lab,
            case,
            nic,
            [(options.clone(), quarter, 8192), (options, most, 8192)],
        )
    });
}
