//! What came of binding queues and sending packets.

use ringside_measure::schema::Mode;
use ringside_xsk::Path;
use serde::{Deserialize, Serialize};

/// A test of an interface.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Test {
    /// What it was done on.
    pub(super) bed: String,
    pub(super) tries: Vec<Try>,
    /// Which queue packets of the kernel's sockets came out at.
    pub(super) flows: Vec<Seen>,
    /// Why it was not done, or ended early.
    pub(super) failure: Option<String>,
    /// What of it was left behind; none as it should be.
    pub(super) left_behind: Option<String>,
}

/// One queue in one mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Try {
    pub(super) queue: u32,
    pub(super) mode: Mode,
    #[serde(flatten)]
    pub(super) outcome: Outcome,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(super) enum Outcome {
    /// The queue could not be bound.
    Refused {
        reason: String,
        /// It is about this mode. Otherwise no mode can be had: somebody has the queue, the link is down, a capability is missing.
        of_mode: bool,
    },
    /// It was bound, but does not send or receive.
    Failed { reason: String },
    /// It was bound, and a frame was sent to the interface's own address; nobody was there to answer.
    Sent,
    /// Probes were sent.
    Asked(Answers),
}

/// What became of probes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Answers {
    pub(super) by: Answerer,
    pub(super) sent: u64,
    pub(super) answered: u64,
    /// The queues that answers came to.
    pub(super) came_to: Vec<CameTo>,
    /// Median round trip; none without answers.
    pub(super) median_rtt_ns: Option<u64>,
}

/// Who answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answerer {
    /// Another AF_XDP socket: there and back through AF_XDP.
    #[default]
    Echo,
    /// The host's kernel, by ICMP: sent by AF_XDP, and the answer came up the stack, past our XDP program.
    Icmp,
}

/// Packets that came to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CameTo {
    pub(super) queue: u32,
    pub(super) packets: u64,
}

/// A flow of the kernel's, and where it came out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Seen {
    pub(super) flow: String,
    /// None: it did not come.
    pub(super) queue: Option<u32>,
}

/// The mode in the words of results.
pub(super) fn mode(path: Path) -> Mode {
    crate::system::mode(path)
}

impl Answers {
    pub(super) fn count(&mut self, queue: u32) {
        self.answered += 1;
        match self.came_to.iter_mut().find(|came| came.queue == queue) {
            Some(came) => came.packets += 1,
            None => self.came_to.push(CameTo { queue, packets: 1 }),
        }
    }
}

impl Try {
    pub(super) fn new(queue: u32, path: Path, outcome: Outcome) -> Self {
        Self {
            queue,
            mode: mode(path),
            outcome,
        }
    }

    /// Whether packets went the whole way that was to be tried.
    pub(super) fn works(&self) -> bool {
        match &self.outcome {
            Outcome::Refused { .. } | Outcome::Failed { .. } => false,
            Outcome::Sent => true,
            Outcome::Asked(answers) => answers.answered == answers.sent && answers.sent > 0,
        }
    }
}
