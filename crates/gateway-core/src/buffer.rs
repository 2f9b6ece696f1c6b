//! A packet's memory, as far as decisions need it.

/// A frame that can be edited in place, and grow or shrink at both ends.
///
/// Implemented for frames of the UMEM by the daemon, and for [`Vec<u8>`] with room in front ([`Roomy`]).
pub trait Buffer {
    /// The frame.
    fn bytes(&self) -> &[u8];
    /// The frame, to be edited.
    fn bytes_mut(&mut self) -> &mut [u8];
    /// Makes the frame begin `by` bytes earlier, or later if `by` is negative. False, and nothing done, if there is no
    /// room or the frame is not as long. New bytes are anything.
    fn move_front(&mut self, by: isize) -> bool;
    /// Makes the frame `len` bytes long. False, and nothing done, if there is no room. New bytes are anything.
    fn set_len(&mut self, len: usize) -> bool;
}

/// A frame on the heap with room at both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roomy {
    memory: Vec<u8>,
    start: usize,
    end: usize,
}

impl Roomy {
    /// A frame with so many bytes of room before and behind it.
    #[must_use]
    pub fn new(frame: &[u8], front: usize, back: usize) -> Self {
        let mut memory = vec![0; front + frame.len() + back];
        let end = front + frame.len();
        memory[front..end].copy_from_slice(frame);
        Self {
            memory,
            start: front,
            end,
        }
    }
}

impl Buffer for Roomy {
    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.end]
    }

    fn move_front(&mut self, by: isize) -> bool {
        let start = self.start.checked_add_signed(-by).filter(|&start| start <= self.end);
        start.inspect(|&start| self.start = start).is_some()
    }

    fn set_len(&mut self, len: usize) -> bool {
        let fits = self.memory.len() - self.start >= len;
        if fits {
            self.end = self.start + len;
        }
        fits
    }
}
