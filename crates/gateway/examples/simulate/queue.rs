//! Something that does one job after the other, such as a CPU or a wire, and is shared fairly by those who have jobs for it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Start-time fair queueing: of those who have jobs waiting each gets the same share, as connections of TCP and goroutines about do.
#[derive(Debug)]
pub(crate) struct Queue<J> {
    /// How many jobs at a time.
    servers: usize,
    busy: usize,
    /// How far those that wait have got, in nanoseconds of service.
    virtual_time: u64,
    /// Where the last job of each flow ends.
    ends: Vec<u64>,
    order: BinaryHeap<Reverse<(u64, u64)>>,
    jobs: BTreeMap<u64, (u64, J)>,
    next: u64,
    /// Nanoseconds of service that were given.
    pub(crate) served: u64,
}

impl<J> Queue<J> {
    pub(crate) fn new(servers: usize, flows: usize) -> Self {
        Self {
            servers,
            busy: 0,
            virtual_time: 0,
            ends: vec![0; flows],
            order: BinaryHeap::new(),
            jobs: BTreeMap::new(),
            next: 0,
            served: 0,
        }
    }

    /// A job that takes so many nanoseconds.
    pub(crate) fn push(&mut self, flow: usize, cost: u64, job: J) {
        let end = &mut self.ends[flow];
        let start = self.virtual_time.max(*end);
        *end = start + cost;
        self.order.push(Reverse((start, self.next)));
        self.jobs.insert(self.next, (cost, job));
        self.next += 1;
    }

    /// The next job and how long it takes, if it can begin; [`Queue::done`] ends it.
    pub(crate) fn begin(&mut self) -> Option<(u64, J)> {
        if self.busy == self.servers {
            return None;
        }
        let Reverse((start, number)) = self.order.pop()?;
        self.virtual_time = self.virtual_time.max(start);
        let (cost, job) = self.jobs.remove(&number)?;
        self.busy += 1;
        self.served += cost;
        Some((cost, job))
    }

    pub(crate) fn done(&mut self) {
        self.busy -= 1;
    }

    /// Nothing waits any more: says what did. What is under way is not ended with [`Queue::done`].
    pub(crate) fn clear(&mut self) -> Vec<J> {
        self.order.clear();
        self.busy = 0;
        std::mem::take(&mut self.jobs)
            .into_values()
            .map(|(_, job)| job)
            .collect()
    }
}
