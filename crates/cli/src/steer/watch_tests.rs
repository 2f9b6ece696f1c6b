use super::by_rps;

#[test]
fn packets_by_rps_are_found_in_softnet_s_lines() {
    let line =
        |rps: &str, cpu: &str| format!("0000146f 00000000 00000003 0 0 0 0 0 0 {rps} 00000000 00000000 {cpu} 0 0");
    // CPU 1 is not online.
    let text = format!("{}\n{}\n", line("000000ff", "00000000"), line("00000010", "00000002"));
    assert_eq!(by_rps(&text), [(0, 255), (2, 16)]);
    assert_eq!(by_rps("0 0 0 0 0 0 0 0 0 5\n"), [(0, 5)]);
    assert_eq!(by_rps("0 0\n"), []);
}
