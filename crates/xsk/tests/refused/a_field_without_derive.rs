use ringside_xsk::hints::Hints;

#[repr(C)]
struct Vlan {
    proto: u16,
    tci: u16,
}

#[derive(Hints)]
#[repr(C)]
struct RxVlan {
    vlan: Vlan,
    btf_id: u32,
}

fn main() {}
