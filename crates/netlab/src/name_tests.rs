use super::*;

#[test]
fn a_name_is_unique_and_its_owner_lives() {
    let (first, second) = (unique("x").unwrap(), unique("x").unwrap());
    assert_ne!(first, second);
    assert!(!is_stale(&first));
    let (pid, start) = owner(&first).unwrap();
    assert_eq!(pid, std::process::id());
    assert_eq!(u64::from_str_radix(start, 36).ok(), start_time(pid));
}

#[test]
fn another_start_time_or_pid_is_stale() {
    let pid = std::process::id();
    let start = start_time(pid).unwrap();
    assert!(is_stale(&compose(pid, start + 1, 0, "x")));
    // Above the largest possible process number.
    assert!(is_stale(&compose(u32::MAX, start, 0, "x")));
}

#[test]
fn names_of_others_are_never_stale() {
    for name in [
        "",
        "blue",
        "rs-",
        "rs-blue",
        "rs-1-2",
        "rs-1-2-3",
        "rs-x-2-3-t",
        "rs-4294967295-A-3-t",
        "rs-1--3-t",
        "rs-1-2-x-t",
    ] {
        assert!(!is_stale(name), "{name}");
    }
}

#[test]
fn tags_are_cut_and_made_harmless() {
    let name = compose(4_194_304, u64::MAX, u32::MAX, &"../é x".repeat(20));
    assert!(
        name.len() <= MAX_LEN && name.is_ascii() && !name.contains(['/', '.', ' ']),
        "{name}"
    );
    assert!(owner(&name).is_some());
}

#[test]
fn base36_is_the_usual_one() {
    for (value, text) in [(0, "0"), (35, "z"), (36, "10"), (u64::MAX, "3w5e11264sgsf")] {
        assert_eq!(base36(value), text);
    }
}
