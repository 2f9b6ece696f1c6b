use ringside_xsk::hints::Hints;

#[derive(Hints)]
#[repr(C)]
struct Long {
    bytes: [u8; 252],
    btf_id: u32,
}

fn main() {}
