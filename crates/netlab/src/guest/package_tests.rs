use super::*;

#[test]
fn a_package_is_written_as_apt_does() {
    for text in [
        "linux-image-amd64",
        "linux-image-rt-amd64/trixie-backports",
        "linux-image-7.3.4+deb13-amd64",
    ] {
        assert_eq!(text.parse::<Package>().unwrap().to_string(), text);
    }
    for text in ["", "/sid", "a/", "-o/sid", "a b", "a/b/c", "../x", "a\nb"] {
        let error = text.parse::<Package>().unwrap_err().to_string();
        assert!(error.contains("NAME/SUITE"), "{text:?}: {error}");
    }
}

#[test]
fn fields_of_os_release_are_read_with_and_without_quotes() {
    let text = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\nVERSION_CODENAME=bookworm\n";
    assert_eq!(field(text, "ID"), Some("debian"));
    assert_eq!(field(text, "PRETTY_NAME"), Some("Debian GNU/Linux 12 (bookworm)"));
    assert_eq!(field(text, "VERSION"), None);
}
