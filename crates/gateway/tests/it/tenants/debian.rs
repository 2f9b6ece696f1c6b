//! Debian 12's own kernel, Linux 6.1: the oldest that the daemon is tried on, with tenants behind that kernel's own VXLAN devices. In a guest.
#![cfg(target_arch = "x86_64")]

use std::time::Duration;

use ringside_netlab::guest::Kernel;
use ringside_netlab::testing::is_root;

use crate::bed::{Family, Kind, Place};
use crate::tenants::geneve::{run_in_a_guest, tenants_understand_each_other};
use crate::tenants::{groups, restart};

/// The kernel of its images for clouds: the same, with fewer drivers.
const DEBIAN_12: &str = "linux-image-cloud-amd64/bookworm";

/// For all of it, by emulated CPUs on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_mins(40);

#[test]
#[ignore = "make test-guests runs it"]
fn debian_12s_kernel_has_a_gateway() {
    if !is_root() {
        return;
    }
    let kernel = Kernel::named(DEBIAN_12).expect("a kernel for guests");
    assert!(kernel.release.starts_with("6.1."), "{}", kernel.release);
    run_in_a_guest(kernel, &[], ("tenants::debian::inside::", 4), PATIENCE);
}

mod inside {
    /// Native XDP, and what is known goes through its program.
    #[test]
    #[ignore = "debian_12s_kernel_has_a_gateway runs it in a guest"]
    fn native_fast() {
        super::works(crate::tenants::FAST, "fast");
    }

    #[test]
    #[ignore = "debian_12s_kernel_has_a_gateway runs it in a guest"]
    fn native_slow() {
        super::works(crate::tenants::SLOW, "slow");
    }

    #[test]
    #[ignore = "debian_12s_kernel_has_a_gateway runs it in a guest"]
    fn generic_fast() {
        super::works(crate::tenants::GENERIC, "fast");
    }

    #[test]
    #[ignore = "debian_12s_kernel_has_a_gateway runs it in a guest"]
    fn generic_slow() {
        super::works(crate::tenants::GENERIC_SLOW, "slow");
    }
}

/// Echoes and TCP over both families, inside and outside; rules; and a daemon that is killed and comes back under transfers, with and without rules.
/// Every byte is compared.
fn works(kind: Kind, path: &str) {
    for outer in [Family::V4, Family::V6] {
        let mut bed = tenants_understand_each_other(kind, &[Place::vxlan(outer); 2]);
        // Segments of up to 1398 bytes, of one way at least: the one that a small cache has room for may go the other way.
        bed.ringside().wait_until(|gateway| gateway.forwarded(path) >= 300);
    }
    groups::only_what_is_allowed_goes(kind);
    restart::a_daemon_that_is_killed_is_not_missed(kind);
    restart::connections_under_rules_are_kept(kind);
}
