//! Packets that ask the driver for something, and the times at which they left.

use super::{Queue, SendError};
use crate::burst::Packet;
use crate::error::Error;
use crate::tx_metadata::{AskError, StampCounters, TxMeta, TxStamps};
use crate::umem::{Fate, Frame};

impl Queue {
    /// As [`send`](Queue::send), and asks the driver for something about the packet; see [`tx_metadata`](crate::tx_metadata).
    ///
    /// # Errors
    ///
    /// Those of [`send`](Queue::send), and [`Error::TxMetadata`] for what cannot be asked for. The frame comes back.
    #[allow(
        clippy::result_large_err,
        reason = "the frame comes back with the reason; a box would allocate on the packet's path"
    )]
    pub fn send_asking(&mut self, frame: Frame, meta: TxMeta) -> Result<(), SendError> {
        if meta.is_empty() {
            return self.send(frame);
        }
        if let Err(error) = self
            .sound()
            .and_then(|()| self.sendable(&frame))
            .and_then(|()| self.note_request(&frame, &meta))
            .and_then(|()| self.wait_for_room(frame.frames()))
        {
            return Err(SendError { error, frame });
        }
        frame.into_entries(Fate::Send, &mut self.inbox);
        self.inbox[0].mark_asking();
        let pushed = self.push_inbox(Fate::Drop);
        debug_assert!(matches!(pushed, Ok(1)));
        Ok(())
    }

    /// As [`send_with`](Queue::send_with), where each packet asks for what `write` returns about it.
    ///
    /// ```no_run
    /// # use ringside_xsk::{Queue, Error, tx_metadata::TxMeta};
    /// # fn blast(queue: &mut Queue, template: &[u8]) -> Result<(), Error> {
    /// let mut number = 0;
    /// let sent = queue.send_asking_with(64, |packet| {
    ///     assert!(packet.write(template));
    ///     number += 1;
    ///     TxMeta::new().timestamp(number)
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`send_with`](Queue::send_with). [`Error::TxMetadata`] when a packet asks for what it cannot: it is not sent,
    /// and counted as abandoned; those before it and behind it are sent all the same.
    #[inline]
    pub fn send_asking_with(&mut self, max: u32, write: impl FnMut(&mut Packet<'_>) -> TxMeta) -> Result<u32, Error> {
        self.send_each(max, write)
    }

    fn note_request(&mut self, frame: &Frame, meta: &TxMeta) -> Result<(), Error> {
        let asked = frame.ask(meta).and_then(|()| {
            let pair = self.bound.pair.lock();
            pair.pool.refuses(frame.head()).map_or(Ok(()), Err)
        });
        asked.map_err(|error| self.not_asked(error))
    }

    /// The times at which packets left that asked for it, oldest first, of all that are back by now. What is not taken stays
    /// for the next call; of more than there are frames the newest are thrown away, and counted.
    ///
    /// A queue and its [`sibling`](Queue::sibling)s have them in common: the token tells whose it is.
    ///
    /// ```no_run
    /// # use ringside_xsk::{Error, Queue};
    /// # fn show(queue: &mut Queue) -> Result<(), Error> {
    /// for stamp in queue.tx_stamps()? {
    ///     println!("packet {} left at {}", stamp.token, stamp.time);
    /// }
    /// if let Some(coverage) = queue.stamp_counters().coverage() {
    ///     println!("{:.1} % of the packets that asked have a stamp", 100.0 * coverage);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Poisoned`] when shared memory broke the ring protocol.
    pub fn tx_stamps(&mut self) -> Result<TxStamps<'_>, Error> {
        self.sound()?;
        self.drain_completions()?;
        Ok(TxStamps::new(self.bound.pair.lock()))
    }

    /// What became of the stamps that were asked for, on this queue and its siblings.
    pub fn stamp_counters(&self) -> StampCounters {
        self.bound.pair.read(|pair| {
            let stamps = pair.pool.tx_metadata().and_then(|obtained| obtained.stamps.as_ref());
            stamps.map_or(StampCounters::default(), |stamps| stamps.counters())
        })
    }

    #[cold]
    pub(super) fn not_asked(&self, error: AskError) -> Error {
        Error::TxMetadata {
            interface: self.report.interface.clone(),
            queue: self.report.queue,
            error,
        }
    }
}
