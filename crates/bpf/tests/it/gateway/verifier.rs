//! How much there is to prove: a kernel's verifier gives up after a million instructions.

use std::fs;
use std::os::fd::AsRawFd;

use ringside_bpf::gateway::GatewayProgram;

use crate::common::privileged;
use crate::gateway::bed::SIZES;

/// Limit for newer kernels: twice the count of Linux 6.18, which is 73,321. 6.1, whose verifier
/// knows fewer states to be alike, needs 109,485. Of a program that had 289,207 on 6.18 it refused
/// to see the end.
const MOST: u64 = 150_000;

#[test]
fn the_verifier_has_few_ways_to_follow() {
    if !privileged() {
        return;
    }
    let program = GatewayProgram::load(SIZES).unwrap();
    let path = format!("/proc/self/fdinfo/{}", program.program().as_raw_fd());
    let told = fs::read_to_string(path).unwrap();
    let line = told.lines().find_map(|line| line.strip_prefix("verified_insns:"));
    let verified: u64 = line.expect("Linux 5.16 tells it").trim().parse().unwrap();
    eprintln!("the verifier has looked at {verified} instructions");
    assert!((1..=MOST).contains(&verified), "{verified}");
}
