//! The integration tests, as one program: each module tests one subject.

mod apart;
mod asking;
mod attached;
mod bad_input;
mod busy_poll;
mod capabilities;
mod common;
mod conformance;
mod fallback;
mod faults;
mod filter;
mod harness;
mod held;
mod hints;
mod hints_hostile;
mod hostile;
mod jumbo;
mod ledger;
mod lifecycle;
mod memory;
mod misuse;
mod mtu;
mod nic_hints;
mod no_allocation;
mod own_address;
mod parts;
mod privileges;
mod refused;
mod refused_bind;
mod shared;
mod split_btf;
mod stacked;
mod tokio;
mod traffic;
mod transmit;
mod tx_metadata;
mod uncut;
mod working_set;

#[test]
#[cfg(target_arch = "x86_64")]
#[ignore = "the first process of a guest"]
fn guest_agent() {
    assert_eq!(ringside_netlab::guest::agent::main(), std::process::ExitCode::SUCCESS);
}
