use super::*;

#[test]
fn a_turn_is_repeated_until_it_is_quiet() {
    let of = |quiet: &[bool]| {
        let mut tries = quiet.iter().zip(1..);
        let told = until_quiet(|| {
            let (is_quiet, number) = tries.next().expect("no further try");
            Ok((number, *is_quiet))
        });
        told.expect("a turn")
    };
    assert_eq!(of(&[true, true]), (1, 0));
    assert_eq!(of(&[false, false, true, true]), (3, 2));
    // It is enough at some time, and the last one stands.
    assert_eq!(of(&[false; 9]), (TRIES, TRIES - 1));
    assert!(until_quiet(|| -> Result<((), bool)> { bail!("the disk is full") }).is_err());
}
