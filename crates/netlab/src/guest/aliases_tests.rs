use super::*;

/// As depmod writes them, of some NICs.
const FILE: &str = "\
# Aliases extracted from modules themselves.
alias pci:v00008086d000010C9sv*sd*bc*sc*i* igb
alias pci:v00008086d0000150Asv*sd*bc*sc*i* igb
alias pci:v00008086d000010CAsv*sd*bc*sc*i* igbvf
alias pci:v00008086d*sv*sd*bc02sc00i* every_intel
alias pci:v*d*sv*sd*bc01sc06i01* ahci
alias virtio:d00000001v* virtio_net
alias of:N*T*Cvendor,one-thing other
alias
";

fn pci(device: &str) -> String {
    format!("pci:v00008086d0000{device}sv00001AF4sd00001100bc02sc00i00")
}

#[test]
fn patterns_are_those_of_modules() {
    for (pattern, text, expected) in [
        ("", "", true),
        ("*", "", true),
        ("*", "anything", true),
        ("a*c", "abbc", true),
        ("a*c", "abcb", false),
        // The star takes more than the first that would do.
        ("a*bc*d", "abxbcxd", true),
        ("a*b?d", "abcbxd", true),
        ("?", "", false),
        ("a?", "a", false),
        ("a", "ab", false),
        ("ab", "a", false),
        ("d01[0-4]*", "d013x", true),
        ("d01[0-4]*", "d015x", false),
        ("d01[0-4a-f9]", "d01c", true),
        ("d01[0-4a-f9]", "d019", true),
        ("d01[0-4a-f9]", "d018", false),
        ("d01[-9]", "d01-", true),
        ("d01[0", "d010", false),
        // Numbers are written in capitals, and case counts.
        ("pci:v00008086d000010C9*", "pci:v00008086d000010c9sv", false),
    ] {
        assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
    }
    // Many stars take no time.
    assert!(!fits(&"*a".repeat(20), &"a".repeat(200_000)[..19]));
}

#[test]
fn modules_are_found_by_the_words_of_a_device() {
    assert_eq!(of_file(FILE, &pci("10C9")), ["igb", "every_intel"]);
    assert_eq!(of_file(FILE, &pci("10CA")), ["igbvf", "every_intel"]);
    assert_eq!(of_file(FILE, "virtio:d00000001v00001AF4"), ["virtio_net"]);
    assert_eq!(
        of_file(FILE, "pci:v000010ECd00008168sv00001043sd000085C8bc02sc00i00"),
        Vec::<String>::new()
    );
}

#[test]
fn what_is_built_in_is_found_too() {
    let entries = b"igb.license=GPL\0igb.alias=pci:v00008086d000010C9sv*sd*bc*sc*i*\0e1000.alias=x\0";
    assert!(is_built_in(entries, &pci("10C9")));
    assert!(!is_built_in(entries, &pci("10CA")));
    assert!(!is_built_in(b"", &pci("10C9")));
}
