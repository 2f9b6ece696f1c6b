use super::*;

#[test]
fn releases_are_compared_by_number() {
    for (release, at_least) in [
        ("6.15.0", true),
        ("6.15", true),
        ("6.9.12-arch1-1", false),
        ("6.14.0-rc1", false),
        ("7.0-rc3", true),
        ("5.15.0", false),
        ("strange", false),
        ("", false),
    ] {
        assert_eq!(release_is_at_least(release, (6, 15)), at_least, "{release}");
    }
}

#[test]
fn the_report_says_who_does_what() {
    let report = TxMetadataReport {
        stamps: Some(ObtainedStamps {
            clock: "CLOCK_TAI",
            source: "software",
            one_in: 16,
            outstanding: Some(2),
        }),
        checksum: Some(ChecksumBy::Kernel),
        launch_time: Some(LaunchBy::Nobody),
    };
    assert_eq!(
        report.to_string(),
        "stamps of CLOCK_TAI in software for one packet in 16, 2 at a time; checksums by the kernel; launch times ignored: packets leave at once"
    );
}
