//! CSV files that are wrong: which line is named, and what is expected.

use super::common::daemon::Daemon;

#[test]
fn errors_of_csv_files_name_the_line_and_the_columns() {
    let daemon = Daemon::start("");
    let file = daemon.folder.join("file.csv");
    let rejects = |words: &[&str], text: &str| {
        std::fs::write(&file, text).unwrap();
        daemon.rejects(&[words, &[file.to_str().unwrap()]].concat())
    };
    let (load, delete) = (["load"], ["delete", "neighbors", "--file"]);
    let row = "42,10.8.0.1,02:00:00:00:00:01,192.0.2.1";
    for (text, expected) in [
        (
            "vni,ip,mac,host-ip\n\n# c\n42,10.8.0.0,02:00:00:00:00:01\n".to_owned(),
            "line 4: 3 fields, and the header has 4",
        ),
        (
            format!("# a\nvni,ip,mac,host-ip\n\n{row}\n# b\n# c\n\n{row},1"),
            "line 8: 5 fields, and the header has 4",
        ),
        ("vni;ip;mac;host-ip\n".to_owned(), "line 1: the header lacks vni, ip"),
        ("# a\n\nip,host-ip\n".to_owned(), "line 3: the header lacks vni"),
        (
            "{\"vni\": 42, \"ip\": \"10.8.0.0\"}\n".to_owned(),
            "line 1: the header lacks vni, ip",
        ),
        ("vni,ip,mac,host-ip,ip\n".to_owned(), "line 1: the header has ip twice"),
        ("\x1f\u{fffd}\0".to_owned(), "line 1: the header lacks vni, ip"),
    ] {
        for words in [&load[..], &delete] {
            let said = rejects(words, &text);
            assert!(said.contains(expected), "{words:?} {text:?}: {said}");
            assert!(
                expected.contains("fields")
                    || said.contains("expected is CSV whose first line names the columns vni, ip"),
                "{said}"
            );
        }
    }
    let said = rejects(&load, &format!("vni,ip,mac,host-ip,colour\n{row},red\n"));
    assert!(
        said.contains("line 1: the header has colour, which is no column"),
        "{said}"
    );
    std::fs::write(&file, b"vni,ip\n\n\xff,10.8.0.0\n").unwrap();
    let said = daemon.rejects(&["load", file.to_str().unwrap()]);
    assert!(said.contains("line 1: the header lacks mac, host-ip"), "{said}");
    let said = daemon.rejects(&["delete", "neighbors", "--file", file.to_str().unwrap()]);
    assert!(said.contains("line 3: not UTF-8"), "{said}");
    daemon.stop();
}

/// Like the parser of the command line, and before it looks for a gateway.
#[test]
fn keys_of_wrong_form_end_with_status_2() {
    let port = "is not the number of a network: 0 to 16777215";
    for (words, expected) in [
        (&["get", "neighbor", "16777216", "10.0.0.7"][..], port),
        (&["get", "port", "99999999999", "10.0.0.7"], port),
        (&["delete", "neighbor", "16777216", "10.0.0.7"], port),
        (&["delete", "port", "x", "10.0.0.7"], port),
        (&["list", "neighbors", "--vni", "16777216"], port),
        (&["get", "neighbor", "42"], "network and address are needed"),
        (&["get", "port", "42", "10.0.0"], "\"10.0.0\" is not an IP address"),
        (&["get", "group", "1", "2"], "one number of a security group is needed"),
        (&["delete", "group", "x"], "\"x\" is not the number of a security group"),
    ] {
        let output = super::binary().arg("ctl").args(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(expected), "{words:?}: {said}");
    }
}
