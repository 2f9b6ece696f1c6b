//! Datagrams that are counted, one by one.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use ringside_netlab::testing::bound;
use ringside_netlab::wait_until;

use crate::bed::{Family, Tenant};
use crate::peers::AtEnd;

/// Numbered datagrams, each of which is sent back, unless the flow is one way.
pub(crate) struct Flow {
    is_one_way: bool,
    asks: UdpSocket,
    echoes: UdpSocket,
    sent: AtomicU64,
    arrived: Mutex<BTreeSet<u64>>,
    answered: AtomicU64,
}

impl Flow {
    pub(crate) fn new((from, to): (&Tenant, &Tenant), family: Family, port: u16) -> Self {
        let bind = |tenant: &Tenant, port| {
            let own = SocketAddr::from((tenant.address(family), port));
            let socket = tenant.ns.run(|| bound(|| UdpSocket::bind(own)));
            socket.set_nonblocking(true).expect("set");
            socket
        };
        let (asks, echoes) = (bind(from, 0), bind(to, port));
        asks.connect((to.address(family), port)).expect("connects");
        Self {
            is_one_way: false,
            asks,
            echoes,
            sent: AtomicU64::new(0),
            arrived: Mutex::new(BTreeSet::new()),
            answered: AtomicU64::new(0),
        }
    }

    /// A flow that nobody answers.
    pub(crate) fn one_way(ends: (&Tenant, &Tenant), family: Family, port: u16) -> Self {
        Self {
            is_one_way: true,
            ..Self::new(ends, family, port)
        }
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    pub(crate) fn arrived(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.arrived.lock().expect("no panic")
    }

    /// Packets that were sent, either way, and did not come.
    pub(crate) fn missing(&self) -> u64 {
        let answered = self.answered.load(Ordering::SeqCst);
        let echoed = self.arrived().len() as u64;
        let unanswered = if self.is_one_way { 0 } else { echoed - answered };
        (self.sent() - echoed) + unanswered
    }

    /// Asserts that at most `counted` datagrams are missing.
    ///
    /// These are the losses that the kernel's queues and the gateway's workers have counted.
    pub(crate) fn all_came_but(&self, counted: u64) {
        let lost = self.missing();
        assert!(
            lost <= counted,
            "{lost} of {} lost, {counted} for want of room",
            self.sent()
        );
    }

    /// A few hundred a second until `over`; what comes is heard until `closed`.
    pub(crate) fn run(&self, over: &AtomicBool, closed: &AtomicBool) {
        let mut unsent = None;
        while !closed.load(Ordering::SeqCst) {
            if unsent.is_none() && !over.load(Ordering::SeqCst) {
                unsent = Some(self.sent.fetch_add(1, Ordering::SeqCst));
            }
            if let Some(number) = unsent {
                match self.asks.send(&number.to_be_bytes()) {
                    Ok(_) => unsent = None,
                    // Datagrams that wait for the neighbour's MAC address fill the buffer.
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => panic!("sent: {error}"),
                }
            }
            let mut number = [0; 8];
            while let Ok((8, from)) = self.echoes.recv_from(&mut number) {
                let is_new = self.arrived().insert(u64::from_be_bytes(number));
                assert!(is_new, "{number:?} came twice");
                if !self.is_one_way {
                    self.echoes.send_to(&number, from).expect("sent");
                }
            }
            while self.asks.recv(&mut number).is_ok() {
                self.answered.fetch_add(1, Ordering::SeqCst);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Has it run while something else is done, and for as long as what is under way comes.
    pub(crate) fn run_during(&self, work: impl FnOnce()) {
        let (over, closed) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (ends, closes) = (AtEnd(&over), AtEnd(&closed));
            scope.spawn(|| self.run(&over, &closed));
            work();
            drop(ends);
            wait_until(Duration::from_secs(2), || self.missing() == 0);
            drop(closes);
        });
    }
}
