//! The same seen from the receiver, who does not know what was sent.

use super::Arrival;

/// Follows the packets of one session where they come in, by their numbers alone.
///
/// It remembers the last *window* numbers up to the highest that came. A packet with a number below them is *late*: nobody knows
/// any more whether it came before.
///
/// ```
/// use ringside_measure::sequence::{Arrival, Arrivals};
///
/// let mut arrivals = Arrivals::new(1024);
/// assert_eq!(arrivals.on_received(0), Arrival::InOrder);
/// assert_eq!(arrivals.on_received(2), Arrival::InOrder); // 1 is missing
/// assert_eq!(arrivals.on_received(1), Arrival::Reordered { distance: 1 });
/// assert_eq!(arrivals.on_received(1), Arrival::Duplicate);
/// assert_eq!((arrivals.received(), arrivals.expected()), (3, 3));
/// ```
#[derive(Debug, Clone)]
pub struct Arrivals {
    seen: Box<[u64]>,
    mask: u64,
    /// The highest number that came, plus one.
    expected: u64,
    received: u64,
}

impl Arrivals {
    /// Remembers at least `window` numbers: rounded up to a power of two, from 64 to 2³⁰; a bit each, allocated here.
    #[must_use]
    pub fn new(window: usize) -> Self {
        let window = window.clamp(64, 1 << 30).next_power_of_two();
        Self {
            seen: vec![0; window / 64].into_boxed_slice(),
            mask: window as u64 - 1,
            expected: 0,
            received: 0,
        }
    }

    /// A packet came. A late one counts neither as received nor as a duplicate.
    pub fn on_received(&mut self, sequence: u64) -> Arrival {
        if sequence == u64::MAX {
            return Arrival::Unexpected;
        }
        let arrival = if sequence >= self.expected {
            self.forget(sequence);
            self.expected = sequence + 1;
            Arrival::InOrder
        } else {
            let distance = self.expected - 1 - sequence;
            if distance > self.mask {
                return Arrival::Late;
            }
            let (word, bit) = self.place(sequence);
            if self.seen[word] & bit != 0 {
                return Arrival::Duplicate;
            }
            Arrival::Reordered { distance }
        };
        let (word, bit) = self.place(sequence);
        self.seen[word] |= bit;
        self.received += 1;
        arrival
    }

    /// Packets that came, each once.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// So many would have come by the highest number: what is missing of them is lost or on its way.
    #[must_use]
    pub fn expected(&self) -> u64 {
        self.expected
    }

    /// For another session: nothing has come.
    pub fn reset(&mut self) {
        self.seen.fill(0);
        (self.expected, self.received) = (0, 0);
    }

    /// Makes room up to a number: what these places held is one window back.
    fn forget(&mut self, sequence: u64) {
        if sequence - self.expected > self.mask {
            self.seen.fill(0);
            return;
        }
        for number in self.expected..=sequence {
            let (word, bit) = self.place(number);
            self.seen[word] &= !bit;
        }
    }

    fn place(&self, sequence: u64) -> (usize, u64) {
        let slot = sequence & self.mask;
        (usize::try_from(slot / 64).unwrap_or(usize::MAX), 1 << (slot % 64))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a set of all numbers.
        #[test]
        fn it_counts_as_one_who_remembers_everything(numbers in prop::collection::vec(0u64..400, 0..300)) {
            let mut arrivals = Arrivals::new(64);
            let (mut all, mut seen) = (BTreeSet::new(), 0);
            for number in numbers {
                let highest = all.last().copied();
                let late = highest.is_some_and(|highest| number + 63 < highest);
                let expected = match highest {
                    _ if late => Arrival::Late,
                    _ if all.contains(&number) => Arrival::Duplicate,
                    Some(highest) if number < highest => Arrival::Reordered { distance: highest - number },
                    _ => Arrival::InOrder,
                };
                prop_assert_eq!(arrivals.on_received(number), expected);
                if expected.is_first() {
                    seen += 1;
                    all.insert(number);
                }
                prop_assert_eq!(arrivals.received(), seen);
                prop_assert_eq!(arrivals.expected(), all.last().map_or(0, |highest| highest + 1));
            }
            arrivals.reset();
            prop_assert_eq!(arrivals.on_received(5), Arrival::InOrder);
            prop_assert_eq!(arrivals.received(), 1);
        }
    }

    #[test]
    fn leaps_and_the_end_of_numbers_do_no_harm() {
        let mut arrivals = Arrivals::new(64);
        assert_eq!(arrivals.on_received(u64::MAX - 1), Arrival::InOrder);
        assert_eq!(arrivals.on_received(u64::MAX), Arrival::Unexpected);
        assert_eq!(arrivals.on_received(0), Arrival::Late);
        assert_eq!(arrivals.expected(), u64::MAX);
    }
}
