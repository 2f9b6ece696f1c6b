use super::*;

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
