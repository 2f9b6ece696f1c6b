use super::*;

#[test]
fn addresses_are_read_as_lspci_writes_them() {
    for (text, written) in [
        ("0000:3b:00.1", "0000:3b:00.1"),
        ("3b:00.1", "0000:3b:00.1"),
        ("10000:E1:1f.7", "10000:e1:1f.7"),
    ] {
        assert_eq!(text.parse::<PciAddress>().expect(text).to_string(), written);
    }
    for text in [
        "",
        "eth0",
        "3b:00",
        "3b:00.8",
        "3b:20.0",
        "100:00.0",
        "0000:3b:00.1/..",
        ":00.0",
        "3b:+1.0",
        "../..",
    ] {
        let error = text.parse::<PciAddress>().expect_err(text).to_string();
        assert!(
            error.contains(&format!("'{text}'")) && error.contains("lspci"),
            "{error}"
        );
    }
}
