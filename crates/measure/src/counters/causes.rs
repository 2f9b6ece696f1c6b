//! Where packets can be lost.

/// Where a packet was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LossCause {
    /// Dropped by the kernel on the way to the socket: `rx_dropped` of `XDP_STATISTICS`.
    RxDropped,
    /// The RX ring was full: `rx_ring_full` of `XDP_STATISTICS`.
    RxRingFull,
    /// The NIC had no room: `rx_missed_errors` and `rx_fifo_errors` of the link.
    RxMissed,
    /// Invalid descriptors in the TX ring: `tx_invalid_descs` of `XDP_STATISTICS`.
    TxInvalidDescs,
    /// Dropped by the link on the way out: `tx_dropped` of the link.
    LinkTxDropped,
    /// Left on the TX ring at the end.
    LeftOnTxRing,
    /// In flight when the interface was removed.
    InterfaceRemoved,
    /// Thrown away by the queueing discipline, because the launch time was over.
    LaunchTimeMissed,
    /// Probes without an answer, of which no counter says more.
    NoAnswer,
    /// Answers dropped by the kernel on the way to the socket.
    AnswerRxDropped,
    /// Answers for which the RX ring was full.
    AnswerRxRingFull,
    /// Answers with a wrong UDP checksum.
    AnswerBadChecksum,
    /// Lost between this host and the server.
    WayThere,
    /// Lost between the server and this host.
    WayBack,
    /// Refused by the server, which allows a lower rate.
    AboveServerRate,
    /// Came as the run ended, and was not handled.
    RunEnded,
    /// Lost on purpose.
    Impairment,
    /// The queue in front of the rate was full.
    RateQueueFull,
    /// No room to hold it.
    HoldFull,
    /// Too long for the interface that they leave by.
    TooLong,
    /// The link to leave by was down.
    LinkDown,
    /// Still held as the run ended.
    StillHeld,
    /// Not forwarded: too short, too long, no link, or at the end of the run.
    NotForwarded,
    /// Did not come, by the sequence numbers of those that came.
    MissingNumber,
}

impl LossCause {
    /// All causes.
    pub const ALL: [Self; 24] = [
        Self::RxDropped,
        Self::RxRingFull,
        Self::RxMissed,
        Self::TxInvalidDescs,
        Self::LinkTxDropped,
        Self::LeftOnTxRing,
        Self::InterfaceRemoved,
        Self::LaunchTimeMissed,
        Self::NoAnswer,
        Self::AnswerRxDropped,
        Self::AnswerRxRingFull,
        Self::AnswerBadChecksum,
        Self::WayThere,
        Self::WayBack,
        Self::AboveServerRate,
        Self::RunEnded,
        Self::Impairment,
        Self::RateQueueFull,
        Self::HoldFull,
        Self::TooLong,
        Self::LinkDown,
        Self::StillHeld,
        Self::NotForwarded,
        Self::MissingNumber,
    ];

    /// Returns the identifier, which stays the same in all versions.
    #[must_use]
    pub fn id(self) -> &'static str {
        self.entry().0
    }

    /// Returns the cause in words, which may change.
    #[must_use]
    pub fn text(self) -> &'static str {
        self.entry().1
    }

    fn entry(self) -> (&'static str, &'static str) {
        match self {
            Self::RxDropped => ("rx_dropped", "rx_dropped (no free frame in time, or too long)"),
            Self::RxRingFull => ("rx_ring_full", "rx_ring_full"),
            Self::RxMissed => (
                "rx_missed",
                "rx_missed_errors and rx_fifo_errors of the link (no room in the NIC's ring)",
            ),
            Self::TxInvalidDescs => ("tx_invalid_descs", "tx_invalid_descs"),
            Self::LinkTxDropped => ("link_tx_dropped", "dropped by the link on the way out"),
            Self::LeftOnTxRing => ("left_on_tx_ring", "left on the TX ring at the end (the link was down)"),
            Self::InterfaceRemoved => ("interface_removed", "in flight when the interface was removed"),
            Self::LaunchTimeMissed => (
                "launch_time_missed",
                "thrown away by etf or taprio: too late for their time",
            ),
            Self::NoAnswer => ("no_answer", "no answer"),
            Self::AnswerRxDropped => (
                "answer_rx_dropped",
                "answers: rx_dropped (no free frame in time, or too long)",
            ),
            Self::AnswerRxRingFull => ("answer_rx_ring_full", "answers: rx_ring_full"),
            Self::AnswerBadChecksum => ("answer_bad_checksum", "answers: wrong UDP checksum"),
            Self::WayThere => ("way_there", "on the way there"),
            Self::WayBack => ("way_back", "on the way back"),
            Self::AboveServerRate => ("above_server_rate", "above the rate that the server allows"),
            Self::RunEnded => ("run_ended", "came as the run ended"),
            Self::Impairment => ("impairment", "lost on purpose"),
            Self::RateQueueFull => ("rate_queue_full", "found the queue in front of the rate full"),
            Self::HoldFull => ("hold_full", "no room to hold it: give more with --hold"),
            Self::TooLong => ("too_long", "too long to send"),
            Self::LinkDown => ("link_down", "the link to leave by was down"),
            Self::StillHeld => ("still_held", "still held as the run ended"),
            Self::NotForwarded => (
                "not_forwarded",
                "not forwarded (too short or too long to send, the link was down, or it came as the run ended)",
            ),
            Self::MissingNumber => ("missing_number", "did not come, by the numbers of those that did"),
        }
    }
}
