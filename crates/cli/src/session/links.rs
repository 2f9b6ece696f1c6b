//! Interfaces that go away during a run.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use ringside_nic::Interface;

use crate::stop::Stop;

/// How often it is looked whether the interface is still there.
const LINK_LOOK: Duration = Duration::from_millis(250);

/// Ends the run when one of `links` is lost, and tells why.
///
/// A thread that spins on an empty ring makes no system call, and `poll()` stays silent too: neither sees its interface
/// go. This is a thread of its own because the kernel answers under the lock of all changes to interfaces, for which it
/// may have to wait for more than a second while others work on theirs; and one that nobody waits for.
pub(super) fn watch(links: Vec<Interface>, stop: Stop) -> mpsc::Receiver<anyhow::Error> {
    let (tell, told) = mpsc::channel();
    let look = move || {
        while !stop.sleep_until(Instant::now() + LINK_LOOK) {
            if let Some(error) = links.iter().find_map(gone) {
                // The run may have ended meanwhile.
                _ = tell.send(error);
                stop.set();
            }
        }
    };
    // Without it the run is as good as before, as long as the interfaces stay.
    _ = std::thread::Builder::new().name("links".into()).spawn(look);
    told
}

/// Why nothing can be measured on the interface any more, if that is so.
fn gone(interface: &Interface) -> Option<anyhow::Error> {
    match interface.state() {
        Ok(state) if state.admin_up => None,
        Ok(_) => Some(anyhow!(
            "{interface} was switched off during the run (ip link set {interface} up switches it on)"
        )),
        Err(error) if error.errno() == Some(libc::ENODEV) => Some(anyhow!("{interface} was removed during the run")),
        // The kernel has no memory for the answer, or the like: no reason to end a measurement.
        Err(_) => None,
    }
}

/// The library tells a lost link as one that may come back; here the run has ended.
pub(super) fn explained(error: anyhow::Error, links: &[Interface]) -> anyhow::Error {
    match error.downcast_ref() {
        Some(ringside_xsk::Error::LinkDown { interface, .. } | ringside_xsk::Error::LinkGone { interface, .. }) => {
            links
                .iter()
                .find_map(gone)
                .unwrap_or_else(|| anyhow!("{interface} was switched off for a moment during the run"))
        }
        _ => error,
    }
}
