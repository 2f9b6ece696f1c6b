//! From messages to events: compares with what was told last, knows no socket.

use std::collections::VecDeque;

use super::event::{LinkEvent, LinkStatus};
use super::messages::Moved;
use crate::{Interface, LinkState};

/// What is known of the link.
#[derive(Debug)]
pub(super) struct Tracker {
    /// The name that it has, or had last.
    name: String,
    namespace: Option<u64>,
    present: Option<Present>,
}

#[derive(Debug)]
struct Present {
    interface: Interface,
    status: LinkStatus,
    queues: Option<(u32, u32)>,
    /// 0 until a message has one.
    mtu: u32,
}

impl Tracker {
    /// Waits for a link of that name.
    pub(super) fn new(name: &str, namespace: Option<u64>) -> Self {
        Self {
            name: name.to_owned(),
            namespace,
            present: None,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn interface(&self) -> Option<&Interface> {
        self.present.as_ref().map(|present| &present.interface)
    }

    pub(super) fn status(&self) -> Option<LinkStatus> {
        self.present.as_ref().map(|present| present.status)
    }

    /// A link's state, of whichever link; returns whether it is this one.
    pub(super) fn link(&mut self, state: &LinkState, events: &mut VecDeque<LinkEvent>) -> bool {
        let handle = || Interface::of(state, self.namespace);
        match &mut self.present {
            Some(present) if present.interface.index() == state.index => {
                if self.name != state.name {
                    self.name.clone_from(&state.name);
                    present.interface = handle();
                    events.push_back(LinkEvent::Renamed {
                        name: state.name.clone(),
                    });
                }
            }
            None if self.name == state.name => {
                events.push_back(LinkEvent::Appeared { index: state.index });
                self.present = Some(Present {
                    interface: handle(),
                    status: LinkStatus::Down,
                    queues: None,
                    mtu: state.mtu,
                });
            }
            _ => return false,
        }
        let status = LinkStatus::of(state);
        if let Some(present) = &mut self.present {
            if present.status != status {
                present.status = status;
                events.push_back(status.into());
            }
            // Not every message has it.
            if state.mtu != 0 && std::mem::replace(&mut present.mtu, state.mtu) != state.mtu {
                events.push_back(LinkEvent::MtuChanged { mtu: state.mtu });
            }
        }
        true
    }

    /// A link is no longer there, whichever link.
    pub(super) fn gone(&mut self, index: u32, moved: Option<Moved>, events: &mut VecDeque<LinkEvent>) {
        if self.interface().map(Interface::index) != Some(index) {
            return;
        }
        self.present = None;
        events.push_back(match moved {
            None => LinkEvent::Removed,
            Some(Moved { namespace, index }) => LinkEvent::Moved { namespace, index },
        });
    }

    /// The numbers of this link's queues. The first ones are no change.
    pub(super) fn queues(&mut self, rx: u32, tx: u32, events: &mut VecDeque<LinkEvent>) {
        let Some(present) = &mut self.present else { return };
        if present
            .queues
            .replace((rx, tx))
            .is_some_and(|before| before != (rx, tx))
        {
            events.push_back(LinkEvent::QueuesChanged { rx, tx });
        }
    }
}

#[cfg(test)]
#[path = "tracker_tests.rs"]
mod tests;
