use super::*;

fn state(ptp: Option<i64>, phc: Option<(i64, u64)>, kernel: Option<u64>, most: Option<u64>) -> Gate {
    let mut state = ClockState {
        kernel_is_synchronised: Some(kernel.is_some()),
        kernel_most_error_ns: kernel,
        ptp4l_offset_ns: ptp,
        phc_offset_ns: phc.map(|(offset, _)| offset),
        phc_uncertainty_ns: phc.map(|(_, uncertainty)| uncertainty),
        most_offset_ns: most,
        ptp4l_silence: Some("there is no ptp4l".into()),
        ..ClockState::default()
    };
    judge(&mut state);
    Gate { state }
}

#[test]
fn the_best_word_counts() {
    let of = |gate: Gate| (gate.state.offset_ns, gate.state.by.unwrap_or_default());
    let (some, none) = (Some((-300, 50)), None);
    assert_eq!(
        of(state(Some(-100), some, Some(9_000), None)),
        (Some(450), "ptp4l and the NIC's clock".into())
    );
    assert_eq!(
        of(state(Some(-100), none, Some(9_000), None)),
        (Some(100), "ptp4l".into())
    );
    assert_eq!(
        of(state(None, some, Some(9_000), None)),
        (Some(9_000), "the kernel's bound (maxerror)".into())
    );
    assert_eq!(
        of(state(None, some, None, None)),
        (None, String::new()),
        "a NIC's clock that nobody keeps"
    );
}

#[test]
fn worse_than_asked_is_refused() {
    assert!(state(Some(1_000), None, None, Some(1_000)).check().is_ok());
    let error = state(Some(-1_001), None, None, Some(1_000))
        .check()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("--max-clock-offset 1 µs") && error.contains("1.001 µs off, by ptp4l"),
        "{error}"
    );
    let error = state(None, None, None, Some(1_000)).check().unwrap_err().to_string();
    assert!(
        error.contains("nobody knows") && error.contains("there is no ptp4l"),
        "{error}"
    );
    assert!(state(None, None, None, None).check().is_ok(), "nothing was asked for");
}

#[test]
fn a_clock_that_gets_worse_is_told() {
    let offset = |a, b| {
        state(a, None, None, None)
            .and_then(state(b, None, None, None))
            .state
            .offset_ns
    };
    assert_eq!(offset(Some(5), Some(9)), Some(9));
    assert_eq!(offset(Some(9), Some(5)), Some(9));
    assert_eq!(offset(Some(9), None), None, "whoever knew has ended");
}

#[test]
fn a_clock_that_was_set_has_no_offset_from_the_monotonic_one() {
    let state = |offset_ns, uncertainty_ns| ClockState {
        tai_less_monotonic_ns: Some(offset_ns),
        tai_less_monotonic_uncertainty_ns: Some(uncertainty_ns),
        ..ClockState::default()
    };
    let gate = |state| Gate { state };
    let both = |before, after| monotonic(&gate(before).and_then(gate(after)).state);
    assert_eq!(both(state(1_000, 50), state(1_040, 20)), Some((1_040, 20)));
    assert_eq!(both(state(1_000, 20), state(1_040, 50)), Some((1_000, 20)));
    assert_eq!(both(state(1_000, 20), state(1_041, 20)), None);
    assert_eq!(both(state(1_000, 20), ClockState::default()), None);
}
