use super::*;
use crate::testing::copy_program;

#[test]
fn a_program_of_here_has_its_libraries_and_its_loader() {
    let own = std::env::current_exe().unwrap();
    let found = libraries(&own).unwrap();
    let names: Vec<_> = found
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy())
        .collect();
    assert!(names.iter().any(|name| name.starts_with("libc.so")), "{names:?}");
    assert!(names.last().unwrap().starts_with("ld-"), "{names:?}");
    assert!(found.iter().all(|path| path.exists()));
}

#[test]
fn a_library_that_is_missing_is_named() {
    let text =
        "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibz.so.1 => /lib/libz.so.1 (0x00007f12)\n\tlibodd.so.3 => not found\n";
    assert_eq!(listed_libraries(text), Err("libodd.so.3: not found".into()));
    let text = &text[..text.find("\tlibodd").unwrap()];
    assert_eq!(listed_libraries(text), Ok(vec!["/lib/libz.so.1".into()]));
}

#[test]
fn what_is_no_program_is_an_error_that_names_it() {
    let error = libraries(Path::new("/etc/hostname")).unwrap_err().to_string();
    assert!(error.contains("/etc/hostname"), "{error}");
    let error = libraries(Path::new("/nowhere/x")).unwrap_err().to_string();
    assert!(error.contains("/nowhere/x"), "{error}");
}

#[test]
fn a_program_runs_without_what_debuggers_read() {
    let own = fs::read(std::env::current_exe().unwrap()).unwrap();
    let short = without_debug(&own);
    // Symbols at least; lines, too, where the tests are compiled with them.
    assert!(short.len() < own.len(), "{} of {}", short.len(), own.len());
    // A guest in a guest is made of such programs.
    let interpreter = loader(&own).unwrap();
    assert!(interpreter.is_some());
    assert_eq!(loader(short).unwrap(), interpreter);
    let mut longer = own.clone();
    longer.extend(b"something of its own");
    assert_eq!(without_debug(&longer).len(), longer.len());
    assert_eq!(without_debug(b"#!/bin/sh\n"), b"#!/bin/sh\n");
    let [written, copy] =
        ["written", "short"].map(|name| std::env::temp_dir().join(crate::name::unique(name).unwrap()));
    fs::write(&written, short).unwrap();
    copy_program(&written, &copy);
    let listed = Command::new(&copy).arg("--list").output();
    fs::remove_file(&written).unwrap();
    fs::remove_file(&copy).unwrap();
    assert!(
        String::from_utf8(listed.unwrap().stdout)
            .unwrap()
            .contains("a_program_runs_without")
    );
}
