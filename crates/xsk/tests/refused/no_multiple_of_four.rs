use ringside_xsk::hints::Hints;

#[derive(Hints)]
#[repr(C, packed)]
struct Flag {
    flag: u8,
    btf_id: u32,
}

fn main() {}
