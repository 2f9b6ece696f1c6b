use ringside_xsk::hints::Hints;

#[derive(Hints)]
#[repr(C)]
struct Of<T> {
    value: T,
    btf_id: u32,
}

fn main() {}
