use super::*;
use crate::{Filter, XskProgram};

#[test]
fn a_packet_too_short_for_a_dry_run_is_an_error_with_its_length() {
    if !ringside_netlab::testing::is_root() {
        return;
    }
    let program = XskProgram::load(1, Filter::All).unwrap();
    let error = dry_run(program.program(), &[0; 13]).unwrap_err();
    assert!(matches!(error, Error::Run { .. }));
    assert!(error.to_string().contains("13 bytes"), "{error}");
}

#[test]
fn actions_have_the_kernels_numbers() {
    let named = [
        Verdict::Aborted,
        Verdict::Drop,
        Verdict::Pass,
        Verdict::Tx,
        Verdict::Redirect,
    ];
    for (action, verdict) in (0..).zip(named) {
        assert_eq!(Verdict::from(action), verdict);
    }
    assert_eq!(Verdict::from(5), Verdict::Unknown(5));
}
