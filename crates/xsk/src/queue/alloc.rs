//! Free frames for packets to be sent.

use std::sync::Arc;

use super::Queue;
use crate::error::Error;
use crate::pair::Pair;
use crate::umem::{Buf, Frame};

impl Queue {
    /// A free frame to write a packet into, of length 0 at first. `None` when all are in use, or
    /// the free ones are those that the fill ring needs: send, drop or wait. Also `None` when
    /// something is wrong with the queue, which the next call that returns a `Result` tells.
    #[inline]
    pub fn alloc(&mut self) -> Option<Frame> {
        if self.frames_per_packet == 1 && self.is_sound() {
            let pair = &mut *self.bound.pair.lock();
            if pair.pool.available() > pair.wanted() as usize {
                let buf = pair.pool.take_buf()?;
                return Some(Frame::new(Arc::clone(&self.bound.umem), buf));
            }
        }
        self.alloc_slow()
    }

    /// [`Queue::alloc`] when there is no frame on hand, or more to be done.
    fn alloc_slow(&mut self) -> Option<Frame> {
        let taken = self.sound().and_then(|()| {
            let mut taken = self.take_free()?;
            if taken.is_none() && self.unsent {
                self.kick()?;
                taken = self.take_free()?;
            }
            taken.map_or(Ok(None), |head| self.lengthened(head))
        });
        taken.unwrap_or_else(|error| {
            self.defer(error);
            None
        })
    }

    /// As many more frames as a packet to be sent gets. `None`, and the frame back in the pool,
    /// when there are too few.
    fn lengthened(&mut self, head: Buf) -> Result<Option<Frame>, Error> {
        let umem = Arc::clone(&self.bound.umem);
        if self.frames_per_packet == 1 {
            return Ok(Some(Frame::new(umem, head)));
        }
        let mut pair = self.bound.pair.lock();
        let more = self.frames_per_packet - 1;
        let too_few = |pair: &Pair| pair.pool.available() < (pair.wanted() + more) as usize;
        let mut completed = Ok(0);
        if too_few(&pair) {
            completed = pair.complete();
            pair.pool.collect_returned();
        }
        let frame = if too_few(&pair) {
            pair.pool.put_buf(&head);
            None
        } else {
            Some(Frame::chain(umem, head, (0..more).map_while(|_| pair.pool.take_buf())))
        };
        drop(pair);
        let completed = self.check(completed)?;
        self.note_completed(completed);
        Ok(frame)
    }

    /// Free frames on hand.
    pub fn free_frames(&mut self) -> usize {
        let pool = &mut self.bound.pair.lock().pool;
        pool.collect_returned();
        pool.available()
    }

    /// A free frame for a packet to be sent, from the pool or from the completion ring. Never one
    /// that the fill ring needs: a TX side that is stuck must not stop the receiving.
    #[inline]
    pub(super) fn take_free(&mut self) -> Result<Option<Buf>, Error> {
        let mut pair = self.bound.pair.lock();
        let spare = pair.spare(1);
        let buf = match spare {
            Ok((1, _)) => pair.pool.take_buf(),
            _ => None,
        };
        drop(pair);
        let (_, completed) = self.check(spare)?;
        self.note_completed(completed);
        Ok(buf)
    }
}
