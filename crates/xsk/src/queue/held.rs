//! Bursts that are not borrowed from their queue all the time, for bindings to other languages: free frames as a burst, and
//! a burst that was let go ([`Burst::hold`]) and is taken up again.

use super::Queue;
use crate::burst::Burst;
use crate::error::Error;
use crate::umem::{Entry, Fate};
use crate::wakeup::Answer;

impl Queue {
    /// Up to `max` free frames, at most a batch, as a burst of empty packets: to be written, then sent with
    /// [`Burst::send_back`] or, those marked, with [`Burst::finish`]. Empty when no frame is free. Where the packets can be
    /// written one after the other, [`send_with`](Self::send_with) is faster.
    ///
    /// ```no_run
    /// # use ringside_xsk::{Queue, Error};
    /// # fn answer(queue: &mut Queue, answers: &[&[u8]]) -> Result<(), Error> {
    /// let mut burst = queue.reserve(64)?;
    /// for (mut packet, answer) in burst.iter_mut().zip(answers) {
    ///     assert!(packet.write(answer));
    ///     packet.send();
    /// }
    /// burst.finish()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`send_with`](Self::send_with).
    pub fn reserve(&mut self, max: u32) -> Result<Burst<'_>, Error> {
        self.ready()?;
        if self.bound.tx.is_none() {
            return Err(self.wrong_direction());
        }
        self.event = None;
        let most = max.min(self.batch);
        if self.frames_per_packet == 1 {
            let mut pair = self.bound.pair.lock();
            let spare = pair.spare(most);
            let frames = spare.map_or(0, |(frames, _)| frames);
            let taken = (0..frames).map_while(|_| pair.pool.take_buf());
            self.inbox.extend(taken.map(|buf| Entry::new(buf, Fate::Open)));
            drop(pair);
            let (_, completed) = self.check(spare)?;
            self.note_completed(completed);
        } else {
            for _ in 0..most {
                let Some(buf) = self.take_free()? else { break };
                self.inbox.push(Entry::new(buf, Fate::Open));
                if !self.lengthen_last()? {
                    break;
                }
            }
        }
        if self.inbox.is_empty() && self.in_flight() != 0 {
            self.no_progress(Answer::Done)?;
        }
        Ok(Burst::new(self))
    }

    /// The burst that was let go with [`Burst::hold`]; an empty one if there is none any more.
    #[inline]
    pub fn held(&mut self) -> Burst<'_> {
        Burst::new(self)
    }

    /// Packets of a burst at the most from now on: up to as many as the queue was opened with
    /// ([`QueueOptions::batch`](crate::QueueOptions::batch)), at least one.
    #[inline]
    pub fn set_batch(&mut self, packets: u32) {
        self.batch = packets.clamp(1, self.most_batch);
    }
}
