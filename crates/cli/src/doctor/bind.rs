//! Binds queues of an interface in one mode.

use std::time::Duration;

use anyhow::Result;
use ringside_nic::Interface;
use ringside_xsk::{Error, Filter, Mode, Path, Port, QueueOptions};

use super::tried::{Outcome, Try};
use crate::session::Carrier;

/// For a queue that may be somebody's.
pub(super) const THEIRS: Duration = Duration::from_secs(2);
/// For one that was ours a moment ago: the kernel gives it back when it comes to it, see `session::patiently`.
pub(super) const OURS: Duration = Duration::from_secs(10);

/// Ethernet header and two VLAN tags.
const HEADERS: u32 = 22;
/// What the kernel keeps free in front of a packet.
const HEADROOM: u32 = 256;

/// Frames that whatever the MTU allows fits into.
fn options(mtu: u32) -> QueueOptions {
    let packet = mtu.saturating_add(HEADERS);
    // Both ends of a veth are open at a time.
    let options = QueueOptions::new().memory_shares(2);
    if packet <= QueueOptions::DEFAULT_FRAME_SIZE - HEADROOM {
        options
    } else if packet <= 4096 - HEADROOM {
        options.frame_size(4096)
    } else {
        options.multi_buffer(true)
    }
}

/// Opens a port with those of the queues that can be had in this mode, and notes of the others why not. Queues that cannot be
/// had in any mode are taken off the list: there is nothing more to be tried on them.
pub(super) fn open(
    interface: &Interface,
    path: Path,
    filter: Filter,
    patience: Duration,
    queues: &mut Vec<u32>,
    tries: &mut Vec<Try>,
) -> Result<Option<Port>> {
    let mtu = interface.state()?.mtu;
    let carrier = Carrier::before(interface);
    while !queues.is_empty() {
        let opened = Port::builder(interface.clone())
            .mode(Mode::Require(path))
            .filter(filter)
            .queues(queues.iter().copied())
            .options(options(mtu).busy_timeout(patience))
            .open();
        match opened {
            Ok(port) => {
                carrier.wait_for(interface);
                return Ok(Some(port));
            }
            Err(error @ Error::QueueBusy { queue, .. }) if queues.contains(&queue) => {
                queues.retain(|other| *other != queue);
                tries.push(refused(queue, path, &error));
            }
            Err(error) => {
                tries.extend(queues.iter().map(|queue| refused(*queue, path, &error)));
                if !is_of_mode(&error) {
                    queues.clear();
                }
                return Ok(None);
            }
        }
    }
    Ok(None)
}

/// Whether another mode may go where this one did not.
fn is_of_mode(error: &Error) -> bool {
    matches!(error, Error::Mode { .. } | Error::Attach { .. })
}

fn refused(queue: u32, path: Path, error: &Error) -> Try {
    let of_mode = is_of_mode(error);
    let reason = match error {
        // Which mode was wanted, and that there are others, the reader knows.
        Error::Mode { reason, .. } => reason.clone(),
        other => other.to_string(),
    };
    Try::new(queue, path, Outcome::Refused { reason, of_mode })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_hold_what_the_mtu_allows() {
        for (mtu, expected) in [
            (1500, options(0)),
            (1770, options(0)),
            (1771, options(0).frame_size(4096)),
            (3818, options(0).frame_size(4096)),
            (3819, options(0).multi_buffer(true)),
            (u32::MAX, options(0).multi_buffer(true)),
        ] {
            assert_eq!(format!("{:?}", options(mtu)), format!("{expected:?}"), "{mtu}");
        }
    }
}
