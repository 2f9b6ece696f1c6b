use super::*;

#[test]
fn lists_are_the_kernels() {
    assert_eq!(parse("0"), [0]);
    assert_eq!(parse("0-2,5,7-8"), [0, 1, 2, 5, 7, 8]);
    assert_eq!(parse(""), [0_u32; 0]);
    assert_eq!(parse("1-4294967295").len(), 65536, "cut off");
    for list in ["", "0", "3", "0-1", "0-2,5,7-8", "1,3"] {
        assert_eq!(text(&parse(list)), list);
    }
    assert_eq!(text(&[8, 1, 0, 1]), "0-1,8");
}

#[test]
fn a_thread_is_pinned_and_its_cpus_are_told() {
    let own = || std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let outcome = std::thread::spawn(move || {
        let status = own();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().to_owned()
        };
        let thread = field("Pid:").parse().unwrap();
        let before = of_thread(thread).unwrap();
        assert_eq!(text(&before), field("Cpus_allowed_list:"));
        let last = *before.last().unwrap();
        pin_thread(thread, &[last]).unwrap();
        assert_eq!(of_thread(thread).unwrap(), [last]);
        for (thread, cpus, errno) in [
            (thread, vec![], libc::EINVAL),
            (thread, vec![u32::MAX], libc::EINVAL),
            (0, vec![last], libc::ESRCH),
            (u32::MAX, vec![last], libc::ESRCH),
        ] {
            let error = pin_thread(thread, &cpus).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(errno), "{thread} {cpus:?}");
        }
        assert_eq!(of_thread(thread).unwrap(), [last], "as before");
    });
    outcome.join().unwrap();
}

#[test]
fn masks_have_groups_of_32_bits() {
    for (mask, cpus) in [
        ("00000000", vec![]),
        ("00000003", vec![0, 1]),
        ("80000000", vec![31]),
        ("00000001,00000000", vec![32]),
        ("00000001,00000000,00000010", vec![4, 64]),
    ] {
        assert_eq!(super::mask(&cpus), mask);
        assert_eq!(super::from_mask(mask), Some(cpus), "{mask}");
    }
    assert_eq!(super::from_mask("3\n"), Some(vec![0, 1]));
    assert_eq!(super::mask(&[64, 4, 4]), "00000001,00000000,00000010");
    for nonsense in ["", "x", "1,,0", "100000000"] {
        assert_eq!(super::from_mask(nonsense), None, "{nonsense}");
    }
}
