use super::*;

#[test]
fn names_of_modules_are_told_from_files() {
    assert_eq!(module_name("i2c-algo-bit.ko.xz").as_deref(), Some("i2c_algo_bit"));
    assert_eq!(module_name("8021q.ko").as_deref(), Some("8021q"));
    assert_eq!(module_name("veth.ko.zst").as_deref(), Some("veth"));
    assert_eq!(module_name("modules.order"), None);
    assert_eq!(module_name("veth.ko.xz.part"), None);
}
