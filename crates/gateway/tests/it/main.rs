//! The integration tests, as one program: each module tests one subject.

mod bed;
mod common;
mod kernel;
mod peers;
#[path = "../../../cli/tests/it/common/process.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared; a part of it is used here")]
mod process;
mod ringside;
mod tenant;
mod vtep;

mod api;
mod crash;
mod daemon;
mod fleet;
mod power;
mod tenants;

/// A guest's first process, which [`ringside_netlab::guest::Agent::test_binary`] names.
#[cfg(target_arch = "x86_64")]
#[test]
#[ignore = "the first process of a guest"]
fn guest_agent() {
    assert_eq!(ringside_netlab::guest::agent::main(), std::process::ExitCode::SUCCESS);
}
