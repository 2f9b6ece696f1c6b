//! Links that lose their carrier as they are opened: some drivers reset the NIC when an XDP program comes or goes, an igb's for more than a
//! second. Nothing passes meanwhile; a schedule that began there would be a burst when it is over, and addresses would not be found.

use std::time::{Duration, Instant};

use ringside_netlab::wait_until;
use ringside_nic::{Interface, LinkState, OperState};

use crate::output;

/// An 82576 has it back after 1.1 to 1.5 s, copper that negotiates its rate after two or three.
const BACK: Duration = Duration::from_secs(5);

/// Whether a link is to be waited for when it has been opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carrier {
    is_expected: bool,
}

impl Carrier {
    /// Before it is opened. A NIC without one may have been reset by who has just ended.
    pub(crate) fn before(interface: &Interface) -> Self {
        let state = interface.state();
        let is_expected = state.is_ok_and(|state| is_nic(&state) || passes(&state));
        Self { is_expected }
    }

    /// Behind it: waits until it is there, and tells how long that took. One that does not come is a matter of the run, which waits for it as for
    /// any that goes.
    pub(crate) fn wait_for(self, interface: &Interface) {
        if self.is_expected {
            wait(interface, "once opened");
        }
    }
}

/// Before a host is asked for on a NIC's link, which may have been reset by who has just ended.
pub(crate) fn wait_before_asking(interface: &Interface) {
    if interface.state().is_ok_and(|state| is_nic(&state)) {
        wait(interface, "before");
    }
}

fn wait(interface: &Interface, when: &str) {
    if is_settled(interface) {
        return;
    }
    let begin = Instant::now();
    let is_there = wait_until(BACK, || is_settled(interface));
    let after = begin.elapsed().as_secs_f64();
    match is_there {
        true => output::note(format_args!(
            "{interface} had no carrier {when}; it is there after {after:.2} s"
        )),
        false => output::note(format_args!("{interface} has no carrier; waited {after:.0} s for it")),
    }
}

/// Nothing to wait for: packets pass, or it is switched off or gone, which others tell.
fn is_settled(interface: &Interface) -> bool {
    interface
        .state()
        .map_or(true, |state| !state.admin_up || passes(&state))
}

fn passes(state: &LinkState) -> bool {
    // The carrier's word comes at once, the other one up to a second later: until then the kernel sends nothing of its own.
    state.admin_up && state.carrier && matches!(state.operstate, OperState::Up | OperState::Unknown)
}

/// Or what stands on one and goes with it. The carrier of other virtual links is somebody's will, and no driver takes it away.
fn is_nic(state: &LinkState) -> bool {
    matches!(state.kind.as_deref(), None | Some("vlan" | "bond" | "team"))
}
