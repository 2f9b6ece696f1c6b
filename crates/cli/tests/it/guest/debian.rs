//! Debian 12's own kernel, Linux 6.1, as `ringside doctor` finds it.

use serde_json::Value;

use super::{Hosts, RINGSIDE, end};

/// The one of its images for clouds: the same, with fewer drivers.
pub(super) const DEBIAN_12: &str = "linux-image-cloud-amd64/bookworm";

/// What it says that there is not came with a later kernel, and all that it says that there is was there by then; what it tries works.
pub(super) fn doctor_tells_what_6_1_has(hosts: &Hosts) {
    let line = "doctor eth0 --live --deadline 120 --probes 20 --peer 10.9.0.2";
    let done = hosts.ringside(&format!("{line} --json"));
    let json = done.json();
    eprintln!("{}", end(line, hosts.start(&format!("{RINGSIDE} {line} -v"))).out);

    let features = json["facts"]["kernel"].as_object().expect("the kernel's features");
    let mut known = 0;
    for (name, feature) in features {
        let Some(since) = feature["since"].as_str() else {
            continue;
        };
        let (major, minor) = since.split_once('.').expect("a version");
        let since: (u32, u32) = (major.parse().expect("a number"), minor.parse().expect("a number"));
        assert_eq!(
            feature["available"],
            Value::Bool(since <= (6, 1)),
            "{name}: {feature:#}"
        );
        known += 1;
    }
    assert!(known > 10, "{features:#?}");

    let findings = json["findings"].as_array().expect("findings");
    let finding = |id: &str| {
        let found = findings.iter().find(|finding| finding["id"] == id);
        found.unwrap_or_else(|| panic!("no {id}: {json:#}"))
    };
    let missing = finding("kernel.missing")["what"].as_str().expect("text");
    assert!(
        missing.contains("(XDP_USE_SG) (Linux 6.6)") && missing.contains("for RX metadata (Linux 6.3)"),
        "{missing}"
    );
    // Linux 6.3 tells the modes of a driver.
    assert_eq!(finding("interface.modes")["severity"], "note", "{json:#}");

    for (bed, expected) in [
        // Its driver has no zero-copy there (Linux 6.11), and says so in no other way.
        (
            "live",
            [("zero_copy", "refused"), ("native_copy", "asked"), ("generic", "asked")],
        ),
        (
            "veth",
            [("zero_copy", "refused"), ("native_copy", "asked"), ("generic", "asked")],
        ),
    ] {
        let test = &json["facts"][bed];
        let tries = test["tries"].as_array().unwrap_or_else(|| panic!("{bed}: {json:#}"));
        let mut outcomes: Vec<_> = tries
            .iter()
            .map(|tried| {
                (
                    tried["mode"].as_str().unwrap_or(""),
                    tried["outcome"].as_str().unwrap_or(""),
                )
            })
            .collect();
        outcomes.dedup();
        assert_eq!(outcomes, expected, "{bed}: {test:#}");
        for tried in tries.iter().filter(|tried| tried["outcome"] == "asked") {
            assert_eq!(tried["answered"], tried["sent"], "{bed}: {test:#}");
        }
        assert_eq!(test["failure"], Value::Null, "{bed}: {test:#}");
    }
}
