use proptest::prelude::*;

use super::*;
use crate::fleet::testing::address;

proptest! {
    #[test]
    fn a_key_is_read_as_it_was_written(address in address(), id: u32) {
        let (block, low) = Block::of(address);
        prop_assert_eq!(block.address(low), address);
        for key in [Key::Ports(block), Key::Neighbors(block), Key::Group(GroupId(id))] {
            prop_assert_eq!(Key::parse(key.to_string().as_bytes()), Some(key));
        }
    }

    #[test]
    fn keys_have_the_order_of_what_they_name(a in address(), b in address()) {
        let (Key::Neighbors(a), Key::Neighbors(b)) = (key(a), key(b)) else { unreachable!() };
        let same_family = a.first.is_ipv4() == b.first.is_ipv4();
        prop_assume!(a.vni != b.vni || same_family);
        prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
    }
}

fn key(address: TenantAddress) -> Key {
    Key::Neighbors(Block::of(address).0)
}

#[test]
fn keys_are_what_the_documentation_says() {
    let address = |ip: &str| TenantAddress::new(Vni::new(42).unwrap(), ip.parse().unwrap());
    assert_eq!(key(address("10.0.0.7")).to_string(), "v1/neighbors/00002a/0a00000");
    assert_eq!(
        key(address("fd00::17")).to_string(),
        "v1/neighbors/00002a/fd00000000000000000000000000001"
    );
    assert_eq!(Key::Group(GroupId(1)).to_string(), "v1/groups/00000001");
}

#[test]
fn what_is_no_key_is_refused() {
    let wrong = [
        "v1/neighbors/00002a/0A00000",
        "v1/neighbors/2a/0a00000",
        "v1/neighbors/1000000/0a00000",
        "v1/neighbors/00002a/+a00000",
        "v1/neighbors/00002a",
        "v1/ports/00002a/0a000000",
        "v1/groups/1",
        "v1/fleet",
        "v2/groups/00000001",
    ];
    for text in wrong {
        assert_eq!(Key::parse(text.as_bytes()), None, "{text}");
    }
}
