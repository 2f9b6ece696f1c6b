//! Which capability opens what.

use crate::common::{LEAST, privileged, with_only};
use ringside_bpf::{Filter, Sink, XskProgram};
use rustix::thread::CapabilitySet;

/// The error names what is missing; steering needs less than what only measures.
#[test]
fn the_least_capabilities_are_named() {
    if !privileged() {
        return;
    }
    let refused = |held: CapabilitySet| {
        let error = with_only(held, || XskProgram::load(1, Filter::All)).unwrap_err();
        assert!(matches!(error.errno(), Some(1 | 13)), "{error}");
        error.to_string()
    };
    for half in [
        CapabilitySet::empty(),
        CapabilitySet::BPF,
        CapabilitySet::NET_ADMIN | CapabilitySet::PERFMON,
    ] {
        let told = refused(half);
        assert!(told.contains("CAP_BPF and CAP_NET_ADMIN"), "{told}");
    }
    // The others, which only measure, parse by pointer.
    let error = with_only(LEAST, || Sink::load(Default::default())).unwrap_err();
    assert!(error.to_string().contains("CAP_PERFMON"), "{error}");
    let enough = LEAST | CapabilitySet::PERFMON;
    with_only(enough, || Sink::load(Default::default())).unwrap();
}
