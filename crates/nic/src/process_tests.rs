use super::*;

#[test]
fn the_start_time_is_field_22_whatever_the_name() {
    let stat = |name: &str, state: &str| {
        let rest: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        format!("7 ({name}) {state} {}", rest.join(" "))
    };
    for name in ["plain", "a b", ") R 1 2", "((x)"] {
        assert_eq!(parse_start_time(&stat(name, "S")), Some(22), "{name}");
        assert_eq!(parse_start_time(&stat(name, "Z")), None, "{name}");
    }
    assert_eq!(parse_start_time(""), None);
    assert_eq!(parse_start_time("7 (short) S 1 2"), None);
}

#[test]
fn own_and_ended_processes_are_told_apart() {
    let own = std::process::id();
    assert!(start_time(own).is_some_and(|start| start > 0));
    assert!(command(own).is_some_and(|name| !name.is_empty()));
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    assert_eq!(start_time(child.id()), None);
    assert_eq!(start_time(u32::MAX), None);
}
