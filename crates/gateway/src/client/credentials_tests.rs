use std::path::Path;
use std::sync::Arc;

use super::*;

/// A certificate and its key.
fn pair() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["host".to_owned()]).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

#[test]
fn the_last_good_files_go_on_and_what_is_wrong_is_said_once() {
    let folder = std::env::temp_dir().join(format!("ringside-credentials-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    let path = |name: &str| Some(folder.join(name));
    let at = At {
        socket: Path::new("/none").to_owned(),
        address: None,
        ca: path("ca.pem"),
        certificate: path("host.pem"),
        tls_key: path("host.key"),
    };
    let (first, second) = (pair(), pair());
    write("ca.pem", &first.0);
    write("host.pem", &first.0);
    write("host.key", &first.1);
    let config = |greeter: &Greeter| Arc::clone(&greeter.config);
    let greeter = Greeter::new(&at).unwrap();
    let before = config(&greeter);
    let mut credentials = Credentials::new(&at, greeter);
    let mut said = Vec::new();
    let mut newest = || {
        let shown = config(credentials.newest(|words| said.push(words.to_owned())));
        (shown, std::mem::take(&mut said))
    };
    // Nothing has changed: sessions may go on.
    let (now, said) = newest();
    assert!(Arc::ptr_eq(&now, &before) && said.is_empty(), "{said:?}");

    // Half of it has changed.
    write("host.pem", &second.0);
    let (now, said) = newest();
    assert!(Arc::ptr_eq(&now, &before));
    assert_eq!(
        said,
        ["--key is not the key of --certificate; what was read before is used on"]
    );
    let (now, said) = newest();
    assert!(Arc::ptr_eq(&now, &before) && said.is_empty(), "{said:?}");
    // Something else is wrong.
    std::fs::remove_file(folder.join("host.key")).unwrap();
    let (now, said) = newest();
    assert!(Arc::ptr_eq(&now, &before));
    assert!(
        matches!(&*said, [words] if words.starts_with("--key: reading ") && words.ends_with("; what was read before is used on")),
        "{said:?}"
    );

    write("host.key", &second.1);
    let (newer, said) = newest();
    assert!(!Arc::ptr_eq(&newer, &before) && said.is_empty(), "{said:?}");
    // Each file counts.
    write("ca.pem", &second.0);
    let (newest_of_all, _) = newest();
    assert!(!Arc::ptr_eq(&newest_of_all, &newer));
    // What is wrong again is said again.
    write("host.key", "none");
    let (now, said) = newest();
    assert!(Arc::ptr_eq(&now, &newest_of_all));
    assert!(
        matches!(&*said, [words] if words.starts_with("--key: there is no key in ")),
        "{said:?}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}
