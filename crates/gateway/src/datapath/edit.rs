//! Packets in frames of the UMEM, as decisions see them.

use ringside_gateway_core::buffer::Roomy;
use ringside_gateway_core::decide::{Burst, Decision};
use ringside_gateway_core::table::HostId;
use ringside_gateway_core::{Buffer, DropReason};
use ringside_xsk::{Frame, Packet};

use super::trace::{Shown, Wanted};

/// Bytes that a packet grows by at the most: other outer headers, or an ICMP error's.
const NEW_HEADERS: usize = 128;

/// A packet of a burst.
pub(super) struct Edit<'a, 'b>(pub(super) &'a mut Packet<'b>);

/// A packet that was kept.
pub(super) struct EditKept<'a>(pub(super) &'a mut Frame);

/// A packet that may be in several frames: what [`Buffer`] shows is then what is in the first.
pub(super) trait InFrames: Buffer {
    /// Its length, over all its frames.
    fn length(&self) -> usize;
    /// In one piece, if it is in several frames.
    fn in_one_piece(&self) -> Option<Roomy>;
    /// Replaces it. False if its frames have no room for that.
    fn replace(&mut self, by: &[u8]) -> bool;
}

macro_rules! edit {
    ($name:ident<$($lifetime:lifetime),+>) => {
        impl<$($lifetime),+> Buffer for $name<$($lifetime),+> {
            fn bytes(&self) -> &[u8] {
                self.0.data()
            }

            fn bytes_mut(&mut self) -> &mut [u8] {
                self.0.data_mut()
            }

            fn move_front(&mut self, by: isize) -> bool {
                match usize::try_from(by) {
                    Ok(by) => self.0.extend_front(by),
                    Err(_) => self.0.trim_front(by.unsigned_abs()),
                }
            }

            fn set_len(&mut self, len: usize) -> bool {
                self.0.resize(len)
            }
        }

        impl<$($lifetime),+> InFrames for $name<$($lifetime),+> {
            fn length(&self) -> usize {
                self.0.len()
            }

            fn in_one_piece(&self) -> Option<Roomy> {
                (self.0.len() != self.0.data().len()).then(|| {
                    let mut bytes = vec![0; self.0.len()];
                    self.0.copy_to(&mut bytes);
                    Roomy::new(&bytes, NEW_HEADERS, NEW_HEADERS)
                })
            }

            fn replace(&mut self, by: &[u8]) -> bool {
                self.0.write(by)
            }
        }
    };
}
edit!(Edit<'a, 'b>);
edit!(EditKept<'a>);

/// Where and when packets are decided about, and who wants to see them.
pub(super) struct Desk<'a> {
    pub(super) now: u64,
    /// The number of the interface, and its queue.
    pub(super) port: u8,
    pub(super) queue: u32,
    pub(super) trace: Option<&'a Wanted>,
}

impl Desk<'_> {
    /// Decides about the next packet of a burst, which was read from `whole` if it is in several frames. `no_room`: why one cannot
    /// wait for its host. `shown` is what is shown of it, for [`Desk::comes_to`]; beside the decision, which stays in a register.
    pub(super) fn decide(
        &self,
        decisions: &mut Burst<'_>,
        packet: &mut impl InFrames,
        whole: Option<Roomy>,
        no_room: impl FnOnce(HostId) -> Option<DropReason>,
        shown: &mut Option<Box<Shown>>,
    ) -> Decision {
        let read = whole.as_ref().map_or(packet.bytes(), Buffer::bytes);
        *shown = self.take(decisions, read, (packet.bytes(), packet.length()));
        let decision = match whole {
            None => decisions.next(self.now, self.port, packet),
            Some(mut whole) => match decisions.next(self.now, self.port, &mut whole) {
                decision if decision.is_edited() && !packet.replace(whole.bytes()) => {
                    Decision::Drop(DropReason::TransmitFailed)
                }
                decision => decision,
            },
        };
        let decision = match decision {
            Decision::Wait(host) => no_room(host).map_or(decision, Decision::Drop),
            decision => decision,
        };
        if let Some(shown) = shown {
            shown.cacheable = decisions.cacheable();
            self.show(Some(shown), decision, packet.bytes());
        }
        decision
    }

    /// The next packet of a burst as it is now, if somebody wants to see it: what was read, and what its first frame has of its length.
    pub(super) fn take(
        &self,
        decisions: &mut Burst<'_>,
        read: &[u8],
        (bytes, length): (&[u8], usize),
    ) -> Option<Box<Shown>> {
        let trace = self.trace?;
        let mut shown = trace.take(decisions.peek(read).as_ref(), bytes, length)?;
        shown.rules = decisions.rules(read);
        Some(Box::new(shown))
    }

    /// Shows what becomes of a packet after all, which was to be sent or to wait.
    pub(super) fn comes_to(&self, shown: Option<&Shown>, reason: DropReason) {
        self.show(shown, Decision::Drop(reason), &[]);
    }

    fn show(&self, shown: Option<&Shown>, decision: Decision, after: &[u8]) {
        if let (Some(trace), Some(shown)) = (self.trace, shown) {
            // More exactly, to be in order with what the fast path shows.
            trace.tell(shown, super::now(), (self.port, self.queue), decision, after);
        }
    }
}
