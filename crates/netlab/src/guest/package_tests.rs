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
fn dependencies_are_names_the_first_of_alternatives() {
    let shown = "Package: linux-image-7.3.4+deb13-amd64\nDepends: linux-initramfs-tool | dracut, \
                 linux-binary-7.3.4+deb13-amd64 (= 7.3.4-1), python3:any\nRecommends: apparmor\n";
    let found: Vec<_> = dependencies(shown).collect();
    assert_eq!(
        found,
        ["linux-initramfs-tool", "linux-binary-7.3.4+deb13-amd64", "python3"]
    );
}

#[test]
fn the_server_is_that_of_the_suite_then_that_of_the_release() {
    let targets = "http://other/x/ stable contrib\nhttp://other/x/ stable main\nhttp://a/debian/ bookworm main\n\
                   http://a/security/ bookworm-security main\n";
    assert_eq!(
        server(targets, "trixie-backports", "bookworm"),
        Some("http://a/debian/")
    );
    assert_eq!(
        server(targets, "bookworm-security", "bookworm"),
        Some("http://a/security/")
    );
    assert_eq!(server(targets, "trixie", "noble"), Some("http://other/x/"));
    assert_eq!(server("", "trixie", "bookworm"), None);
}

#[test]
fn fields_of_os_release_are_read_with_and_without_quotes() {
    let text = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\nVERSION_CODENAME=bookworm\n";
    assert_eq!(field(text, "ID"), Some("debian"));
    assert_eq!(field(text, "PRETTY_NAME"), Some("Debian GNU/Linux 12 (bookworm)"));
    assert_eq!(field(text, "VERSION"), None);
}

/// apt-get itself succeeds where it could not read an index, and prints a line that begins with "W:".
#[test]
fn an_unreachable_package_index_is_an_error_in_apts_own_words() {
    let folder = std::env::temp_dir().join(format!("ringside-apt-{}", std::process::id()));
    // Port 9 of loopback: nobody listens there.
    let sources = "Types: deb\nURIs: http://127.0.0.1:9/debian\nSuites: bookworm\nComponents: main\nTrusted: yes\n";
    let mut apt = Apt::new(&folder, Some(sources)).expect("a folder for apt");
    apt.options.push("Acquire::Retries=0".to_owned());
    let error = apt.update().expect_err("nobody serves that index");
    std::fs::remove_dir_all(&folder).expect("folder removed");
    assert!(error.contains("http://127.0.0.1:9/debian"), "{error}");
}
