use ringside_xsk::hints::Hints;

#[derive(Hints)]
#[repr(C)]
struct Borrowed<'a> {
    value: &'a u32,
    btf_id: u32,
}

fn main() {}
