use super::*;

#[test]
fn threads_are_told_by_their_names() {
    let of = |name: &str| napi_of(name, "eth0");
    assert_eq!(of("napi/eth0-8193"), Some(Some(8193)));
    assert_eq!(of("napi/eth0-123456"), Some(Some(123_456)));
    assert_eq!(of("napi/eth0-0"), Some(None));
    for other in [
        "napi/eth1-8193",
        "napi/eth01-8193",
        "napi/eth0-",
        "napi/eth0-x",
        "eth0-8193",
        "napi/eth0",
    ] {
        assert_eq!(of(other), None, "{other}");
    }
    // Fifteen bytes: the number may go on.
    assert_eq!(of("napi/eth0-81931"), Some(None));
    // A longer interface's name leaves no number.
    assert_eq!(napi_of("napi/enp1s0f1np", "enp1s0f1np1"), Some(None));
    assert_eq!(napi_of("napi/enp1s0f1n-", "enp1s0f1n"), Some(None));
    assert_eq!(napi_of("napi/enp1s0f2np", "enp1s0f1np1"), None);
    assert_eq!(napi_of("napi/enp1s0f1np1-8193", "enp1s0f1np1"), Some(Some(8193)));
}
