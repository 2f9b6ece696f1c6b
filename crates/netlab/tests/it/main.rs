//! The integration tests, as one program: each module tests one subject.

mod attach;
mod cable;
mod chroot;
mod devices;
mod guest;
mod namespaces;
mod veth;
mod vfio;

/// A guest's first process, which [`ringside_netlab::guest::Agent::test_binary`] names.
#[test]
#[ignore = "the first process of a guest"]
fn guest_agent() {
    assert_eq!(ringside_netlab::guest::agent::main(), std::process::ExitCode::SUCCESS);
}
